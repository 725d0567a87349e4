"""The trend of a series, beside scipy's statistics, which take half a second to import."""

import numpy
import pytest
from scipy import stats

from pytest_roofline.many.steps import MOST_EXACT, RunSeries, examine, trend_of
from pytest_roofline.stats.spread import priors


def made_up_series(points: int, slope: float) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return days and values."""
    generator = numpy.random.default_rng(points)
    days = numpy.sort(generator.uniform(0, 50, points))
    return days, generator.normal(size=points) + slope * days


@pytest.mark.parametrize("slope", [0.0, 0.05, -0.3])
@pytest.mark.parametrize("points", [6, 7, 10, 25, MOST_EXACT, MOST_EXACT + 1, 120])
def test_size_and_interval_are_those_of_theil_and_sen(points, slope):
    days, values = made_up_series(points, slope)
    span = days[-1] - days[0]

    size, interval, _ = trend_of(days, values)

    expected = stats.theilslopes(values, days)
    assert pytest.approx(expected.slope * span) == size
    assert pytest.approx((expected.low_slope * span, expected.high_slope * span)) == interval


@pytest.mark.parametrize("slope", [0.0, 0.05, -0.3])
@pytest.mark.parametrize("points", [6, 7, 10, 25, MOST_EXACT])
def test_chance_of_few_points_is_kendalls_exact_one(points, slope):
    days, values = made_up_series(points, slope)

    _, _, score = trend_of(days, values)

    expected = stats.kendalltau(days, values, method="exact").pvalue
    assert pytest.approx(expected, rel=1e-9) == 2 * stats.norm.sf(score)


@pytest.mark.parametrize("slope", [0.005, -0.005])
def test_chance_of_many_points_is_close_to_kendalls_exact_one(slope):
    days, values = made_up_series(MOST_EXACT + 30, slope)

    _, _, score = trend_of(days, values)

    expected = stats.kendalltau(days, values, method="exact").pvalue
    assert pytest.approx(expected, rel=0.02) == 2 * stats.norm.sf(score)


def test_points_of_one_day_are_no_pair():
    days = numpy.array([0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0])

    size, _, _ = trend_of(days, numpy.array([0.0, 1.0, 9.0, 2.0, 3.0, 4.0, 5.0]))

    assert pytest.approx(5.0) == size


def test_equal_values_are_no_trend():
    size, interval, score = trend_of(numpy.arange(8.0), numpy.zeros(8))

    assert (0.0, (0.0, 0.0), 0.0) == (size, interval, score)


def test_equal_values_make_a_trend_less_sure():
    days = numpy.arange(8.0)
    *_, rising = trend_of(days, days)
    *_, with_equal_values = trend_of(days, numpy.array([0.0, 1.0, 2.0, 2.0, 2.0, 5.0, 6.0, 7.0]))

    assert 0 < with_equal_values < rising


def test_a_small_change_is_left_out_before_its_pairs_are_sorted():
    days = numpy.arange(8.0)

    assert trend_of(days, 0.01 * days, smallest_size=0.08) is None
    assert trend_of(days, 0.01 * days, smallest_size=0.06) is not None


def test_runs_of_one_moment_have_no_drift():
    """As of many nodes that start together, all in one series."""
    generator = numpy.random.default_rng(7)
    for _ in range(100):
        # A line explains these at times better than the steps between them, which cost more.
        logs = 0.01 * generator.standard_t(2, size=12)
        series = RunSeries(0, "", numpy.arange(12), numpy.zeros(12), logs, "device")

        assert "drift" not in {change.kind for change in examine([series], priors(), 0.02)}
