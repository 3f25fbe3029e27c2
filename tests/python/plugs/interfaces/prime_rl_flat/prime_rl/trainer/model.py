"""What the plug meets of prime-rl's set-up: rebuilt from the public definition of PrimeIntellect-ai/prime-rl at 559b44772
(v0.8.1.dev67), src/prime_rl/trainer/model.py and trainer/distributed/expert_parallel.py. No code of it.
"""

from prime_rl.trainer.models.layers.moe import MoE
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor


def configure_moe_ep_backend(model, config):
    for moe in (module for module in model.modules() if isinstance(module, MoE)):
        moe.set_ep_comm_backend(config.ep_comm_backend)


def apply_ep(model, config, parallel_dims):
    """Any backend but "torch": the experts are sharded over EP ranks, and nothing is hooked to them."""
    assert config.ep_comm_backend != "torch"
    mesh = parallel_dims.get_mesh("ep")
    for moe in (module for module in model.modules() if isinstance(module, MoE)):
        for name, weight in list(moe.experts.named_parameters(recurse=False)):
            moe.experts.register_parameter(name, nn.Parameter(distribute_tensor(weight.detach(), mesh, [Shard(0)])))
        moe.experts._ep_group = mesh.get_group()


def setup_model(model, config, parallel_dims):
    configure_moe_ep_backend(model, config)
    if config.ep > 1:
        apply_ep(model, config, parallel_dims)
    return model
