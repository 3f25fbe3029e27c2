"""Trains a Qwen3-MoE model of Hugging Face Transformers and returns its curves.

Weights and AdamW are fp32, forward and backward run under autocast to bf16; the learning rate rises over the first
steps and is constant then; nothing is clipped. All runs of the same sizes begin with the same weights and read the same
batches.
"""

import torch
import torch.distributed as dist
from megamoe.plugs import hugging_face
from megamoe.plugs.sharded import average_gradients
from setting import DEVICE, device_of
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import faults
from runs import OURS
from text import batches

VOCABULARY, HEAD_DIM = 256, 32


def model_of(sizes, experts):
    """The same weights whatever computes the experts; their spread lets experts matter from the first step on."""
    torch.manual_seed(sizes.seed)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=sizes.hidden, intermediate_size=sizes.hidden,
        moe_intermediate_size=sizes.intermediate, num_hidden_layers=sizes.layers, head_dim=HEAD_DIM,
        num_attention_heads=sizes.hidden // HEAD_DIM, num_key_value_heads=sizes.hidden // HEAD_DIM // 2,
        num_experts=sizes.experts, num_experts_per_tok=sizes.top_k, norm_topk_prob=True,
        initializer_range=sizes.hidden ** -0.5, experts_implementation="eager" if experts == OURS else experts)
    return Qwen3MoeForCausalLM(config)


def move_within_bf16(model, seed):
    """Moves each weight at random by at most half a unit in its last place in bf16: as far as rounding to bf16 may."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            half = torch.ldexp(torch.ones_like(weight), torch.frexp(weight).exponent - 9)
            weight.add_(half * (2 * torch.rand(weight.shape, generator=random) - 1))


def take_over(model, sizes, sequences, mesh, device):
    """Our experts in every layer."""
    taken = hugging_face.attach(model, mesh=mesh, max_tokens=sequences * sizes.length, device=device, threads=1,
                                arrive_timeout=60)
    assert len(taken) == sizes.layers


def kind_of(name):
    """The curve that the gradient of a parameter belongs to."""
    return next((f"gradient of {kind}" for kind in ("gate_up_proj", "down_proj", "mlp.gate") if kind in name),
                "gradient of others")


def squares_of(model, ranks):
    """{curve: this rank's part of the squared length of the gradient}."""
    squares = {}
    for name, weight in model.named_parameters():
        shared = hasattr(weight, "to_local")
        gradient = weight.grad.to_local() if shared else weight.grad
        part = gradient.double().square().sum() / (1 if shared else ranks)
        squares[kind_of(name)] = squares.get(kind_of(name), 0) + part
    return squares


def train(run, sizes, rank=0, mesh=None):
    """{curve: a value a step}: the loss over the whole batch, and the length of the gradient of each kind of weights.

    Over a mesh each rank has its share of the sequences and of the experts.
    """
    ranks, mine = (1, 0) if mesh is None else (mesh.size(), mesh.get_local_rank())
    device, sequences = device_of(rank), sizes.sequences // ranks
    model = model_of(sizes, run.experts)
    if run.moved:
        move_within_bf16(model, run.moved)
    model.to(device)
    if run.experts == OURS:
        take_over(model, sizes, sequences, mesh, device)
    faults.plant(run.fault, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=sizes.rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / sizes.rise))
    steps = []
    for batch in batches(run.steps or sizes.steps, sizes.sequences, sizes.length, sizes.seed):
        ids = batch[mine * sequences:(mine + 1) * sequences].to(device)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        average_gradients(model)
        squares = squares_of(model, ranks)
        steps.append(torch.stack([loss.detach().double() / ranks, *squares.values()]))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    values = torch.stack(steps).t()
    if ranks > 1:
        dist.all_reduce(values)
    loss, *lengths = values.cpu()
    return {"loss": loss.tolist()} | {name: length.sqrt().tolist() for name, length in zip(squares, lengths)}
