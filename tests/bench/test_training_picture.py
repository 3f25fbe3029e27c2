"""The picture of trainings: what is drawn of a made-up record, and what is said of a bad one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

PROGRAM = Path(os.environ["MMOE_SOURCE"], "bench/training_picture.py")
STEPS, PART = 20, 10
RUNS = {"stock": ["eager", "grouped_mm"], "ours": ["megamoe", "megamoe, 2 ranks"]}
SIZES = {"hidden": 64, "layers": 2, "experts": 8, "top_k": 2, "sequences": 8, "length": 64, "steps": STEPS, "part": PART}


def record():
    losses = {kind: {name: {"loss": [6 - step / 10 + 0.01 * len(name) for step in range(STEPS)]} for name in names}
              for kind, names in RUNS.items()}
    return losses | {"device": "Some Processor", "sizes": SIZES, "unigram_entropy": 3.25,
                     "measured": {"megamoe": {"noise": {"loss": [0.04, 0.04]}}}}


def run(*arguments, **environment):
    return subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=30, check=False,
                          env=os.environ | environment)


@pytest.mark.skipif(not shutil.which("gnuplot"), reason="not run: gnuplot is missing")
def test_the_picture(tmp_path):
    (tmp_path / "training.json").write_text(json.dumps(record()))
    done = run(tmp_path / "training.json", tmp_path / "training.svg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    texts = {"".join(text.itertext()).strip() for text in
             ElementTree.parse(tmp_path / "training.svg").iter("{http://www.w3.org/2000/svg}text")}
    title = "Some Processor: hidden 64, 2 layers, 8 experts, top-2, 512 tokens a step"
    assert {*RUNS["stock"], *RUNS["ours"], title, "unigram entropy of the text"} <= texts


def test_what_can_not_be_drawn(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "good.json").write_text(json.dumps(record()))
    for arguments, environment, sentence in (
            (["no.json"], {}, "No such file"), (["bad.json"], {}, "Expecting property name"),
            (["good.json"], {"PATH": str(tmp_path)}, "gnuplot can't be started")):
        done = run(tmp_path / arguments[0], tmp_path / "picture.svg", **environment)
        assert done.returncode == 1 and sentence in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "picture.svg").exists()
