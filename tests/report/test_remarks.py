"""What may explain a verdict, in words: the clock, what changed since the baseline, modes, another device."""

import math

import pytest

from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.stats.verdicts import Kind


def remarks(row):
    """What a judgement was given to say of itself."""
    return list(row.judgement.remarks) if row.judgement is not None else []


HOSTILE = "x\x1b[31m\r\ny\u202e"
MILLISECOND = math.log(1e-3)


def on_clock(make, seconds, before_hz, after_hz):
    """A result whose device ran at another clock than the baseline's."""
    samples = Samples((seconds,), 1, 1e-9, blocks=(Block(1, clock_hz=after_hz),))
    reference = make.reference(*make.groups(3, process=0.001, centre=MILLISECOND), clock_hz=before_hz)
    return make.result(seconds, reference=reference, samples=samples)


@pytest.mark.parametrize(
    ("seconds", "after_hz", "said"),
    [
        (1.32e-3, 1.5e9, "the clock explains it: 1980 → 1500 MHz (-24.2 %), in cycles +0.0 %"),
        (1.6e-3, 1.5e9, "the clock does not explain it all: 1980 → 1500 MHz (-24.2 %), in cycles +21.2 %"),
        (1.25e-3, 2.2e9, "the clock does not explain it all: 1980 → 2200 MHz (+11.1 %), in cycles +38.9 %"),
        (1.249e-3, 1.5e9, "the clock explains it and more: 1980 → 1500 MHz (-24.2 %), in cycles -5.4 %"),
    ],
)
def test_a_clock_that_moved_is_said_first_and_whether_it_explains_the_slowdown(make, seconds, after_hz, said):
    one = on_clock(make, seconds, 1.98e9, after_hz)
    assert one.verdict == Kind.REGRESSED
    assert remarks(one) == [said]


@pytest.mark.parametrize(
    ("seconds", "after_hz", "word"),
    [(0.97e-3, 2.2e9, "explains it and more"), (0.8e-3, 1.5e9, "does not explain it all")],
)
def test_a_clock_explains_what_is_faster_only_where_it_rose(make, seconds, after_hz, word):
    assert remarks(on_clock(make, seconds, 1.98e9, after_hz))[0].startswith(f"the clock {word}: ")


@pytest.mark.parametrize("after_hz", [1.98e9, 1.975e9, None])
def test_a_clock_that_stayed_or_was_not_probed_is_not_mentioned(make, after_hz):
    assert remarks(on_clock(make, 1.25e-3, 1.98e9, after_hz)) == []


def test_a_driver_and_a_torch_that_changed_are_named_with_both_versions(make):
    reference = make.reference(
        *make.groups(3, process=0.001, centre=MILLISECOND), environments=({"driver": "550.54", "torch": "2.12"},)
    )
    one = make.result(1.25e-3, reference=reference, environment={"driver": "570.86", "torch": "2.13", "kernel": "6.8"})
    assert remarks(one) == ["driver 550.54 → 570.86", "torch 2.12 → 2.13"]


FAST, SLOW = math.log(22.5e-3), math.log(25.5e-3)


def on_three_days(make, *logs):
    """A reference of three sessions that these processes are dealt out to."""
    return make.reference(*(make.group(*logs[day::3], started=f"2026-01-0{day + 1}T03:00:00Z") for day in range(3)))


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ((9, 5), (0, 1), "5 of 14 baseline processes and 3 of 3 new ones"),
        ((12, 3), (1, 5), "3 of 15 baseline processes and 5 of 6 new ones"),
        ((15, 0), (2, 5), "0 of 15 baseline processes and 5 of 7 new ones"),
        ((14, 1), (0, 5), "1 of 15 baseline processes and 5 of 5 new ones"),
    ],
    ids=["the baseline alone", "both", "the new ones alone", "the slow mode that the baseline showed once"],
)
def test_modes_of_either_side_are_told_with_the_share_of_each_in_the_slow_one(make, before, now, said):
    old, new = ([*make.spaced(fast, 0.002, FAST), *make.spaced(slow, 0.002, SLOW)] for fast, slow in (before, now))
    one = make.result(*map(math.exp, new), reference=on_three_days(make, *old))
    assert f"{said} are in the slow mode, 25.5 ms; the others at 22.5 ms" in remarks(one)


@pytest.mark.parametrize("percent", [2, 4, 6, 12])
@pytest.mark.parametrize("spread", [0.002, 0.01])
def test_two_sides_of_one_mode_each_are_a_difference_and_no_modes(make, percent, spread):
    old, new = make.spaced(15, spread), make.spaced(12, spread, math.log1p(percent / 100))
    assert "slow mode" not in "".join(remarks(make.result(*map(math.exp, new), reference=on_three_days(make, *old))))


SITTING = "the baseline was recorded in one sitting, so how sessions differ is assumed (1 %): record it on three days"


@pytest.mark.parametrize(("seconds", "processes"), [(1.25e-3, 3), (1.06e-3, 1)])
def test_a_slowdown_against_one_sitting_says_what_is_assumed_and_what_to_record(make, seconds, processes):
    one = make.result(*[seconds] * processes, reference=make.reference(*make.groups(1, centre=MILLISECOND)))
    assert one.verdict == ("REGRESSED" if seconds > 1.1e-3 else "INCONCLUSIVE")
    assert remarks(one) == [SITTING]


def test_sessions_of_the_same_day_count_as_the_sittings_that_they_were(make):
    twice = [make.group(MILLISECOND, MILLISECOND, started=f"2026-01-0{day}T0{hour}:00:00Z") for day, hour in
             ((1, 1), (1, 2), (2, 1))]  # fmt: skip
    said = SITTING.replace("one sitting", "two sittings").replace("1 %", "0.9 %")
    assert remarks(make.result(1.25e-3, reference=make.reference(*twice))) == [said]


@pytest.mark.parametrize("seconds", [1e-3, 0.5e-3, 1.03e-3])
def test_what_does_not_look_slow_needs_no_word_of_its_sitting(make, seconds):
    assert remarks(make.result(seconds, reference=make.reference(*make.groups(1, centre=MILLISECOND)))) == []


def test_sessions_of_three_days_leave_nothing_to_say_of_sittings(make):
    assert remarks(make.result(1.25e-3, reference=make.reference(*make.groups(3, centre=MILLISECOND)))) == []


def test_new_processes_that_spread_more_than_the_baselines_are_said_to(make):
    one = make.result(1.1e-3, 1.3e-3, 1.2e-3, 1.4e-3, 1.6e-3)
    assert "the new processes differ more among themselves (14.4%)" in remarks(one)


def test_another_device_than_the_baselines_is_said_with_how_far_devices_lie_apart(make):
    groups = make.groups(3, process=0.001, centre=MILLISECOND, device="GPU-2")
    one = make.result(1.6e-3, reference=make.reference(*groups))
    (said,) = remarks(one)
    assert said.startswith("another device than the baseline's, 4.0% between devices (prior, 1 device")


def test_processes_that_were_left_out_are_counted_with_the_reason(make):
    one = make.result(1.25e-3, left_out=("neighbours", "heat"), environment={})
    assert remarks(one) == ["2 processes left out: heat"]


@pytest.mark.parametrize("seconds", [1e-3, 1.25e-3])
def test_what_changed_is_told_of_a_passed_test_too(make, seconds):
    assert remarks(make.result(seconds)) == ["driver 550.54 → 570.86"]


@pytest.mark.parametrize("known", [True, False])
def test_without_a_comparison_there_is_nothing_to_explain(make, known):
    one = make.result(known=False) if known else make.row(make.measurement())
    assert remarks(one) == []


def test_a_hostile_driver_cannot_steer_the_terminal(make):
    groups = make.groups(3, process=0.001, centre=MILLISECOND)
    reference = make.reference(*groups, environments=({HOSTILE: HOSTILE},))
    one = make.result(1.25e-3, reference=reference, environment={HOSTILE: "1"}, left_out=(HOSTILE,))
    said = remarks(one)
    assert len(said) == 2
    assert not set("".join(said)) & set("\x1b\r\n\u202e")
