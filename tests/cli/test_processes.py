"""Ranks that are processes, started as torchrun starts them."""

import json
import os
import socket
import subprocess
import tempfile
import time

import numpy as np
import pytest

from command import COMMAND, INPUT, RUN, TINY, clean_environment, record


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(world, *arguments, ranks=None, variables=None):
    """Starts the ranks in `ranks` (default: all) of a world."""
    where = variables or {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = []
    for rank in range(world) if ranks is None else ranks:
        environment = clean_environment() | where | {"RANK": str(rank), "WORLD_SIZE": str(world),
                                                     "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)}
        started.append(subprocess.Popen([COMMAND, *arguments], env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True))
    return started


def finish(started):
    try:
        return [(p.communicate(timeout=60), p.returncode) for p in started]
    finally:
        for p in started:
            p.kill()


@pytest.mark.parametrize("world", [1, 2, 4])
def test_processes_give_the_checksums_of_threads(world):
    arguments = ["run", *TINY, "--routing=zipf:1", "--json"]
    results = finish(start(world, *arguments))
    for rank, ((out, err), code) in enumerate(results):
        assert code == 0, err
        assert err == ""
        assert (out == "") == (rank > 0), "only rank 0 prints"
    told = json.loads(results[0][0][0])
    assert told["ranks"] == world and len(told["forward"]) == world
    assert all(rank["seconds"]["total"] > 0 for rank in told["forward"])
    assert told["checksums"] == record("run", *TINY, "--routing=zipf:1", f"--ranks={world}")["checksums"]


def test_rendezvous_by_path():
    with tempfile.TemporaryDirectory() as folder:
        results = finish(start(2, "check", *TINY, variables={"MMOE_RENDEZVOUS": os.path.join(folder, "meet")}))
        assert [code for _, code in results] == [0, 0], results
        assert results[0][0][0].count(" ok\n") == 6
        assert os.listdir(folder) == []


def test_check_bench_and_info():
    for arguments in (["check"], ["bench", "--iterations=1"], ["info"]):
        results = finish(start(2, *arguments, *TINY, "--json"))
        assert [code for _, code in results] == [0, 0], results
        assert json.loads(results[0][0][0])["ranks"] == 2
        assert results[1][0] == ("", "")


def test_saving_from_processes(tmp_path):
    arguments = ["run", *TINY, "--ranks=2", f"--save={tmp_path / 'threads'}"]
    subprocess.run([COMMAND, *arguments], check=True, capture_output=True, env=clean_environment(), timeout=60)
    results = finish(start(2, "run", *TINY, f"--save={tmp_path / 'processes'}"))
    assert [code for _, code in results] == [0, 0], results
    names = sorted(os.listdir(tmp_path / "threads"))
    assert names == sorted(os.listdir(tmp_path / "processes")) and len(names) == 13
    for name in names:
        assert (tmp_path / "threads" / name).read_bytes() == (tmp_path / "processes" / name).read_bytes()


def test_bad_input_reaches_every_rank():
    results = finish(start(2, "run", *TINY, "--capacity=3"))
    for (out, err), code in results:
        assert code == INPUT and out == "" and "capacity" in err


def test_ranks_that_disagree():
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = start(2, "run", *TINY, ranks=[0], variables=where) + start(
        2, "run", *TINY, "--hidden=128", ranks=[1], variables=where)
    for (out, err), code in finish(started):
        assert code == RUN and out == ""
        assert "64" in err and "128" in err


@pytest.mark.parametrize("first,other,option,values", [
    (["--seed=1"], ["--seed=2"], "--seed", ("1", "2")),
    ([], ["--routing=zipf:1"], "--routing", ("uniform", "zipf:1")),
    (["--routing=zipf:1"], ["--routing=zipf:1.0000009536743164"], "--routing",
     ("zipf:1", "zipf:1.0000009536743164")),
    (["--routing=one:1"], ["--routing=one:2"], "--routing", ("one:1", "one:2")),
    (["--tokens=4,4,4,4"], ["--tokens=4,4,4,3"], "--tokens", ("4,4,4,4", "4,4,4,3")),
    ([], ["--keep=plan"], "--keep", ("rows", "plan")),
    ([], ["--combine=grouped"], "--combine", ("exact", "grouped")),
    (["--save={tmp}"], [], "--save", ("{tmp}", "not given")),
    (["--x={tmp}/x.npy"], [], "--x", ("{tmp}/x.npy", "not given")),
    (["--x={tmp}/x.npy"], ["--x={tmp}/other.npy"], "--x", ("{tmp}/x.npy", "{tmp}/other.npy")),
])
def test_ranks_with_other_data(tmp_path, first, other, option, values):
    x = np.zeros((16, 64), np.float32)
    np.save(tmp_path / "x.npy", x)
    x[15, 63] = 1
    np.save(tmp_path / "other.npy", x)
    first, other, values = ([text.format(tmp=tmp_path) for text in part] for part in (first, other, values))
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = start(4, "run", *TINY, *other, ranks=[2], variables=where) + start(
        4, "run", *TINY, *first, ranks=[0, 1, 3], variables=where)
    cut = [value[:63] for value in values]
    expected = f"{option} is '{cut[0]}' on rank 0 and '{cut[1]}' on rank 2, expected the same on all ranks"
    for (out, err), code in finish(started):
        assert code == INPUT and out == ""
        assert expected in err and err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["other.npy", "x.npy"]


def test_ranks_with_other_commands():
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = start(2, "run", *TINY, ranks=[0], variables=where) + start(2, "check", *TINY, ranks=[1], variables=where)
    for (out, err), code in finish(started):
        assert code == INPUT and out == ""
        assert "the command is 'run' on rank 0 and 'check' on rank 1" in err


def test_equal_files_in_other_places_are_the_same_data(tmp_path):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.ones((8, 64), np.float32))
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = start(2, "run", *TINY, f"--x={tmp_path}/a.npy", ranks=[0], variables=where) + start(
        2, "run", *TINY, f"--x={tmp_path}/b.npy", ranks=[1], variables=where)
    assert [code for _, code in finish(started)] == [0, 0]


def test_a_killed_rank_ends_the_others():
    big = ["bench", "--hidden=512", "--intermediate=256", "--tokens=512", "--iterations=10000"]
    started = start(2, *big)
    time.sleep(3)
    assert started[0].poll() is None, started[0].communicate()
    started[1].kill()
    begin = time.monotonic()
    (out, err), code = finish(started)[0]
    assert code == RUN and out == ""
    assert "rank 1" in err
    assert time.monotonic() - begin < 40
