"""How far unchanged runs lie apart: estimated as the analysis of variance does, and assumed where nothing tells."""

import itertools
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.special
import scipy.stats
from statsmodels.regression.mixed_linear_model import MixedLM

from pytest_roofline.stats.spread import (
    ENOUGH_TESTS,
    LEAST_SPREAD,
    MOST_BORROWED,
    Group,
    Prior,
    between_sessions,
    borrow,
    class_of,
    lend,
    priors,
    process_spread,
    session_spread,
    sittings,
    total_spread,
    unequal,
    within,
)

DEVICE_PRIOR = priors()["device"]
# Nothing is assumed between sessions, and of processes what any data rule out, so that the data alone speak.
NO_FLOOR = replace(DEVICE_PRIOR, process=1e-5, session=0.0)
ONE = (Group((1.0,), "GPU-1"),)


def drawn(make, seed, sessions, processes, session=0.02, process=0.01):
    """[sessions, processes] log-medians as the model has them, and the groups that hold them."""
    rng = np.random.default_rng(seed)
    logs = session * rng.standard_normal((sessions, 1)) + process * rng.standard_normal(
        (sessions, processes)
    )
    return logs, [
        make.group(*row, started=f"2026-01-{day:02d}T00:00:00Z") for day, row in enumerate(logs, 1)
    ]


def mixed_model(logs):
    """σ_p and σ_s by restricted maximum likelihood."""
    labels = np.repeat(np.arange(len(logs)), logs.shape[1])
    with warnings.catch_warnings():
        # Where nothing lies between sessions the fit ends on the edge of what is possible, and says so.
        warnings.simplefilter("ignore")
        fit = MixedLM(logs.ravel(), np.ones(logs.size), groups=labels).fit(reml=True)
    return math.sqrt(fit.scale), math.sqrt(max(0.0, float(np.asarray(fit.cov_re)[0, 0])))


def joined(squares, freedom, prior=DEVICE_PRIOR):
    """A spread told by so many squares, with the fixed prior as four degrees of freedom, unless chance rules it out."""
    if scipy.stats.chi2.sf(squares / prior.process**2, freedom) < 0.05:
        return math.sqrt(squares / freedom)
    return math.sqrt((squares + 4 * prior.process**2) / (freedom + 4))


def estimated(groups, prior=NO_FLOOR):
    process = process_spread(ONE, groups, prior)
    return process, session_spread(ONE, groups, process, prior)


def test_the_spreads_of_a_balanced_design_are_those_of_a_mixed_model_and_of_a_one_way_analysis(
    make,
):
    for seed, shape in itertools.product(range(3), [(3, 5), (8, 3)]):
        logs, groups = drawn(make, seed, *shape)
        process, session = estimated(groups)
        expected = mixed_model(logs)
        assert expected[1] > 0.002
        assert (process.value, session.value) == pytest.approx(expected, rel=1e-3), (seed, shape)
        mean_square, freedom, processes = between_sessions(groups)
        f = scipy.stats.f_oneway(*logs).statistic
        assert mean_square / (within(groups)[0] / within(groups)[1]) == pytest.approx(f)
        assert (freedom, processes) == (shape[0] - 1, pytest.approx(shape[1]))


def test_sessions_that_differ_less_than_processes_tell_of_no_spread_between_them(make):
    """The restricted maximum likelihood at the edge: all processes are one sample."""
    logs, _ = drawn(make, 3, 4, 5, session=0.0)
    logs -= logs.mean(axis=1, keepdims=True)
    process, session = estimated(
        [make.group(*row, started=f"2026-01-{day:02d}") for day, row in enumerate(logs, 1)]
    )
    assert session.value == 0.0
    assert process.value == pytest.approx(math.sqrt(np.sum(logs**2) / (logs.size - 1)))
    assert process.value == pytest.approx(mixed_model(logs)[0], rel=1e-3)


def test_an_unbalanced_design_is_estimated_by_the_analysis_of_variance(make):
    rows = [make.spaced(2, 0.01), make.spaced(5, 0.01, 0.04), make.spaced(3, 0.01, 0.01)]
    groups = [make.group(*row, started=f"2026-01-{day:02d}") for day, row in enumerate(rows, 1)]
    counts, means = np.array([2, 5, 3]), np.array([0.0, 0.04, 0.01])
    squares = np.sum(counts * (means - np.average(means, weights=counts)) ** 2) / 2
    typical = (10 - np.sum(counts**2) / 10) / 2
    process, session = estimated(groups)
    assert process.value == pytest.approx(0.01)
    assert session.value == pytest.approx(math.sqrt((squares - 0.01**2) / typical))


def test_what_lies_between_devices_is_no_spread_between_sessions(make):
    here, there = (
        make.groups(4, session=0.02),
        make.groups(4, session=0.02, centre=0.5, device="GPU-2"),
    )
    assert between_sessions([*here, *there])[0] == pytest.approx(between_sessions(here)[0])


def test_new_and_old_processes_are_pooled_by_their_degrees_of_freedom(make):
    old, new = make.groups(1, 6, process=0.02), make.groups(1, 3, process=0.01)
    expected = math.sqrt((5 * 0.02**2 + 2 * 0.01**2) / 7)
    assert process_spread(new, old, NO_FLOOR).value == pytest.approx(expected)
    # The distance between the sides is none of it.
    old = make.groups(1, 5)
    near, far = (
        process_spread(make.groups(1, 5, centre=centre), old, NO_FLOOR) for centre in (0.0, 3.0)
    )
    assert near.value == pytest.approx(far.value) == pytest.approx(0.01)


def test_sessions_of_one_process_each_hold_both_spreads_in_one(make):
    groups = make.groups(14, 1, process=0.03, session=0.04)
    process, session = estimated(groups, DEVICE_PRIOR)
    assert process.value == pytest.approx(0.05)
    assert (process.freedom, session.value) == (13, 0.0)
    assert "sessions of one process" in process.origin


def test_new_processes_tell_what_of_sessions_of_one_process_lies_between_processes(make):
    reference, new = make.groups(14, 1, process=0.03, session=0.04), make.groups(1, 4, process=0.01)
    process = process_spread(new, reference, DEVICE_PRIOR)
    session = session_spread(new, reference, process, DEVICE_PRIOR)
    assert (process.value, process.freedom, process.origin) == (
        pytest.approx(0.01),
        3,
        "estimated, new processes",
    )
    assert session.value == pytest.approx(math.sqrt(0.05**2 - 0.01**2))


def test_a_tests_own_spread_is_joined_with_the_prior_unless_chance_rules_that_out_and_says_so(make):
    for processes, spread in itertools.product([2, 3, 6, 15], [0.001, 0.01, 0.015, 0.03, 0.1]):
        found = process_spread(ONE, make.groups(1, processes, process=spread), DEVICE_PRIOR)
        expected = joined((processes - 1) * spread**2, processes - 1)
        assert found.value == pytest.approx(expected), (processes, spread)
    for processes, spread, origin, freedom in [
        (1, 0.0, "prior", 4),
        (5, 0.01, "estimated, 4 degrees of freedom, with prior", 8),
        (5, 0.05, "estimated, 4 degrees of freedom", 4),
    ]:
        found = process_spread(ONE, make.groups(1, processes, process=spread), DEVICE_PRIOR)
        assert (found.origin, found.freedom) == (origin, freedom)
    # Medians that agree to the tick are not believed to have no spread.
    assert process_spread(ONE, make.groups(1, 5, process=0.0), DEVICE_PRIOR).value == pytest.approx(
        joined(0.0, 4)
    )
    assert process_spread(ONE, make.groups(1, 5, process=0.0), NO_FLOOR).value == LEAST_SPREAD


# Contracts: σ priors.
def test_the_starting_values_are_those_that_were_agreed():
    for kind, process, session in [("device", 0.01, 0.005), ("host", 0.15, 0.03)]:
        prior = priors()[kind]
        assert (prior.process, prior.session, prior.device, prior.borrowed) == (
            process,
            session,
            0.04,
            False,
        )


def test_where_the_cpu_does_the_work_the_spread_is_a_hosts():
    for device, metric, kind in [
        ("cpu", "traffic_GBps", "host"),
        ("cuda", "traffic_GBps", "device"),
        ("cuda", "pageable_payload_GBps", "host"),
        ("mps", "", "device"),
    ]:
        assert class_of(device, metric) == kind, (device, metric, kind)


def on_days(make, *days, session=0.0):
    """Sessions of five processes, each begun at another time."""
    groups = make.groups(len(days), session=session)
    return [replace(group, started=day) for group, day in zip(groups, days, strict=True)]


TOGETHER = ("2026-01-02T03:00:00Z", "2026-01-02T08:59:59Z", "2026-01-02T14:00:00Z")
APART = ("2026-01-02T03:00:00Z", "2026-01-02T09:00:00Z", "2026-01-02T15:00:00Z")
ZONES = ("2026-01-02T03:00:00+00:00", "2026-01-02T03:00:00+08:00", "2026-01-02T03:00:00-08:00")
DATES = ("2026-01-02", "2026-01-03", "2026-01-04")


def test_sessions_of_a_device_that_begin_within_six_hours_of_the_last_are_one_sitting(make):
    for days, sizes in [
        *((TOGETHER, [15]), (TOGETHER[::-1], [15]), (TOGETHER[:1] * 2 + DATES[1:2], [10, 5])),
        *(
            (APART, [5, 5, 5]),
            (ZONES, [5, 5, 5]),
            (DATES, [5, 5, 5]),
            (("", "", "once"), [5, 5, 5]),
        ),
    ]:
        assert [len(group.medians_s) for group in sittings(on_days(make, *days))] == sizes, days
    # A node measures all of its devices at once.
    groups = [
        replace(group, device=f"GPU-{number}")
        for number, group in enumerate(on_days(make, *TOGETHER))
    ]
    assert sittings(groups) == tuple(groups)


def between(groups, prior):
    return session_spread(ONE, groups, process_spread(ONE, groups, prior), prior)


def test_what_few_sessions_tell_is_joined_with_the_least_spread_that_is_assumed(
    make,
):
    """As four degrees of freedom: two that agree, which tell a variance of nothing, add one."""
    for kind, (count, why) in itertools.product(
        ("device", "host"), [(1, "prior, recorded in one sitting"), (2, "prior, 2 sessions")]
    ):
        found = between(on_days(make, *APART[:count]), priors()[kind])
        assert found.value == pytest.approx(
            math.sqrt(4 * (2 * priors()[kind].session) ** 2 / (4 + count - 1))
        )
        assert (found.origin, found.freedom) == (why, 4 + count - 1)
    # An estimate from three sessions is zero half of the time, also where they differ; believed, it cries wolf.
    for sessions in (3, 14):
        found = between(make.groups(sessions), DEVICE_PRIOR)
        assert found.value == pytest.approx(
            math.sqrt(4 * DEVICE_PRIOR.session**2 / (4 + sessions - 1))
        )
        assert (found.freedom, found.origin) == (
            4 + sessions - 1,
            f"estimated, {sessions} sessions, with prior",
        )
    # What lies far apart is believed however few.
    for count in (2, 3):
        found = between(on_days(make, *APART[:count], session=0.05), DEVICE_PRIOR)
        assert found.value == pytest.approx(0.05)
        assert (found.origin, found.freedom) == (f"estimated, {count} sessions", 4 + count - 1)


def test_the_sessions_of_many_tests_tell_together_what_one_cannot(make):
    """As a spread and as a multiple of that between processes: a calm test is not charged with what noisy ones show."""
    tests = [make.groups(3, 5, process=0.01, session=0.02)] * ENOUGH_TESTS
    prior = lend(DEVICE_PRIOR, tests)
    assert prior.lent == pytest.approx((0.02, 2.0), rel=0.01)
    assert [prior.least_session(process) for process in (0.0001, 0.005, 1.0)] == pytest.approx(
        [0.005, 0.01, 0.02], rel=0.01
    )
    assert between(make.groups(3), prior).value == pytest.approx(
        math.sqrt(4 * 0.02**2 / 6), rel=0.05
    )
    assert lend(DEVICE_PRIOR, tests[1:]).lent == (0.0, 0.0)
    assert lend(DEVICE_PRIOR, [make.groups(3)] * 20).lent == (0.0, 0.0)
    # Each of another device: they tell nothing of how sessions differ.
    groups = [
        replace(group, device=f"GPU-{number}")
        for number, group in enumerate(make.groups(3, session=0.1))
    ]
    assert lend(DEVICE_PRIOR, [groups] * 20).lent == (0.0, 0.0)


def test_sessions_of_one_process_each_lend_what_lies_between_them_in_all(make):
    """It holds both spreads: lent as one of processes, it made that of sessions too small."""
    nightlies = make.groups(6, 1, process=0.03, session=0.04)
    prior = lend(DEVICE_PRIOR, [nightlies] * 20)
    # Smyth's formula for variances that are all the same, five degrees of freedom each, lent as ten.
    scores = [scipy.special.digamma(freedom / 2) - math.log(freedom / 2) for freedom in (5, 10)]
    assert prior.total.value == pytest.approx(math.sqrt(0.05**2 * math.exp(scores[1] - scores[0])))
    assert (prior.total.freedom, prior.process, prior.lent) == (
        10,
        DEVICE_PRIOR.process,
        (0.0, 0.0),
    )
    own = total_spread(make.groups(3, 1, process=0.01), prior)
    assert own.value == pytest.approx(math.sqrt((2 * 0.01**2 + 10 * prior.total.value**2) / 12))
    assert lend(DEVICE_PRIOR, [nightlies] * (ENOUGH_TESTS - 1)).total is None


def test_the_share_of_processes_in_another_mode_is_that_of_all_tests(make):
    for kind, above, share in [("device", 0.06, 0.1), ("device", 0.04, 0), ("host", 0.1, 0)]:
        tests = [[make.group(*[0.0] * 9, above)]] * ENOUGH_TESTS
        assert (
            lend(DEVICE_PRIOR, tests, kind).strange,
            lend(DEVICE_PRIOR, tests[1:], kind).strange,
        ) == (share, 0)


def test_new_processes_are_told_from_the_old_where_chance_is_no_excuse_for_their_spread(make):
    for factor, apart in [(1.0, False), (2.0, False), (5.0, True), (50.0, True)]:
        new, old = make.groups(1, 5, process=0.01 * factor), make.groups(1, 13)
        assert (
            (scipy.stats.f.sf(factor**2, 4, 12) <= 0.01) == apart == (unequal(new, old) is not None)
        ), factor
    # Where they agree better than the old, or are but three, they are pooled.
    assert unequal(make.groups(1, 9, process=0.0001), make.groups(1, 9, process=0.1)) is None
    assert unequal(make.groups(1, 3, process=1.0), make.groups(3, 5)) is None
    spreads = unequal(make.groups(1, 5, process=0.2), make.groups(1, 13))
    assert [(round(spread.value, 6), spread.freedom) for spread in spreads] == [
        (0.2, 4),
        (0.01, 12),
    ]


def inverse_chi_square(rng, tests, freedom, location, own):
    """Estimated variances of tests whose true ones are scaled inverse χ² with `freedom` around `location`²."""
    true = location**2 * freedom / rng.chisquare(freedom, tests)
    return [(float(square), own) for square in true * rng.chisquare(own, tests) / own]


def test_the_spreads_of_many_tests_tell_how_those_of_tests_differ():
    for freedom in [3.0, 6.0]:
        estimates = inverse_chi_square(np.random.default_rng(7), 4000, freedom, 0.02, own=12)
        found = borrow(DEVICE_PRIOR, estimates)
        assert (found.process, found.freedom) == (
            pytest.approx(0.02, rel=0.05),
            pytest.approx(freedom, rel=0.1),
        )
        assert (found.borrowed, found.origin) == (True, "prior of 4000 tests"), freedom


def test_tests_that_spread_alike_lend_their_process_spread_and_do_not_claim_that_every_other_does():
    found = borrow(DEVICE_PRIOR, [(0.03**2, 14)] * 20)
    assert (found.session, found.device) == (DEVICE_PRIOR.session, DEVICE_PRIOR.device)
    assert found.freedom == MOST_BORROWED


def test_too_few_tests_lend_nothing():
    for estimates in [[(0.03**2, 14)] * (ENOUGH_TESTS - 1), [(0.0, 0)] * 50, []]:
        assert borrow(DEVICE_PRIOR, estimates) is DEVICE_PRIOR, estimates


def test_what_was_borrowed_is_joined_with_a_tests_own_spread(make):
    prior = Prior(0.01, 0.0, 0.04, freedom=6.0, origin="prior of 20 tests", borrowed=True)
    found = process_spread(ONE, make.groups(1, 5, process=0.03), prior)
    assert found.value == pytest.approx(math.sqrt((4 * 0.03**2 + 6 * 0.01**2) / 10))
    assert (found.freedom, found.origin) == (
        10,
        "estimated, 4 degrees of freedom, with prior of 20 tests",
    )
