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


@pytest.mark.parametrize(("registers", "level"), [(64, 0), (96, 1), (65, 0.5), (128, 0.5)])
def test_a_figure_of_a_kernel_is_that_of_an_end_or_neither(registers, level):
    figures = {"registers": 64.0}, {"registers": 96.0}
    lead = Lead("key", "test", "label", "64 → 96", *figures, is_kernel=True)
    assert level == lead.share({"registers": float(registers), "spills": 3.0})
