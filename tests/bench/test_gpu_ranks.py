"""The processes of a benchmark over several ranks: what they yield, and that none is left when one fails."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(os.environ["MMOE_SOURCE"]) / "bench/gpu"))

import ranks  # noqa: E402

LIMIT = 60.0


@pytest.fixture(autouse=True)
def nobody_left():
    yield
    assert multiprocessing.active_children() == []


def counting(rank, first):
    yield first + rank.number
    yield rank.most(10 * rank.number), rank.most(-rank.number)
    rank.meet()
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    yield [os.environ[name] for name in names]


def test_values_come_together_and_in_order():
    first, most, (zero, one, two) = ranks.run(counting, 3, (100,), LIMIT)
    assert first == [100, 101, 102]
    assert most == [(20, 0)] * 3
    assert zero[:5] == ["0", "0", "3", "3", "127.0.0.1"] and one[:4] == ["1", "1", "3", "3"] and two[0] == "2"
    assert zero[5] == one[5] == two[5] and 0 < int(zero[5]) < 65536


def failing(rank, how):
    yield "begun"
    if rank.number == 1:
        if how == "raise":
            raise ValueError("there is no more paper")
        if how == "exit":
            sys.exit("gone fishing")
        os.kill(os.getpid(), signal.SIGKILL)
    rank.meet()
    time.sleep(LIMIT)


@pytest.mark.parametrize("how, said", [("raise", "rank 1: ValueError: there is no more paper"),
                                       ("exit", "rank 1: SystemExit: gone fishing"),
                                       ("kill", "rank 1: ended by signal 9")])
def test_one_that_fails_ends_all(how, said):
    values = ranks.run(failing, 3, (how,), LIMIT)
    assert next(values) == ["begun"] * 3
    began = time.monotonic()
    with pytest.raises(ranks.Failed) as problem:
        next(values)
    assert str(problem.value) == said
    assert time.monotonic() - began < 10


def refusing(rank):
    time.sleep(0.2 * rank.number)
    yield 0
    raise ValueError(f"{rank.number} does not like it")


def test_all_that_fail_are_heard():
    with pytest.raises(ranks.Failed, match="rank 0: ValueError: 0 does.*; rank 1: ValueError: 1 does"):
        list(ranks.run(refusing, 2, (), LIMIT))


def unequal(rank):
    for number in range(rank.number):
        yield number


def test_all_yield_equally_often():
    with pytest.raises(ranks.Failed, match="some ranks yield another value"):
        list(ranks.run(unequal, 2, (), LIMIT))


def late(rank):
    yield 0
    if rank.number == 1:
        time.sleep(LIMIT)
    yield 1


def test_the_limit_names_who_is_late():
    with pytest.raises(ranks.Failed, match="more than 3 s; no word from rank 1$"):
        list(ranks.run(late, 2, (), 3.0))


def test_a_caller_that_stops_leaves_nobody():
    values = ranks.run(late, 2, (), LIMIT)
    assert next(values) == [0, 0]
    values.close()


def crashing_later(rank):
    yield rank.number
    if rank.number == 0:
        import atexit
        atexit.register(os._exit, 3)


def test_one_that_crashes_after_its_work_is_a_failure():
    with pytest.raises(ranks.Failed, match="after its work rank 0 ended with status 3"):
        list(ranks.run(crashing_later, 2, (), LIMIT))


def missing(rank):
    ranks.PATIENCE = 1
    if rank.number == 0:
        rank.meet()
    yield time.sleep(3)


def test_a_rank_that_waits_in_vain_says_so():
    with pytest.raises(ranks.Failed, match="rank 0: ranks.Failed: not all ranks met within 1 s"):
        list(ranks.run(missing, 2, (), LIMIT))
