"""Neighbours on the cores: a machine that is kept busy by others is not a slow machine."""

import os
import time

import pytest

from pytest_roofline.engine import host
from pytest_roofline.engine.peers import ALONE, UNKNOWN, CoreWatch, most_taken

HERE, THERE = 1.0, 2.0


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """Time and processor time as scripted: (wall seconds, own seconds, busy seconds of both cores)."""
    clock = {"wall": 0.0, "own": 0.0, "children": 0.0}
    monkeypatch.setattr(host, "_ROOT", tmp_path)
    monkeypatch.setattr(host, "_usable_cpus", lambda: {0, 1})
    monkeypatch.setattr(time, "perf_counter", lambda: clock["wall"])
    monkeypatch.setattr(time, "process_time", lambda: clock["own"])
    monkeypatch.setattr(os, "times", lambda: os.times_result((9.0, 9.0, clock["children"], 0.0, 9.0)))
    (tmp_path / "proc").mkdir()

    def at(wall, own, busy, children=0.0):
        clock.update(wall=wall, own=own, children=children)
        ticks = round(busy * os.sysconf("SC_CLK_TCK"))
        text = f"cpu  9 9 9 9 9 9 9 9\ncpu0 {ticks} 0 0 9 9 0 0 9\ncpu1 0 0 0 9 9 0 0 9\ncpu2 999 0 0 0 0 0 0 0\n"
        (tmp_path / "proc" / "stat").write_text(text)

    at(0.0, 0.0, 0.0)
    return at


def test_a_process_alone_takes_nothing_from_itself(watched):
    watch = host.Neighbours()
    watched(1.0, 2.0, 2.0)
    assert watch.cores_taken() == 0


def test_what_others_worked_on_our_cores_is_counted(watched):
    watch = host.Neighbours()
    watched(2.0, 2.0, 3.5)
    assert watch.cores_taken() == pytest.approx(0.75)


def test_a_compiler_that_this_process_ran_is_no_neighbour(watched):
    # g++ under torch.compile made every compiled measurement on a CPU INVALID.
    watch = host.Neighbours()
    watched(2.0, 1.0, 2.5, children=1.0)
    assert watch.cores_taken() == pytest.approx(0.25)


def test_too_short_a_watch_tells_nothing(watched):
    watch = host.Neighbours()
    watched(0.01, 0.01, 0.02)
    assert watch.cores_taken() is None


def test_a_machine_that_does_not_tell_is_unknown(watched, tmp_path):
    (tmp_path / "proc" / "stat").unlink()
    assert host.Neighbours().cores_taken() is None


@pytest.mark.parametrize(("taken", "busy"), [(None, False), (0.0, False), (0.25, False), (0.4, True)])
def test_a_quarter_of_a_core_is_the_most_that_others_may_take_of_two(watched, taken, busy):
    assert bool(host.too_busy(taken)) == busy


def test_the_reason_says_what_was_seen_and_what_to_do(watched):
    assert host.too_busy(1.0) == (
        "other processes kept 1.0 of 2 cores busy while it was timed; run it on a quiet machine"
    )


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


@pytest.mark.parametrize("measured", [True, False])
def test_busy_processors_disturb_only_what_is_timed_on_them(monkeypatch, measured):
    monkeypatch.setattr(host, "Neighbours", Busy)
    assert ("other processes kept" in CoreWatch(ALONE, on_processors=measured).disturbed()) == measured
