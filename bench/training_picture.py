#!/usr/bin/env python3
"""The picture of trainings with our experts and with stock ones, of the record that tests/python/training writes.

    bench/training_picture.py [RECORD [PICTURE]]

RECORD is bench/results/training.json and PICTURE docs/training.svg when left out. Above the losses of all runs, below
what each differs from the mean of the stock runs by, as a median over neighbouring steps, in a band of the noise among
stock runs. Drawn by gnuplot.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEIGHBOURS = 4  # steps on either side
GREY, COLOURS = "#9a9a9a", ("#1f5fbf", "#d9541e")


class Problem(Exception):
    """What is wrong, as a sentence."""


def smoothed(values):
    """The median of each value and its neighbours."""
    return [statistics.median(values[max(0, at - NEIGHBOURS):at + NEIGHBOURS + 1]) for at in range(len(values))]


def differences(losses, stock):
    """{name: smoothed difference from the mean of the stock runs}."""
    mean = [statistics.fmean(at_step) for at_step in zip(*stock.values())]
    return {name: smoothed([value - middle for value, middle in zip(loss, mean)]) for name, loss in losses.items()}


def block(name, rows):
    """Rows of numbers as gnuplot's data under a name."""
    return [f"${name} << EOD", *(" ".join(map(repr, row)) for row in rows), "EOD"]


def curves(names, stock):
    """The lines of gnuplot's data `data`, whose first column is the step."""
    colours = iter(COLOURS)
    styles = [f'lw 1 lc rgb "{GREY}" dt {1 + number}' if name in stock else f'lw 1.6 lc rgb "{next(colours)}"'
              for number, name in enumerate(names)]
    return [f'using 1:{column} with lines {style} title "{name}"'
            for column, (name, style) in enumerate(zip(names, styles), start=2)]


def script(record):
    stock, ours = ({name: run["loss"] for name, run in record[kind].items()} for kind in ("stock", "ours"))
    losses = stock | ours
    below = differences(losses, stock)
    steps, part = range(1, record["sizes"]["steps"] + 1), record["sizes"]["part"]
    noise = record["measured"][next(iter(ours))]["noise"]["loss"]
    sizes = record["sizes"]
    lines = curves(list(losses), stock)
    title = (f"{record['device']}: hidden {sizes['hidden']}, {sizes['layers']} layers, {sizes['experts']} experts, "
             f"top-{sizes['top_k']}, {sizes['sequences'] * sizes['length']} tokens a step")
    return "\n".join([
        *block("loss", zip(steps, *losses.values())),
        *block("below", zip(steps, *below.values())),
        *block("noise", ((first * part + at, -value, value) for first, value in enumerate(noise) for at in (1, part))),
        'set terminal svg size 800,720 noenhanced font "sans-serif,13" background rgb "white"',
        "set grid",
        f"set xrange [0:{len(steps)}]",
        "set lmargin 10",
        f'set multiplot layout 2,1 title "{title}"',
        'set ylabel "loss, nats per byte"',
        "plot " + ", ".join([f"$loss {line}" for line in lines] + [
            f'{record["unigram_entropy"]!r} with lines lw 1 dt 3 lc rgb "black" title "unigram entropy of the text"']),
        'set xlabel "step"',
        'set ylabel "from the mean of stock runs"',
        "set key off",
        'plot $noise using 1:2:3 with filledcurves fs solid 0.25 noborder lc rgb "#c8b040", '
        + ", ".join(f"$below {line}" for line in lines),
        "unset multiplot", ""])


def drawn(record):
    """The picture's text, without the tabs and trailing blanks that gnuplot writes."""
    try:
        done = subprocess.run(["gnuplot"], input=script(record), capture_output=True, text=True, check=False)
    except OSError as error:
        raise Problem(f"gnuplot can't be started: {error}") from error
    if done.returncode or done.stderr:
        raise Problem(f"gnuplot: {done.stderr.strip()}")
    lines = (line.replace("\t", " ").strip() for line in done.stdout.splitlines())
    return "\n".join(filter(None, lines)) + "\n"


def main(record=ROOT / "bench/results/training.json", picture=ROOT / "docs/training.svg"):
    try:
        text = drawn(json.loads(Path(record).read_text(encoding="utf-8")))
        Path(picture).write_text(text, encoding="utf-8")
    except (Problem, OSError, ValueError) as problem:
        sys.exit(f"{problem}")


if __name__ == "__main__":
    main(*sys.argv[1:])
