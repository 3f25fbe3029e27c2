"""The forward over all GPUs of one host, one process a GPU: ours under both capacity policies and with rows kept, ours
with all rows local, the unfused layer in PyTorch over NCCL, and dense cuBLAS of the same FLOPs. Forward only."""

import contextlib
import datetime
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

import in_step
import layer
import measure
import merged
import ranks
import routing
import unfused
from in_step import Variant, line_up
from layer import BOUND, PHASES, TOKENS, TOP_K
from library import KEEP_PLAN, KEEP_ROWS, Group, Layer, Library
from measure import Wrong, relative_error

EXPERTS = 128
LIMIT = 270.0  # seconds for all cases
REPORTS = 5  # calls whose phases are read


@dataclass
class Case:
    hidden: int
    intermediate: int
    experts: int
    tokens: int  # of each rank
    routing: str
    headline: bool = False  # timed after rest more often and in all variants, and held against the targets


def cases(quick, world):
    shapes = [(2048, 768), (4096, 1536)]
    found = [Case(*shape, EXPERTS, TOKENS, "uniform", headline=True) for shape in shapes]
    if quick:
        return found
    for shape in shapes:
        found += [Case(*shape, EXPERTS, tokens, "uniform") for tokens in (TOKENS // 4, TOKENS // 2)]
        found += [Case(*shape, EXPERTS, TOKENS, "zipf"), Case(*shape, 16 * world, TOKENS, "uniform")]
    return found


def why_not(world):
    """A sentence when the benchmark can't run over so many GPUs."""
    if world < 2:
        return "it needs more than one GPU"
    if world > torch.cuda.device_count():
        return f"{world} ranks are asked for and {torch.cuda.device_count()} GPUs are here"
    if EXPERTS % world != 0 or EXPERTS // world < TOP_K:
        return f"{EXPERTS} experts can't be shared by {world} ranks"
    return None


# ---- Data of a rank


class Data:
    def __init__(self, case, rank):
        local, self.case, self.world, self.number = case.experts // rank.world, case, rank.world, rank.number
        logits = routing.popularity(case.experts, case.routing, shuffled=True)
        every = [routing.draw(logits, case.tokens, TOP_K, torch.Generator("cuda").manual_seed(50 + number))
                 for number in range(rank.world)]
        owners = torch.stack(every) // local  # [W, T, K]
        self.slots = torch.stack([(owners == owner).sum((1, 2)) for owner in range(rank.world)], 1)  # [from, to]
        self.tokens = torch.stack([(owners == owner).any(2).sum(1) for owner in range(rank.world)], 1)
        torch.manual_seed(100 + rank.number)
        self.ids, self.weights = every[rank.number], routing.router_weights(case.tokens, TOP_K)
        self.x = torch.randn(case.tokens, case.hidden, device="cuda").bfloat16()
        self.w13 = noise(local, 2 * case.intermediate, case.hidden) * case.hidden**-0.5
        self.w2 = noise(local, case.hidden, case.intermediate) * case.intermediate**-0.5
        self.own_logits = logits[rank.number * local:(rank.number + 1) * local]

    @property
    def rows(self):
        """That this rank computes."""
        return int(self.slots[:, self.number].sum())

    def least_bytes(self):
        """That this rank has to move: tokens that it wants from others, results that it owes them."""
        row = 2 * self.case.hidden
        wanted, owed = (int(counts[:, self.number].sum() - counts[self.number, self.number])
                        for counts in (self.tokens, self.slots))
        return {"pulled": row * wanted, "pushed": row * owed}

    def all_local(self):
        """Operands of as many rows, all of tokens of this rank: by the same law over its own experts."""
        tokens = max(round(self.rows / TOP_K), 1)
        return {"x": torch.randn(tokens, self.case.hidden, device="cuda").bfloat16(),
                "ids": routing.draw(self.own_logits, tokens, TOP_K), "weights": routing.router_weights(tokens, TOP_K),
                "w13": self.w13, "w2": self.w2}


def noise(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


# ---- Variants


class Ours:
    """A layer of a group on the operands of a rank, with an output of its own."""

    def __init__(self, stack, group, case, experts, operands, keep, capacity):
        """`stack` ends it."""
        self.tokens, self.y = operands["x"].shape[0], torch.empty_like(operands["x"])
        self.layer = stack.enter_context(
            Layer(group, case.hidden, case.intermediate, experts, TOP_K, keep, capacity))
        self.layer.bind(**operands, y=self.y)

    def forward(self, timed=False):
        self.layer.forward(self.tokens, timed, torch.cuda.current_stream().cuda_stream)

    def difference(self, name, expected):
        """To the output of the unfused layer, relative."""
        self.y.fill_(float("nan"))
        self.forward()
        found = relative_error(self.y, expected)
        if not found <= BOUND:
            raise Wrong(f"{name}: relative difference {found:.2e} to the unfused layer, expected at most {BOUND}")
        return found

    def report(self):
        """Median milliseconds of the phases, and what the last call counted."""
        seconds = []
        for _ in range(REPORTS):
            torch.cuda.synchronize()  # "total" is time of the host
            self.forward(timed=True)
            seconds.append([self.layer.seconds(phase) for phase in PHASES])
        medians = torch.tensor(seconds).median(0).values.tolist()
        counts = {what: self.layer.count(what) for what in ("rows", "padded_rows", "bytes_pulled", "bytes_pushed")}
        return {"milliseconds": {phase: round(1e3 * value, 4) for phase, value in zip(PHASES, medians)}, **counts}


def make_ours(stack, library, rank, data, name):
    """Those over the ranks and the one on this rank alone, by name. The ranks agree on the capacity."""
    case, world = data.case, rank.world
    operands = {key: getattr(data, key) for key in ("x", "ids", "weights", "w13", "w2")}
    alone = data.all_local()
    together = stack.enter_context(Group(library, case.hidden, case.experts, TOP_K, case.tokens, world, name))
    single = stack.enter_context(Group(library, case.hidden, case.experts // world, TOP_K, len(alone["x"])))
    capacity = int(1.05 * rank.most(data.rows))
    made = {of: Ours(stack, together, case, case.experts, operands, keep, most) for of, keep, most in
            ((merged.FIXED, KEEP_PLAN, capacity), (merged.GROW, KEEP_PLAN, 0), (merged.KEPT, KEEP_ROWS, capacity))}
    made[merged.LOCAL] = Ours(stack, single, case, case.experts // world, alone, KEEP_PLAN, len(alone["x"]) * TOP_K)
    return made, alone


def dense(data):
    """Both products of cuBLAS with one weight for all rows that this rank computes."""
    x, h = (torch.empty(data.rows, width, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
            for width in (data.case.hidden, data.case.intermediate))

    def run():
        torch.mm(x, data.w13[0].t())
        torch.mm(h, data.w2[0].t())
    return run


def check(rank, ours, alone, run_unfused):
    """Largest relative difference of each of ours to the unfused layer. NCCL and ours never run at once."""
    expected = run_unfused()
    expected_alone = layer.unfused(*(alone[key] for key in ("x", "ids", "weights", "w13", "w2")))
    found = {}
    for name, one in ours.items():
        line_up(rank)
        found[name] = one.difference(name, expected_alone if name == merged.LOCAL else expected)
    line_up(rank)
    return found


# ---- A rank's work


def times_of(rank, case, runs, rounds, rests):
    """`runs`: functions by the name of their variant."""
    always = (merged.FIXED, merged.UNFUSED, merged.DENSE)
    variants = [Variant(name, run, case.headline or name in always) for name, run in runs.items()]
    in_step.time_sustained(rank, variants, rounds)
    in_step.time_rested(rank, variants, rests if case.headline else 1)
    return {one.name: {"sustained": vars(one.sustained), "idle": vars(one.idle)} for one in variants}


def reports_of(rank, ours):
    found = {}
    for name, one in ours.items():
        line_up(rank)
        found[name] = one.report()
    line_up(rank)
    return found


def measure_case(rank, library, case, name, rounds, rests):
    data = Data(case, rank)
    sum_name = unfused.faster_sum(rank, data.x, data.ids, data.weights)

    def run_unfused():
        return unfused.forward(data.x, data.ids, data.weights, data.w13, data.w2, unfused.SUMS[sum_name], rank.world)
    # Closed after success alone: freeing can wait for work that never ends, and a rank that fails is to say so at once.
    stack = contextlib.ExitStack()
    ours, alone = make_ours(stack, library, rank, data, name)
    differences = check(rank, ours, alone, run_unfused)
    runs = {merged.DENSE: dense(data), **{of: one.forward for of, one in ours.items()}, merged.UNFUSED: run_unfused}
    times = times_of(rank, case, runs, rounds, rests)
    reports = reports_of(rank, ours)
    stack.close()
    return {"rows": data.rows, "least_bytes": data.least_bytes(), "differences": differences, "times": times,
            "reports": reports, "unfused_sum": sum_name}


def work(rank, library_path, every, rounds, rests):
    """Yields what is to be said of the machine, then what was measured of each case."""
    torch.cuda.set_device(rank.number)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank.number),
                            timeout=datetime.timedelta(seconds=ranks.PATIENCE))
    with torch.no_grad():
        in_step.streams_meet()
        library = Library(library_path)
        yield measure.circumstances()
        for number, case in enumerate(every):
            yield measure_case(rank, library, case, f"case {number}", rounds, rests)
            torch.cuda.empty_cache()
    dist.destroy_process_group()


# ---- Records


def title(case):
    return f"{case.hidden}/{case.intermediate}, {case.experts} experts, {case.tokens} tokens a rank, {case.routing}"


def measure_all(library_path, world, rounds, quick, say):
    """The record, again after each case."""
    every, rests = cases(quick, world), 1 if quick else 2
    yielded = ranks.run(work, world, (str(library_path), every, rounds, rests), LIMIT)
    about = next(yielded)[0]
    method = {**about["method"], "rest_ms": in_step.REST, "rested_calls": in_step.RESTED_TIMED, "rests": rests}
    record = {**about, "method": method, "world": world, "rounds": rounds, "cases": []}
    for case in every:
        say(f"parallel: {title(case)}")
        record["cases"].append(merged.record({**asdict(case), "top_k": TOP_K}, next(yielded)))
        yield record
    next(yielded, None)  # the ranks end
