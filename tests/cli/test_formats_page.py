"""The page of formats has the names that the code reads and writes, each once."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from pytest_roofline.baselines.runs import LINE_TYPES
from pytest_roofline.core.directions import TOOLS
from pytest_roofline.core.entries import Entry, ExactEntry
from pytest_roofline.core.rows import COLUMNS
from pytest_roofline.report import words
from pytest_roofline.report.files import run_json

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"


def section(title):
    """Return the text below a heading of the page, up to the next one."""
    page = PAGE.read_text(encoding="utf-8")
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)[
        1
    ]


def first_cells(title):
    """Return the names in the first cell of each row of a section's tables."""
    rows = re.findall(r"^\| ([^|]+) \|", section(title), re.MULTILINE)
    return [name for cell in rows for name in re.findall(r"`([^`]+)`", cell)]


def names_of(*kinds):
    return {field.name for kind in kinds for field in fields(kind)}


def test_the_columns_of_a_result_are_those_of_the_code_each_once():
    assert sorted(first_cells("`results.csv`")) == sorted(COLUMNS)


def test_the_fields_of_run_json_are_those_of_a_run(make, tmp_path):
    document = json.loads(run_json([make.run(tmp_path / "run.jsonl", make.measurement())]))
    (run,) = document.pop("runs")
    (results,) = [name for name in document if isinstance(document[name], list)]
    expected = [*document, *(f"runs[].{name}" for name in run)]
    listed = [name.replace(f"{results}[]", results) for name in first_cells("`run.json`")]
    assert sorted(listed) == sorted(expected)


def test_the_lines_of_a_run_file_are_those_of_the_code_each_once():
    rows = [name for name in first_cells("Run files") if name != "type"]
    assert sorted(rows) == sorted(LINE_TYPES)


def test_the_fields_of_a_baseline_are_those_of_its_entries_each_once():
    assert sorted(first_cells("Baseline files")) == sorted(names_of(Entry, ExactEntry))


def test_the_properties_in_junit_xml_are_those_of_the_code():
    listed = set(re.findall(r"`([a-z_]+)`", section("JUnit XML")))
    assert listed == {*words._PROPERTIES}


@pytest.mark.feature("exchange")
def test_the_formats_of_other_tools_are_those_of_the_commands():
    from pytest_roofline.exchange.formats import EXPORT_NAMES

    exported = first_cells("Formats that export writes")
    assert exported[: len(EXPORT_NAMES) + 1] == ["--to", *EXPORT_NAMES]
    imported = first_cells("Formats that import reads")
    assert sorted(set(imported) - {"--read", "triton.testing"}) == sorted(TOOLS)
