"""One rule of statuses: what is worse outweighs what nobody can tell, and that outweighs what is fine."""

import math
from dataclasses import replace

import pytest

from pytest_roofline.core.statuses import Status, is_compared, looks_slow, status_of
from pytest_roofline.core.verdicts import Kind, TimeLimit


@pytest.fixture
def row(make):
    """Makes a row of a verdict and an estimate, as a share of time, at a tolerance of 5 %."""

    def of(verdict, change=0.0, **facts):
        result = make.result()
        judged = replace(
            result.time_verdict, kind=Kind(verdict), estimate=math.log1p(change), **facts
        )
        return replace(result, verdict=verdict, change=change, time_verdict=judged)

    return of


def test_a_status_tells_what_is_slower_from_what_nobody_can_tell(row):
    fine, slower, slow, calm = (
        row("PASSED"),
        row("REGRESSED", 0.2),
        row("INCONCLUSIVE", 0.3),
        row("INCONCLUSIVE", 0.04),
    )
    for rows, expected in (
        ([fine], 0),
        ([fine, row("IMPROVED", -0.3)], 0),
        ([fine, calm], 0),
        ([calm], 0),
        ([fine, slow], 2),
        ([fine, slow, slower], 1),
        ([fine, row("SHIFTED", 0.1)], 1),
        ([replace(fine, verdict="FAILED")], 1),
        ([row("INVALID"), row("NO BASELINE")], 2),
        ([fine, row("INVALID", 0.3)], 0),
        ([], 2),
    ):
        assert status_of(rows) == expected, [each.verdict for each in rows]
    assert status_of([fine], worse=True) is Status.SLOWER
    assert status_of([fine], complete=False) is Status.CANNOT_TELL
    assert status_of([slower], complete=False) is Status.SLOWER


def test_an_estimate_is_held_against_the_tolerance_of_its_test_and_a_limit_allows_none(row, make):
    assert [looks_slow(row("INCONCLUSIVE", change)) for change in (0.049, 0.051)] == [False, True]
    assert not looks_slow(row("INCONCLUSIVE", 0.08, tolerance=0.1))
    assert looks_slow(row("INCONCLUSIVE", 0.01, limit=TimeLimit(1.0, make.published())))
    # The word of its memory hides no slowdown.
    assert looks_slow(replace(row("INCONCLUSIVE", 0.3), verdict="INVALID"))


def test_the_end_of_a_bare_test_compares_nothing(row):
    assert not is_compared(replace(row("PASSED"), metric=None))
    assert status_of([replace(row("PASSED"), metric=None)]) is Status.CANNOT_TELL
