"""What all ranks measured of a training step, as one record with its ratios, checks and targets."""

import math
import statistics
from dataclasses import asdict

import summary

OURS, SAVED, STOCK = "ours, full checkpoints", "ours, op saved", "stock, full checkpoints"
VARIANTS = (STOCK, OURS, SAVED)

LEAST_OF_STOCK = 1.40  # throughput of ours over that of stock
LOSS_BOUND = 1e-3  # relative, between the losses of the last step, which bf16 noise moves by some 1e-5


def flop_of_step(sizes, layers):
    """Of a rank: forward and backward of the model, what checkpoints replay left out."""
    attention = 2 * sizes.hidden * sizes.head_dim * (sizes.heads + sizes.kv_heads)
    of_layer = 2 * (attention + sizes.hidden * sizes.experts + 3 * sizes.top_k * sizes.hidden * sizes.intermediate)
    of_layer += 2 * sizes.tokens * sizes.heads * sizes.head_dim  # half of all pairs of tokens
    return 3.0 * sizes.tokens * (layers * of_layer + 2 * sizes.hidden * sizes.vocabulary)


def of_slower(ranks):
    """What was measured on the rank whose steps take longer."""
    return max(ranks, key=lambda own: statistics.median(own["milliseconds"]))


def mean_by_part(steps):
    return {name: round(statistics.mean(step[name] for step in steps), 4) for name in steps[0]}


def most(values):
    """None where nothing is known."""
    known = [value for value in values if value is not None]
    return max(known) if known else None


def of_variant(sizes, layers, ranks):
    timed = summary.of_ranks(ranks, flop_of_step(sizes, layers))
    return {**timed, "tokens_per_second": round(1e3 * sizes.tokens / timed["milliseconds"], 2),
            "parts": mean_by_part(of_slower(ranks)["parts"]), "peak_bytes": most(own["peak_bytes"] for own in ranks),
            "loss": sum(own["loss"] for own in ranks), "steps": ranks[0]["steps"],
            "seconds": round(max(own["seconds"] for own in ranks), 1)}


def largest_difference(tried):
    """Of a gradient of one layer on any rank; 0 of stock itself."""
    return max((value for own in tried for value in own["differences"].values()), default=0.0)


def fit(tried):
    """Layers on the rank that has room for fewest."""
    return min(own["fit"] for own in tried)


def of_stock(variants, name):
    return round(variants[STOCK]["milliseconds"] / variants[name]["milliseconds"], 4)


def loss_difference(variants, name):
    """Relative, NaN where a loss is not finite."""
    own, stock = variants[name]["loss"], variants[STOCK]["loss"]
    return abs(own - stock) / abs(stock) if math.isfinite(own) and math.isfinite(stock) else math.nan


def record(about, sizes, world, layers, tried, parts):
    """`tried` and `parts`: by variant, what each rank yielded of one layer and of all."""
    variants = {name: of_variant(sizes, layers, ranks) for name, ranks in parts.items()}
    ours = [name for name in variants if name != STOCK]
    ratios = {name: of_stock(variants, name) for name in ours}
    losses = {name: loss_difference(variants, name) for name in ours}
    case = {
        **asdict(sizes), "layers": layers, "variants": variants,
        "ratios": {"of_stock": ratios},
        "targets": [{"name": f"{name}: throughput over stock", "value": value, "least": LEAST_OF_STOCK,
                     "met": value >= LEAST_OF_STOCK} for name, value in ratios.items()],
        "differences": {"gradients_of_one_layer": {name: largest_difference(tried[name]) for name in ours},
                        "loss": losses, "loss_bound": LOSS_BOUND,
                        "losses_agree": all(value <= LOSS_BOUND for value in losses.values())},
        "layers_that_fit": {name: fit(ranks) for name, ranks in tried.items()},
    }
    return {**about, "world": world, "optimizer": "torch.optim.AdamW, fused, moments in bf16", "cases": [case]}
