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

from pytest_roofline.core.verdicts import Group
from pytest_roofline.stats.analyses import fewest_red
from pytest_roofline.stats.spread import (
    ENOUGH_TESTS,
    LEAST_SPREAD,
    MOST_BORROWED,
    Prior,
    between_sessions,
    borrow,
    class_of,
    join_days,
    lend,
    priors,
    within,
)
from pytest_roofline.stats.stats import spreads_of

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


def test_the_spreads_of_a_balanced_design_are_those_of_a_mixed_model_and_of_a_one_way_analysis(
    make,
):
    for seed, shape in itertools.product(range(3), [(3, 5), (8, 3)]):
        logs, groups = drawn(make, seed, *shape)
        spreads = spreads_of(ONE, groups, NO_FLOOR)
        expected = mixed_model(logs)
        assert expected[1] > 0.002
        assert (spreads.process.value, spreads.own_session) == pytest.approx(expected, rel=1e-3), (
            seed,
            shape,
        )
        mean_square, freedom, processes = between_sessions(groups)
        f = scipy.stats.f_oneway(*logs).statistic
        assert mean_square / (within(groups)[0] / within(groups)[1]) == pytest.approx(f)
        assert (freedom, processes) == (shape[0] - 1, pytest.approx(shape[1]))


def test_sessions_that_differ_less_than_processes_tell_of_no_spread_between_them(make):
    logs, _ = drawn(make, 3, 4, 5, session=0.0)
    logs -= logs.mean(axis=1, keepdims=True)
    groups = [make.group(*row, started=f"2026-01-{day:02d}") for day, row in enumerate(logs, 1)]
    spreads = spreads_of(ONE, groups, NO_FLOOR)
    assert spreads.own_session == 0.0
    assert spreads.process.value == pytest.approx(math.sqrt(np.sum(logs**2) / (4 * (5 - 1))))
    # A fifth of what processes differ by is believed of sessions all the same.
    assert spreads.session.value == pytest.approx(spreads.process.value / 5)


def test_an_unbalanced_design_is_estimated_by_the_analysis_of_variance(make):
    rows = [make.spaced(2, 0.01), make.spaced(5, 0.01, 0.04), make.spaced(3, 0.01, 0.01)]
    groups = [make.group(*row, started=f"2026-01-{day:02d}") for day, row in enumerate(rows, 1)]
    counts, means = np.array([2, 5, 3]), np.array([0.0, 0.04, 0.01])
    squares = np.sum(counts * (means - np.average(means, weights=counts)) ** 2) / 2
    typical = (10 - np.sum(counts**2) / 10) / 2
    spreads = spreads_of(ONE, groups, NO_FLOOR)
    assert spreads.process.value == pytest.approx(0.01)
    assert spreads.own_session == pytest.approx(math.sqrt((squares - 0.01**2) / typical))


def test_what_lies_between_devices_is_no_spread_between_sessions(make):
    here, there = (
        make.groups(4, session=0.02),
        make.groups(4, session=0.02, centre=0.5, device="GPU-2"),
    )
    assert between_sessions([*here, *there])[0] == pytest.approx(between_sessions(here)[0])


def test_new_and_old_processes_are_pooled_by_their_degrees_of_freedom(make):
    old, new = make.groups(1, 6, process=0.02), make.groups(1, 3, process=0.01)
    expected = math.sqrt((5 * 0.02**2 + 2 * 0.01**2) / 7)
    assert spreads_of(new, old, NO_FLOOR).process.value == pytest.approx(expected)
    # The distance between the sides is none of it.
    old = make.groups(1, 5)
    near, far = (
        spreads_of(make.groups(1, 5, centre=centre), old, NO_FLOOR).process for centre in (0.0, 3.0)
    )
    assert near.value == pytest.approx(far.value) == pytest.approx(0.01)


# docs/authors/verdicts.md: three sessions or more of several processes.
@pytest.mark.parametrize("session", [0.0, 0.004, 0.03])
@pytest.mark.parametrize("sizes", [(5, 5, 5), (2, 6, 3, 4)])
def test_many_sessions_tell_their_spread_joined_with_the_least_and_never_below_it(
    make, sizes, session
):
    rng = np.random.default_rng(5)
    rows = [session * rng.standard_normal() + 0.01 * rng.standard_normal(count) for count in sizes]
    new = 0.01 * rng.standard_normal(3)
    reference = [make.group(*row, started=f"2026-01-{day:02d}") for day, row in enumerate(rows, 1)]
    spreads = spreads_of([make.group(*new)], reference, DEVICE_PRIOR)

    freedom = sum(sizes) - len(sizes) + 2
    process = joined(sum(np.var(row) * len(row) for row in [*rows, new]), freedom)
    assert (spreads.process.value, spreads.new) == (pytest.approx(process), spreads.process)

    counts, means = np.array(sizes), np.array([row.mean() for row in rows])
    around = means - np.average(means, weights=counts)
    between, total = len(sizes) - 1, counts.sum()
    typical = (total - np.sum(counts**2) / total) / between
    shown = max(0.0, np.sum(counts * around**2) / between - process**2) / typical
    least = max(0.005, process / 4)
    mixed = (between * shown + 4 * least**2) / (between + 4)
    assert spreads.session.value == pytest.approx(max(least, math.sqrt(mixed)))
    assert (spreads.session.freedom, spreads.known) == (between + 4, 0.005)
    assert spreads.session.origin == f"estimated, {len(sizes)} sessions, with prior"


# docs/authors/verdicts.md: 0.75 %, of a CPU 4.5 %, or what they show if that is more.
def test_of_one_or_two_sessions_half_as_much_again_is_assumed_or_what_they_show(make):
    for kind, assumed in [("device", 0.0075), ("host", 0.045)]:
        for count, why in [(1, "prior, recorded within six hours"), (2, "prior, 2 sessions")]:
            session = spreads_of(ONE, make.groups(count), priors()[kind]).session
            assert (session.value, session.origin) == (pytest.approx(assumed), why)
            assert session.freedom == 4 + count - 1
    process = joined(8 * 0.01**2, 8)
    session = spreads_of(ONE, make.groups(2, 5, session=0.05), DEVICE_PRIOR).session
    assert session.value == pytest.approx(math.sqrt(0.05**2 + (0.01**2 - process**2) / 5))
    assert session.origin == "estimated, 2 sessions"


def test_few_sittings_are_held_against_the_new_processes_own_spread_where_that_is_larger(make):
    """A quiet sitting says nothing of a day on which processes spread three times as far."""
    for sessions in (1, 2):
        reference = make.groups(sessions, 5, process=0.01, session=0.02)
        for spread, apart in [(0.003, False), (0.03, True)]:
            spreads = spreads_of(make.groups(1, 5, process=spread), reference, DEVICE_PRIOR)
            squares = 4 * spread**2 + sessions * 4 * 0.01**2
            pooled = joined(squares, 4 + sessions * 4)
            assert spreads.process.value == pytest.approx(pooled)
            assert spreads.new.value == pytest.approx(spread if apart else pooled)
            assert (spreads.new is spreads.process) == (not apart)
    assert (spreads.new.freedom, spreads.new.origin) == (4, "estimated, new processes")
    # Three days have seen how processes spread.
    spreads = spreads_of(make.groups(1, 5, process=0.03), make.groups(3, session=0.02), NO_FLOOR)
    assert spreads.new is spreads.process


# docs/authors/verdicts.md: one process a session.
def test_sessions_of_one_process_each_hold_both_spreads_in_one(make):
    nights = make.groups(14, 1, process=0.03, session=0.04)
    spreads = spreads_of(ONE, nights, DEVICE_PRIOR)
    assert (spreads.process.value, spreads.process.freedom) == (pytest.approx(0.05), 13)
    assert (spreads.session.value, spreads.alone) == (0.0, True)
    assert "sessions of one process" in spreads.process.origin
    # Once a session has a second process, an eighth of it lies between sessions.
    assert spreads.hidden == pytest.approx(0.05 * math.sqrt(1 / 8))


def test_of_several_new_processes_in_a_session_an_eighth_lies_between_sessions(make):
    nights = make.groups(14, 1, process=0.03, session=0.04)
    new = make.groups(1, 4, process=0.05)
    spreads = spreads_of(new, nights, DEVICE_PRIOR)
    assert (spreads.process.value, spreads.process.freedom) == (pytest.approx(0.05), 16)
    assert spreads.session.value == spreads.known == pytest.approx(0.05 * math.sqrt(1 / 8))
    # At least what is believed of any sessions.
    calm = spreads_of(make.groups(1, 4), make.groups(14, 1, process=0.01), DEVICE_PRIOR)
    assert (calm.session.value, calm.hidden) == (0.005, 0.0)


def test_new_processes_that_agree_too_well_say_that_the_nights_lie_apart(make):
    nights = make.groups(14, 1, process=0.03, session=0.04)
    for spread in (0.045, 0.03, 0.02, 0.01):
        apart = scipy.stats.f.sf(0.05**2 / spread**2, 13, 3) < 0.2
        spreads = spreads_of(make.groups(1, 4, process=spread), nights, DEVICE_PRIOR)
        pooled = math.sqrt((13 * 0.05**2 + 3 * spread**2) / 16)
        expected = math.sqrt(0.05**2 - spread**2) if apart else pooled * math.sqrt(1 / 8)
        assert spreads.session.value == pytest.approx(expected), spread
        assert spreads.process.value == pytest.approx(pooled), spread
    assert apart


def test_new_nights_of_one_process_each_are_pooled_with_the_nights_of_the_baseline(make):
    nights, new = make.groups(14, 1, process=0.03), make.groups(3, 1, process=0.06, centre=1.0)
    spreads = spreads_of(new, nights, DEVICE_PRIOR)
    assert spreads.process.value == pytest.approx(math.sqrt((13 * 0.03**2 + 2 * 0.06**2) / 15))
    assert (spreads.session.value, spreads.hidden) == (0.0, 0.0)


def test_a_tests_own_spread_is_joined_with_the_prior_unless_chance_rules_that_out_and_says_so(make):
    for processes, spread in itertools.product([2, 3, 6, 15], [0.001, 0.01, 0.015, 0.03, 0.1]):
        process = spreads_of(ONE, make.groups(1, processes, process=spread), DEVICE_PRIOR).process
        expected = joined((processes - 1) * spread**2, processes - 1)
        assert process.value == pytest.approx(expected), (processes, spread)
    for processes, spread, origin, freedom in [
        (1, 0.0, "prior", 4),
        (5, 0.01, "estimated, 4 degrees of freedom, with prior", 8),
        (5, 0.05, "estimated, 4 degrees of freedom", 4),
    ]:
        process = spreads_of(ONE, make.groups(1, processes, process=spread), DEVICE_PRIOR).process
        assert (process.origin, process.freedom) == (origin, freedom)
    # Medians that agree to the tick are not believed to have no spread.
    alike = make.groups(1, 5, process=0.0)
    assert spreads_of(ONE, alike, DEVICE_PRIOR).process.value == pytest.approx(joined(0.0, 4))
    assert spreads_of(ONE, alike, NO_FLOOR).process.value == LEAST_SPREAD


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
        assert [len(group.medians_s) for group in join_days(on_days(make, *days))] == sizes, days
    # A node measures all of its devices at once.
    groups = [
        replace(group, device=f"GPU-{number}")
        for number, group in enumerate(on_days(make, *TOGETHER))
    ]
    assert join_days(groups) == tuple(groups)


def many(make, seed, tests=60, odd=0, session=0.01, process=0.01):
    """Three sessions of five processes of each test; in `odd` of the tests the last one takes a fifth longer."""
    rng = np.random.default_rng(seed)
    logs = session * rng.standard_normal((tests, 3, 1)) + process * rng.standard_normal(
        (tests, 3, 5)
    )
    logs[:odd, 2] += math.log(1.2)
    return [
        [make.group(*row, started=f"2026-01-{day:02d}") for day, row in enumerate(test, 1)]
        for test in logs
    ]


def test_the_sessions_of_many_tests_tell_together_what_one_cannot(make):
    """As a spread and as a multiple of that between processes: a calm test is not charged with what noisy ones show."""
    tests = many(make, 3, 1000, session=0.02)
    prior = lend(DEVICE_PRIOR, tests)
    assert prior.lent == pytest.approx((0.02, 2.0), rel=0.05)
    absolute, relative = prior.lent
    for process in (0.0001, 0.005, 0.01, 1.0):
        least = max(0.005, process / 5, math.sqrt(absolute * relative * process))
        assert prior.least_session(process) == pytest.approx(least), process
    calm = spreads_of(ONE, make.groups(3), prior)
    assert calm.session.value == pytest.approx(prior.least_session(calm.process.value))
    assert lend(DEVICE_PRIOR, tests[: ENOUGH_TESTS - 1]).lent == (0.0, 0.0)
    assert lend(DEVICE_PRIOR, [make.groups(3)] * 20).lent == (0.0, 0.0)
    # Each of another device: they tell nothing of how sessions differ.
    groups = [
        replace(group, device=f"GPU-{number}")
        for number, group in enumerate(make.groups(3, session=0.1))
    ]
    assert lend(DEVICE_PRIOR, [groups] * 20).lent == (0.0, 0.0)


def test_an_odd_session_in_a_tenth_of_the_tests_moves_what_the_others_are_lent_by_less_than_a_fifth(
    make,
):
    for process in (0.005, 0.01, 0.02):
        ratios = []
        for seed in range(10):
            calm, odd = (lend(DEVICE_PRIOR, many(make, seed, odd=count)) for count in (0, 6))
            ratios.append(odd.least_session(process) / calm.least_session(process))
        assert np.median(ratios) <= 1.2, process
        assert max(ratios) <= 1.3, process


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
    own = spreads_of(ONE, make.groups(3, 1, process=0.01), prior).process
    assert own.value == pytest.approx(math.sqrt((2 * 0.01**2 + 10 * prior.total.value**2) / 12))
    assert lend(DEVICE_PRIOR, [nightlies] * (ENOUGH_TESTS - 1)).total is None


def test_the_share_of_processes_in_another_mode_is_that_of_all_tests(make):
    for kind, above, share in [("device", 0.06, 0.1), ("device", 0.04, 0), ("host", 0.1, 0)]:
        tests = [[make.group(*[0.0] * 9, above)]] * ENOUGH_TESTS
        assert (
            lend(DEVICE_PRIOR, tests, kind).strange,
            lend(DEVICE_PRIOR, tests[1:], kind).strange,
        ) == (share, 0)


def test_a_process_is_in_another_mode_by_the_scale_of_its_own_test(make):
    """What is noisy is not bimodal: one noisy test in twenty asks no more processes of the others."""
    rng = np.random.default_rng(2)
    tests = [[make.group(*0.01 * rng.standard_normal(15))] for _ in range(19)]
    noisy = [[make.group(*0.2 * rng.standard_normal(15))]]
    assert lend(DEVICE_PRIOR, tests + noisy).strange == 0
    # Four of a test's own standard deviations above its middle, by its median absolute deviation.
    logs = np.arange(-4, 5) * 0.015
    middle = float(np.median([*logs, 1.0]))
    border = 4 * float(scipy.stats.median_abs_deviation([*logs, 1.0], scale="normal"))
    for above, share in [(0.99 * border, 0), (1.01 * border, 1 / 10)]:
        tests = [[make.group(*logs, middle + above)]] * 20
        assert lend(DEVICE_PRIOR, tests).strange == pytest.approx(share), above
    modes = [[make.group(*[0.0] * 8, 0.1, 0.1)]] * 20
    assert fewest_red(15, lend(DEVICE_PRIOR, modes).strange) == math.ceil(
        math.log(4000) / math.log(5)
    )


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
    found = spreads_of(ONE, make.groups(1, 5, process=0.03), prior).process
    assert found.value == pytest.approx(math.sqrt((4 * 0.03**2 + 6 * 0.01**2) / 10))
    assert (found.freedom, found.origin) == (
        10,
        "estimated, 4 degrees of freedom, with prior of 20 tests",
    )
