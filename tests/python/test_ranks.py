"""Several processes: the same bits as one rank, refusals, disagreement, and the end of a context."""

import pytest
import rank_cases
from model import CHECKPOINTS
from setting import DEVICE, RANKS

WORLDS = [world for world in (2, 4) if world <= RANKS]
pytestmark = pytest.mark.skipif(not WORLDS, reason="needs two ranks")


@pytest.mark.parametrize("world", WORLDS)
def test_same_bits_as_one_rank(processes, world):
    processes.run(rank_cases.same_bits_as_one_rank, world)


@pytest.mark.parametrize("world", WORLDS)
def test_idle_ranks_train(processes, world):
    processes.run(rank_cases.idle_ranks_train, world)


@pytest.mark.parametrize("world", WORLDS)
def test_training_options_over_ranks(processes, world):
    processes.run(rank_cases.training_options_over_ranks, world)


@pytest.mark.parametrize("world", WORLDS)
def test_refusals_reach_every_rank(processes, world):
    for rank, said in enumerate(processes.run(rank_cases.refusals_reach_every_rank, world)):
        reason = "ids at token 1, slot 0 is 8, expected -1 or 0 .. 7"
        if rank % world == world - 1:
            assert said == f"InvalidArgumentError: {reason}"
        else:
            assert said.startswith("RefusedError: ") and f"rank {world - 1}" in said and reason in said


def test_failures_before_a_call_reach_every_rank(processes):
    elsewhere, no_memory = "ValueError: gate is on meta, expected ", "OutOfMemoryError: no memory for gradients"
    dtype, no_conversion = "TypeError: x is torch.float16, expected ", "OutOfMemoryError: no memory for weights"
    for rank, told in enumerate(processes.run(rank_cases.failures_before_a_call_reach_every_rank, 2)):
        for said, reason in zip(told, (elsewhere, elsewhere, no_memory, dtype, no_conversion), strict=True):
            assert said.startswith(reason) if rank % 2 == 1 else said.startswith("RefusedError: rank 1 refused call")
            assert reason in said


def test_groups_of_others_are_refused(processes):
    first, *others = processes.run(rank_cases.groups_of_others_are_refused)
    assert first == "no error"
    assert set(others) == {"process_group is one that this rank is not in, expected one of its own"}


def test_different_maxima_are_refused(processes):
    for said in processes.run(rank_cases.different_maxima_are_refused, WORLDS[0]):
        assert "max_tokens" in said and "32" in said and "33" in said


def test_a_folder_that_cannot_be_made_is_told(processes):
    for said in processes.run(rank_cases.a_folder_that_cannot_be_made_is_told, WORLDS[0]):
        assert said.startswith("rank 0 can't make a folder to meet in: ") and "/nowhere" in said


def test_ends_with_its_process_group(processes):
    assert set(processes.run(rank_cases.ends_with_its_process_group)) == {"the context is closed"}


@pytest.mark.skipif(DEVICE == "cpu", reason="not run: NCCL needs GPUs")
@pytest.mark.parametrize("world", WORLDS)
def test_beside_collectives(processes, world):
    processes.run(rank_cases.beside_collectives, world)


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_models_over_ranks(processes, kind):
    processes.run(rank_cases.models_over_ranks, WORLDS[-1], kind)


@pytest.mark.parametrize("kind", ["full", "selective"])
def test_compiled_model_over_ranks(processes, kind):
    processes.run(rank_cases.compiled_model_over_ranks, WORLDS[0], kind)


@pytest.mark.parametrize("world", WORLDS)
def test_fsdp_over_data_parallel_groups(processes, world):
    processes.run(rank_cases.fsdp_over_data_parallel_groups, world)
