"""The promises of examples/train_moe.c, through its command line: it learns, in the same bits at any number of ranks
and after any interruption, and it refuses bad options and bad checkpoints with one sentence.

The text is the program's own source. Runs are small: TINY trains for well under a second.
"""

import csv
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

PROGRAM = os.environ["TRAIN_MOE"]
SOURCE = Path(os.environ["TRAIN_MOE_SOURCE"])
SMALL = os.environ.get("MMOE_TEST_SCALE") == "small"  # under a sanitizer everything is slower
TINY = {"text": SOURCE, "tokens": 256, "context": 6, "embedding": 8, "hidden": 32, "intermediate": 32, "experts": 8,
        "layers": 2, "steps": 30, "report": 10, "save": 10, "sample": 20}


def command(out, *flags, **changes):
    options = TINY | changes
    return [PROGRAM, "--out", str(out), *flags, *(f"--{name.replace('_', '-')}={value}" for name, value in options.items()
                                                  if value is not None)]


def run(arguments, **environment):
    return subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=120, env=os.environ | environment)


def train(out, *flags, **changes):
    done = run(command(out, *flags, **changes))
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(errors="replace")


def refuse(arguments, sentence, code=1, **environment):
    """The program must say exactly this, and nothing on its output."""
    done = run(arguments, **environment)
    assert done.returncode == code
    assert re.search(sentence, done.stderr.decode()), done.stderr.decode()
    assert done.stdout == b""


def rows(out):
    with open(out / "log.csv", newline="", encoding="ascii") as log:
        return list(csv.DictReader(log))


def curve(out):
    """The log without its one column that is a measurement."""
    return [[value for name, value in row.items() if name != "tokens_per_second"] for row in rows(out)]


def checkpoint(out):
    return (out / "checkpoint.bin").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run on one rank, which others are compared with."""
    out = tmp_path_factory.mktemp("whole")
    train(out, ranks=1)
    assert [row["step"] for row in rows(out)] == ["10", "20", "30"]
    return out


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_any_number_of_ranks_trains_the_same_bits(whole, tmp_path, ranks):
    train(tmp_path, ranks=ranks)
    assert curve(tmp_path) == curve(whole)
    assert checkpoint(tmp_path) == checkpoint(whole)


def test_another_seed_trains_another_model(whole, tmp_path):
    train(tmp_path, ranks=1, seed=2)
    assert checkpoint(tmp_path) != checkpoint(whole)
    assert curve(tmp_path) != curve(whole)


LONG = {"steps": 100 if SMALL else 400, "report": 20, "save": 20, "ranks": 2}


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    out = tmp_path_factory.mktemp("long")
    train(out, **LONG)
    return out


def interrupt(out, how, when, **changes):
    """Starts a run and sends it a signal as soon as `when` says so."""
    with subprocess.Popen(command(out, **(LONG | changes)), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 60
        while not when(out):
            assert child.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)
        child.send_signal(how)
        said = child.stdout.read().decode(errors="replace")
    return child.returncode, said


@pytest.mark.parametrize("left", ["390,1,1,1,1\n", "2"], ids=["a line past the checkpoint", "a torn line"])
def test_a_killed_run_resumes_to_the_same_bits_on_other_ranks(long, tmp_path, left):
    code, _ = interrupt(tmp_path, signal.SIGKILL, lambda out: (out / "checkpoint.bin").exists())
    assert code == -signal.SIGKILL
    with open(tmp_path / "log.csv", "a", encoding="ascii") as log:
        log.write(left)
    said = train(tmp_path, "--resume", **(LONG | {"ranks": 4}))
    assert re.search(r"resumed after step \d+", said)
    assert checkpoint(tmp_path) == checkpoint(long)
    assert curve(tmp_path) == curve(long)


def test_ctrl_c_saves_and_resumes_to_the_same_bits(long, tmp_path):
    code, said = interrupt(tmp_path, signal.SIGINT, lambda out: (out / "log.csv").exists() and len(rows(out)) >= 1,
                           save=100000)
    assert code == 128 + signal.SIGINT
    step = int(re.search(r"interrupted after step (\d+); --resume continues", said).group(1))
    assert 20 <= step < LONG["steps"]
    said = train(tmp_path, "--resume", **LONG)
    assert f"resumed after step {step}" in said
    assert checkpoint(tmp_path) == checkpoint(long)
    assert curve(tmp_path) == curve(long)


def test_a_finished_run_resumes_to_its_report(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "copy")
    said = train(tmp_path / "copy", "--resume", ranks=1)
    assert "resumed after step 30" in said and "validation loss" in said
    assert checkpoint(tmp_path / "copy") == checkpoint(whole)
    assert rows(tmp_path / "copy") == rows(whole)


# ---- What a bad checkpoint meets --------------------------------------------------------------------------------

def damaged(kind, data):
    middle = len(data) // 2
    return {"empty": b"",
            "in the header": data[:50],
            "in the middle": data[:middle],
            "last byte": data[:-1],
            "too long": data + b"\0",
            "foreign": b"NUMPYDAT" + data[8:],
            "version": data[:8] + b"\x63" + data[9:],
            "bit": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]}[kind]


@pytest.mark.parametrize("kind, sentence", [
    ("empty", "checkpoint.bin is too short for a checkpoint"),
    ("in the header", "checkpoint.bin is too short for a checkpoint"),
    ("in the middle", r"checkpoint.bin holds \d+ bytes, expected \d+: it is not whole"),
    ("last byte", r"checkpoint.bin holds \d+ bytes, expected \d+: it is not whole"),
    ("too long", r"checkpoint.bin holds \d+ bytes, expected \d+: it is not whole"),
    ("foreign", "checkpoint.bin is not a checkpoint of this program"),
    ("version", "checkpoint.bin has version 99, expected 2"),
    ("bit", "checkpoint.bin is damaged: its checksum does not match"),
])
def test_a_bad_checkpoint_is_refused(whole, tmp_path, kind, sentence):
    bad = damaged(kind, checkpoint(whole))
    (tmp_path / "checkpoint.bin").write_bytes(bad)
    shutil.copy(whole / "log.csv", tmp_path)
    refuse(command(tmp_path, "--resume"), sentence)
    assert checkpoint(tmp_path) == bad
    assert rows(tmp_path) == rows(whole)


@pytest.mark.parametrize("change, sentence", [
    ({"hidden": 48}, "was made with --hidden 32, this run has 48"),
    ({"steps": 31}, "was made with --steps 30, this run has 31"),
    ({"rate": 2999}, "was made with --rate 3000, this run has 2999"),
    ({"top_k": 3}, "was made with --top-k 2, this run has 3"),
    ({"text": SOURCE.parent.parent / "include" / "megamoe.h"}, r"was made with another text: \d+ bytes"),
])
def test_a_checkpoint_of_another_run_is_refused(whole, tmp_path, change, sentence):
    shutil.copy(whole / "checkpoint.bin", tmp_path)
    shutil.copy(whole / "log.csv", tmp_path)
    refuse(command(tmp_path, "--resume", **change), sentence)


def test_resume_needs_a_checkpoint(tmp_path):
    refuse(command(tmp_path, "--resume"), "checkpoint.bin cannot be opened: No such file or directory")


# ---- What bad options meet --------------------------------------------------------------------------------------

@pytest.mark.parametrize("change, sentence", [
    ({"ranks": 3}, "--ranks is 3, expected 1, 2, 4, 8 or 16"),
    ({"ranks": 0}, "--ranks is 0, expected a whole number from 1 to 16"),
    ({"ranks": "two"}, "--ranks is two, expected a whole number from 1 to 16"),
    ({"steps": "10x"}, "--steps is 10x, expected a whole number from 1 to"),
    ({"steps": "99999999999999999999"}, "--steps is 99999999999999999999, expected a whole number from 1 to"),
    ({"seed": -1}, "--seed is -1, expected a whole number from 0 to"),
    ({"tokens": 100}, "--tokens is 100, expected a multiple of 16"),
    ({"experts": 6, "ranks": 4}, "--experts is 6, expected a multiple of --ranks, 4"),
    ({"top_k": 9}, "--top-k is 9, expected at most --experts, 8"),
    ({"top_k": 1}, "--top-k is 1, expected a whole number from 2 to"),
    ({"hidden": ""}, "--hidden is , expected a whole number from 1 to"),
    ({"layers": 17}, "--layers is 17, expected a whole number from 1 to 16"),
])
def test_a_bad_option_is_refused(tmp_path, change, sentence):
    refuse(command(tmp_path / "out", **change), sentence, code=64)
    assert not (tmp_path / "out").exists()


def test_a_stray_argument_is_refused(tmp_path):
    refuse([*command(tmp_path / "out"), "book.txt"], "'book.txt' is not an option; a text is given as --text FILE", 64)


def test_a_bad_text_is_refused(tmp_path):
    out, short = tmp_path / "out", tmp_path / "short.txt"
    short.write_text("too short")
    refuse(command(out, text=tmp_path / "none.txt"), "none.txt cannot be opened: No such file or directory")
    refuse(command(out, text=tmp_path), "cannot be read: Is a directory")
    refuse(command(out, text=short), "short.txt holds 9 bytes, expected at least 160")
    assert not out.exists()


def test_a_bad_folder_is_refused(tmp_path):
    refuse(command(tmp_path / "no" / "out"), "--out .*/no/out cannot be made: No such file or directory")
    (tmp_path / "file").write_text("")
    refuse(command(tmp_path / "file"), "file/log.csv cannot be written: Not a directory")


def test_one_of_several_processes_is_refused(tmp_path):
    refuse(command(tmp_path / "out"), "WORLD_SIZE is 2 in the environment, expected 1: the ranks are threads", RANK="1",
           WORLD_SIZE="2")
    assert not (tmp_path / "out").exists()
    assert run(command(tmp_path / "out", steps=1), RANK="0", WORLD_SIZE="1").returncode == 0


def test_training_that_diverges_says_so(tmp_path):
    done = run(command(tmp_path, rate=10**12, steps=100))
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["train_moe: training has diverged: a router score is not a number"]


# ---- What it finds, and what it shows ---------------------------------------------------------------------------

def tools(folder, **scripts):
    """A PATH with these programs and no others: a script's text, or None for the system's own program."""
    folder.mkdir()
    for name, script in scripts.items():
        if script is None:
            (folder / name).symlink_to(shutil.which(name))
        else:
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)
    return str(folder)


def test_the_default_text_is_what_bible_prints(tmp_path):
    none = tools(tmp_path / "none")
    refuse(command(tmp_path / "out", text=None), "install the Debian package bible-kjv, or give --text FILE", PATH=none)
    some = tools(tmp_path / "some", bible="#!/bin/sh\nexec cat " + str(SOURCE) + "\n", cat=None)
    done = run(command(tmp_path / "out", text=None, steps=1), PATH=some)
    assert done.returncode == 0, done.stderr.decode()
    assert f"{SOURCE.stat().st_size} bytes" in done.stdout.decode(errors="replace")


def test_the_picture(tmp_path):
    done = run(command(tmp_path / "out", steps=2), PATH=tools(tmp_path / "none"))
    assert done.returncode == 0
    assert "picture  not drawn: gnuplot is missing or failed" in done.stdout.decode(errors="replace")
    failing = tools(tmp_path / "failing", gnuplot="#!/bin/sh\nexit 1\n")
    done = run(command(tmp_path / "out", steps=2), PATH=failing)
    assert done.returncode == 0
    assert "picture  not drawn: gnuplot is missing or failed" in done.stdout.decode(errors="replace")
    said = train(tmp_path / "out", steps=20, report=2)
    assert f"picture  {tmp_path}/out/loss.svg" in said
    picture = (tmp_path / "out" / "loss.svg").read_text()
    assert "<svg" in picture and "validation" in picture and "training" in picture


@pytest.mark.skipif(SMALL, reason="what it learns does not depend on the sanitizer")
def test_it_learns(tmp_path):
    """Far below what the frequencies of bytes alone allow, on text it has not seen; and the report says so truly."""
    said = train(tmp_path, hidden=64, intermediate=64, tokens=512, steps=300, report=50, sample=50, context=8)
    text = SOURCE.read_bytes()
    entropy = -sum(n / len(text) * math.log(n / len(text)) for n in Counter(text).values())
    losses = [float(row["validation_loss"]) for row in rows(tmp_path)]
    assert losses[0] > losses[2] > losses[-1]
    assert losses[-1] < 0.75 * entropy

    shown = re.search(r"unigram entropy of the text +([\d.]+) +([\d.]+)\nvalidation loss +([\d.]+) +([\d.]+)", said)
    expected = [entropy, entropy / math.log(2), losses[-1], losses[-1] / math.log(2)]
    assert [float(number) for number in shown.groups()] == pytest.approx(expected, abs=6e-4)

    shares = re.findall(r"block (\d)  rank (\d+) +expert (\d+) +([\d.]+) %", said)
    assert [(int(block), int(expert)) for block, _, expert, _ in shares] == [(b, e) for b in (0, 1) for e in range(8)]
    assert [int(rank) for _, rank, _, _ in shares] == 2 * [0, 0, 1, 1, 2, 2, 3, 3]
    for block in range(2):
        assert sum(float(share) for b, _, _, share in shares if int(b) == block) == pytest.approx(100, abs=0.5)
    assert all(float(row["load_imbalance"]) >= 1 for row in rows(tmp_path))
    assert float(rows(tmp_path)[-1]["load_imbalance"]) < 1.5
