"""One process a rank on this host: starts them, passes on what they yield, and ends all of them when one fails.

A rank's work is a generator function of a module, `work(rank, *arguments)`. It finds RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, as torchrun sets them.
"""

import ctypes
import multiprocessing
import os
import signal
import socket
import threading
import time
import traceback
from multiprocessing.connection import wait

PATIENCE = 90.0  # seconds that a rank waits for the others
GRACE = 1.0  # seconds for other ranks to say what they saw of a failure
LEAVING = 20.0  # seconds for a rank to end by itself after its last value


class Failed(Exception):
    """What the ranks said that failed."""


class Rank:
    """What a rank knows of the others."""

    def __init__(self, number, world, gate, numbers):
        self.number, self.world, self.gate, self.numbers = number, world, gate, numbers

    def meet(self):
        """Returns once all ranks have come here."""
        try:
            self.gate.wait(PATIENCE)
        except threading.BrokenBarrierError:
            raise Failed(f"not all ranks met within {PATIENCE:.0f} s") from None

    def most(self, value):
        """The largest of the values that the ranks bring."""
        self.numbers[self.number] = value
        self.meet()
        found = max(self.numbers)
        self.meet()
        return found


# ---- In a rank's process


def end_with_parent():
    """Whatever ends the parent ends this process."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def serve(rank, environment, pipe, work, arguments):
    """What a rank's process runs."""
    end_with_parent()
    os.environ.update(environment)
    try:
        for value in work(rank, *arguments):
            pipe.send(("value", value))
        pipe.send(("end", None))
    except BaseException as error:
        traceback.print_exc()
        pipe.send(("failed", "".join(traceback.format_exception_only(error)).strip()))
        raise SystemExit(1) from None


# ---- In the parent


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def environment_of(number, world, port):
    here, everywhere = str(number), str(world)
    return {"RANK": here, "LOCAL_RANK": here, "WORLD_SIZE": everywhere, "LOCAL_WORLD_SIZE": everywhere,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def how_it_ended(process):
    process.join(GRACE)
    code = process.exitcode
    if code is None:
        return "does not end"
    return f"ended by signal {-code}" if code < 0 else f"ended with status {code}"


class Crew:
    def __init__(self, work, world, arguments, limit):
        context = multiprocessing.get_context("spawn")  # CUDA does not outlive a fork
        # Kept here: what processes share is gone with the last reference in the parent.
        self.gate, self.numbers = context.Barrier(world), context.Array("d", world, lock=False)
        port = free_port()
        self.limit, self.deadline = limit, time.monotonic() + limit
        self.pipes, self.processes = [], []
        try:
            for number in range(world):
                own, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=serve, name=f"rank {number}",
                    args=(Rank(number, world, self.gate, self.numbers), environment_of(number, world, port), theirs,
                          work, arguments))
                process.start()
                theirs.close()
                self.pipes.append(own)
                self.processes.append(process)
        except BaseException:
            self.end()
            raise

    def heard(self, number):
        """The next message of a rank that has one, or that is gone."""
        try:
            return self.pipes[number].recv()
        except EOFError:
            return "failed", how_it_ended(self.processes[number])

    def reasons(self, first, others):
        """What failed ranks say, in the order heard: one's failure is often the cause of another's."""
        said, silent, end = dict(first), set(others), time.monotonic() + GRACE
        while silent and time.monotonic() < end:
            for pipe in wait([self.pipes[number] for number in silent], max(end - time.monotonic(), 0)):
                number = self.pipes.index(pipe)
                kind, value = self.heard(number)
                if kind != "value":
                    silent.remove(number)
                if kind == "failed":
                    said[number] = value
        return Failed("; ".join(f"rank {number}: {sentence}" for number, sentence in said.items()))

    def next_values(self):
        """One value of each rank; None when they have no more."""
        messages, missing = {}, set(range(len(self.pipes)))
        while missing:
            ready = wait([self.pipes[number] for number in missing], max(self.deadline - time.monotonic(), 0))
            if not ready:
                names = ", ".join(map(str, sorted(missing)))
                raise Failed(f"the ranks took more than {self.limit:.0f} s; no word from rank {names}")
            for pipe in ready:
                number = self.pipes.index(pipe)
                missing.remove(number)
                kind, value = messages[number] = self.heard(number)
                if kind == "failed":
                    raise self.reasons({number: value}, missing)
        kinds = {kind for kind, _ in messages.values()}
        if len(kinds) > 1:
            raise Failed("some ranks yield another value and some have none")
        return None if "end" in kinds else [messages[number][1] for number in range(len(self.pipes))]

    def leave(self):
        """After the last value: ranks end by themselves."""
        end = time.monotonic() + LEAVING
        for number, process in enumerate(self.processes):
            process.join(max(end - time.monotonic(), 0))
            if process.exitcode != 0:
                raise Failed(f"after its work rank {number} {how_it_ended(process)}")

    def end(self):
        """No process is left."""
        for stop in (multiprocessing.process.BaseProcess.terminate, multiprocessing.process.BaseProcess.kill):
            for process in self.processes:
                if process.is_alive():
                    stop(process)
            for process in self.processes:
                process.join(3)


def run(work, world, arguments, limit):
    """Yields what the ranks yield, a list of one value a rank at a time. Failed when one fails, or when all together
    take more than `limit` seconds; no process is left then."""
    crew = Crew(work, world, arguments, limit)
    try:
        while (values := crew.next_values()) is not None:
            yield values
        crew.leave()
    finally:
        crew.end()
