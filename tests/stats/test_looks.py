"""The chances of error that looks and tests are paid with: what is spent is what was claimed."""

import contextlib
import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.stats.looks import (
    FALSE_IMPROVED,
    FALSE_PASS,
    FALSE_RED,
    FEWEST_TESTS,
    MOST_ROUNDS,
    STRICT,
    Looks,
    adjusted,
    boundaries,
    fewest_red,
    red_at_once,
    spent_p,
)

PATHS = 100_000
REFERENCES = (1, 4, 16)
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


def information(most, reference):
    """How well the difference is known after each look: 1/(1/n + 1/R)."""
    return 1 / (1 / np.arange(1, most + 1) + 1 / reference)


def test_the_boundaries_of_every_look_spend_what_they_claim():
    for reference, exponent in itertools.product(REFERENCES, [1.0, 3.0]):
        known = information(8, reference)
        spent = 0.05 * (known / known[-1]) ** exponent
        found = first_crossings(
            statistics(8, reference), scipy.stats.norm.sf(boundaries(spent, known))
        )
        due = np.diff(spent, prepend=0.0)
        assert np.all(np.abs(found - due) <= chance_of(due)), (reference, exponent)


def test_all_looks_together_pass_wrongly_as_often_as_was_allowed():
    for most, reference, (level, chance) in itertools.product(
        MOST, REFERENCES, [("pass_level", FALSE_PASS), ("improved_level", FALSE_IMPROVED)]
    ):
        looks = Looks(most)
        levels = [getattr(looks, level)(processes, reference) for processes in range(1, most + 1)]
        found = first_crossings(statistics(most, reference), levels).sum()
        assert found == pytest.approx(chance, abs=float(chance_of(chance))), (
            most,
            reference,
            level,
            chance,
        )


def integrates_as_asked():
    with contextlib.suppress(TypeError):
        return bool(scipy.stats.multivariate_normal(abseps=1e-8))
    return False


@pytest.mark.skipif(
    not integrates_as_asked(), reason="needs a scipy that is told how exact an integral has to be"
)
def test_all_looks_together_are_red_wrongly_as_often_as_was_allowed():
    """By the joint distribution of all looks, whose correlations are √(Iⱼ/Iₖ): too seldom to be counted on paths."""
    for (most, fewest), reference in itertools.product([(3, 3), (12, 9)], (1, 16)):
        looks, known = range(fewest, most + 1), information(most, reference)[fewest - 1 :]
        bounds = scipy.stats.norm.isf(
            [STRICT * Looks(most).red_share(processes, reference, fewest) for processes in looks]
        )
        correlations = np.sqrt(np.minimum.outer(known, known) / np.maximum.outer(known, known))
        silent = scipy.stats.multivariate_normal(
            cov=correlations, allow_singular=True, abseps=1e-8, seed=1
        ).cdf(bounds)
        assert 1 - silent == pytest.approx(STRICT, rel=0.02), (most, fewest, reference)


def test_nothing_is_red_before_as_many_processes_as_it_needs():
    for most, fewest in [(3, 3), (12, 3), (12, 11), (1, 3)]:
        shares = [Looks(most).red_share(processes, 16, fewest) for processes in range(1, 13)]
        assert [share > 0 for share in shares] == [
            processes >= fewest for processes in range(1, 13)
        ]
        assert max(shares) <= 1 + 1e-9, (most, fewest)


# Of one to four known processes all may be in the fast mode of two; from five on red asks for no more than may be had.
def test_red_needs_more_processes_where_fewer_are_known():
    for known, most, fewest in [
        *((1, 1, 11), (1, 12, 11), (2, 3, 10), (3, 12, 9), (4, 1, 8)),
        *(
            (5, 1, 3),
            (5, 3, 3),
            (5, 12, 7),
            (7, 4, 4),
            (8, 12, 4),
            (9, 12, 3),
            (15, 1, 3),
            (100, 12, 3),
        ),
    ]:
        assert fewest_red(known, 0.0, most) == fewest, (known, most, fewest)


def test_where_many_processes_are_in_another_mode_red_needs_more_than_are_in_it_together_by_chance():
    for strange, fewest in [(0.001, 3), (0.05, 3), (0.1, 4), (0.25, 6)]:
        assert fewest_red(15, strange, 12) == fewest, (strange, fewest)
        assert strange**fewest <= STRICT, (strange, fewest)
        assert fewest == 3 or strange ** (fewest - 1) > STRICT, (strange, fewest)


def test_a_run_that_ends_early_spends_what_is_left_and_all_of_it_at_its_first_look():
    for reference in REFERENCES:
        looks, spent = (
            Looks(12, ended=True),
            (information(12, reference) / information(12, reference)[-1]) ** 2,
        )
        assert looks.red_share(3, reference, 3) == 1, reference
        assert looks.red_share(6, reference, 3) == pytest.approx(1 - spent[4]), reference
        assert looks.pass_level(6, reference) == pytest.approx(FALSE_PASS * (1 - spent[4])), (
            reference
        )
        assert looks.red_share(2, reference, 3) == 0, reference


def test_where_more_processes_follow_only_for_what_looks_slow_the_first_spends_three_quarters():
    for reference in REFERENCES:
        looks = Looks(3, slow_only=True)
        assert looks.pass_level(1, reference) == pytest.approx(0.75 * FALSE_PASS), reference
        found = first_crossings(
            statistics(3, reference), [looks.pass_level(count, reference) for count in (1, 2, 3)]
        ).sum()
        assert found == pytest.approx(FALSE_PASS, abs=float(chance_of(FALSE_PASS))), reference


def test_a_look_beyond_the_plan_is_held_to_the_last_ones_share_and_one_look_has_the_whole_chance():
    # More processes than were planned, as of runs that are compared once they are over.
    assert Looks(1).red_share(4, 16, 3) == 1
    assert Looks(5).red_share(9, 15, 3) == Looks(5).red_share(5, 15, 3)
    assert Looks(5).pass_level(9, 15) == Looks(5).pass_level(5, 15)

    for reference in REFERENCES:
        looks = Looks()
        assert (looks.red_share(1, reference, 1), looks.pass_level(1, reference)) == pytest.approx(
            (1.0, FALSE_PASS)
        )
        assert looks.improved_level(1, reference) == pytest.approx(FALSE_IMPROVED), reference


# verdicts.md: PASSED and IMPROVED are bounds at 95 and 99 %, REGRESSED a rate of 5 %; twelve rounds at most.
def test_no_chance_of_error_is_larger_than_was_agreed():
    assert (FALSE_PASS, FALSE_IMPROVED, FALSE_RED, MOST_ROUNDS) == (0.04, 0.01, 0.05, 12)


@given(p_values, st.integers(0, 60))
def test_p_is_adjusted_by_benjamini_and_hochberg_with_the_tests_to_come_as_unchanged(spent, more):
    comparisons = len(spent) + more
    padded = spent + [1.0] * (max(comparisons, FEWEST_TESTS) - len(spent))
    expected = scipy.stats.false_discovery_control(padded)[: len(spent)]
    assert adjusted(spent, comparisons) == pytest.approx(list(expected))


def test_a_small_run_is_held_to_as_little_a_test_as_one_of_twenty_five():
    """0.2 % a test, whatever the run."""
    assert adjusted([0.001], 1) == [pytest.approx(0.025)]
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
    assert adjusted([p, *others], comparisons)[0] <= FALSE_RED + 1e-12


def test_a_p_is_dearer_by_the_share_of_the_chance_that_may_be_spent():
    for p, share, spent in [
        (0.01, 1.0, 0.01),
        (0.01, 0.1, 0.1),
        (0.5, 0.1, 1.0),
        (1e-9, 0.0, 1.0),
        (0.0, 0.5, 0.0),
    ]:
        assert spent_p(p, share) == pytest.approx(spent), (p, share, spent)
