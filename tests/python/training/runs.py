"""Which trainings are compared, and their sizes: small on the CPU, larger on GPUs."""

from dataclasses import dataclass

from setting import DEVICE, RANKS

OURS = "megamoe"
WORLD = 2 if DEVICE == "cpu" else RANKS
SHARED = f"megamoe, {WORLD} ranks"


@dataclass(frozen=True)
class Sizes:
    hidden: int
    intermediate: int
    layers: int
    experts: int
    top_k: int
    sequences: int  # of a step, all ranks together
    length: int
    steps: int
    rise: int  # steps over which the learning rate grows
    rate: float
    part: int  # steps that are compared together
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """The experts, OURS or an experts_implementation of Transformers, and what is done to the run."""

    experts: str
    moved: int = 0  # the seed with which the first weights are moved within bf16
    fault: str = ""
    steps: int = 0  # 0: those of the sizes


SIZES = (Sizes(hidden=64, intermediate=64, layers=2, experts=8, top_k=2, sequences=8, length=64, steps=100, rise=20,
               rate=2e-3, part=25) if DEVICE == "cpu" else
         Sizes(hidden=512, intermediate=256, layers=4, experts=32, top_k=4, sequences=8, length=512, steps=200, rise=40,
               rate=1e-3, part=40))

# Differ in rounding alone: "eager" rounds the operands and results of its products to bf16, "grouped_mm" computes experts
# of fp32 weights in fp32, and what is moved is moved as little as rounding to bf16 may.
STOCK = {"eager": Run("eager"), "grouped_mm": Run("grouped_mm"),
         "grouped_mm, weights moved": Run("grouped_mm", moved=1), "grouped_mm, moved again": Run("grouped_mm", moved=2)}
