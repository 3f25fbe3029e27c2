"""What a forward leaves for its backward, as a tensor that autograd can hold.

The library keeps it in a saved state, an object of its own. To autograd, checkpoints and compiled graphs it is a
tensor of one int64 on the CPU, the token: the number of the forward. The token's memory is an object of Python, which
hands the saved state back to be used again when the last tensor on that memory has gone: the output of the op, what
autograd saved of it, a cached copy of a selective checkpoint. A number is never used twice, so that a token that was
copied elsewhere and outlived its memory is found out and not mistaken for another forward's.
"""

import ctypes
import itertools
from ctypes import byref, c_void_p

import torch

from megamoe._library import Keep, destroy, library
from megamoe.errors import check

NO_STATE = 0  # the number in the token of a forward that keeps nothing


class Saved:
    """A mmoe_saved of the library."""

    def __init__(self, layer, keep):
        self.keep = keep
        pointer = c_void_p()
        check(library().mmoe_saved_create(layer, keep, byref(pointer)))
        self.pointer = pointer.value

    def destroy(self):
        destroy("mmoe_saved_destroy", self.pointer)


class TokenMemory(ctypes.Structure):
    """The memory of a token. Its end is the end of the forward's saved state."""

    _fields_ = [("number", ctypes.c_int64)]

    def __init__(self, number, give_back):
        super().__init__(number)
        self.give_back = give_back

    def __del__(self):
        self.give_back(self.number)


class SavedStates:
    """The saved states of one layer: those that wait for their backwards, and those that are free.

    Tokens may end in any thread and at any time, so `give_back` takes no lock: it is one pop and one append.
    """

    def __init__(self, layer):
        self.layer = layer
        self.numbers = itertools.count(NO_STATE + 1)
        self.pending = {}
        self.free = {keep: [] for keep in Keep}
        self.graphs = []  # of forwards that CUDA graphs hold: theirs for good
        self.made = []

    def take(self, keep):
        """A saved state for a forward, free or new."""
        try:
            return self.free[keep].pop()
        except IndexError:
            saved = Saved(self.layer, keep)
            self.made.append(saved)
            return saved

    def token(self, saved, captured=False):
        """The token [1] int64 of a forward into `saved`. A captured forward's saved state is never used again."""
        number = next(self.numbers)
        self.pending[number] = saved
        if captured:
            self.graphs.append(saved)
        return torch.frombuffer(TokenMemory(number, self.keep_for_graph if captured else self.give_back),
                                dtype=torch.int64)

    def give_back(self, number):
        saved = self.pending.pop(number, None)
        if saved is not None:
            self.free[saved.keep].append(saved)

    def keep_for_graph(self, number):
        self.pending.pop(number, None)

    def of(self, token):
        """The saved state of a forward by its token."""
        number = token.item()
        saved = self.pending.get(number)
        if saved is None:
            raise RuntimeError(
                f"the saved state of forward {number} is no longer there: its context was closed, or what autograd "
                "saved was copied and the original freed")
        return saved

    def close(self):
        """Destroys all; tokens that are still alive name nothing after this."""
        self.pending.clear()
        for saved in self.made:
            saved.destroy()
        self.made.clear()
        for free in self.free.values():
            free.clear()


def no_token():
    """The token of a forward that keeps nothing."""
    return torch.full((1,), NO_STATE, dtype=torch.int64)
