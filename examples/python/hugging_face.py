"""Trains a small Qwen3-MoE model of Hugging Face Transformers on the bytes of a text, its experts on megamoe.

    python hugging_face.py [--steps N] [TEXT]
    torchrun --nproc-per-node 2 hugging_face.py [--steps N] [TEXT]

With torchrun the ranks share the experts, and each brings its own sequences; all other weights are the same on all
ranks, whose gradients are averaged. On GPUs where there are some, else on the CPU.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from megamoe.plugs import hugging_face, sharded
from torch.distributed.device_mesh import init_device_mesh
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

SEQUENCES, LENGTH = 8, 64


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="?", type=Path, default=Path(__file__).parents[2] / "README.md")
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


def model_of_bytes():
    """About 0.6 million parameters; the same on all ranks."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(vocab_size=256, hidden_size=128, intermediate_size=256, moe_intermediate_size=64,
                            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                            num_experts=8, num_experts_per_tok=2, norm_topk_prob=True)
    return Qwen3MoeForCausalLM(config)


def batches(text, rank):
    """Random pieces of the text, others on each rank."""
    random = torch.Generator().manual_seed(rank)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    while True:
        starts = torch.randint(len(data) - LENGTH, (SEQUENCES,), generator=random)
        yield torch.stack([data[start:start + LENGTH] for start in starts])


def main():
    options = arguments()
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    mesh = init_device_mesh(device, (ranks,)) if ranks > 1 else None

    model = model_of_bytes().to(device)
    hugging_face.attach(model, mesh=mesh, max_tokens=SEQUENCES * LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = batches(options.text.read_bytes(), rank)
    for step in range(1, options.steps + 1):
        ids = next(data).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        sharded.average_gradients(model)
        sharded.clip_grad_norm_(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and (step == 1 or step % 10 == 0):
            print(f"step {step:3d}  loss {loss.item():.3f}")
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
