"""The tables that are made of the GPU benchmark's records."""

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(os.environ["MMOE_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench/gpu"))

import tables  # noqa: E402

ABOUT = {
    "date": "2026-11-30T08:00:00Z", "commit": "abcdef0", "rounds": 3, "method": {"warm_ms": 80.0, "timed_ms": 40.0},
    "machine": {"gpu": "Some GPU", "driver": "1.2", "torch": "3.4"},
}


def timed(milliseconds, mhz=1500):
    return {"milliseconds": milliseconds, "tflops": 600.0, "rounds": [{"mhz": mhz, "watts": 690}]}


def product(name, share, target=None, ahead=1.5):
    return {"name": name, "ours": timed(1.0), "dense": timed(share), "grouped": timed(ahead), "share": share,
            "target": target, "met": None if target is None else share >= target, "ahead_of_grouped": ahead}


def products(*changed):
    rows = {name: product(name, 0.9) for name in tables.SHORT}
    rows |= {row["name"]: row for row in changed}
    return {**ABOUT, "cases": [{"hidden": 64, "intermediate": 32, "experts": 8, "routing": "even",
                                "products": list(rows.values())}]}


def layer():
    times = {"forward": 2.0, "backward": 4.0, "both": 6.0}
    return {**ABOUT, "cases": [{"hidden": 64, "intermediate": 32, "experts": 8, "routing": "zipf", "rows": times,
                                "unfused": {key: 3 * value for key, value in times.items()}, "dense": times,
                                "phases": {"rows": {"forward": {"plan": 0.06}}},
                                "variants": {"forward": timed(2.0, 1400), "unfused": timed(6.0, None)}}]}


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_columns_are_as_wide_as_their_widest_cell():
    lines = tables.aligned(["a", "b"], [["one", "2"], ["x", "12345"]]).splitlines()
    assert lines == ["| a   |     b |", "| --- | ----: |", "| one |     2 |", "| x   | 12345 |"]


def test_what_is_under_its_target_or_behind_is_marked():
    record = products(product("dx", 0.95, target=0.96), product("dgate_up", 0.9, target=0.8),
                      product("dw2 bf16", 0.9, ahead=0.99))
    line = dict(zip(cells(tables.products_short(record).splitlines()[0]),
                    cells(tables.products_short(record).splitlines()[2])))
    assert line["dX"] == "0.95 (under)" and line["dA"] == "0.90" and line["dW2 bf16"] == "0.90 (behind)"
    assert line["share of dense"] == "64/32, 8 experts"
    count = len(tables.SHORT)
    assert tables.verdict(record) == f"1 of 2 targets met; {count - 1} of {count} ahead of torch._grouped_mm"
    full = [cells(row) for row in tables.products_in_full(record).splitlines() if row.startswith("| d")]
    assert {row[0]: row[6] for row in full}["dx"] == "NO" and {row[0]: row[6] for row in full}["dgate_up"] == "yes"


def test_layer():
    row = cells(tables.layer_short(layer()).splitlines()[2])
    assert row == ["64/32, 8 experts, zipf", "2.00", "4.00", "6.00", "12.00", "2.00", "4.00", "0.060", "3.00"]


def test_circumstances_name_machine_clock_and_power():
    text = tables.circumstances(layer())
    for part in ("Some GPU", "driver 1.2", "commit abcdef0", "1400 to 1400 MHz", "690 to 690 W"):
        assert part in text


def test_readme_gets_the_tables(tmp_path):
    readme, results = tmp_path / "README.md", tmp_path / "results"
    results.mkdir()
    for path in (SOURCE / "bench/results").glob("*-ranks1.json"):
        (results / path.name).write_text(path.read_text())
    readme.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n<!-- gpu-bench:begin -->\nold\n<!-- gpu-bench:end -->\n")
    command = [sys.executable, SOURCE / "bench/table.py", "--results", results, "--readme", readme]
    assert subprocess.run(command, timeout=30, check=False).returncode == 0
    assert "\nold\n" in readme.read_text()
    (results / "gpu-products.json").write_text(json.dumps(products()))
    (results / "gpu-layer.json").write_text(json.dumps(layer()))
    assert subprocess.run(command, timeout=30, check=False).returncode == 0
    text = readme.read_text()
    assert "old" not in text
    assert tables.products_short(products()) in text and tables.layer_short(layer()) in text
