"""A training step of Qwen3-30B-A3B with as many layers as fit, its experts shared by all GPUs: the package beside the
unfused layer in PyTorch over NCCL, in the same model, one after the other.

Before, a model of one layer is stepped with each (one_layer.py). Times are those of whole steps, and in further steps
of their parts (timeline.py).
"""

import datetime
import math
import os
import platform
import statistics
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend

import in_step
import measure
import merged_training
import qwen3
import ranks
import tables_training
import unfused
from measure import Wrong
from merged_training import VARIANTS
from one_layer import Memory, try_variant
from trainer import Trainer, make_room

TIMED_SECONDS = 16.0  # that timed steps of a variant may take
FEWEST, MOST, TRACED = 3, 8, 2  # steps
TIME = 190.0  # seconds after which the ranks are ended

KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


@dataclass
class Job:
    sizes: qwen3.Sizes
    layers: int  # 0: as many as fit
    on_gpu: bool


def why_not(world, on_gpu):
    """A sentence when the benchmark can't run with so many ranks."""
    if on_gpu and world > torch.cuda.device_count():
        return f"{world} ranks are asked for and {torch.cuda.device_count()} GPUs are here"
    if qwen3.TRUE.experts % world != 0:
        return f"{qwen3.TRUE.experts} experts can't be shared by {world} ranks"
    return None


# ---- A rank, and what it chooses once


class Place:
    """This rank, the model's sizes, and the faster of two ways to attend and of two for the sum of stock's experts, of
    which one rank alone has one."""

    def __init__(self, rank, job):
        self.rank, self.sizes = rank, job.sizes
        self.device = torch.device("cuda", rank.number) if job.on_gpu else torch.device("cpu")
        self.kernel_name, self.sum_name = "any", "bmm" if rank.world > 1 else "index_add"
        if job.on_gpu:
            self.kernel_name = faster_attention(rank, job.sizes, self.device)
            if rank.world > 1:
                self.sum_name = faster_sum(rank, job.sizes, self.device)
            torch.cuda.empty_cache()
        self.kernel = KERNELS.get(self.kernel_name)

    def settle(self):
        """No work is left on any GPU, and all ranks are here."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.rank.meet()


def faster_attention(rank, sizes, device):
    """The name of the kernel that takes less time, forward and backward."""
    q, k, v = (torch.randn(1, heads, sizes.tokens, sizes.head_dim, device=device, dtype=torch.bfloat16).requires_grad_()
               for heads in (sizes.heads, sizes.kv_heads, sizes.kv_heads))

    def milliseconds(kernel):
        try:
            return measure.typical(lambda: torch.autograd.grad(qwen3.attend(q, k, v, kernel), (q, k, v), q))
        except RuntimeError:  # this PyTorch has no such kernel for these operands
            return math.inf
    times = {name: rank.most(milliseconds(kernel)) for name, kernel in KERNELS.items()}
    return min(times, key=times.get)


def faster_sum(rank, sizes, device):
    x, dy = (torch.randn(sizes.tokens, sizes.hidden, device=device, dtype=torch.bfloat16) for _ in range(2))
    ids = torch.randint(sizes.experts, (sizes.tokens, sizes.top_k), device=device)
    return unfused.faster_sum(rank, x, ids, torch.rand(ids.shape, device=device), dy)


# ---- All layers: time


def steps_in(milliseconds):
    return max(FEWEST, min(MOST, int(1e3 * TIMED_SECONDS / milliseconds)))


def times_of(trainer, steps):
    """Milliseconds of each step on this rank, clock and power while they run."""
    clock, marks = trainer.timeline.clock, []
    trainer.place.settle()
    marks.append(clock.mark())
    for _ in range(steps):
        trainer.step()
        marks.append(clock.mark())
    clock.wait(marks[len(marks) // 2])
    state = measure.clock_and_power() if clock.on_gpu else {"mhz": None, "watts": None}
    clock.wait(marks[-1])
    return clock.milliseconds(marks), state


def measure_variant(place, variant, layers, steps):
    """`steps` that are timed, None for as many as there is time for; all variants make the same number."""
    began, memory = time.monotonic(), Memory(place)
    trainer = Trainer(place, variant, layers)
    memory.forget_peak()
    trainer.step()
    second = place.rank.most(times_of(trainer, 1)[0][0])
    steps = steps or steps_in(second)
    milliseconds, state = times_of(trainer, steps)
    peak, parts = memory.peak(), []
    for _ in range(TRACED):
        place.settle()
        parts.append(trainer.timeline.of(trainer.step))
    trainer.end()
    return {"milliseconds": milliseconds, "rounds": [{"milliseconds": statistics.median(milliseconds), **state}],
            "parts": parts, "peak_bytes": peak, "loss": float(trainer.loss), "steps": trainer.number,
            "seconds": time.monotonic() - began}


# ---- All ranks


def machine():
    """Of a run on the CPU."""
    return {"gpu": f"no GPU, {platform.machine()}", "driver": None, "torch": torch.__version__}


def join(rank, on_gpu):
    if on_gpu:
        torch.cuda.set_device(rank.number)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo",
                            timeout=datetime.timedelta(seconds=ranks.PATIENCE))
    if on_gpu:
        in_step.streams_meet()


def work(rank, job):
    """Yields what is to be said of the machine, of one layer in each variant, then how many layers there are, and what
    was measured of each variant with them."""
    join(rank, job.on_gpu)
    place, expected, fits, steps = Place(rank, job), None, [], None
    about = measure.circumstances() if job.on_gpu else measure.circumstances(machine)
    yield {**about, "attention": place.kernel_name, "unfused_sum": place.sum_name}
    for variant in VARIANTS:
        tried, expected = try_variant(place, variant, expected)
        make_room()
        fits.append(tried["fit"])
        yield tried
    expected = None
    make_room()
    layers = job.layers or -int(rank.most(-min(fits)))
    if layers < 1:
        raise Wrong("not even one layer fits")
    yield layers
    for variant in VARIANTS:
        measured = measure_variant(place, variant, layers, steps)
        make_room()
        steps = len(measured["milliseconds"])
        yield measured
    dist.destroy_process_group()


def scattered_less():
    """Allocations of the ranks, of a different size in each layer, share pages of virtual memory."""
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def measure_all(world, layers, tiny, say):
    """The record. `layers`: 0 for as many as fit. `tiny`: a small model, on the CPU."""
    job = Job(qwen3.TINY if tiny else qwen3.TRUE, layers, on_gpu=not tiny)
    if job.on_gpu:
        scattered_less()
    say(f"training: {world} ranks start")
    yielded = ranks.run(work, world, (job,), TIME)
    about = next(yielded)[0]
    say(f"attention: {about['attention']}; sum of the stock experts: {about['unfused_sum']}")
    tried = {}
    for variant in VARIANTS:
        tried[variant] = next(yielded)
        difference, fit = merged_training.largest_difference(tried[variant]), merged_training.fit(tried[variant])
        say(f"one layer, {variant}: largest relative difference of a gradient to stock {difference:.1e}; "
            f"{fit} layers fit")
    layers, parts = next(yielded)[0], {}
    for variant in VARIANTS:
        say(f"{layers} layers, {variant}")
        parts[variant] = next(yielded)
        say(tables_training.line(job.sizes.tokens, parts[variant]))
    next(yielded, None)  # the ranks end
    return merged_training.record(about, job.sizes, world, layers, tried, parts)
