"""A verdict as a run file keeps it, and what verdicts tell of why a run is slower: all moved, the clock, modes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_roofline.baselines.reasons import reason_text
from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.verdicts import (
    ExactVerdict,
    Kind,
    OddSession,
    Subject,
    TimeLimit,
    Verdict,
)
from pytest_roofline.stats.analyses import Analyses
from pytest_roofline.stats.causes import (
    clock_change,
    common_shift,
    detectable_effects,
    modes,
)
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import judge

MILLISECOND, GHZ = math.log(1e-3), 1e9
logs = st.floats(-0.5, 0.5)
sessions = st.lists(st.lists(logs, min_size=1, max_size=3), min_size=1, max_size=3)


def test_a_verdict_is_read_back_from_a_run_file_as_it_was(make, tmp_path):
    odd = OddSession("GPU-1", "2026-01-09T03:00:00Z", 6, 12, 0.2)
    groups = make.groups(3, process=0.001, centre=MILLISECOND)
    moved = make.groups(3, process=0.001, centre=MILLISECOND + 0.01)
    reference = make.reference(
        *groups, tolerance=0.07, achieved=((), ("graph",)), clock_hz=1.9e9, moved=moved, shift=0.01,
        peak_bytes=2**20, odd=(odd,),
    )  # fmt: skip
    live = make.result(
        1.24e-3, 1.25e-3, 1.26e-3, reference=reference, before={"driver": "550.54"},
        left_out=("heat",), published=(make.published("reference"),),
        idle=((make.published(), "samples are batched"),), peak_bytes=2**21,
    )  # fmt: skip
    verdict = replace(
        live.time_verdict,
        p_adjusted=0.5,
        peak=ExactVerdict(
            "",
            "",
            "peak_bytes",
            "REGRESSED",
            reason="more",
            value=2**21,
            unit="B",
            baseline_value=2**20,
            allowed=4096,
        ),
        limit=TimeLimit(1e-3, make.published()),
    )
    assert (verdict.subject.changed, verdict.difference.error > 0) == (
        ("driver 550.54 → 570.86",),
        True,
    )
    run = make.run(tmp_path / "r.jsonl", live.measurement, verdict)
    assert run.verdicts == (verdict,)


def test_spreads_are_kept_with_their_freedom_which_is_none_where_they_are_known(make):
    """JSON has no infinity."""
    kept = make.result(reference=make.reference(make.group(MILLISECOND))).time_verdict
    groups = [
        make.group(MILLISECOND + step, started=f"2026-01-0{day}T03:00:00Z")
        for day, step in enumerate((0, 0.01), 1)
    ]
    known = make.result(reference=make.reference(*groups)).time_verdict
    assert (known.difference.session.value, known.difference.session.freedom) == (0.0, None)
    assert (
        kept.difference.session.value,
        kept.difference.session.freedom,
        kept.difference.process.freedom,
    ) == (pytest.approx(0.0075), 4.0, 4.0)
    other = make.result(
        reference=make.reference(*make.groups(3, centre=MILLISECOND, device="GPU-2"))
    ).time_verdict
    assert known.difference.device is None
    assert (other.difference.device is not None, other.difference.paired) == (True, False)


def test_what_was_held_against_a_limit_or_nothing_keeps_that(make):
    none = make.result(known=False).time_verdict
    subject = make.subject(make.measurement())
    assert none == Verdict(
        Kind.NO_BASELINE, 0.05, subject, reasons=text_reasons("no baseline recorded"), processes=1
    )
    limits = [Limit(TimeLimit(1e-3, make.published()))]
    missed, met = (
        make.result(seconds, known=False, limits=limits).time_verdict
        for seconds in (1.25e-3, 0.5e-3)
    )
    assert (missed.estimate, missed.processes) == (pytest.approx(math.log(1.25)), 1)
    assert missed.interval[0] < missed.estimate < missed.interval[1]
    assert reason_text(missed).startswith("BELOW THRESHOLD")
    assert missed.limit == TimeLimit(1e-3, make.published())
    assert (met.kind, met.limit_s, make.result().time_verdict.limit_s) == (Kind.PASSED, 1e-3, None)


@settings(max_examples=10)
@given(
    st.lists(logs, min_size=1, max_size=4),
    sessions,
    st.sampled_from([1, 3]),
    st.sampled_from([1, 200]),
)
def test_every_verdict_can_be_written_down(make, new, old, most, comparisons):
    """However little is known: no infinity reaches the file."""
    policy = Policy(analyses=Analyses(most), comparisons=comparisons)
    reference = make.reference(*(make.group(*side) for side in old))
    one = make.result(*map(math.exp, new), reference=reference, policy=policy)
    assert encode_line(one.time_verdict).startswith('{"type": "verdict", ')


def slower(make, percent, clock_hz=None, **policy):
    """What was said of a test that is slower by so much."""
    reference = make.reference(*make.groups(3, process=0.003), clock_hz=clock_hz)
    new = make.groups(1, 3, process=0.003, centre=math.log1p(percent / 100))
    return judge(new, reference, Policy(**policy))


def suite(make, *percents, **policy):
    return [slower(make, percent, **policy) for percent in percents]


def test_a_suite_that_moved_as_a_whole_is_said_to_have_moved_and_no_other(make):
    for percents in [
        (10,) * 5,
        (8, 9, 10, 11, 12, 30),
        (-10,) * 20,
        (2.1,) * 8,
        (10,) * 18 + (0, 0),
    ]:
        shift = common_shift(suite(make, *percents))
        assert shift.estimate == pytest.approx(np.median(np.log1p(np.array(percents) / 100))), (
            percents
        )
        assert (shift.tests, shift.moved) == (
            len(percents),
            sum(percent != 0 for percent in percents),
        )
    for why, percents in {
        "four tests": (10,) * 4, "half": (10,) * 10 + (0,) * 10, "both ways": (10, -10) * 5, "none": (0,) * 20,
        "too little": (1.9,) * 20, "a fifth faster": (10,) * 8 + (-10, -10), "85 in 100": (10,) * 17 + (0, 0, 0),
        "no test": (),
    }.items():  # fmt: skip
        assert common_shift(suite(make, *percents)) is None, why
    # Worth telling from 0.4 of the tolerance of the strictest test.
    verdicts = suite(make, *(3,) * 8, tolerance=0.10)
    assert common_shift(verdicts) is None
    assert common_shift([*verdicts, slower(make, 3)]) is not None
    # What was not compared with a baseline moved nowhere.
    without = judge([make.group(0.0)], None, Policy())
    breach = judge(
        [make.group(1.0)], None, Policy(), limits=[Limit(TimeLimit(1.0, make.published()))]
    )
    assert breach.kind == Kind.REGRESSED
    assert common_shift([without] * 9 + [breach] * 9) is None
    assert common_shift([without] * 9 + suite(make, *(10,) * 5)).tests == 5


@given(st.floats(-0.3, 0.3), st.floats(0.5, 2.0))
def test_a_difference_in_cycles_is_that_of_time_and_clock_together(make, log, ratio):
    """Time × clock."""
    verdict = replace(slower(make, 0, clock_hz=1.5 * GHZ), estimate=log, interval=(log, log))
    found = clock_change(replace(verdict, subject=Subject(clock_hz=1.5 * GHZ * ratio)))
    if abs(math.log(ratio)) > 0.0101:
        assert math.exp(found.in_cycles) == pytest.approx(math.exp(log) * ratio)
        assert (found.before_hz, found.after_hz) == (1.5 * GHZ, 1.5 * GHZ * ratio)
    if abs(math.log(ratio)) < 0.0099:
        assert found is None


def test_a_slowdown_that_vanishes_in_cycles_is_the_clocks(make):
    for percent, clock_ghz, explains in [
        *((32, 1.5, True), (33, 1.5, True), (66, 1.5, False)),
        *((33, 1.98, None), (33, 2.2, False), (10, 1.8, True)),
    ]:
        found = clock_change(
            replace(
                slower(make, percent, clock_hz=1.98 * GHZ),
                subject=Subject(clock_hz=clock_ghz * GHZ),
            )
        )
        assert explains == (found and found.explains(0.05)), (percent, clock_ghz)
    for before, after in [(None, 1e9), (1e9, None), (None, None)]:
        assert (
            clock_change(
                replace(slower(make, 30, clock_hz=before), subject=Subject(clock_hz=after))
            )
            is None
        ), (
            before,
            after,
        )
    assert (
        clock_change(judge([make.group(0.0)], None, Policy(), subject=Subject(clock_hz=1e9)))
        is None
    )


# A real test took 22.5 ms in one process and 25.5 ms in the next.
FAST, SLOW = math.log(22.5e-3), math.log(25.5e-3)


def two_modes(make, fast=9, slow=5, spread=0.002):
    return tuple(
        map(math.exp, [*make.spaced(fast, spread, FAST), *make.spaced(slow, spread, SLOW)])
    )


def test_two_modes_are_told_by_where_they_lie_and_how_often_the_slow_one_is_occupied(make):
    split = modes(two_modes(make), [22.4e-3, 25.4e-3, 25.6e-3], 0.05)
    assert (split.fast_s, split.slow_s) == (pytest.approx(22.5e-3), pytest.approx(25.5e-3))
    assert (split.slow_before, split.before, split.slow_now, split.now) == (5, 14, 2, 3)
    for few in [(4, 3), (7, 0), (1, 0), (13, 1), (1, 13)]:
        assert modes(two_modes(make, *few, 0.001), [1.0], 0.05) is None, few
    assert modes([1.0] * 20, [1.0], 0.05) is None
    assert modes(list(map(math.exp, make.spaced(40, 0.05))), [1.0], 0.05) is None
    # Two sides of one mode each are a difference and no modes.
    fast, slow = (list(map(math.exp, make.spaced(10, 0.002, centre))) for centre in (FAST, SLOW))
    assert modes(fast, slow, 0.05) is None


def test_two_modes_of_times_that_agree_to_the_tick_are_told():
    split = modes([100e-6] * 5 + [112e-6] * 5, [112e-6] * 3, 0.05)
    assert split is not None
    assert (split.slow_before, split.before, split.slow_now, split.now) == (5, 10, 3, 3)


def test_modes_that_lie_closer_than_what_is_worth_reporting_are_one(make):
    """12.5 % apart: worth reporting where 5 % are tolerated, not where 40 % are."""
    apart = two_modes(make), [22.4e-3, 25.4e-3, 25.6e-3]
    assert [modes(*apart, tolerance) is not None for tolerance in (0.05, 0.4)] == [True, False]


@pytest.mark.parametrize("tick", [0, 0.0005, 0.001, 0.0025, 0.005, 0.01])
@pytest.mark.parametrize("processes", [(8, 1), (10, 3), (20, 12)])
def test_noise_that_the_clock_rounds_to_its_tick_is_no_two_modes(tick, processes):
    """At most 1 % of unimodal runs, whatever share of the time the tick is."""
    draw = np.random.default_rng(38)
    split = 0
    for spread in (0.002, 0.005, 0.01, 0.05):
        for slower in (1.0, 1.2):
            for _ in range(250):
                sides = [np.exp(spread * draw.normal(size=size)) for size in processes]
                sides[1] *= slower
                if tick:
                    sides = [np.round(side / tick) * tick for side in sides]
                split += modes(*(side.tolist() for side in sides), 0.02) is not None
    assert split <= 20


def test_two_modes_are_still_told_where_the_clock_rounds(make):
    for tick in (0.05e-3, 0.1e-3, 0.2e-3):
        rounded = [round(value / tick) * tick for value in two_modes(make)]
        split = modes(rounded, [22.4e-3, 25.4e-3, 25.6e-3], 0.05)
        assert split is not None, tick
        assert (split.slow_before, split.slow_now) == (5, 2), tick


def reaching(make, *percents):
    """Verdicts that would have caught slowdowns of these."""
    return [replace(slower(make, 0), reach=percent / 100) for percent in percents]


def test_a_run_tells_what_it_could_have_seen_in_round_figures(make):
    """The first is what half of the tests reach, the second what all do."""
    for percents, seen in [
        ((2.9,) * 131 + (9.9,) * 7, [(0.03, 131, 138), (0.10, 138, 138)]),
        *(((2.9,) * 3, [(0.03, 3, 3)]), ((3.0,), [(0.03, 1, 1)]), ((0.2, 0.3), [(0.01, 2, 2)])),
        *(
            ((6.5, 11, 26, 61), [(0.15, 2, 4), (0.8, 4, 4)]),
            ((101, 150), [(1.5, 2, 2)]),
            ((99.9,), [(1.0, 1, 1)]),
        ),
    ]:
        found = detectable_effects(reaching(make, *percents))
        assert [(round(share, 6), caught, tests) for share, caught, tests in found] == seen, (
            percents
        )
    assert detectable_effects([judge([make.group(0.0)], None, Policy())]) == []
