"""Runs Megatron-LM's pretrain_gpt.py with its experts on megamoe; in a checkout of Megatron-LM that has megakernel backends.

    torchrun --nproc-per-node 2 megatron_gpt.py --expert-model-parallel-size 2 --num-experts 128 ARGUMENT...

The arguments are those of pretrain_gpt.py. The most tokens of a rank in a forward are its micro batch times its sequence
length: MAX_TOKENS in the environment, by default 8192.
"""

import os
import runpy

from megamoe.plugs import megatron
from megatron.training import arguments

theirs = arguments.core_transformer_config_from_args


def with_megamoe(*given, **named):
    """Megatron's config of the model, with the backend chosen once its own checks are done."""
    config = theirs(*given, **named)
    config.moe_megakernel_backend = megatron.NAME
    return config


if __name__ == "__main__":
    megatron.install(max_tokens=int(os.environ.get("MAX_TOKENS", "8192")))
    arguments.core_transformer_config_from_args = with_megamoe
    runpy.run_path("pretrain_gpt.py", run_name="__main__")
