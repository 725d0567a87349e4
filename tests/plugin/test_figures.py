"""`roofline.figure`: numbers that a test found besides times."""

import json
import re
from pathlib import Path

from pytest_roofline.baselines.proposals import propose
from pytest_roofline.core.profiles import Figure

from .conftest import ONE

REFUSED = """
import pytest

@pytest.mark.parametrize(
    "arguments",
    [("", 1, "s"), ("a", True, "s"), ("a", 1, "ms"), ("a", float("nan"), "s")],
    ids=lambda arguments: "it",
)
def test_refused(roofline, arguments):
    roofline.figure(*arguments)

def test_twice(roofline):
    roofline.figure("a", 1, "s")
    roofline.figure("a", 2, "s")
"""
SENTENCES = (
    "the name of a figure is ''; expected text",
    "the figure 'a' is True; expected a number, in a unit of",
    "the unit of 'a' is 'ms'; expected one of B, s, share, count, FLOP, tokens/s, x",
    "'a' is nan; expected a finite number",
    "this test has two figures with the name 'a'. Give each a different name, as in name='cold'",
)


def test_a_figure_is_no_part_of_a_baseline_a_comparison_or_a_verdict(desk):
    desk.suite(ONE.format(marks=""))
    assert desk.run("--roofline-save=plain").ret == 0
    desk.suite(ONE.format(marks="") + '    roofline.figure("found", 1, "x")\n')
    result = desk.run("--roofline-save=told", "--roofline-against=plain")
    assert result.ret == 0
    plain, told = desk.saved("plain"), desk.saved("told")
    assert (len(plain.figures), len(told.figures)) == (0, 1)
    assert all("found" not in json.dumps(verdict.subject.label) for verdict in told.verdicts)
    assert [entry.label for entry in propose([told]).baseline.entries] == ["one"]
    assert "found" not in desk.cli("compare", "plain", "told").output


def test_what_is_no_figure_is_refused_with_what_was_seen(desk):
    desk.suite(REFUSED)
    result = desk.run("--roofline-save=it")
    result.assert_outcomes(failed=len(SENTENCES))
    out = result.stdout.str()
    assert [sentence for sentence in SENTENCES if f"BadInput: {sentence}" not in out] == []
    assert [figure.value for figure in desk.saved("it").figures] == [1.0]


def test_a_further_round_finds_a_figure_again_and_keeps_quiet(desk):
    desk.sessions(ONE.format(marks=""))
    options = desk.sessions(ONE.format(marks=""))
    desk.suite(ONE.format(marks="") + '    roofline.figure("found", 1, "x")\n')
    desk.script(slow=1.06)
    desk.run("--roofline-save=it", "--roofline-rounds=3", *options)
    run = desk.saved("it")
    assert {measurement.round for measurement in run.measurements} == {1, 2, 3}
    assert [type(figure) for figure in run.figures] == [Figure]


def test_the_example_of_the_page_prints_what_stands_below_it(pytester):
    page = (Path(__file__).parents[2] / "docs" / "writing-tests.md").read_text(encoding="utf-8")
    chapter = page.partition("## First calls, tokens and figures")[2]
    example, shown = (
        re.search(rf"```{kind}\n(.*?)```", chapter, re.DOTALL)[1] for kind in ("python", "text")
    )
    pytester.makepyfile(example)
    options = ("-v", "-p", "no:hypothesispytest", "--roofline-device=cpu", "--roofline-budget=0.05")
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(passed=1)
    first_calls, parameters = shown.splitlines()
    # The numbers are another machine's.
    told = re.sub(r"\d[\d.]* (ms|µs|x)", "NUMBER", first_calls.partition(";")[0])
    pattern = re.escape(told).replace("NUMBER", r"[\d.]+ (?:s|ms|µs|ns|x)")
    assert re.search(rf"^{pattern};", result.stdout.str(), re.MULTILINE)
    assert parameters in result.outlines
