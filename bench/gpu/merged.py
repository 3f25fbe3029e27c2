"""What all ranks measured of a case's forward in the parallel benchmark, as one record with its ratios and targets."""

import operator

import summary

# Ways to run the forward over the ranks, and what they are compared with.
FIXED, GROW, KEPT = "ours, fixed", "ours, grows", "ours, rows kept"
LOCAL, UNFUSED, DENSE = "ours, all local", "unfused", "dense"
OURS = (FIXED, GROW, KEPT)
GROUPED = "ours, grouped combine"  # of one case alone

MOST_OF_DENSE = 1.32  # time of ours over that of dense cuBLAS
MOST_OF_PLAN = 1.07  # time with rows kept over that with the plan alone


def times_of(parts, name, when, flop):
    """None where this was not timed."""
    times = [part["times"][name][when] for part in parts]
    return summary.of_ranks(times, flop) if times[0]["milliseconds"] else None


def variants_of(parts, flop_of):
    """By name; `flop_of`: from a name to the FLOPs of a rank, on average."""
    return {name: {**times_of(parts, name, "sustained", flop), "idle": times_of(parts, name, "idle", flop)}
            for name, flop in ((name, flop_of(name)) for name in parts[0]["times"])}


class Medians:
    """Of variants, sustained or after rest."""

    def __init__(self, variants, when):
        found = {name: one if when == "sustained" else one["idle"] for name, one in variants.items()}
        self.of = {name: one["milliseconds"] for name, one in found.items() if one is not None}

    def both(self, first, second, function):
        """None where one of the two was not timed."""
        return round(function(self.of[first], self.of[second]), 4) if first in self.of and second in self.of else None

    def ratio(self, above, below):
        return self.both(above, below, operator.truediv)

    def difference(self, longer, shorter):
        return self.both(longer, shorter, operator.sub)


def ours_among(names):
    return [name for name in (*OURS, GROUPED) if name in names]


def ratios(variants, when):
    """None for what was not timed."""
    medians, ours = Medians(variants, when), ours_among(variants)
    return {
        "to_dense": {name: medians.ratio(name, DENSE) for name in (*ours, LOCAL, UNFUSED)},
        "unfused_to": {name: medians.ratio(UNFUSED, name) for name in ours},
        "kept_to_plan": medians.ratio(KEPT, FIXED),
        "exposed_milliseconds": medians.difference(FIXED, LOCAL),
    }


def targets(sustained):
    """Each with its value, most allowed and verdict."""
    asked = [(f"{name}, of dense", sustained["to_dense"][name], MOST_OF_DENSE) for name in (FIXED, GROW)]
    asked.append(("rows kept, of plan kept", sustained["kept_to_plan"], MOST_OF_PLAN))
    return [{"name": name, "value": value, "most": most, "met": value <= most} for name, value, most in asked]


def traffic(parts):
    """Bytes over NVLink of each rank and variant, and the least: each token once to each rank that wants it, each
    result of a slot once."""
    return {"least": {key: [part["least_bytes"][key] for part in parts] for key in ("pulled", "pushed")},
            "moved": {name: {key: [part["reports"][name][f"bytes_{key}"] for part in parts]
                             for key in ("pulled", "pushed")} for name in ours_among(parts[0]["reports"])}}


def reports(parts):
    return {name: [part["reports"][name] for part in parts] for name in parts[0]["reports"]}


def record(case, parts):
    """`case`: its fields; `parts`: what each rank yielded, in order of ranks."""
    rows = [part["rows"] for part in parts]
    flop = 6.0 * case["hidden"] * case["intermediate"] * sum(rows) / len(rows)
    variants = variants_of(parts, lambda name: flop)
    sustained = ratios(variants, "sustained")
    return {
        **case,
        "rows": rows,
        "variants": variants,
        "ratios": {"sustained": sustained, "idle": ratios(variants, "idle")},
        "targets": targets(sustained) if case["headline"] else [],
        "nvlink_bytes": traffic(parts),
        "reports": reports(parts),
        "differences": {name: max(part["differences"][name] for part in parts) for name in parts[0]["differences"]},
        "unfused_sum": parts[0]["unfused_sum"],
    }
