#!/usr/bin/env python3
"""The README's tables of measurements, made of the records in bench/results.

    bench/table.py [--command MEGAMOE] [--results FOLDER] [--readme FILE] [--quick]

With --command it first measures the layers of LAYERS on this machine and records them; without, it makes the tables of
the records that are there. Those of a GPU are made by `make gpu-bench`. Each table stands between two comments of the
README and is replaced as a whole.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "gpu"))
import tables  # noqa: E402
import tables_training  # noqa: E402

CPU, GPU = "bench", "gpu-bench"  # names of the tables in the README's comments
# By file: what makes its table, and what makes the sentence about the circumstances.
GPU_RECORDS = {"gpu-products.json": (tables.products_short, tables.circumstances),
               "gpu-layer.json": (tables.layer_short, tables.circumstances),
               "gpu-parallel.json": (tables.parallel_short, tables.circumstances),
               "gpu-training.json": (tables_training.short, tables_training.circumstances)}

# Preset, scale, ranks: sizes that a machine with two cores measures in about a minute altogether.
LAYERS = [
    ("Qwen3-30B-A3B", 4, 1),
    ("Qwen3-30B-A3B", 4, 2),
    ("Qwen3-30B-A3B", 2, 1),
    ("Mixtral-8x7B", 8, 1),
    ("DeepSeek-V4-Flash", 8, 1),
]


class Problem(Exception):
    """What is wrong, as a sentence."""


def measure(command, results, quick):
    results.mkdir(parents=True, exist_ok=True)
    for preset, scale, ranks in LAYERS:
        name = f"{preset}-{scale}-ranks{ranks}.json"
        size = ["--scale=64", "--iterations=1"] if quick else [f"--scale={scale}", "--iterations=9", "--warmup=2"]
        print(f"measuring {preset} 1/{scale}, ranks {ranks}", flush=True)
        done = subprocess.run([command, "bench", f"--preset={preset}", f"--ranks={ranks}", *size, "--json",
                               f"--output={results / name}"], stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise Problem(f"{command} bench ended with {done.returncode}")


def read_record(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Problem(f"{path} is no record: {error}") from error


def read(results):
    records = [read_record(path) for path in sorted(results.glob("*.json"))]
    records = [record for record in records if record.get("command") == "bench"]  # others are of GPUs, or of trainings
    if not records:
        raise Problem(f"there are no results in {results}")
    return sorted(records, key=lambda r: (r["preset"] or "", r["scale"], r["ranks"]))


def line(record):
    layer = record["layer"]
    name = f"{record['preset']} 1/{record['scale']}" if record["preset"] else "own sizes"
    shape = f"{layer['hidden']} / {layer['intermediate']}, {layer['experts']} experts, top-{layer['top_k']}"
    times = []
    for call in ("forward", "backward"):
        times.append(f"{1e3 * record[call]['seconds']:.1f}")
        times.append(f"{1e3 * record['gemm'][call]['seconds']:.1f}")
    cells = [name, shape, str(sum(record["tokens"])), str(record["ranks"]), *times, f"{record['ratio']['both']:.2f}"]
    return "| " + " | ".join(cells) + " |"


def table(records):
    machines = sorted({f"{r['machine']['cpu']}, {r['machine']['cores']} cores, {r['date'][:10]}, "
                       f"commit {r['commit']}" for r in records})
    return "\n".join([
        "Milliseconds, medians. Measured on " + "; ".join(machines) + ".",
        "",
        "| layer | H / I, experts | tokens | ranks | forward | its GEMMs | backward | its GEMMs | ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *map(line, records),
    ])


def gpu_tables(results):
    """Of the records of a GPU that are there."""
    parts = []
    for name, makers in GPU_RECORDS.items():
        if (results / name).exists():
            record = read_record(results / name)
            parts += [make(record) for make in makers]
    return "\n\n".join(parts)


def replaced(text, name, table):
    """The README's text with another table of this name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise Problem(f"the README does not have the markers {begin} and {end} once and in order")
    return f"{text[:text.index(begin)]}{begin}\n{table}\n{text[text.index(end):]}"


def write(readme, made):
    old = new = readme.read_text(encoding="utf-8")
    for name, text in made.items():
        new = replaced(new, name, text) if text else new
    if new != old:
        temporary = readme.with_name(readme.name + ".part")
        temporary.write_text(new, encoding="utf-8")
        os.replace(temporary, readme)


def main():
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", help="measure first, with this megamoe")
    parser.add_argument("--results", type=Path, default=here / "results", help="folder of the records")
    parser.add_argument("--readme", type=Path, default=here.parent / "README.md", help="file with the markers")
    parser.add_argument("--quick", action="store_true", help="measure tiny layers, to try the script")
    arguments = parser.parse_args()
    try:
        if arguments.command:
            measure(arguments.command, arguments.results, arguments.quick)
        write(arguments.readme, {CPU: table(read(arguments.results)), GPU: gpu_tables(arguments.results)})
    except (Problem, OSError) as problem:
        sys.exit(f"{problem}")


if __name__ == "__main__":
    main()
