"""The C library through ctypes: where it is, what its structs look like, and its functions.

Nothing here knows PyTorch. The layouts and numbers are those of include/megamoe.h, field by field; a test compiles the
header and compares.
"""

import ctypes
import enum
import os
from ctypes import (CDLL, POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_void_p)
from functools import lru_cache
from pathlib import Path

LIBRARY_VARIABLE = "MEGAMOE_LIBRARY"  # the path of another library than the package's own
BESIDE = Path(__file__).resolve().parent / "libmegamoe.so"


class Status(enum.IntEnum):
    """mmoe_status."""

    OK = 0
    INVALID_ARGUMENT = 1
    UNSUPPORTED = 2
    OUT_OF_MEMORY = 3
    SYSTEM = 4
    MISMATCH = 5
    REFUSED = 6
    CAPACITY = 7
    TIMEOUT = 8
    PEER_LOST = 9
    BROKEN = 10


class DType(enum.IntEnum):
    """mmoe_dtype."""

    BF16 = 1
    F32 = 2
    I32 = 3
    I64 = 4


class Keep(enum.IntEnum):
    """mmoe_keep."""

    PLAN = 0
    ROWS = 1


class WeightOn(enum.IntEnum):
    """mmoe_weight_on."""

    OUTPUT = 0
    INPUT = 1


class Combine(enum.IntEnum):
    """mmoe_combine."""

    EXACT = 0
    GROUPED = 1


class CapacityPolicy(enum.IntEnum):
    """mmoe_capacity_policy."""

    GROW = 0
    FIXED = 1


class Tensor(Structure):
    """mmoe_tensor; all zeros is an absent one."""

    _fields_ = [("data", c_void_p), ("experts", POINTER(c_void_p)), ("dtype", c_int), ("dims", c_int32),
                ("shape", c_int64 * 3), ("stride", c_int64 * 3)]


class GroupConfig(Structure):
    """mmoe_group_config."""

    _fields_ = [("struct_size", c_size_t), ("max_tokens", c_int64), ("max_hidden", c_int64), ("max_top_k", c_int64),
                ("max_experts", c_int64), ("arrive_timeout_ms", c_int64), ("progress_timeout_ms", c_int64),
                ("threads", c_int32), ("spare_multiprocessors", c_int32), ("backend", c_char_p), ("name", c_char_p)]


class LayerConfig(Structure):
    """mmoe_layer_config."""

    _fields_ = [("struct_size", c_size_t), ("hidden", c_int64), ("intermediate", c_int64), ("experts", c_int64),
                ("top_k", c_int64), ("weight_on", c_int), ("activation", c_int), ("limit", c_float),
                ("capacity_policy", c_int), ("capacity", c_int64), ("drop", c_int32), ("check_weights", c_int32),
                ("combine", c_int)]


class Report(Structure):
    """mmoe_report."""

    _fields_ = [("call", c_uint32), ("rows", c_int64), ("padded_rows", c_int64), ("dropped", c_int64),
                ("bytes_pulled", c_int64), ("bytes_pushed", c_int64), ("seconds_exchange", c_double),
                ("seconds_plan", c_double), ("seconds_dispatch", c_double), ("seconds_gate_up", c_double),
                ("seconds_down", c_double), ("seconds_dgrad", c_double), ("seconds_wgrad", c_double),
                ("seconds_combine", c_double), ("seconds_fused", c_double), ("seconds_total", c_double)]


class ForwardArgs(Structure):
    """mmoe_forward_args."""

    _fields_ = [("struct_size", c_size_t), ("x", Tensor), ("ids", Tensor), ("weights", Tensor), ("gate", Tensor),
                ("up", Tensor), ("down", Tensor), ("y", Tensor), ("saved", c_void_p), ("report", POINTER(Report)),
                ("stream", c_void_p)]


class BackwardArgs(Structure):
    """mmoe_backward_args."""

    _fields_ = [("struct_size", c_size_t), ("saved", c_void_p), ("x", Tensor), ("dy", Tensor), ("gate", Tensor),
                ("up", Tensor), ("down", Tensor), ("dx", Tensor), ("dweights", Tensor), ("dgate", Tensor),
                ("dup", Tensor), ("ddown", Tensor), ("accumulate", c_int32), ("report", POINTER(Report)),
                ("stream", c_void_p)]


# name: (result, arguments). Handles are addresses.
PROTOTYPES = {
    "mmoe_version": (c_char_p, []),
    "mmoe_last_error": (c_char_p, []),
    "mmoe_backend_count": (c_int, []),
    "mmoe_backend": (c_char_p, [c_int, POINTER(c_int), POINTER(c_char_p)]),
    "mmoe_unsupported_reason": (c_char_p, [c_char_p, POINTER(LayerConfig), c_int]),
    "mmoe_group_config_default": (GroupConfig, []),
    "mmoe_group_create_threads": (c_int, [POINTER(GroupConfig), c_int, POINTER(c_void_p)]),
    "mmoe_group_create_path": (c_int, [POINTER(GroupConfig), c_char_p, c_int, c_int, POINTER(c_void_p)]),
    "mmoe_group_check": (c_int, [c_void_p]),
    "mmoe_group_device": (c_int, [c_void_p]),
    "mmoe_group_destroy": (None, [POINTER(c_void_p)]),
    "mmoe_layer_config_default": (LayerConfig, []),
    "mmoe_layer_create": (c_int, [c_void_p, POINTER(LayerConfig), POINTER(c_void_p)]),
    "mmoe_layer_destroy": (None, [POINTER(c_void_p)]),
    "mmoe_saved_create": (c_int, [c_void_p, c_int, POINTER(c_void_p)]),
    "mmoe_saved_destroy": (None, [POINTER(c_void_p)]),
    "mmoe_forward_args_default": (ForwardArgs, []),
    "mmoe_backward_args_default": (BackwardArgs, []),
    "mmoe_forward": (c_int, [c_void_p, POINTER(ForwardArgs)]),
    "mmoe_backward": (c_int, [c_void_p, POINTER(BackwardArgs)]),
    "mmoe_refuse_forward": (c_int, [c_void_p, c_void_p, c_char_p]),
    "mmoe_refuse_backward": (c_int, [c_void_p, c_void_p, c_char_p]),
}


@lru_cache(maxsize=None)
def library():
    """The loaded library. OSError when it can't be loaded."""
    loaded = CDLL(os.environ.get(LIBRARY_VARIABLE) or str(BESIDE))
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def last_error():
    """The sentence about the last failure in this thread."""
    return library().mmoe_last_error().decode()


def backends():
    """(name, can run here, sentence about it) of each backend in the library."""
    lib, found = library(), []
    for index in range(lib.mmoe_backend_count()):
        present, detail = c_int(), c_char_p()
        name = lib.mmoe_backend(index, byref(present), byref(detail))
        found.append((name.decode(), bool(present.value), (detail.value or b"").decode()))
    return found


def destroy(function, handle):
    """Calls one of the mmoe_..._destroy functions on a handle."""
    pointer = ctypes.c_void_p(handle)
    getattr(library(), function)(byref(pointer))
