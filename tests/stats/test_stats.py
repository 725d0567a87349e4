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
from pytest_roofline.stats.stats import difference, quantile

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
    assert found.p_slower_than(shift) == pytest.approx(float(expected.pvalue), abs=1e-9)
    interval = scipy.stats.ttest_ind(new, old, equal_var=True).confidence_interval(0.99)
    assert found.interval(0.99) == pytest.approx((interval.low, interval.high), abs=1e-9)
    # The sides changed over give the opposite difference.
    back = two_sample(make, old, new)
    assert found.estimate == pytest.approx(-back.estimate, abs=1e-12)
    if not back.unequal:
        assert found.p_slower_than(0.0) == pytest.approx(1 - back.p_slower_than(0.0), abs=1e-9)


@given(
    st.lists(logs, min_size=4, max_size=8),
    st.floats(1e-4, 3e-3),
    st.integers(4, 12),
    st.floats(-0.1, 0.1),
)
def test_new_processes_that_spread_more_than_the_old_are_compared_by_welchs_test(
    make, new, spread, count, shift
):
    old = make.spaced(count, spread)
    ratio = np.var(new, ddof=1) / spread**2
    assume(scipy.stats.f.sf(ratio, len(new) - 1, count - 1) < 0.0099)
    found = two_sample(make, new, old)
    expected = scipy.stats.ttest_ind(
        np.array(new) - shift, old, equal_var=False, alternative="greater"
    )
    assert found.unequal
    assert found.freedom == pytest.approx(float(expected.df))
    assert found.p_slower_than(shift) == pytest.approx(float(expected.pvalue), abs=1e-9)


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
    assert (found.estimate + found.bound(1 - level) < TOLERANCE) == (p < level)


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


def reference_part(found, new=1):
    """The variance of the reference's centre: that of the difference without the new side's."""
    return found.error**2 - found.process.value**2 / new - found.session.value**2


# Of verdicts.md, at σ_s = σ_p = 1.
def test_the_error_is_that_of_the_model_on_both_sides(make):
    """σ_s²/S + σ_p²/(S·R) a side; the new one is a single session."""
    for sessions, processes, variance in [(14, 1, 0.14), (3, 5, 0.40), (1, 5, 1.20)]:
        reference = make.groups(sessions, processes, process=1.0, session=1.0)
        # Of one session twice as much is assumed as of three.
        prior = Prior(process=1.0, session=1.0 if sessions > 2 else 0.5, device=0.0)
        assert reference_part(difference([make.group(0.0)], reference, prior)) == pytest.approx(
            variance, abs=0.005
        )
    process, session = 0.01, 0.02
    for new, (sessions, processes) in itertools.product([1, 2, 5], [(1, 4), (3, 5), (6, 2)]):
        reference = make.groups(sessions, processes, process=process, session=session)
        assumed = session if sessions > 2 else session / 2
        found = difference(make.groups(1, new), reference, replace(DEVICE_PRIOR, session=assumed))
        variance = session**2 * (1 + 1 / sessions) + process**2 * (
            1 / new + 1 / (sessions * processes)
        )
        assert found.error == pytest.approx(math.sqrt(variance)), (new, sessions, processes)


def test_a_spread_between_sessions_that_is_assumed_is_a_guess_of_four_degrees_of_freedom(make):
    """Satterthwaite's formula, by hand: five processes 1 % apart, joined with a prior of four, and one new one."""
    process, session = 0.01**2 * (1 + 1 / 5), (2 * 0.01) ** 2 * 2
    found = difference([make.group(0.0)], make.groups(1, 5), replace(DEVICE_PRIOR, session=0.01))
    assert found.error**2 == pytest.approx(process + session)
    assert found.freedom == pytest.approx(
        (process + session) ** 2 / (process**2 / 8 + session**2 / 4)
    )


def test_a_session_weighs_by_how_well_it_is_known(make):
    """Without a spread between sessions every process counts alike; with much of it every session does."""
    level, reference = (
        [make.group(0.0, started="2026-01-01"), make.group(*[log] * 3, started="2026-01-02")]
        for log in (0.0, 0.1)
    )
    prior = Prior(process=0.01, session=0.0, device=0.04, freedom=1e9, borrowed=True)
    alike = difference([make.group(0.0)], level, prior)
    assert alike.error**2 == pytest.approx(0.01**2 * (1 + 1 / 4), rel=1e-3)
    by_session = difference([make.group(0.0)], reference, replace(prior, session=10.0))
    assert by_session.estimate == pytest.approx(-0.05, abs=1e-4)


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
    assert among.error == pytest.approx(alone.error, rel=0.05)
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
