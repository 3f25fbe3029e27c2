"""Processes are forked before this one computes anything, whichever test comes first."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def processes_first(processes):
    return processes
