"""Our statistics are pytest-benchmark's own, field by field."""

import pytest
import pytest_benchmark
from hypothesis import example, given
from hypothesis import strategies as st
from pytest_benchmark.stats import Stats

from pytest_roofline.exchange.export.round_stats import round_stats

# Until 5.2 it gives the lowest datum beyond 1.5 IQR as the highest within.
SAME = round_stats([1.0]).keys() - ({"hd15iqr"} if pytest_benchmark.__version__ < "5.3" else set())


def theirs(seconds):
    stats = Stats()
    for value in seconds:
        stats.update(value)
    return {name: value for name, value in stats.as_dict().items() if name in SAME}


def ours(seconds):
    return {name: value for name, value in round_stats(seconds).items() if name in SAME}


@given(st.lists(st.floats(1e-9, 1e4), min_size=1, max_size=40))
@example([1e-3])
@example([1e-3] * 7)
@example([1.0, 2.0, 3.0, 4.0, 100.0])
def test_every_field_is_what_pytest_benchmark_computes(seconds):
    assert theirs(seconds) == ours(seconds)


@pytest.mark.parametrize("count", range(1, 14))
def test_quartiles_agree_for_every_remainder_of_the_count(count):
    seconds = [1e-3 * (1.7**index) for index in range(count)]
    assert theirs(seconds) == ours(seconds)


def test_an_outlier_lies_beyond_the_highest_datum():
    stats = round_stats([1.0, 1.1, 1.2, 1.3, 9.0])
    assert (1.3, 1, "1;1") == (stats["hd15iqr"], stats["iqr_outliers"], stats["outliers"])
