"""When two trainings are the same but for rounding.

Runs that differ in rounding alone drift apart, and in steps that happen to be sensitive much further than in others. So
curves are compared in parts of many steps, by medians, and the measure is what stock runs differ by among themselves:

    noise     of a part of a curve: the median of |a - b| over its steps and all pairs of stock runs
    distance  of a run: the median of |run - reference| over the steps and all references, in units of the noise
    final     of a run: |mean loss of the last part - that of the references|, in units of that part's noise

The distance in each part of each curve is at most LIMIT, and so is final. Losses are compared by their
difference, lengths of gradients by that of their logarithms.
"""

import itertools

import torch

LIMIT = 3.0


def parts_of(curve, name, part, steps):
    """[parts, part] in the units of comparison, of the first steps."""
    values = torch.tensor(curve[:steps], dtype=torch.float64)
    return (values if name == "loss" else values.log()).view(-1, part)


def median(values):
    """Of each part over all tensors [parts, part]."""
    return torch.cat(values, dim=1).quantile(0.5, dim=1)


def noise_of(stock, name, part, steps):
    curves = [parts_of(run[name], name, part, steps) for run in stock]
    return median([(one - other).abs() for one, other in itertools.combinations(curves, 2)])


def distance_of(run, references, name, part):
    mine = parts_of(run[name], name, part, None)
    others = [parts_of(run[name], name, part, mine.numel()) for run in references]
    return median([(mine - other).abs() for other in others])


def measured(run, references, stock, part):
    """{"distance": {curve: one a part}, "noise": the same, "final": a number}."""
    noise = {name: noise_of(stock, name, part, len(curve)) for name, curve in run.items()}
    distance = {name: distance_of(run, references, name, part) / noise[name] for name in run}
    mine, *others = (parts_of(each["loss"], "loss", part, len(run["loss"]))[-1].mean() for each in (run, *references))
    final = (mine - torch.stack(others).mean()).abs() / noise["loss"][-1]
    return {"distance": {name: each.tolist() for name, each in distance.items()},
            "noise": {name: each.tolist() for name, each in noise.items()}, "final": float(final)}


def refusals(run, references, stock, part):
    """Where a run is not its references but for rounding: {(curve or "final loss", first step, last step): sentence}."""
    found, said = measured(run, references, stock, part), {}
    for name, distances in found["distance"].items():
        for number, distance in enumerate(distances):
            if not distance <= LIMIT:  # NaN is refused too
                said[name, number * part + 1, (number + 1) * part] = (
                    f"distance {distance:.2f}, at most {LIMIT}; the noise is {found['noise'][name][number]:.5f}")
    if not found["final"] <= LIMIT:
        steps = len(run["loss"])
        said["final loss", steps - part + 1, steps] = f"{found['final']:.2f} times the noise, at most {LIMIT}"
    return said
