"""Several trainings at a time, one in each process, and one training in all of them."""

import torch.distributed as dist
from setting import DEVICE
from torch.distributed.device_mesh import init_device_mesh

from runs import SIZES
from train import train


def train_mine(rank, runs):
    """A rank's own run, on this rank alone; None where there are fewer runs."""
    return train(runs[rank], SIZES, rank) if rank < len(runs) else None


def train_together(rank, run):
    return train(run, SIZES, rank, init_device_mesh(DEVICE, (dist.get_world_size(),)))


def each(processes, runs):
    """{name: curves} of {name: run}, as many at a time as there are processes."""
    names, found = list(runs), {}
    for first in range(0, len(names), processes.world):
        some = names[first:first + processes.world]
        found |= zip(some, processes.run(train_mine, [runs[name] for name in some]))
    return found


def together(processes, run):
    """The curves of a run over all processes."""
    return processes.run(train_together, run)[0]
