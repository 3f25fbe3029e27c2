"""Where the time of a training step goes: marks on the stream, and what was computed between one and the next.

The experts of each layer lie between two marks, which autograd meets again in a checkpoint's replay and, the other way
round, in the backward. Marks cost nothing while the timeline is off.
"""

import time
from collections import defaultdict

import torch
from megamoe.layer import is_in_backward


class Clock:
    """Marks on a GPU's current stream; on the CPU, where work is done when a call returns, the time of day."""

    def __init__(self, device):
        self.on_gpu = device.type == "cuda"

    def mark(self):
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark):
        """Until what came before the mark is done."""
        if self.on_gpu:
            mark.synchronize()

    def milliseconds(self, marks):
        """Between each two that follow each other; all are done."""
        pairs = zip(marks, marks[1:])
        if self.on_gpu:
            return [first.elapsed_time(second) for first, second in pairs]
        return [1e3 * (second - first) for first, second in pairs]


class Mark(torch.autograd.Function):
    """x itself. A replay that has begun also comes to the mark, since the mark's backward asks for what it saved."""

    @staticmethod
    def forward(ctx, x, timeline, passed, passed_in_backward):
        ctx.timeline, ctx.passed_in_backward = timeline, passed_in_backward
        timeline.passed(passed, "replay" if is_in_backward() else "forward")
        y = x.view_as(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        ctx.timeline.passed(ctx.passed_in_backward, "backward")
        _ = ctx.saved_tensors
        return gradient, None, None, None


class Timeline:
    def __init__(self, device):
        self.clock, self.on, self.marks = Clock(device), False, []

    def passed(self, part, phase=None):
        """All since the last mark was this part."""
        if self.on:
            self.marks.append((f"{part}, {phase}" if phase else part, self.clock.mark()))

    def marked(self, x, *parts):
        return Mark.apply(x, self, *parts) if self.on else x

    def entered(self, x):
        """x, on its way into experts."""
        return self.marked(x, "dense", "experts")

    def left(self, y):
        """y, on its way out of experts."""
        return self.marked(y, "experts", "dense")

    def of(self, run):
        """Milliseconds by part of what `run` queues, which ends with a mark."""
        self.on, self.marks = True, [("", self.clock.mark())]
        run()
        self.on = False
        names, marks = zip(*self.marks)
        self.clock.wait(marks[-1])
        total = defaultdict(float)
        for name, milliseconds in zip(names[1:], self.clock.milliseconds(marks)):
            total[name] += milliseconds
        return dict(total)
