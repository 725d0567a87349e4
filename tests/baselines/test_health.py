"""What stands behind an entry, how little it finds, and when that makes it provisional."""

import math

import pytest

from pytest_roofline.baselines.checks import health_of, provisional
from pytest_roofline.core.entries import Session
from pytest_roofline.stats.spread import Prior, priors
from pytest_roofline.stats.stats import quantile

PRIOR = Prior(process=0.01, session=0.005, device=0.04)


def session(number, *medians, device="GPU-1", hours=24, driver="570.86"):
    day, hour = divmod(number * hours, 24)
    started = f"2026-01-{1 + day:02d}T{hour:02d}:00:00Z"
    return Session(f"run-{number}", started, medians or (1.0,), device, {"driver": driver})


def entry(make, *sessions, **changes):
    return make.measured(sessions=sessions, **changes)


def nights(*medians, **changes):
    return [session(number, *values, **changes) for number, values in enumerate(medians)]


def mde(make, *sessions, prior=PRIOR):
    (health,) = health_of([entry(make, *sessions)])
    return health.mde


def test_one_process_of_one_session_finds_what_the_prior_allows(make):
    """One process against one, each in a session of its own: 2 (σ_p² + σ_s²), σ_s being twice the least believed."""
    error = math.sqrt(2 * (0.01**2 + 0.01**2))
    # Satterthwaite: two equal parts, each known by four degrees of freedom.
    freedom = 8
    expected = math.expm1((quantile(0.99, freedom) + quantile(0.8, freedom)) * error)
    assert mde(make, session(0)) == pytest.approx(expected)


def test_more_sessions_find_less_of_a_slowdown(make):
    steady = [(1.0, 1.004), (1.003, 0.999), (0.998, 1.001)]
    found = [mde(make, *nights(*steady[:count])) for count in (1, 2, 3)]
    assert found == sorted(found, reverse=True)
    assert found[2] < found[0] / 2


def test_sessions_far_apart_find_little(make):
    assert mde(make, *nights((1.0,), (1.3,), (0.8,), (1.1,))) > 0.5


def test_the_device_that_is_known_best_is_meant(make):
    """A second device that is far off must not hide how well the first is known."""
    steady = nights((1.0, 1.004), (1.003, 0.999), (0.998, 1.001))
    alone, both = mde(make, *steady), mde(make, *steady, session(9, 1.2, device="GPU-2"))
    assert both == pytest.approx(alone, rel=0.2)


STEADY = [(1.0, 1.004), (1.003, 0.999), (0.998, 1.001)]


@pytest.mark.parametrize(
    ("sessions", "tolerance", "few", "blind"),
    [
        ([(1.0,)], 0.05, "1 of 3 sessions", True),
        ([(1.0,)], 0.5, "1 of 3 sessions", False),
        ([(1.0, 1.004, 0.998)] * 2, 0.05, "2 of 3 sessions", False),
        (STEADY, 0.05, "", False),
        (STEADY, 0.001, "", True),
        ([(1.0,), (1.2,), (0.9,)], 0.05, "", True),
    ],
)
def test_few_sessions_or_a_blind_tolerance_make_an_entry_provisional(make, sessions, tolerance, few, blind):
    held = nights(*sessions)
    found = f"finds {mde(make, *held) * 100:.1f} %, its tolerance is {tolerance * 100:g} %" if blind else ""
    expected = "; ".join(part for part in (few, found) if part)
    assert provisional(entry(make, *held), tolerance, PRIOR) == expected
    assert (mde(make, *held) > tolerance) == blind


def test_a_published_figure_is_never_provisional(make):
    assert provisional(make.published(), 0.05, PRIOR) == ""


def test_health_tells_what_stands_behind_an_entry(make):
    sessions = [
        session(0, 1e-3, 1.004e-3, 0.996e-3, driver="550.54"),
        session(1, 1e-3, 1.003e-3, 0.997e-3),
        session(2, 1e-3, device="GPU-2"),
    ]
    (health,) = health_of([entry(make, *sessions)])
    assert health.time_s == pytest.approx(1e-3, rel=1e-4)
    assert health.rate == pytest.approx(2 * 64 * 2**20 / 1e-3, rel=1e-4)
    assert (health.devices, health.drivers, health.newest) == (2, ("550.54", "570.86"), "2026-01-03T00:00:00Z")
    assert health.provisional == ""


def test_spreads_say_where_they_come_from(make):
    (health,) = health_of([entry(make, session(0))])
    assert (health.process.origin, health.session.origin) == ("prior", "prior, recorded in one sitting")


def test_the_newest_session_is_found_wherever_it_stands(make):
    first, second = session(0), session(5)
    (health,) = health_of([entry(make, second, first)])
    assert health.newest == second.started


def test_without_any_date_there_is_no_newest(make):
    (health,) = health_of([entry(make, Session("r", "once", (1.0,)))])
    assert health.newest == ""


@pytest.mark.parametrize(("own", "given", "expected"), [(None, 0.05, 0.05), (None, 0.2, 0.2), (0.1, 0.2, 0.1)])
def test_an_entrys_own_tolerance_comes_first(make, own, given, expected):
    (health,) = health_of([entry(make, session(0), tolerance=own)], given)
    assert health.tolerance == expected
    assert ("tolerance" in health.provisional) == (health.mde > expected)


def test_published_figures_have_no_health(make):
    assert health_of([make.published()]) == []


def test_many_entries_tell_each_other_how_far_processes_lie_apart(make):
    """Ten tests that hardly spread make an eleventh of one process better known than the prior alone does."""
    steady = [
        make.measured(key=make.key(f"t{number}"), sessions=nights((1.0, 1.001), (1.002, 1.0), (0.999, 1.001)))
        for number in range(10)
    ]
    alone, among = (health_of([*others, entry(make, session(0))])[-1] for others in ([], steady))
    assert among.mde < alone.mde
    assert among.process.value < alone.process.value / 5
    assert "prior of 10 tests" in among.process.origin


def test_a_cpu_is_assumed_to_spread_as_cpus_do(make):
    key = make.key(hardware=make.hardware(partition="8-cores"))
    (health,) = health_of([make.measured(1.0, key=key)])
    assert health.process.value == priors()["host"].process
