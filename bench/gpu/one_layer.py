"""A model of one layer in each variant, before any is timed: their gradients must agree, and the memory that it takes
says how many layers fit."""

import torch

from measure import Wrong, relative_error
from merged_training import SAVED
from trainer import Trainer

BOUND = 3e-2  # between the gradients of two models of one layer: 1e-2 of the experts, amplified by the router's softmax
KEPT_FREE = 0.04  # of a GPU's memory, for what lies scattered
SAVED_STATE = 16 << 20  # bytes, more than what a forward leaves for its backward beside its inputs


def bytes_of(weights):
    return sum(weight.nbytes for weight in weights)


class Memory:
    """Of this rank's GPU; on the CPU nothing is known."""

    def __init__(self, place):
        self.known, self.most_layers = place.device.type == "cuda", place.sizes.most_layers

    def forget_peak(self):
        if self.known:
            torch.cuda.reset_peak_memory_stats()

    def peak(self):
        """Bytes: the most that PyTorch used, and all that others use now."""
        if not self.known:
            return None
        free, total = torch.cuda.mem_get_info()
        return torch.cuda.max_memory_allocated() + (total - free) - torch.cuda.memory_reserved()

    def layers(self, peak, of_no_model, one_more):
        """How many fit, from the peak with one layer, of which some bytes are not the model's, and the bytes of one
        more layer."""
        if not self.known:
            return self.most_layers
        room = (1 - KEPT_FREE) * torch.cuda.mem_get_info()[1] - (peak - of_no_model)
        return max(0, min(self.most_layers, 1 + int(room // one_more)))


def bytes_of_layer(trainer, variant):
    """That one more layer takes: weights, gradients, two moments, and what its checkpoint keeps."""
    sizes = trainer.place.sizes
    hidden = 2 * sizes.tokens * sizes.hidden
    kept = 2 * hidden + 8 * sizes.tokens * sizes.top_k + SAVED_STATE if variant == SAVED else hidden
    return 4 * bytes_of(trainer.model.blocks[0].parameters()) + kept


def check(variant, model, expected):
    """The relative differences of all gradients."""
    found = {name: relative_error(weight.grad, expected[name]) for name, weight in model.named_parameters()}
    for name, value in found.items():
        if not value <= BOUND:
            raise Wrong(f"{variant}: {name}: relative difference {value:.2e} to the gradient of the unfused layer, "
                        f"expected at most {BOUND}")
    return found


def try_variant(place, variant, expected):
    """What one layer says, and the expected gradients, which are those of the first variant."""
    trainer, memory = Trainer(place, variant, 1), Memory(place)
    trainer.gradients()
    found = check(variant, trainer.model, expected) if expected else {}
    expected = expected or {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}
    trainer.update()
    memory.forget_peak()
    trainer.step()
    place.settle()
    fit = memory.layers(memory.peak(), bytes_of(expected.values()), bytes_of_layer(trainer, variant))
    trainer.end()
    return {"differences": found, "fit": fit}, expected
