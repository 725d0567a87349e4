"""A session that is strange in many tests is named and set aside there, and no honest one; rates are in tests/slow."""

import itertools

import numpy as np
import pytest

from pytest_roofline.core.verdicts import Group, OddSession
from pytest_roofline.stats.odd_sessions import odd_sessions

TESTS = 20


def day(place):
    return f"2020-11-{place + 1:02}T03:00:00Z"


def suite(factors, tests=TESTS, processes=5, device="GPU-1", seed=1, spread=0.003):
    """Tests by name, whose sessions take so many times as long.

    Args:
        factors: of each session, by how much all of its tests are slower; of a session that is odd a pair of that and
            in how many tests it is.
    """
    rng = np.random.default_rng(seed)
    drawn = {}
    for number in range(tests):
        groups = []
        for place, factor in enumerate(factors):
            by, strange = factor if isinstance(factor, tuple) else (factor, tests)
            times = np.exp(spread * rng.standard_normal(processes)) * (
                by if number < strange else 1
            )
            groups.append(Group(tuple(times.tolist()), device, day(place)))
        drawn[f"t{number}"] = tuple(groups)
    return drawn


def names(count):
    return frozenset(f"t{number}" for number in range(count))


def odd_days(tests, kind="device"):
    """Return when each odd session began, and in how many tests it is strange."""
    odd = odd_sessions(tests, dict.fromkeys(tests, kind))
    assert [session.strange for session in odd] == list(map(len, odd.values()))
    return [(session.started, session.strange) for session in odd]


def test_a_session_that_is_slower_in_many_tests_is_named_with_these_tests_alone():
    for place, count, (sessions, processes) in itertools.product(
        (0, 2), (5, 8, 10), ((3, 5), (3, 1), (14, 1))
    ):
        factors = [1.0] * sessions
        factors[place] = (1.2, count)
        tests = suite(factors, processes=processes)
        ((odd, strange),) = odd_sessions(tests, dict.fromkeys(tests, "device")).items()
        assert (odd.device, odd.started, strange, odd.measured) == (
            *("GPU-1", day(place)),
            *(names(count), TESTS),
        )
        assert odd.change == pytest.approx(0.2, abs=0.01)
    tests = suite([1.0, (0.8, 6), 1.0])
    (faster,) = odd_sessions(tests, dict.fromkeys(tests, "device"))
    assert faster.change == pytest.approx(-0.2, abs=0.01)


def test_a_session_that_is_slower_in_all_tests_is_not_odd_and_hides_none_that_is():
    assert odd_days(suite([1.0, 1.2, 1.0])) == []
    assert odd_days(suite([1.0, 1.2, (1.2, 6)])) == [(day(2), 6)]
    assert odd_days(suite([0.9, (1.2, 10), 1.1])) == [(day(1), 10)]


def test_few_tests_a_small_change_and_two_sessions_are_no_matter_of_the_session():
    assert odd_days(suite([1.0, 1.0, (1.2, 4)])) == []
    assert odd_days(suite([1.0, 1.0, (1.2, 5)], tests=51)) == []
    assert odd_days(suite([1.0, 1.0, (1.2, 5)], tests=50)) == [(day(2), 5)]
    assert odd_days(suite([1.0, 1.0, (1.04, 6)])) == []
    assert odd_days(suite([1.0, (1.2, 6)])) == []
    assert odd_days({}) == []


def test_sessions_of_a_host_and_noisy_ones_may_lie_further_apart():
    tests = suite([1.0, 1.0, (1.14, 6)], spread=0.001)
    assert [odd_days(tests), odd_days(tests, "host")] == [[(day(2), 6)], []]
    assert odd_days(suite([1.0, 1.0, (1.3, 6)], spread=0.001), "host") == [(day(2), 6)]
    assert odd_days(suite([1.0, 1.0, (1.2, 6)], spread=0.15)) == []


def test_where_no_majority_of_sessions_agrees_none_is_odd():
    # Two camps: nobody can tell which is right.
    assert odd_days(suite([1.0, 1.0, (1.2, 6), (1.2, 6)])) == []
    # Sessions that each differ in tests of their own simply differ.
    several = suite([1.0] * 8)
    for place, first in ((0, 0), (1, 5), (2, 10)):
        slow = suite([(1.2, TESTS) if at == place else 1.0 for at in range(8)])
        several |= {name: slow[name] for name in list(slow)[first : first + 5]}
    assert odd_days(several) == []
    # Two of eight are the most that may be odd, one of seven.
    two = several | {name: suite([1.0] * 8)[name] for name in list(several)[10:15]}
    assert sorted(odd_days(two)) == [(day(0), 5), (day(1), 5)]
    assert odd_days({name: groups[:7] for name, groups in two.items()}) == []


def test_each_device_is_held_against_itself():
    known = suite([1.0, 1.0, 1.0])
    slower = suite([1.1, 1.1, 1.1], device="GPU-2")
    assert odd_days({name: known[name] + slower[name] for name in known}) == []
    odd = suite([1.1, (1.4, 6), 1.1], device="GPU-2")
    ((session, strange),) = odd_sessions(
        {name: known[name] + odd[name] for name in known}, dict.fromkeys(known, "device")
    ).items()
    assert (session.device, strange) == ("GPU-2", names(6))
    # One session on each of three devices says nothing of sessions.
    alone = [suite([1.0, 1.0, (1.2, 6)], device=f"GPU-{place}") for place in range(3)]
    assert odd_days({name: tuple(alone[at][name][at] for at in range(3)) for name in known}) == []


def test_sessions_without_a_date_cannot_be_named_and_those_of_one_moment_are_one():
    tests = suite([1.0, 1.0, 1.0, (1.2, 6)])
    undated = {
        name: (*groups[:3], Group(groups[3].medians_s, "GPU-1")) for name, groups in tests.items()
    }
    assert odd_days(undated) == []
    split = {
        name: (*groups, Group(groups[3].medians_s, "GPU-1", day(3)))
        for name, groups in tests.items()
    }
    assert odd_days(split) == [(day(3), 6)]


def test_tests_of_other_days_and_those_that_missed_one_have_their_sessions_named_too():
    first, second = suite([1.0, 1.0, (1.2, 6)]), suite([1.0, (1.3, 5), 1.0], seed=2)
    later = {
        f"later {name}": tuple(
            Group(group.medians_s, "GPU-1", group.started.replace("-11-", "-12-"))
            for group in groups
        )
        for name, groups in second.items()
    }
    assert sorted(odd_days(first | later)) == [(day(2), 6), (day(1).replace("-11-", "-12-"), 5)]
    nights = suite([1.0, 1.0, 1.0, 1.0, (1.2, 6)])
    missed = {
        name: groups[:place] + groups[place + 1 :]
        for (name, groups), place in zip(nights.items(), itertools.cycle(range(4)), strict=False)
    }
    assert odd_days(missed) == [(day(4), 6)]


def test_a_session_is_told_by_its_day_with_another_year_than_this():
    session = OddSession("GPU-1", "2020-11-03T03:00:00Z", 110, 221, 0.204)
    assert session.text == "session of 3 Nov 2020: 110 of 221 tests are 20 % slower"
    faster = OddSession("", "one night", 6, 20, -0.1)
    assert faster.text == "session of one night: 6 of 20 tests are 10 % faster"
