"""Megatron Core: a megakernel backend for its MoE layers.

    from megamoe.plugs import megatron
    megatron.install(max_tokens=8192)
    config.moe_megakernel_backend = "megamoe"   # of a TransformerConfig that is made: its own check knows other names

Megatron keeps the router, the parameters, their gradients and checkpoints. Gradients of weights come through autograd,
as they do without gradient_accumulation_fusion. With one tensor for all experts of a rank (moe_single_grouped_weight)
weights are used where they lie; with one tensor for each they are put together in every forward, which is a copy.
"""

import functools
import importlib
import sys
from contextlib import nullcontext

import torch
from megatron.core.transformer.moe.megakernel.backend import MegakernelBackend
from torch.nn.functional import silu

from megamoe.errors import UnsupportedError
from megamoe.functional import moe
from megamoe.plugs._setup import Experts, first, layers, lora_reason

NAME = "megamoe"


class MegaMoEMegakernel(MegakernelBackend):
    """The experts of a MoE layer: dispatch, compute and combine as one call, and the shared experts as Megatron's own.

    Made with the layer, by all ranks of the EP group together. `max_tokens` is the most tokens of a rank in a forward;
    the other options are those of `megamoe.moe` and `megamoe.Context`.
    """

    def __init__(self, config, ep_group, routed_experts, shared_experts, num_local_experts, *, max_tokens, keep="auto",
                 **options):
        super().__init__()
        self.top_k, self.keep = config.moe_router_topk, keep
        self.layer = layers({"MoE layer": describe(config, routed_experts)}, ep_group, max_tokens=max_tokens,
                            **options)["MoE layer"]
        if self.layer.local_experts != num_local_experts:
            raise ValueError(f"num_local_experts is {num_local_experts}, expected {self.layer.local_experts}: "
                             f"{self.layer.experts} experts over the ranks of ep_group")
        # Aliases, so that Megatron's hooks on this module gather the parameters; not modules, whose owner is the layer.
        self.names = {name: self.alias(name, getattr(routed_experts, name), num_local_experts)
                      for name in ("linear_fc1", "linear_fc2")}
        self.shared_experts = (shared_experts,)

    def alias(self, name, linear, experts):
        """Registers the weights of a grouped linear here too; their names."""
        parameters = {f"{name}_weight": linear.weight} if is_single(linear) else {
            f"{name}_weight{expert}": getattr(linear, f"weight{expert}") for expert in range(experts)}
        for alias, parameter in parameters.items():
            self.register_parameter(alias, parameter)
        return tuple(parameters)

    def weight(self, name):
        """The weights [El, out, in] of a grouped linear."""
        weights = [getattr(self, alias) for alias in self.names[name]]
        return weights[0] if weights[0].dim() == 3 else torch.stack(weights)

    def forward(self, hidden_states, probs, routing_map):
        """The layer's output of the shape of hidden_states [S, B, H], from probs and routing_map [S * B, E]."""
        ids, weights = compact(probs, routing_map, self.top_k)
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        y = moe(x.to(torch.bfloat16), ids, weights, self.weight("linear_fc1"), None, self.weight("linear_fc2"),
                layer=self.layer, keep=self.keep).to(x.dtype).view_as(hidden_states)
        shared, = self.shared_experts
        return y if shared is None else y + shared(hidden_states)

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        """Nothing: the modules that own the parameters save them."""
        return {}

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Nothing, as above."""

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        """Nothing, as above."""


def is_single(linear):
    """Whether a grouped linear holds the weights of all its experts in one tensor."""
    return bool(getattr(linear, "single_grouped_weight", False))


def compact(probs, routing_map, top_k):
    """ids and weights [T, K] from Megatron's [T, E]: those on the map, by expert, and -1 and 0 where there are fewer.

    Gradients flow from the weights to probs. No host sync: sizes follow from those of the inputs.
    """
    on_map = routing_map.bool()
    chosen, ids = on_map.int().topk(top_k, dim=-1, sorted=True)
    ids = ids.masked_fill(chosen == 0, on_map.shape[-1]).sort(dim=-1).values
    used = ids < on_map.shape[-1]
    weights = probs.gather(-1, ids.clamp(max=on_map.shape[-1] - 1)) * used
    return ids.masked_fill(~used, -1), weights.float()


def describe(config, routed_experts):
    """The Experts of a MoE layer by its TransformerConfig."""

    def option(name):
        return getattr(config, name, None)

    refused = {name: option(name) for name in (
        "add_bias_linear", "moe_mlp_glu_interleave_size", "moe_pad_expert_input_to_capacity", "moe_latent_size", "fp8",
        "fp4", "moe_router_padding_for_quantization", "glu_linear_offset")}
    tensor_parallel = option("expert_tensor_parallel_size") or 1
    reason = first(
        *((value, f"{name} is {value!r}, expected it off") for name, value in refused.items()),
        (not option("gated_linear_unit"), f"gated_linear_unit is {option('gated_linear_unit')!r}, expected True"),
        (option("activation_func") is not silu, f"activation_func is {name_of(option('activation_func'))}, expected silu"),
        (tensor_parallel > 1, f"expert_tensor_parallel_size is {tensor_parallel}, expected 1"),
        (not all(hasattr(routed_experts, name) for name in ("linear_fc1", "linear_fc2")),
         f"the experts are {type(routed_experts).__name__}, expected grouped linears linear_fc1 and linear_fc2"),
    ) or lora_reason(routed_experts)
    return Experts(config.hidden_size, config.moe_ffn_hidden_size or 0, config.num_moe_experts, config.moe_router_topk,
                   "input" if option("moe_apply_probs_on_input") else "output",
                   option("activation_func_clamp_value") or 0.0, reason, weight_on_name="moe_apply_probs_on_input")


def name_of(function):
    return getattr(function, "__name__", repr(function))


def install(**options):
    """Lets Megatron build MegaMoEMegakernel, with these options, where moe_megakernel_backend is "megamoe"."""
    factory = importlib.import_module("megatron.core.transformer.moe.megakernel.factory")
    ours = {
        "build_megakernel_backend": functools.partial(MegaMoEMegakernel, **options),
        "prepare_megakernel_shared_expert_config": lambda config: config,
        "megakernel_shared_expert_init_context": lambda config: nullcontext(),
    }
    for name, make in ours.items():
        if not hasattr(factory, name):
            raise UnsupportedError(f"megatron.core.transformer.moe.megakernel.factory has no {name}, expected it there")
        replace(name, getattr(factory, name), make)


def replace(name, function, make):
    """Has `make` called instead of a function of Megatron for configs that name this backend, wherever it's imported."""
    theirs = getattr(function, "of_megatron", function)  # not an earlier install's

    @functools.wraps(theirs)
    def chosen(*arguments, **keywords):
        config = keywords["config"] if "config" in keywords else arguments[0]
        return (make if config.moe_megakernel_backend == NAME else theirs)(*arguments, **keywords)

    chosen.of_megatron = theirs
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "megatron" and getattr(module, name, None) is function:
            setattr(module, name, chosen)
