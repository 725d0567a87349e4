"""What a reproducer is to measure goes through its file unchanged; a file that is none is told."""

from dataclasses import replace

import pytest

from pytest_roofline.core.cases import Case, Recorded, cases_text, kind_of_failure, machine_text, read_cases
from pytest_roofline.core.errors import BadFile, BadInput
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


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("pytest_roofline.core.errors.WrongData: copy: wrong data in set 0", "WrongData"),
        ("AssertionError: bits flipped", "AssertionError"),
        ("assert 1.0 == 2: three", "AssertionError"),
        ("ValueError", "ValueError"),
    ],
)
def test_the_exception_of_a_reason_is_known(reason, kind):
    assert kind == kind_of_failure(reason)


@pytest.mark.parametrize("changes", [{"seconds": ()}, {"seconds": (0.0,)}, {"baseline_s": -1.0}, {"tolerance": 0}])
def test_a_record_without_a_time_is_refused(changes):
    with pytest.raises(BadInput):
        replace(CASE.recorded[0], **changes)


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
