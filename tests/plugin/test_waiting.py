"""`--roofline-wait`: a run waits for a quiet machine by a scripted clock, and ends where that stays busy."""

import time

import pytest

from pytest_roofline.engine import quiet
from pytest_roofline.engine.quiet import wait_until_quiet

from .conftest import texts

CC1 = "other processes keep 1.6 of 2 cores busy (cc1 (7) 1.0)"


class ScriptedClock:
    """Time that passes only while somebody rests; that of a process goes on."""

    perf_counter, process_time = time.perf_counter, time.process_time

    def __init__(self):
        self.passed_s = 0.0

    def monotonic(self):
        return self.passed_s

    def sleep(self, seconds):
        self.passed_s += seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock by which runs wait."""
    scripted = ScriptedClock()
    monkeypatch.setattr(quiet, "time", scripted)
    return scripted


def busy_until(clock, seconds):
    """Looks that find somebody at work until so many seconds have passed."""
    return lambda *_: CC1 if clock.passed_s < seconds else ""


def test_a_quiet_machine_is_not_waited_for(clock):
    lines = []
    assert wait_until_quiet(lambda: "", 60.0, lines.append) == ""
    assert (clock.passed_s, lines) == (0.0, [])


def test_who_is_at_work_is_told_at_once_and_every_half_minute_until_it_is_quiet(clock):
    lines = []
    assert wait_until_quiet(busy_until(clock, 65.0), 600.0, lines.append) == ""
    assert 65.0 <= clock.passed_s <= 65.0 + quiet.PAUSE_S
    assert lines == [
        f"waiting for a quiet machine, for at most {left} s: {CC1}" for left in (600, 570, 540)
    ]


def test_where_it_stays_busy_nobody_waits_longer_than_was_said(clock):
    assert wait_until_quiet(busy_until(clock, 1e9), 61.0, lambda _: None) == CC1
    assert clock.passed_s == 61.0


def test_a_device_is_busy_by_its_cores_or_by_the_time_that_others_use_it(monkeypatch, fake_device):
    monkeypatch.setattr(quiet.cpu, "neighbours_now", lambda: CC1)
    assert quiet.busy_at(fake_device(others_busy=0.5)) == (
        "other processes keep fake busy for 50% of the time"
    )
    assert quiet.busy_at(fake_device(others_busy=0.01)) == ""
    assert quiet.busy_at(fake_device(others_busy=None)) == ""
    assert quiet.busy_at(quiet.cpu.CpuDevice()) == CC1


@pytest.fixture
def fake_device():
    from pytest_roofline.engine.devices.fake import FakeDevice

    return FakeDevice


@pytest.mark.parametrize("options", [("--roofline-wait=10m",), ("--roofline-wait=10m", "-q")])
def test_a_run_waits_until_the_machine_is_quiet_and_then_goes_on(desk, clock, monkeypatch, options):
    monkeypatch.setattr(quiet, "busy_at", busy_until(clock, 100.0))
    desk.suite()
    result = desk.run(*options)
    assert (result.ret, len(desk.last_run().tested)) == (0, 2)
    assert texts(result).count(f" s: {CC1}") == 4


def test_a_run_whose_machine_stays_busy_measures_nothing_and_ends_with_status_1(
    desk, clock, monkeypatch
):
    monkeypatch.setattr(quiet, "busy_at", busy_until(clock, 1e9))
    desk.suite()
    result = desk.run("--roofline-wait=10m", "--roofline-ci", "--roofline-save=night")
    assert (result.ret, clock.passed_s) == (pytest.ExitCode.TESTS_FAILED, 600.0)
    result.stdout.fnmatch_lines(
        [
            f"This machine stayed busy for 600 s: {CC1.replace('[', '[[]')}. Expected a quiet machine, so pytest "
            "measured nothing and ended with status 1. End the busy processes, or wait until they end, and run this "
            "again. To wait longer, add --roofline-wait=10m."
        ]
    )
    # Its name is free for the next try.
    assert desk.run_paths() == []
    monkeypatch.setattr(quiet, "busy_at", lambda _: "")
    assert desk.run("--roofline-wait=10m", "--roofline-save=night").ret == 0


def test_a_recording_waits_for_two_minutes_by_itself_and_no_other_run_waits(
    desk, clock, monkeypatch
):
    monkeypatch.setattr(quiet, "busy_at", busy_until(clock, 1e9))
    desk.one()
    result = desk.run("--roofline-record")
    assert (result.ret, clock.passed_s) == (pytest.ExitCode.TESTS_FAILED, 120.0)
    assert f"This machine stayed busy for 120 s: {CC1}" in texts(result)
    assert not (desk.path / "baselines").exists()
    assert desk.run().ret == 0
    assert desk.run("--collect-only", "--roofline-record").ret == 0
    assert clock.passed_s == 120.0


def test_the_ini_file_may_say_how_long_to_wait_and_no_further_round_waits(desk, clock, monkeypatch):
    looks = []
    monkeypatch.setattr(quiet, "busy_at", lambda _: looks.append(1) or "")
    desk.ini("roofline_wait = 30s")
    desk.one()
    assert desk.run("--roofline-rounds=2", "--roofline-save=two").ret == 0
    assert (len(looks), [each.round for each in desk.saved("two").tested]) == (1, [1, 2])


def test_a_duration_that_is_none_is_refused(desk, sentence):
    desk.one()
    sentence(desk.run("--roofline-wait=soon"), "--roofline-wait is 'soon'", "expected a duration")
