"""`results.csv` comes back from pandas as it went in, and no spreadsheet computes what stands in it."""

import csv
import io
import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from pytest_roofline.baselines.run_rows import rows_of
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.records import Outcome
from pytest_roofline.core.rows import plain
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.units import printable
from pytest_roofline.report.files import COLUMNS, results_csv


@pytest.fixture
def run(make, report, tmp_path):
    return make.run(tmp_path / "run.jsonl", *report.everything())


def test_pandas_reads_every_value_back(run):
    # Versions are text, however much they look like numbers.
    read_as = {"dtype": {"driver": str, "torch": str}, "keep_default_na": False, "na_values": [""]}
    read_as["float_precision"] = "round_trip"
    frame = pd.read_csv(io.StringIO(results_csv([run]), newline=""), **read_as)
    rows = [plain(columns) for row in rows_of([run]) for columns in row.columns()]
    assert (list(COLUMNS), len(rows)) == (list(frame.columns), len(frame))
    for row, (_, read) in zip(rows, frame.iterrows(), strict=True):
        for name, value in row.items():
            if value is None or value == "":
                assert pd.isna(read[name]), name
            elif isinstance(value, dict | list):
                assert value == json.loads(read[name])
            elif isinstance(value, str):
                assert (
                    printable(value) == read[name].removeprefix("'")
                    or printable(value) == read[name]
                )
            else:
                assert value == read[name], name


def rows_of_file(make, folder, *records):
    text = results_csv([make.run(folder / "run.jsonl", *records)])
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_lines_end_as_rfc_4180_says_and_every_one_has_all_columns(run, make, tmp_path):
    text = results_csv([run])
    lines = text.split("\r\n")
    assert ("", True) == (lines[-1], "\n" not in "".join(lines))
    assert {len(COLUMNS)} == {
        len(row) for row in csv.reader(io.StringIO(text, newline=""), strict=True)
    }
    assert ",".join(COLUMNS) + "\r\n" == results_csv([make.run(tmp_path / "empty.jsonl")])


def test_text_that_a_spreadsheet_would_compute_has_an_apostrophe_in_front_and_numbers_have_none(
    make, report, tmp_path
):
    for start in ("=", "+", "-", "@", "\t=", "\r=", " =", "＝", "＋", "－", "＠"):
        hostile = f'{start}HYPERLINK("http://x","y")'
        (row,) = rows_of_file(
            make, tmp_path, Outcome(f"test_a.py::test_{hostile}", "failed", reason=hostile)
        )
        assert row["reason"][0] in "'\\"
        assert printable(hostile) == row["reason"].removeprefix("'")
    (row,) = rows_of_file(make, tmp_path, *report.compared("IMPROVED", change=-0.2))
    assert math.expm1(-0.2) == float(row["change"])


def test_labels_reason_and_processes_are_what_the_run_says(make, report, tmp_path):
    one = make.measurement(samples=Samples((1e-3,), 1, 1e-9, labels=("cache_resident", "noisy")))
    assert ["cache_resident", "noisy"] == json.loads(rows_of_file(make, tmp_path, one)[0]["labels"])
    ended = make.outcome(make.measurement(), "failed", reason="RuntimeError: in teardown")
    records = report.compared("NO BASELINE", outcome=ended)
    records[1] = replace(records[1], reasons=text_reasons("no baseline recorded"), reference=None)
    (row,) = rows_of_file(make, tmp_path, *records)
    assert ("FAILED", "RuntimeError: in teardown; no baseline recorded") == (
        row["verdict"],
        row["reason"],
    )
    # Processes that do not count are not counted.
    three = [
        make.measurement(process=f"p{number}", invalid="busy" * (number == 0))
        for number in range(3)
    ]
    assert "2" == rows_of_file(make, tmp_path, *three)[0]["processes"]
