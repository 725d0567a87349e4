"""Whether other processes were at work beside ranks on processors."""

import pytest

from pytest_roofline.distributed.beside import UNKNOWN, Beside, most_taken
from pytest_roofline.distributed.context import Rank
from pytest_roofline.measuring import host
from pytest_roofline.measuring.devices.fake import FakeDevice

HERE, THERE = 1.0, 2.0


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Each sees the other at work, and nobody else.
        ([(0.9, 1.0, HERE), (1.0, 0.9, HERE)], 0.0),
        ([(1.9, 1.0, HERE), (2.0, 0.9, HERE)], 1.0),
        # A rank on another host takes nothing here.
        ([(0.9, 1.0, HERE), (0.0, 0.9, THERE)], 0.9),
        ([(UNKNOWN, 1.0, HERE), (1.5, 0.5, HERE)], 0.5),
        ([(UNKNOWN, 1.0, HERE), (UNKNOWN, 1.0, HERE)], None),
        ([(0.25, 1.0, HERE)], 0.25),
    ],
)
def test_only_what_is_not_of_this_world_is_a_neighbour(rows, expected):
    taken = most_taken(rows)
    assert taken == (expected if expected is None else pytest.approx(expected))


class Busy(host.Neighbours):
    """A machine with every core taken."""

    def cores_taken(self):
        return float(host.usable_cores()) + 1.0


@pytest.mark.parametrize("kind", ["cpu", "fake"])
def test_busy_processors_disturb_only_what_is_timed_on_them(monkeypatch, kind):
    monkeypatch.setattr(host, "Neighbours", Busy)
    device = FakeDevice()
    device.facts = lambda: type("Facts", (), {"type": kind})
    rank = Rank.make(0, size=1, local_rank=0, host="here", backend="gloo", meter=device, side=None)
    assert ("other processes kept" in Beside(rank).disturbed()) == (kind == "cpu")
