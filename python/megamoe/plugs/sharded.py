"""What a training loop does with a model in which the experts alone are DTensors, as `hugging_face.attach` leaves it.

Gradients are averaged and clipped, and weights made whole to be saved. All functions are collective over the ranks of the
experts' mesh; a model without DTensors is one of a single rank.
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from megamoe.functional import local


def mesh_of(model):
    """The one-dimensional mesh of the experts' weights; None when no weight is a DTensor."""
    return next((weight.device_mesh for weight in model.parameters() if isinstance(weight, DTensor)), None)


def gradients_of(model):
    """(gradient, whether it is this rank's share) of each weight that has one."""
    return [(local(weight.grad), isinstance(weight, DTensor)) for weight in model.parameters()
            if weight.grad is not None]


def average_gradients(model):
    """The mean over ranks. Gradients of experts are sums over the tokens of all ranks already, the others are reduced."""
    mesh = mesh_of(model)
    if mesh is None:
        return
    for gradient, shared in gradients_of(model):
        if not shared:
            dist.all_reduce(gradient, group=mesh.get_group())
        gradient.div_(mesh.size())


def clip_grad_norm_(model, max_norm):
    """Scales the gradients so that their joint 2-norm is at most `max_norm`, as torch.nn.utils.clip_grad_norm_ does.

    They have been averaged. Returns the norm before, the same on all ranks.
    """
    mesh, gradients = mesh_of(model), gradients_of(model)
    device = gradients[0][0].device
    squares = torch.zeros(2, dtype=torch.float64, device=device)  # of weights that all ranks hold, and of this rank's
    for gradient, shared in gradients:
        squares[int(shared)] += torch.linalg.vector_norm(gradient, dtype=torch.float32).double().square()
    if mesh is not None:
        dist.all_reduce(squares[1:], group=mesh.get_group())
    norm = squares.sum().sqrt().float()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient, _ in gradients:
        gradient.mul_(scale.to(gradient.dtype))
    return norm


def whole_state_dict(model):
    """The model's state with every weight whole, on the CPU of the mesh's first rank; on the others empty.

    For `model.save_pretrained(folder, state_dict=...)` there, or torch.save. One weight at a time is gathered.
    """
    mesh, state = mesh_of(model), {}
    keeps = mesh is None or mesh.get_local_rank() == 0
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if keeps:
            state[name] = whole.detach().cpu()
    return state
