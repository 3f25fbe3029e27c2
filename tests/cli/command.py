"""Runs the command. CMake passes MMOE_COMMAND, the program, and MMOE_SOURCE, the project's folder, in the environment."""

import json
import os
import subprocess
from pathlib import Path

COMMAND = os.environ["MMOE_COMMAND"]
SOURCE = Path(os.environ["MMOE_SOURCE"])

GOOD, CHECK, INPUT, RUN = 0, 1, 2, 3  # exit codes

# A layer that takes no time. Four tokens a rank.
TINY = ["--hidden=64", "--intermediate=32", "--experts=8", "--top-k=2", "--tokens=4"]


def clean_environment():
    """Without what would make the command one rank of several."""
    return {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                                             "MMOE_RENDEZVOUS")}


def megamoe(*arguments, **options):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=100,
                          env=options.pop("env", clean_environment()), **options)


def good(*arguments, **options):
    """What a run that must go well prints."""
    done = megamoe(*arguments, **options)
    assert done.returncode == GOOD, done.stderr
    assert done.stderr == ""
    return done.stdout


def record(*arguments):
    return json.loads(good(*arguments, "--json"))


def refused(*arguments, code=INPUT, **options):
    """The one sentence of a run that must fail, which prints nothing else."""
    done = megamoe(*arguments, **options)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("megamoe: ")
    return lines[0].removeprefix("megamoe: ")


def options_of(command):
    """The long options that a subcommand's help lists."""
    words = (line.split() for line in good(command, "--help").splitlines())
    return {part.split("=")[0].rstrip(",") for line in words for part in line[:2] if part.startswith("--")}
