"""What the plug meets of prime-rl's set-up: rebuilt from the public definition of PrimeIntellect-ai/prime-rl after its
pull request 3411 (v0.9), src/prime_rl/trainer/moe_runtime.py. No code of it.
"""

from prime_rl.configs.trainer import TorchMoEDispatchConfig
from prime_rl.trainer.models.layers.moe import LocalTokenDispatcher, MoE
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor


def configure_moe_runtime(model, config, parallel_dims):
    for moe in (module for module in model.modules() if isinstance(module, MoE)):
        if not isinstance(config.moe.dispatch, TorchMoEDispatchConfig):
            raise TypeError(f"Unsupported MoE dispatch config: {type(config.moe.dispatch).__name__}")
        moe.set_token_dispatcher(LocalTokenDispatcher(moe.experts.num_experts))
        if parallel_dims.ep_enabled:
            for name, weight in list(moe.experts.named_parameters(recurse=False)):
                mine = distribute_tensor(weight.detach(), parallel_dims.get_mesh("ep"), [Shard(0)])
                moe.experts.register_parameter(name, nn.Parameter(mine))
