"""A reproducer gives a sure answer only where it has one, and 1 only for what it was sent to find."""

import sys
from dataclasses import replace

import pytest

from pytest_roofline.core.cases import CASE_FILE, Case, Recorded, cases_text
from pytest_roofline.core.work import Work
from pytest_roofline.standalone import reproducing
from pytest_roofline.standalone.comparing import FAST, SLOW, UNKNOWN, compare, judge, together
from pytest_roofline.standalone.results import Found, Told, read_results, write_results

RECORDED = Recorded("", "copy[2]", "traffic_GBps", Work(read_bytes=10**6), (2e-3,), 1e-3, 0.05)
HANGS = [sys.executable, "-c", "import threading; threading.Event().wait()"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tests").mkdir()
    case = Case("test_x.py::test_x", "cpu", (), "NVIDIA H200", (RECORDED,))
    (tmp_path / CASE_FILE).write_text(cases_text([case]), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([FAST, FAST], FAST),
        ([FAST, UNKNOWN], UNKNOWN),
        ([UNKNOWN, SLOW, FAST], SLOW),
        ([None, FAST], FAST),
        ([None], UNKNOWN),
        ([], UNKNOWN),
    ],
)
def test_one_that_is_slow_is_enough_and_one_that_is_unknown_spoils_the_fast(found, status):
    assert status == together(found)


@pytest.mark.parametrize(
    ("changes", "seconds", "status"),
    [
        ({}, 1.04e-3, FAST),
        ({}, 1.06e-3, SLOW),
        ({"baseline_s": None, "limit_s": 1e-3}, 1e-3, FAST),
        ({"baseline_s": None, "limit_s": 1e-3}, 1.01e-3, SLOW),
        ({"baseline_s": None}, 2e-3, None),
        ({"baseline_s": None}, 9e-3, None),
    ],
)
def test_only_a_baseline_or_a_limit_tells_what_is_slow(changes, seconds, status):
    assert status == judge(replace(RECORDED, **changes), seconds)[0]


@pytest.mark.parametrize(
    ("times", "status", "count"),
    [
        (((1e-3, ""), (1e-3, ""), (9e-3, "busy")), FAST, "1.00 ms, 1.00 GB/s, 2 processes"),
        (((2e-3, ""), (2e-3, ""), (2e-3, "")), SLOW, "2.00 ms, 0.50 GB/s, 3 processes"),
        (((1e-3, ""), (9e-3, "busy"), (9e-3, "busy")), UNKNOWN, "1.00 ms, 1.00 GB/s, 1 process"),
        (((9e-3, "busy"),), UNKNOWN, "9.00 ms, 0.111 GB/s, 1 process"),
    ],
)
def test_times_that_cannot_be_trusted_do_not_count(times, status, count, capsys):
    taken = [Told("cpu", (Found("", seconds, trouble),)) for seconds, trouble in times]
    assert status == compare(RECORDED, taken)
    text = capsys.readouterr().out
    assert (UNKNOWN == status, "busy" in str(times)) == ("cannot tell" in text, "do not trust the time here" in text)
    assert count.split(",")[0] in text
    assert count.split(",")[-1] in text


def test_a_process_that_does_not_end_is_killed(folder, monkeypatch, capsys):
    monkeypatch.setattr(reproducing, "command", lambda case, temporary: HANGS)
    monkeypatch.setattr(reproducing, "TIMEOUT_S", 0.2)
    assert UNKNOWN == reproducing.main(folder, [])
    told = capsys.readouterr().out
    assert ["  process 1 of 3 …", "  | killed after 0.2 s"] == [
        line for line in told.splitlines() if "3 …" in line or "kill" in line
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyError("machine"), MemoryError(), OSError("gone")])
def test_whatever_is_raised_is_status_2(folder, monkeypatch, capsys, error):
    def measure(folder, case):
        raise error

    monkeypatch.setattr(reproducing, "_measure", measure)
    assert UNKNOWN == reproducing.main(folder, [])
    assert capsys.readouterr().err.startswith("reproduce.py: ")


def test_what_was_measured_before_a_failure_is_shown(folder, monkeypatch, capsys):
    processes = iter(
        [
            reproducing._Process(Told("cpu", (Found("", 2e-3),)), "", failed=False),
            reproducing._Process(Told(), "the second broke", failed=True),
        ]
    )
    monkeypatch.setattr(reproducing, "_measure", lambda folder, case: next(processes))
    assert UNKNOWN == reproducing.main(folder, [])
    told = capsys.readouterr().out
    assert told.index("the second broke") < told.index("here / baseline: 2.000")


def test_what_a_process_found_comes_back_and_nothing_where_it_wrote_nothing(tmp_path):
    told = Told("cpu", (Found("a", 1e-3, "busy", ("later",)),), "ValueError: x", skipped=True)
    write_results(tmp_path / "x.json", told)
    assert (told, Told()) == (read_results(tmp_path / "x.json"), read_results(tmp_path / "gone.json"))
