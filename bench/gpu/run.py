#!/usr/bin/env python3
"""Measures the grouped products and the whole layer on this machine's GPU, the layer over its GPUs when there are
several, and when asked for a training step over all of them; `make gpu-bench` builds what it needs.

    bench/gpu/run.py --library libbench_gpu.so [--command megamoe] [--part products|layer|parallel]
                     [--only forward|backward] [--ranks N] [--rounds N] [--quick] [--results FOLDER]
    bench/gpu/run.py --part training [--ranks N] [--layers N] [--tiny] [--results FOLDER]

A training step needs the PyTorch package: python/ in PYTHONPATH, libmegamoe.so in MEGAMOE_LIBRARY. With --tiny it is of
a small model on the CPU, which needs no GPU and says nothing about one.

Records go to gpu-products.json, gpu-layer.json, gpu-parallel.json and gpu-training.json in the folder of results (with
--tiny only in one that was named), and also to $OUT when that is set; all numbers are printed as they come, and short
tables at the end.
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
    print(f"gpu-bench: not run: {error}; PYTHON in the environment names another python3")
    sys.exit(MISSING)

import layer
import parallel
import products
import tables
import tables_training
import waits
from library import Failure, Library
from measure import Wrong
from ranks import Failed


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


def with_waits(record, name, world, arguments, folders):
    """The record with what the time of a call goes to, which is not asked of a quick run or of one direction."""
    if not arguments.quick and arguments.only is None:
        sizes = {"experts": parallel.EXPERTS, "top-k": layer.TOP_K, "tokens": layer.TOKENS, "ranks": world}
        record["waits"] = waits.measure(arguments.command, layer.SHAPES, sizes, say)
        write(record, name, folders)
    return record


def measure_parallel(arguments, folders):
    """Nothing when it can't run here: said, and the end when it was asked for alone."""
    world = arguments.ranks or torch.cuda.device_count()
    reason = parallel.why_not(world)
    if reason:
        say(f"gpu-bench: parallel: not run: {reason}")
        if arguments.part == "parallel":
            sys.exit(MISSING)
        return []
    torch.cuda.empty_cache()
    records = parallel.measure_all(arguments.library, world, arguments.rounds, arguments.quick, arguments.only, say)
    record = last_of(records, "gpu-parallel.json", folders)
    record = with_waits(record, "gpu-parallel.json", world, arguments, folders)
    return [tables.circumstances(record), tables.parallel_short(record), tables.parallel_verdict(record)]


def measure_training(arguments, folders):
    import training  # imports the package, which no other part needs
    world = arguments.ranks or (1 if arguments.tiny else torch.cuda.device_count())
    reason = training.why_not(world, on_gpu=not arguments.tiny)
    if reason:
        say(f"gpu-bench: training: not run: {reason}")
        sys.exit(MISSING)
    record = training.measure_all(world, arguments.layers, arguments.tiny, say)
    write(record, "gpu-training.json", folders)
    ending = [tables_training.circumstances(record), tables_training.short(record), tables_training.verdict(record)]
    if not record["cases"][0]["differences"]["losses_agree"]:
        raise Wrong("\n\n".join([*ending, "the losses of the last step differ: the times mean nothing"]))
    return ending


def measure(arguments, folders):
    """What to print at the end."""
    if arguments.part == "training":
        return measure_training(arguments, folders)
    ending = []
    how = (Library(arguments.library), arguments.rounds, arguments.quick, say)
    if arguments.part in (None, "products"):
        record = last_of(products.measure_all(*how), "gpu-products.json", folders)
        say(f"\n{tables.products_in_full(record)}\n")
        ending += [tables.circumstances(record), tables.products_short(record), tables.verdict(record)]
    if arguments.part in (None, "layer"):
        record = last_of(layer.measure_all(*how), "gpu-layer.json", folders)
        torch.cuda.empty_cache()
        record = with_waits(record, "gpu-layer.json", 1, arguments, folders)
        ending += [tables.circumstances(record), tables.layer_short(record)]
    if arguments.part in (None, "parallel"):
        ending += measure_parallel(arguments, folders)
    return ending


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, help="libbench_gpu.so, for all parts but training")
    parser.add_argument("--command", type=Path, help="megamoe, which tells what a call waits for (layer, parallel)")
    parser.add_argument("--part", choices=["products", "layer", "parallel", "training"], help="measure this part alone")
    parser.add_argument("--only", choices=list(parallel.DIRECTIONS), help="this direction alone of the parallel part")
    parser.add_argument("--ranks", type=int, help="GPUs of parallel and training (default: all that are visible)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each variant (default 3)")
    parser.add_argument("--quick", action="store_true", help="few cases of each part")
    parser.add_argument("--layers", type=int, default=0, help="of the training part (default: as many as fit)")
    parser.add_argument("--tiny", action="store_true", help="the training part with a small model on the CPU")
    parser.add_argument("--results", type=Path, help="folder of the records (default: bench/results)")
    arguments = parser.parse_args()
    if arguments.part != "training" and arguments.library is None:
        parser.error("--library is needed for all parts but training")
    if arguments.part != "training" and (arguments.tiny or arguments.layers):
        parser.error("--tiny and --layers are of the part training")
    return arguments


def folders_of(arguments):
    """Of the records."""
    default = [] if arguments.tiny else [Path(__file__).resolve().parent.parent / "results"]
    named = [arguments.results] if arguments.results else default
    return named + ([Path(os.environ["OUT"])] if os.environ.get("OUT") else [])


def main():
    arguments = parsed()
    if not arguments.tiny:
        need_a_gpu()
    started = time.monotonic()
    try:
        ending = measure(arguments, folders_of(arguments))
    except (Failed, Failure, Wrong) as problem:
        sys.exit(f"gpu-bench: {problem}")
    say("\n\n".join(ending))
    say(f"measured in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
