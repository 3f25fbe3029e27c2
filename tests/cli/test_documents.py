"""The manual page and the completions say what the command does."""

import re
import subprocess

import pytest

from command import SOURCE, good, options_of, record

MANUAL = SOURCE / "docs/megamoe.1"
BASH = SOURCE / "cli/completion/megamoe.bash"
ZSH = SOURCE / "cli/completion/_megamoe"
COMMANDS = ["run", "check", "bench", "trace", "info"]


def bash_completion(*words):
    """What Bash offers for the last word."""
    script = f"""source {BASH}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _megamoe; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script, "bash", "megamoe", *words], capture_output=True, text=True, timeout=20,
                          check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_manual_builds_without_warnings():
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", MANUAL], capture_output=True,
                          text=True, timeout=30, check=True)
    assert done.stderr == ""
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", MANUAL], capture_output=True, text=True,
                          timeout=30, check=False)
    assert (lint.returncode, lint.stdout) == (0, "")


def test_manual_has_every_option_and_preset():
    text = MANUAL.read_text(encoding="utf-8").replace("\\-", "-")
    options = set().union(*map(options_of, COMMANDS))
    assert options == set(re.findall(r"--[a-z][a-z-]*", text)) - {"--no-python", "--nproc-per-node"}
    for preset in record("info")["presets"]:
        assert preset["name"] in text


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_every_option(command):
    assert bash_completion(command, "--") == options_of(command)
    assert bash_completion(command, "--to") == {"--top-k", "--tokens"}


def test_bash_completes_values():
    assert set(COMMANDS) < bash_completion("")
    assert bash_completion("run", "--preset", "") == {p["name"] for p in record("info")["presets"]}
    assert bash_completion("run", "--backend", "") == {b["name"] for b in record("info")["backends"]}
    assert bash_completion("run", "--keep", "") == {"plan", "rows"}
    assert bash_completion("run", "--weight-on", "i") == {"input"}
    assert bash_completion("run", "--ranks", "") == set()
    assert str(MANUAL) in bash_completion("run", "--ids", str(MANUAL)[:-2])


def test_zsh_lists_every_option_and_preset():
    text = ZSH.read_text(encoding="utf-8")
    assert set(re.findall(r"'(--[a-z-]+)\[", text)) == set().union(*map(options_of, COMMANDS))
    for preset in record("info")["presets"]:
        assert preset["name"] in text


def test_top_help_lists_the_commands():
    text = good("--help")
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", text, re.M)
