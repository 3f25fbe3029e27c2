"""What all ranks measured of one case of the parallel benchmark, as one record with its ratios and targets."""

import summary

# Ways to run the forward over the ranks, and what they are compared with.
FIXED, GROW, KEPT = "ours, fixed", "ours, grows", "ours, rows kept"
LOCAL, UNFUSED, DENSE = "ours, all local", "unfused", "dense"
OURS = (FIXED, GROW, KEPT)

MOST_OF_DENSE = 1.32  # time of ours over that of dense cuBLAS
MOST_OF_PLAN = 1.07  # time with rows kept over that with the plan alone


def times_of(parts, name, when, flop):
    """None where this was not timed."""
    times = [part["times"][name][when] for part in parts]
    return summary.of_ranks(times, flop) if times[0]["milliseconds"] else None


def ratios(variants, when):
    """None for what was not timed."""
    found = {name: one if when == "sustained" else one["idle"] for name, one in variants.items()}
    times = {name: one["milliseconds"] for name, one in found.items() if one is not None}

    def ratio(above, below):
        return round(times[above] / times[below], 4) if above in times and below in times else None
    exposed = round(times[FIXED] - times[LOCAL], 4) if LOCAL in times and FIXED in times else None
    return {
        "to_dense": {name: ratio(name, DENSE) for name in (*OURS, LOCAL, UNFUSED)},
        "unfused_to": {name: ratio(UNFUSED, name) for name in OURS},
        "kept_to_plan": ratio(KEPT, FIXED),
        "exposed_milliseconds": exposed,
    }


def targets(sustained):
    """Each with its value, most allowed and verdict."""
    asked = [(f"{name}, of dense", sustained["to_dense"][name], MOST_OF_DENSE) for name in (FIXED, GROW)]
    asked.append(("rows kept, of plan kept", sustained["kept_to_plan"], MOST_OF_PLAN))
    return [{"name": name, "value": value, "most": most, "met": value <= most} for name, value, most in asked]


def traffic(parts):
    """Bytes over NVLink of each rank and variant, and the least: each token once to each rank that wants it, each
    result once."""
    return {"least": {key: [part["least_bytes"][key] for part in parts] for key in ("pulled", "pushed")},
            "moved": {name: {key: [part["reports"][name][f"bytes_{key}"] for part in parts]
                             for key in ("pulled", "pushed")} for name in OURS}}


def record(case, parts):
    """`case`: its fields; `parts`: what each rank yielded, in order of ranks."""
    rows = [part["rows"] for part in parts]
    flop = 6.0 * case["hidden"] * case["intermediate"] * sum(rows) / len(rows)
    variants = {name: {**times_of(parts, name, "sustained", flop), "idle": times_of(parts, name, "idle", flop)}
                for name in parts[0]["times"]}
    sustained = ratios(variants, "sustained")
    return {
        **case,
        "rows": rows,
        "variants": variants,
        "ratios": {"sustained": sustained, "idle": ratios(variants, "idle")},
        "targets": targets(sustained) if case["headline"] else [],
        "nvlink_bytes": traffic(parts),
        "reports": {name: [part["reports"][name] for part in parts] for name in parts[0]["reports"]},
        "differences": {name: max(part["differences"][name] for part in parts) for name in parts[0]["differences"]},
        "unfused_sum": parts[0]["unfused_sum"],
    }
