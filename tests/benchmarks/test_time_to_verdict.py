"""The program that counts processes and seconds until a verdict."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs/results/time-to-verdict.md"


@pytest.fixture(scope="module")
def timing(program):
    return program("time_to_verdict")


@pytest.fixture
def data_file(tmp_path):
    rng = np.random.default_rng(1)
    samples = np.exp(rng.normal(0, 0.01, (4, 20, 1)) + rng.normal(0, 0.005, (4, 20, 5)))
    path = tmp_path / "corpus.json"
    path.write_text(json.dumps({f"bench {i}": rows.tolist() for i, rows in enumerate(samples)}), encoding="utf-8")
    return path


@pytest.fixture
def run(timing, capsys):
    def call(*arguments):
        status = timing.main([str(argument) for argument in (*arguments, "--jobs", 1)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_seconds_are_processes_times_what_a_process_takes(run, data_file):
    status, out, _ = run("--data", data_file, "--draws", 3, "--process-seconds", "2.5", "--json")
    report = json.loads(out)
    assert status == 0
    assert (2.5, False) == (report["process_s"], report["process_s_measured_here"])
    for row in report["rows"]:
        assert row["mean_seconds"] == pytest.approx(2.5 * row["mean_processes"])


def test_both_rules_are_counted_on_unchanged_and_slower_code(run, data_file):
    rows = json.loads(run("--data", data_file, "--draws", 3, "--process-seconds", "1", "--json")[1])["rows"]
    found = {(row["rule"], row["setting"], row["slowdown"]) for row in rows}
    settings = {("all", 0.0)} | {(how, by) for how in ("all", "alone") for by in (0.05, 0.10)}
    assert {(rule, *rest) for rule in ("pytest-roofline", "fixed five a side") for rest in settings} == found


def test_a_fixed_design_takes_five_processes_whatever_they_show(run, data_file):
    rows = json.loads(run("--data", data_file, "--draws", 3, "--process-seconds", "1", "--json")[1])["rows"]
    fixed = [row for row in rows if row["rule"] == "fixed five a side"]
    assert {(5.0, 5, 5)} == {(r["mean_processes"], r["median_processes"], r["processes_90"]) for r in fixed}


def test_calm_unchanged_code_is_decided_in_fewer_processes_than_a_fixed_design_runs(run, data_file):
    rows = json.loads(run("--data", data_file, "--draws", 5, "--process-seconds", "1", "--json")[1])["rows"]
    (row,) = [row for row in rows if (row["rule"], row["tolerance"], row["slowdown"]) == ("pytest-roofline", 0.05, 0.0)]
    assert row["mean_processes"] < 3
    assert row["rates"]["PASSED"] > 0.9


def test_without_given_seconds_a_process_is_timed_and_that_is_said(run, timing, data_file, monkeypatch):
    started = []
    monkeypatch.setattr(timing.subprocess, "run", lambda command, check: started.append(command))
    status, out, _ = run("--data", data_file, "--draws", 1)
    assert status == 0
    assert [timing.STARTUP] * 3 == [command[-1] for command in started]
    assert "the median of 3 fresh interpreters here that import torch and the plugin" in " ".join(out.split())


def test_given_seconds_are_said_to_be_given(run, data_file):
    out = run("--data", data_file, "--draws", 1, "--process-seconds", "3")[1]
    assert "processes × 3.00 s, as it was given" in " ".join(out.split())


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan"])
def test_seconds_that_cannot_be_are_one_sentence_and_exit_status_2(run, data_file, seconds):
    status, out, err = run("--data", data_file, f"--process-seconds={seconds}")
    assert (status, out) == (2, "")
    assert f"--process-seconds is {seconds!r}" in err
    assert err.count("\n") == 1


def test_a_missing_data_file_is_one_sentence_and_exit_status_2(run, tmp_path):
    status, out, err = run("--data", tmp_path / "nowhere.json")
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_the_processes_that_suffice_for_a_share_are_counted_from_below(timing):
    tally = timing.Tally(Counter(PASSED=10), Counter({1: 5, 3: 4, 12: 1}))
    assert [1, 3, 12] == [tally.processes_at(share) for share in (0.5, 0.9, 0.95)]


def test_a_slowdown_within_the_tolerance_has_no_right_answer(timing):
    answers = [timing.right(timing.Cell("pytest-roofline", "all", 0.05, by)) for by in (0.0, 0.05, 0.10)]
    assert ["PASSED", "", "REGRESSED"] == answers


def skeleton(page):
    """A page without its figures: its text as words, and the cells that name the rows of its table."""
    lines = page.splitlines()
    words = " ".join(line for line in lines if not line.startswith("|"))
    rows = [line.split(" | ")[:4] for line in lines if line.startswith("|")]
    return re.sub(r"\d+ suites|\d+ ms|[\d.]+ s\b", "#", words).split(), rows


def test_regenerating_the_page_drops_nothing(timing, run, monkeypatch, tmp_path):
    monkeypatch.setattr(timing, "startup_s", lambda: 1.0)
    again = tmp_path / "page.md"
    assert run("--draws", 1, "-o", again)[0] == 0
    assert skeleton(again.read_text(encoding="utf-8")) == skeleton(PAGE.read_text(encoding="utf-8"))
