"""The benchmark of a training step: its model is Qwen3-MoE, and a tiny run on the CPU measures what it promises."""

import json
import multiprocessing
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/gpu"))

import measure  # noqa: E402
import merged_training as names  # noqa: E402
import one_layer  # noqa: E402
import qwen3  # noqa: E402
import ranks  # noqa: E402
import tables_training  # noqa: E402
import trainer  # noqa: E402
import training  # noqa: E402
from timeline import Timeline  # noqa: E402

CPU = torch.device("cpu")
FP32 = {"device": CPU, "dtype": torch.float32}


# ---- The model


def transformers_layer(sizes):
    """A decoder layer of Transformers with random weights, and cos and sin for it."""
    modeling = pytest.importorskip("transformers.models.qwen3_moe.modeling_qwen3_moe")
    from transformers import Qwen3MoeConfig
    config = Qwen3MoeConfig(
        hidden_size=sizes.hidden, num_attention_heads=sizes.heads, num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head_dim, num_experts=sizes.experts, num_experts_per_tok=sizes.top_k, norm_topk_prob=True,
        moe_intermediate_size=sizes.intermediate, attn_implementation="sdpa", experts_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": sizes.rope_base})
    layer = modeling.Qwen3MoeDecoderLayer(config, 0)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(1 + 0.1 * torch.randn(weight.shape, generator=random) if weight.dim() == 1 else
                         torch.randn(weight.shape, generator=random) * weight.shape[-1] ** -0.5)
    positions = torch.arange(sizes.tokens)[None]
    return layer, modeling.Qwen3MoeRotaryEmbedding(config)(torch.zeros(1), positions)


def test_a_layer_is_that_of_transformers():
    sizes = qwen3.TINY
    theirs, position_embeddings = transformers_layer(sizes)
    ours = qwen3.Block(sizes, None, theirs.mlp.experts, Timeline(CPU), FP32)
    attention, own = theirs.self_attn, ours.attention
    pairs = [(ours.attention_norm, theirs.input_layernorm), (ours.experts_norm, theirs.post_attention_layernorm),
             (ours.router, theirs.mlp.gate), (own.q, attention.q_proj), (own.k, attention.k_proj),
             (own.v, attention.v_proj), (own.o, attention.o_proj), (own.q_norm, attention.q_norm),
             (own.k_norm, attention.k_norm)]
    for mine, their in pairs:
        mine.weight.data.copy_(their.weight.data)
    x, dy = torch.randn(2, sizes.tokens, sizes.hidden, generator=torch.Generator().manual_seed(1))
    x = x.requires_grad_()
    expected = theirs(x[None], position_embeddings=position_embeddings)[0]
    y = ours(x, qwen3.rotation_of(sizes, **FP32))
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    theirs_all = torch.autograd.grad(expected, [x, *(their.weight for _, their in pairs)], dy)
    ours_all = torch.autograd.grad(y, [x, *(mine.weight for mine, _ in pairs)], dy)
    for mine, their in zip(ours_all, theirs_all):
        assert measure.relative_error(mine, their) < 1e-5


def plain_model(sizes):
    """On one rank, without checkpoints, with stock experts."""
    made = qwen3.Model(sizes, 2, None, lambda: trainer.Stock(sizes, 1, None, CPU),
                       lambda block, *arguments: block(*arguments), Timeline(CPU), CPU)
    made.reset(0)
    return made


def test_chunks_of_logits_make_the_loss_of_all():
    sizes = qwen3.TINY
    model, tokens = plain_model(sizes), torch.randint(sizes.vocabulary, (sizes.tokens + 1,),
                                                      generator=torch.Generator().manual_seed(2))
    loss = model.backward(tokens, 0.5 / sizes.tokens)
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    model.zero_grad()
    x = model.embedding(tokens[:-1])
    for block in model.blocks:
        x = block(x, model.rotation)
    expected = 0.5 * F.cross_entropy(model.head(model.norm(x)).float(), tokens[1:])
    expected.backward()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=0)
    for name, weight in model.named_parameters():
        assert measure.relative_error(gradients[name], weight.grad) < 1e-2, name


# ---- The benchmark


def test_as_many_layers_as_fit(monkeypatch):
    """Of 100 bytes 96 may be used. PyTorch holds 30 and has used 45 at most; others hold 20."""
    for name, value in {"mem_get_info": (50, 100), "memory_reserved": 30, "max_memory_allocated": 45}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    place = SimpleNamespace(device=torch.device("cuda"), sizes=qwen3.TRUE)
    memory = one_layer.Memory(place)
    assert memory.peak() == 45 + 20
    assert memory.layers(65, 10, 8) == 1 + 5  # 96 - 55 = 41
    assert memory.layers(65, 10, 0.1) == 48 and memory.layers(200, 0, 8) == 0

def check_record(record, world):
    (case,) = record["cases"]
    assert record["world"] == world and case["layers"] == qwen3.TINY.most_layers and case["tokens"] == qwen3.TINY.tokens
    assert case["differences"]["losses_agree"]
    for value in case["differences"]["gradients_of_one_layer"].values():
        assert 1e-4 < value <= one_layer.BOUND
    steps = {variant["steps"] for variant in case["variants"].values()}
    assert len(steps) == 1 and case["variants"].keys() == set(names.VARIANTS)
    for variant in case["variants"].values():
        parts = {"experts, forward", "experts, replay", "experts, backward", "dense, forward", "dense, replay",
                 "dense, backward", "loss and head", "optimizer"} | ({"all-reduce"} if world > 1 else set())
        assert variant["parts"].keys() == parts and all(value > 0 for value in variant["parts"].values())
    assert json.loads(json.dumps(record)) == record
    assert len(tables_training.short(record).splitlines()) == 5
    assert tables_training.verdict(record).count("relative difference") == 2
    assert "MHz not read" in tables_training.circumstances(record)


def alone():
    """What a benchmark of one rank, in this process, yields."""
    os.environ |= ranks.environment_of(0, 1, ranks.free_port())
    rank = ranks.Rank(0, 1, multiprocessing.Barrier(1), multiprocessing.Array("d", 1, lock=False))
    try:
        yield from training.work(rank, training.Job(qwen3.TINY, 0, on_gpu=False))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def test_one_rank():
    yielded = [[value] for value in alone()]
    (about,), tried, (layers,), parts = yielded[0], yielded[1:4], yielded[4], yielded[5:]
    check_record(names.record(about, qwen3.TINY, 1, layers, dict(zip(names.VARIANTS, tried)),
                              dict(zip(names.VARIANTS, parts))), 1)


def test_two_ranks():
    said = []
    check_record(training.measure_all(2, 0, True, said.append), 2)
    assert any("2 layers, ours, op saved" in line for line in said)


@pytest.mark.parametrize("wrong", [lambda x, ids, weights: (x, ids.flip(0), weights),
                                   lambda x, ids, weights: (x, ids, weights * 1.05)])
def test_experts_that_differ_are_found(monkeypatch, wrong):
    right = trainer.Stock.forward
    monkeypatch.setattr(trainer.Stock, "forward", lambda self, *arguments: right(self, *wrong(*arguments)))
    with pytest.raises(measure.Wrong, match="to the gradient of the unfused layer"):
        list(alone())


def test_a_loss_that_differs_is_found():
    def ranks_of(loss):
        own = {"milliseconds": [2.0, 2.0, 2.0], "rounds": [], "parts": [{"optimizer": 1.0}], "peak_bytes": None,
               "loss": loss, "steps": 5, "seconds": 1.0}
        return [own, own]
    tried = {name: [{"differences": {}, "fit": 2}] for name in names.VARIANTS}
    for loss, agree in ((3.0005, True), (3.01, False), (float("nan"), False)):
        parts = {name: ranks_of(loss if name == names.OURS else 3.0) for name in names.VARIANTS}
        record = names.record({}, replace(qwen3.TINY), 2, 2, tried, parts)
        assert record["cases"][0]["differences"]["losses_agree"] is agree
