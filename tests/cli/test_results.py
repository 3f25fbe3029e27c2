"""What run and check compute: against NumPy, against each other, and the same at any number of ranks and threads."""

import os
import re
import subprocess

import numpy as np
import pytest

from arrays import from_bf16, layer, relative_error
from command import COMMAND, TINY, clean_environment, good, megamoe, record

BOUND = 5.5e-3
LAYER = ["--hidden=96", "--intermediate=64", "--experts=8", "--top-k=3"]


def checksums(*arguments):
    return record("run", *arguments)["checksums"]


@pytest.mark.parametrize("routing", ["uniform", "zipf:1.5", "one:3"])
@pytest.mark.parametrize("more", [[], ["--keep=plan"], ["--weight-on=input"], ["--limit=0.5"]])
def test_same_checksums_at_any_number_of_ranks_and_threads(routing, more):
    arguments = [*LAYER, f"--routing={routing}", *more]
    one = checksums(*arguments, "--ranks=1", "--tokens=40")
    assert sorted(one) == sorted("y dx dw dW1 dW2 dW3".split())
    assert len(set(one.values())) == 6
    assert checksums(*arguments, "--ranks=1", "--tokens=40", "--threads=1") == one
    assert checksums(*arguments, "--ranks=1", "--tokens=40", "--threads=3") == one
    assert checksums(*arguments, "--ranks=2", "--tokens=20") == one
    assert checksums(*arguments, "--ranks=4", "--tokens=40,0,0,0") == one
    assert checksums(*arguments, "--ranks=8", "--tokens=5", "--threads=2") == one


def test_checksums_tell_data_apart():
    base = [*LAYER, "--tokens=10"]
    seen = [checksums(*base)]
    for change in (["--seed=1"], ["--routing=zipf:2"], ["--limit=0.1"], ["--weight-on=input"]):
        other = checksums(*base, *change)
        assert all(other["y"] != before["y"] and other["dW1"] != before["dW1"] for before in seen)
        seen.append(other)


def test_keeping_rows_or_the_plan_is_the_same_layer():
    assert checksums(*LAYER, "--keep=rows", "--ranks=2") == checksums(*LAYER, "--keep=plan", "--ranks=2")


@pytest.mark.parametrize("ranks", [1, 4])
def test_results_against_numpy(tmp_path, ranks):
    good("run", *LAYER, "--tokens=7", f"--ranks={ranks}", "--routing=zipf:1", f"--save={tmp_path}")
    tensors = {path.stem: np.load(path) for path in tmp_path.glob("*.npy")}
    for name, reference in layer(tensors).items():
        value = tensors[name].astype(np.float64) if name == "dw" else from_bf16(tensors[name])
        assert relative_error(value, reference) <= BOUND, name


@pytest.mark.parametrize("arguments", [
    [],
    ["--ranks=4"],
    ["--ranks=2", "--tokens=9,0", "--routing=zipf:2"],
    ["--ranks=2", "--routing=one:0", "--keep=plan"],
    ["--ranks=4", "--limit=0.3"],
    ["--ranks=2", "--weight-on=input"],
    ["--ranks=4", "--combine=grouped"],
    ["--ranks=2", "--tokens=0"],
    ["--ranks=4", "--tokens=16", "--capacity=9", "--drop", "--routing=zipf:1"],
])
def test_check_is_within_the_bound(arguments):
    told = record("check", *TINY, *arguments)
    assert told["ok"] is True
    assert [line["tensor"] for line in told["tensors"]] == ["y", "dx", "dw", "dW1", "dW2", "dW3"]
    for line in told["tensors"]:
        assert line["bound"] == BOUND
        assert line["error"] <= BOUND
    empty = "--tokens=0" in arguments
    assert all((line["error"] == 0) == empty for line in told["tensors"])


def test_the_forward_alone(tmp_path):
    told = record("check", *TINY, "--ranks=2", "--forward")
    assert told["ok"] is True
    assert [line["tensor"] for line in told["tensors"]] == ["y"]
    assert 0 < told["tensors"][0]["error"] <= BOUND
    both, alone = (record("run", *TINY, "--ranks=2", *more) for more in ([], ["--forward", f"--save={tmp_path}"]))
    assert alone["checksums"] == {"y": both["checksums"]["y"]}
    assert "backward" in both and "backward" not in alone
    assert sorted(file.stem for file in tmp_path.iterdir()) == sorted(
        ["x", "dy", "ids", "w", "W1", "W3", "W2", "y"])


def test_check_prints_one_line_a_tensor():
    lines = [line.split() for line in good("check").splitlines()[2:]]
    assert [(line[0], line[1], line[3], line[-1]) for line in lines] == [
        (name, "error", "bound", "ok") for name in ("y", "dx", "dw", "dW1", "dW2", "dW3")]


def test_run_tells_rows_bytes_and_times():
    told = record("run", *LAYER, "--tokens=10", "--ranks=2")
    for call in ("forward", "backward"):
        assert len(told[call]) == 2
        assert sum(rank["rows"] for rank in told[call]) == 2 * 10 * 3
        for rank in told[call]:
            assert rank["padded_rows"] >= rank["rows"] and rank["padded_rows"] % 128 == 0
            assert rank["bytes_pulled"] > 0 and rank["bytes_pushed"] > 0
            times = rank["seconds"]
            assert times["total"] > 0
            assert 0 < sum(times.values()) - times["total"] <= times["total"] * 1.05
    assert told["forward"][0]["seconds"]["dgrad"] == 0 and told["backward"][0]["seconds"]["dgrad"] > 0
    text = good("run", *LAYER, "--tokens=10", "--ranks=2")
    for word in ("forward, milliseconds", "backward, milliseconds", "checksums", "dW2 "):
        assert word in text


def test_info_counts_the_plan_and_every_buffer():
    told = record("info", *TINY, "--ranks=2", "--tokens=5")
    assert sum(told["plan"]["expert_slots"]) == sum(rank["rows"] for rank in told["plan"]["ranks"]) == 20
    assert told["plan"]["imbalance"] >= 1
    for sizes in (told["sizes"], told["worst_sizes"]):
        assert len(sizes) == 19
        assert sizes["x_slot"] >= 5 * 64 * 2
        assert sizes["segment"] >= sum(sizes[part] for part in ("x_slot", "dy_slot", "routing", "combine_slots",
                                                                "dw_slots", "flags"))
    assert told["worst_sizes"]["scratch"] >= told["sizes"]["scratch"]
    assert [(b["name"], b["present"]) for b in told["backends"]][-1] == ("cpu", True)
    assert record("info", *TINY, "--routing=one:2")["plan"]["expert_slots"] == [0, 0, 8, 0, 0, 0, 0, 0]


def test_made_up_routers():
    uniform = record("info", "--tokens=2000", "--experts=16", "--top-k=4")["plan"]["expert_slots"]
    zipf = record("info", "--tokens=2000", "--experts=16", "--top-k=4", "--routing=zipf:1.5")["plan"]["expert_slots"]
    assert sum(uniform) == sum(zipf) == 8000
    assert max(uniform) < 1.2 * min(uniform)
    assert max(zipf) > 1900 and min(zipf) < 300


LONG = ["bench", "--tokens=512", "--iterations=10000"]  # a minute at least; the tests end it


def test_no_progress_on_quick_work():
    quick = megamoe("run", *TINY, "--progress")
    assert quick.returncode == 0 and quick.stderr == ""


def test_progress_lines_when_asked():
    with subprocess.Popen([COMMAND, *LONG, "--progress"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=clean_environment()) as slow:
        line = slow.stderr.readline()
        slow.kill()
    assert re.fullmatch(r"benchmark \[#*\.*\] \d+/10001, \d+ s\n", line), line


def test_progress_bar_on_a_terminal():
    ours, theirs = os.openpty()
    with subprocess.Popen([COMMAND, *LONG], stdout=subprocess.PIPE, stderr=theirs, env=clean_environment()) as slow:
        seen = os.read(ours, 200)
        slow.kill()
    os.close(ours)
    os.close(theirs)
    assert seen.startswith(b"\r\x1b[Kbenchmark [") and b"/10001" in seen
