"""Whether a slowness is here too: the rule, and what is asked of pytest. Processes are in tests/test_cli_bundle.py."""

import sys
from dataclasses import replace

import pytest

from pytest_roofline.core.cases import Case, Recorded
from pytest_roofline.core.work import Work
from pytest_roofline.standalone.comparing import FAST, SLOW, judge, time_and_rate
from pytest_roofline.standalone.reproducing import command, main

RECORDED = Recorded("", "copy", "traffic_GBps", Work(read_bytes=10**6), (2e-3, 2.2e-3, 2.1e-3), 1e-3, 0.05)
CASE = Case("test_x.py::test_y", "cuda", ("--roofline-budget=2",), "NVIDIA H200", (RECORDED,))


@pytest.mark.parametrize(
    ("seconds", "status", "ratio"), [(0.5e-3, FAST, "0.500"), (1.04e-3, FAST, "1.040"), (1.06e-3, SLOW, "1.060")]
)
def test_with_a_baseline_it_is_slow_beyond_the_tolerance(seconds, status, ratio):
    outcome = "SLOW, it reproduces" if status == SLOW else "fast, it does not reproduce"
    assert (status, f"here / baseline: {ratio}, tolerance 5 %: {outcome}") == judge(RECORDED, seconds)


@pytest.mark.parametrize(("seconds", "status"), [(0.99e-3, FAST), (1.01e-3, SLOW)])
def test_with_a_limit_it_is_slow_beyond_that(seconds, status):
    assert status == judge(replace(RECORDED, baseline_s=None, limit_s=1e-3), seconds)[0]


@pytest.mark.parametrize(("seconds", "told"), [(1.9e-3, "faster than"), (2.05e-3, "as"), (9e-3, "slower than")])
def test_with_neither_nothing_tells_whether_it_is_slow(seconds, told):
    status, sentence = judge(replace(RECORDED, baseline_s=None), seconds)
    assert (None, True) == (status, f": {told} recorded; whether that is slow, nothing tells" in sentence)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "1.00 ms, 1.00 GB/s"),
        ({"metric": "bf16_TFLOPS", "work": Work(flops=10**12)}, "1.00 ms, 1000 TFLOP/s"),
        ({"metric": "job_wall_s"}, "1.00 ms"),
        ({"metric": "payload_GBps"}, "1.00 ms"),
    ],
)
def test_a_time_stands_with_its_rate_where_it_has_one(changes, shown):
    assert shown == time_and_rate(replace(RECORDED, **changes), 1e-3)


def test_pytest_is_called_for_this_test_without_the_plugin(tmp_path):
    words = command(CASE, tmp_path)
    assert [sys.executable, "-m", "pytest", "-p", "no:roofline"] == words[:5]
    assert ["--roofline-device=cuda", f"--roofline-dir={tmp_path}", "--roofline-budget=2", CASE.node_id] == words[-4:]


def test_a_device_that_a_conftest_gives_is_not_asked_for(tmp_path):
    assert [] == [word for word in command(replace(CASE, device=""), tmp_path) if word.startswith("--roofline-device")]


def test_a_folder_without_cases_cannot_be_measured(tmp_path, capsys):
    assert 2 == main(tmp_path, [])
    assert "case.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_a_number_of_processes_is_one_or_more(tmp_path, count, capsys):
    with pytest.raises(SystemExit) as ended:
        main(tmp_path, [f"--processes={count}"])
    assert 2 == ended.value.code
    assert "is no number of processes; expected 1 or more" in capsys.readouterr().err
