"""Every option with good and bad values: exit codes, and one sentence that names option, value and what was expected."""

import json
import os
import subprocess

import pytest

from command import CHECK, COMMAND, GOOD, INPUT, RUN, TINY, clean_environment, good, megamoe, options_of, record, refused

COMMANDS = ["run", "check", "bench", "trace", "info"]

# Option, bad value, what the sentence says was expected. Every option that takes a value is here.
BAD_VALUES = [
    ("preset", "Qwen9", "one of Qwen3-30B-A3B, Qwen3-235B-A22B, "),
    ("scale", "0", "an integer from 1 to 1024"),
    ("scale", "1025", "an integer from 1 to 1024"),
    ("hidden", "0", "an integer from 1 to 65536"),
    ("hidden", "65537", "an integer from 1 to 65536"),
    ("hidden", "64.5", "an integer from 1 to 65536"),
    ("hidden", "", "an integer from 1 to 65536"),
    ("hidden", " 64", "an integer from 1 to 65536"),
    ("hidden", "99999999999999999999", "an integer from 1 to 65536"),
    ("intermediate", "-1", "an integer from 1 to 65536"),
    ("experts", "4097", "an integer from 1 to 4096"),
    ("experts", "many", "an integer from 1 to 4096"),
    ("top-k", "65", "an integer from 1 to 64"),
    ("ranks", "0", "an integer from 1 to 64"),
    ("ranks", "65", "an integer from 1 to 64"),
    ("tokens", "-1", "a number of tokens from 0 to 1048576"),
    ("tokens", "1048577", "a number of tokens from 0 to 1048576"),
    ("tokens", "4,,4", "a number of tokens from 0 to 1048576"),
    ("tokens", "4,", "a number of tokens from 0 to 1048576"),
    ("tokens", ",".join(["1"] * 65), "up to 64 of them"),
    ("routing", "random", "uniform, zipf:S with S from 0 to 16, one:E"),
    ("routing", "zipf:", "zipf:S with S from 0 to 16"),
    ("routing", "zipf:-1", "zipf:S with S from 0 to 16"),
    ("routing", "zipf:nan", "zipf:S with S from 0 to 16"),
    ("routing", "zipf:17", "zipf:S with S from 0 to 16"),
    ("routing", "one:", "one:E with the number of an expert"),
    ("routing", "one:-1", "one:E with the number of an expert"),
    ("weight-on", "both", "output or input"),
    ("combine", "sum", "exact or grouped"),
    ("limit", "-0.5", "a number from 0 (no limit) to 1e30"),
    ("limit", "inf", "a number from 0 (no limit) to 1e30"),
    ("limit", "1e31", "a number from 0 (no limit) to 1e30"),
    ("keep", "all", "plan or rows"),
    ("capacity", "-1", "an integer from 0 to 2147483647"),
    ("backend", "tpu", "one of cuda, cpu"),
    ("threads", "0", "an integer from 1 to 1024"),
    ("seed", "-1", "an integer from 0 to 18446744073709551615"),
    ("seed", "18446744073709551616", "an integer from 0 to 18446744073709551615"),
    ("ids", "", "the name of a file"),
    ("weights", "", "the name of a file"),
    ("x", "", "the name of a file"),
    ("dy", "", "the name of a file"),
    ("gate", "", "the name of a file"),
    ("up", "", "the name of a file"),
    ("down", "", "the name of a file"),
]

OWN_BAD_VALUES = [
    ("run", "save", "", "the name of a folder"),
    ("check", "bound", "-1", "a number of at least 0"),
    ("check", "bound", "nan", "a number of at least 0"),
    ("bench", "iterations", "0", "an integer from 1 to 10000"),
    ("bench", "warmup", "-1", "an integer from 0 to 10000"),
    ("bench", "output", "", "the name of a file"),
    ("bench", "draw", "", "the name of a file"),
    ("trace", "records", "0", "an integer from 1 to 1048576"),
    ("trace", "rows", "0", "an integer from 1 to 1024"),
    ("trace", "only", "both", "forward or backward"),
]


@pytest.mark.parametrize("option,value,expected", BAD_VALUES)
def test_bad_value(option, value, expected):
    sentence = refused("info", f"--{option}={value}")
    assert sentence.startswith(f"--{option} is '{value}', expected ")
    assert expected in sentence


@pytest.mark.parametrize("command,option,value,expected", OWN_BAD_VALUES)
def test_bad_value_of_one_command(command, option, value, expected):
    assert refused(command, f"--{option}={value}") == f"--{option} is '{value}', expected {expected}"


def test_every_option_with_a_value_has_a_bad_one_here():
    tried = {f"--{row[0]}" for row in BAD_VALUES} | {f"--{row[1]}" for row in OWN_BAD_VALUES}
    flags = {"--drop", "--forward", "--json", "--progress", "--help", "--usage", "--version"}
    assert set().union(*map(options_of, COMMANDS)) == tried | flags


# Each is good alone.
TOGETHER = [
    (["--scale=2"], "--scale is 2, expected a --preset that it shrinks"),
    (["--drop"], "--drop is given without --capacity, expected the rows that a rank keeps"),
    (["--routing=file"], "--routing is 'file' without --ids, expected the name of the file"),
    (["--routing=uniform", "--ids=a.npy"],
     "--ids is 'a.npy' beside another --routing, expected --routing file or none"),
    (["--experts=6", "--ranks=4"], "--experts is 6, expected a multiple of the 4 ranks"),
    (["--experts=4", "--top-k=5"], "--top-k is 5, expected at most the 4 experts"),
    (["--routing=one:16"], "--routing is 'one:16', expected an expert from 0 to 15"),
    (["--tokens=1,2,3", "--ranks=2"], "--tokens lists 3 ranks, expected one number or 2"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("arguments,sentence", TOGETHER)
def test_bad_together(command, arguments, sentence):
    assert refused(command, *arguments) == sentence


def test_no_command():
    assert refused() == "no command is given, expected run, check, bench, trace or info"
    assert refused("train") == "'train' is no command, expected run, check, bench, trace or info"


@pytest.mark.parametrize("command", COMMANDS)
def test_what_no_command_takes(command):
    assert refused(command, "extra") == f"'extra' is no option, expected options alone after '{command}'"
    for arguments, word in ((["--colour"], "--colour"), (["--ranks"], "--ranks"), (["--json=yes"], "--json")):
        done = megamoe(command, *arguments)
        assert done.returncode == INPUT
        assert done.stdout == ""
        assert f"megamoe {command}: " in done.stderr and word in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_tells_options_and_exit_codes(command):
    text = good(command, "--help")
    assert text.startswith(f"Usage: megamoe {command} [OPTION...]")
    assert "Exit codes: 0" in text
    assert good(command, "--usage").startswith("Usage: ")
    assert good(command, "--version") == good("--version")


# Every common option with a good value, and what it makes of the record.
GOOD_VALUES = [
    (["--hidden=128"], lambda r: r["layer"]["hidden"] == 128),
    (["--intermediate=96"], lambda r: r["layer"]["intermediate"] == 96),
    (["--experts=24"], lambda r: r["layer"]["experts"] == 24),
    (["--top-k=3"], lambda r: r["layer"]["top_k"] == 3),
    (["--ranks=2"], lambda r: r["ranks"] == 2 and r["tokens"] == [4, 4]),
    (["--ranks=2", "--tokens=3,0"], lambda r: r["tokens"] == [3, 0]),
    (["--routing=zipf:1.5"], lambda r: r["routing"] == "zipf:1.5"),
    (["--routing=one:7"], lambda r: r["routing"] == "one:7"),
    (["--routing=uniform"], lambda r: r["routing"] == "uniform"),
    (["--weight-on=input"], lambda r: r["layer"]["weight_on"] == "input"),
    (["--weight-on=output"], lambda r: r["layer"]["weight_on"] == "output"),
    (["--combine=grouped"], lambda r: r["layer"]["combine"] == "grouped"),
    (["--weight-on=input"], lambda r: r["layer"]["combine"] == "exact"),
    (["--limit=7"], lambda r: r["layer"]["limit"] == 7),
    (["--keep=plan"], lambda r: r["keep"] == "plan"),
    (["--keep=rows"], lambda r: r["keep"] == "rows"),
    (["--capacity=8"], lambda r: r["layer"]["capacity"] == 8 and not r["layer"]["drop"]),
    (["--capacity=5", "--drop"], lambda r: r["layer"]["capacity"] == 5 and r["layer"]["drop"]),
    (["--backend=cpu"], lambda r: r["backend"] == "cpu"),
    (["--top-k=2"], lambda r: r["backend"] == "cpu" and r["layer"]["top_k"] == 2),
    (["--threads=2"], lambda r: r["threads"] == 2),
    (["--seed=18446744073709551615"], lambda r: r["seed"] == "18446744073709551615"),
    (["--preset=DeepSeek-V4-Flash", "--scale=64"],
     lambda r: r["preset"] == "DeepSeek-V4-Flash" and r["scale"] == 64 and r["layer"]["limit"] == 10),
    (["--preset=deepseek-v4-flash", "--scale=64", "--limit=0"], lambda r: r["layer"]["limit"] == 0),
    (["--progress"], lambda r: True),
]


@pytest.mark.parametrize("command", ["run", "info"])
@pytest.mark.parametrize("arguments,holds", GOOD_VALUES)
def test_good_value(command, arguments, holds):
    sizes = [] if any("--preset" in a for a in arguments) else TINY
    assert holds(record(command, *sizes, *arguments))


def test_scale_rule():
    full = record("info", "--preset=Qwen3-30B-A3B")
    assert (full["tokens"], full["layer"]["hidden"], full["layer"]["intermediate"], full["layer"]["experts"]) == (
        [4096], 2048, 768, 128)
    small = record("info", "--preset=Qwen3-30B-A3B", "--scale=5", "--ranks=4")["layer"]
    assert (small["hidden"], small["intermediate"], small["experts"], small["top_k"]) == (448, 192, 28, 8)
    least = record("info", "--preset=Mixtral-8x7B", "--scale=1024", "--ranks=4")
    assert (least["layer"]["hidden"], least["layer"]["experts"], least["tokens"]) == (64, 4, [4] * 4)
    given = record("info", "--preset=Qwen3-30B-A3B", "--scale=8", "--hidden=100", "--tokens=9")
    assert (given["layer"]["hidden"], given["layer"]["intermediate"], given["tokens"]) == (100, 128, [9])


def test_info_lists_presets_with_true_shapes():
    shapes = {p["name"]: (p["hidden"], p["intermediate"], p["experts"], p["top_k"])
              for p in record("info")["presets"]}
    assert shapes == {
        "Qwen3-30B-A3B": (2048, 768, 128, 8),
        "Qwen3-235B-A22B": (4096, 1536, 128, 8),
        "Qwen3.5-35B-A3B": (2048, 512, 256, 8),
        "GLM-4.5-Air": (4096, 1408, 128, 8),
        "DeepSeek-V3": (7168, 2048, 256, 8),
        "DeepSeek-V4-Flash": (4096, 2048, 256, 6),
        "MiniMax-M2": (3072, 1536, 256, 8),
        "gpt-oss-120b": (2880, 2880, 128, 4),
        "Mixtral-8x7B": (4096, 14336, 8, 2),
    }


def test_capacity_is_input_that_can_not_be():
    for command in ("run", "info", "check"):
        sentence = refused(command, *TINY, "--capacity=7")
        assert "8" in sentence and "7" in sentence and "rank 0" in sentence


def test_check_says_fail_past_the_bound():
    done = megamoe("check", *TINY, "--bound=1e-6")
    assert done.returncode == CHECK
    assert done.stderr == ""
    lines = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [line[0] for line in lines] == ["y", "dx", "dw", "dW1", "dW2", "dW3"]
    assert all(line[-1] == "FAIL" for line in lines)
    done = megamoe("check", *TINY, "--bound=1e-6", "--json")
    assert done.returncode == CHECK
    assert json.loads(done.stdout)["ok"] is False


def test_save_needs_a_folder(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    assert "expected a folder that can be written" in refused("run", *TINY, f"--save={plain}")
    assert "expected a folder that can be written" in refused("run", *TINY, f"--save={tmp_path}/no/such")
    assert plain.read_text() == ""


def test_a_refused_run_writes_nothing(tmp_path):
    assert refused("run", *TINY, "--capacity=7", f"--save={tmp_path}/out")
    assert refused("bench", *TINY, "--capacity=7", f"--output={tmp_path}/out.json")
    assert os.listdir(tmp_path) == []


def test_output_is_checked_before_the_work(tmp_path):
    for place in (tmp_path / "no/such.json", tmp_path):
        assert refused("bench", *TINY, f"--output={place}") == (
            f"--output is '{place}', expected a file in a folder that can be written")


def test_a_trace_is_of_gpus(tmp_path):
    assert refused("trace", *TINY, "--ranks=2", "--backend=cpu", f"--output={tmp_path}/out") == (
        'rank 0: a trace is wanted of backend "cpu", expected "cuda"')
    assert os.listdir(tmp_path) == []
    assert refused("trace", *TINY, "--backend=cpu", f"--output={tmp_path}/no/such") == (
        f"--output is '{tmp_path}/no/such.json', expected a file in a folder that can be written")


def test_bad_environment():
    for rank, world, sentence in (("0", "65", "WORLD_SIZE is '65' in the environment, expected an integer from 1 to 64"),
                                  ("2", "2", "RANK is '2' in the environment, expected an integer from 0 to 1"),
                                  ("x", "2", "RANK is 'x' in the environment, expected an integer from 0 to 1")):
        environment = clean_environment() | {"RANK": rank, "WORLD_SIZE": world}
        assert refused("run", env=environment) == sentence
        assert megamoe("run", *TINY, "--ranks=2", env=environment).returncode == GOOD


@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["run", *TINY], ["check", *TINY]])
def test_full_disk_is_a_failure_of_the_run(arguments):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                              check=False)
    assert done.returncode == RUN
    assert "can't be written" in done.stderr and len(done.stderr.splitlines()) == 1
