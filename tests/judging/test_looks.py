"""The chances of error that looks and tests are paid with: what is spent is what was claimed."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.judging.looks import (
    FALSE_IMPROVED,
    FALSE_PASS,
    FALSE_RED,
    FEWEST_RED,
    FEWEST_TESTS,
    MOST_ROUNDS,
    Looks,
    adjusted,
    boundaries,
    red_at_once,
    spent_p,
)

PATHS = 100_000
REFERENCES = (1, 5, 15)
MOST = (1, 3, 12)
p_values = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60)


def chance_of(shares):
    """Four standard errors of a share that is counted on so many paths."""
    return 4 * np.sqrt(shares * (1 - shares) / PATHS)


def statistics(most, reference, seed=11):
    """[paths, looks]: the test statistic after each of `most` new processes of unchanged code, the spread known."""
    rng = np.random.default_rng(seed)
    new = np.cumsum(rng.standard_normal((PATHS, most)), axis=1) / np.arange(1, most + 1)
    old = rng.standard_normal((PATHS, 1)) / math.sqrt(reference)
    return (new - old) / np.sqrt(1 / np.arange(1, most + 1) + 1 / reference)


def first_crossings(scores, levels):
    """Of each look, the share of paths that cross there for the first time."""
    crossed = scores > scipy.stats.norm.isf(levels)
    first = crossed & (np.cumsum(crossed, axis=1) == 1)
    return first.mean(axis=0)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("exponent", [1.0, 3.0])
def test_the_boundaries_of_every_look_spend_what_they_claim(reference, exponent):
    information = 1 / (1 / np.arange(1, 9) + 1 / reference)
    spent = 0.05 * (information / information[-1]) ** exponent
    found = first_crossings(statistics(8, reference), scipy.stats.norm.sf(boundaries(spent, information)))
    due = np.diff(spent, prepend=0.0)
    assert np.all(np.abs(found - due) <= chance_of(due))


@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize(("level", "chance"), [("pass_level", FALSE_PASS), ("improved_level", FALSE_IMPROVED)])
def test_all_looks_together_pass_wrongly_as_often_as_was_allowed(most, reference, level, chance):
    looks = Looks(most)
    levels = [getattr(looks, level)(processes, reference) for processes in range(1, most + 1)]
    found = first_crossings(statistics(most, reference), levels).sum()
    assert found == pytest.approx(chance, abs=float(chance_of(chance)))


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("most", [1, 3, 12])
@pytest.mark.parametrize("reference", REFERENCES)
def test_all_looks_together_are_red_wrongly_no_more_often_than_was_allowed(most, reference, eager):
    looks = Looks(most, eager)
    levels = [FALSE_RED * looks.red_share(processes, reference) for processes in range(1, most + 1)]
    found = first_crossings(statistics(most, reference), levels).sum()
    assert FALSE_RED / 3 < found <= FALSE_RED + chance_of(FALSE_RED)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("most", [1, 2, 3, 5, 12, 40])
@pytest.mark.parametrize("reference", REFERENCES)
def test_the_shares_of_all_looks_are_the_whole(most, reference, eager):
    shares = [Looks(most, eager).red_share(processes, reference) for processes in range(1, most + 1)]
    assert min(shares) >= 0
    assert sum(shares) == pytest.approx(1.0)


@pytest.mark.parametrize("most", [3, 4, 12])
def test_where_more_processes_may_follow_nothing_is_red_before_three(most):
    shares = [Looks(most).red_share(processes, 15) for processes in range(1, most + 1)]
    assert [share > 0 for share in shares] == [False] * (FEWEST_RED - 1) + [True] * (most - FEWEST_RED + 1)


@pytest.mark.parametrize("looks", [Looks(1), Looks(1, eager=True), Looks(2, eager=True), Looks(12, eager=True)])
def test_red_is_possible_at_the_first_look_where_it_is_the_only_one_or_must_be(looks):
    assert looks.red_share(1, 15) > 0


def test_a_look_beyond_the_plan_is_held_to_the_last_ones_share():
    assert Looks(5).red_share(9, 15) == Looks(5).red_share(5, 15)
    assert Looks(5).pass_level(9, 15) == Looks(5).pass_level(5, 15)


@pytest.mark.parametrize("reference", REFERENCES)
def test_one_look_has_the_whole_chance(reference):
    looks = Looks()
    assert (looks.red_share(1, reference), looks.pass_level(1, reference)) == (1.0, pytest.approx(FALSE_PASS))
    assert looks.improved_level(1, reference) == pytest.approx(FALSE_IMPROVED)


# verdicts.md: PASSED and IMPROVED are bounds at 95 and 99 %, REGRESSED a rate of 5 %; twelve rounds at most.
def test_no_chance_of_error_is_larger_than_was_agreed():
    assert FALSE_PASS <= 0.05
    assert FALSE_IMPROVED <= 0.01
    assert (FALSE_RED, MOST_ROUNDS) == (0.05, 12)


@given(p_values, st.integers(0, 60))
def test_p_is_adjusted_by_benjamini_and_hochberg_with_the_tests_to_come_as_unchanged(spent, more):
    comparisons = len(spent) + more
    padded = spent + [1.0] * (max(comparisons, FEWEST_TESTS) - len(spent))
    expected = scipy.stats.false_discovery_control(padded)[: len(spent)]
    assert adjusted(spent, comparisons) == pytest.approx(list(expected))


@given(p_values, st.integers(1, 60))
def test_an_adjusted_p_is_never_smaller_than_p_and_keeps_the_order(spent, comparisons):
    found = adjusted(spent, comparisons)
    assert all(after >= before - 1e-12 for before, after in zip(spent, found, strict=True))
    order = np.argsort(spent, kind="stable")
    assert np.all(np.diff(np.array(found)[order]) >= -1e-12)


@given(p_values, st.integers(1, 60), st.integers(0, 60), st.integers(0, 100))
def test_a_smaller_p_of_any_test_never_makes_anothers_larger(spent, comparisons, at, percent):
    smaller = list(spent)
    smaller[at % len(spent)] *= percent / 100
    pairs = zip(adjusted(smaller, comparisons), adjusted(spent, comparisons), strict=True)
    assert all(after <= before + 1e-12 for after, before in pairs)


@given(p_values, st.integers(1, 60), st.integers(1, 60))
def test_more_tests_never_make_a_p_smaller(spent, comparisons, more):
    pairs = zip(adjusted(spent, comparisons), adjusted(spent, comparisons + more), strict=True)
    assert all(few <= many + 1e-12 for few, many in pairs)


def test_a_small_run_is_held_to_as_little_a_test_as_one_of_twenty_five():
    """0.2 % a test, whatever the run."""
    assert adjusted([0.001], 1) == [pytest.approx(0.025)]
    assert not red_at_once(0.0021, 1)
    assert red_at_once(0.0019, 1)


@given(p_values, st.integers(1, 200))
def test_what_is_red_at_once_stays_red_whatever_the_other_tests_say(others, comparisons):
    """The contract: no later p can overturn p ≤ q/m."""
    comparisons = max(comparisons, len(others) + 1)
    p = FALSE_RED / max(comparisons, FEWEST_TESTS)
    assert red_at_once(p, comparisons)
    assert adjusted([p, *others], comparisons)[0] <= FALSE_RED + 1e-12


@pytest.mark.parametrize(
    ("p", "share", "spent"), [(0.01, 1.0, 0.01), (0.01, 0.1, 0.1), (0.5, 0.1, 1.0), (1e-9, 0.0, 1.0), (0.0, 0.5, 0.0)]
)
def test_a_p_is_dearer_by_the_share_of_the_chance_that_may_be_spent(p, share, spent):
    assert spent_p(p, share) == pytest.approx(spent)
