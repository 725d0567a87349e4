"""The difference of two sides against the libraries that everybody trusts, and against the model's own formula."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from statsmodels.stats.weightstats import ttost_ind

from pytest_roofline.stats.spread import Prior, priors
from pytest_roofline.stats.stats import (
    bound_of,
    difference,
    foreseen_error,
    interval_of,
    p_slower_than,
    quantile,
)

DEVICE_PRIOR = priors()["device"]
# Nothing lies between sessions: what is left is the two-sample problem of the textbooks.
EXCHANGEABLE = replace(DEVICE_PRIOR, session=0.0)
TOLERANCE = math.log1p(0.05)

logs = st.floats(-0.2, 0.2)
# So far apart that no 1 % is assumed of them: what is left are the libraries' tests.
sides = st.lists(logs, min_size=3, max_size=8).filter(lambda side: max(side) - min(side) > 0.1)


def two_sample(make, new, old, prior=EXCHANGEABLE):
    """One session a side, on one device."""
    return difference([make.group(*new)], [make.group(*old)], prior)


@given(sides, sides, st.floats(-0.1, 0.1))
def test_one_session_a_side_is_students_test_on_the_log_medians(make, new, old, shift):
    found = two_sample(make, new, old)
    assume(not found.unequal)
    expected = scipy.stats.ttest_ind(
        np.array(new) - shift, old, equal_var=True, alternative="greater"
    )
    assert (found.estimate - shift) / found.error == pytest.approx(
        float(expected.statistic), abs=1e-9
    )
    assert found.freedom == pytest.approx(float(expected.df))
    assert p_slower_than(found, shift) == pytest.approx(float(expected.pvalue), abs=1e-9)
    interval = scipy.stats.ttest_ind(new, old, equal_var=True).confidence_interval(0.99)
    assert interval_of(found, 0.99) == pytest.approx((interval.low, interval.high), abs=1e-9)
    # The sides changed over give the opposite difference.
    back = two_sample(make, old, new)
    assert found.estimate == pytest.approx(-back.estimate, abs=1e-12)
    if not back.unequal:
        assert p_slower_than(found, 0.0) == pytest.approx(1 - p_slower_than(back, 0.0), abs=1e-9)


@given(sides, st.floats(1e-4, 3e-3), st.integers(4, 12), st.floats(-0.1, 0.1))
def test_new_processes_that_spread_more_than_a_single_sitting_are_believed_alone(
    make, new, spread, count, shift
):
    """The sum of two variances, each with the degrees of freedom that go with it, as Satterthwaite has it."""
    comparison = two_sample(make, new, make.spaced(count, spread))
    squares = np.sum((np.array(new) - np.mean(new)) ** 2) + (count - 1) * spread**2
    freedom = len(new) - 1 + count - 1
    pooled = squares / freedom
    mine = np.var(new, ddof=1) / len(new)
    before = pooled / count
    together = mine + before
    of_both = together**2 / (mine**2 / (len(new) - 1) + before**2 / freedom)
    assert comparison.unequal
    assert (comparison.error**2, comparison.freedom) == pytest.approx((together, of_both))
    p = scipy.stats.t.sf((np.mean(new) - shift) / math.sqrt(together), of_both)
    assert p_slower_than(comparison, shift) == pytest.approx(float(p), abs=1e-9)


@given(sides, sides, st.sampled_from([0.01, 0.04, 0.05]))
def test_an_upper_bound_below_the_tolerance_is_statsmodels_test_of_equivalence(
    make, new, old, level
):
    """The one side of it that speaks of slower."""
    found = two_sample(make, new, old)
    assume(not found.unequal)
    new_s, old_s = (np.exp(side) for side in (new, old))
    _, _, (_, p, _) = ttost_ind(new_s, old_s, 1e-9, 1.05, usevar="pooled", transform=np.log)
    assume(abs(p - level) > 1e-9)
    assert (found.estimate + bound_of(found, 1 - level) < TOLERANCE) == (p < level)


def test_a_quantile_is_students_and_normal_where_the_spread_is_known():
    for freedom, probability in itertools.product(
        [1, 2.5, 30, math.inf], [0.8, 0.96, 0.99, 0.9998]
    ):
        assert quantile(probability, freedom) == pytest.approx(
            scipy.stats.t.ppf(probability, freedom)
        )


def test_one_process_a_side_is_held_against_the_prior(make):
    found = two_sample(make, [0.1], [0.0])
    assert found.error == pytest.approx(0.01 * math.sqrt(2))
    assert (found.freedom, found.process.origin) == (DEVICE_PRIOR.freedom, "prior")


def assumed(process, session):
    """Spreads that the data show exactly as they are assumed, so that joining the two changes nothing."""
    return Prior(process=process, session=session, device=0.04)


# docs/authors/verdicts.md: σ_p² (1/n + 1/m) + σ_s² (1/N + 1/M).
def test_the_variance_is_that_of_the_model_on_both_sides(make):
    process, session = 0.01, 0.02
    for new, (sessions, each) in itertools.product([1, 2, 5], [(1, 4), (2, 5), (3, 5), (6, 2)]):
        reference = make.groups(sessions, each, process=process, session=session)
        # Of fewer than three sittings half as much again is assumed.
        prior = assumed(process, session if sessions > 2 else session / 1.5)
        comparison = difference(make.groups(1, new), reference, prior)
        variance = process**2 * (1 / new + 1 / (sessions * each))
        variance += session**2 * (1 + 1 / sessions)
        assert comparison.error == pytest.approx(math.sqrt(variance)), (new, sessions, each)


# docs/authors/verdicts.md: one process a session, σ_p² (1/n + 1/m) + σ_s²/N.
def test_nights_of_one_process_know_the_mean_by_their_number_alone(make):
    for new, nights in itertools.product([1, 2, 5], [3, 14]):
        reference = make.groups(nights, 1, process=0.05)
        comparison = difference(make.groups(1, new, process=0.05), reference, assumed(0.05, 0.005))
        # Of several new ones in a session an eighth of the variance is taken to lie between sessions.
        hidden = 0.05**2 / 8 if new > 1 else 0.0
        variance = 0.05**2 * (1 / new + 1 / nights) + hidden
        assert comparison.error**2 == pytest.approx(variance), (new, nights)


def test_sessions_of_unequal_size_count_as_many_equal_ones(make):
    """(Σn)²/Σn²: one night of thirteen processes and two of one are hardly more than one night."""
    sizes = np.array([13, 1, 1])
    reference = [
        make.group(*make.spaced(count, 0.01), started=f"2026-01-{day:02d}")
        for day, count in enumerate(sizes, 1)
    ]
    prior = Prior(0.01, 0.02, 0.04, freedom=1e12, borrowed=True)
    comparison = difference([make.group(0.0)], reference, prior)
    sessions = sizes.sum() ** 2 / np.sum(sizes**2)
    variance = 0.01**2 * (1 + 1 / 15) + 0.02**2 * (1 + 1 / sessions)
    assert comparison.error**2 == pytest.approx(variance, rel=1e-6)


def test_every_process_counts_alike_in_the_centre(make):
    reference = [
        make.group(0.0, started="2026-01-01"),
        make.group(0.1, 0.1, 0.1, started="2026-01-02"),
    ]
    for session in (0.0, 10.0):
        prior = Prior(process=0.01, session=session, device=0.04)
        assert difference([make.group(0.0)], reference, prior).estimate == pytest.approx(-0.075)


def test_a_spread_between_sessions_that_is_assumed_is_a_guess_of_four_degrees_of_freedom(make):
    """Satterthwaite's formula, by hand: five processes 1 % apart, joined with a prior of four, and one new one."""
    process, session = 0.01**2 * (1 + 1 / 5), (1.5 * 0.01) ** 2 * 2
    comparison = difference([make.group(0.0)], make.groups(1, 5), assumed(0.01, 0.01))
    assert comparison.error**2 == pytest.approx(process + session)
    assert comparison.freedom == pytest.approx(
        (process + session) ** 2 / (process**2 / 8 + session**2 / 4)
    )


def test_the_least_that_is_believed_of_sessions_costs_no_degrees_of_freedom(make):
    """Three sessions of five: what they show beyond the least is told by two, with a prior of four."""
    least = 0.005**2
    shown = (2 * 0.02**2 + 4 * least) / 6
    process, session = 0.01**2 * (1 + 1 / 15), shown * (1 + 1 / 3)
    reference = make.groups(3, 5, session=0.02)
    comparison = difference([make.group(0.0)], reference, assumed(0.01, 0.005))
    doubt = process**2 / (12 + 4) + ((shown - least) * (1 + 1 / 3)) ** 2 / (2 + 4)
    assert comparison.error**2 == pytest.approx(process + session)
    assert comparison.freedom == pytest.approx((process + session) ** 2 / doubt)
    # Sessions of one process each doubt nothing but the spread that they show.
    nights = difference(make.groups(1, 4), make.groups(14, 1), assumed(0.01, 0.005))
    variance, doubtful = 0.01**2 * (1 / 4 + 1 / 14) + 0.005**2, 0.01**2 * (1 / 4 + 1 / 14)
    assert nights.freedom == pytest.approx(variance**2 / (doubtful**2 / (13 + 3 + 4)))


def test_what_more_processes_would_know_is_what_they_know_once_they_are_there(make):
    """They tell more of processes, and nothing more of how sessions differ: a guess of four degrees of freedom."""
    for shape in [(1, 5), (2, 5), (3, 5)]:
        reference, prior = make.groups(*shape, session=0.02), assumed(0.01, 0.01)
        for count in (1, 5):
            # The new ones agree a trifle better, so that both sides are pooled.
            now, later = (
                difference(make.groups(1, new, process=0.01 - 1e-9), reference, prior)
                for new in (count, 12)
            )
            assert foreseen_error(now, count, 12) == pytest.approx((later.error, later.freedom)), (
                shape
            )


def test_nights_of_one_process_are_sessions_and_rounds_of_a_night_are_one(make):
    process, session, reference = 0.01, 0.02, make.groups(6, 5, process=0.01, session=0.02)
    logs = make.spaced(3, 0.01)
    days = [f"2026-02-{day:02d}T03:00:00Z" for day in (1, 2, 3)]
    hours = [f"2026-02-01T0{hour}:00:00Z" for hour in (3, 4, 5)]
    for started, sessions in [(days, 3), (hours, 1), ([""] * 3, 1)]:
        new = [make.group(log, started=date) for log, date in zip(logs, started, strict=True)]
        comparison = difference(new, reference, assumed(process, session))
        variance = process**2 * (1 / 3 + 1 / 30) + session**2 * (1 / sessions + 1 / 6)
        assert comparison.error == pytest.approx(math.sqrt(variance), rel=0.01), started
    rounds = difference([make.group(*logs)], reference, assumed(process, session))
    joined = difference(
        [make.group(log, started=date) for log, date in zip(logs, hours, strict=True)],
        reference,
        assumed(process, session),
    )
    assert joined == rounds


def test_a_night_more_is_another_session_and_a_process_more_in_a_night_is_not(make):
    """Fifteen processes in three nights know the session no better than three processes do."""
    nights = make.groups(6, 5, process=0.001, session=0.02)
    few, many, all_in_one = (
        difference(new, nights, assumed(0.001, 0.02)).error
        for new in (make.groups(3, 1), make.groups(3, 5), make.groups(1, 15))
    )
    assert few == pytest.approx(many, rel=0.01)
    assert all_in_one > 1.4 * many


def test_the_centres_are_told_in_seconds(make):
    found = two_sample(make, [math.log(2.0)], [math.log(1.0), math.log(4.0)])
    assert (found.new_s, found.reference_s) == (pytest.approx(2.0), pytest.approx(2.0))


@given(
    st.lists(sides, min_size=1, max_size=3),
    st.lists(sides, min_size=1, max_size=3),
    st.floats(-5.0, 5.0),
)
def test_the_unit_of_time_does_not_matter(make, new, old, factor):
    one, scaled = (
        difference(
            [make.group(*(value + shift for value in side)) for side in new],
            [make.group(*(value + shift for value in side)) for side in old],
            DEVICE_PRIOR,
        )
        for shift in (0.0, factor)
    )
    assert (one.estimate, one.error) == pytest.approx((scaled.estimate, scaled.error), abs=1e-9)


@given(
    st.lists(sides, min_size=1, max_size=3),
    st.lists(st.tuples(sides, st.sampled_from(["GPU-1", "GPU-2", ""])), min_size=1, max_size=4),
)
def test_the_order_of_sessions_and_processes_changes_nothing(make, new, old):
    groups = [
        [make.group(*side) for side in new],
        [make.group(*side, device=device) for side, device in old],
    ]
    turned = [
        [replace(group, medians_s=group.medians_s[::-1]) for group in side[::-1]] for side in groups
    ]
    found, again = (difference(*both, DEVICE_PRIOR) for both in (groups, turned))
    assert found.estimate == pytest.approx(again.estimate, abs=1e-12)
    assert (found.error, found.paired) == (pytest.approx(again.error), again.paired)


def test_the_device_itself_is_compared_paired_and_others_beside_it_do_not_matter(make):
    """They say where the device's own sessions lie apart by chance only, and nothing of its centre."""
    own, other = (
        make.groups(3, session=0.02),
        make.groups(3, centre=0.5, session=0.02, device="GPU-2"),
    )
    alone = difference(make.groups(1, 3, centre=0.1), own, DEVICE_PRIOR)
    among = difference(make.groups(1, 3, centre=0.1), [*own, *other], DEVICE_PRIOR)
    assert among.estimate == pytest.approx(alone.estimate) == pytest.approx(0.1)
    assert (among.paired, among.device) == (True, None)
    # They show as much between sessions once more, and are joined with the least that is believed.
    for comparison, between, inside in ((alone, 2, 14), (among, 4, 26)):
        shown = (between * 0.02**2 + 4 * 0.005**2) / (between + 4)
        process = (inside * 0.01**2 + 4 * 0.01**2) / (inside + 4)
        variance = process * (1 / 3 + 1 / 15) + shown * (1 + 1 / 3)
        assert comparison.error**2 == pytest.approx(variance), between
    # They help to know the spreads: they run the same code.
    own, other = make.groups(1), make.groups(3, device="GPU-2")
    found = difference([make.group(0.0)], [*own, *other], DEVICE_PRIOR)
    assert found.process.freedom > difference([make.group(0.0)], own, DEVICE_PRIOR).process.freedom


def test_a_device_that_the_reference_has_never_seen_adds_what_lies_between_devices(make):
    for devices in (1, 2):
        reference = [
            group
            for number in range(devices)
            for group in make.groups(3, device=f"GPU-{number + 2}")
        ]
        found = difference([make.group(0.0)], reference, DEVICE_PRIOR)
        paired = difference(
            [make.group(0.0)], [replace(group, device="GPU-1") for group in reference], DEVICE_PRIOR
        )
        assert (found.paired, found.device.value) == (False, 0.04)
        assert found.device.origin == f"prior, {devices} device{'s' * (devices > 1)}"
        assert found.error**2 - paired.error**2 == pytest.approx(
            0.04**2 * (1 + 1 / devices), rel=0.02
        )
    # Three or more tell it themselves.
    known = [
        make.groups(3, centre=centre, device=f"GPU-{number}")
        for number, centre in enumerate(make.spaced(4, 0.07), 2)
    ]
    reference = [group for device in known for group in device]
    found = difference([make.group(0.0)], reference, DEVICE_PRIOR).device
    assert (found.value, found.freedom, found.origin) == (
        pytest.approx(0.07),
        3,
        "estimated, 4 devices",
    )

    # Those that nobody tells apart are one, as on a CPU.
    found = difference([make.group(0.0, device="")], make.groups(3, device=""), DEVICE_PRIOR)
    assert (found.device, found.paired) == (None, False)
    # Of two new runs the stranger's part of the centre lies σ_g away, whichever is named first.
    paired = difference([make.group(0.0)], make.groups(3), DEVICE_PRIOR)
    for devices in (("GPU-1", "GPU-2"), ("GPU-2", "GPU-1")):
        mixed = difference(
            [make.group(0.0, device=device) for device in devices], make.groups(3), DEVICE_PRIOR
        )
        assert mixed.error > paired.error, devices
