"""A context: the ranks that share experts, set up once, and the layers that they compute together."""

import os
import warnings
import weakref
from ctypes import byref, c_void_p

import torch
import torch.distributed as dist

from megamoe._library import destroy, library
from megamoe._meeting import meeting_path
from megamoe._process import OfThisProcess
from megamoe._status import unavailable_reason
from megamoe._tensors import made_current
from megamoe.errors import check
from megamoe.layer import Layer


def chosen_device(device):
    """The device that was asked for, a GPU with its number. RuntimeError where the layer can't run on it."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = f"cuda:{device}" if isinstance(device, int) else device
    reason = unavailable_reason(device)
    if reason is not None:
        raise RuntimeError(reason)
    device = torch.device(device)
    if device.type == "cpu":
        return torch.device("cpu")  # as tensors name it
    return torch.device("cuda", torch.cuda.current_device()) if device.index is None else device


def group_config(device, *, max_tokens, hidden, top_k, experts, threads, spare_multiprocessors, arrive_timeout,
                 progress_timeout):
    config = library().mmoe_group_config_default()
    config.backend = device.type.encode()
    config.max_tokens, config.max_hidden, config.max_top_k, config.max_experts = max_tokens, hidden, top_k, experts
    config.threads, config.spare_multiprocessors = threads, spare_multiprocessors
    config.arrive_timeout_ms, config.progress_timeout_ms = int(1e3 * arrive_timeout), int(1e3 * progress_timeout)
    return config


def create_group(config, process_group):
    """The address of a mmoe_group: of one rank without a process group."""
    pointer = c_void_p()
    if process_group is None:
        check(library().mmoe_group_create_threads(byref(config), 1, byref(pointer)))
        return pointer.value
    rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
    with meeting_path(process_group) as path:
        check(library().mmoe_group_create_path(byref(config), path.encode(), rank, world, byref(pointer)))
    return pointer.value


def check_membership(process_group):
    """Raises where this rank is in no such group; warns where a group was meant and None came."""
    if process_group is not None:
        if dist.get_rank(process_group) < 0:
            raise ValueError("process_group is one that this rank is not in, expected one of its own")
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1 and not (dist.is_available() and dist.is_initialized()):
        warnings.warn(f"process_group is None and WORLD_SIZE is {os.environ['WORLD_SIZE']}: this context is of this rank "
                      "alone. torch.distributed.group.WORLD is None before init_process_group", stacklevel=3)


class Context(OfThisProcess):
    """The expert-parallel group of this rank, with the memory that all its layers share.

    Made once, at set-up, by all ranks of `process_group` together (None: by this rank alone), which are on one host:

        max_tokens         most tokens T that a rank brings to a call
        hidden, top_k, experts   the largest H, K and E of its layers
        device             of the tensors: "cuda", each rank on a GPU of its own, or "cpu"; default: the current GPU if
                           there is one
        capacity           None: memory for received rows grows with the demand. A number: a rank may receive so many
                           rows in a call, whose memory is made at set-up; more are an error on all ranks, or
        drop               with True they are dropped and counted
        check_weights      NaN and Inf among router weights are refused
        combine            "exact": each slot's result travels, and y has the same bits on any number of ranks.
                           "grouped": a token's results on one rank are summed there, and the rounded sums travel and are
                           added in rank order: less to send where a token has several slots on a rank
        spare_multiprocessors   of this GPU, that the layer leaves to other kernels
        threads            of the CPU backend; 0: this rank's share of the cores
        arrive_timeout     seconds for peers to come to a call or to set-up; progress_timeout: for everything after

    Ends with `close()`, with its process group, or with the program. Copies are the same context; it can't be pickled,
    nor used in a process that was forked from this one. All numbers but `threads` and
    `spare_multiprocessors` are the same on all ranks.
    """

    def __init__(self, process_group=None, *, max_tokens, hidden, top_k, experts, device=None, capacity=None,
                 drop=False, check_weights=True, combine="exact", spare_multiprocessors=0, threads=0,
                 arrive_timeout=600.0, progress_timeout=30.0):
        self.device = chosen_device(device)
        check_membership(process_group)
        self.world = 1 if process_group is None else dist.get_world_size(process_group)
        self.rank = 0 if process_group is None else dist.get_rank(process_group)
        self.max_tokens, self.hidden, self.top_k, self.experts = max_tokens, hidden, top_k, experts
        self.options = {"capacity": capacity, "drop": drop, "check_weights": check_weights, "combine": combine}
        config = group_config(self.device, max_tokens=max_tokens, hidden=hidden, top_k=top_k, experts=experts,
                              threads=threads, spare_multiprocessors=spare_multiprocessors,
                              arrive_timeout=arrive_timeout, progress_timeout=progress_timeout)
        with made_current(self.device):
            self._group = create_group(config, process_group)
        self._layers = {}
        ends_with = Context if process_group is None else process_group
        self._close = weakref.finalize(ends_with, close, os.getpid(), self._group, self._layers)

    def layer(self, *, intermediate, hidden=None, experts=None, top_k=None, weight_on="output", limit=0.0):
        """The layer of these sizes and options; the same object each time, for all layers of a model that are alike.

        hidden, experts and top_k are the context's unless given. `weight_on`: whether a router weight multiplies the
        expert's "output" or "input". `limit` L > 0 clips gate at L and up to -L .. L before the activation. All ranks
        ask for the same layers in the same order.
        """
        options = {"hidden": hidden or self.hidden, "intermediate": intermediate, "experts": experts or self.experts,
                   "top_k": top_k or self.top_k, "weight_on": weight_on, "limit": limit, **self.options}
        key = tuple(options.values())
        if key not in self._layers:
            self._layers[key] = Layer(self.pointer, self.world, self.device, **options)
        return self._layers[key]

    @property
    def closed(self):
        return not self._close.alive

    @property
    def pointer(self):
        if self.closed:
            raise RuntimeError("the context is closed")
        return self._group

    def check(self):
        """Raises how the group broke, or how a call on a GPU failed that had returned before. Waits for nothing."""
        check(library().mmoe_group_check(self.pointer))

    def close(self):
        """Leaves the group. Not collective; a second call does nothing. Forwards whose backward is still to come can't
        be differentiated after it."""
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def close(process, group, layers):
    """Destroys the group with its layers; a function of its own, since the context may be gone.

    Not in a process that was forked since: the group is its parent's, as are the threads that this would wait for.
    """
    if os.getpid() != process:
        return
    for layer in layers.values():
        layer.close()
    layers.clear()
    destroy("mmoe_group_destroy", group)
