"""Tests over time: steps and drifts that are there are found once, with what changed; none is invented."""

import math

import numpy as np
import pytest

from pytest_roofline.many.history import history
from pytest_roofline.many.steps import LEVEL, RunSeries, examine
from pytest_roofline.many.text import history_text
from pytest_roofline.stats.spread import priors


def noisy(count, spread=0.01, seed=0):
    return np.random.default_rng(seed).normal(0, spread, count)


def times(logs):
    return 1e-3 * np.exp(logs)


def stepped(count, cut, by, **noise):
    return times(noisy(count, **noise) + np.where(np.arange(count) >= cut, math.log1p(by), 0.0))


def only(found):
    (change,) = found.changes
    return change


def names(*runs):
    return [f"run-{number}" for number in runs]


def around(change):
    return [change.before.run_id, change.after.run_id]


@pytest.mark.parametrize("cut", [4, 12, 20])
def test_a_step_is_found_where_it_is_with_its_size(made, cut):
    many = made.night_by_night(stepped(24, cut, 0.08))
    change = only(history(many))
    assert ("step", True, *names(cut - 1, cut)) == (change.kind, change.slower, *around(change))
    (worst,) = change.found
    assert worst.change_low < 0.08 < worst.change_high
    assert worst.change_high - worst.change_low < 0.03


def test_a_step_to_the_better_is_told_and_nothing_is_slower(made):
    found = history(made.night_by_night(stepped(24, 12, -0.08)))
    assert only(found).change < -0.05
    assert not only(found).slower


def test_two_steps_are_two_changes(made):
    logs = noisy(36) + np.where(np.arange(36) >= 12, 0.08, 0) + np.where(np.arange(36) >= 24, 0.12, 0)
    changes = history(made.night_by_night(times(logs))).changes
    assert sorted(change.after.run_id for change in changes) == names(12, 24)


def test_a_drift_is_a_drift_and_no_step(made):
    many = made.night_by_night(times(noisy(30) + np.linspace(0, math.log(1.10), 30)))
    change = only(history(many))
    assert ("drift", *names(0, 29)) == (change.kind, *around(change))
    (worst,) = change.found
    assert worst.change_low < 0.10 < worst.change_high


def test_a_drift_that_no_two_neighbours_show_is_found(made):
    seconds = times(noisy(40, 0.008) + np.linspace(0, 0.06, 40))
    assert max(abs(np.diff(np.log(seconds)))) < 0.05
    assert "drift" == only(history(made.night_by_night(seconds))).kind


@pytest.mark.parametrize("places", [(10,), (0,), (23,), (3, 15), (22, 23)])
def test_single_outliers_are_no_step(made, places):
    logs = noisy(24)
    logs[list(places)] += 0.3
    assert history(made.night_by_night(times(logs))).changes == ()


def test_an_outlier_does_not_hide_a_step(made):
    logs = noisy(24) + np.where(np.arange(24) >= 12, 0.08, 0.0)
    logs[5] += 0.3
    assert around(only(history(made.night_by_night(times(logs)))))[1:] == names(12)


def test_less_than_the_least_is_not_told(made):
    many = made.night_by_night(stepped(60, 30, 0.03, spread=0.003))
    assert history(many, least=0.05).changes == ()
    assert only(history(many, least=0.02)).change == pytest.approx(0.03, abs=0.005)


def test_what_changed_in_the_environment_is_named(made):
    runs = made.Runs()
    for day, value in enumerate(stepped(20, 10, 0.1)):
        runs.add(made.measured(made.COPY, float(value)), day=day, driver="570.86" if day < 10 else "580.10")
    assert only(history(runs.many)).changed == ("driver 570.86 → 580.10",)


def test_several_tests_that_step_together_are_one_change_the_largest_first(made):
    runs = made.Runs()
    for day, (a, b, c) in enumerate(
        zip(stepped(20, 10, 0.06), stepped(20, 10, 0.12, seed=1), stepped(20, 10, 0, seed=2), strict=True)
    ):
        runs.add(
            made.measured(made.COPY, float(a)),
            made.measured(made.STREAM, float(b)),
            made.measured(made.MATMUL, float(c)),
            day=day,
        )
    many = runs.many
    assert [label.partition("[")[0] for label in only(history(many)).tests] == ["stream", "memcpy_d2d"]


def test_what_all_devices_do_is_said_once_of_all(made):
    many = made.a_fleet(
        nights=16,
        keys=(made.COPY, made.MATMUL),
        effect=lambda key, n, g, night: 0.06 * (night >= 8) * (key is made.MATMUL),
    )
    change = only(history(many))
    assert (32, 32) == (len(change.units), change.of_units)
    assert [made.MATMUL.label] == change.tests
    assert ["2026-01-08", "2026-01-09"] == [run.started[:10] for run in (change.before, change.after)]


def test_a_device_that_does_not_follow_the_others_is_no_change_of_its_own(made):
    many = made.a_fleet(
        nights=16, keys=(made.COPY,), effect=lambda key, n, g, night: 0.06 * (night >= 8) * ((n, g) != (2, 1))
    )
    change = only(history(many))
    assert len(change.units) == 31
    assert "GPU-2-1" not in change.units


def test_what_one_device_does_is_its_own(made):
    many = made.a_fleet(
        nights=16, keys=(made.COPY,), effect=lambda key, n, g, night: 0.1 * (night >= 8) * ((n, g) == (2, 1))
    )
    change = only(history(many))
    assert (("GPU-2-1",), 32) == (change.units, change.of_units)


def test_as_nodes_what_a_node_does_is_of_the_node(made):
    many = made.a_fleet(nights=16, keys=(made.COPY,), effect=lambda key, n, g, night: 0.1 * (night >= 8) * (n == 2))
    assert only(history(many, by="node")).units == ("node2",)


def test_hosts_of_cpus_are_one_series(made):
    runs = made.Runs()
    for day, value in enumerate(stepped(40, 20, 0.8, spread=0.03)):
        runs.add(made.measured(made.COPY, float(value)), day=day, node=f"runner-{day}", uuid=None, kind="cpu")
    change = only(history(runs.many))
    assert ((), names(20)) == (change.units, around(change)[1:])


@pytest.mark.parametrize("by", ["device", "node"])
def test_cpus_of_nodes_that_stay_are_each_a_series_and_what_all_do_is_blamed_on_none(made, by):
    many = made.a_cpu_fleet(effect=lambda node, night: 0.08 * (night >= 6) + 0.26 * (node == 30 and night >= 5))
    one, everyone = history(many, by=by).changes
    assert (("node30",), 40) == (one.units, one.of_units)
    assert one.change == pytest.approx(0.30, abs=0.03)
    assert everyone.change == pytest.approx(0.083, abs=0.02)
    assert len(everyone.units) >= 38
    assert ["2026-01-05", "2026-01-06"] == [run.started[:10] for run in (one.before, one.after)]
    assert ["2026-01-06", "2026-01-07"] == [run.started[:10] for run in (everyone.before, everyone.after)]
    text = history_text(many, history(many, by=by), 100, colour=False)
    assert "on: node30 (1 of 40); " in text
    assert "?" not in text


def test_a_series_of_five_runs_is_too_short_and_counted(made):
    found = history(made.night_by_night(times(noisy(5))))
    assert (0, 1) == (len(found.series), found.short)


def test_runs_without_a_date_count_nowhere(made):
    runs = made.Runs()
    for day, value in enumerate(times(noisy(8))):
        runs.add(made.measured(made.COPY, float(value)), day=day)
    runs.add(made.measured(made.COPY, 9.0), started="yesterday")
    found = history(runs.many)
    assert (1, [8]) == (found.undated, [len(series.runs) for series in found.series])


def test_invalid_measurements_are_no_step(made):
    runs = made.Runs()
    for day in range(20):
        runs.add(made.measured(made.COPY, 1e-3 * (1 + (day >= 10)), invalid="busy" if day >= 10 else ""), day=day)
    found = history(runs.many)
    assert (0, [10]) == (len(found.changes), [len(series.runs) for series in found.series])


# None is invented

RNG = np.random.default_rng(7)
SERIES, POINTS = 400, 25


def correlated(rho=0.5):
    logs = np.zeros((SERIES, POINTS))
    state = RNG.normal(0, 0.01, SERIES)
    for point in range(POINTS):
        state = rho * state + RNG.normal(0, 0.01 * math.sqrt(1 - rho**2), SERIES)
        logs[:, point] = state
    return logs


NOISES = {
    "normal": lambda: RNG.normal(0, 0.011, (SERIES, POINTS)),
    "heavy tails": lambda: RNG.standard_t(3, (SERIES, POINTS)) * 0.011,
    "spreads far apart": lambda: RNG.normal(0, 1, (SERIES, POINTS)) * np.exp(RNG.normal(-4.5, 1, (SERIES, 1))),
    "louder towards the end": lambda: RNG.normal(0, 1, (SERIES, POINTS)) * np.where(np.arange(POINTS) > 19, 0.05, 0.01),
    "correlated": correlated,
    "a coarse clock": lambda: np.round(RNG.normal(0, 0.011, (SERIES, POINTS)) / 0.02) * 0.02,
    "now and then an outlier": lambda: (
        RNG.normal(0, 0.011, (SERIES, POINTS)) + 0.3 * (RNG.random((SERIES, POINTS)) < 0.01)
    ),
}


def as_series(logs):
    points = np.arange(logs.shape[1])
    return [RunSeries(0, str(number), points, points.astype(float), row) for number, row in enumerate(logs)]


@pytest.mark.parametrize("kind", NOISES)
def test_of_unchanged_series_nothing_is_invented(kind):
    assert examine(as_series(NOISES[kind]()), priors(), 0.02) == []


def test_a_step_counts_for_every_series_that_was_looked_at():
    logs = RNG.normal(0, 0.011, (40, POINTS))
    logs[0, 12:] += 0.06
    (few,), (many,) = (
        examine(as_series(np.concatenate([logs, RNG.normal(0, 0.011, (more, POINTS))])), priors(), 0.02)
        for more in (0, 360)
    )
    assert many.p == pytest.approx(few.p * 10, rel=0.9)
    assert few.p < many.p <= LEVEL
