"""The table of a training step's record, in Markdown that is readable as it stands."""

import statistics

from merged_training import OURS, SAVED, STOCK, of_slower
from tables import aligned, number, state

PARTS = {"experts forward": ["experts, forward"], "replay": ["experts, replay"], "backward": ["experts, backward"],
         "attention and rest": ["dense, forward", "dense, replay", "dense, backward"],
         "loss and head": ["loss and head"], "all-reduce": ["all-reduce"], "AdamW": ["optimizer"]}
HEADER = ["training step, ms", "step", "tokens/s a GPU", "of stock", *PARTS, "TFLOP/s", "peak GiB", "loss"]


def part_cell(variant, names):
    found = [variant["parts"][name] for name in names if name in variant["parts"]]
    return number(sum(found) if found else None, 0)


def cells(case, name):
    variant, ratio = case["variants"][name], case["ratios"]["of_stock"].get(name)
    peak = variant["peak_bytes"]
    return [name, number(variant["milliseconds"], 0), number(variant["tokens_per_second"], 0), number(ratio, 2),
            *(part_cell(variant, names) for names in PARTS.values()), number(variant["tflops"], 0),
            number(peak and peak / 2**30, 1), number(variant["loss"], 4)]


def short(record):
    (case,) = record["cases"]
    return aligned(HEADER, [cells(case, name) for name in (OURS, SAVED, STOCK)])


def line(tokens, ranks):
    """Of a variant that was just measured; `ranks`: what each yielded."""
    slower, loss = statistics.median(of_slower(ranks)["milliseconds"]), sum(own["loss"] for own in ranks)
    return f"{slower:.1f} ms a step, {1e3 * tokens / slower:.0f} tokens/s a GPU, loss {loss:.4f}"


def circumstances(record):
    (case,), machine = record["cases"], record["machine"]
    stock = case["variants"][STOCK]
    return (f"{record['world']} x {machine['gpu']}, driver {machine['driver']}, PyTorch {machine['torch']}, "
            f"{record['date'][:10]}, commit {record['commit']}; {case['layers']} layers of Qwen3-30B-A3B with "
            f"embedding and head, a sequence of {case['tokens']} random tokens a GPU, EP = {record['world']}, "
            f"{record['attention']} attention, {record['optimizer']}; medians of {stock['runs']} steps of the slower "
            f"rank, parts of other steps, TFLOP/s without replays; {state(record)}.")


def verdict(record):
    """The targets, and whether both paths trained the same model, one a line."""
    (case,) = record["cases"]
    lines = [f"{one['name']}: {one['value']:.3f}, at least {one['least']}: {'met' if one['met'] else 'NOT MET'}"
             for one in case["targets"]]
    found = case["differences"]
    lines += [f"{name}: loss of step {case['variants'][name]['steps']} {case['variants'][name]['loss']:.5f}, stock "
              f"{case['variants'][STOCK]['loss']:.5f}: relative difference {found['loss'][name]:.1e}, at most "
              f"{found['loss_bound']}: {'met' if value <= found['loss_bound'] else 'NOT MET'}"
              for name, value in found["loss"].items()]
    return "\n".join(lines)
