"""The result that a search follows, where its figures have no noise."""

import pytest

from pytest_roofline.bisect.state import Lead

GOOD_S, BAD_S = 0.031, 0.0372


@pytest.mark.parametrize(
    ("seconds", "level"),
    [(GOOD_S, 0), (BAD_S, 1), (0.0311, 0), (0.0371, 1), (0.034, 0.5), (0.030, 0), (0.040, 1)],
)
def test_a_rounded_time_near_an_end_or_beyond_it_has_the_level_of_that_end(seconds, level):
    lead = Lead("key", "test", "label", "+20 %", {"": GOOD_S}, {"": BAD_S})
    assert level == lead.share({"": seconds})


def test_a_figure_that_only_the_bad_end_has_is_exact():
    lead = Lead("key", "test", "label", "spills", {}, {"spills": 4.0}, is_kernel=True)
    assert (lead.is_exact, lead.share({}), lead.share({"spills": 4.0})) == (True, 0.0, 1.0)


@pytest.mark.parametrize(
    ("registers", "stack", "level"),
    [
        *[(64, None, 0), (96, 8, 1), (80, None, 0.5), (60, None, 0), (128, 8, 1)],
        # Of two figures one is that of the bad end already.
        *[(64, 8, 0.5), (96, None, 0.5), (96, 4, 0.5)],
    ],
)
def test_a_kernel_no_worse_than_the_good_end_has_its_level(registers, stack, level):
    figures = {"registers": 64.0}, {"registers": 96.0, "stack_bytes": 8.0}
    lead = Lead("key", "test", "label", "64 → 96", *figures, is_kernel=True)
    candidate = {"registers": float(registers), "spills": 3.0}
    candidate |= {} if stack is None else {"stack_bytes": float(stack)}
    assert level == lead.share(candidate)
