"""A rank outside any process group, and who is late: the arithmetic; `test_lockstep.py` has it on real ranks."""

import pytest
import torch
import torch.distributed as dist

from pytest_roofline.core.errors import BadInput
from pytest_roofline.engine.devices import open_device
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.ranks.lockstep import Inside, find_straggler, straggler
from pytest_roofline.ranks.worlds import Rank, Skipped


def rank(number=2, size=4, **changes):
    facts = {
        "size": size,
        "local_rank": 0,
        "host": "n1",
        "backend": "gloo",
        "meter": open_device("cpu"),
        "side": None,
    }
    return Rank.make(number, **(facts | changes))


def calls(*own_s, whole_s=0.02):
    """Three calls in which the ranks took so many seconds of their own."""
    return [[(each, whole_s) for each in own_s]] * 3


def test_a_rank_is_its_number_with_its_world_and_its_device():
    own = rank(2, size=3, local_rank=1, host="n2", backend="mpi")
    assert (f"{own:02d}", (own + 1) % own.size, [10, 20, 30][own]) == ("02", 0, 30)
    assert (own.size, own.local_rank, own.host, own.backend, own.device) == (
        3,
        1,
        "n2",
        "mpi",
        torch.device("cpu"),
    )
    alone = rank(0, size=1)
    alone.barrier()
    assert alone.gather([1, 2.5]) == [(1.0, 2.5)]
    for ranks in ([], [1, 0], [0, 0], [0, 4], [-1, 0]):
        with pytest.raises(
            BadInput, match=r"subgroup got the ranks \[.*expected ascending ranks from 0 to 3"
        ):
            rank().subgroup(ranks)
    with pytest.raises(Skipped, match="no peer access"):
        own.skip("no peer access")


def test_a_late_rank_is_named_by_its_lag_behind_the_fastest_of_every_call_and_nobody_within_noise():
    for late in range(4):
        own_s = [1e-5 * (1 + rank) for rank in range(4)]
        own_s[late] += 0.02
        found, lag_s = straggler(calls(*own_s))
        assert (found, lag_s[late]) == (late, pytest.approx(0.02, rel=0.01))
    rows = [[(0.0, 1.0), (0.5, 1.0), (0.1, 1.0)], [(0.3, 1.0), (0.8, 1.0), (0.3, 1.0)]]
    assert straggler(rows) == (1, pytest.approx((0.0, 0.5, 0.05)))
    for rows, late in (
        # 5 % of the call; what a barrier leaves; the others lag as well; alone; late in a single call.
        (calls(1e-3, 2e-3), None),
        (calls(0.0, 1.1e-3), 1),
        (calls(0.0, 200e-6, whole_s=210e-6), None),
        (calls(0.0, 300e-6, whole_s=310e-6), 1),
        (calls(0.0, 2e-3, 2.1e-3, 5e-3), None),
        (calls(1e-2), None),
        ([[(0.0, 0.02), (0.02, 0.02)], *calls(0.0, 0.0)], None),
    ):
        assert straggler(rows)[0] == late
    # Long calls are looked at less often.
    for call_s, count in ((0.001, 5), (0.05, 3), (0.3, 1)):
        device, made = FakeDevice(), []
        alone = rank(0, size=1, meter=device)
        sets = [(1,), (2,)]
        find_straggler(alone, lambda *_: made.append(device.work(call_s)), sets, call_s, 1.0)  # noqa: B023
        assert len(made) == count


def test_a_collective_is_marked_at_its_operation_and_at_its_wait_and_nothing_else_is():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        inside, original, x = Inside(FakeDevice()), dist.Work.wait, torch.ones(8)
        with inside.watching():
            x.add_(1.0)
            assert inside.marks == []
            dist.all_reduce(x)
            assert len(inside.marks) == 4
            work = dist.all_reduce(x, async_op=True)
            assert len(inside.marks) == 6
            work.wait()
        with pytest.raises(ZeroDivisionError), inside.watching():
            raise ZeroDivisionError
        dist.all_reduce(x)
        assert (len(inside.marks), dist.Work.wait) == (8, original)
    finally:
        dist.destroy_process_group()
