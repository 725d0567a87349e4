"""Runs of unchanged code pass; one that lies apart is named, and never the honest ones beside it."""

import math
import random

import pytest

from pytest_roofline.baselines.disagreement import Sessions, runs_apart, sessions_apart
from pytest_roofline.stats.spread import Group, priors

DEVICE = priors()["device"]


def day(number):
    return f"2026-01-{number + 1:02d}T03:00:00Z"


def sessions(make, *medians, benchmark="copy", device="GPU-1", host=False):
    """One test, measured by run r0, r1, …: each a number or the several processes of a session, in seconds."""
    hardware = make.hardware(partition="8-cores") if host else make.hardware()
    groups = {
        f"r{number}": Group(value if isinstance(value, tuple) else (value,), device, day(number))
        for number, value in enumerate(medians)
        if value is not None
    }
    return Sessions(make.key(benchmark, hardware=hardware), groups)


def suite(make, *factors, tests=12, processes=1):
    """Tests of a tenth of a second to more than one, with every run slower or faster by its factor."""
    return [
        sessions(
            make,
            *[tuple([(0.1 + 0.1 * number) * factor] * processes) for factor in factors],
            benchmark=f"test{number}",
        )
        for number in range(tests)
    ]


def names(apart):
    return [one.run_id for one in apart]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 14])
def test_runs_that_agree_to_the_last_tick_agree(make, count):
    assert runs_apart(suite(make, *[1.0] * count)) == []


def test_medians_that_agree_to_the_last_tick_do_not_make_a_percent_a_disagreement(make):
    """The spread between processes comes out as nothing; sessions differ by more than that all the same."""
    assert runs_apart(suite(make, 1.0, 1.0, 1.0, 1.0, 1.01, processes=5)) == []


@pytest.mark.parametrize("processes", [1, 5])
@pytest.mark.parametrize("factor", [1.2, 1 / 1.2])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_one_of_three_that_is_off_is_named_alone(make, place, factor, processes):
    factors = [1.0, 1.004, 0.997]
    factors[place] *= factor
    (apart,) = runs_apart(suite(make, *factors, processes=processes))
    assert apart.run_id == f"r{place}"
    assert apart.estimate == pytest.approx(math.log(factor), abs=0.01)
    assert (apart.tests, apart.others) == (12, 2)
    assert abs(apart.errors) > 4


def test_two_runs_that_disagree_are_one_finding_over_all_tests(make):
    (apart,) = runs_apart(suite(make, 1.0, 1.2))
    assert (apart.tests, apart.others) == (12, 1)


def test_several_that_are_off_are_named_worst_first(make):
    assert names(runs_apart(suite(make, 1.0, 1.003, 0.998, 1.001, 1.0, 2.0, 1.3))) == ["r5", "r6"]


def test_one_slow_test_does_not_make_its_run_an_odd_one(make):
    tests = [*suite(make, 1.0, 1.0, 1.0, 1.0), sessions(make, 1.0, 1.0, 1.0, 2.0)]
    assert runs_apart(tests) == []


def test_runs_that_share_no_test_cannot_disagree(make):
    tests = [sessions(make, 1.0, None, benchmark="a"), sessions(make, None, 9.0, benchmark="b")]
    assert (runs_apart(tests), sessions_apart(tests)) == ([], [None, None])


def test_nothing_at_all_agrees(make):
    assert (runs_apart([]), sessions_apart([])) == ([], [])


def test_a_cpu_may_spread_further_than_a_gpu(make):
    assert runs_apart([sessions(make, 1.0, 1.3, host=True)]) == []
    assert names(runs_apart([sessions(make, 1.0, 1.3)])) != []


def test_another_device_of_the_same_kind_may_be_a_few_percent_off(make):
    groups = {"r0": Group((1.0,), "GPU-1"), "r1": Group((1.0,), "GPU-1"), "r2": Group((1.07,), "GPU-2")}
    same = {name: Group(group.medians_s, "GPU-1") for name, group in groups.items()}
    apart = [runs_apart([Sessions(make.key(f"t{i}"), held) for i in range(5)]) for held in (groups, same)]
    assert [names(found) for found in apart] == [[], ["r2"]]


def test_a_session_is_held_against_those_on_its_own_device(make):
    """Two devices lie ten percent apart; what is new on the second is compared with the second."""
    groups = {f"r{i}": Group((1.0 if i < 3 else 1.1,), f"GPU-{i // 3}") for i in range(6)}
    assert runs_apart([Sessions(make.key(f"t{i}"), groups) for i in range(5)]) == []


def test_a_single_test_with_one_session_far_out_is_named(make):
    tests = [*suite(make, 1.0, 1.0, 1.0, 1.0), sessions(make, 1.0, 1.002, 1.001, 1.4)]
    *others, found = sessions_apart(tests)
    assert others == [None] * 12
    assert found is not None
    assert (found.run_id, found.tests, found.others) == ("r3", 1, 3)
    assert found.estimate == pytest.approx(math.log(1.4), abs=0.01)


def test_a_single_session_has_nothing_to_disagree_with(make):
    assert sessions_apart([sessions(make, 1.0)]) == [None]


def honest(make, dice, runs, tests, processes, *, shared=False, process=DEVICE.process, session=DEVICE.session):
    """Runs of unchanged code, spread as the model says; `shared` sessions move all tests together."""
    together = [dice.gauss(0, session) for _ in range(runs)]
    return [
        sessions(
            make,
            *[
                tuple(
                    math.exp(own + dice.gauss(0, process))
                    for own in [together[run] if shared else dice.gauss(0, session)]
                    for _ in range(processes)
                )
                for run in range(runs)
            ],
            benchmark=f"test{number}",
        )
        for number in range(tests)
    ]


@pytest.mark.parametrize(
    ("runs", "tests", "processes", "shared", "times"),
    [
        (14, 1, 1, False, 300),
        (14, 8, 1, True, 60),
        (14, 3, 3, True, 100),
        (2, 1, 1, False, 600),
        (3, 4, 1, True, 300),
        (5, 1, 1, False, 400),
        (5, 4, 5, True, 200),
    ],
)
def test_honest_runs_pass(make, runs, tests, processes, shared, times):
    """At most one in a hundred is refused; the bound leaves room for what chance does to so many tries."""
    dice = random.Random(1)
    tried = [honest(make, dice, runs, tests, processes, shared=shared) for _ in range(times)]
    assert sum(bool(runs_apart(one)) for one in tried) <= 0.01 * times
    assert sum(any(sessions_apart(one)) for one in tried) <= 0.01 * times


def test_honest_runs_of_a_test_that_spreads_widely_pass(make):
    dice = random.Random(2)
    tried = [honest(make, dice, 5, 2, 1, process=0.059) for _ in range(300)]
    assert sum(bool(runs_apart(one)) for one in tried) <= 3


def test_a_run_that_is_a_tenth_off_among_honest_ones_is_found(make):
    dice, found = random.Random(3), 0
    for _ in range(50):
        tests = honest(make, dice, 5, 6, 1, shared=True)
        slow = [
            Sessions(
                test.key, dict(test.groups) | {"r2": Group((test.groups["r2"].medians_s[0] * 1.15,), "GPU-1", day(2))}
            )
            for test in tests
        ]
        found += names(runs_apart(slow)) == ["r2"]
    assert found >= 45
