"""prime-rl: `type = "megamoe"` under [model.moe.dispatch], or `ep_comm_backend = "megamoe"` where there is no such table.

    torchrun --nproc-per-node 8 -m megamoe.plugs.prime_rl prime_rl.trainer.sft.train @ sft.toml

This runs the trainer's module after `install()`, which any other program calls itself before it reads a config. The
trainer's models, routers, parameters and checkpoints stay as they are; of each MoE only what runs its experts is
replaced. Keys beside `type` in the table: max_tokens_per_rank (default: seq_len), fallback (false), keep ("auto") and
spare_multiprocessors (0). Seen from here prime-rl has two forms, told apart by what its config knows:

    dispatch  [model.moe.dispatch] with a type, and a token dispatcher for each MoE: since its pull request 3411
    flat      model.ep_comm_backend, and MoE.forward that asks for it: v0.8
"""

import functools
import importlib
import runpy
import sys
from typing import Literal

import torch
from torch import nn

from megamoe.errors import UnsupportedError
from megamoe.functional import moe as megamoe_op
from megamoe.plugs._pydantic import widen
from megamoe.plugs._setup import Experts, activation_reason, bias_reason, first, layers, lora_reason, swiglu_limit

NAME = "megamoe"
CONFIGS = "prime_rl.configs.trainer"


class Routing:
    """Where the rows of x go: what the experts module is called with instead of its count of rows for each expert.

    No tensor to FSDP, which would round the scores to the dtype of the parameters.
    """

    def __init__(self, scores, ids):
        self.scores, self.ids = scores, ids


class MegaMoETokenDispatcher:
    """A TokenDispatcher of prime-rl for experts that `take` has prepared."""

    def __init__(self, score_before_experts):
        self.score_before_experts = score_before_experts

    def run(self, x, top_scores, selected_experts_indices, experts, *, score_before_experts):
        """y [T, D] from x [T, D], scores and ids [T, K]. FSDP gathers the weights where `experts` is called."""
        if score_before_experts != self.score_before_experts:
            raise ValueError(f"score_before_experts is {score_before_experts}, expected {self.score_before_experts} as "
                             "at set-up")
        return experts(x, Routing(top_scores, selected_experts_indices))

    def synchronize(self):
        """Nothing to wait for: the op is in its place in the stream."""


def describe(moe):
    """The Experts of a MoE of either form."""
    experts = moe.experts
    reason = lora_reason(experts) or bias_reason(experts) or layout_reason(experts)
    limit = 0.0
    if reason is None:
        limit = swiglu_limit(experts.activation.apply) if hasattr(experts, "activation") else 0.0
        reason = activation_reason(limit, f"activation is {name_of(getattr(experts, 'activation', None))}") or first(
            (getattr(experts, "fp8", False), "quantization is fp8, expected experts in bf16"),
            (getattr(moe, "fused_kernel", None), "model.moe_fused_kernel is true, expected false"))
        _, hidden, intermediate = getattr(experts, "down_proj", getattr(experts, "w2", None)).shape
    else:
        hidden = intermediate = 0
    weight_on = "input" if moe.score_before_experts else "output"
    return Experts(hidden, intermediate, experts.num_experts, moe.router.top_k, weight_on, limit or 0.0, reason,
                   weight_on_name="score_before_experts")


def name_of(activation):
    return getattr(activation, "__name__", type(activation).__name__)


def layout_reason(experts):
    """Why experts can't be taken whose weights aren't gate, up and down, [experts, out, in] each."""
    split, older = (hasattr(experts, name) for name in ("up_proj", "w3"))
    if not split and not older:
        interleaved = hasattr(experts, "gate_up_proj")
        return (f"{type(experts).__name__} has {'interleaved gate_up_proj' if interleaved else 'unknown weights'}, expected "
                "weights of gate and up in two tensors or one after the other")
    gate = getattr(experts, "gate_proj", None) if split else experts.w1
    stacked = getattr(experts, "gate_up_proj", None)
    without_gate = (gate is None and stacked is None) or (older and experts.w3.numel() == 0)
    return first((without_gate, f"{type(experts).__name__} has no gate, expected experts with one"))


def weights_of(experts):
    """gate, up and down as megamoe.moe takes them."""
    if hasattr(experts, "w3"):
        return experts.w1, experts.w3, experts.w2
    if experts.gate_up_proj is not None:
        return experts.gate_up_proj, None, experts.down_proj
    return experts.gate_proj, experts.up_proj, experts.down_proj


def take(moe, layer, keep):
    """Lets a MoE run its experts on the layer: the experts module as one call, and what calls it."""
    experts = moe.experts

    def forward(x, routing):
        y = megamoe_op(x.to(torch.bfloat16), routing.ids, routing.scores, *weights_of(experts), layer=layer, keep=keep)
        return y.to(x.dtype)

    def run_experts(x, selected_experts_indices, top_scores):
        return experts(x, Routing(top_scores, selected_experts_indices))

    experts.forward = forward
    if hasattr(moe, "set_token_dispatcher"):
        moe.set_token_dispatcher(MegaMoETokenDispatcher(moe.score_before_experts))
    else:
        moe.fused_kernel, moe._run_fused_routed_experts = NAME, run_experts


def attach(model, parallel_dims, *, max_tokens, fallback=False, keep="auto", **options):
    """Takes the MoEs of a model whose experts are sharded, before it is checkpointed, compiled and wrapped by FSDP.

    Collective over the EP group. Experts that the layer can't compute raise UnsupportedError, or with `fallback` keep
    the dispatcher that they have. Returns the names of the MoEs that it took.
    """
    group = parallel_dims.get_mesh("ep").get_group() if parallel_dims.ep_enabled else None
    moes = {name: module for name, module in model.named_modules() if is_moe(module)}
    taken = layers({name: describe(moe) for name, moe in moes.items()}, group, max_tokens=max_tokens, fallback=fallback,
                   **options)
    for name, layer in taken.items():
        take(moes[name], layer, keep)
    return list(taken)


def is_moe(module):
    """Whether a module is a MoE of either form."""
    parts = all(isinstance(getattr(module, name, None), nn.Module) for name in ("router", "experts"))
    return parts and any(hasattr(module, name) for name in ("set_token_dispatcher", "set_ep_comm_backend"))


def config_reason(config):
    """What a ModelConfig asks of the experts that the layer can't do."""
    compute = getattr(getattr(config, "moe", None), "compute", None)
    lora = getattr(config, "lora", None)
    targets = [target for target in getattr(lora, "target_modules", None) or () if "expert" in target]
    kind, backend = getattr(compute, "type", "bf16"), getattr(compute, "backend", "torch")
    return first(
        (kind != "bf16", f"model.moe.compute.type is {kind!r}, expected 'bf16'"),
        (backend != "torch", f"model.moe.compute.backend is {backend!r}, expected 'torch'"),
        (compute is None and getattr(getattr(config, "quantization", None), "enable_grouped_gemm", False),
         "model.quantization.enable_grouped_gemm is true, expected false"),
        (targets, f"model.lora.target_modules has {', '.join(map(repr, targets))}: LoRA on the experts, expected other "
                  "modules only"))


def install(**options):
    """Teaches the installed prime-rl the name "megamoe"; returns which form it has, "dispatch" or "flat".

    To be called before configs are read. The options are those of `attach`, for the flat form, which has no table for
    them; without max_tokens it is model.seq_len.
    """
    configs = importlib.import_module(CONFIGS)
    if hasattr(configs, "TorchMoEDispatchConfig"):
        return install_dispatch(configs)
    if "ep_comm_backend" in configs.ModelConfig.model_fields:
        return install_flat(configs, options)
    raise UnsupportedError(f"{CONFIGS} has neither TorchMoEDispatchConfig nor ModelConfig.ep_comm_backend, expected one "
                           "of them")


def install_dispatch(configs):
    """The form with [model.moe.dispatch]."""
    if not hasattr(configs, "MegaMoEDispatchConfig"):
        configs.MegaMoEDispatchConfig = dispatch_config(configs.TorchMoEDispatchConfig)
        widen(configs.MoERuntimeConfig, "dispatch", configs.MegaMoEDispatchConfig)
        runtime = importlib.import_module("prime_rl.trainer.moe_runtime")
        wrap(runtime.configure_moe_runtime, after_configure)
    return "dispatch"


def dispatch_config(torch_dispatch):
    """The config class of `type = "megamoe"`, derived from that of "torch", which runs what the layer leaves."""

    class MegaMoEDispatchConfig(torch_dispatch):
        """Dispatch, compute and combine routed tokens in one call of megamoe."""

        type: Literal["megamoe"] = NAME
        max_tokens_per_rank: int | None = None
        """Most tokens of a rank in a forward. Default: model.seq_len."""

        fallback: bool = False
        """Whether layers that megamoe can't compute run as under "torch"; otherwise they are refused at set-up."""

        keep: Literal["auto", "plan", "rows"] = "auto"
        """What forwards keep for their backwards, as in megamoe.moe."""

        spare_multiprocessors: int = 0
        """Multiprocessors that megamoe leaves to other kernels."""

    return MegaMoEDispatchConfig


def after_configure(model, config, parallel_dims):
    """What follows configure_moe_runtime: every MoE has a dispatcher and its shard of the experts."""
    dispatch = config.moe.dispatch
    if dispatch.type != NAME:
        return
    transport = getattr(dispatch, "transport", "bf16")
    refuse(config_reason(config) or first(
        (transport != "bf16", f"model.moe.dispatch.transport is {transport!r}, expected 'bf16'")))
    attach(model, parallel_dims, max_tokens=dispatch.max_tokens_per_rank or config.seq_len, fallback=dispatch.fallback,
           keep=dispatch.keep, spare_multiprocessors=dispatch.spare_multiprocessors)


def install_flat(configs, options):
    """The form with ep_comm_backend. Its apply_ep shards the experts of any backend but "torch" and does no more."""
    if NAME not in repr(configs.ModelConfig.model_fields["ep_comm_backend"].annotation):
        widen(configs.ModelConfig, "ep_comm_backend", Literal["megamoe"])
        trainer = importlib.import_module("prime_rl.trainer.model")
        wrap(trainer.apply_ep, functools.partial(after_apply_ep, options))
    return "flat"


def after_apply_ep(options, model, config, parallel_dims):
    if config.ep_comm_backend != NAME:
        return
    refuse(config_reason(config) or first(
        (options.get("fallback"), "fallback is true, expected false: other backends shard the experts in another way")))
    attach(model, parallel_dims, **{"max_tokens": config.seq_len, **options})


def refuse(reason):
    if reason is not None:
        raise UnsupportedError(reason)


def wrap(function, then):
    """Has `then` called after `function`, with its arguments, wherever prime-rl has imported it."""

    @functools.wraps(function)
    def both(*arguments, **keywords):
        result = function(*arguments, **keywords)
        then(*arguments, **keywords)
        return result

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "prime_rl" and getattr(module, function.__name__, None) is function:
            setattr(module, function.__name__, both)


def main():
    """MODULE ARGUMENT...: runs a module of the trainer with "megamoe" known to it."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m megamoe.plugs.prime_rl MODULE [ARGUMENT...]")
    install()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
