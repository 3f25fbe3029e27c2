"""The layer over all GPUs of one host, one process a GPU: forward (forwards.py) and backward (backwards.py), each
beside the unfused layer in PyTorch over NCCL and dense cuBLAS of the same FLOPs."""

import contextlib
import datetime
import time
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

import backwards
import forwards
import in_step
import measure
import merged
import merged_backward
import ranks
import tables
from in_step import Effort
from layer import SHAPES, TOKENS, TOP_K
from library import Library
from setting import Case, Setting

EXPERTS = 128
FORWARD, BACKWARD = "forward", "backward"
DIRECTIONS = {FORWARD: forwards.measure, BACKWARD: backwards.measure}

# Seconds. What could not end in time is left out; the cases that matter most come first.
TIME, QUICK_TIME = 270.0, 115.0
LONGEST = {True: 27.0, False: 9.0}  # that a direction of a case is expected to take, by whether it is a headline case
LATE = 60.0  # past the time the ranks are ended


def cases(quick, world):
    found = [Case(*shape, EXPERTS, TOKENS, "uniform", world, headline=True) for shape in SHAPES]
    if quick:
        return found
    for shape in SHAPES:
        found += [Case(*shape, EXPERTS, tokens, "uniform", world) for tokens in (TOKENS // 4, TOKENS // 2)]
        found += [Case(*shape, EXPERTS, TOKENS, "zipf", world), Case(*shape, 16 * world, TOKENS, "uniform", world)]
    return found + [Case(*shape, EXPERTS, TOKENS, "uniform", 1) for shape in SHAPES]


def directions_of(case, only):
    """The forward of a GPU by itself is measured with the layer on one GPU."""
    every = (BACKWARD,) if case.world == 1 else (FORWARD, BACKWARD)
    return [direction for direction in every if only in (None, direction)]


def efforts(rounds, quick, only):
    """By direction: less of what is timed after rest when both are measured."""
    rests = 2 if only and not quick else 1
    return {FORWARD: Effort(rounds, rests, 1, quick), BACKWARD: Effort(rounds, rests, 1 if only else 0, quick)}


def why_not(world):
    """A sentence when the benchmark can't run over so many GPUs."""
    if world < 2:
        return "it needs more than one GPU"
    if world > torch.cuda.device_count():
        return f"{world} ranks are asked for and {torch.cuda.device_count()} GPUs are here"
    if EXPERTS % world != 0 or EXPERTS // world < TOP_K:
        return f"{EXPERTS} experts can't be shared by {world} ranks"
    return None


# ---- A rank's work


@dataclass
class Job:
    """What all ranks are to measure, and until when."""

    cases: list
    only: str | None  # a direction
    efforts: dict  # by direction
    end: float  # by the machine's monotonic clock, which all ranks read

    def time_for(self, rank, case):
        """The ranks agree."""
        return rank.most(time.monotonic()) + LONGEST[case.headline] <= self.end


def measure_case(rank, library, job, case, name):
    """Yields what was measured of each direction and the seconds that it took; None for lack of time."""
    stack, setting = contextlib.ExitStack(), None
    for direction in directions_of(case, job.only):
        if not job.time_for(rank, case):
            yield None
            continue
        began = time.monotonic()
        setting = setting or Setting(stack, library, rank, case, name)
        measured = DIRECTIONS[direction](setting, job.efforts[direction])
        yield {**measured, "seconds": time.monotonic() - began}
    stack.close()


def work(rank, library_path, job):
    """Yields what is to be said of the machine, then what was measured."""
    torch.cuda.set_device(rank.number)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank.number),
                            timeout=datetime.timedelta(seconds=ranks.PATIENCE))
    with torch.no_grad():
        in_step.streams_meet()
        library = Library(library_path)
        yield measure.circumstances()
        for number, case in enumerate(job.cases):
            yield from measure_case(rank, library, job, case, f"case {number}")
            torch.cuda.empty_cache()
    dist.destroy_process_group()


# ---- Records


def begin(about, world, rounds, job):
    method = {**about["method"], "rest_ms": in_step.REST, "rested_calls": in_step.RESTED_TIMED,
              "rests": max(effort.rests for effort in job.efforts.values()),
              "headline_rounds": max(effort.rounds_of(job.cases[0]) for effort in job.efforts.values())}
    return {**about, "method": method, "world": world, "rounds": rounds, "cases": [], "left_out": []}


def with_direction(entry, fields, direction, parts):
    """A case's entry with what was measured of a direction."""
    entry = {**fields, "rows": [part["rows"] for part in parts], **entry}
    if direction == FORWARD:
        return {**entry, **merged.record(fields, parts)}
    return {**entry, BACKWARD: merged_backward.record(fields, parts)}


def title(case):
    return f"{case.hidden}/{case.intermediate}, {case.experts} experts, {case.tokens} tokens a rank, {case.routing}" + (
        ", each GPU by itself" if case.world == 1 else "")


def entries_of(case, job, yielded, left_out, say):
    """Yields the entry of a case, again after each direction."""
    fields, entry = {**asdict(case), "top_k": TOP_K}, {}
    for direction in directions_of(case, job.only):
        what = f"{title(case)}: {direction}"
        say(f"parallel: {what}")
        parts = next(yielded)
        if parts[0] is None:
            left_out.append(what)
            say("left out: there is no time left")
            continue
        entry = with_direction(entry, fields, direction, parts)
        say(f"\n{tables.PARALLEL_CASES[direction](entry)}\n\nin {max(part['seconds'] for part in parts):.1f} s\n")
        yield entry


def measure_all(library_path, world, rounds, quick, only, say):
    """The record, again after each direction of each case. `only`: one direction alone."""
    allowed = QUICK_TIME if quick else TIME
    job = Job(cases(quick, world), only, efforts(rounds, quick, only), time.monotonic() + allowed)
    yielded = ranks.run(work, world, (str(library_path), job), allowed + LATE)
    record = begin(next(yielded)[0], world, rounds, job)
    for case in job.cases:
        before = record["cases"]
        for entry in entries_of(case, job, yielded, record["left_out"], say):
            record["cases"] = [*before, entry]
            yield record
    next(yielded, None)  # the ranks end
    yield record
