"""The command on a simulated GPU: what it finds, what it computes, what it refuses."""

import json
import os
import subprocess

import pytest

COMMAND = os.environ["MMOE_COMMAND"]
SHAPE = "--hidden 64 --intermediate 128 --experts 4 --top-k 2 --tokens 20".split()


def run(*arguments, **environment):
    return subprocess.run([COMMAND, *arguments], env=os.environ | environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)


def record(*arguments, **environment):
    done = run(*arguments, "--json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def backend(name, **environment):
    return next(b for b in record("info", **environment)["backends"] if b["name"] == name)


def test_info_lists_devices_and_their_links():
    cuda = backend("cuda", MEGAMOE_SIM_DEVICES="3")
    assert cuda["present"] and "simulated" in cuda["detail"]
    assert len(cuda["devices"]) == 3
    assert "compute capability 9.0" in cuda["devices"][1]
    assert "to GPU 0: peer access, native atomics" in cuda["devices"][1]
    assert "to GPU 2: peer access" in cuda["devices"][1] and "to GPU 1" not in cuda["devices"][1]
    assert "NVLink" in cuda["devices"][0]
    assert backend("cpu")["devices"] == []


def test_info_says_what_is_missing():
    cuda = backend("cuda", MEGAMOE_LIBCUDA="no-such-driver")
    assert not cuda["present"] and cuda["devices"] == []
    assert "no CUDA driver: no-such-driver" in cuda["detail"] or "built without nvcc" in cuda["detail"]
    text = run("info", MEGAMOE_SIM_DEVICES="2").stdout
    assert "GPU 1, simulated GPU" in text


def test_the_cpu_is_the_default():
    default, cuda, cpu = (record("run", *SHAPE, *backend)["checksums"]
                          for backend in ([], ["--backend", "cuda"], ["--backend", "cpu"]))
    assert default == cpu != cuda


def test_forward_and_backward_are_right():
    for keep in "plan", "rows":
        checked = record("check", "--backend", "cuda", "--keep", keep, *SHAPE)
        assert checked["ok"] and {t["tensor"] for t in checked["tensors"]} == {"y", "dx", "dw", "dW1", "dW2", "dW3"}


def test_bits_repeat_whatever_the_schedule():
    first, second = (record("run", "--backend", "cuda", *SHAPE, MEGAMOE_SIM_SEED=seed) for seed in "12")
    assert first["checksums"] == second["checksums"]
    assert first["forward"][0]["rows"] == 40


def test_refusals():
    for arguments, sentence in [
            (["--hidden", "72"], "hidden is 72, expected a multiple of 64"),
            (["--weight-on", "input"], "weight_on is 1"),
    ]:
        done = run("run", "--backend", "cuda", *SHAPE, *arguments)
        assert done.returncode == 2 and sentence in done.stderr, done.stderr


@pytest.mark.parametrize("launch", [1, 3, 4, 6])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_device_that_breaks_ends_the_command(ranks, launch):
    last = ranks - 1
    done = run("check", "--forward", "--backend", "cuda", "--ranks", str(ranks), *SHAPE, MEGAMOE_SIM_DEVICES=str(ranks),
               MEGAMOE_SIM_BREAK=f"{last}@{launch}")
    assert done.returncode == 3 and f"rank {last}: " in done.stderr, done.stderr
    assert "gave CUDA_ERROR_LAUNCH_FAILED (719)" in done.stderr and "noting the end" not in done.stderr, done.stderr


def test_memory_that_is_too_small():
    done = run("run", "--backend", "cuda", *SHAPE, MEGAMOE_SIM_MEMORY="100000")
    assert done.returncode == 3 and "bytes asked" in done.stderr, done.stderr
