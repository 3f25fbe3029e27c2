"""What the GPU benchmark asks of `megamoe trace`, and what it makes of the answer; the command here is a stand-in."""

import os
import sys
from pathlib import Path

SOURCE = Path(os.environ["MMOE_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench/gpu"))

import tables  # noqa: E402
import waits  # noqa: E402

ANSWER = """
import json, sys
told = {call: {"account_us": {"kernels": kernels, "tasks": kernels / 8}} for call, kernels in (("forward", 80), ("backward", 160))}
if "--hidden=4096" in sys.argv:
    sys.exit("no GPU is that large")
print(json.dumps({"arguments": sys.argv[1:], "traces": [{"rank": rank, **told} for rank in range(2)]}))
"""


def stand_in(folder):
    command = folder / "command"
    command.write_text(f"#!{sys.executable}\n{ANSWER}")
    command.chmod(0o755)
    return command


def measured(command):
    said = []
    return waits.measure(command, [(2048, 768), (4096, 1536)], {"experts": 128, "ranks": 2}, said.append), said


def test_each_call_and_rank_is_told_with_its_causes(tmp_path):
    entries, _ = measured(stand_in(tmp_path))
    assert [(one["call"], one["rank"], one["us"]["tasks"]) for one in entries[0]["calls"]] == [
        ("forward", 0, 10), ("forward", 1, 10), ("backward", 0, 20), ("backward", 1, 20)]
    lines = tables.with_waits([], {"waits": entries}).splitlines()
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == ["microseconds", "kernels", "tasks"]
    assert [cell.strip() for cell in lines[5].strip("|").split("|")] == ["2048/768, backward, rank 1", "160", "20"]
    assert len(lines) == 6


def test_what_could_not_be_traced_is_said(tmp_path):
    entries, said = measured(stand_in(tmp_path))
    assert entries[1]["not_measured"] == "no GPU is that large" and entries[1]["calls"] == []
    assert said[-1] == "not measured: no GPU is that large"
    entries, said = measured(None)
    assert all(entry["calls"] == [] for entry in entries) and said.count("not measured: no command was given") == 2
    assert tables.with_waits(["a table"], {"waits": entries}) == "a table"


def test_the_command_is_asked_for_these_sizes(tmp_path):
    traced = waits.trace(stand_in(tmp_path), {"hidden": 2048, "ranks": 2})
    assert traced["arguments"][:4] == ["trace", "--hidden=2048", "--ranks=2", "--json"]
