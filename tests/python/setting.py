"""Where the tests run: MEGAMOE_TEST_DEVICE "cpu" (default) or "cuda", with as many ranks as there are GPUs, at most 4."""

import os

import torch

DEVICE = os.environ.get("MEGAMOE_TEST_DEVICE", "cpu")
RANKS = 4 if DEVICE == "cpu" else 1 << (min(4, torch.cuda.device_count()).bit_length() - 1)

# Sizes that every backend computes.
HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, MAX_TOKENS = 64, 64, 8, 2, 48


def device_of(rank=0):
    """The device of a rank: on GPUs each has its own."""
    return torch.device(DEVICE, rank) if DEVICE == "cuda" else torch.device("cpu")


def context_options(**changes):
    """The arguments of a Context for these tests; one thread a rank, since several processes share the cores."""
    return {"max_tokens": MAX_TOKENS, "hidden": HIDDEN, "top_k": TOP_K, "experts": EXPERTS, "threads": 1,
            "arrive_timeout": 60, **changes}


def poison_new_memory():
    """torch.empty gives NaN, and the largest integer: what an op leaves unwritten shows.

    It is a part of PyTorch's deterministic mode, whose public switch imports its compiler, which takes seconds.
    """
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
