"""Tests over time: steps and drifts that are there are found once, with what changed; none is invented."""

import math

import numpy as np
import pytest

from pytest_roofline.many.history import history
from pytest_roofline.many.steps import LEVEL, SHORTEST, STEP_PRICE, RunSeries, examine, fit_steps
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


def test_a_step_is_found_where_it_is_with_its_size_for_better_or_worse(made):
    for cut in (4, 12, 20):
        change = only(history(made.night_by_night(stepped(24, cut, 0.08))))
        assert ("step", True, *names(cut - 1, cut)) == (change.kind, change.slower, *around(change))
        (worst,) = change.found
        assert worst.change_low < 0.08 < worst.change_high
        assert worst.change_high - worst.change_low < 0.03
    change = only(history(made.night_by_night(stepped(24, 12, -0.08))))
    assert (change.change < -0.05, change.slower) == (True, False)
    logs = (
        noisy(36) + np.where(np.arange(36) >= 12, 0.08, 0) + np.where(np.arange(36) >= 24, 0.12, 0)
    )
    changes = history(made.night_by_night(times(logs))).changes
    assert sorted(change.after.run_id for change in changes) == names(12, 24)


def test_a_drift_is_a_drift_and_no_step(made):
    many = made.night_by_night(times(noisy(30) + np.linspace(0, math.log(1.10), 30)))
    change = only(history(many))
    assert ("drift", *names(0, 29)) == (change.kind, *around(change))
    (worst,) = change.found
    assert worst.change_low < 0.10 < worst.change_high
    # Also where no two neighbours show it.
    seconds = times(noisy(40, 0.008) + np.linspace(0, 0.06, 40))
    assert max(abs(np.diff(np.log(seconds)))) < 0.05
    assert "drift" == only(history(made.night_by_night(seconds))).kind


def test_single_outliers_are_no_step_and_hide_none(made):
    for places in ((10,), (0,), (23,), (3, 15), (22, 23)):
        logs = noisy(24)
        logs[list(places)] += 0.3
        assert history(made.night_by_night(times(logs))).changes == (), places
    logs = noisy(24) + np.where(np.arange(24) >= 12, 0.08, 0.0)
    logs[5] += 0.3
    assert around(only(history(made.night_by_night(times(logs)))))[1:] == names(12)


def test_less_than_the_least_is_not_told(made):
    many = made.night_by_night(stepped(60, 30, 0.03, spread=0.003))
    assert history(many, smallest_change=0.05).changes == ()
    assert only(history(many, smallest_change=0.02)).change == pytest.approx(0.03, abs=0.005)


def test_what_changed_in_the_environment_is_named(made):
    runs = made.Runs()
    for day, value in enumerate(stepped(20, 10, 0.1)):
        runs.add(
            made.measured(made.COPY, float(value)),
            day=day,
            driver="570.86" if day < 10 else "580.10",
        )
    assert only(history(runs.many)).changed == ("driver 570.86 → 580.10",)


def test_several_tests_that_step_together_are_one_change_the_largest_first(made):
    runs = made.Runs()
    for day, (a, b, c) in enumerate(
        zip(
            stepped(20, 10, 0.06),
            stepped(20, 10, 0.12, seed=1),
            stepped(20, 10, 0, seed=2),
            strict=True,
        )
    ):
        runs.add(
            made.measured(made.COPY, float(a)),
            made.measured(made.STREAM, float(b)),
            made.measured(made.MATMUL, float(c)),
            day=day,
        )
    many = runs.many
    assert [label.partition("[")[0] for label in only(history(many)).tests] == [
        "stream",
        "memcpy_d2d",
    ]


def test_what_all_devices_do_is_said_once_and_what_one_does_is_its_own(made):
    def change(effect, keys=(made.COPY,), by="device"):
        return only(history(made.a_fleet(nights=16, keys=keys, effect=effect), by=by))

    everyone = change(
        lambda key, n, g, night: 0.06 * (night >= 8) * (key is made.MATMUL),
        (made.COPY, made.MATMUL),
    )
    assert (32, 32, [made.MATMUL.label]) == (len(everyone.units), everyone.of_units, everyone.tests)
    assert ["2026-01-08", "2026-01-09"] == [
        run.started[:10] for run in (everyone.before, everyone.after)
    ]
    # One that does not follow the others has no change of its own.
    without = change(lambda key, n, g, night: 0.06 * (night >= 8) * ((n, g) != (2, 1)))
    assert (31, False) == (len(without.units), "GPU-2-1" in without.units)
    alone = change(lambda key, n, g, night: 0.1 * (night >= 8) * ((n, g) == (2, 1)))
    assert (("GPU-2-1",), 32) == (alone.units, alone.of_units)
    assert ("node2",) == change(
        lambda key, n, g, night: 0.1 * (night >= 8) * (n == 2), by="node"
    ).units


def test_hosts_of_cpus_are_one_series(made):
    runs = made.Runs()
    for day, value in enumerate(stepped(40, 20, 0.8, spread=0.03)):
        runs.add(
            made.measured(made.COPY, float(value)),
            day=day,
            node=f"runner-{day}",
            uuid=None,
            kind="cpu",
        )
    change = only(history(runs.many))
    assert ((), names(20)) == (change.units, around(change)[1:])


def test_cpus_of_nodes_that_stay_are_each_a_series_and_what_all_do_is_blamed_on_none(made):
    many = made.a_cpu_fleet(
        effect=lambda node, night: 0.08 * (night >= 6) + 0.26 * (node == 30 and night >= 5)
    )
    one, everyone = history(many, by="node").changes
    assert (("node30",), 40) == (one.units, one.of_units)
    assert one.change == pytest.approx(0.30, abs=0.03)
    assert everyone.change == pytest.approx(0.083, abs=0.02)
    assert len(everyone.units) >= 38
    assert ["2026-01-05", "2026-01-06"] == [run.started[:10] for run in (one.before, one.after)]
    assert ["2026-01-06", "2026-01-07"] == [
        run.started[:10] for run in (everyone.before, everyone.after)
    ]
    text = history_text(many, history(many, by="node"), 100, colour=False)
    assert "on: node30 (1 of 40); " in text
    assert "?" not in text


def test_what_is_short_undated_or_invalid_counts_nowhere_and_is_counted(made):
    found = history(made.night_by_night(times(noisy(5))))
    assert (0, 1) == (len(found.series), found.short)
    runs = made.Runs()
    for day in range(20):
        busy = "busy" if day >= 10 else ""
        runs.add(made.measured(made.COPY, 1e-3 * (1 + (day >= 10)), invalid=busy), day=day)
    runs.add(made.measured(made.COPY, 9.0), started="yesterday")
    found = history(runs.many)
    assert (0, 1, [10]) == (
        len(found.changes),
        found.undated,
        [len(series.runs) for series in found.series],
    )


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
    "spreads far apart": lambda: (
        RNG.normal(0, 1, (SERIES, POINTS)) * np.exp(RNG.normal(-4.5, 1, (SERIES, 1)))
    ),
    "louder towards the end": lambda: (
        RNG.normal(0, 1, (SERIES, POINTS)) * np.where(np.arange(POINTS) > 19, 0.05, 0.01)
    ),
    "correlated": correlated,
    "a coarse clock": lambda: np.round(RNG.normal(0, 0.011, (SERIES, POINTS)) / 0.02) * 0.02,
    "now and then an outlier": lambda: (
        RNG.normal(0, 0.011, (SERIES, POINTS)) + 0.3 * (RNG.random((SERIES, POINTS)) < 0.01)
    ),
}


def as_series(logs):
    points = np.arange(logs.shape[1])
    return [
        RunSeries(0, str(number), points, points.astype(float), row)
        for number, row in enumerate(logs)
    ]


def test_of_unchanged_series_nothing_is_invented():
    for kind, noise in NOISES.items():
        assert examine(as_series(noise()), priors(), 0.02) == [], kind


def test_a_step_counts_for_every_series_that_was_looked_at():
    logs = RNG.normal(0, 0.011, (40, POINTS))
    logs[0, 12:] += 0.06
    (few,), (many,) = (
        examine(
            as_series(np.concatenate([logs, RNG.normal(0, 0.011, (more, POINTS))])), priors(), 0.02
        )
        for more in (0, 360)
    )
    assert many.p == pytest.approx(few.p * 10, rel=0.9)
    assert few.p < many.p <= LEVEL


# The best steps


def cost(values, cuts):
    parts = np.split(values, cuts)
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    return squares + STEP_PRICE * math.log(len(values)) * len(cuts)


def every_choice(points, start=0):
    """All places of steps between which, and outside of which, lie at least three points."""
    yield ()
    for cut in range(start + SHORTEST, points - SHORTEST + 1):
        for later in every_choice(points, cut):
            yield (cut, *later)


def test_no_other_steps_explain_a_series_better():
    random = np.random.default_rng(5)
    rows = [
        random.normal(0, 1, points) + np.repeat(random.normal(0, 4, points), 3)[:points]
        for points in random.integers(6, 17, 60)
    ]
    # Each series has a noise of its own, by which its steps are judged.
    noise = 10 ** random.uniform(-3, 1, len(rows))
    shapes = fit_steps([row * scale for row, scale in zip(rows, noise, strict=True)], noise)
    assert {0, 1, 2, 3} <= {len(shape.cuts) for shape in shapes}
    for row, shape in zip(rows, shapes, strict=True):
        choices = list(every_choice(len(row)))
        assert len(set(choices)) == len(choices)
        assert cost(row, shape.cuts) == pytest.approx(min(cost(row, cuts) for cuts in choices))
