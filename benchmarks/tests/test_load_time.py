"""The program that times loading: the line that it prints, and what it says of its promise."""

import sys
from pathlib import Path

import pytest

DESIGN = Path(__file__).parents[2] / "docs/authors/design.md"


@pytest.fixture
def load_time(program, monkeypatch):
    loaded = program("load_time")
    monkeypatch.setattr(loaded, "stamp", lambda: "Of commit `eb611c0`, 2026-11-29.")
    monkeypatch.setattr(sys, "version", "3.11.7 (main)")
    return loaded


def test_the_design_has_the_line_that_the_program_prints_of_its_figures(load_time):
    shortest = {"neither": 0.1783, "pytest-roofline": 0.1849, "pytest-benchmark": 0.1934}
    line = load_time.line(shortest, (0.0128, 0.0200), 40)
    assert f"\n{line}\n" in DESIGN.read_text(encoding="utf-8")


@pytest.mark.parametrize(("cpu_s", "word"), [(0.030, "kept"), (0.031, "missed")])
def test_a_promise_that_is_missed_is_called_missed(load_time, cpu_s, word):
    line = load_time.line(dict.fromkeys(load_time.CASES, 0.25), (cpu_s, 0.05), 40)
    assert f"{cpu_s * 1e3:.1f} ms of processor time (at most 30: {word})" in line
