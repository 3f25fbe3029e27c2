"""The criterion itself, on curves that are made up: they drift, and single steps are far out."""

import criterion
import pytest
import torch

STEPS, PART = 80, 20
PARTS = [(first + 1, first + PART) for first in range(0, STEPS, PART)]


def drifting(seed, wider=1.0):
    """A curve of which another seed is another run: noise, a slow random walk, and single steps far out."""
    random = torch.Generator().manual_seed(seed)
    walk = 3e-4 * torch.randn(STEPS, generator=random, dtype=torch.float64).cumsum(0)
    steps = 3e-3 * torch.randn(STEPS, generator=random, dtype=torch.float64)
    steps[torch.randint(STEPS, (3,), generator=random)] *= 10
    return 3 + torch.linspace(2, 0, STEPS, dtype=torch.float64).exp() + wider * (walk + steps)


def refused(loss, length=None):
    """Of a run with this loss and, where it is not given, a good curve of lengths."""
    stock = [{"loss": drifting(seed).tolist(), "length": drifting(seed + 100).tolist()} for seed in range(4)]
    run = {"loss": loss.tolist(), "length": (drifting(200) if length is None else length).tolist()}
    return list(criterion.refusals(run, stock, stock, PART))


@pytest.mark.parametrize("seed", range(4, 12))
def test_other_roundings_pass(seed):
    assert refused(drifting(seed)) == []


def test_what_strays_is_refused_where_it_does():
    run = drifting(4)
    run[20:40] += 0.02
    assert refused(run) == [("loss", 21, 40)]
    assert ("loss", 1, 20) in refused(drifting(4, wider=8.0))


def test_the_final_loss_is_a_mean():
    """A few steps far out don't move a median."""
    run = drifting(4)
    run[70:75] += 0.1
    assert refused(run) == [("final loss", 61, 80)]


def test_what_is_no_number_is_refused():
    run = drifting(4)
    run[:11] = torch.nan
    assert refused(run) == [("loss", 1, 20)]


def test_lengths_are_compared_by_their_logarithms():
    good = drifting(4)
    assert refused(good, 0.99 * drifting(200)) == [("length", *part) for part in PARTS]
    assert refused(good, 0 * drifting(200)) == [("length", *part) for part in PARTS]
