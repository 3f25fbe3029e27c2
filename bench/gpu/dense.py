"""The layer's products in dense cuBLAS, one weight for all rows that a rank computes: the same FLOPs and shapes."""

import torch


class Dense:
    def __init__(self, data):
        def noise(width):
            return torch.empty(data.rows, width, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
        self.x, self.dy = noise(data.case.hidden), noise(data.case.hidden)
        self.h, self.dgate_up = noise(data.case.intermediate), noise(2 * data.case.intermediate)
        self.w13, self.w2 = data.w13[0], data.w2[0]

    def gate_up(self):
        torch.mm(self.x, self.w13.t())

    def forward(self):
        self.gate_up()
        torch.mm(self.h, self.w2.t())

    def backward(self):
        """With x, gate and up kept."""
        torch.mm(self.dy, self.w2)
        torch.mm(self.dgate_up, self.w13)
        torch.mm(self.dy.t(), self.h)
        torch.mm(self.dgate_up.t(), self.x)

    def backward_redone(self):
        """With gate and up computed again."""
        self.gate_up()
        self.backward()

    def step(self):
        """Two forwards and a backward."""
        self.forward()
        self.forward()
        self.backward()
