"""One case of the benchmark over several GPUs on one rank: what the rank brings, and layers on it."""

from dataclasses import dataclass

import torch

import routing
from in_step import line_up
from layer import PHASES, TOP_K
from library import Group, Layer

REPORTS = 5  # calls whose phases are read


@dataclass
class Case:
    hidden: int
    intermediate: int
    experts: int
    tokens: int  # of each rank
    routing: str
    world: int  # ranks that share the experts: all of them, or 1: each GPU by itself
    headline: bool = False  # timed in all variants and held against the targets


# ---- Operands


def noise(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


class Data:
    def __init__(self, case, number):
        """Of rank `number`."""
        local, self.case, self.number = case.experts // case.world, case, number
        logits = routing.popularity(case.experts, case.routing, shuffled=True)
        every = [routing.draw(logits, case.tokens, TOP_K, torch.Generator("cuda").manual_seed(50 + rank))
                 for rank in range(case.world)]
        owners = torch.stack(every) // local  # [W, T, K]
        self.slots = torch.stack([(owners == owner).sum((1, 2)) for owner in range(case.world)], 1)  # [from, to]
        self.tokens = torch.stack([(owners == owner).any(2).sum(1) for owner in range(case.world)], 1)
        torch.manual_seed(100 + number)
        self.ids, self.weights = every[number], routing.router_weights(case.tokens, TOP_K)
        self.x = noise(case.tokens, case.hidden)
        self.w13 = noise(local, 2 * case.intermediate, case.hidden) * case.hidden**-0.5
        self.w2 = noise(local, case.hidden, case.intermediate) * case.intermediate**-0.5
        self.dy = noise(case.tokens, case.hidden)
        self.own_logits = logits[number * local:(number + 1) * local]

    @property
    def rows(self):
        """That this rank computes."""
        return int(self.slots[:, self.number].sum())

    def operands(self):
        return {name: getattr(self, name) for name in ("x", "ids", "weights", "w13", "w2", "dy")}

    def all_local(self):
        """Operands of as many rows, all of tokens of this rank: by the same law over its own experts."""
        tokens = max(round(self.rows / TOP_K), 1)
        x, dy = (noise(tokens, self.case.hidden) for _ in range(2))
        return {"x": x, "ids": routing.draw(self.own_logits, tokens, TOP_K),
                "weights": routing.router_weights(tokens, TOP_K), "w13": self.w13, "w2": self.w2, "dy": dy}

    def least_bytes(self, fetched=1, with_result=0):
        """That this rank has to move: `fetched` rows of each token that it wants from others, and a row and
        `with_result` bytes for each result that it owes them."""
        row = 2 * self.case.hidden
        wanted, owed = (int(counts[:, self.number].sum() - counts[self.number, self.number])
                        for counts in (self.tokens, self.slots))
        return {"pulled": fetched * row * wanted, "pushed": (row + with_result) * owed}


# ---- Layers


class Ours:
    """A layer on operands of this rank, with tensors for its results."""

    def __init__(self, layer, operands, results):
        self.tokens, self.layer = operands["x"].shape[0], layer
        self.layer.bind(**operands, **results)

    def forward(self, timed=False):
        self.layer.forward(self.tokens, timed, torch.cuda.current_stream().cuda_stream)

    def backward(self, gradients, accumulate=False, timed=False):
        """Of the last forward. `gradients`: tensors for those of w13 and w2, bf16 or fp32."""
        self.layer.bind(**gradients)
        wide = gradients["dw2"].dtype == torch.float32
        self.layer.backward(self.tokens, wide, accumulate, timed, torch.cuda.current_stream().cuda_stream)

    def report(self, call):
        """Median milliseconds of the phases of `call`, one of the above, and what the last one counted."""
        seconds = []
        for _ in range(REPORTS):
            torch.cuda.synchronize()  # "total" is time of the host
            call(timed=True)
            seconds.append([self.layer.seconds(phase) for phase in PHASES])
        medians = torch.tensor(seconds).median(0).values.tolist()
        counts = {what: self.layer.count(what) for what in ("rows", "padded_rows", "bytes_pulled", "bytes_pushed")}
        return {"milliseconds": {phase: round(1e3 * value, 4) for phase, value in zip(PHASES, medians)}, **counts}


def reports_of(rank, calls):
    """`calls`: by name, one of ours and what of it to call."""
    found = {}
    for name, (ours, call) in calls.items():
        line_up(rank)
        found[name] = ours.report(call)
    line_up(rank)
    return found


@dataclass
class Place:
    """Operands of this rank and the group that holds the experts which they ask for."""

    group: Group
    case: Case
    experts: int
    operands: dict
    capacity: int

    def ours(self, stack, results, keep, grows=False, grouped=False):
        """`stack` ends its layer."""
        made = Layer(self.group, self.case.hidden, self.case.intermediate, self.experts, TOP_K, keep,
                     0 if grows else self.capacity, grouped)
        return Ours(stack.enter_context(made), self.operands, results)


class Setting:
    """A case on this rank: over its ranks, and with as many rows on this rank alone when there are others."""

    def __init__(self, stack, library, rank, case, name):
        """`stack` ends the groups. The ranks agree on the capacity."""
        self.rank, self.case = rank, case
        self.data = Data(case, rank.number if case.world > 1 else 0)
        self.together = Place(
            stack.enter_context(Group(library, case.hidden, case.experts, TOP_K, case.tokens, case.world, name)),
            case, case.experts, self.data.operands(), int(1.05 * rank.most(self.data.rows)))
        self.alone = self.own_place(stack, library) if case.world > 1 else None

    def own_place(self, stack, library):
        operands, experts = self.data.all_local(), self.case.experts // self.case.world
        tokens = len(operands["x"])
        group = stack.enter_context(Group(library, self.case.hidden, experts, TOP_K, tokens))
        return Place(group, self.case, experts, operands, tokens * TOP_K)
