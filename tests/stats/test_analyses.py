"""The chances of error that analyses and tests are paid with: together they are no more than was promised."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.stats.analyses import (
    FALSE_RED,
    FEWEST_TESTS,
    STRICT,
    Analyses,
    adjusted_p,
    fewest_red,
    red_at_once,
    rounds_for,
)

PATHS = 100_000
# How many processes of equal worth stand behind a baseline.
REFERENCES = (1, 4, 16)
# docs/authors/verdicts.md: over all analyses, of IMPROVED, of PASSED for a test as slow as its tolerance, and for one
# twice as slow.
PROMISED = (0.01, 0.06, 0.006)
p_values = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60)
plans = st.integers(1, 12).map(Analyses)


def scores(counts, reference, seed=11):
    """[paths, analyses]: the test statistic after each number of new processes of unchanged code, the spread known."""
    rng = np.random.default_rng(seed)
    logs = rng.standard_normal((PATHS, counts[-1]))
    new = np.stack([logs[:, :count].mean(axis=1) for count in counts], axis=1)
    old = rng.standard_normal((PATHS, 1)) / math.sqrt(reference)
    return (new - old) / np.sqrt(1 / np.array(counts) + 1 / reference)


def crossed(statistics, levels):
    """The share of paths that lie beyond the bound of any analysis, and four standard errors of it."""
    share = float(np.any(statistics > scipy.stats.norm.isf(levels), axis=1).mean())
    return share, 4 * math.sqrt(share * (1 - share) / PATHS)


def test_a_test_is_looked_at_after_one_process_after_five_and_after_the_last():
    for most, counts in [
        *((1, (1,)), (2, (1, 2)), (3, (1, 3)), (5, (1, 5))),
        *((8, (1, 5, 8)), (12, (1, 5, 12)), (20, (1, 5, 20))),
    ]:
        analyses = Analyses(most)
        due = [count for count in range(1, most + 3) if analyses.due(count)]
        # Runs that are compared once they are over may hold more processes than were planned.
        assert (analyses.counts, due) == (counts, [*counts, most + 1, most + 2])


def test_a_run_that_ends_early_looks_at_what_there_is():
    assert not Analyses(12).due(7)
    assert Analyses(12, ended=True).due(7)


@given(plans)
def test_the_chances_of_all_looks_add_up_to_what_was_promised_and_no_more(analyses):
    spent = np.sum([analyses.levels(count) for count in analyses.counts], axis=0)
    assert np.all(spent <= np.array(PROMISED) + 1e-12)
    if len(analyses.counts) == 3:
        assert spent == pytest.approx(PROMISED)


def test_the_first_look_has_half_of_the_chances_and_a_later_one_a_quarter():
    half, quarter = (0.005, 0.03, 0.003), (0.0025, 0.015, 0.0015)
    for most in (3, 5, 12):
        assert [Analyses(most).levels(count) for count in (1, most)] == [half, quarter], most
    # What is analysed once is not charged with analyses that nobody makes.
    assert Analyses(1).levels(9) == half


def test_a_test_as_slow_as_its_tolerance_passes_by_any_look_as_seldom_as_was_promised():
    for most, reference in [(1, 4), (3, 1), (5, 4), (12, 1), (12, 4), (12, 16)]:
        analyses = Analyses(most)
        levels = np.array([analyses.levels(count) for count in analyses.counts])
        statistics = scores(analyses.counts, reference)
        for chance, promised in zip(levels.T, PROMISED, strict=True):
            share, doubt = crossed(statistics, chance)
            assert share <= promised + doubt, (most, reference, promised)


def test_every_look_that_may_be_red_has_the_same_share_of_the_chance():
    for most, fewest, expected in [
        *((1, 3, 1), (3, 3, 1), (5, 3, 1), (5, 5, 1), (8, 3, 2), (12, 3, 2), (12, 5, 2)),
        *((12, 6, 1), (12, 11, 1), (12, 12, 1), (5, 11, 1)),
    ]:
        assert Analyses(most).red_analyses(fewest) == expected, (most, fewest)


def test_an_unchanged_test_is_red_by_any_look_as_seldom_as_was_promised():
    promised = 0.01
    for fewest, reference in [(3, 1), (3, 4), (3, 16), (6, 4)]:
        analyses = Analyses(12)
        counts = [count for count in analyses.counts if count >= fewest]
        statistics = scores(counts, reference)
        share, doubt = crossed(statistics, [promised / analyses.red_analyses(fewest)] * len(counts))
        assert share <= promised + doubt, (fewest, reference)


# Of one to four processes all may be in the fast mode of two. With five behind it, five new ones may be red.
def test_red_needs_more_processes_where_fewer_are_known():
    for processes, fewest in [
        *((1, 11), (2, 10), (3, 9), (4, 8)),
        *((5, 5), (7, 5), (8, 4), (9, 3), (15, 3), (100, 3)),
    ]:
        assert fewest_red(processes, 0.0) == fewest, processes


def test_where_many_processes_are_in_another_mode_red_needs_more_than_are_in_it_together_by_chance():
    for strange, fewest in [(0.001, 3), (0.05, 3), (0.1, 4), (0.25, 6), (0.49, 12)]:
        assert fewest_red(15, strange) == fewest, (strange, fewest)
        assert strange**fewest <= 1 / 4000, (strange, fewest)
        assert fewest == 3 or strange ** (fewest - 1) > 1 / 4000, (strange, fewest)
    assert pytest.approx(1 / 4000) == STRICT


def test_rounds_to_take_are_a_number_of_processes_that_a_run_looks_at():
    wanted = [3, 5, 6, 12, 15]
    assert [rounds_for(processes) for processes in wanted] == [5, 5, 12, 12, 15]


@given(p_values, st.integers(0, 60))
def test_p_is_adjusted_by_benjamini_and_hochberg_with_the_tests_to_come_as_unchanged(spent, more):
    comparisons = len(spent) + more
    padded = spent + [1.0] * (max(comparisons, FEWEST_TESTS) - len(spent))
    expected = scipy.stats.false_discovery_control(padded)[: len(spent)]
    assert adjusted_p(spent, comparisons) == pytest.approx(list(expected))


def test_a_small_run_is_held_to_as_little_a_test_as_one_of_twenty_five():
    """0.2 % a test, whatever the run."""
    assert adjusted_p([0.001], 1) == [pytest.approx(0.025)]
    assert (red_at_once(0.0021, 1), red_at_once(0.0019, 1), red_at_once(0.0019, 50)) == (
        False,
        True,
        False,
    )


@given(p_values, st.integers(1, 200))
def test_what_is_red_at_once_stays_red_whatever_the_other_tests_say(others, comparisons):
    """The contract: no later p can overturn p ≤ q/m."""
    comparisons = max(comparisons, len(others) + 1)
    p = FALSE_RED / max(comparisons, FEWEST_TESTS)
    assert red_at_once(p, comparisons)
    assert adjusted_p([p, *others], comparisons)[0] <= FALSE_RED + 1e-12
