"""When enough was measured: enough blocks, a narrow interval, no trend."""

from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.engine.log import ending, known, median_half_width, trend

PRECISION = 0.01
positive = st.floats(1e-9, 10.0)
medians = st.lists(positive, min_size=1, max_size=40)


def rising(count, share):
    """Medians that rise by this share from the first to the last."""
    return [1.0 + share * index / (count - 1) for index in range(count)]


def swinging(count, share):
    """Medians that swing by this share without a trend."""
    return [1.0 + share * (index % 2) for index in range(count)]


def test_five_equal_blocks_are_enough():
    for count, enough in [(0, False), (1, False), (4, False), (5, True), (50, True)]:
        assert known([1.0] * count, PRECISION) == enough, (count, enough)


def test_the_interval_may_be_one_percent_to_either_side():
    for share, enough in [(0.018, True), (0.022, False)]:
        assert known(swinging(8, share), PRECISION) == enough, (share, enough)


def test_a_coarser_precision_is_enough_sooner():
    assert known(swinging(8, 0.05), 0.03)


def test_whatever_drifts_up_or_down_is_not_known():
    for share, enough in [(0.01, True), (0.03, False), (-0.01, True), (-0.03, False)]:
        assert known(rising(100, share), PRECISION) == enough, (share, enough)


def test_a_drift_is_not_known_however_narrow_the_interval_is():
    seconds = rising(1000, 0.025)
    assert (median_half_width(seconds) < PRECISION, known(seconds, PRECISION)) == (True, False)


def test_three_blocks_show_no_trend():
    for seconds in [[], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0]]:
        assert trend(seconds) == 0.0, seconds


def test_a_trend_compares_the_medians_of_the_halves():
    for seconds, expected in [
        ([1, 1, 2, 2], 1.0),
        ([2, 2, 1, 1], -0.5),
        ([1, 1, 9, 2, 2, 2], 1.0),
        ([1, 2, 1, 2], 0.0),
    ]:
        assert trend(seconds) == expected, (seconds, expected)


def test_blocks_that_are_known_end_without_a_word():
    assert ending([1.0] * 5, PRECISION) == ""


def test_too_few_or_too_wide_is_noisy():
    for seconds in [[], [1.0], [1.0] * 4, swinging(20, 0.2)]:
        assert ending(seconds, PRECISION) == "noisy", seconds


def test_a_drift_that_lasts_to_the_end_is_drifting():
    for share in [0.05, -0.05, 0.5]:
        assert ending(rising(40, share), PRECISION) == "drifting", share


def test_a_step_in_the_middle_is_drifting():
    assert ending([1.0] * 10 + [1.1] * 10, PRECISION) == "drifting"


def test_halves_that_noise_explains_do_not_drift():
    first, second = swinging(10, 0.2), [value + 0.05 for value in swinging(10, 0.2)]
    assert ending(first + second, PRECISION) == "noisy"


@given(medians)
def test_whoever_is_known_ends_without_a_word_and_nobody_else(seconds):
    assert known(seconds, PRECISION) == (ending(seconds, PRECISION) == "")


@given(medians)
def test_a_trend_turns_around_with_time(seconds):
    even = seconds * 2
    even[len(seconds) :] = [2 * value for value in seconds]
    assert trend(even) >= 0.0 >= trend(even[::-1])


@given(medians, st.integers(-8, 8))
def test_the_end_does_not_depend_on_the_unit(seconds, exponent):
    assert ending(seconds, PRECISION) == ending([2.0**exponent * value for value in seconds], PRECISION)


@given(positive, st.integers(5, 60))
def test_a_constant_function_is_known(duration, count):
    assert known([duration] * count, PRECISION)
