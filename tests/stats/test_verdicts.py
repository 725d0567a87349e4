"""Red means slower, green means fast enough, and everything else says that it cannot tell, and what would."""

import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from statsmodels.stats.weightstats import ttost_ind

from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.looks import FALSE_FAR, FALSE_PASS, FALSE_RED, Looks
from pytest_roofline.stats.outlook import WORTH_REPORTING, Policy
from pytest_roofline.stats.spread import PRIOR_FREEDOM, Group, priors
from pytest_roofline.stats.verdicts import Kind, changed_environment, default_looks, interval_text, judge, settle

DEVICE_PRIOR = priors()["device"]
EXCHANGEABLE = replace(DEVICE_PRIOR, session=0.0)
AUTO = Looks(12)
LIMIT = math.log1p(0.05)

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
    looks=st.sampled_from([Looks(), AUTO, Looks(3, slow_only=True)]),
)


def of(*change_percent, device="GPU-1"):
    """New processes of a session, slower than one second by these."""
    return [Group(tuple(1 + percent / 100 for percent in change_percent), device, "2026-02-01T03:00:00Z")]


def verdict(make, percent, *, processes=3, reference=None, device="GPU-1", **policy):
    """Of as many processes as red needs against fifteen."""
    return judge(of(*[percent] * processes, device=device), reference or make.reference(), Policy(**policy))


@given(
    sides, sides.filter(lambda side: len(side) >= 5), st.floats(-0.1, 1.0), st.integers(1, 200), st.floats(0.01, 0.2)
)
def test_regressed_needs_more_than_the_tolerance_and_a_small_p_of_more_than_what_is_worth_reporting(
    make, new, old, shift, comparisons, tolerance
):
    new = [value + shift for value in new]
    found = judge([make.group(*new)], make.reference(make.group(*old)), Policy(tolerance, comparisons, EXCHANGEABLE))
    assume(not found.difference.unequal)
    worth = math.log1p(WORTH_REPORTING * tolerance)
    p = scipy.stats.ttest_ind([value - worth for value in new], old, alternative="greater").pvalue
    beyond = np.mean(new) - worth - max(old)
    assume(abs(p - FALSE_RED / max(25, comparisons)) > 1e-9)
    assume(abs(beyond) > 1e-9)
    assert found.p == pytest.approx(float(p), abs=1e-9)
    slower, unseen = found.estimate > math.log1p(tolerance), beyond > 0 or len(new) >= 5
    assert (slower and unseen and p <= FALSE_RED / max(25, comparisons)) == (found.kind is Kind.REGRESSED)


@given(sides, sides, st.sampled_from([0.01, 0.05, 0.2]))
def test_passed_is_shown_by_statsmodels_test_of_equivalence_and_not_by_no_difference_found(make, new, old, tolerance):
    found = judge([make.group(*new)], make.reference(make.group(*old)), Policy(tolerance, prior=EXCHANGEABLE))
    assume(not found.difference.unequal)
    new_s, old_s = ([math.exp(value) for value in side] for side in (new, old))
    chances = []
    for limit, chance in ((tolerance, FALSE_PASS), (2 * tolerance, FALSE_FAR)):
        _, _, (_, p, _) = ttost_ind(new_s, old_s, 1e-9, 1 + limit, usevar="pooled", transform=np.log)
        assume(abs(p - chance) > 1e-9)
        chances.append(p < chance)
    assume(found.kind is not Kind.IMPROVED)
    assert all(chances) == (found.kind is Kind.PASSED)


def test_where_the_spread_is_many_times_the_tolerance_twice_the_tolerance_hardly_ever_passes(make):
    """Such a test cannot tell 2δ from δ, so 4 % at δ would be 4 % at 2δ too."""
    rng, passed, draws = np.random.default_rng(5), 0, 1500
    for _ in range(draws):
        reference = make.reference(make.group(*rng.normal(0, 0.5, 15)))
        new = rng.normal(math.log1p(0.1), 0.5, 12)
        policy = Policy(0.05, prior=EXCHANGEABLE, looks=AUTO)
        kinds = (judge([make.group(*new[:count])], reference, policy).kind for count in range(1, 13))
        passed += any(kind is Kind.PASSED for kind in kinds)
    assert passed / draws <= 0.005 + 3 * math.sqrt(0.005 * 0.995 / draws)


@given(sides, sides, st.sampled_from([0.01, 0.05, 0.2]))
def test_improved_is_surely_faster_by_more_than_the_tolerance(make, new, old, tolerance):
    found = judge([make.group(*new)], make.reference(make.group(*old)), Policy(tolerance, prior=EXCHANGEABLE))
    difference = found.difference
    upper = difference.estimate + scipy.stats.t.ppf(0.99, difference.freedom) * difference.error
    assume(abs(upper + math.log1p(tolerance)) > 1e-9)
    assert (upper < -math.log1p(tolerance)) == (found.kind is Kind.IMPROVED)


@pytest.mark.parametrize(
    ("percent", "kind"),
    [
        (30, Kind.REGRESSED),
        (7, Kind.REGRESSED),
        (4.5, Kind.INCONCLUSIVE),
        (2, Kind.PASSED),
        (0, Kind.PASSED),
        (-4, Kind.PASSED),
        (-20, Kind.IMPROVED),
    ],
)
def test_a_steady_machine_gets_a_clear_answer(make, percent, kind):
    assert verdict(make, percent).kind is kind


@pytest.mark.parametrize(("tolerance", "kind"), [(0.05, Kind.REGRESSED), (0.10, Kind.PASSED)])
def test_the_tolerance_is_of_time(make, tolerance, kind):
    assert verdict(make, 7, tolerance=tolerance).kind is kind


@given(sessions, sessions, policies, devices, st.floats(0.0, 1.0))
def test_what_is_not_slower_than_its_tolerance_is_never_red(make, new, old, policy, device, below):
    """However certain: with the same spreads, shifted until the centre lies within the tolerance."""
    reference = make.reference(*(make.group(*side) for side in old))
    estimate = judge([make.group(*side, device=device) for side in new], reference, policy).estimate
    shift = math.log1p(policy.tolerance) - estimate - below - 1e-9
    shifted = [make.group(*(value + shift for value in side), device=device) for side in new]
    found = judge(shifted, reference, policy)
    assert found.kind is not Kind.REGRESSED
    assert not found.may_be_red


@given(sessions, sessions, policies, devices)
def test_every_verdict_has_an_estimate_an_interval_around_it_and_its_processes(make, new, old, policy, device):
    found = judge(
        [make.group(*side, device=device) for side in new],
        make.reference(*(make.group(*side) for side in old)),
        policy,
    )
    assert found.interval[0] < found.estimate < found.interval[1]
    assert found.processes == sum(map(len, new))
    assert len(found.reference.medians_s) == sum(map(len, old))
    assert found.mde > 0
    assert (found.reach is None) == (max(found.processes, policy.looks.most) < found.fewest)
    assert found.reach is None or found.reach > policy.tolerance
    assert 0 <= found.p <= found.p_spent + 1e-12
    assert found.p_spent <= 1


MAY_BE = r"may be (>\+999|[+-]\d+\.\d) to (>\+999|[+-]\d+\.\d) % after \d+ process(es)? \([\d.]+ % apart: [^;]+\)"
WOULD_DECIDE = re.compile(
    rf"{MAY_BE}; "
    r"(about \d+ processes would decide.* \(--roofline-rounds=(auto|\d+)\)"
    r"|.*, record .*|more sessions .* would decide.*)"
    r"(, or --roofline-tolerance=\d+%!?)?"
)
TOO_FEW = re.compile(
    r"looks (>999|[\d.]+) % slower; --roofline-rounds=auto decides: "
    r"red needs (?P<needed>\d+) processes against a baseline of (?P<known>\d+); " + MAY_BE
)
HOT = re.compile(
    r"looks (>999|[\d.]+) % slower, but its further rounds are (>999|[\d.]+) % slower than its first process, and the "
    r"baseline holds first processes alone: heat, .*; record the baseline with --roofline-rounds=5; " + MAY_BE
)


@given(sessions, sessions, policies, devices)
def test_what_is_inconclusive_says_what_would_decide_it_and_nothing_else_does(make, new, old, policy, device):
    found = judge(
        [make.group(*side, device=device) for side in new],
        make.reference(*(make.group(*side) for side in old)),
        policy,
    )
    if found.kind is Kind.INCONCLUSIVE:
        expected = WOULD_DECIDE
        if found.looks_slow:
            expected = HOT if found.hot else TOO_FEW if found.processes < found.fewest else WOULD_DECIDE
        assert expected.fullmatch(found.reason)
    else:
        assert found.reason == ""


def asked(reason):
    """How many processes a reason asks for; None where more would not help."""
    count = re.search(r"about (\d+) processes would decide", reason)
    return count and int(count[1])


# Unchanged code, code within its tolerance, code at its edge, and slower code.
@pytest.mark.parametrize("centre", [0.0, 0.02, 0.04, 0.06, 0.08])
@pytest.mark.parametrize("spread", [0.003, 0.01, 0.03])
@pytest.mark.parametrize("shape", [(1, 5), (3, 5)])
@pytest.mark.parametrize("count", [1, 3])
def test_the_processes_that_a_reason_asks_for_decide_where_the_centre_stays(make, centre, spread, shape, count):
    """ "About": half as many again must do."""
    reference = make.reference(*make.groups(*shape, process=spread))
    found = judge(make.groups(1, count, process=spread, centre=centre), reference, Policy(looks=AUTO))
    more = asked(found.reason)
    if more is not None:
        again = make.groups(1, math.ceil(1.5 * more), process=spread, centre=centre)
        assert judge(again, reference, Policy(looks=AUTO)).kind is not Kind.INCONCLUSIVE


@given(sides, sides, policies)
def test_a_reason_asks_for_more_processes_than_there_are(make, new, old, policy):
    reason = judge([make.group(*new)], make.reference(make.group(*old)), policy).reason
    assert (asked(reason) or math.inf) > len(new)


def test_a_reason_names_the_tolerance_that_unchanged_code_would_pass(make):
    reference = make.reference(*make.groups(1, 5, process=0.06))
    found = judge(make.groups(1, 3, process=0.06), reference, Policy())
    assert found.kind is Kind.INCONCLUSIVE
    tolerance = int(re.search(r"--roofline-tolerance=(\d+)%", found.reason)[1]) / 100
    assert judge(make.groups(1, 3, process=0.06), reference, Policy(tolerance)).kind is Kind.PASSED


def test_no_wider_tolerance_is_offered_to_what_is_slower(make):
    found = verdict(make, 8, reference=make.reference(*make.groups(1, 5, process=0.06)))
    assert found.kind is Kind.INCONCLUSIVE
    assert "--roofline-tolerance" not in found.reason


# The issue: a baseline from one process of one session is legitimate.
@pytest.mark.parametrize(
    ("processes", "percent", "kind"),
    [(1, 0, Kind.PASSED), (1, 30, Kind.INCONCLUSIVE), (10, 30, Kind.INCONCLUSIVE), (11, 30, Kind.REGRESSED)],
)
@pytest.mark.parametrize("comparisons", [1, 138])
def test_a_baseline_of_one_process_passes_one_and_calls_eleven_slower(make, processes, percent, kind, comparisons):
    reference = make.reference(make.group(0.0))
    found = verdict(
        make, percent, processes=processes, reference=reference, comparisons=comparisons, looks=Looks(processes)
    )
    assert found.kind is kind
    assert found.difference.session.origin == "prior, recorded in one sitting"


# Of one, three and fourteen nights of one process, and of three of five.
SHAPES = [(1, 1), (3, 1), (14, 1), (1, 5), (3, 5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("percent", [6, 30, 100_000])
def test_one_process_is_never_red_by_a_baseline_however_slow_and_says_what_decides(make, shape, percent):
    reference = make.reference(*make.groups(*shape, process=0.001))
    found = verdict(make, percent, processes=1, reference=reference, looks=Looks(1))
    assert (found.kind, found.may_be_red, found.reach) == (Kind.INCONCLUSIVE, False, None)
    needed, known = map(int, TOO_FEW.fullmatch(found.reason).group("needed", "known"))
    assert (needed, known) == (max(3, 12 - known) if known < 5 else 3, shape[0] * shape[1])
    if percent > 6:
        enough = {
            count: verdict(make, percent, processes=count, reference=reference, looks=Looks(count))
            for count in (needed, 12)
        }
        assert {found.kind for found in enough.values()} == {Kind.REGRESSED}


@given(st.lists(st.tuples(sessions, devices), min_size=1, max_size=2), sessions, policies)
def test_the_same_processes_give_the_same_verdict_in_one_session_or_in_several(make, new, old, policy):
    """Rounds of one run, or runs of one night or of many: the same evidence."""
    reference = make.reference(*(make.group(*side, started=f"2026-01-{day:02d}") for day, side in enumerate(old, 1)))
    one = [make.group(*(log for side in runs for log in side), device=device) for runs, device in new]
    several = [
        make.group(*side, device=device, started=f"2026-02-{day:02d}")
        for runs, device in new
        for day, side in enumerate(runs, 1)
    ]
    assert judge(several, reference, policy) == judge(one, reference, policy)


@pytest.mark.parametrize("most", [3, 5, 8, 12])
def test_more_rounds_never_find_less(make, most):
    """8 % against fifteen processes 0.3 % apart is red by whatever number of rounds."""
    reference = make.reference(*make.groups(3, process=0.003))
    slower = make.spaced(most, 0.003, math.log1p(0.08))
    kinds = [
        judge([make.group(*slower[:count])], reference, Policy(looks=Looks(most))).kind for count in range(1, most + 1)
    ]
    assert kinds[:2] == [Kind.INCONCLUSIVE] * 2
    assert Kind.REGRESSED in kinds


@pytest.mark.parametrize(("first", "hot"), [(0.0, True), (math.log1p(0.06), False)])
def test_rounds_that_are_slower_than_their_first_process_are_not_red_by_first_processes(make, first, hot):
    """Fourteen nights of one process know nothing of what a machine does once it is warm."""
    nights = make.reference(*make.groups(14, 1, process=0.003))
    new = [first, *make.spaced(11, 0.001, math.log1p(0.06))]
    found = judge([make.group(*new)], nights, Policy(looks=AUTO))
    assert found.looks_slow
    assert (found.kind is Kind.REGRESSED, found.hot > 0) == (not hot, hot)
    assert bool(HOT.fullmatch(found.reason)) == hot
    # Nights with rounds of their own have seen it.
    assert judge([make.group(*new)], make.reference(*make.groups(14, 2, process=0.003)), Policy(looks=AUTO)).hot == 0


@pytest.mark.parametrize("most", [1, 3, 12])
def test_a_baseline_that_may_have_seen_the_fast_mode_alone_is_no_ground_for_red(make, most):
    """Three nights in the fast mode of two, and three new processes in the slow one: chance does that."""
    nights = make.reference(make.group(0.0), make.group(0.001, started="2026-01-03"), make.group(0.002, started=""))
    found = judge([make.group(0.3, 0.301, 0.299)], nights, Policy(looks=Looks(most)))
    assert (found.kind, found.fewest) == (Kind.INCONCLUSIVE, 9)


def test_three_sessions_in_one_sitting_know_less_than_three_days(make):
    days = make.groups(3)
    sitting = [replace(group, started=f"2026-01-02T0{hour}:00:00Z") for hour, group in enumerate(days)]
    apart, together = (verdict(make, 2, reference=make.reference(*groups)) for groups in (days, sitting))
    assert (apart.sitting, together.sitting) == (False, True)
    # Two degrees of freedom of sessions that agree, and four of the least that is believed; then twice that.
    least = DEVICE_PRIOR.session
    assert apart.difference.session.value == pytest.approx(math.sqrt(4 * least**2 / 6))
    assert together.difference.session.value == pytest.approx(2 * least)
    assert together.difference.session.origin == "prior, recorded in one sitting"
    assert together.difference.error > apart.difference.error


@pytest.mark.parametrize(("shape", "most"), [((3, 5), 3), ((9, 1), 3), ((1, 5), 3), ((3, 1), 12), ((1, 1), 12)])
def test_a_run_that_asks_for_no_rounds_takes_as_many_as_red_needs_for_what_looks_slow(make, shape, most):
    assert default_looks(make.reference(*make.groups(*shape)), "GPU-1", DEVICE_PRIOR) == Looks(most, slow_only=True)


@given(sessions, sessions, policies, devices)
def test_only_what_is_inconclusive_can_be_futile_and_surely_is_after_the_last_look(make, new, old, policy, device):
    found = judge(
        [make.group(*side, device=device) for side in new],
        make.reference(*(make.group(*side) for side in old)),
        policy,
    )
    assert not found.futile or found.kind is Kind.INCONCLUSIVE
    if found.kind is Kind.INCONCLUSIVE and found.processes >= policy.looks.most:
        assert found.futile


@pytest.mark.parametrize(("spread", "futile"), [(0.01, False), (0.2, True)])
def test_more_processes_are_futile_where_the_baseline_itself_is_too_vague(make, spread, futile):
    reference = make.reference(*make.groups(1, 3, process=spread))
    found = judge(make.groups(1, 2, process=spread, centre=0.02), reference, Policy(looks=AUTO))
    assert (found.kind, found.futile) == (Kind.INCONCLUSIVE, futile)


def test_one_process_a_side_of_a_cpu_tells_nothing_of_a_third(make):
    """Copies lie 15 % apart there."""
    reference = make.reference(make.group(0.0))
    assert verdict(make, 30, reference=reference, prior=priors()["host"]).kind is Kind.INCONCLUSIVE


@pytest.mark.parametrize("looks", [Looks(), AUTO])
def test_unchanged_code_can_pass_after_the_first_process(make, looks):
    assert verdict(make, 0, processes=1, looks=looks).kind is Kind.PASSED


# verdicts.md, for five processes a side.
@pytest.mark.parametrize(("percent", "detectable"), [(0.3, 0.7), (1.0, 2.4), (2.0, 4.8)])
@pytest.mark.parametrize("processes", [3, 5, 12])
def test_the_minimum_detectable_effect_is_that_of_the_formula(make, percent, detectable, processes):
    sides = [make.groups(1, processes, process=percent / 100) for _ in range(2)]
    # No spread is assumed that these would not rule out.
    found = judge(sides[0], make.reference(*sides[1]), Policy(prior=replace(EXCHANGEABLE, process=1e-5)))
    freedom = 2 * (processes - 1)
    quantiles = scipy.stats.t.ppf(0.99, freedom) + scipy.stats.t.ppf(0.8, freedom)
    assert math.log1p(found.mde) == pytest.approx(quantiles * percent / 100 * math.sqrt(2 / processes))
    if processes == 5:
        assert round(100 * math.log1p(found.mde), 1) == detectable


@pytest.mark.parametrize("spread", [0.001, 0.003, 0.006, 0.01, 0.02])
def test_what_a_run_can_find_grows_with_the_rounds_that_it_may_take(make, spread):
    reference = make.reference(*make.groups(3, process=spread))
    reaches = [verdict(make, 0, processes=1, reference=reference, looks=Looks(most)).reach for most in (3, 5, 8, 12)]
    assert reaches == sorted(reaches, reverse=True)
    # The first process foretells what stands once all are there.
    whole = judge(make.groups(1, 12, process=spread), reference, Policy(looks=AUTO)).reach
    assert reaches[-1] == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize("spread", [0.01, 0.03])
def test_a_slowdown_of_what_a_run_can_find_is_found_eight_times_in_ten(make, spread):
    """About: the formula knows the spread, which the rule has to estimate."""
    rng = random.Random(5)
    policy = Policy(prior=EXCHANGEABLE, looks=Looks(5))
    reach = judge(of(0), make.reference(*make.groups(1, 15, process=spread)), policy).reach
    red = 0
    for _ in range(200):
        old = make.reference(make.group(*(rng.gauss(0.0, spread) for _ in range(15))))
        new = [rng.gauss(math.log1p(reach), spread) for _ in range(5)]
        looks = (judge([make.group(*new[:count])], old, policy) for count in range(1, 6))
        red += next((look.kind for look in looks if look.decided), None) is Kind.REGRESSED
    assert 0.7 < red / 200 < 0.95


# The second session was taken while something else slowed the machine down to half its pace, or to a twentieth.
@pytest.mark.parametrize("far", [0.7, 3.0])
@pytest.mark.parametrize("comparisons", [1, 200, 2000])
def test_sessions_that_contradict_each_other_are_inconclusive_and_no_crash(make, far, comparisons):
    reference = make.reference(make.group(0.0, 0.001), make.group(far, far + 0.001))
    assert verdict(make, 0, reference=reference, comparisons=comparisons).kind is Kind.INCONCLUSIVE


def test_another_device_than_the_baselines_must_be_slower_by_more(make):
    """Devices of one product lie about 4 % apart, and the run knows only one of them."""
    same, other = (verdict(make, 8, device=device) for device in ("GPU-1", "GPU-2"))
    assert (same.kind, other.kind) == (Kind.REGRESSED, Kind.INCONCLUSIVE)
    assert other.reason.endswith("the baseline knows other devices only (4.0% apart), record this one")
    assert verdict(make, 50, device="GPU-2").kind is Kind.REGRESSED


def test_the_geometric_mean_is_the_centre_of_a_reference(make):
    assert make.reference(make.group(0.0, math.log(4.0))).median_s == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("groups", "behind"),
    [
        ([("GPU-1", 1)], "1 process of 1 session"),
        ([("GPU-1", 5), ("GPU-1", 5)], "10 processes of 2 sessions"),
        ([("GPU-1", 5), ("GPU-2", 1)], "6 processes of 2 sessions on 2 devices"),
        ([("", 5), ("", 1)], "6 processes of 2 sessions"),
    ],
)
def test_a_reference_tells_what_stands_behind_it(make, groups, behind):
    assert make.reference(*(make.group(*[0.0] * count, device=device) for device, count in groups)).behind == behind


def test_the_change_is_a_share_of_the_references_time(make):
    assert verdict(make, 25).change == pytest.approx(0.25)


def test_the_reference_processes_that_were_faster_are_counted(make):
    reference = make.reference(make.group(0.0, math.log(1.1), math.log(1.2)))
    assert verdict(make, 5, reference=reference, tolerance=1.0).slower_processes == 1


def test_the_kinds_stand_in_the_order_in_which_one_hides_another():
    words = ["INVALID", "NO BASELINE", "REGRESSED", "IMPROVED", "PASSED", "INCONCLUSIVE"]
    assert [kind.value for kind in Kind] == words


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("percent", [900, 0])
def test_invalid_hides_every_other_finding(make, known, percent):
    found = judge(
        of(percent),
        make.reference() if known else None,
        Policy(),
        invalid="wrong data",
        limits=[Limit(make.published(), 1e-9)],
        why_none="none",
    )
    assert (found.kind, found.reason, found.estimate) == (Kind.INVALID, "wrong data", None)


def test_what_is_invalid_needs_no_process():
    assert judge([], None, Policy(), invalid="all blocks were spoiled").kind is Kind.INVALID


def test_without_a_reference_there_is_no_baseline_and_the_reason_is_kept():
    found = judge(of(900), None, Policy(), why_none="no baseline recorded")
    assert (found.kind, found.reason, found.processes) == (Kind.NO_BASELINE, "no baseline recorded", 1)


@pytest.mark.parametrize(
    ("kind", "decided"),
    [(kind, kind not in (Kind.INCONCLUSIVE, Kind.INVALID)) for kind in Kind],
)
def test_only_what_is_open_wants_more_processes(make, kind, decided):
    assert replace(verdict(make, 0), kind=kind).decided == decided


@pytest.mark.parametrize("known", [True, False])
def test_an_interval_wholly_beyond_a_limit_is_below_the_threshold(make, known):
    entry = make.published(value=235.0, source="NVIDIA docs")
    found = judge(of(7), make.reference() if known else None, Policy(), limits=[Limit(entry, 1.0)])
    assert (found.kind, found.limit.standard, found.processes) == (Kind.REGRESSED, entry, 1)
    assert found.reason.startswith("BELOW THRESHOLD: threshold 235 GB/s (read + write")
    assert "NVIDIA docs" in found.reason
    assert found.change == pytest.approx(0.07)
    assert found.interval[0] > 0


def test_a_limit_is_decided_by_its_own_interval_not_by_the_comparisons_of_the_run(make):
    found = judge(of(7), None, Policy(comparisons=10_000), limits=[Limit(make.published(), 1.0)])
    assert found.kind is Kind.REGRESSED


@pytest.mark.parametrize("percent", [-50, -0.1])
def test_what_is_within_its_limit_passes(make, percent):
    found = judge(of(percent), None, Policy(), limits=[Limit(make.published(), 1.0)])
    assert (found.kind, found.estimate) == (Kind.PASSED, None)


def test_an_interval_that_reaches_the_limit_breaches_nothing_and_is_open(make):
    """A limit that may be missed must not pass for good: more processes could tell."""
    found = judge(of(2), None, Policy(), limits=[Limit(make.published(), 1.0)])
    assert (found.kind, found.decided) == (Kind.INCONCLUSIVE, False)
    assert found.interval[0] < 0 < found.interval[1]
    assert found.reason.endswith("; about 12 processes would decide where the centre stays (--roofline-rounds=auto)")
    limits = [Limit(make.published(), 1.0)]
    assert judge(of(*[2] * 12), None, Policy(looks=AUTO), limits=limits).kind is Kind.REGRESSED
    assert judge(of(4, 4.1, 3.9, 4, 4), None, Policy(), limits=[Limit(make.published(), 1.0)]).kind is Kind.REGRESSED


def test_what_is_as_slow_as_ever_does_not_pass_where_it_may_miss_its_limit(make):
    reference = make.reference(*make.groups(3, process=0.001, centre=math.log(1.02)))
    found = judge(of(2), reference, Policy(), limits=[Limit(make.published(), 1.0)])
    assert (found.kind, found.limit.standard) == (Kind.INCONCLUSIVE, make.published())
    assert judge(of(2), reference, Policy(), limits=[Limit(make.published(), 1.5)]).kind is Kind.PASSED


def test_a_limit_is_breached_from_three_processes_on_where_rounds_may_follow(make):
    found = [
        judge(of(*[15] * count), None, Policy(looks=AUTO), limits=[Limit(make.published(), 1.0)]) for count in (1, 3)
    ]
    assert [one.kind for one in found] == [Kind.INCONCLUSIVE, Kind.REGRESSED]


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
    found = judge([make.group(*new)], None, Policy(), limits=[Limit(make.published(), 1.0)])
    assert (lower > 0) == (found.kind is Kind.REGRESSED)


def test_any_one_of_several_limits_can_be_breached(make):
    easy, hard = make.published(source="easy"), make.published(source="hard")
    assert judge(of(0), None, Policy(), limits=[Limit(easy, 2.0), Limit(hard, 0.5)]).limit.standard is hard


def test_a_result_within_its_limit_is_still_held_against_the_baseline(make):
    found = judge(of(30, 30, 30), make.reference(), Policy(), limits=[Limit(make.published(), 2.0)])
    assert (found.kind, found.limit) == (Kind.REGRESSED, None)


def wavering(make, percent=6.0):
    """Slower than its tolerance, with a p that alone is not small enough."""
    found = verdict(make, percent, reference=make.reference(*make.groups(3, process=0.022)), comparisons=25)
    assert found.may_be_red
    assert found.p_spent > FALSE_RED / 25
    return found


@pytest.mark.parametrize(("others", "kind"), [(0, Kind.INCONCLUSIVE), (20, Kind.REGRESSED)])
def test_many_other_slow_tests_turn_red_what_alone_is_open(make, others, kind):
    verdicts = {"open": wavering(make)} | {str(number): verdict(make, 30) for number in range(others)}
    settled = settle(verdicts, 25)["open"]
    assert (settled.kind, settled.reason == "") == (kind, kind is Kind.REGRESSED)


@given(
    st.lists(st.tuples(sessions, sessions), min_size=1, max_size=6),
    st.integers(0, 40),
    st.integers(1, 80),
)
def test_settling_turns_nothing_but_what_may_be_red_and_only_into_red(make, tests, slow, comparisons):
    verdicts = {
        f"test{number}": judge(
            [make.group(*side) for side in new], make.reference(*(make.group(*side) for side in old)), Policy()
        )
        for number, (new, old) in enumerate(tests)
    }
    verdicts |= {f"slow{number}": verdict(make, 30) for number in range(slow)}
    verdicts |= {"none": judge(of(0), None, Policy()), "bad": judge(of(0), None, Policy(), invalid="neighbours")}
    settled = settle(verdicts, comparisons)
    assert list(settled) == list(verdicts)
    for name, after in settled.items():
        before = verdicts[name]
        if after.kind is not before.kind:
            assert before.may_be_red
            assert after.kind is Kind.REGRESSED
            assert after.p_adjusted <= FALSE_RED
        assert replace(after, kind=before.kind, reason=before.reason, p_adjusted=None) == before


def test_settling_again_changes_nothing(make):
    verdicts = {"open": wavering(make)} | {str(number): verdict(make, 30) for number in range(20)}
    once = settle(verdicts, 25)
    assert settle(once, 25) == once


def test_tests_that_were_planned_but_not_measured_count_as_unchanged(make):
    verdicts = {"open": wavering(make)} | {str(number): verdict(make, 30) for number in range(20)}
    adjusted = [settle(verdicts, comparisons)["open"].p_adjusted for comparisons in (25, 1000)]
    assert adjusted[1] == pytest.approx(40 * adjusted[0])


def test_what_is_within_its_tolerance_is_not_dragged_along_by_slow_tests(make):
    """However many are slow, and however surely it is a little slower itself."""
    reference = make.reference(*make.groups(3, process=0.001))
    close = verdict(make, 4.9, reference=reference)
    assert (close.kind, close.p_spent < 1e-3) == (Kind.INCONCLUSIVE, True)
    verdicts = {"close": close} | {str(number): verdict(make, 30) for number in range(50)}
    assert settle(verdicts, 51)["close"].kind is Kind.INCONCLUSIVE


def test_without_verdicts_there_is_nothing_to_settle():
    assert settle({}, 10) == {}


def test_what_changed_beside_the_code_is_named():
    before = [{"driver": "550", "torch": "2"}, {"driver": "540", "torch": "2"}]
    assert changed_environment({"driver": "570", "torch": "2", "new": "1"}, before) == ["driver 540, 550 → 570"]


def test_a_fact_that_any_recorded_session_shares_has_not_changed():
    assert changed_environment({"driver": "550"}, [{"driver": "550"}, {"driver": "540"}]) == []


def test_an_interval_reads_in_percent_of_time(make):
    found = replace(verdict(make, 0), interval=(math.log(0.99), math.log(1.254)))
    assert interval_text(found) == "-1.0 … +25.4 %"


def test_a_mode_that_the_baseline_has_shown_is_no_slowdown_until_five_processes_are_in_it(make):
    """One of fifteen processes in a slow mode, and the first three new ones too: chance does that."""
    reference = make.reference(make.group(*[0.001 * index for index in range(14)], 0.13))
    found = {
        count: verdict_of(make, [0.12 + 0.001 * index for index in range(count)], reference) for count in (3, 4, 5, 8)
    }
    assert {count: one.kind is Kind.REGRESSED for count, one in found.items()} == {3: False, 4: False, 5: True, 8: True}
    beyond = verdict_of(make, [0.15, 0.151, 0.149], reference)
    assert beyond.kind is Kind.REGRESSED


def verdict_of(make, logs, reference):
    return judge([make.group(*logs)], reference, Policy(looks=AUTO))
