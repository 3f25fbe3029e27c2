"""Processes that are ranks of one torch process group and run what tests tell them, all at once.

They are started once and serve all tests. On the CPU they are forked, before this process computes anything: most of a
process's start would be the import of torch. CUDA works in no forked process.
"""

import multiprocessing
import tempfile
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

# Each process would import these in its first call of an op, or of torch.compile. Before the fork they are imported once.
import torch._dynamo
import torch._functorch.compilers
import torch._inductor.codecache
import torch._inductor.pattern_matcher

from setting import DEVICE, device_of, poison_new_memory

CASE_SECONDS = 60


def work(rank, world, meeting, pipe):
    """A rank: runs functions that come through the pipe until None comes."""
    torch.set_num_threads(1)
    poison_new_memory()
    if DEVICE == "cuda":
        torch.cuda.set_device(device_of(rank))
    dist.init_process_group("gloo" if DEVICE == "cpu" else "cpu:gloo,cuda:nccl", init_method=f"file://{meeting}",
                            rank=rank, world_size=world)
    while (case := pipe.recv()) is not None:
        function, arguments = case
        try:
            pipe.send((True, function(rank, *arguments)))
        except Exception:  # whatever a case does wrong is told to the test
            pipe.send((False, traceback.format_exc()))
    dist.destroy_process_group()


class Processes:
    """`run(function, ...)` calls function(rank, ...) in every process and returns the results in rank order."""

    def __init__(self, world, case_seconds=CASE_SECONDS):
        start = multiprocessing.get_context("fork" if DEVICE == "cpu" else "spawn")
        self.folder = tempfile.TemporaryDirectory()
        self.world, self.case_seconds, self.pipes, self.running = world, case_seconds, [], []
        for rank in range(world):
            ours, theirs = start.Pipe()
            process = start.Process(target=work, args=(rank, world, Path(self.folder.name, "meeting"), theirs))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.running.append(process)

    def run(self, function, *arguments):
        for pipe in self.pipes:
            pipe.send((function, arguments))
        answers = [self.answer_of(rank) for rank in range(self.world)]
        failures = [f"rank {rank}:\n{said}" for rank, (good, said) in enumerate(answers) if not good]
        assert not failures, "\n".join(failures)
        return [result for _, result in answers]

    def answer_of(self, rank):
        if not self.pipes[rank].poll(self.case_seconds):
            self.kill()
            raise AssertionError(f"rank {rank} did not answer within {self.case_seconds} s; all ranks were ended")
        try:
            return self.pipes[rank].recv()
        except EOFError:
            return False, f"the process ended with {self.running[rank].exitcode}"

    def kill(self):
        for process in self.running:
            process.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self.running:
            process.join(10)
        self.kill()
        self.folder.cleanup()
