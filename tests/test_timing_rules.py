"""The published comparison of timing rules: this engine's claims, and that the page is what the program makes."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "benchmarks/timing_rules.py"
# The scenarios, by the words that only they have.
NAMES = {
    "kernels": "three 2.3 µs kernels",
    "droop of a long kernel": "droop, 200 µs",
    "droop of a short kernel": "droop, 10 µs",
    "late droop": "only after 0.85 s",
    "throttled": "thermal slowdown",
    "cache": "256 MiB cache",
    "queue": "queue depth 1000",
    "ticks": "0.5 µs ticks",
}


@pytest.fixture(scope="module")
def rules():
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("timing_rules", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look themselves up by module.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "timing_rules", module)
        # It imports the programs beside it.
        patch.syspath_prepend(PROGRAM.parent)
        spec.loader.exec_module(module)
        yield module


def own_lines(path):
    return path.read_text(encoding="utf-8").partition("\n<!-- made by")[0].splitlines()


@pytest.fixture(scope="module")
def page(rules):
    """The lines of the published page, without the parts of other programs."""
    return own_lines(rules.PAGE)


def test_this_engine_is_right_within_a_percent_or_says_why_it_is_not(page):
    columns = [line.split("|")[1:4] for line in page if line.startswith("|")][2:]
    answers = {
        name: answer
        for name, words in NAMES.items()
        for device, _, answer in columns
        if words in device
    }
    # Its default budget ends before this one.
    assert answers.pop("late droop") == " -15.0 % (events, 276) "
    assert answers.pop("throttled") == " 143 µs, INVALID, after 1.41 s "
    assert [
        name
        for name, answer in answers.items()
        if not re.match(r" [+-]0\.\d % \((events|graph), ", answer)
    ] == []


def test_a_larger_budget_sees_a_droop_that_comes_after_the_default(rules):
    (scenario,) = [scenario for scenario in rules.SCENARIOS if NAMES["late droop"] in scenario.name]
    device = scenario.device()
    engine = rules.Engine(
        device, rules.Plan(lambda: scenario.call(device), sets=[()], budget_s=4.0)
    )
    engine.run()
    samples = engine.samples()
    assert "drifting" in samples.labels or abs(samples.median_s / scenario.truth_s - 1) <= 0.01


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_the_page_is_what_the_program_makes(rules, page, monkeypatch, name):
    monkeypatch.setattr(rules, "SCENARIOS", [s for s in rules.SCENARIOS if NAMES[name] in s.name])
    header, _, row = rules.text()[1].split("\n")
    published = [line for line in page if line.startswith("|")]
    assert header == published[0]
    assert row in published


def test_the_page_has_no_rows_of_its_own(rules, page):
    rows = [line for line in page if line.startswith("|")][2:]
    assert [scenario.name for scenario in rules.SCENARIOS] == [
        row.split("|")[1].strip() for row in rows
    ]


def test_the_text_of_the_page_is_what_the_program_writes(rules, page, monkeypatch, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(rules.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(rules, "SCENARIOS", ())
    monkeypatch.setattr(rules, "PAGE", path)
    rules.main()
    # The conclusions follow from the table.
    own = [
        [line for line in text if not line.startswith(("|", "*", "Of "))]
        for text in (own_lines(path), page)
    ]
    assert own[0] == own[1]
    assert (
        "NVBench entropy is off by more than 5% on 1 of 2 devices whose truth is known, by -50.0 % at most"
        == (rules.conclusion("NVBench entropy", [-0.5, 0.01]))
    )


def test_the_first_sentence_counts_the_devices_on_which_rules_are_off(rules, page):
    rows = [line.split("|")[3:-1] for line in page if line.startswith("|")][2:]
    shares = [[re.match(r" ([+-][\d.]+) % \(", cell) for cell in row] for row in rows]
    errors = {
        name: [float(row[at][1]) / 100 for row in shares if row[at]]
        for at, name in enumerate(rules.RULES)
    }
    assert rules.first_sentence(errors) == page[2]
    errors = {"this engine": [0.0, 0.01], "another": [0.2, 0.0], "a third": [0.0, 0.0]}
    assert rules.first_sentence(errors) == (
        "Of 2 scripted devices whose truth is known, this engine is off by more than 5% on 0, and each of 2 other "
        "rules on 0 to 1."
    )


def test_the_page_keeps_the_parts_of_other_programs(rules, monkeypatch, tmp_path):
    path, standing = tmp_path / "page.md", rules.PAGE.read_text(encoding="utf-8")
    path.write_text(standing, encoding="utf-8")
    monkeypatch.setattr(rules, "SCENARIOS", ())
    monkeypatch.setattr(rules, "PAGE", path)
    rules.main()
    begin = "<!-- made by"
    assert path.read_text(encoding="utf-8").partition(begin)[2] == standing.partition(begin)[2]
