"""What a run's own records tell of why it is slower: everything moved, the clock fell, processes have modes."""

import math
from dataclasses import replace

import diptest
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.stats.judgements import clock_change, common_shift, could_have_seen, judgement_of, modes
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import Kind, judge

GHZ = 1e9


def slower(make, percent, spread=0.003, clock_hz=None, **policy):
    """What was said of a test that is slower by so much."""
    reference = make.reference(*make.groups(3, process=spread), clock_hz=clock_hz)
    new = make.groups(1, 3, process=spread, centre=math.log1p(percent / 100))
    return said(judge(new, reference, Policy(**policy)))


def said(verdict, clock_hz=None):
    return judgement_of(verdict, "one", clock_hz=clock_hz)


def suite(make, *percents, **policy):
    return [slower(make, percent, **policy) for percent in percents]


@pytest.mark.parametrize("percents", [(10,) * 5, (8, 9, 10, 11, 12, 30), (-10,) * 20, (2.1,) * 8, (10,) * 18 + (0, 0)])
def test_a_suite_that_moved_as_a_whole_is_said_to_have_moved(make, percents):
    shift = common_shift(suite(make, *percents))
    assert shift.estimate == pytest.approx(np.median(np.log1p(np.array(percents) / 100)))
    assert shift.tests == len(percents)
    assert shift.moved == sum(percent != 0 for percent in percents)


@pytest.mark.parametrize(
    "percents",
    [
        (10,) * 4,
        (10,) * 10 + (0,) * 10,
        (10, -10) * 5,
        (0,) * 20,
        (1.9,) * 20,
        (10,) * 8 + (-10, -10),
        (10,) * 17 + (0, 0, 0),
        (),
    ],
    ids=["four tests", "half", "both ways", "none", "too little", "a fifth faster", "85 in 100", "no test"],
)
def test_a_suite_that_did_not_move_as_a_whole_is_not(make, percents):
    assert common_shift(suite(make, *percents)) is None


def test_a_shift_is_worth_telling_from_the_smallest_effect_that_is_worth_reporting(make):
    """0.4 of the tolerance, of the strictest test."""
    verdicts = suite(make, *(3,) * 8, tolerance=0.10)
    assert common_shift(verdicts) is None
    assert common_shift([*verdicts, slower(make, 3)]) is not None


def test_what_was_not_compared_with_a_baseline_moved_nowhere(make):
    without = judge([make.group(0.0)], None, Policy())
    breach = judge([make.group(1.0)], None, Policy(), limits=[Limit(make.published(), 1.0)])
    assert breach.kind is Kind.REGRESSED
    assert common_shift([said(without)] * 9 + [said(breach)] * 9) is None
    assert common_shift([said(without)] * 9 + suite(make, *(10,) * 5)).tests == 5


@given(st.floats(-0.3, 0.3), st.floats(0.5, 2.0))
def test_a_difference_in_cycles_is_that_of_time_and_clock_together(make, log, ratio):
    """Time × clock."""
    judgement = replace(slower(make, 0, clock_hz=1.5 * GHZ), estimate=log, interval=(log, log))
    found = clock_change(replace(judgement, clock_hz=1.5 * GHZ * ratio))
    if abs(math.log(ratio)) > 0.0101:
        cycles = math.exp(log) * ratio
        assert math.exp(found.in_cycles) == pytest.approx(cycles)
        assert (found.before_hz, found.after_hz) == (1.5 * GHZ, 1.5 * GHZ * ratio)
    if abs(math.log(ratio)) < 0.0099:
        assert found is None


@pytest.mark.parametrize(
    ("percent", "clock_ghz", "explains"),
    [(32, 1.5, True), (33, 1.5, True), (66, 1.5, False), (33, 1.98, None), (33, 2.2, False), (10, 1.8, True)],
)
def test_a_slowdown_that_vanishes_in_cycles_is_the_clocks(make, percent, clock_ghz, explains):
    found = clock_change(replace(slower(make, percent, clock_hz=1.98 * GHZ), clock_hz=clock_ghz * GHZ))
    assert explains == (found and found.explains(0.05))


@pytest.mark.parametrize(("before", "after"), [(None, 1e9), (1e9, None), (None, None)])
def test_a_clock_that_nobody_probed_explains_nothing(make, before, after):
    assert clock_change(replace(slower(make, 30, clock_hz=before), clock_hz=after)) is None


def test_without_a_baseline_no_clock_has_changed(make):
    assert clock_change(said(judge([make.group(0.0)], None, Policy()), 1e9)) is None


# verdicts.md: 22.5 ms in one process, 25.5 ms in the next is real.
FAST, SLOW = math.log(22.5e-3), math.log(25.5e-3)


def two_modes(make, fast=9, slow=5, spread=0.002):
    return tuple(map(math.exp, [*make.spaced(fast, spread, FAST), *make.spaced(slow, spread, SLOW)]))


def test_two_modes_are_told_by_where_they_lie_and_how_often_the_slow_one_is_occupied(make):
    found = modes(two_modes(make), [22.4e-3, 25.4e-3, 25.6e-3])
    assert (found.fast_s, found.slow_s) == (pytest.approx(22.5e-3), pytest.approx(25.5e-3))
    assert (found.slow_before, found.before, found.slow_now, found.now) == (5, 14, 2, 3)


@pytest.mark.parametrize("seed", range(5))
def test_modes_are_seen_where_the_dip_test_sees_them(make, seed):
    rng = np.random.default_rng(seed)
    for distance in (0.0, 2.0, 4.0, 8.0):
        logs = rng.standard_normal(24) + distance * (rng.random(24) < 0.4)
        _, p = diptest.diptest(np.sort(logs))
        assert (p <= 0.05) == (modes(np.exp(0.01 * logs), [1.0]) is not None)


def test_processes_around_one_centre_have_one_mode(make):
    assert modes(list(map(math.exp, make.spaced(40, 0.05))), [1.0]) is None


@pytest.mark.parametrize(("fast", "slow"), [(4, 3), (7, 0), (1, 0)])
def test_too_few_processes_show_no_modes(make, fast, slow):
    assert modes(two_modes(make, fast, slow, 0.001), [1.0]) is None


def test_medians_that_are_all_alike_have_one_mode(make):
    assert modes([1.0] * 20, [1.0]) is None


def reaching(make, *percents):
    """Verdicts that would have caught slowdowns of these."""
    return [replace(slower(make, 0), reach=percent / 100) for percent in percents]


@pytest.mark.parametrize(
    ("percents", "seen"),
    [
        ((2.9,) * 131 + (9.9,) * 7, [(0.03, 131, 138), (0.10, 138, 138)]),
        ((2.9,) * 3, [(0.03, 3, 3)]),
        ((3.0,), [(0.03, 1, 1)]),
        ((0.2, 0.3), [(0.01, 2, 2)]),
        ((6.5, 11, 26, 61), [(0.15, 2, 4), (0.8, 4, 4)]),
        ((101, 150), [(1.5, 2, 2)]),
        ((99.9,), [(1.0, 1, 1)]),
    ],
)
def test_a_run_tells_what_it_could_have_seen_in_round_figures(make, percents, seen):
    """The first is what half of the tests reach, the second what all do."""
    assert [
        (round(share, 6), caught, tests) for share, caught, tests in could_have_seen(reaching(make, *percents))
    ] == seen


@given(st.lists(st.floats(0.01, 500.0), min_size=1, max_size=20))
def test_what_a_run_could_have_seen_is_never_told_too_small(make, percents):
    reaches = sorted(percent / 100 for percent in percents)
    found = could_have_seen(reaching(make, *percents))
    for share, caught, tests in found:
        assert (caught, tests) == (sum(reach <= share for reach in reaches), len(reaches))
    assert found[0][1] * 2 >= len(reaches)
    assert found[-1][1] == len(reaches)
    assert found[-1][0] <= max(0.01, 2.01 * reaches[-1])


def test_a_run_that_compared_nothing_could_have_seen_nothing(make):
    assert could_have_seen([said(judge([make.group(0.0)], None, Policy()))]) == []
