"""What the models of these tests learn: the English of Python's own help topics, which is there wherever Python is."""

import collections
import math
from pydoc_data.topics import topics

import torch

TEXT = "\n\n".join(topics[name] for name in sorted(topics)).encode()


def unigram_entropy():
    """Nats a byte that are left to who knows how often each byte occurs, and nothing else."""
    shares = [count / len(TEXT) for count in collections.Counter(TEXT).values()]
    return -sum(share * math.log(share) for share in shares)


def batches(steps, sequences, length, seed):
    """Random pieces of the text, [sequences, length] a step; bytes are the tokens."""
    random = torch.Generator().manual_seed(seed)
    data = torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).long()
    for _ in range(steps):
        starts = torch.randint(len(data) - length, (sequences,), generator=random)
        yield torch.stack([data[start:start + length] for start in starts])
