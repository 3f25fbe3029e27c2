"""What the plug meets of Megatron Core's megakernels: rebuilt from the public definition of NVIDIA/Megatron-LM's pull
request 6572, megatron/core/transformer/moe/megakernel/backend.py. No code of it.
"""

from abc import ABC, abstractmethod

from torch import nn


class MegakernelBackend(nn.Module, ABC):
    @abstractmethod
    def forward(self, hidden_states, probs, routing_map):
        """The layer's output, from probs and routing_map [T, E]."""
