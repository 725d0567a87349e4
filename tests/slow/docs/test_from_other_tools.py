"""The page for those who come from other tools names what these tools have."""

import inspect
import re

import torch.utils.benchmark
from pytest_benchmark.fixture import BenchmarkFixture
from triton import testing

from .pages import ROOT

PAGE = (ROOT / "docs" / "from-other-tools.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!there \||---)(.+?) \| (.+) \|$", PAGE, re.MULTILINE)


def test_there_are_twelve_rows_and_their_words_are_those_of_the_other_tools():
    assert 12 == len(ROWS)
    theirs = {
        word: [there for there, _ in ROWS if word in there]
        for word in ("quantiles", "grad_to_none", "line_arg", "min_run_time", "pedantic", "group=")
    }
    assert dict.fromkeys(theirs, 1) == {word: len(rows) for word, rows in theirs.items()}
    assert {"quantiles", "grad_to_none"} <= {*inspect.signature(testing.do_bench).parameters}
    assert "line_arg" in inspect.signature(testing.Benchmark).parameters
    timer = inspect.signature(torch.utils.benchmark.Timer.blocked_autorange)
    assert "min_run_time" in timer.parameters
    assert callable(torch.utils.benchmark.Compare([]).print)


def test_the_options_of_pytest_benchmark_are_its_own(pytestconfig):
    pedantic = inspect.signature(BenchmarkFixture.pedantic)
    assert {"setup", "rounds", "iterations"} <= {*pedantic.parameters}
    options = set(re.findall(r"--(benchmark-[a-z-]+)", PAGE))
    assert {"benchmark-autosave", "benchmark-compare-fail"} <= options
    missing = object()
    names = [name.replace("-", "_") for name in options]
    assert [] == [name for name in names if pytestconfig.getoption(name, missing) is missing]
