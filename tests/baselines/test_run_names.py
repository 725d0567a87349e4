"""The one name of a run in a report."""

from pathlib import Path

import pytest

from pytest_roofline.baselines.run_files import run_names
from pytest_roofline.baselines.run_rows import rows_of, rows_of_run


@pytest.fixture
def names(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(*files):
        return list(run_names([make.run(tmp_path / file) for file in files]).values())

    return of


def test_a_run_is_called_by_its_file_without_the_suffix(names):
    assert ["nightly"] == names("runs/nightly.jsonl")


def test_files_of_one_name_carry_as_many_folders_as_tell_them_from_each_other(names):
    assert ["a/x/n", "b/x/n", "other"] == names("a/x/n.jsonl", "b/x/n.jsonl", "c/other.jsonl")


def test_files_that_no_folder_tells_apart_are_numbered(names):
    assert ["n", "n (2)", "n (3)"] == names("n.jsonl", "n.json", "n.txt")


def test_a_name_is_printable_and_stays_unique(names):
    assert ["a\\nb", "a\\nb (2)"] == names("a\nb.jsonl", "a\\nb.jsonl")


def test_a_relative_path_is_told_from_an_absolute_one(make, tmp_path, monkeypatch):
    run = make.run(tmp_path / "a" / "n.jsonl")
    monkeypatch.chdir(tmp_path)
    other = make.run(Path("b", "n.jsonl"), run_id="run-2")
    assert {run.path: "a/n", other.path: "b/n"} == run_names([run, other])


def test_every_row_carries_the_name_of_its_run(make, tmp_path):
    one = make.measurement(1e-3)
    runs = [make.run(tmp_path / folder / "n.jsonl", one) for folder in "ab"]
    assert ["a/n", "b/n"] == [row.run for row in rows_of(runs)]
    assert ["n"] == [row.run for row in rows_of_run(runs[0])]
