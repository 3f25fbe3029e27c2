"""What the plug meets of Megatron Core's megakernels: rebuilt from the public definition of NVIDIA/Megatron-LM's pull
request 6572, megatron/core/transformer/moe/megakernel/factory.py. No code of it.
"""

from contextlib import nullcontext


def build_megakernel_backend(*, config, ep_group, routed_experts, shared_experts, num_local_experts):
    raise ValueError(f"Unsupported MoE megakernel backend: {config.moe_megakernel_backend!r}")


def prepare_megakernel_shared_expert_config(config):
    if config.moe_megakernel_backend is None:
        return config
    raise ValueError(f"Unsupported MoE megakernel backend: {config.moe_megakernel_backend!r}")


def megakernel_shared_expert_init_context(config):
    if config.moe_megakernel_backend is None:
        return nullcontext()
    raise ValueError(f"Unsupported MoE megakernel backend: {config.moe_megakernel_backend!r}")
