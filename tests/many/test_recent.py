"""Steps of the last nights: seen by the third, reported once, and none invented."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.many.test_history import NOISES, RNG, SERIES, around, as_series, names, only

from pytest_roofline.many.history import history
from pytest_roofline.many.recent import recent_steps
from pytest_roofline.many.steps import LEVEL, examine
from pytest_roofline.many.text import history_text
from pytest_roofline.stats.spread import priors

NIGHTS = 60


def slowed(last, by, series=40):
    """Unchanged series with outliers, of which the first is slower by so much in the last nights."""
    rng = np.random.default_rng(11)
    logs = rng.normal(0, 0.01, (series, NIGHTS))
    logs += 0.15 * (rng.random(logs.shape) < 0.02)
    logs[0, -12:] = np.linspace(-0.01, 0.01, 12)[[3, 8, 1, 10, 6, 5, 0, 11, 4, 7, 2, 9]]
    logs[0, -last:] += math.log1p(by)
    return logs


def both_passes(logs):
    series = as_series(logs)
    changes = examine(series, priors(), 0.02)
    return changes, recent_steps(series, changes, 0.02)


@pytest.mark.parametrize("by", [0.10, -0.10])
@pytest.mark.parametrize("last", range(3, 8))
def test_a_step_of_the_last_nights_is_reported_by_one_pass_with_its_night(last, by):
    changes, steps = both_passes(slowed(last, by))
    (step,) = changes + steps
    assert ("step", NIGHTS - last - 1, NIGHTS - last) == (step.kind, step.before, step.after)
    assert step.interval[0] < math.log1p(by) < step.interval[1]


def test_the_third_night_of_a_step_is_enough_for_the_pass_over_the_last_runs_alone():
    changes, (step,) = both_passes(slowed(3, 0.10))
    assert ([], "0") == (changes, step.series.unit)
    assert step.p <= LEVEL


def test_history_reports_a_step_of_three_nights_like_any_other(made):
    keys = [replace(made.COPY, parameters={"size_bytes": 2**size}) for size in range(10, 40)]
    runs = made.Runs()
    for night, logs in enumerate(slowed(3, 0.10, len(keys)).T):
        pairs = zip(keys, 1e-3 * np.exp(logs), strict=True)
        runs.add(*(made.measured(key, float(seconds)) for key, seconds in pairs), day=night)
    change = only(history(runs.many))
    assert ("step", True, names(NIGHTS - 4, NIGHTS - 3)) == (
        change.kind,
        change.slower,
        around(change),
    )
    assert [keys[0].label] == change.tests
    assert "SLOWER step +10." in history_text(runs.many, history(runs.many), 100, colour=False)


def test_two_nights_and_an_outlier_among_three_are_no_step():
    assert ([], []) == both_passes(slowed(2, 0.10))
    logs = slowed(3, 0.10)
    logs[0, -2] -= math.log1p(0.10)
    assert ([], []) == both_passes(logs)


def test_an_older_step_that_was_reported_does_not_hide_one_of_the_last_nights():
    logs = slowed(3, 0.10)
    logs[0, 20:] += 0.10
    changes, steps = both_passes(logs)
    assert ([20], [57]) == ([change.after for change in changes], [step.after for step in steps])


def test_a_series_pays_for_every_other_series_and_for_its_own_outliers():
    logs = slowed(4, 0.10)
    (alone,) = recent_steps(as_series(logs), [], 0.02)
    (among,) = recent_steps(as_series(np.concatenate([logs, logs[1:], logs[1:]])), [], 0.02)
    assert among.p > 2 * alone.p
    logs[0, 5:50:5] += math.log1p(0.12)
    assert [] == recent_steps(as_series(logs), [], 0.02)


def test_outliers_that_last_for_several_nights_are_no_step():
    logs = RNG.normal(0, 0.01, (40, NIGHTS))
    for night in (3, 11, 19, 27, 35, 43):
        logs[RNG.random(40) < 0.4, night : night + 3] += 0.15
    logs[0, -3:] += math.log1p(0.10)
    assert [] == recent_steps(as_series(logs), [], 0.02)


MORE_NOISES = {
    "two modes": lambda: (
        RNG.normal(0, 0.005, (SERIES, NIGHTS))
        + 0.06 * (RNG.random((SERIES, NIGHTS)) < 0.4) * (np.arange(SERIES) < 40)[:, None]
    ),
    "outliers of every size": lambda: (
        RNG.normal(0, 0.01, (SERIES, NIGHTS))
        + 0.04 / np.sqrt(RNG.random((SERIES, NIGHTS))) * (RNG.random((SERIES, NIGHTS)) < 0.05)
    ),
}


@pytest.mark.parametrize("kind", [*NOISES, *MORE_NOISES])
def test_among_the_last_nights_of_unchanged_series_no_step_is_invented(kind):
    logs = (NOISES | MORE_NOISES)[kind]()
    assert [] == recent_steps(as_series(logs), [], 0.02)


def test_too_few_runs_before_the_last_seven_say_nothing():
    short = as_series(np.where(np.arange(16) >= 12, 0.10, RNG.normal(0, 0.001, (8, 16))))
    assert [] == recent_steps(short, [], 0.02)
    assert [] == recent_steps([], [], 0.02)
