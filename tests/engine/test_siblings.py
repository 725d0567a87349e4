"""Whether other devices of the machine are asked, and what the traceback of a failure holds on to."""

import traceback

import pytest
import torch

from pytest_roofline.core.samples import SIBLINGS
from pytest_roofline.core.work import Work
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.measure import Observer, measure_request
from pytest_roofline.engine.request import RankOptions, Request, Timed
from pytest_roofline.engine.timing import Plan


def test_ranks_and_siblings_ask_nobody_whether_others_are_busy_and_one_device_alone_does():
    """The others are the ranks and siblings of the measurement itself."""
    copy = Work(payload_bytes=2**20, wire_bytes=2**20)

    def asks(**changes):
        return Request(work=copy, metric="pinned_payload_GBps", budget_s=0.1, **changes).over_host_link

    assert (asks(), asks(ranks=RankOptions(2), timing="isolated"), asks(labels=(SIBLINGS,))) == (True, False, False)


def test_the_traceback_of_a_failure_holds_no_plan_and_so_nothing_that_refills_or_flushes():
    calls = []

    def fails(x):
        calls.append(x.numel())
        if len(calls) > 2:
            raise ValueError("on purpose")

    timed = Timed(fails, lambda: (torch.zeros(4),))
    request = Request(work=Work(read_bytes=16), budget_s=0.1, timed=timed, refill=True)
    with pytest.raises(ValueError, match="on purpose") as raised:
        measure_request(FakeDevice(), request, Observer())
    frames = [frame for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    assert "run" in [frame.f_code.co_name for frame in frames]
    held = [value for frame in frames for value in frame.f_locals.values() if isinstance(value, Plan)]
    assert [(plan.refill, plan.flush) for plan in held if plan.refill or plan.flush] == []
