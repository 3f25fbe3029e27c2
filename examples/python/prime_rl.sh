#!/bin/bash
# Runs prime-rl's SFT trainer with its experts on megamoe; in the environment of prime-rl, with two GPUs.
#
#     prime_rl.sh [ARGUMENT...]      arguments are the trainer's, such as --max-steps 4
set -eu
exec torchrun --nproc-per-node 2 -m megamoe.plugs.prime_rl prime_rl.trainer.sft.train \
    @ "$(dirname "$0")/prime_rl.toml" "$@"
