"""Faults that can be planted in the experts of a model, each of which a training must show."""

import torch


def plant(name, model):
    """Nothing where the name is empty."""
    if name:
        for module in model.modules():
            if hasattr(module, "gate_up_proj") and hasattr(module, "down_proj"):
                FAULTS[name](module)


def scaled_down(experts):
    experts.down_proj.register_hook(lambda gradient: 0.9 * gradient)


def no_dweights(experts):
    experts.register_forward_pre_hook(lambda _, given: (given[0], given[1], given[2].detach() + 0 * given[2]))


def no_dx(experts):
    experts.register_forward_pre_hook(lambda _, given: (given[0].detach() + 0 * given[0], *given[1:]))


def lost_rows(experts):
    def lose(_, given, y):
        kept = torch.ones(len(y), 1, dtype=y.dtype, device=y.device)
        kept[::31] = 0
        return y * kept

    experts.register_forward_hook(lose)


FAULTS = {
    "gradient of down_proj nine tenths": scaled_down,
    "no gradient of router weights": no_dweights,
    "no gradient of tokens": no_dx,
    "every 31st token without its experts": lost_rows,
}
