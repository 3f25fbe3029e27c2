"""The turns that a benchmark's variants take: none is always timed after the same other one."""

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/gpu"))

from measure import orders  # noqa: E402


@pytest.mark.parametrize("count", range(1, 12))
def test_each_round_has_each_variant_once(count):
    variants = [f"variant {number}" for number in range(count)]
    made = list(orders(variants, 2 * count))
    assert len(made) == 2 * count
    assert all(sorted(order) == sorted(variants) for order in made)


@pytest.mark.parametrize("count", range(2, 12))
def test_each_variant_follows_each_other_one_equally_often(count):
    rounds = 2 * count if count % 2 else count
    after = Counter(pair for order in orders(range(count), rounds) for pair in pairwise(order))
    assert after == {(first, second): rounds // count for first in range(count) for second in range(count)
                     if first != second}


def test_few_rounds_do_not_repeat_a_pair():
    after = Counter(pair for order in orders(range(8), 6) for pair in pairwise(order))
    assert max(after.values()) == 1
