"""Hugging Face Transformers: `experts_implementation="megamoe"`.

    from megamoe.plugs import hugging_face
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
    hugging_face.attach(model, max_tokens=16384)                 # this rank alone
    hugging_face.attach(model, mesh=ep_mesh, max_tokens=16384)   # experts shared by the ranks of a DeviceMesh

`attach` is the set-up, before the optimizer, FSDP and torch.compile are applied. Parameters keep their names and their
shapes over all experts: on a mesh they become DTensors, of which a rank holds its own experts.
"""

import torch
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor
from transformers.integrations import moe as experts_of_transformers

from megamoe.errors import UnsupportedError
from megamoe.functional import moe
from megamoe.plugs._setup import Experts, activation_reason, bias_reason, first, layers, lora_reason, swiglu_limit

NAME = "megamoe"


def attach(model, *, max_tokens, mesh=None, fallback=None, keep="auto", **options):
    """Makes `model` compute its experts with the layer; collective over `mesh`, one-dimensional (None: this rank alone).

    `max_tokens` is the most tokens that this rank brings to a forward. Experts that the layer can't compute raise
    UnsupportedError, or stay with the implementation that `fallback` names ("grouped_mm", "eager"...) as far as they
    are not sharded. Other options are those of Context. Returns the names of the modules that it took.
    """
    register()
    modules = {name: module for name, module in model.named_modules() if is_experts(module)}
    if not modules:
        raise UnsupportedError(f"{type(model).__name__} has no experts that Transformers can dispatch, expected modules "
                               "under its use_experts_implementation")
    if fallback is not None and mesh is not None and mesh.size() > 1:
        raise UnsupportedError(f"fallback is {fallback!r} on a mesh of {mesh.size()} ranks, expected None: Transformers' "
                               "own experts know nothing of the mesh")
    found = {name: describe(module) for name, module in modules.items()}
    taken = layers(found, None if mesh is None else mesh.get_group(), max_tokens=max_tokens,
                   fallback=fallback is not None, **options)
    for name, module in modules.items():
        module.megamoe_layer, module.megamoe_keep = taken.get(name), keep
        module.megamoe_fallback = fallback
        if name in taken and mesh is not None:
            shard(module, mesh)
    model.set_experts_implementation(NAME)
    for name, module in modules.items():
        if module.config._experts_implementation != NAME:
            raise UnsupportedError(f"{name}: {type(model).__name__} can't set its experts_implementation")
    return list(taken)


def register():
    """Makes the name known, so that a model's config can hold it."""
    experts_of_transformers.ALL_EXPERTS_FUNCTIONS.register(NAME, forward)


def is_experts(module):
    """Whether Transformers dispatches the module's forward by `experts_implementation`."""
    return all(hasattr(module, name) for name in ("is_transposed", "is_concatenated", "has_gate", "has_bias", "down_proj"))


def describe(module):
    """The Experts of a module, which still holds all of them."""
    top_k = getattr(module.config, "num_experts_per_tok", None) or getattr(module.config, "moe_topk", None)
    limit = limit_of(module)
    reason = first(
        (not module.has_gate, "has_gate is False, expected experts with a gate"),
        (not module.is_concatenated, "is_concatenated is False: gate and up are interleaved, expected one after the other"),
        (module.is_transposed, "is_transposed is True, expected weights [experts, out, in]"),
        (getattr(module, "has_post_expert_norm", False), "has_post_expert_norm is True, expected no norm after experts"),
        (getattr(module, "_is_expert_parallel", False),
         "the experts are under Transformers' own expert parallelism, expected the mesh to be given to attach"),
        (top_k is None, f"{type(module.config).__name__} has no num_experts_per_tok"),
    ) or bias_reason(module) or lora_reason(module) or activation_reason(limit, f"activation is {activation_name(module)}")
    experts, hidden, intermediate = module.down_proj.shape
    return Experts(hidden, intermediate, experts, top_k or 1, limit=limit or 0.0, reason=reason)


def limit_of(module):
    """The swiglu_limit of a module's gate."""
    if not module.has_gate or not module.is_concatenated:
        return 0.0
    return swiglu_limit(lambda gate, up: module._apply_gate(torch.cat([gate, up], dim=-1)))


def activation_name(module):
    return type(module.act_fn).__name__ if hasattr(module, "act_fn") else f"that of {type(module).__name__}._apply_gate"


def shard(module, mesh):
    """Leaves this rank its own experts: parameters become DTensors of the same shape, sharded over the experts.

    All ranks have the same weights here, as from_pretrained and a seed give; nothing is sent.
    """
    for name, weight in list(module.named_parameters(recurse=False)):
        mine = distribute_tensor(weight.detach(), mesh, [Shard(0)], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(mine, requires_grad=weight.requires_grad))


def forward(self, hidden_states, top_k_index, top_k_weights):
    """The forward of an experts module: y [T, H] from hidden_states [T, H], top_k_index and top_k_weights [T, K]."""
    layer = getattr(self, "megamoe_layer", None)
    if layer is None:
        return forward_of_fallback(self)(self, hidden_states, top_k_index, top_k_weights)
    y = moe(hidden_states, top_k_index, top_k_weights, self.gate_up_proj, None, self.down_proj, layer=layer,
            keep=self.megamoe_keep)
    return y.to(hidden_states.dtype)


def forward_of_fallback(module):
    name = getattr(module, "megamoe_fallback", None)
    if name is None:
        raise RuntimeError('experts_implementation is "megamoe" but megamoe.plugs.hugging_face.attach(model, ...) was '
                           "not called")
    eager = type(module).forward.__wrapped__
    return experts_of_transformers.ALL_EXPERTS_FUNCTIONS.get_interface(name, eager)
