"""What a reproducer is to measure goes through its file unchanged; a file that is none is told."""

import pytest

from pytest_roofline.core.cases import Case, Recorded, cases_text, machine_text, read_cases
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.work import Work

CASE = Case(
    "test_x.py::test_y[é]",
    "cuda:1",
    ("--roofline-budget=2",),
    "NVIDIA H200",
    (Recorded("a", "y[é].a", "traffic_GBps", Work(read_bytes=8), (1e-3, 2e-3), None, 0.05, ("noisy",)),),
)


def test_cases_come_back_as_they_were(tmp_path):
    path = tmp_path / "case.json"
    path.write_text(cases_text([CASE, CASE]), encoding="utf-8")
    assert [CASE, CASE] == read_cases(path)


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"node_id": "x"}]', '[{"recorded": [], "options": [], "x": 1}]'])
def test_what_is_no_file_of_cases_is_told(tmp_path, text):
    path = tmp_path / "case.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadFile, match=r"case\.json is not what `roofline bundle` wrote: .*; unpack the archive again"):
        read_cases(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadFile, match=r"No such file or directory; expected it beside reproduce\.py"):
        read_cases(tmp_path / "case.json")


def test_a_machine_is_told_without_its_name(make):
    assert "NVIDIA H200, driver 570.86, kernel 6.8, torch 2.13.0" == machine_text(make.environment())
    assert "AMD EPYC, kernel 6.8, torch 2.13.0" == machine_text(make.environment("AMD EPYC", driver=None))
