"""Red means slower, green means fast enough, and everything else says that it cannot tell, and what would."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from statsmodels.stats.weightstats import ttost_ind

from pytest_roofline.baselines.reasons import behind_text, reason_text
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.verdicts import Group, Kind, TimeLimit
from pytest_roofline.stats.analyses import FALSE_RED, SECOND_ANALYSIS, Analyses
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import WORTH_REPORTING, Policy
from pytest_roofline.stats.spread import PRIOR_FREEDOM, has_fewer_days, priors
from pytest_roofline.stats.stats import growth
from pytest_roofline.stats.verdicts import (
    changed_environment,
    default_analyses,
    judge,
    may_be_red,
    settle,
    span_text,
)

DEVICE_PRIOR = priors()["device"]
EXCHANGEABLE = replace(DEVICE_PRIOR, session=0.0)
AUTO = Analyses(12)

logs = st.floats(-0.3, 0.3)
# So far apart that no 1 % is assumed of them: what is left are the libraries' tests.
sides = st.lists(logs, min_size=3, max_size=8).filter(lambda side: max(side) - min(side) > 0.1)
sessions = st.lists(st.lists(logs, min_size=1, max_size=3), min_size=1, max_size=3)
devices = st.sampled_from(["GPU-1", "GPU-2"])
policies = st.builds(
    Policy,
    tolerance=st.sampled_from([0.01, 0.05, 0.2]),
    comparisons=st.sampled_from([1, 30, 200]),
    prior=st.sampled_from(list(priors().values())),
    analyses=st.sampled_from([Analyses(), Analyses(4), Analyses(3, slow_only=True)]),
)


def of(*change_percent, device="GPU-1"):
    """New processes of a session, slower than one second by these."""
    return [
        Group(
            tuple(1 + percent / 100 for percent in change_percent), device, "2026-02-01T03:00:00Z"
        )
    ]


def verdict(make, percent, *, processes=3, reference=None, device="GPU-1", **policy):
    """Of as many processes as red needs against fifteen."""
    return judge(
        of(*[percent] * processes, device=device), reference or make.reference(), Policy(**policy)
    )


def by_logs(make, new, old, policy=None, device="GPU-1"):
    """[sessions, processes] of both sides in log seconds."""
    reference = make.reference(*(make.group(*side) for side in old))
    return judge([make.group(*side, device=device) for side in new], reference, policy or Policy())


@given(
    sides,
    sides.filter(lambda side: len(side) >= 5),
    st.floats(-0.1, 1.0),
    st.integers(1, 200),
    st.floats(0.01, 0.2),
)
def test_regressed_needs_more_than_the_tolerance_and_a_small_p_of_more_than_what_is_worth_reporting(
    make, new, old, shift, comparisons, tolerance
):
    new = [value + shift for value in new]
    found = by_logs(make, [new], [old], Policy(tolerance, comparisons, EXCHANGEABLE))
    assume(not found.difference.unequal)
    worth = math.log1p(WORTH_REPORTING * tolerance)
    p = scipy.stats.ttest_ind([value - worth for value in new], old, alternative="greater").pvalue
    beyond = np.mean(new) - worth - max(old)
    assume(abs(p - FALSE_RED / max(25, comparisons)) > 1e-9)
    assume(abs(beyond) > 1e-9)
    assert found.p == pytest.approx(float(p), abs=1e-9)
    slower, unseen = found.estimate > math.log1p(tolerance), beyond > 0 or len(new) >= 5
    unseen = unseen and len(new) >= max(3, min(5, 12 - len(old)))
    assert (slower and unseen and p <= FALSE_RED / max(25, comparisons)) == (
        found.kind is Kind.REGRESSED
    )


@given(sides, sides, st.sampled_from([0.01, 0.05, 0.2]))
def test_passed_is_shown_by_statsmodels_test_of_equivalence_and_improved_is_surely_faster(
    make, new, old, tolerance
):
    found = by_logs(make, [new], [old], Policy(tolerance, prior=EXCHANGEABLE))
    difference = found.difference
    upper = difference.estimate + scipy.stats.t.ppf(0.995, difference.freedom) * difference.error
    assume(abs(upper + math.log1p(tolerance)) > 1e-9)
    assert (upper < -math.log1p(tolerance)) == (found.kind is Kind.IMPROVED)
    assume(not difference.unequal and found.kind is not Kind.IMPROVED)
    new_s, old_s = ([math.exp(value) for value in side] for side in (new, old))
    chances = []
    for limit, chance in ((tolerance, 0.03), (2 * tolerance, 0.003)):
        _, _, (_, p, _) = ttost_ind(
            new_s, old_s, 1e-9, 1 + limit, usevar="pooled", transform=np.log
        )
        assume(abs(p - chance) > 1e-9)
        chances.append(p < chance)
    assert all(chances) == (found.kind is Kind.PASSED)


MAY_BE = (
    r"the change may be (>\+999|[+-]\d+\.\d) to "
    r"(>\+999|[+-]\d+\.\d) % after \d+ process(es)? \(spread [\d.]+ %: [^;]+\)"
)
WOULD_DECIDE = re.compile(
    rf"{MAY_BE}; "
    r"(a verdict needs about \d+ processes; measure with --roofline-rounds=(auto|\d+)"
    r"|.*; record.*)"
    r"(, or set --roofline-tolerance=\d+%(! \(the mark confirms a tolerance above 50 %\))?)?"
)
TOO_FEW = re.compile(
    r"looks (>999|[\d.]+) % slower; "
    r"a red verdict needs (?P<needed>\d+) processes against a baseline of (?P<known>\d+); "
    r"measure with --roofline-rounds=auto; " + MAY_BE
)
HOT = re.compile(
    r"looks (>999|[\d.]+) % slower, but the later rounds are (>999|[\d.]+) % slower than the first process, and the "
    r"baseline holds only first processes; earlier rounds may .*; record the baseline with --roofline-rounds=5; "
    + MAY_BE
)


def asked(reason):
    """How many processes a reason asks for; None where more would not help."""
    count = re.search(r"needs about (\d+) processes", reason)
    return count and int(count[1])


def open_patterns(verdict):
    """What an open verdict may say."""
    if not verdict.looks_slow:
        return (WOULD_DECIDE,)
    if verdict.hot:
        return (HOT,)
    if verdict.processes < verdict.processes_for_red:
        return (TOO_FEW,)
    # Where the baseline has shown such a time before, red needs a second analysis.
    return (TOO_FEW, WOULD_DECIDE) if verdict.processes < SECOND_ANALYSIS else (WOULD_DECIDE,)


@settings(max_examples=60)
@given(sessions, sessions, policies, devices, st.floats(0.0, 1.0))
def test_every_verdict_tells_what_it_rests_on_what_would_decide_it_and_is_not_red_within_its_tolerance(
    make, new, old, policy, device, below
):
    found = by_logs(make, new, old, policy, device)
    assert found.interval[0] < found.estimate < found.interval[1]
    assert (found.processes, len(found.reference.medians_s)) == (
        sum(map(len, new)),
        sum(map(len, old)),
    )
    assert found.mde > 0
    assert (found.reach is None) == (
        max(found.processes, policy.analyses.most) < found.processes_for_red
    )
    assert found.reach is None or found.reach > policy.tolerance
    assert 0 <= found.p <= found.p_spent + 1e-12
    assert found.p_spent <= 1
    if found.kind is Kind.INCONCLUSIVE:
        assert any(pattern.fullmatch(reason_text(found)) for pattern in open_patterns(found))
        assert (asked(reason_text(found)) or math.inf) > found.processes
        assert found.futile or found.processes < policy.analyses.most
    else:
        assert (reason_text(found), found.futile) == ("", False)
    # However certain: with the same spreads, shifted until the centre lies within the tolerance.
    shift = math.log1p(policy.tolerance) - found.estimate - below - 1e-9
    within = by_logs(make, [[value + shift for value in side] for side in new], old, policy, device)
    assert (within.kind is Kind.REGRESSED, may_be_red(within)) == (False, False)


@settings(max_examples=50)
@given(st.lists(st.tuples(sessions, devices), min_size=1, max_size=2), sessions, policies)
def test_the_same_processes_of_a_night_give_the_same_verdict_in_one_run_or_in_several(
    make, new, old, policy
):
    reference = make.reference(
        *(make.group(*side, started=f"2026-01-{day:02d}") for day, side in enumerate(old, 1))
    )
    one = [
        make.group(*(log for side in runs for log in side), device=device) for runs, device in new
    ]
    several = [
        make.group(*side, device=device, started=f"2026-01-02T0{hour}:00:00Z")
        for runs, device in new
        for hour, side in enumerate(runs, 1)
    ]
    verdict_of_one = judge(one, reference, policy)
    # Several first processes are no rounds, so that these cannot be warmer.
    assume(not verdict_of_one.hot)
    assert judge(several, reference, policy) == verdict_of_one


def test_a_steady_machine_gets_a_clear_answer(make):
    for percent, tolerance, word in [
        *(
            (30, 0.05, "REGRESSED"),
            (7, 0.05, "REGRESSED"),
            (7, 0.10, "PASSED"),
            (4.5, 0.05, "INCONCLUSIVE"),
        ),
        *((2, 0.05, "PASSED"), (0, 0.05, "PASSED"), (-4, 0.05, "PASSED"), (-20, 0.05, "IMPROVED")),
    ]:
        assert verdict(make, percent, tolerance=tolerance).kind == word, (percent, tolerance)
    for analyses in (Analyses(), AUTO):
        assert verdict(make, 0, processes=1, analyses=analyses).kind is Kind.PASSED, (
            "unchanged code after one process"
        )
    # Copies lie 15 % apart on a CPU.
    one = make.reference(make.group(0.0))
    assert verdict(make, 30, reference=one, prior=priors()["host"]).kind is Kind.INCONCLUSIVE
    assert growth(verdict(make, 25).estimate) == pytest.approx(0.25)


def test_the_processes_that_a_reason_asks_for_decide_where_the_centre_stays(make):
    """ "About": half as many again must do. Of unchanged code, at the edge, and slower."""
    for centre, spread, shape, count in itertools.product(
        (0.0, 0.02, 0.04, 0.06, 0.08),
        (0.003, 0.01, 0.03),
        ((1, 5), (2, 5), (3, 5), (14, 1)),
        (1, 5),
    ):
        reference = make.reference(*make.groups(*shape, process=spread))
        found = judge(
            make.groups(1, count, process=spread, centre=centre), reference, Policy(analyses=AUTO)
        )
        more = asked(reason_text(found))
        if more is not None:
            again = make.groups(1, math.ceil(1.5 * more), process=spread, centre=centre)
            decided = judge(again, reference, Policy(analyses=Analyses(len(again[0].medians_s))))
            assert decided.kind is not Kind.INCONCLUSIVE, (centre, spread, shape, count)


def test_a_reason_names_the_tolerance_that_unchanged_code_would_pass_and_none_to_what_is_slower(
    make,
):
    reference = make.reference(*make.groups(1, 5, process=0.06))
    found = judge(make.groups(1, 3, process=0.06), reference, Policy())
    assert found.kind is Kind.INCONCLUSIVE
    tolerance = int(re.search(r"--roofline-tolerance=(\d+)%", reason_text(found))[1]) / 100
    assert judge(make.groups(1, 3, process=0.06), reference, Policy(tolerance)).kind is Kind.PASSED
    slower = verdict(make, 8, reference=reference)
    assert (slower.kind, "--roofline-tolerance" in reason_text(slower)) == (
        Kind.INCONCLUSIVE,
        False,
    )


def test_the_tolerance_that_a_reason_names_is_wider_than_the_present_one_and_passes(make):
    # 100 times 0.29, 0.57 or 0.58 is less than 29, 57 or 58.
    for percent in (7, 14, 28, 29, 55, 57, 58):
        for spread in np.linspace(0.2, 2, 50) * percent / 100:
            reference = make.reference(*make.groups(1, 5, process=spread))
            new = make.groups(1, 3, process=spread)
            found = judge(new, reference, Policy(percent / 100))
            if found.kind is Kind.INCONCLUSIVE:
                break
        wider = found.reasons[-1].numbers["tolerance_percent"]
        assert wider > percent
        assert judge(new, reference, Policy(wider / 100)).kind is Kind.PASSED, percent


def test_one_process_is_never_red_and_says_how_many_are_by_what_is_known(make):
    # Of one, three and fourteen nights of one process, and of three of five.
    for shape, percent in itertools.product(
        [(1, 1), (3, 1), (14, 1), (1, 5), (3, 5)], [6, 30, 100_000]
    ):
        reference = make.reference(*make.groups(*shape, process=0.001))
        found = verdict(make, percent, processes=1, reference=reference, analyses=Analyses(1))
        assert (found.kind, may_be_red(found), found.reach) == (Kind.INCONCLUSIVE, False, None), (
            shape,
            percent,
        )
        needed, known = map(int, TOO_FEW.fullmatch(reason_text(found)).group("needed", "known"))
        assert known == shape[0] * shape[1]
        assert needed == {1: 11, 3: 9, 5: 5, 14: 3, 15: 3}[known]
        for count in (needed, 12) if percent > 6 else ():
            enough = verdict(
                make, percent, processes=count, reference=reference, analyses=Analyses(count)
            )
            assert enough.kind is Kind.REGRESSED, (shape, percent, count)
    # A baseline from one process of one session is legitimate.
    one = make.reference(make.group(0.0))
    for (processes, percent, word), comparisons in itertools.product(
        [(1, 0, "PASSED"), (10, 30, "INCONCLUSIVE"), (11, 30, "REGRESSED")], [1, 138]
    ):
        analyses = Analyses(processes)
        found = verdict(
            make,
            percent,
            processes=processes,
            reference=one,
            comparisons=comparisons,
            analyses=analyses,
        )
        assert found.kind == word, (processes, percent, comparisons)
        assert found.difference.session.origin == "prior, recorded within six hours"


def test_more_rounds_never_find_less_and_what_they_can_find_is_foretold(make):
    """8 % against fifteen processes 0.3 % apart is red by whatever number of rounds."""
    reference = make.reference(*make.groups(3, process=0.003))
    for most in (3, 5, 8, 12):
        slower = make.spaced(most, 0.003, math.log1p(0.08))
        policy = Policy(analyses=Analyses(most))
        kinds = [
            judge([make.group(*slower[:count])], reference, policy).kind
            for count in range(1, most + 1)
        ]
        assert (kinds[:2], Kind.REGRESSED in kinds) == ([Kind.INCONCLUSIVE] * 2, True), most
    for spread in (0.001, 0.006, 0.02):
        known = make.reference(*make.groups(3, process=spread))
        reaches = [
            verdict(make, 0, processes=1, reference=known, analyses=Analyses(most)).reach
            for most in (3, 5, 8, 12)
        ]
        assert reaches == sorted(reaches, reverse=True), spread
        whole = judge(make.groups(1, 12, process=spread), known, Policy(analyses=AUTO)).reach
        assert reaches[-1] == pytest.approx(whole, rel=0.1), spread


def test_rounds_that_are_slower_than_their_first_process_are_not_red_by_first_processes(make):
    """Fourteen nights of one process know nothing of what a machine does once it is warm."""
    nights = make.reference(*make.groups(14, 1, process=0.003))
    with_rounds = make.reference(*make.groups(14, 2, process=0.003))
    for first, hot in [(0.0, True), (math.log1p(0.06), False)]:
        new = [make.group(first, *make.spaced(11, 0.001, math.log1p(0.06)))]
        found = judge(new, nights, Policy(analyses=AUTO))
        assert (found.looks_slow, found.kind is Kind.REGRESSED, found.hot > 0) == (
            True,
            not hot,
            hot,
        )
        assert bool(HOT.fullmatch(reason_text(found))) == hot
        assert judge(new, with_rounds, Policy(analyses=AUTO)).hot == 0


def test_a_mode_that_the_baseline_may_have_or_has_shown_is_no_ground_for_red(make):
    """Three nights in the fast mode of two, and three new processes in the slow one: chance does that."""
    nights = make.reference(
        make.group(0.0), make.group(0.001, started="2026-01-03"), make.group(0.002, started="")
    )
    for most in (1, 3, 12):
        found = judge([make.group(0.3, 0.301, 0.299)], nights, Policy(analyses=Analyses(most)))
        assert (found.kind, found.processes_for_red) == (Kind.INCONCLUSIVE, 9), most
    # One of fifteen processes in a slow mode, and the first new ones too, until there are five.
    seen = make.reference(make.group(*[0.001 * index for index in range(14)], 0.13))
    for count, red in [(3, False), (4, False), (5, True), (8, True)]:
        new = [make.group(*(0.12 + 0.001 * index for index in range(count)))]
        found = judge(new, seen, Policy(analyses=Analyses(count)))
        assert (found.kind is Kind.REGRESSED) == red, count
        assert (
            red
            or "; a red verdict needs 5 processes against a baseline of 15; measure with"
            in reason_text(found)
        )
    beyond = judge([make.group(0.15, 0.151, 0.149)], seen, Policy(analyses=Analyses(3)))
    assert beyond.kind is Kind.REGRESSED


def test_three_nights_are_red_where_they_lie_beyond_every_night_of_the_baseline(make):
    """A comparison of runs that are over is analysed once, and may hold three nights only."""
    nights = make.groups(14, 1, process=0.01)
    slow = make.groups(3, 1, process=0.005, centre=math.log(1.15))
    assert judge(slow, make.reference(*nights), Policy()).kind is Kind.REGRESSED
    # One night has been as slow: what was seen once may show again.
    seen = make.reference(*nights[1:], make.group(0.15, started="2026-01-15"))
    again = judge(slow, seen, Policy())
    assert (again.kind, may_be_red(again)) == (Kind.INCONCLUSIVE, False)
    assert "a red verdict needs 5 processes against a baseline of 14" in reason_text(again)
    five = make.groups(5, 1, process=0.005, centre=math.log(1.15))
    assert judge(five, seen, Policy()).kind is Kind.REGRESSED
    # Few nights on the other side tell less, and the words say how many would do.
    for count, needed in [(3, 9), (4, 8), (5, 5), (8, 4), (9, 3)]:
        few = judge(slow, make.reference(*make.groups(count, 1, process=0.001)), Policy())
        assert (few.kind is Kind.REGRESSED) == (needed <= 3), count
        assert needed <= 3 or f"a red verdict needs {needed} processes against a" in reason_text(
            few
        )


def test_a_quiet_sitting_makes_nothing_red_on_days_of_three_times_the_spread(make):
    """Of two thousand unchanged tests held to 0.2 % each, four would be red by chance."""
    rng, red = np.random.default_rng(4), 0
    for _ in range(2000):
        reference = make.reference(make.group(*0.01 * rng.standard_normal(5)))
        new = make.group(*0.03 * rng.standard_normal(5))
        policy = Policy(comparisons=60, analyses=Analyses(12, slow_only=True))
        red += judge([new], reference, policy).kind is Kind.REGRESSED
    assert red <= 4


def test_three_sessions_in_one_sitting_know_less_than_three_days(make):
    days = make.groups(3)
    sitting = [
        replace(group, started=f"2026-01-02T0{hour}:00:00Z") for hour, group in enumerate(days)
    ]
    apart, together = (
        verdict(make, 2, reference=make.reference(*groups)) for groups in (days, sitting)
    )
    assert [has_fewer_days(found.sessions) for found in (apart, together)] == [False, True]
    assert apart.difference.session.value == pytest.approx(0.005)
    assert together.difference.session.value == pytest.approx(0.0075)
    assert together.difference.session.origin == "prior, recorded within six hours"
    assert together.difference.error > apart.difference.error


def test_a_run_that_asks_for_no_rounds_takes_as_many_as_red_needs_for_what_looks_slow(make):
    for shape, most in [
        *(((3, 5), 5), ((9, 1), 5), ((14, 1), 5), ((5, 1), 5)),
        # Few processes, and few sittings of several.
        *(((4, 1), 12), ((1, 1), 12), ((1, 5), 12), ((2, 5), 12)),
    ]:
        found = default_analyses(make.reference(*make.groups(*shape)), "GPU-1", DEVICE_PRIOR)
        assert found == Analyses(most, slow_only=True), shape
    assert default_analyses(None, "GPU-1", DEVICE_PRIOR) == Analyses(1)
    # Of processes a third of which are in another mode red needs eight.
    modes = replace(DEVICE_PRIOR, strange=1 / 3)
    assert default_analyses(make.reference(), "GPU-1", modes).most == 12


def test_more_processes_are_futile_where_the_baseline_itself_is_too_vague(make):
    for spread, shape, futile in [(0.03, (3, 3), False), (0.2, (3, 3), True), (0.01, (1, 3), True)]:
        reference = make.reference(*make.groups(*shape, process=spread))
        found = judge(
            make.groups(1, 5, process=spread, centre=0.02), reference, Policy(analyses=AUTO)
        )
        assert (found.kind, found.futile) == (Kind.INCONCLUSIVE, futile), (spread, shape)


def test_the_minimum_detectable_effect_is_that_of_the_formula(make):
    # The detectable effect in percent at three spreads, of five processes a side.
    for (percent, detectable), count in itertools.product(
        [(0.3, 0.7), (1.0, 2.4), (2.0, 4.8)], [3, 5, 12]
    ):
        # The new ones agree a trifle better, so that both are pooled.
        new, old = (make.groups(1, count, process=percent / 100 * share) for share in (1 - 1e-9, 1))
        # No spread is assumed that these would not rule out.
        found = judge(new, make.reference(*old), Policy(prior=replace(EXCHANGEABLE, process=1e-5)))
        freedom = 2 * (count - 1)
        quantiles = scipy.stats.t.ppf(0.99, freedom) + scipy.stats.t.ppf(0.8, freedom)
        assert math.log1p(found.mde) == pytest.approx(
            quantiles * percent / 100 * math.sqrt(2 / count)
        )
        assert count != 5 or round(100 * math.log1p(found.mde), 1) == detectable


def test_sessions_that_contradict_each_other_are_inconclusive_and_no_crash(make):
    # The second was taken while something else slowed the machine down to half its pace, or to a twentieth.
    for far, comparisons in itertools.product([0.7, 3.0], [1, 200, 2000]):
        reference = make.reference(make.group(0.0, 0.001), make.group(far, far + 0.001))
        assert (
            verdict(make, 0, reference=reference, comparisons=comparisons).kind is Kind.INCONCLUSIVE
        )


def test_another_device_than_the_baselines_must_be_slower_by_more(make):
    """Devices of one product lie about 4 % apart, and the run knows only one of them."""
    same, other = (verdict(make, 8, device=device) for device in ("GPU-1", "GPU-2"))
    assert (same.kind, other.kind) == (Kind.REGRESSED, Kind.INCONCLUSIVE)
    assert reason_text(other).endswith(
        "the baseline holds only other devices (spread 4.0%); record this device"
    )
    assert verdict(make, 50, device="GPU-2").kind is Kind.REGRESSED


def test_a_reference_tells_its_centre_and_what_stands_behind_it(make):
    for groups, behind in [
        ([("GPU-1", 1)], "1 process of 1 session"),
        ([("GPU-1", 5), ("GPU-1", 5)], "10 processes of 2 sessions"),
        ([("GPU-1", 5), ("GPU-2", 1)], "6 processes of 2 sessions on 2 devices"),
        ([("", 5), ("", 1)], "6 processes of 2 sessions"),
    ]:
        reference = make.reference(
            *(make.group(*[0.0] * count, device=device) for device, count in groups)
        )
        assert behind_text(reference) == behind
    assert make.reference(make.group(0.0, math.log(4.0))).median_s == pytest.approx(2.0)
    three = make.reference(make.group(0.0, math.log(1.1), math.log(1.2)))
    found = verdict(make, 5, reference=three, tolerance=1.0)
    assert (found.slower_processes, found.compared_processes) == (1, 3)


def test_invalid_hides_every_other_finding_and_no_baseline_keeps_its_reason(make):
    limits = [Limit(TimeLimit(1e-9, make.published()))]
    for reference, percent in itertools.product((make.reference(), None), (900, 0)):
        found = judge(
            of(percent),
            reference,
            Policy(),
            invalid=text_reasons("wrong data"),
            limits=limits,
            why_none="none",
        )
        assert (found.kind, reason_text(found), found.estimate) == (
            Kind.INVALID,
            "wrong data",
            None,
        )
    assert (
        judge([], None, Policy(), invalid=text_reasons("all blocks were spoiled")).kind
        is Kind.INVALID
    )
    none = judge(of(900), None, Policy(), why_none="no baseline recorded")
    assert (none.kind, reason_text(none), none.processes) == (
        Kind.NO_BASELINE,
        "no baseline recorded",
        1,
    )
    # What is open wants more processes; the others stand in the order in which one hides another.
    decided = {kind.value: replace(none, kind=kind).decided for kind in Kind}
    assert decided == {
        "INVALID": False, "NO BASELINE": True, "REGRESSED": True, "IMPROVED": True, "PASSED": True,
        "INCONCLUSIVE": False, "SHIFTED": True,
    }  # fmt: skip
    assert list(decided) == [
        "INVALID",
        "NO BASELINE",
        "REGRESSED",
        "SHIFTED",
        "IMPROVED",
        "PASSED",
        "INCONCLUSIVE",
    ]


def test_a_time_surely_beyond_a_limit_is_red_whatever_else_is_known(make):
    entry = make.published(value=235.0, source="NVIDIA docs")
    for reference in (make.reference(), None):
        # By its own interval, not by the comparisons of the run.
        found = judge(
            of(7), reference, Policy(comparisons=10_000), limits=[Limit(TimeLimit(1.0, entry))]
        )
        assert (found.kind, found.limit, found.processes) == (
            *(Kind.REGRESSED, TimeLimit(1.0, entry), 1),
        )
        assert reason_text(found).startswith("BELOW THRESHOLD: threshold 235 GB/s (read + write")
        assert "NVIDIA docs" in reason_text(found)
        assert (growth(found.estimate), found.interval[0] > 0) == (pytest.approx(0.07), True)
    easy, hard = make.published(source="easy"), make.published(source="hard")
    limits = [Limit(TimeLimit(2.0, easy)), Limit(TimeLimit(0.5, hard))]
    assert judge(of(0), None, Policy(), limits=limits).limit.entry is hard


def test_a_time_within_its_limit_passes_and_is_still_held_against_the_baseline(make):
    limits = [Limit(TimeLimit(1.0, make.published()))]
    for percent in (-50, -0.1):
        found = judge(of(percent), None, Policy(), limits=limits)
        assert (found.kind, found.estimate) == (Kind.PASSED, None), percent
    slower = judge(
        of(30, 30, 30), make.reference(), Policy(), limits=[Limit(TimeLimit(2.0, make.published()))]
    )
    assert (slower.kind, slower.limit) == (Kind.REGRESSED, None)
    # As slow as ever does not pass where it may miss its limit.
    reference = make.reference(*make.groups(3, process=0.001, centre=math.log(1.02)))
    found = judge(of(2), reference, Policy(), limits=limits)
    assert (found.kind, found.limit) == (Kind.INCONCLUSIVE, limits[0].time_limit)
    assert (
        judge(of(2), reference, Policy(), limits=[Limit(TimeLimit(1.5, make.published()))]).kind
        is Kind.PASSED
    )


def test_an_interval_that_reaches_the_limit_breaches_nothing_and_is_open(make):
    """A limit that may be missed must not pass for good: more processes could tell."""
    limits = [Limit(TimeLimit(1.0, make.published()))]
    found = judge(of(2), None, Policy(), limits=limits)
    assert (found.kind, found.decided) == (Kind.INCONCLUSIVE, False)
    assert found.interval[0] < 0 < found.interval[1]
    assert reason_text(found).endswith(
        "; a verdict needs about 12 processes; measure with --roofline-rounds=auto"
    )
    assert judge(of(*[2] * 12), None, Policy(analyses=AUTO), limits=limits).kind is Kind.REGRESSED
    assert judge(of(4, 4.1, 3.9, 4, 4), None, Policy(), limits=limits).kind is Kind.REGRESSED
    # From three processes on where rounds may follow.
    kinds = [
        judge(of(*[15] * count), None, Policy(analyses=AUTO), limits=limits).kind
        for count in (1, 3)
    ]
    assert kinds == [Kind.INCONCLUSIVE, Kind.REGRESSED]


@given(sides | st.lists(logs, min_size=1, max_size=1))
def test_a_breach_needs_the_lower_end_of_the_interval_beyond_the_limit(make, new):
    count = len(new)
    own, freedom = (scipy.stats.tvar(new), count - 1) if count > 1 else (0.0, 0)
    spread = math.sqrt(own)
    # As much as chance allows where the prior is right, and then it is joined with the prior.
    if scipy.stats.chi2.sf(freedom * own / DEVICE_PRIOR.process**2, max(1, freedom)) >= 0.05:
        squares = freedom * own + PRIOR_FREEDOM * DEVICE_PRIOR.process**2
        spread, freedom = math.sqrt(squares / (freedom + PRIOR_FREEDOM)), freedom + PRIOR_FREEDOM
    error = math.sqrt(spread**2 / count + DEVICE_PRIOR.session**2)
    lower = sum(new) / count - scipy.stats.t.ppf(0.995, freedom) * error
    assume(abs(lower) > 1e-9)
    found = judge(
        [make.group(*new)], None, Policy(), limits=[Limit(TimeLimit(1.0, make.published()))]
    )
    assert (lower > 0) == (found.kind is Kind.REGRESSED)


def wavering(make, percent=6.0):
    """Slower than its tolerance, with a p that alone is not small enough."""
    found = verdict(
        make, percent, reference=make.reference(*make.groups(3, process=0.022)), comparisons=25
    )
    assert may_be_red(found)
    assert found.p_spent > FALSE_RED / 25
    return found


def test_many_other_slow_tests_turn_red_what_alone_is_open_and_no_more(make):
    slow = {str(number): verdict(make, 30) for number in range(20)}
    alone = settle({"open": wavering(make)}, 25)["open"]
    assert (alone.kind, reason_text(alone) != "") == (Kind.INCONCLUSIVE, True)
    once = settle({"open": wavering(make)} | slow, 25)
    assert (once["open"].kind, reason_text(once["open"])) == (Kind.REGRESSED, "")
    assert settle(once, 25) == once
    # Tests that were planned but not measured count as unchanged.
    many = settle({"open": wavering(make)} | slow, 1000)["open"]
    assert many.p_adjusted == pytest.approx(40 * once["open"].p_adjusted)
    # What is within its tolerance is not dragged along, however surely it is a little slower itself.
    close = verdict(make, 4.9, reference=make.reference(*make.groups(3, process=0.001)))
    assert (close.kind, close.p_spent < 1e-3) == (Kind.INCONCLUSIVE, True)
    assert settle({"close": close} | slow, 51)["close"].kind is Kind.INCONCLUSIVE
    assert settle({}, 10) == {}


@settings(max_examples=50)
@given(
    st.lists(st.tuples(sessions, sessions), min_size=1, max_size=6),
    st.integers(0, 40),
    st.integers(1, 80),
)
def test_settling_turns_nothing_but_what_may_be_red_and_only_into_red(
    make, tests, slow, comparisons
):
    verdicts = {f"test{number}": by_logs(make, new, old) for number, (new, old) in enumerate(tests)}
    verdicts |= {f"slow{number}": verdict(make, 30) for number in range(slow)}
    verdicts |= {
        "none": judge(of(0), None, Policy()),
        "bad": judge(of(0), None, Policy(), invalid=text_reasons("neighbours")),
    }
    settled = settle(verdicts, comparisons)
    assert list(settled) == list(verdicts)
    for name, after in settled.items():
        before = verdicts[name]
        if after.kind is not before.kind:
            assert may_be_red(before)
            assert after.kind is Kind.REGRESSED
            assert after.p_adjusted <= FALSE_RED
        assert replace(after, kind=before.kind, reasons=before.reasons, p_adjusted=None) == before


def test_what_changed_beside_the_code_is_named_and_an_interval_reads_in_percent(make):
    before = [{"driver": "550", "torch": "2"}, {"driver": "540", "torch": "2"}]
    assert changed_environment({"driver": "570", "torch": "2", "new": "1"}, before) == [
        "driver 540, 550 → 570"
    ]
    assert changed_environment({"driver": "550"}, before) == []
    # A variable that is missing is not set.
    ring = {"$NCCL_ALGO": "Ring"}
    assert changed_environment(ring, [{}]) == ["$NCCL_ALGO unset → Ring"]
    assert changed_environment({}, [ring]) == ["$NCCL_ALGO Ring → unset"]
    found = replace(verdict(make, 0), interval=(math.log(0.99), math.log(1.254)))
    assert span_text(found.interval) == "-1.0 … +25.4 %"
