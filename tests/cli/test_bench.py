"""bench: its record, and the script that makes the README's table of such records."""

import json
import os
import statistics
import subprocess
import sys

from command import COMMAND, SOURCE, TINY, good, record

PHASES = ["exchange", "plan", "dispatch", "gate_up", "down", "dgrad", "wgrad", "combine", "fused",
          "total"]


def test_record():
    told = record("bench", *TINY, "--ranks=2", "--iterations=3", "--warmup=0")
    assert told["command"] == "bench" and told["iterations"] == 3 and told["rows"] == 2 * 4 * 2
    assert told["machine"]["cores"] == len(os.sched_getaffinity(0)) and told["machine"]["cpu"]
    assert told["date"].endswith("Z") and told["commit"]
    for part in (told["forward"], told["backward"], told["gemm"]["forward"], told["gemm"]["backward"]):
        assert len(part["samples"]) == 3 and all(s > 0 for s in part["samples"])
        assert abs(part["seconds"] - statistics.median(part["samples"])) < 1e-9
    for call in ("forward", "backward"):
        assert list(told[call]["phases"]) == PHASES
    assert told["forward"]["phases"]["gate_up"] > 0 and told["backward"]["phases"]["wgrad"] > 0
    for direction in ("forward", "backward"):
        part = told["gemm"][direction]
        assert set(part["ways"]) == {"split", "each"}
        assert part["ways"][part["way"]] == min(part["ways"].values()) == part["seconds"] > 0
    gemm, ratio = told["gemm"], told["ratio"]
    layer = told["forward"]["seconds"] + told["backward"]["seconds"]
    products = gemm["forward"]["seconds"] + gemm["backward"]["seconds"]
    assert abs(ratio["both"] - layer / products) < 1e-6 * ratio["both"]


def test_text():
    text = good("bench", *TINY, "--iterations=1")
    for word in ("products alone", "forward", "backward", "both", "wgrad"):
        assert word in text


def test_output_replaces_a_file_at_once(tmp_path):
    path = tmp_path / "record.json"
    path.write_text("old")
    printed = record("bench", *TINY, "--iterations=1", f"--output={path}")
    assert json.loads(path.read_text()) == printed
    assert os.listdir(tmp_path) == ["record.json"]


def table(*arguments):
    return subprocess.run([sys.executable, SOURCE / "bench/table.py", *map(str, arguments)], capture_output=True,
                          text=True, timeout=60, check=False)


def test_table_is_written_between_the_markers_and_stays(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    good("bench", "--preset=Qwen3-30B-A3B", "--scale=64", "--iterations=1", f"--output={results}/a.json")
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
    assert table("--results", results, "--readme", readme).returncode == 0
    once = readme.read_text()
    assert once.startswith("before\n<!-- bench:begin -->\n") and once.endswith("<!-- bench:end -->\nafter\n")
    assert "Qwen3-30B-A3B" in once and "old" not in once
    assert table("--results", results, "--readme", readme).returncode == 0
    assert readme.read_text() == once


def test_table_refuses_what_it_can_not_use(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("no markers\n")
    done = table("--results", results, "--readme", readme)
    assert done.returncode == 1 and "no results" in done.stderr
    (results / "a.json").write_text("{")
    done = table("--results", results, "--readme", readme)
    assert done.returncode == 1 and "a.json" in done.stderr
    good("bench", *TINY, "--iterations=1", f"--output={results}/a.json")
    done = table("--results", results, "--readme", readme)
    assert done.returncode == 1 and "markers" in done.stderr
    assert readme.read_text() == "no markers\n"


def test_table_measures_with_a_command(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
    done = table("--command", COMMAND, "--quick", "--results", tmp_path / "results", "--readme", readme)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "results").glob("*.json"))) >= 3
    assert "| Qwen3-30B-A3B" in readme.read_text()
