"""What every process does in test_ranks.py: functions of the rank, run in all processes at once.

A case compares in the process, and returns what the test compares between ranks. EP groups of `world` ranks are made of
neighbours: with four processes and world 2 there are two groups, as in a trainer with data parallelism 2.
"""

import tempfile
from contextlib import contextmanager

import megamoe
import reference
import torch
import torch.distributed as dist
from calls import assert_same_bits, both, forward, gradients, leaves
from megamoe import ops
from megamoe.layer import KeepRule
from model import CALLS, Model, recorded, step
from setting import EXPERTS, INTERMEDIATE, context_options, device_of

_groups = {}


def ep_group(rank, world):
    """This rank's group of `world` neighbours; made once, by all ranks."""
    if world not in _groups:
        for first in range(0, dist.get_world_size(), world):
            group = dist.new_group(range(first, first + world))
            if first <= rank < first + world:
                _groups[world] = group
    return _groups[world]


def context(rank, world, **options):
    return megamoe.Context(ep_group(rank, world), device=device_of(rank), **context_options(**options))


def part(given, tokens, rank, world):
    """What rank `rank` of `world` has of a problem: its tokens, and its experts."""
    first = sum(tokens[:rank])
    mine, experts = slice(first, first + tokens[rank]), slice(rank * EXPERTS // world, (rank + 1) * EXPERTS // world)
    return reference.Problem(given.x[mine], given.ids[mine], given.weights[mine], given.gate[experts],
                             given.up[experts], given.down[experts], given.dy[mine])


def part_of_results(results, tokens, rank, world):
    first = sum(tokens[:rank])
    mine, experts = slice(first, first + tokens[rank]), slice(rank * EXPERTS // world, (rank + 1) * EXPERTS // world)
    return {name: value[mine if name in ("y", "dx", "dweights") else experts] for name, value in results.items()}


def same_bits_as_one_rank(rank, world):
    """Three steps with other tokens and routing each, of ranks that bring different numbers of tokens, one none."""
    with megamoe.Context(device=device_of(rank), **context_options()) as alone, context(rank, world) as group:
        one, layer = alone.layer(intermediate=INTERMEDIATE), group.layer(intermediate=INTERMEDIATE)
        for step, tokens in enumerate(([9] * world, [0] + [11] * (world - 1), [1 + 3 * r for r in range(world)])):
            given = reference.problem(sum(tokens), seed=step, device=device_of(rank))
            if step == 1:
                given.ids.clamp_(max=1)  # every row goes to the first rank
            expected = part_of_results(both(one, given), tokens, group.rank, world)
            assert_same_bits(both(layer, part(given, tokens, group.rank, world)), expected)


def training_options_over_ranks(rank, world):
    """fp32 experts and tokens under autocast, gate frozen, two microbatches of which one has a gradient of stride 0."""
    tokens = [3 + 2 * each for each in range(world)]
    given = reference.problem(sum(tokens), seed=4, device=device_of(rank), dtype=torch.float32)
    given.x, given.dy = given.x.float(), given.dy.float()

    def gradients_of(layer, mine):
        inputs = leaves(mine, frozen=("gate",))
        for turn in range(2):
            with torch.autocast(mine.x.device.type, dtype=torch.bfloat16):
                y = forward(layer, mine, inputs)
            y.backward(mine.dy.bfloat16()) if turn == 0 else y.sum().backward()
        return {"y": y.detach()} | {n: g for n, g in gradients(inputs).items() if n != "dgate"}

    with megamoe.Context(device=device_of(rank), **context_options()) as alone, context(rank, world) as group:
        expected = gradients_of(alone.layer(intermediate=INTERMEDIATE), given)
        results = gradients_of(group.layer(intermediate=INTERMEDIATE), part(given, tokens, group.rank, world))
        assert_same_bits(results, part_of_results(expected, tokens, group.rank, world))


def refusals_reach_every_rank(rank, world):
    """The rank that is wrong says what, the others who refused, and the next call works."""
    with context(rank, world) as group:
        layer = group.layer(intermediate=INTERMEDIATE)
        given = part(reference.problem(4 * world, device=device_of(rank)), [4] * world, group.rank, world)
        expected = both(layer, given)
        wrong = reference.Problem(**{**vars(given), "ids": given.ids.clone()})
        if group.rank == world - 1:
            wrong.ids[1, 0] = EXPERTS
        try:
            both(layer, wrong)
            said = "no error"
        except megamoe.MegaMoEError as error:
            said = f"{type(error).__name__}: {error}"
        assert_same_bits(both(layer, given), expected)
        group.check()
    return said


def idle_ranks_train(rank, world):
    """Steps of SGD in which the last rank receives none, sends none, neither, and nobody does: each step is that of one
    rank with all tokens, and an idle rank's experts have gradients of zero."""
    with megamoe.Context(device=device_of(rank), **context_options()) as alone, context(rank, world) as group:
        one, layer = alone.layer(intermediate=INTERMEDIATE), group.layer(intermediate=INTERMEDIATE)
        last, first_of_last = group.rank == world - 1, EXPERTS - EXPERTS // world
        for step in range(12):
            sends, receives = ((True, False), (False, True), (False, False), (None, False))[step % 4]
            tokens = [0 if sends is None else 4] * (world - 1) + [4 if sends else 0]
            given = reference.problem(sum(tokens), seed=step, device=device_of(rank), top_k=2)
            if not receives:
                given.ids %= first_of_last
            whole, mine = leaves(given), leaves(part(given, tokens, group.rank, world))
            steps = ((one, given, whole), (layer, part(given, tokens, group.rank, world), mine))
            for made, problem, inputs in steps:
                optimizer = torch.optim.SGD([inputs[name] for name in ("gate", "up", "down")], lr=0.5)
                forward(made, problem, inputs).backward(problem.dy)
                optimizer.step()
            own = slice(group.rank * EXPERTS // world, (group.rank + 1) * EXPERTS // world)
            for name in ("gate", "up", "down"):
                assert torch.equal(mine[name], whole[name][own]), (step, name)
                assert not (last and not receives) or mine[name].grad.eq(0).all(), (step, name)
            assert mine["x"].grad.shape == mine["x"].shape
        group.check()


class NoMemory(torch.Tensor):
    """A tensor for which there is no memory in fp32."""

    def float(self):
        raise torch.OutOfMemoryError("no memory for weights")


def no_memory(*_):
    raise torch.OutOfMemoryError("no memory for gradients")


@contextmanager
def new_gradients_of(function):
    usual, ops.new_gradients = ops.new_gradients, function
    try:
        yield
    finally:
        ops.new_gradients = usual


def failures_before_a_call_reach_every_rank(rank, world):
    """One rank can't make its forward, nor its backward, nor the memory for its gradients, has an x of another dtype, and
    no memory to convert its weights; what each rank is told."""
    said = []
    with context(rank, world) as group:
        layer = group.layer(intermediate=INTERMEDIATE)
        given = part(reference.problem(4 * world, device=device_of(rank)), [4] * world, group.rank, world)
        expected = both(layer, given)
        is_wrong = group.rank == world - 1
        elsewhere = given.gate.to("meta") if is_wrong else given.gate
        inputs = (given.x, given.ids, given.weights)

        def told(call):
            try:
                call()
                said.append("no error")
            except (TypeError, ValueError, torch.OutOfMemoryError, megamoe.MegaMoEError) as error:
                said.append(f"{type(error).__name__}: {error}")

        told(lambda: layer.forward(*inputs, elsewhere, given.up, given.down, KeepRule.PLAN))
        _, token = layer.forward(*inputs, given.gate, given.up, given.down, KeepRule.PLAN)
        nothing = (None,) * 5
        told(lambda: layer.backward(given.dy, token, given.x, elsewhere, given.up, given.down, nothing))
        with new_gradients_of(no_memory if is_wrong else ops.new_gradients):
            weights = (given.gate, given.up, given.down)
            told(lambda: torch.ops.megamoe.backward(given.dy, token, given.x, *weights, layer.handle, 2, 31))
        told(lambda: both(layer, reference.Problem(**{**vars(given), "x": given.x.half()}) if is_wrong else given))
        own = given.weights.as_subclass(NoMemory) if is_wrong else given.weights
        told(lambda: megamoe.moe(given.x, given.ids, own, given.gate, given.up, given.down, layer=layer))
        assert_same_bits(both(layer, given), expected)
    return said


def groups_of_others_are_refused(rank):
    group = dist.new_group([0])
    try:
        megamoe.Context(group, device=device_of(rank), **context_options()).close()
    except ValueError as error:
        return str(error)
    return "no error"


def different_maxima_are_refused(rank, world):
    try:
        context(rank, world, max_tokens=32 + rank % world).close()
    except megamoe.MismatchError as error:
        return str(error)
    return "no error"


def a_folder_that_cannot_be_made_is_told(rank, world):
    """By every rank, when rank 0 has nowhere to make it."""
    old, tempfile.tempdir = tempfile.tempdir, "/nowhere"
    try:
        context(rank, world).close()
    except RuntimeError as error:
        return str(error)
    finally:
        tempfile.tempdir = old
    return "no error"


def ends_with_its_process_group(rank):
    group = dist.new_group(range(dist.get_world_size()))
    made = megamoe.Context(group, device=device_of(rank), **context_options())
    layer = made.layer(intermediate=INTERMEDIATE)
    dist.barrier()
    dist.destroy_process_group(group)
    del group
    try:
        made.check()
        return "still open"
    except RuntimeError as error:
        assert layer.handle not in megamoe.layer._layers
        return str(error)


def beside_collectives(rank, world):
    """Steps beside all-gathers of NCCL in another stream, which the ranks begin before or after theirs, in opposite
    order."""
    device, side = device_of(rank), torch.cuda.Stream()
    mine = torch.full((1 << 22,), float(rank), device=device)
    gathered = mine.new_empty(world << 22)
    with context(rank, world, max_tokens=512) as group:
        layer = group.layer(intermediate=INTERMEDIATE)
        given = part(reference.problem(512 * world, device=device), [512] * world, group.rank, world)
        expected = both(layer, given)

        def gather():
            with torch.cuda.stream(side):
                dist.all_gather_into_tensor(gathered, mine, group=ep_group(rank, world))

        gather()  # the first one makes NCCL's communicator, for which the hosts wait for each other
        for turn in range(20):
            torch.cuda.synchronize()
            gathered.fill_(-1)
            torch.cuda.synchronize()
            if (turn + rank) % 2 == 0:
                gather()
            results = both(layer, given)
            if (turn + rank) % 2 == 1:
                gather()
            torch.cuda.synchronize()
            assert_same_bits(results, expected)
            first = rank - group.rank
            assert torch.equal(gathered.view(world, -1)[:, 0].cpu(), torch.arange(first, first + world).float())


def models_over_ranks(rank, world, kind):
    """A checkpointed model as the plain one, with the calls that are due, on ranks whose tokens differ."""
    with context(rank, world) as group:
        layer = group.layer(intermediate=INTERMEDIATE)
        given = reference.problem(5 + 2 * rank, seed=rank, device=device_of(rank))
        model, checkpointed = Model(layer), Model(layer, kind)
        with torch.no_grad():
            for weight, same in zip(model.parameters(), checkpointed.parameters()):
                weight.mul_(1 + rank / 8)
                same.copy_(weight)
        expected = step(model, given.x, given.dy)
        with recorded(layer) as calls:
            assert_same_bits(step(checkpointed, given.x, given.dy), expected)
        assert calls == CALLS[kind]


def compiled_model_over_ranks(rank, world, kind):
    """A compiled model with checkpoints, as the plain one, on ranks whose tokens differ."""
    with context(rank, world) as group:
        layer = group.layer(intermediate=INTERMEDIATE)
        given = reference.problem(5 + 2 * rank, seed=rank, device=device_of(rank))
        model = Model(layer, kind, seed=rank)
        expected = step(model, given.x, given.dy)
        with recorded(layer) as calls:
            results = step(torch.compile(model, fullgraph=True, backend="aot_eager"), given.x, given.dy)
        assert_same_bits({name.removeprefix("_orig_mod."): value for name, value in results.items()}, expected)
        assert calls == CALLS[kind]


def fsdp_over_data_parallel_groups(rank, world):
    """Experts in bf16 from fp32 shards, distributed over the EP group and sharded over the others; dW is a plain sum."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import DTensor, Shard

    replicas = dist.get_world_size() // world
    mesh = init_device_mesh(device_of(rank).type, (replicas, world), mesh_dim_names=("dp", "ep"))
    given = reference.problem(6 * world, seed=rank // world, device=device_of(rank), dtype=torch.float32)
    for name in ("gate", "up", "down"):  # the same experts in every replica
        setattr(given, name, getattr(reference.problem(1, device=device_of(rank), dtype=torch.float32), name))
    with megamoe.Context(mesh["ep"].get_group(), device=device_of(rank), **context_options()) as group:
        layer = group.layer(intermediate=INTERMEDIATE)
        mine = part(given, [6] * world, group.rank, world)
        rounded = reference.Problem(**{name: t.to(torch.bfloat16) if name in ("gate", "up", "down") else t
                                       for name, t in vars(mine).items()})
        expected = both(layer, rounded)
        experts = megamoe.MegaMoE(layer, dtype=torch.float32)
        for name in ("gate", "up", "down"):
            shard = DTensor.from_local(getattr(mine, name), mesh["ep"], [Shard(0)])
            setattr(experts, name, torch.nn.Parameter(shard))
        fully_shard(experts, mesh=mesh["dp"], mp_policy=MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False))
        experts.set_gradient_divide_factor(1.0)
        experts.set_force_sum_reduction_for_comms(True)  # gloo knows no product before a sum
        y = experts(mine.x, mine.ids, mine.weights)
        y.backward(mine.dy)
        assert torch.equal(y, expected["y"])
        for name in ("gate", "up", "down"):
            total = expected[f"d{name}"].float()
            dist.all_reduce(total, group=mesh["dp"].get_group())
            whole = getattr(experts, name).grad.full_tensor()
            own = whole[group.rank * total.shape[0]:(group.rank + 1) * total.shape[0]]
            assert own.dtype == torch.float32 and torch.equal(own, total), name
