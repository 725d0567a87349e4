"""Data-parallel steps on two real ranks against one process with all batches, and shares told from made-up profiles."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed.fsdp
from hypothesis import given
from hypothesis import strategies as st

from roofline_kernels.training.communication import STEP, communication_of
from roofline_kernels.training.intervals import common, length, union, without
from roofline_kernels.training.parallel import STRATEGIES, ParallelStep
from roofline_kernels.transformer import Config

from .forked_ranks import printed_by

CPU = torch.device("cpu")
TINY = Config(32, 64, 2, 2, vocab=96)
# Of FP32 gradients near 1, and of parameters after three steps of AdamW at a rate of 1e-3.
TOLERANCE = 1e-5
intervals = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: (min(pair), max(pair))), max_size=8
)


def points(some):
    """The unit steps that intervals with whole ends cover."""
    return {point for start, end in some for point in range(start, end)}


@given(intervals)
def test_a_union_covers_the_same_and_nothing_twice(some):
    found = union(some)
    assert points(found) == points(some)
    assert length(some) == len(points(some))
    assert all(end < start for (_, end), (start, _) in zip(found, found[1:], strict=False))


@given(intervals, intervals)
def test_common_and_without_are_those_of_sets(some, others):
    assert points(common(some, others)) == points(some) & points(others)
    assert points(without(some, others)) == points(some) - points(others)
    assert length(common(some, others)) + length(without(some, others)) == length(some)


def test_an_interval_that_ends_before_it_starts_is_refused():
    with pytest.raises(ValueError) as error:
        length([(0, 1), (3, 2)])
    assert str(error.value) == "an interval from 3 to 2; expected an end that is not before the start"


def event(name, start, end, kind="CPU"):
    return SimpleNamespace(
        name=name, time_range=SimpleNamespace(start=start, end=end), device_type=SimpleNamespace(name=kind)
    )


def seconds(*microseconds):
    return pytest.approx(tuple(value * 1e-6 for value in microseconds))


def told(*events):
    found = communication_of(events)
    return found.step_s, found.communication_s, found.exposed_s


def test_over_gloo_what_no_operator_covers_is_exposed():
    steps = [event(STEP, 0, 100), event(STEP, 200, 300)]
    sums = [event("gloo:all_reduce", 40, 80), event("gloo:all_reduce", 60, 90), event("gloo:all_gather", 210, 220)]
    # Hidden: 40 to 50 by a product, 85 to 90 by a copy. What surrounds operators hides nothing.
    work = [event("aten::mm", 30, 50), event("fsdp::chunk_cat", 85, 95), event("AddmmBackward0", 30, 95)]
    assert told(*steps, *sums, *work) == seconds(200, 60, 45)


def test_what_is_outside_of_steps_does_not_count():
    assert told(event(STEP, 100, 200), event("gloo:all_reduce", 50, 110), event("gloo:broadcast", 190, 400)) == seconds(
        100, 20, 20
    )


def test_on_a_device_kernels_decide_and_not_the_host():
    host = [event(STEP, 0, 100), event("aten::mm", 0, 90), event("nccl:all_reduce", 10, 12), event("c10d::x", 10, 12)]
    kernels = [
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 40, 80, "CUDA"),
        event("ampere_sgemm_128x64_tn", 30, 60, "CUDA"),
        event("Memcpy DtoD (Device -> Device)", 75, 90, "CUDA"),
    ]
    assert told(*host, *kernels) == seconds(100, 40, 15)


def test_ranges_that_are_shown_on_the_device_too_are_no_kernels():
    names = (STEP, "nccl:all_reduce", "FSDP::all_gather (3)")
    ranges = [event(name, 0, 100, kind) for name in names for kind in ("CPU", "CUDA")]
    assert told(*ranges, event("ncclDevKernel_AllGather", 20, 30, "CUDA")) == seconds(100, 10, 10)


def test_a_profile_without_a_step_is_refused():
    with pytest.raises(ValueError) as error:
        communication_of([event("gloo:all_reduce", 0, 1)])
    assert str(error.value) == f"the profile has no range {STEP!r}; expected one around each step"


@pytest.fixture(scope="module")
def ranks():
    """What each of two ranks found: see `parallel_ranks.py`."""
    return printed_by("parallel_ranks.py")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_are_those_of_one_process_with_all_batches(ranks, strategy):
    assert [own[strategy]["gradients"] < TOLERANCE for own in ranks] == [True, True]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_parameters_after_three_steps_are_those_of_one_process(ranks, strategy):
    assert [own[strategy]["parameters"] < TOLERANCE for own in ranks] == [True, True]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_average_is_held_against_a_sum_over_ranks(ranks, strategy):
    assert [own[strategy]["average error"] < TOLERANCE for own in ranks] == [True, True]


def test_ddp_leaves_the_same_model_on_all_ranks_to_the_last_bit(ranks):
    first, second = (own["ddp"]["fingerprint"] for own in ranks)
    assert first == second
    assert len(first) == 2 * 9 + 2


def test_without_synchronisation_ranks_go_their_own_ways(ranks):
    first, second = (own["ddp"]["fingerprint alone"] for own in ranks)
    assert first != second


@pytest.mark.parametrize(("strategy", "share"), [("ddp", 1), ("fsdp2", 2)])
def test_fsdp2_leaves_each_rank_its_share_of_the_parameters(ranks, strategy, share):
    assert [own[strategy]["elements"] for own in ranks] == [TINY.parameters // share] * 2


def test_fsdp2_gathers_block_by_block(ranks):
    assert [own["fsdp2"]["units"] for own in ranks] == [TINY.layers + 1] * 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_finite_loss_verifies_also_under_autocast(ranks, strategy):
    assert [(own[strategy]["verified"], own[strategy]["mixed verified"]) for own in ranks] == [(True, True)] * 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_profile_of_real_steps_tells_of_communication(ranks, strategy):
    for own in ranks:
        step_s, communication_s, exposed_s = own[strategy]["profile"]
        assert 0 < exposed_s <= communication_s < step_s


def test_one_bucket_at_the_end_of_the_backward_pass_is_all_exposed(ranks):
    # The tiny model's gradients are one bucket, which is full when nothing is left to compute. A rank that waits for a
    # late one waits so long that the few operators beside the bucket, microseconds each, do not matter. Of three steps
    # that one rank begins 0.1 s late, a busy machine makes the other late as well.
    _, communication_s, exposed_s = ranks[0]["ddp"]["profile beside a late rank"]
    assert communication_s > 0.1
    assert exposed_s > 0.9 * communication_s


def test_a_plain_model_trains_without_ranks():
    step = ParallelStep(TINY, None, batch=2, context=8, group=None, device=CPU, learning_rate=1e-3)
    step.step()
    before = step.loss.item()
    for _ in range(20):
        step.step()
    assert step.verify()
    assert step.loss.item() < before


def test_a_loss_that_is_no_number_does_not_verify():
    step = ParallelStep(TINY, None, batch=2, context=8, group=None, device=CPU)
    assert not step.verify()
    with torch.no_grad():
        step.model.embedding.weight[0, 0] = float("nan")
    step.step()
    assert not step.verify()


def test_what_cannot_be_is_refused():
    for arguments, message in [
        ({"strategy": "ddp"}, "ddp without a group of ranks; expected the group that trains together"),
        ({"strategy": "fsdp"}, "strategy is 'fsdp'; expected one of ddp, fsdp2"),
        (
            {"precision": "fp16_autocast"},
            "precision is fp16_autocast, whose loss is scaled; expected one that needs no scaling, as bf16_autocast",
        ),
    ]:
        given = {"strategy": None, "batch": 2, "context": 8, "group": None, "device": CPU} | arguments
        with pytest.raises(ValueError) as error:
            ParallelStep(TINY, **given)
        assert str(error.value) == message, (arguments, message)


def test_a_step_without_synchronisation_needs_ddp():
    step = ParallelStep(TINY, None, batch=2, context=8, group=None, device=CPU)
    with pytest.raises(ValueError, match="a step without synchronisation with None; expected ddp, which has no_sync"):
        step.step_alone()
