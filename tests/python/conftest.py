"""What the tests share: new memory full of NaN, a context of one rank, and processes that are ranks."""

import pytest
from setting import RANKS, context_options, device_of, poison_new_memory

poison_new_memory()


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
