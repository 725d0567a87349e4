"""Numbers that a test found besides times."""

import math

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.profiles import UNITS, Figure


def figure(name="efficiency", value=0.87, unit="share"):
    return Figure("test_it.py::test_it", "it", "process-1", name, value, unit)


def test_a_figure_has_one_of_a_few_units():
    for unit in UNITS:
        assert figure(unit=unit).unit == unit, unit


def test_another_unit_is_refused_and_the_known_ones_are_named():
    for unit in ["ms", "GB", "", None]:
        with pytest.raises(BadInput) as error:
            figure(unit=unit)
        units = "B, s, share, count, FLOP, tokens/s, x"
        assert str(error.value) == f"the unit of 'efficiency' is {unit!r}; expected one of {units}", unit


def test_what_is_no_finite_number_is_refused():
    for value in [math.nan, math.inf, -math.inf, True]:
        with pytest.raises(BadInput, match=r"'efficiency' is .*; expected a finite number"):
            figure(value=value)


def test_a_figure_without_a_name_is_refused():
    with pytest.raises(BadInput, match="a figure has no name"):
        figure(name="")
