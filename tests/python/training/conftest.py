"""Processes of these tests' own: two on the CPU, as many as there are GPUs there."""

import pytest
from setting import DEVICE, RANKS


@pytest.fixture(scope="session")
def processes():
    from processes import Processes
    with Processes(2 if DEVICE == "cpu" else RANKS, case_seconds=120) as made:
        yield made
