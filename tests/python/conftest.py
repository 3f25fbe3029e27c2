"""What the tests share: fresh memory full of NaN, a context of one rank, and processes that are ranks."""

import pytest
import torch

from setting import RANKS, context_options, device_of


@pytest.fixture(autouse=True)
def poisoned_memory():
    """torch.empty gives NaN, and the largest integer: what an op leaves unwritten shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def context():
    import megamoe
    with megamoe.Context(device=device_of(), **context_options()) as made:
        yield made


@pytest.fixture(scope="session")
def processes():
    from processes import Processes
    with Processes(RANKS) as made:
        yield made
