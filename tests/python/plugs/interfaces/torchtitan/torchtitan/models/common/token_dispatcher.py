"""What the plug meets of torchtitan's dispatchers: rebuilt from the public definition of pytorch/torchtitan 0.3.0,
torchtitan/models/common/token_dispatcher.py. No code of it.
"""

from dataclasses import dataclass

from torchtitan.protocols.module import Configurable


class LocalTokenDispatcher(Configurable):
    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        num_experts: int
        top_k: int

    def __init__(self, config):
        self.num_experts, self.top_k = config.num_experts, config.top_k

    def wire_meshes(self, *, ep_mesh):
        raise AssertionError("the dispatcher of the trainer was connected")


class TorchAOTokenDispatcher(LocalTokenDispatcher):
    @dataclass(kw_only=True, slots=True)
    class Config(LocalTokenDispatcher.Config):
        pad_multiple: int


class MinimalAsyncEPTokenDispatcher(LocalTokenDispatcher):
    @dataclass(kw_only=True, slots=True)
    class Config(LocalTokenDispatcher.Config):
        num_max_tokens_per_rank: int | None = None
