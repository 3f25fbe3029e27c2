"""Proof by training: a Qwen3-MoE model learns real text with our experts as it does with the stock ones.

On the CPU a small model, on GPUs a larger one (runs.py); criterion.py says what "as" means.
"""

import criterion
import pytest

pytest.importorskip("transformers", reason="not run: Transformers is not installed")

import record  # noqa: E402
import several  # noqa: E402
from faults import FAULTS  # noqa: E402
from runs import OURS, SHARED, SIZES, STOCK, WORLD, Run  # noqa: E402
from text import unigram_entropy  # noqa: E402

over_ranks = pytest.mark.skipif(WORLD < 2, reason="not run: one GPU")


@pytest.fixture(scope="module")
def trained(processes):
    """Curves of the stock runs and of ours, by name."""
    found = several.each(processes, STOCK | {OURS: Run(OURS)})
    ours = {OURS: found.pop(OURS)}
    if processes.world > 1:
        ours[SHARED] = several.together(processes, Run(OURS))
    record.write_where_wanted(found, ours)
    return found, ours


@pytest.fixture(scope="module")
def faulty(processes):
    """Curves of ours with each fault, over the first two parts."""
    return several.each(processes, {name: Run(OURS, fault=name, steps=2 * SIZES.part) for name in FAULTS})


def refusals(run, references, stock):
    return criterion.refusals(run, list(references), list(stock.values()), SIZES.part)


def test_every_model_has_learned(trained):
    """More than how often each byte occurs."""
    stock, ours = trained
    for name, run in (stock | ours).items():
        final = sum(run["loss"][-SIZES.part:]) / SIZES.part
        assert final < 0.9 * unigram_entropy() < 0.6 * run["loss"][0], name


def test_ours_learn_as_the_stock_experts(trained):
    stock, ours = trained
    assert refusals(ours[OURS], stock.values(), stock) == {}


@over_ranks
def test_experts_over_ranks_learn_as_the_stock_experts(trained):
    stock, ours = trained
    assert refusals(ours[SHARED], stock.values(), stock) == {}


@over_ranks
def test_experts_over_ranks_learn_as_those_of_one(trained):
    stock, ours = trained
    assert refusals(ours[SHARED], [ours[OURS]], stock) == {}


# Lost tokens change the loss and the gradients by little: which of them leaves the noise first is the model's matter.
@pytest.mark.parametrize(("fault", "shown_by"), [
    ("gradient of down_proj nine tenths", {"gradient of down_proj"}),
    ("no gradient of router weights", {"gradient of mlp.gate"}),
    ("no gradient of tokens", {"loss"}),
    ("every 31st token without its experts", {"loss", "gradient of down_proj"}),
])
def test_a_planted_fault_is_refused(trained, faulty, fault, shown_by):
    stock, _ = trained
    assert shown_by & {name for name, _, _ in refusals(faulty[fault], stock.values(), stock)}
