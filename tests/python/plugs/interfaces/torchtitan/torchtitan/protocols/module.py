"""What the plug meets of torchtitan's modules: rebuilt from the public definition of pytorch/torchtitan 0.3.0,
torchtitan/protocols/module.py and config/configurable.py. No code of it.
"""

from dataclasses import dataclass

from torch import nn


class Configurable:
    @dataclass(kw_only=True, slots=True)
    class Config:
        def build(self):
            return self._owner(self)

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "Config" in vars(cls):
            cls.Config._owner = cls


class Module(nn.Module, Configurable):
    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        sharding_config: object = None

    def parallelize(self, parallel_dims):
        for child in self.children():
            child.parallelize(parallel_dims)
