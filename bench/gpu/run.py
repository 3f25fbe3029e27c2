#!/usr/bin/env python3
"""Measures the grouped products and the whole layer on this machine's GPU; `make gpu-bench` builds what it needs.

    bench/gpu/run.py --library libbench_gpu.so [--part products|layer] [--rounds N] [--quick] [--results FOLDER]

Records go to gpu-products.json and gpu-layer.json in the folder of results, and also to $OUT when that is set; all
numbers are printed as they come, and one short table at the end.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

MISSING = 2  # exit status when nothing can be measured here

try:
    import torch
except ImportError as error:
    print(f"gpu-bench: not run: {error}")
    sys.exit(MISSING)

import layer
import products
import tables
from library import Failure, Library
from measure import Wrong


def say(text):
    print(text, flush=True)


def write(record, name, folders):
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def need_a_gpu():
    if not torch.cuda.is_available():
        say("gpu-bench: not run: PyTorch finds no GPU here")
        sys.exit(MISSING)


def last_of(records, name, folders):
    """The whole record; each stage of it is written, so that a run that is stopped leaves what it has."""
    for record in records:
        write(record, name, folders)
    return record


def measure(arguments, folders):
    """What to print at the end."""
    library, ending = Library(arguments.library), []
    how = (library, arguments.rounds, arguments.quick, say)
    if arguments.part in (None, "products"):
        record = last_of(products.measure_all(*how), "gpu-products.json", folders)
        say(f"\n{tables.products_in_full(record)}\n")
        ending += [tables.circumstances(record), tables.products_short(record), tables.verdict(record)]
    if arguments.part in (None, "layer"):
        record = last_of(layer.measure_all(*how), "gpu-layer.json", folders)
        ending += [tables.circumstances(record), tables.layer_short(record)]
    return ending


def main():
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, required=True, help="libbench_gpu.so")
    parser.add_argument("--part", choices=["products", "layer"], help="measure this part alone")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each variant (default 3)")
    parser.add_argument("--quick", action="store_true", help="one case of each part, to try the program")
    parser.add_argument("--results", type=Path, default=here.parent / "results", help="folder of the records")
    arguments = parser.parse_args()
    need_a_gpu()
    started = time.monotonic()
    folders = [arguments.results] + ([Path(os.environ["OUT"])] if os.environ.get("OUT") else [])
    try:
        ending = measure(arguments, folders)
    except (Failure, Wrong) as problem:
        sys.exit(f"gpu-bench: {problem}")
    say("\n\n".join(ending))
    say(f"measured in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
