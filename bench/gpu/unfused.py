"""The layer over several ranks as a trainer without fused kernels computes it, TorchTitan for one: tokens are sorted by
expert, sent by an all-to-all, brought into the order of the local experts, multiplied by grouped products, and sent
back to be summed. The host reads once how many rows go where, as it must to size the buffers. Autograd makes the
backward."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

import measure


def sum_by_product(returned, order, weights, dtype):
    """Results into order of slots, then a batch of products of one row."""
    slots = torch.empty_like(returned).index_copy_(0, order, returned)
    tokens, top_k = weights.shape
    return torch.bmm(weights[:, None, :], slots.view(tokens, top_k, -1).float())[:, 0].to(dtype)


def sum_by_addition(returned, order, weights, dtype):
    """Weighted results added to their tokens, in any order."""
    tokens, top_k = weights.shape
    weighted = returned.float() * weights.reshape(-1)[order][:, None]
    total = torch.zeros(tokens, returned.shape[1], device=returned.device, dtype=torch.float32)
    return total.index_add_(0, order // top_k, weighted).to(dtype)


SUMS = {"bmm": sum_by_product, "index_add": sum_by_addition}


def faster_sum(rank, x, ids, weights, dy=None):
    """The name of the weighted sum that takes less time on the slower rank; with `dy`, its gradients included."""
    order = torch.argsort(ids.reshape(-1), stable=True)
    returned = x.repeat(ids.shape[1], 1)

    def run(add):
        if dy is None:
            return add(returned, order, weights, x.dtype)
        return Differentiated(lambda rows, by: add(rows, order, by, x.dtype), (returned, weights), dy).both()
    times = {name: rank.most(measure.typical(lambda add=add: run(add))) for name, add in SUMS.items()}
    return min(times, key=times.get)


class Exchange(torch.autograd.Function):
    """Rows to the ranks that they are for; their gradients go the other way."""

    @staticmethod
    def forward(context, rows, sends, receives):
        context.sends, context.receives = sends, receives
        arrived = rows.new_empty(sum(receives), *rows.shape[1:])
        dist.all_to_all_single(arrived, rows, receives, sends)
        return arrived

    @staticmethod
    def backward(context, gradient):
        return Exchange.apply(gradient.contiguous(), context.receives, context.sends), None, None


def exchange(rows, sends, receives):
    return Exchange.apply(rows, sends, receives)


def experts_in_order(rows, w13, w2, ends):
    """SwiGLU of each expert over its rows; weights [El, 2I, H] and [El, H, I]."""
    gate, up = torch._grouped_mm(rows, w13.transpose(1, 2), offs=ends).chunk(2, -1)
    return torch._grouped_mm(F.silu(gate) * up, w2.transpose(1, 2), offs=ends)


def forward(x, ids, weights, w13, w2, add, world):
    """y [T, H] of this rank from x [T, H], ids and weights [T, K], and the weights of its own experts."""
    local = w13.shape[0]
    flat, order = torch.sort(ids.reshape(-1), stable=True)
    edges = torch.searchsorted(flat, torch.arange(local * world + 1, device=x.device))
    sent = edges.diff()  # [W * El] rows for each expert
    received = torch.empty_like(sent)  # [W * El] rows from each rank for each own expert
    dist.all_to_all_single(received, sent)
    sends, receives = torch.stack([sent, received]).view(2, world, local).sum(-1).tolist()

    arrived = exchange(x.index_select(0, order // ids.shape[1]), sends, receives)
    expert = torch.arange(local, device=x.device).repeat(world).repeat_interleave(received, output_size=len(arrived))
    by_expert = torch.argsort(expert, stable=True)
    ends = received.view(world, local).sum(0).cumsum(0).to(torch.int32)
    results = experts_in_order(arrived.index_select(0, by_expert), w13, w2, ends)
    returned = exchange(torch.empty_like(results).index_copy_(0, by_expert, results), receives, sends)
    return add(returned, order, weights, x.dtype)


class Differentiated:
    """A function of tensors and its gradients, by autograd. dy: the gradient of its result."""

    def __init__(self, function, inputs, dy):
        self.function, self.dy, self.kept = function, dy, None
        self.inputs = [tensor.detach().requires_grad_() for tensor in inputs]

    def forward(self):
        with torch.no_grad():
            return self.function(*self.inputs)

    def keep(self):
        """A forward whose operands stay, for any number of backwards."""
        with torch.enable_grad():
            self.kept = self.function(*self.inputs)

    def backward(self):
        """Gradients of the inputs."""
        return torch.autograd.grad(self.kept, self.inputs, self.dy, retain_graph=True)

    def both(self):
        with torch.enable_grad():
            result = self.function(*self.inputs)
        return torch.autograd.grad(result, self.inputs, self.dy)

    def step(self):
        """Two forwards, of which one keeps its operands, and a backward."""
        self.forward()
        return self.both()
