"""What the plugs share: which of a model's experts the layer can compute, and the layers for those."""

import warnings
import weakref
from dataclasses import dataclass

import torch
import torch.distributed as dist

from megamoe._status import unsupported_reason
from megamoe.context import Context, chosen_device
from megamoe.errors import UnsupportedError

CHECKED_OPTIONS = ("capacity", "drop", "check_weights", "combine")  # those of a Context that unsupported_reason knows

_contexts = weakref.WeakKeyDictionary()  # process group: {options: context}


@dataclass(frozen=True)
class Experts:
    """The experts of one layer as a trainer built them: sizes over all ranks, and how it uses them.

    `reason`: why the plug can't take them, None when that's the library's to say. `weight_on_name`: what the trainer
    calls the option `weight_on`.
    """

    hidden: int
    intermediate: int
    experts: int
    top_k: int
    weight_on: str = "output"
    limit: float = 0.0
    reason: str | None = None
    weight_on_name: str = "weight_on"

    def options(self):
        """The arguments of Context.layer."""
        return {name: getattr(self, name)
                for name in ("hidden", "intermediate", "experts", "top_k", "weight_on", "limit")}


def first(*reasons):
    """The first of (whether, sentence) that holds, as its sentence; None when none does."""
    return next((sentence for holds, sentence in reasons if holds), None)


def reason_against(experts, *, world, device, **options):
    """Why these experts can't be computed, as one sentence; None when they can."""
    if experts.reason:
        return experts.reason
    asked = {name: value for name, value in options.items() if name in CHECKED_OPTIONS}
    reason = unsupported_reason(world=world, device=device, **experts.options(), **asked)
    if reason is not None and reason.startswith("weight_on"):
        return f"{experts.weight_on_name}: {reason}"
    return reason


def refusal(refused):
    """One sentence for each reason, with the first layer that has it and how many more there are."""
    layers_of = {}
    for name, reason in refused.items():
        layers_of.setdefault(reason, []).append(name)
    return "; ".join(f"{names[0] or 'the model'}{f' and {len(names) - 1} more' if names[1:] else ''}: {reason}"
                     for reason, names in layers_of.items())


def layers(found, process_group=None, *, max_tokens, device=None, fallback=False, **options):
    """The Layer of each of the found {name: Experts}; collective over the process group (None: this rank alone).

    Experts that can't be computed raise UnsupportedError, or with `fallback` are left out with a warning. The other
    options are those of Context.
    """
    device = chosen_device(device)
    world = 1 if process_group is None else dist.get_world_size(process_group)
    reasons = {name: reason_against(each, world=world, device=device.type, **options) for name, each in found.items()}
    refused = {name: reason for name, reason in reasons.items() if reason}
    if refused and not fallback:
        raise UnsupportedError(refusal(refused))
    if refused:
        warnings.warn(f"megamoe leaves these layers to the trainer's own experts: {refusal(refused)}", stacklevel=3)
    taken = {name: each for name, each in found.items() if name not in refused}
    if not taken:
        return {}
    largest = {size: max(getattr(each, size) for each in taken.values()) for size in ("hidden", "top_k", "experts")}
    context = shared_context(process_group, max_tokens=max_tokens, device=device, **largest, **options)
    return {name: context.layer(**each.options()) for name, each in taken.items()}


def shared_context(process_group, **options):
    """The one context of a process group with these options: layers that are set up one by one share it."""
    contexts = _contexts.setdefault(Context if process_group is None else process_group, {})
    key = tuple(sorted(options.items(), key=str))
    if key not in contexts or contexts[key].closed:
        contexts[key] = Context(process_group, **options)
    return contexts[key]


def lora_reason(experts):
    """Why experts can't be taken that an adapter changes; None when none does."""
    adapted = hasattr(experts, "base_layer") or hasattr(experts, "parametrizations")
    adapters = [name for name, _ in experts.named_parameters() if "lora" in name.lower()]
    return first((adapted or adapters, "LoRA on the experts, expected LoRA on other modules only"))


def bias_reason(experts):
    """Why experts can't be taken that have a bias."""
    names = [name for name, _ in experts.named_parameters() if "bias" in name]
    return first((names, f"the experts have biases ({', '.join(names)}), expected none"))


def swiglu_limit(activation):
    """The limit L of activation(gate, up) = silu(gate clipped at L) * (up clipped to -L .. L), 0.0 without one.

    None when it is another function. It is found out by calling it on a few numbers.
    """
    numbers = torch.linspace(-60, 60, 49, dtype=torch.float64, device="cpu")
    gate, up = (each.reshape(1, -1) for each in torch.meshgrid(numbers, numbers, indexing="ij"))
    one, far = torch.ones(1, 1, dtype=torch.float64, device="cpu"), 1e6
    with torch.no_grad():
        largest = float(activation(one, far * one) / torch.nn.functional.silu(one))
        values = activation(gate, up)
    limit = 0.0 if abs(largest / far - 1) < 1e-3 else round(largest, 6)
    if limit < 0 or not torch.allclose(values.double(), swiglu(gate, up, limit), rtol=1e-4, atol=1e-6):
        return None
    return limit


def swiglu(gate, up, limit):
    if limit > 0:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return torch.nn.functional.silu(gate) * up


def activation_reason(limit, what):
    """Why experts can't be taken whose activation's swiglu_limit is None."""
    return first((limit is None, f"{what}, expected h = silu(gate) * up, which may be clipped"))
