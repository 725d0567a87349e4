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
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: (min(pair), max(pair))),
    max_size=8,
)


def points(some):
    """The unit steps that intervals with whole ends cover."""
    return {point for start, end in some for point in range(start, end)}


@given(intervals, intervals)
def test_intervals_are_united_met_and_taken_away_as_sets_are(some, others):
    found = union(some)
    assert (points(found), length(some)) == (points(some), len(points(some)))
    assert all(end < start for (_, end), (start, _) in zip(found, found[1:], strict=False))
    assert points(common(some, others)) == points(some) & points(others)
    assert points(without(some, others)) == points(some) - points(others)
    with pytest.raises(ValueError) as error:
        length([(0, 1), (3, 2)])
    assert (
        str(error.value) == "an interval from 3 to 2; expected an end that is not before the start"
    )


def event(name, start, end, kind="CPU"):
    return SimpleNamespace(
        name=name,
        time_range=SimpleNamespace(start=start, end=end),
        device_type=SimpleNamespace(name=kind),
    )


STEPS = [event(STEP, 0, 100), event(STEP, 200, 300)]
RANGES = [
    event(name, 0, 100, kind)
    for name in (STEP, "nccl:all_reduce", "FSDP::x (3)")
    for kind in ("CPU", "CUDA")
]
PROFILES = {
    # Hidden: 40 to 50 by a product, 85 to 90 by a copy. What surrounds operators hides nothing.
    "over Gloo what no operator covers is exposed": (
        *(
            (*STEPS, event("gloo:all_reduce", 40, 80), event("gloo:all_reduce", 60, 90)),
            (200, 60, 45),
        ),
        (
            event("gloo:all_gather", 210, 220),
            event("aten::mm", 30, 50),
            event("fsdp::chunk_cat", 85, 95),
        ),
        (event("AddmmBackward0", 30, 95),),
    ),
    "what is outside of steps does not count": (
        *((event(STEP, 100, 200), event("gloo:all_reduce", 50, 110)), (100, 20, 20)),
        (event("gloo:broadcast", 190, 400),),
    ),
    "on a device kernels decide and not the host": (
        *(
            (event(STEP, 0, 100), event("aten::mm", 0, 90), event("nccl:all_reduce", 10, 12)),
            (100, 40, 15),
        ),
        (
            event(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                40,
                80,
                "CUDA",
            ),
        ),
        (
            event("sgemm_128x64_tn", 30, 60, "CUDA"),
            event("Memcpy DtoD (Device -> Device)", 75, 90, "CUDA"),
        ),
    ),
    "ranges that are shown on the device too are no kernels": (
        *(RANGES, (100, 10, 10)),
        (event("ncclDevKernel_AllGather", 20, 30, "CUDA"),),
    ),
}


def test_a_profile_tells_of_steps_communication_and_what_of_it_nothing_hides():
    for what, (events, expected, *more) in PROFILES.items():
        found = communication_of([*events, *(one for some in more for one in some)])
        microseconds = [
            1e6 * value for value in (found.step_s, found.communication_s, found.exposed_s)
        ]
        assert microseconds == pytest.approx(expected), what
    with pytest.raises(ValueError) as error:
        communication_of([event("gloo:all_reduce", 0, 1)])
    assert str(error.value) == f"the profile has no range {STEP!r}; expected one around each step"


@pytest.fixture(scope="module")
def ranks():
    """What each of two ranks found: see `parallel_ranks.py`."""
    return printed_by("parallel_ranks.py")


def test_steps_are_those_of_one_process_with_all_batches(ranks):
    for own in ranks:
        for strategy in STRATEGIES:
            found = own[strategy]
            far = {name: found[name] for name in ("gradients", "parameters", "average error")}
            assert {name: value for name, value in far.items() if not value < TOLERANCE} == {}, (
                strategy
            )
            # A finite loss verifies also under autocast.
            assert (found["verified"], found["mixed verified"]) == (True, True), strategy
            step_s, communication_s, exposed_s = found["profile"]
            assert 0 < exposed_s <= communication_s < step_s
        # Without the other ranks' batches gradients are others.
        assert own["alone"]["gradients"] > TOLERANCE
        assert own["ddp"]["elements"] == TINY.parameters
        assert (own["fsdp2"]["elements"], own["fsdp2"]["units"]) == (
            TINY.parameters // 2,
            TINY.layers + 1,
        )


def test_ddp_leaves_the_same_model_on_all_ranks_to_the_last_bit_and_without_synchronisation_it_does_not(
    ranks,
):
    first, second = (own["ddp"]["fingerprint"] for own in ranks)
    assert (first == second, len(first)) == (True, 2 * 9 + 2)
    first, second = (own["ddp"]["fingerprint alone"] for own in ranks)
    assert first != second


def test_one_bucket_at_the_end_of_the_backward_pass_is_all_exposed(ranks):
    # The tiny model's gradients are one bucket, which is full when nothing is left to compute. A rank that waits for a
    # late one waits so long that the few operators beside the bucket, microseconds each, do not matter. Of three steps
    # that one rank begins half a second late, a busy machine makes the other late as well.
    _, communication_s, exposed_s = ranks[0]["ddp"]["profile beside a late rank"]
    assert communication_s > 0.5
    assert exposed_s > 0.9 * communication_s


def plain_step(**options):
    return ParallelStep(
        TINY, None, **{"batch": 2, "context": 8, "group": None, "device": CPU} | options
    )


def test_a_plain_model_trains_without_ranks_and_a_loss_that_is_no_number_does_not_verify():
    step = plain_step(learning_rate=1e-3)
    assert not step.verify()
    step.step()
    before = step.loss.item()
    for _ in range(20):
        step.step()
    assert step.verify()
    assert step.loss.item() < before
    with torch.no_grad():
        step.model.embedding.weight[0, 0] = float("nan")
    step.step()
    assert not step.verify()


def test_what_cannot_be_is_refused():
    for arguments, message in [
        (
            {"strategy": "ddp"},
            "ddp without a group of ranks; expected the group that trains together",
        ),
        ({"strategy": "fsdp"}, "strategy is 'fsdp'; expected one of ddp, fsdp2"),
        (
            {"strategy": None, "precision": "fp16_autocast"},
            "precision is fp16_autocast, whose loss is scaled; expected one that needs no scaling, as bf16_autocast",
        ),
    ]:
        with pytest.raises(ValueError) as error:
            ParallelStep(
                TINY, **{"batch": 2, "context": 8, "group": None, "device": CPU} | arguments
            )
        assert str(error.value) == message
    with pytest.raises(
        ValueError,
        match="a step without synchronisation with None; expected ddp, which has no_sync",
    ):
        plain_step().step_alone()
