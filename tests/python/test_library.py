"""The C library from Python: layouts against the header, errors, and what a machine can do."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import megamoe
import pytest
import torch
from megamoe import _library, _status, errors

ROOT = Path(__file__).resolve().parents[2]
STRUCTS = {"mmoe_tensor": "Tensor", "mmoe_group_config": "GroupConfig", "mmoe_layer_config": "LayerConfig",
           "mmoe_report": "Report", "mmoe_forward_args": "ForwardArgs", "mmoe_backward_args": "BackwardArgs"}
ENUMS = {"Status": "MMOE_", "DType": "MMOE_", "Keep": "MMOE_KEEP_", "WeightOn": "MMOE_WEIGHT_ON_",
         "CapacityPolicy": "MMOE_CAPACITY_"}


def python_facts():
    facts = {}
    for c_name, name in STRUCTS.items():
        struct = getattr(_library, name)
        facts[f"sizeof({c_name})"] = ctypes.sizeof(struct)
        for field, _ in struct._fields_:
            facts[f"offsetof({c_name}, {field})"] = getattr(struct, field).offset
            facts[f"sizeof((({c_name} *)0)->{field})"] = getattr(struct, field).size
    for name, prefix in ENUMS.items():
        facts |= {prefix + member.name: member.value for member in getattr(_library, name)}
    return facts


def test_layouts_and_numbers_are_the_headers(tmp_path):
    facts = python_facts()
    lines = "\n".join(f'    printf("%lld\\n", (long long)({expression}));' for expression in facts)
    source = tmp_path / "facts.c"
    source.write_text("#include <megamoe.h>\n#include <stddef.h>\n#include <stdio.h>\n"
                      f"int main(void) {{\n{lines}\n    return 0;\n}}\n", encoding="utf-8")
    subprocess.run([shutil.which("cc"), "-I", ROOT / "include", source, "-o", tmp_path / "facts"], check=True)
    said = subprocess.run([tmp_path / "facts"], check=True, capture_output=True, text=True).stdout.split()
    header = dict(zip(facts, map(int, said), strict=True))
    assert header == facts
    # Fields that lie one after another up to the end leave none out.
    for c_name, name in STRUCTS.items():
        last = getattr(_library, name)._fields_[-1][0]
        assert facts[f"sizeof({c_name})"] - facts[f"offsetof({c_name}, {last})"] <= 8 * 3, c_name


def test_every_status_is_an_exception_with_the_librarys_sentence():
    assert set(errors.BY_STATUS) == set(_library.Status) - {_library.Status.OK}
    library = _library.library()
    config = library.mmoe_group_config_default()
    config.max_tokens = -1
    group = ctypes.c_void_p()
    status = library.mmoe_group_create_threads(ctypes.byref(config), 1, ctypes.byref(group))
    with pytest.raises(errors.InvalidArgumentError, match="config.max_tokens is -1, expected 0 .. 1048576") as caught:
        errors.check(status)
    assert isinstance(caught.value, ValueError) and caught.value.status == _library.Status.INVALID_ARGUMENT
    errors.check(_library.Status.OK)


def test_what_the_machine_can_do():
    assert megamoe.is_available("cpu") and megamoe.unavailable_reason("cpu") is None
    assert megamoe.status().startswith("megamoe 0.") and "\ncpu: available: " in megamoe.status()
    assert megamoe.unavailable_reason("tpu") == "device is 'tpu', expected one of 'cuda', 'cpu'"
    assert megamoe.is_available("cuda") == (megamoe.unavailable_reason("cuda") is None)
    assert megamoe.is_available(torch.device("cpu"))
    assert megamoe.unavailable_reason("cuda:1") == megamoe.unavailable_reason("cuda")


def test_unsupported_reasons():
    unsupported_reason = megamoe.unsupported_reason
    good = {"device": "cpu", "hidden": 64, "intermediate": 32, "experts": 8, "top_k": 2, "world": 2}
    assert unsupported_reason(**good) is None
    assert unsupported_reason(**good | {"experts": 7}) == "config.experts is 7, expected a multiple of the 2 ranks"
    assert unsupported_reason(**good, limit=7.0, weight_on="input", capacity=10, drop=True) is None
    assert "drop" in unsupported_reason(**good, drop=True)
    assert unsupported_reason(**good, activation="gelu").startswith("activation is 'gelu', expected 'silu'")
    assert unsupported_reason(**good, bias=True) == "the experts have biases, expected none"
    with pytest.raises(ValueError, match="weight_on is 'both', expected 'output' or 'input'"):
        unsupported_reason(**good, weight_on="both")
    with pytest.raises(ValueError, match="combine is 'sum', expected 'exact' or 'grouped'"):
        unsupported_reason(**good, combine="sum")


def test_a_context_where_the_layer_can_not_run():
    with pytest.raises(RuntimeError, match="device is 'tpu', expected one of 'cuda', 'cpu'"):
        megamoe.Context(max_tokens=1, hidden=64, top_k=1, experts=1, device="tpu")


def test_a_context_names_its_device_as_tensors_do():
    with megamoe.Context(max_tokens=1, hidden=64, top_k=1, experts=1, device="cpu:0", threads=1) as made:
        assert made.device == torch.zeros(1).device
    if not megamoe.is_available("cuda"):
        with pytest.raises(RuntimeError, match=re.escape(megamoe.unavailable_reason("cuda"))):
            megamoe.Context(max_tokens=1, hidden=64, top_k=1, experts=1, device=0)


def test_options_become_a_configuration():
    sizes = {"hidden": 64, "intermediate": 32, "experts": 8, "top_k": 2}
    plain = _status.layer_config(**sizes)
    assert (plain.weight_on, plain.combine, plain.capacity_policy, plain.check_weights) == (0, 0, 0, 1)
    made = _status.layer_config(**sizes, weight_on="input", combine="grouped", capacity=5, drop=True, limit=2.0,
                                check_weights=False)
    assert (made.weight_on, made.combine, made.capacity_policy, made.capacity, made.drop) == (1, 1, 1, 5, 1)
    assert made.limit == 2.0 and made.check_weights == 0


def test_a_library_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("MEGAMOE_LIBRARY", "nowhere.so")
    _library.library.cache_clear()
    try:
        assert not megamoe.is_available("cpu")
        assert megamoe.status().startswith("megamoe: not available: the library can't be loaded: nowhere.so: ")
        reason = megamoe.unsupported_reason(device="cpu", hidden=1, intermediate=1, experts=1, top_k=1)
        assert reason.startswith("the library can't be loaded: nowhere.so: ")
    finally:
        _library.library.cache_clear()
