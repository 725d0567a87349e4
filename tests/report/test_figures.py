"""What is printed of the numbers that tests found besides times."""

import pytest
from rich.cells import cell_len

from pytest_roofline.core.profiles import UNITS, Figure
from pytest_roofline.report.figures import figure_lines, figure_text

SHOWN = {
    "B": (2 * 2**30, "2.00 GiB"),
    "s": (0.0213, "21.3 ms"),
    "share": (0.87345, "87.3 %"),
    "count": (120_945_408, "120,945,408"),
    "FLOP": (4.212e12, "4.21 TFLOP"),
    "tokens/s": (12345.6, "12346 tokens/s"),
    "x": (1.934, "1.93 x"),
}


def figure(name="n", value=1.0, unit="count", test="ddp"):
    return Figure(f"test_it.py::test_it[{test}]", f"it[{test}]", "process-1", name, float(value), unit)


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_has_a_way_to_be_shown(unit):
    value, text = SHOWN[unit]
    assert figure_text(figure("it", value, unit)) == f"it {text}"
    assert figure_text(figure("it", -value, unit)) == f"it -{text}"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0, "s", "0 ns"), (0, "B", "0 B"), (0, "count", "0"), (10.0021, "count", "10.0"), (512, "FLOP", "512 FLOP"),
     (0.0004, "share", "0.0 %"), (999.7e12, "FLOP", "1.00 PFLOP"), (0, "share", "0.0 %")],
)  # fmt: skip
def test_extremes_are_shown_in_a_unit_that_fits(value, unit, text):
    assert figure_text(figure("it", value, unit)) == f"it {text}"


def test_each_test_has_one_line_with_its_figures_in_order():
    found = [figure("efficiency", 0.873, "share"), figure("n", 2, test="fsdp"), figure("communicating", 0.121, "share")]
    assert figure_lines(found) == ["it[ddp]: efficiency 87.3 %, communicating 12.1 %", "it[fsdp]: n 2"]


def test_of_a_test_that_was_run_again_the_last_figure_stands():
    assert figure_lines([figure(value=1), figure("m"), figure(value=2)]) == ["it[ddp]: n 2, m 1"]


def test_of_many_tests_the_first_are_listed():
    lines = figure_lines([figure(test=str(number)) for number in range(5)], at_most=3)
    assert (len(lines), lines[-1]) == (4, "… and 2 more tests with figures")


def test_a_figure_steers_no_terminal():
    (line,) = figure_lines([figure("x\x1b[31m\n")])
    assert (cell_len(line) > 0, set(line) & set("\x1b\n")) == (True, set())
