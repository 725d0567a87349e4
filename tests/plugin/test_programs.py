"""A program's own numbers in a test: stubs print scripted figures, so that what is worse is certain, and no time counts."""

import csv
import json
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.plugin.rounds import Rounds
from pytest_roofline.processes import programs

from ..tools import require_tools
from .conftest import texts

DATA = Path(__file__).parents[1] / "exchange" / "data"
# Prints figures that are worse by `SLOW`, with a noise of half a percent that is the same for the same start.
STUB = """
import json, os, pathlib
calls = pathlib.Path("calls")
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("." * (number + 1))
slow = float(os.environ.get("SLOW", "1"))
noise = (1.0, 1.004, 0.996, 1.002, 0.998)[number % 5]
print("stub version 4.2 of today")
print(json.dumps({
    "results": [{"name": "llama", "rate": 900 * noise / slow}, {"name": "qwen", "rate": 400 * noise / slow}],
    "p99": 31 * noise * slow,
}))
"""
# Without the packages of this environment, which take their time to be looked for.
START = f"[{sys.executable!r}, '-I', '-S', 'stub.py']"
SERVE = f"""
def test_serve(roofline):
    figures = roofline.measure_command({START}, higher={{"tok/s": "results.*.rate"}}, lower={{"p99 (ms)": "p99"}})
    print([(each.name, round(each.value), each.unit, each.direction) for each in figures])
"""
TIMED = f"""
def test_start(roofline):
    roofline.measure_command({START})
"""
RECORD = ("--roofline-record", "-q")


@pytest.fixture
def desk(desk, monkeypatch):
    """A desk with the stub, on which a further process of pytest would be an error."""

    def refuse(_rounds, _number, test_ids, _deadline):
        assert test_ids == []

    monkeypatch.setattr(Rounds, "run", refuse)
    monkeypatch.delenv("SLOW", raising=False)
    (desk.path / "stub.py").write_text(STUB)
    return desk


@pytest.fixture
def serving(desk):
    """A desk with a baseline of the stub."""
    desk.suite(SERVE)
    result = desk.run(*RECORD)
    assert result.ret == 0, texts(result)
    return desk


def starts(desk):
    """How often the stub was started."""
    return len((desk.path / "calls").read_text())


def failures(result):
    """The first line of each message of a red test."""
    return [
        line.removeprefix("E").strip()
        for line in result.stdout.lines
        if " REGRESSED, tolerance" in line
    ]


def test_a_recording_starts_the_program_ten_times_in_this_pytest(serving):
    assert starts(serving) == 10
    baseline = read_baseline(serving.path / "baselines" / "h100.json")
    entries = {entry.label: entry for entry in baseline.entries if not entry.is_canary}
    assert {label: (entry.metric, len(entry.medians)) for label, entry in entries.items()} == {
        "serve.tok/s[llama]": ("higher", 10),
        "serve.tok/s[qwen]": ("higher", 10),
        "serve.p99 (ms)": ("lower", 10),
    }
    (run,) = map(serving.saved, [path.stem for path in serving.run_paths()])
    assert [len({each.process for each in run.measurements if not each.key.is_canary})] == [10]
    assert {each.round for each in run.tested} == set(range(1, 11))


def test_an_unchanged_program_passes_a_gate_in_one_process(serving):
    result = serving.run("--roofline-ci")
    assert result.ret == 0, texts(result)
    assert starts(serving) == 11
    result.stdout.fnmatch_lines(["*test_serve PASSED 900 tok/s +0.0 % *; 31.0 ms *"])
    result.stdout.fnmatch_lines(["*serve.tok/s?llama? * 900 tok/s * PASSED"])


def test_a_worse_figure_is_red_in_its_own_terms_whichever_way_is_better(serving, monkeypatch):
    monkeypatch.setenv("SLOW", "1.08")
    result = serving.run("--roofline-ci", "--roofline-report=out", "--junit-xml=junit.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, texts(result)
    assert [re.sub(r"\d\d % \(", "x % (", line.partition(", tolerance")[0]) for line in failures(result)] == [
        "Failed: serve.tok/s[llama]: -7.x % (833 tok/s, baseline 900 tok/s) REGRESSED",
        "serve.tok/s[qwen]: -7.x % (370 tok/s, baseline 400 tok/s) REGRESSED",
        "serve.p99 (ms): +8.x % (33.5 ms, baseline 31.0 ms) REGRESSED",
    ]
    assert "time" not in failures(result)[0]
