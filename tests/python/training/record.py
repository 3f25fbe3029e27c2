"""Curves as a JSON file, of which bench/training_picture.py makes the picture in docs."""

import dataclasses
import datetime
import json
import os
import platform
import sys
from pathlib import Path

import torch
import transformers
from setting import DEVICE

import criterion
from runs import OURS, SHARED, SIZES
from text import unigram_entropy

BENCH = Path(__file__).resolve().parents[3] / "bench/gpu"


def commit():
    sys.path.append(str(BENCH))
    try:
        from measure import commit as of_this_tree
    finally:
        sys.path.remove(str(BENCH))
    return of_this_tree()


def device():
    if DEVICE == "cuda":
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def rounded(runs):
    """To six digits, which is more than a picture shows."""
    return {name: {curve: [float(f"{value:.6g}") for value in values] for curve, values in run.items()}
            for name, run in runs.items()}


def write(folder, stock, ours):
    """training.json in a folder: all curves, and how far each run of ours is from what it is compared with."""
    references = list(stock.values())
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(), "device": device(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "sizes": dataclasses.asdict(SIZES), "unigram_entropy": unigram_entropy(),
        "limit": criterion.LIMIT,
        "stock": rounded(stock), "ours": rounded(ours),
        "measured": {name: criterion.measured(run, references, references, SIZES.part) for name, run in ours.items()},
    }
    if SHARED in ours:
        record["measured"][f"{SHARED}, from one"] = criterion.measured(ours[SHARED], [ours[OURS]], references, SIZES.part)
    Path(folder, "training.json").write_text(json.dumps(record) + "\n", encoding="utf-8")


def write_where_wanted(stock, ours):
    if os.environ.get("OUT"):
        write(os.environ["OUT"], stock, ours)
