"""A kind of result that a conftest.py adds, and nothing else knows: it is judged and shown as the built-in ones are."""

import csv
import json
import xml.etree.ElementTree as ET

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.rows import KERNEL, MEMORY, PEAK, TIME
from pytest_roofline.core.verdicts import ExactVerdict
from pytest_roofline.plugin.kinds import ResultKind

KIND = """
import pytest
from pytest_roofline import ExactVerdict, ResultKind


class Energy(ResultKind):
    metric = "energy"
    counted = "metered"


ENERGY = Energy()


@pytest.hookimpl(optionalhook=True)
def pytest_roofline_result_kinds(config):
    return [ENERGY]


@pytest.fixture
def energy(request, roofline):
    def spend(joules, baseline_joules, verdict, name=""):
        ENERGY.add(
            ExactVerdict(
                test_id=request.node.nodeid,
                label=request.node.name.removeprefix("test_") + (f".{name}" if name else ""),
                metric="energy",
                verdict=verdict,
                name=name,
                value=joules,
                unit="J",
                baseline_value=baseline_joules,
                allowed=baseline_joules / 8,
                remarks=("the fan ran",) if verdict == "REGRESSED" else (),
            )
        )

    return spend
"""
# Writes the metrics of the run's kinds beside the tests.
LISTING = """
def pytest_sessionfinish(session):
    from pytest_roofline.plugin.current import session_key

    kinds = session.config.stash[session_key].kinds
    (HERE / "kinds.json").write_text(json.dumps([kind.metric for kind in kinds]))
"""
SUITE = """
def test_calm(energy):
    energy(2.0, 2.0, "PASSED")

def test_hungry(energy):
    energy(12.5, 10.0, "REGRESSED")
    energy(3.0, 3.0, "PASSED", name="idle")

def test_broken(energy):
    energy(1.0, 1.0, "PASSED")
    raise AssertionError("wrong")
"""
TEST = "test_suite.py::test_{}"
MESSAGE = (
    "hungry: +25.0 % energy (12.5 J, baseline 10 J) REGRESSED; exact; the fan ran\n"
    "  Details: .roofline/runs/now.jsonl."
)


@pytest.fixture
def metered(desk):
    """The desk after a saved run of the suite with every report, whose output is `metered.said`."""
    conftest = desk.path / "conftest.py"
    conftest.write_text(conftest.read_text() + KIND + LISTING)
    desk.suite(SUITE)
    desk.said = desk.run(
        "-v", "--roofline-save=now", "--roofline-report=out", "--junitxml=junit.xml"
    )
    return desk


def test_the_kinds_of_a_run_stand_in_one_list(metered):
    names = json.loads((metered.path / "kinds.json").read_text())
    assert names == [TIME, PEAK, KERNEL, MEMORY, "energy"]


def test_a_kind_of_a_conftest_turns_its_test_red_and_stands_in_the_terminal(metered):
    metered.said.assert_outcomes(passed=1, failed=2)
    metered.said.stdout.fnmatch_lines(
        [
            "*::test_calm PASSED 2 J energy +0.0 %*",
            "*::test_hungry FAILED*",
            *MESSAGE.split("\n"),
            "test * metric * value  baseline * diff  verdict",
            "broken * energy * 1 J * FAILED",
            "hungry * energy  12.5 J * 10 J  +25.0 %  REGRESSED",
            "calm * energy * 2 J * 2 J * +0.0 %  PASSED",
            "*0 measured, 4 metered*",
        ]
    )


def test_its_figures_and_verdicts_are_properties_of_junit(metered):
    figures = {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in ET.parse(metered.path / "junit.xml").iter("testcase")
    }
    assert figures["test_hungry"] == {
        "roofline.energy": "12.5",
        "roofline.energy.baseline_value": "10",
        "roofline.energy.change": "0.25",
        "roofline.energy.verdict": "REGRESSED",
        "roofline.idle.energy": "3",
        "roofline.idle.energy.baseline_value": "3",
        "roofline.idle.energy.change": "0",
        "roofline.idle.energy.verdict": "PASSED",
    }


def test_its_verdicts_are_read_back_from_the_run_file(metered):
    run = metered.last_run()
    assert [(one.metric, one.label, one.value, one.verdict) for one in run.exact] == [
        ("energy", "calm", 2.0, "PASSED"),
        ("energy", "hungry", 12.5, "REGRESSED"),
        ("energy", "hungry.idle", 3.0, "PASSED"),
    ]
    assert {type(one) for one in run.exact} == {ExactVerdict}
    ended = {outcome.test_id: outcome for outcome in run.outcomes}
    assert ended[TEST.format("hungry")].verdicts == ("REGRESSED", "PASSED")
    assert ended[TEST.format("hungry")].by_verdict


def test_the_run_file_alone_puts_it_into_run_json_csv_markdown_and_page(metered):
    # Made once more without the conftest, by the command that reads the run file.
    again = metered.cli("report", "now", "-o", "again")
    assert again.exit_code == 0, again.output
    wanted = [
        ("calm", "energy", 2.0, "J", 2.0, 0.125, "PASSED"),
        ("hungry", "energy", 12.5, "J", 10.0, 0.125, "REGRESSED"),
        ("hungry.idle", "energy", 3.0, "J", 3.0, 0.125, "PASSED"),
    ]
    names = ("label", "metric", "value", "unit", "baseline_value", "tolerance", "verdict")
    for folder in (metered.path / "out", metered.path / "again"):
        results = json.loads((folder / "run.json").read_text())["results"]
        assert [tuple(row[name] for name in names) for row in results if row["metric"]] == wanted
        with (folder / "results.csv").open(newline="") as file:
            cells = [tuple(row[name] for name in names) for row in csv.DictReader(file)]
        assert [row for row in cells if row[1]] == [tuple(map(str, row)) for row in wanted]
        assert (
            "**REGRESSED** | `hungry` | `12.5 J` | `10 J` | `+25.0 %`"
            in (folder / "summary.md").read_text()
        )
        page = (folder / "index.html").read_text()
        assert ("12.5 J energy" in page, "10 J" in page, "the fan ran" in page) == (True,) * 3


def test_a_verdict_of_another_kind_is_refused():
    class Energy(ResultKind):
        metric = "energy"

    with pytest.raises(BadInput, match="metric 'heat'; expected 'energy', the metric of Energy"):
        Energy().add(ExactVerdict("t", "t", "heat", "PASSED"))


@pytest.mark.parametrize("metric", ["time", ""])
def test_a_kind_needs_a_metric_of_its_own(desk, metric):
    conftest = desk.path / "conftest.py"
    conftest.write_text(
        conftest.read_text() + KIND.replace('metric = "energy"\n', f'metric = "{metric}"\n', 1)
    )
    desk.suite(SUITE)
    result = desk.run()
    expected = (
        f"ERROR: Energy has metric '{metric}'; expected a metric of its own, other than time, peak_bytes, "
        "kernel, memory"
    )
    result.stderr.fnmatch_lines([expected])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
