"""Who is late: the arithmetic; `test_lockstep.py` has it on real ranks."""

import pytest
import torch
import torch.distributed as dist

from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.ranks.context import Rank
from pytest_roofline.ranks.straggler import Inside, find, straggler


def calls(*own_s, whole_s=0.02):
    """Three calls in which the ranks took so many seconds of their own."""
    return [[(each, whole_s) for each in own_s]] * 3


@pytest.mark.parametrize("late", range(4))
def test_a_late_rank_is_named_whichever_it_is(late):
    own_s = [1e-5 * (1 + rank) for rank in range(4)]
    own_s[late] += 0.02
    rank, lag_s = straggler(calls(*own_s))
    assert rank == late
    assert lag_s[late] == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize(
    "own_s",
    [
        # Equal; 5 % of the call; what a barrier leaves; the others lag as well; alone.
        (1e-3, 1e-3),
        (1e-3, 2e-3),
        (0.0, 40e-6),
        (0.0, 2e-3, 2.1e-3, 5e-3),
        (1e-2,),
    ],
)
def test_nobody_is_named_within_noise(own_s):
    assert straggler(calls(*own_s))[0] is None


def test_a_barrier_leaves_ranks_apart_by_more_than_a_share_of_a_short_call():
    assert straggler(calls(0.0, 200e-6, whole_s=210e-6))[0] is None
    assert straggler(calls(0.0, 300e-6, whole_s=310e-6))[0] == 1


def test_a_single_late_call_names_nobody():
    assert straggler([[(0.0, 0.02), (0.02, 0.02)], *calls(0.0, 0.0)])[0] is None


def test_the_lag_is_against_the_fastest_of_every_call():
    late = [[(0.0, 1.0), (0.5, 1.0), (0.1, 1.0)], [(0.3, 1.0), (0.8, 1.0), (0.3, 1.0)]]
    rank, lag_s = straggler(late)
    assert (rank, lag_s) == (1, pytest.approx((0.0, 0.5, 0.05)))


@pytest.mark.parametrize(("call_s", "count"), [(0.001, 5), (0.05, 3), (0.3, 1)])
def test_long_calls_are_looked_at_less_often(call_s, count):
    device, made = FakeDevice(), []
    rank = Rank.make(0, size=1, local_rank=0, host="here", backend="gloo", meter=device, side=None)
    find(rank, lambda *_: made.append(device.work(call_s)), [(1,), (2,)], call_s, 1.0)
    assert len(made) == count


@pytest.fixture
def lonely_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("lonely_group")
def test_a_collective_is_marked_at_its_operation_and_at_its_wait_and_nothing_else_is():
    inside = Inside(FakeDevice())
    x = torch.ones(8)
    with inside.watching():
        x.add_(1.0)
        assert inside.marks == []
        dist.all_reduce(x)
        assert len(inside.marks) == 4
        work = dist.all_reduce(x, async_op=True)
        assert len(inside.marks) == 6
        work.wait()
    assert len(inside.marks) == 8


@pytest.mark.usefixtures("lonely_group")
def test_nothing_is_marked_any_more_afterwards_even_after_an_error():
    inside, original = Inside(FakeDevice()), dist.Work.wait
    with pytest.raises(ZeroDivisionError), inside.watching():
        raise ZeroDivisionError
    dist.all_reduce(torch.ones(8))
    assert (inside.marks, dist.Work.wait) == ([], original)
