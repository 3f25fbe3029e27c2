"""Processes of these tests' own: two on the CPU, as many as there are GPUs there."""

import pytest


@pytest.fixture(scope="session")
def processes():
    from processes import Processes
    from runs import WORLD
    with Processes(WORLD, case_seconds=120) as made:
        yield made
