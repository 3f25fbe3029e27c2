"""Forward and backward take at most 1.6 times the time of the same matrix products through OpenBLAS alone."""

import pytest

from command import record

BOUND = 1.6


@pytest.mark.parametrize("ranks", [1, 2])
def test_ratio_to_openblas(ranks):
    told = record("bench", "--preset=Qwen3-30B-A3B", "--scale=4", f"--ranks={ranks}", "--iterations=9", "--warmup=2")
    assert told["ratio"]["both"] <= BOUND, told["ratio"]
