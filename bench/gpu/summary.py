"""Timed runs as records: median, spread, speed; of several ranks, those of the slower one."""

import statistics


def of_runs(milliseconds, flop):
    quarters = statistics.quantiles(milliseconds, n=4)
    median = statistics.median(milliseconds)
    return {
        "milliseconds": round(median, 5),
        "quartiles": [round(quarters[0], 5), round(quarters[2], 5)],
        "least": round(min(milliseconds), 5),
        "most": round(max(milliseconds), 5),
        "runs": len(milliseconds),
        "tflops": round(flop / median * 1e-9, 1),
    }


def of_ranks(times, flop):
    """Of each rank's runs and rounds, in order of ranks; `flop` are those of one rank, on average."""
    medians = [statistics.median(one["milliseconds"]) for one in times]
    slower = medians.index(max(medians))
    return {
        **of_runs(times[slower]["milliseconds"], flop),
        "ranks": [round(median, 5) for median in medians],
        "rounds": [{"rank": rank, **one} for rank, own in enumerate(times) for one in own["rounds"]],
    }
