"""What the plug meets of torchtitan's overrides: rebuilt from the public definition of pytorch/torchtitan 0.3.0,
torchtitan/config/override.py. No code of it.
"""

import importlib
from dataclasses import dataclass, fields

_registered = {}


@dataclass
class OverrideConfig:
    imports: list


def override(*, target, description=""):
    def register(factory):
        _registered[f"{factory.__module__}.{factory.__name__}"] = (target, factory)
        return factory

    return register


def derive(source, target_cls, **deltas):
    shared = {field.name for field in fields(source)} & {field.name for field in fields(target_cls)}
    return target_cls(**{name: getattr(source, name) for name in shared} | deltas)


def apply_overrides(config, root):
    """Replaces the fields of `root` that are of a target's class."""
    replaced = []
    for name, options in config.imports:
        importlib.import_module(name.rpartition(".")[0])
        target, factory = _registered[name]
        for field in fields(root):
            if isinstance(getattr(root, field.name), target):
                setattr(root, field.name, factory(getattr(root, field.name), **options))
                replaced.append(field.name)
    return replaced
