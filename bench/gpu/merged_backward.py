"""What all ranks measured of a case's backward in the parallel benchmark, as one record with its ratios and targets.

A "step" is what a training step makes of a layer whose activations are not kept from the first forward on: that
forward, another one that keeps rows, and a backward.
"""

from merged import Medians, reports, variants_of

# Ways to run the backward over the ranks, and what they are compared with.
KEPT, KEPT_GROWS = "ours, rows kept", "ours, rows kept, grows"
REDONE, REDONE_GROWS = "ours, gate and up redone", "ours, gate and up redone, grows"
WIDE, ADDED = "ours, rows kept, fp32 gradients", "ours, rows kept, added to fp32"
LOCAL, UNFUSED = "ours, rows kept, all local", "unfused"
DENSE, DENSE_REDONE = "dense", "dense, gate and up redone"
STEP, UNFUSED_STEP, DENSE_STEP = "ours, step", "unfused, step", "dense, step"

OURS = (KEPT, KEPT_GROWS, REDONE, REDONE_GROWS)
BASES = {**dict.fromkeys((KEPT, KEPT_GROWS, WIDE, ADDED, LOCAL, UNFUSED), DENSE),
         **dict.fromkeys((REDONE, REDONE_GROWS), DENSE_REDONE), **dict.fromkeys((STEP, UNFUSED_STEP), DENSE_STEP)}
RIVALS = {**dict.fromkeys((*OURS, WIDE, ADDED), UNFUSED), STEP: UNFUSED_STEP}

MOST_OF_DENSE, GOAL_OF_DENSE = 1.33, 1.15  # time of ours over that of dense cuBLAS with as many FLOPs
MOST_OF_BF16 = 1.06  # time with fp32 gradients over that with bf16 ones


def units(name):
    """FLOPs of a way, in rows x hidden x intermediate."""
    base = BASES.get(name, name)
    return {DENSE: 12.0, DENSE_REDONE: 16.0, DENSE_STEP: 24.0}[base]


def ratios(variants, when):
    """None for what was not timed."""
    medians = Medians(variants, when)
    return {
        "to_dense": {name: medians.ratio(name, base) for name, base in BASES.items()},
        "unfused_to": {name: medians.ratio(rival, name) for name, rival in RIVALS.items()},
        "to_bf16": {name: medians.ratio(name, KEPT) for name in (WIDE, ADDED)},
        "exposed_milliseconds": medians.difference(KEPT, LOCAL),
    }


def target(name, value, most, **more):
    return {"name": name, "value": value, "most": most, "met": value <= most, **more}


def targets(sustained):
    """Each with its value, most allowed and verdict."""
    return [target(f"{name}, of dense", sustained["to_dense"][name], MOST_OF_DENSE, goal=GOAL_OF_DENSE)
            for name in OURS] + [target("fp32 gradients, of bf16", sustained["to_bf16"][WIDE], MOST_OF_BF16)]


def traffic(parts):
    """Bytes over NVLink of each rank and way, and the least: each token's dy, and x unless it was kept, once to each
    rank that wants it, each row's dx and dw once."""
    ways = [name for name in OURS if name in parts[0]["reports"]]
    return {"least": {kind: {key: [part["least_bytes"][kind][key] for part in parts] for key in ("pulled", "pushed")}
                      for kind in ("kept", "redone")},
            "moved": {name: {key: [part["reports"][name][f"bytes_{key}"] for part in parts]
                             for key in ("pulled", "pushed")} for name in ways}}


def differences(parts):
    """The largest of a way and gradient."""
    first = parts[0]["differences"]
    return {name: {what: max(part["differences"][name][what] for part in parts) for what in first[name]}
            for name in first}


def record(case, parts):
    """`case`: its fields; `parts`: what each rank yielded, in order of ranks."""
    flop = case["hidden"] * case["intermediate"] * sum(part["rows"] for part in parts) / len(parts)
    variants = variants_of(parts, lambda name: units(name) * flop)
    sustained = ratios(variants, "sustained")
    return {
        "variants": variants,
        "ratios": {"sustained": sustained, "idle": ratios(variants, "idle")},
        "targets": targets(sustained) if case["headline"] else [],
        "nvlink_bytes": traffic(parts),
        "reports": reports(parts),
        "differences": differences(parts),
        "unfused_sum": parts[0]["unfused_sum"],
    }
