import math

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.judging import stats

times = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=8).map(tuple)


def test_the_difference_is_that_of_the_mean_logarithms():
    found = stats.difference((2.0,), (1.0, 4.0), prior=0.01)
    assert found.estimate == pytest.approx(0.0)


@pytest.mark.parametrize(("new", "count"), [((1.0,), 5), ((1.0, 1.1, 0.9), 2)])
def test_the_error_is_the_references_spread_by_both_counts(new, count):
    reference = tuple(1.0 + 0.01 * index for index in range(count))
    spread = scipy.stats.tstd([math.log(value) for value in reference])
    found = stats.difference(new, reference, prior=0.01)
    assert found.error == pytest.approx(spread * math.sqrt(1 / len(new) + 1 / count))
    assert (found.freedom, found.assumed) == (count - 1, False)


def test_one_reference_process_takes_the_prior_as_known():
    found = stats.difference((1.1,), (1.0,), prior=0.15)
    assert (0.15 * math.sqrt(2), math.inf, True) == (pytest.approx(found.error), found.freedom, found.assumed)


@given(times, st.floats(1e-6, 1.0), st.floats(-1.0, 1.0))
def test_p_is_students(reference, new, shift):
    found = stats.difference((new,), reference, prior=0.01)
    if found.error > 0:
        score = (found.estimate - shift) / found.error
        assert found.p_slower_than(shift) == pytest.approx(scipy.stats.t.sf(score, len(reference) - 1), abs=1e-12)


@given(st.floats(0.5, 2.0), st.floats(-0.5, 0.5), st.sampled_from([0.01, 0.15]))
def test_p_is_normal_where_the_spread_is_assumed(new, shift, prior):
    found = stats.difference((new,), (1.0,), prior)
    score = (math.log(new) - shift) / (prior * math.sqrt(2))
    assert found.p_slower_than(shift) == pytest.approx(scipy.stats.norm.sf(score), abs=1e-12)


@given(times, st.floats(1e-6, 1.0))
def test_the_interval_is_two_sided_around_the_estimate(reference, new):
    found = stats.difference((new,), reference, prior=0.01)
    half = scipy.stats.t.ppf(0.995, len(reference) - 1) * found.error
    assert found.interval(0.99) == pytest.approx((found.estimate - half, found.estimate + half))


def test_a_one_sided_bound_is_normal_where_the_spread_is_assumed():
    found = stats.difference((1.0,), (1.0,), prior=0.01)
    assert found.bound(0.95) == pytest.approx(scipy.stats.norm.ppf(0.95) * 0.01 * math.sqrt(2))


@pytest.mark.parametrize(("new", "p"), [(1.1, 0.0), (1.0, 1.0), (0.9, 1.0)])
def test_processes_that_agree_to_the_last_digit_leave_no_doubt(new, p):
    assert p == stats.difference((new,), (1.0, 1.0, 1.0), prior=0.01).p_slower_than(0.0)


@given(times, times, st.floats(0.1, 10.0))
def test_the_unit_of_time_does_not_matter(new, reference, factor):
    one = stats.difference(new, reference, prior=0.01)
    scaled = stats.difference(
        tuple(factor * value for value in new), tuple(factor * value for value in reference), prior=0.01
    )
    assert (one.estimate, one.error) == pytest.approx((scaled.estimate, scaled.error), abs=1e-9)


def test_the_prior_of_a_cpu_is_wider_than_that_of_a_device():
    assert (stats.prior_for("cpu"), stats.prior_for("cuda")) == (0.15, 0.01)


def test_more_processes_narrow_the_interval_by_their_root():
    expected = scipy.stats.norm.ppf(0.995) * 0.01 / 2
    assert stats.normal_bound(0.99, 0.01, 4) == pytest.approx(expected)
