"""The rule for peaks of memory: which number stands, and how much more is a regression."""

from dataclasses import replace

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.records import PeakJudgement
from pytest_roofline.stats.key_results import judge_peak, typical_peak

MIB = 2**20


@pytest.mark.parametrize(
    ("peaks", "stands"),
    [
        ([[4], [9], [5]], 5),
        ([[4], [9]], 4),
        ([[4, 6]], 6),
        ([[None], [7]], 7),
        ([[0]], 0),
        ([[None]], None),
        ([], None),
    ],
)
def test_of_a_process_the_largest_attempt_and_of_processes_the_middle_one_stands(make, peaks, stands):
    processes = [[make.measurement(peak_bytes=peak) for peak in attempts] for attempts in peaks]
    assert typical_peak(processes) == stands


@pytest.mark.parametrize(
    ("partition", "old", "new", "word"),
    [
        # A share of it.
        ("none", 100 * MIB, 105 * MIB, "PASSED"),
        ("none", 100 * MIB, 105 * MIB + 1, "REGRESSED"),
        ("none", 100 * MIB, 95 * MIB, "PASSED"),
        ("none", 100 * MIB, 95 * MIB - 1, "IMPROVED"),
        # A block of the allocator, of what is small or nothing.
        ("none", MIB, 3 * MIB, "PASSED"),
        ("none", MIB, 3 * MIB + 1, "REGRESSED"),
        ("none", 0, 0, "PASSED"),
        ("none", 0, 2 * MIB + 1, "REGRESSED"),
        # A CPU's allocations are told one by one.
        ("8-cores", MIB, 3 * MIB, "REGRESSED"),
        ("8-cores", 1000, 1000 + 4096, "PASSED"),
        ("8-cores", 1000, 1000 + 4097, "REGRESSED"),
    ],
)
def test_more_than_the_tolerance_is_a_regression_and_less_an_improvement(make, partition, old, new, word):
    key = make.key(hardware=make.hardware(partition=partition))
    found = judge_peak(new, make.reference(peak_bytes=old), key)
    assert (found.verdict, found.new_bytes, found.reference_bytes) == (word, new, old)
    assert bool(found.reason) == (word != "PASSED")


def test_where_neither_side_has_a_peak_there_is_no_verdict(make):
    assert judge_peak(None, None, make.key()) is judge_peak(None, make.reference(), make.key()) is None


def test_a_negative_amount_is_refused():
    for name in ["new_bytes", "reference_bytes", "allowed_bytes"]:
        with pytest.raises(BadInput, match=f"{name} is -1"):
            replace(PeakJudgement("PASSED", 1, 1, 1), **{name: -1})


@pytest.mark.parametrize("kind", ["measured", "threshold"])
def test_an_entry_takes_a_peak_that_can_be_of_measured_ones_only(make, kind):
    if kind == "measured":
        assert make.measured(peak_bytes=0).peak_bytes == 0
        with pytest.raises(BadInput, match="peak_bytes is -1"):
            make.measured(peak_bytes=-1)
    else:
        with pytest.raises(BadInput, match="peak_bytes"):
            make.published(peak_bytes=1)
