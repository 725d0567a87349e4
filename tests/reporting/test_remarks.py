"""What may explain a verdict, in words: the clock, what changed since the baseline, modes, another device."""

import math

import pytest

from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.judging.verdicts import Kind
from pytest_roofline.reporting.remarks import remarks
from pytest_roofline.reporting.results import Result

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
    ],
)
def test_a_clock_that_moved_is_said_first_and_whether_it_explains_the_slowdown(make, seconds, after_hz, said):
    one = on_clock(make, seconds, 1.98e9, after_hz)
    assert one.verdict.kind is Kind.REGRESSED
    assert remarks(one) == [said]


@pytest.mark.parametrize("after_hz", [1.98e9, 1.975e9, None])
def test_a_clock_that_stayed_or_was_not_probed_is_not_mentioned(make, after_hz):
    assert remarks(on_clock(make, 1.25e-3, 1.98e9, after_hz)) == []


def test_a_driver_and_a_torch_that_changed_are_named_with_both_versions(make):
    reference = make.reference(
        *make.groups(3, process=0.001, centre=MILLISECOND), environments=({"driver": "550.54", "torch": "2.12"},)
    )
    one = make.result(1.25e-3, reference=reference, environment={"driver": "570.86", "torch": "2.13", "kernel": "6.8"})
    assert remarks(one) == ["driver 550.54 → 570.86", "torch 2.12 → 2.13"]


def test_modes_of_the_baseline_are_told_with_where_the_new_processes_lie(make):
    fast, slow = make.spaced(9, 0.002, math.log(22.5e-3)), make.spaced(5, 0.002, math.log(25.5e-3))
    one = make.result(25.6e-3, reference=make.reference(make.group(*fast), make.group(*slow)))
    assert one.verdict.kind is Kind.INCONCLUSIVE
    assert remarks(one) == [
        "the baseline's processes have two modes, 22.5 ms and 25.5 ms: 5 of 14 are in the slow one, and 1 of the 1 "
        "new ones"
    ]


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
    one = make.result(known=False) if known else Result(make.measurement(), None, {"driver": "1"})
    assert remarks(one) == []


def test_a_hostile_driver_cannot_steer_the_terminal(make):
    groups = make.groups(3, process=0.001, centre=MILLISECOND)
    reference = make.reference(*groups, environments=({HOSTILE: HOSTILE},))
    one = make.result(1.25e-3, reference=reference, environment={HOSTILE: "1"}, left_out=(HOSTILE,))
    said = remarks(one)
    assert len(said) == 2
    assert not set("".join(said)) & set("\x1b\r\n\u202e")
