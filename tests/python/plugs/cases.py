"""What the tests of all plugs do: run one layer, compare it with its formula, and make groups of ranks."""

import pytest
import reference
import torch
import torch.distributed as dist
from calls import assert_same_bits, both
from setting import EXPERTS, INTERMEDIATE, MAX_TOKENS, RANKS, device_of

BOUND = 6e-3  # of a tensor's length, as for the op itself
SET_UP = {"max_tokens": MAX_TOKENS, "threads": 1, "arrive_timeout": 60}

over_two_ranks = pytest.mark.skipif(RANKS < 2, reason="not run: one GPU")


def set_up(rank=0):
    """The options of a set-up that every plug passes on."""
    return SET_UP | {"device": device_of(rank)}


def problem(tokens=24, seed=1, rank=0, **options):
    """A problem all of whose slots are used, as by trainers' routers; some experts are named twice in a token."""
    return reference.problem(tokens, seed, device=device_of(rank), unused=0.0, **options)


def stacked(given):
    """gate and up one after the other, [E, 2I, H]."""
    return torch.cat([given.gate, given.up], dim=1)


def results_of(run, given, weights):
    """y and gradients by name of run(x, ids, scores), whose weights are those of `weights`, {name: parameter}."""
    x, scores = (each.detach().clone().requires_grad_() for each in (given.x, given.weights))
    for parameter in weights.values():
        parameter.grad = None
    y = run(x, given.ids, scores)
    y.backward(given.dy.view_as(y))
    return {"y": y.detach().view_as(given.x), "dx": x.grad, "dweights": scores.grad} | {
        f"d{name}": parameter.grad for name, parameter in weights.items()}


def split(results):
    """Results with dgate and dup of their own instead of those of the stack."""
    dgate, dup = results.pop("dgate_up").chunk(2, dim=1)
    return results | {"dgate": dgate, "dup": dup}


def assert_near(results, exact, bound=BOUND):
    for name, value in exact.items():
        assert reference.distance(results[name], value) < bound, (name, reference.distance(results[name], value))


def assert_is_formula(results, given, **options):
    assert_near(results, reference.expected(given, **options))


def assert_is_op(results, given, context):
    """That results are those of the op called directly, bit by bit: nothing is rounded on the way to it or back."""
    assert_is_formula(results, given)
    assert_same_bits(results, both(context.layer(intermediate=INTERMEDIATE), given))


def local(tensor):
    """This rank's part of a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def assert_part_is(mine, whole, rank, world, tokens):
    """That a rank's results, of `tokens` tokens and its own experts, are its part of those of one rank, bit by bit."""
    share = EXPERTS // world
    rows = {name: slice(rank * tokens, (rank + 1) * tokens) for name in ("y", "dx", "dweights")}
    own = slice(rank * share, (rank + 1) * share)
    assert_same_bits({name: local(value) for name, value in mine.items()},
                     {name: value[rows.get(name, own)] for name, value in whole.items()})


def part_of(given, rank, tokens):
    """The tokens of a rank of a problem, and all its experts."""
    rows = slice(rank * tokens, (rank + 1) * tokens)
    return reference.Problem(given.x[rows], given.ids[rows], given.weights[rows], given.gate, given.up, given.down,
                             given.dy[rows])


def mesh_of(world):
    """A mesh of all processes whose dimension "ep" has `world` ranks, neighbours."""
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh(device_of().type, (dist.get_world_size() // world, world), mesh_dim_names=("dp", "ep"))


class ParallelDims:
    """What trainers call an object that knows the meshes; of those only "ep" is asked for."""

    def __init__(self, mesh=None):
        self.mesh, self.ep_enabled, self.ep = mesh, mesh is not None, 1 if mesh is None else mesh.size()

    def get_mesh(self, name):
        assert name == "ep"
        return self.mesh

    def get_optional_mesh(self, name):
        return self.get_mesh(name)
