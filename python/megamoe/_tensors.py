"""Views of PyTorch tensors for the library: address, dtype, shape and strides, no copy."""

from contextlib import contextmanager

import torch

from megamoe._library import DType, Tensor

DTYPES = {torch.bfloat16: DType.BF16, torch.float32: DType.F32, torch.int32: DType.I32, torch.int64: DType.I64}


def view(tensor):
    """A mmoe_tensor of the memory of a 2- or 3-dimensional tensor; an absent one for None.

    The tensor has to live until the call that is given the view has returned.
    """
    made = Tensor()
    if tensor is None:
        return made
    made.data, made.dtype, made.dims = tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim()
    for axis in range(tensor.dim()):
        made.shape[axis], made.stride[axis] = tensor.shape[axis], tensor.stride(axis)
    return made


def for_products(weight):
    """A weight [El, rows, cols] as the library multiplies it: in bf16, and on a GPU with rows that its copy engine takes.

    The weight itself when it is so already, as parameters and their halves are.
    """
    weight = weight.to(torch.bfloat16)
    return weight if weight.device.type == "cpu" else for_copy_engine(weight)


def for_copy_engine(weight):
    """The weight itself, or a copy that the engine takes: also of a contiguous one, which may begin at an odd address."""
    return weight if is_for_copy_engine(weight) else weight.clone(memory_format=torch.contiguous_format)


def is_for_copy_engine(weight):
    """Whether columns lie side by side, and everything else at multiples of 16 bytes, forwards."""
    strides = weight.stride()
    return strides[2] == 1 and all(s > 0 and s % 8 == 0 for s in strides[:2]) and weight.data_ptr() % 16 == 0


def halves(stack):
    """The gate and up halves [El, I, H] of a stack [El, 2I, H], as views; (None, None) for None."""
    return (None, None) if stack is None else stack.chunk(2, dim=1)


@contextmanager
def made_current(device):
    """Makes a GPU and its CUDA context the current ones of this thread, by which the library knows it."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        yield


def stream_of(device):
    """The current stream of a tensor's device as the library takes it; None on the CPU."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None


def is_being_captured(device):
    """Whether a CUDA graph is being captured in the current stream."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
