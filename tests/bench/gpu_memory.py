"""Arrays in the memory of a GPU, here the simulated one that MEGAMOE_LIBCUDA names, and bf16 in NumPy."""

import ctypes
import os

import numpy as np

POINTER, BYTES = ctypes.c_uint64, ctypes.c_size_t


def rounded(values):
    """To the nearest bf16, ties to even, as float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def narrow(values):
    """The bf16 of float32 values that are bf16 numbers, as uint16."""
    return (np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(values):
    return (values.astype(np.uint32) << 16).view(np.float32)


class Memory:
    def __init__(self):
        self.driver = ctypes.CDLL(os.environ["MEGAMOE_LIBCUDA"])
        context = ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self.call("cuCtxPushCurrent_v2", context)

    def call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        assert result == 0, (name, result)

    def put(self, array):
        """A copy of the array on the device: its address."""
        array, address = np.ascontiguousarray(array), POINTER()
        self.call("cuMemAlloc_v2", ctypes.byref(address), BYTES(max(array.nbytes, 1)))
        self.call("cuMemcpyHtoDAsync_v2", address, ctypes.c_void_p(array.ctypes.data), BYTES(array.nbytes), None)
        self.call("cuStreamSynchronize", None)
        return address.value

    def get(self, address, shape, dtype):
        array = np.empty(shape, dtype=dtype)
        self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(array.ctypes.data), POINTER(address), BYTES(array.nbytes), None)
        self.call("cuStreamSynchronize", None)
        return array
