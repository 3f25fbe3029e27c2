#!/bin/bash
# Runs torchtitan's debug model of Qwen3-MoE with its experts on megamoe; in a checkout of torchtitan, with two GPUs.
#
#     torchtitan.sh [ARGUMENT...]    arguments are torchtitan's, such as --training.steps 100
set -eu
tokens=16384 # of a rank in a step: local batch size times sequence length
exec torchrun --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0 -m torchtitan.train \
    --module qwen3 --config qwen3_moe_debug --parallelism.expert_parallel_degree 2 --training.disable_cuda_graphs \
    --override.imports "megamoe.plugs.torchtitan.routed_experts={\"max_tokens\": $tokens}" "$@"
