"""The experts of a rank as a module."""

import torch
from torch import nn

from megamoe.functional import check_layer, moe


class MegaMoE(nn.Module):
    """The weights of this rank's El experts, and the layer over all ranks.

    `layer` is `Context.layer(...)`. Parameters: gate and up [El, I, H], or with `fused` gate_up [El, 2I, H] with gate in
    its first half; down [El, H, I]. `keep` as in `megamoe.moe`.

    Each rank has parameters of its own under the same names: its state_dict() holds its experts alone. They are drawn
    from PyTorch's generator, so ranks that were seeded alike begin with the same experts.
    """

    def __init__(self, layer, *, fused=False, keep="auto", device=None, dtype=torch.bfloat16):
        super().__init__()
        check_layer(layer)
        self.layer, self.keep = layer, keep
        wide, narrow, local = layer.hidden, layer.intermediate, layer.local_experts
        shapes = {"gate_up": (2 * narrow, wide)} if fused else {"gate": (narrow, wide), "up": (narrow, wide)}
        for name, shape in {**shapes, "down": (wide, narrow)}.items():
            weight = torch.empty(local, *shape, device=device or layer.device, dtype=dtype)
            self.register_parameter(name, nn.Parameter(weight))
        self.fused = fused
        self.reset_parameters()

    def reset_parameters(self):
        """Uniform within one over the square root of a product's length, as nn.Linear."""
        for weight in self.parameters():
            bound = weight.shape[-1] ** -0.5
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, x, ids, weights):
        """y like x [..., H], from ids and router weights [..., K]."""
        gate, up = (self.gate_up, None) if self.fused else (self.gate, self.up)
        return moe(x, ids, weights, gate, up, self.down, layer=self.layer, keep=self.keep)

    def extra_repr(self):
        layer = self.layer
        return (f"hidden={layer.hidden}, intermediate={layer.intermediate}, experts={layer.experts}, "
                f"local_experts={layer.local_experts}, top_k={layer.top_k}")
