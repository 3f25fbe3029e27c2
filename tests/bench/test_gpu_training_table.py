"""The record of a training step on GPUs, and the table that is made of it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(os.environ["MMOE_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench/gpu"))

import merged_training as names  # noqa: E402
import tables_training  # noqa: E402

ABOUT = {
    "date": "2026-11-30T08:00:00Z", "commit": "abcdef0", "method": {}, "attention": "flash", "unfused_sum": "bmm",
    "machine": {"gpu": "Some GPU", "driver": "1.2", "torch": "3.4"},
}
STEP = {names.STOCK: 3000.0, names.OURS: 2000.0, names.SAVED: 2500.0}
LOSS = {names.STOCK: 12.25, names.OURS: 12.2505, names.SAVED: 12.25}


@dataclass
class Sizes:
    """Of a model that is quickly counted."""

    hidden: int = 4
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 2
    experts: int = 8
    top_k: int = 2
    intermediate: int = 3
    vocabulary: int = 10
    tokens: int = 16000


def rank(number, name):
    """Rank 1 takes 100 ms more, of which its experts take 60 in the replay."""
    late = 100.0 * number
    return {"milliseconds": [STEP[name] + late + noise for noise in (0.0, 1.0, -1.0)], "loss": LOSS[name] / 2,
            "rounds": [{"milliseconds": STEP[name], "mhz": 1400 + number, "watts": 700}],
            "parts": [{"experts, forward": 300.0, "experts, replay": 340.0 + 0.6 * late + step, "dense, forward": 200.0,
                       "dense, replay": 210.0, "dense, backward": 400.0, "optimizer": 50.0} for step in (-1.0, 1.0)],
            "peak_bytes": (130 + number) << 30, "steps": 9, "seconds": 20.0 + number}


def tried(name):
    differences = {} if name == names.STOCK else {"a": 4e-3, "b": 5e-3}
    return [{"differences": differences, "fit": 44 - number} for number in range(2)]


def record():
    return names.record(ABOUT, Sizes(), 2, 40, {name: tried(name) for name in names.VARIANTS},
                        {name: [rank(0, name), rank(1, name)] for name in names.VARIANTS})


def test_ranks_become_one_record():
    (case,) = record()["cases"]
    ours = case["variants"][names.OURS]
    assert ours["milliseconds"] == 2100.0 and ours["ranks"] == [2000.0, 2100.0] and ours["loss"] == 12.2505
    assert ours["tokens_per_second"] == round(16000 / 2.1, 2) and ours["peak_bytes"] == 131 << 30
    assert ours["parts"]["experts, replay"] == 400.0
    weights = 2 * 4 * 2 * (2 + 1) + 4 * 8 + 3 * 2 * 4 * 3  # of attention, router and the experts of a token
    flop = 6 * 16000 * (40 * (weights + 16000 / 2 * 2 * 2 * 2 / 2) + 4 * 10)
    assert ours["tflops"] == round(flop / 2.1 * 1e-12, 1)
    assert case["ratios"]["of_stock"] == {names.OURS: round(3100 / 2100, 4), names.SAVED: round(3100 / 2600, 4)}
    assert [target["met"] for target in case["targets"]] == [True, False]
    assert case["differences"]["gradients_of_one_layer"] == {names.OURS: 5e-3, names.SAVED: 5e-3}
    assert case["layers_that_fit"] == dict.fromkeys(names.VARIANTS, 43)


def test_the_table():
    lines = tables_training.short(record()).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    by_name = {row[0]: dict(zip(rows[0], row)) for row in rows[2:]}
    ours = by_name[names.OURS]
    assert list(by_name) == [names.OURS, names.SAVED, names.STOCK]
    assert (ours["step"], ours["tokens/s a GPU"], ours["of stock"]) == ("2100", "7619", "1.48")
    assert (ours["experts forward"], ours["replay"], ours["backward"]) == ("300", "400", "-")
    assert (ours["attention and rest"], ours["AdamW"], ours["peak GiB"]) == ("810", "50", "131.0")
    assert by_name[names.STOCK]["of stock"] == "-"
    text = tables_training.circumstances(record())
    for part in ("2 x Some GPU", "40 layers", "EP = 2", "flash attention", "moments in bf16", "1400 to 1401 MHz"):
        assert part in text
    assert tables_training.verdict(record()).splitlines() == [
        "ours, full checkpoints: throughput over stock: 1.476, at least 1.4: met",
        "ours, op saved: throughput over stock: 1.192, at least 1.4: NOT MET",
        "ours, full checkpoints: loss of step 9 12.25050, stock 12.25000: relative difference 4.1e-05, at most 0.001: "
        "met",
        "ours, op saved: loss of step 9 12.25000, stock 12.25000: relative difference 0.0e+00, at most 0.001: met"]


def test_readme_gets_the_table(tmp_path):
    readme = tmp_path / "README.md"
    (tmp_path / "gpu-training.json").write_text(json.dumps(record()))
    cpu = next((SOURCE / "bench/results").glob("*-ranks1.json"))
    (tmp_path / cpu.name).write_text(cpu.read_text())
    marks = [f"<!-- {name}:{edge} -->" for name in ("bench", "gpu-bench") for edge in ("begin", "end")]
    readme.write_text("\n".join([*marks[:3], "old", marks[3], ""]))
    command = [sys.executable, SOURCE / "bench/table.py", "--results", tmp_path, "--readme", readme]
    assert subprocess.run(command, timeout=30, check=False).returncode == 0
    text = readme.read_text()
    assert tables_training.short(record()) in text and tables_training.circumstances(record()) in text
    assert "old" not in text
