"""A layer of a context: its sizes and options, its saved states, and the two calls of the library."""

import itertools
import os
from contextlib import contextmanager
from ctypes import byref, c_void_p
from enum import IntEnum

import torch

from megamoe import _states
from megamoe._library import Keep, destroy, library
from megamoe._process import OfThisProcess
from megamoe._status import layer_config
from megamoe._tensors import DTYPES, for_products, halves, is_being_captured, stream_of, view
from megamoe.errors import check


class KeepRule(IntEnum):
    """What forwards keep for their backwards; the numbers are arguments of the op."""

    NOTHING = 0  # no backward follows
    AUTO = 1  # rows in the replay of a checkpoint, whose backward follows at once; else the plan
    PLAN = 2  # the routing plan: backward fetches x and computes gate and up again
    ROWS = 3  # the plan, the rows of x, gate and up


KEEP_RULES = {"auto": KeepRule.AUTO, "plan": KeepRule.PLAN, "rows": KeepRule.ROWS}

_handles = itertools.count(1)
_layers = {}
os.register_at_fork(after_in_child=_layers.clear)  # there the library's threads are not


def by_handle(handle):
    """The layer that `Layer.handle` names."""
    layer = _layers.get(handle)
    if layer is None:
        raise RuntimeError(f"layer is {handle}, expected the handle of a layer whose context is open in this "
                           "process")
    return layer


def is_in_backward():
    """Whether autograd is running a backward in this thread: a forward here is a checkpoint's replay."""
    return torch._C._current_graph_task_id() != -1


def keep_of(rule):
    """What this forward keeps, a Keep; None for nothing."""
    if rule == KeepRule.NOTHING:
        return None
    if rule == KeepRule.AUTO:
        return Keep.ROWS if is_in_backward() else Keep.PLAN
    return Keep.ROWS if rule == KeepRule.ROWS else Keep.PLAN


def products_of(gate, up, down):
    """gate, up and down as the library takes them, from what the op takes."""
    gate, up = halves(gate) if up is None else (gate, up)
    return for_products(gate), for_products(up), for_products(down)


class Layer(OfThisProcess):
    """Made by `Context.layer`. One serves any number of layers of a model that have its sizes: it holds no weights.

    Sizes: `hidden` H, `intermediate` I, `experts` E in all, `local_experts` El = E / W of this rank, `top_k` K.
    `handle` is the number by which the ops know it.
    """

    def __init__(self, group, world, device, *, hidden, intermediate, experts, top_k, **options):
        self.hidden, self.intermediate, self.experts, self.top_k = hidden, intermediate, experts, top_k
        self.local_experts, self.device = experts // world, device
        config = layer_config(hidden=hidden, intermediate=intermediate, experts=experts, top_k=top_k, **options)
        pointer = c_void_p()
        check(library().mmoe_layer_create(group, byref(config), byref(pointer)))
        self.pointer = pointer.value
        self.states = _states.SavedStates(self.pointer)
        self.handle = next(_handles)
        _layers[self.handle] = self

    def check_tensors(self, **tensors):
        """Raises when a tensor is not where this layer computes, where its address would mean nothing, or is of a kind
        that the library has no name for."""
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            if tensor.device != self.device:
                raise ValueError(f"{name} is on {tensor.device}, expected {self.device}, the device of the context")
            if tensor.dtype not in DTYPES:
                raise TypeError(f"{name} is {tensor.dtype}, expected one of {', '.join(map(str, DTYPES))}")
            if tensor.dim() > 3:
                raise ValueError(f"{name} has {tensor.dim()} dimensions, expected at most 3")

    @contextmanager
    def telling_peers(self, refuse):
        """What fails in here, where memory may end, comes before the call: the other ranks are told, by the function of
        the library that `refuse` names, and don't wait for this one."""
        try:
            yield
        except BaseException as error:  # an interrupt too: a notebook goes on after it
            reason = f"{type(error).__name__}: {error}".encode()
            getattr(library(), refuse)(self.pointer, stream_of(self.device), reason)
            raise

    def close(self):
        del _layers[self.handle]
        self.states.close()
        destroy("mmoe_layer_destroy", self.pointer)
        self.pointer = None  # which the library refuses

    def forward(self, x, ids, weights, gate, up, down, rule):
        """y [T, H] bf16, and the token of what is kept.

        x [T, H] bf16, ids [T, K] int32 or int64, weights [T, K] fp32, gate and up [El, I, H] (or gate [El, 2I, H] with
        gate in the first half and up in the second, and up None) and down [El, H, I], bf16 or fp32.
        """
        with self.telling_peers("mmoe_refuse_forward"):
            self.check_tensors(x=x, ids=ids, weights=weights, gate=gate, up=up, down=down)
            y = x.new_empty(x.shape)
            keep = keep_of(rule)
            saved = None if keep is None else self.states.take(keep)
            token = _states.no_token() if saved is None else self.states.token(saved, is_being_captured(x.device))
            gate, up, down = products_of(gate, up, down)
            args = library().mmoe_forward_args_default()
            args.x, args.ids, args.weights, args.y = view(x), view(ids), view(weights), view(y)
            args.gate, args.up, args.down = view(gate), view(up), view(down)
            args.saved = None if saved is None else saved.pointer
            args.stream = stream_of(x.device)
        check(library().mmoe_forward(self.pointer, byref(args)))
        return y, token

    def backward(self, dy, token, x, gate, up, down, gradients, accumulate=False):
        """Fills the gradients that are there, of which any may be None; weights and the token as in the forward.

        `gradients` holds dx [T, H] bf16, dweights [T, K] fp32, and dgate, dup, ddown of the weights' shapes in bf16 or
        fp32; dup is None when up is. With `accumulate` the last three are added to what is there.
        """
        with self.telling_peers("mmoe_refuse_backward"):
            self.check_tensors(dy=dy, x=x, gate=gate, up=up, down=down)
            saved = self.states.of(token)
            dx, dweights, dgate, dup, ddown = gradients
            if up is None:
                dgate, dup = halves(dgate)
            gate, up, down = products_of(gate, up, down)
            args = library().mmoe_backward_args_default()
            args.saved, args.dy = saved.pointer, view(dy)
            args.x = view(x if saved.keep == Keep.PLAN else None)
            args.gate, args.up, args.down = view(gate), view(up), view(down)
            args.dx, args.dweights = view(dx), view(dweights)
            args.dgate, args.dup, args.ddown = view(dgate), view(dup), view(ddown)
            args.accumulate = accumulate
            args.stream = stream_of(dy.device)
        check(library().mmoe_backward(self.pointer, byref(args)))
