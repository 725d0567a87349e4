"""Runs of the shipped benchmarks, as they are, on a stand-in for an accelerator."""

import gc
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import roofline_kernels.memcpy
import roofline_kernels.stream  # noqa: F401
from pytest_roofline.baselines.files import read_baseline, write_baseline
from pytest_roofline.baselines.runs import Run, read_run
from pytest_roofline.core.entries import Baseline

from ... import preloaded, warm_rounds  # noqa: F401
from .group import Group
from .machine import ASKED, Machine
from .recorded import facts_of
from .standin import Rates, StandIn

ROOT = Path(__file__).resolve().parents[3]
SUITE = ROOT / "perf_tests"
COPIES, STREAM = (str(SUITE / f"test_{name}.py") for name in ("memcpy", "stream"))
H2D, D2H = "test_memcpy_h2d[512MiB-pinned]", "test_memcpy_d2h[512MiB-pinned]"


def _address(test: str) -> str:
    return f"{COPIES if 'memcpy' in test else STREAM}::{test}"


class Bench:
    """Runs a part of the benchmarks."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self._monkeypatch = monkeypatch
        # Options of every run of this test.
        self.always: list[str] = []

    def run(self, product: str, rates: Rates, *arguments: str) -> pytest.RunResult:
        """One run on a recorded product, in this process."""
        machine = Machine(StandIn(facts_of(product), rates))
        return self._pytester.runpytest_inprocess(*self._options, *arguments, plugins=[machine])

    def run_group(self, group: Group, *arguments: str) -> pytest.RunResult:
        """One run on several stand-ins."""
        return self._pytester.runpytest_inprocess(*self._options, *arguments, plugins=[group])

    def run_tests(self, product: str, rates: Rates, *tests: str) -> pytest.RunResult:
        """One run of some tests by their ids."""
        return self.run(product, rates, *map(_address, tests))

    def run_rounds(self, rounds: int, product: str, rates: Rates, *tests: str) -> pytest.RunResult:
        """The same in so many rounds at most, each after the first in a process of its own."""
        self._monkeypatch.setenv(ASKED, json.dumps({"product": product, "rates": asdict(rates)}))
        self._monkeypatch.setenv("PYTHONPATH", str(ROOT))
        options = ["-p", Machine.__module__, f"--roofline-rounds={rounds}"]
        return self._pytester.runpytest_inprocess(*self._options, *options, *map(_address, tests))

    @property
    def _options(self) -> list[str]:
        plugins = ["-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
        where = [
            f"--rootdir={ROOT}",
            f"-c={ROOT / 'pyproject.toml'}",
            f"--roofline-dir={self._pytester.path}",
        ]
        return [*plugins, *where, *self.always, "--roofline-budget=0.05", "-v"]

    @property
    def last(self) -> Run:
        """The newest run, read back."""
        folder = self._pytester.path / "runs"
        return read_run(max(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns))


@pytest.fixture
def bench(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, torch_compiler: None
) -> Iterator[Bench]:
    """Where the benchmarks run; without the whole heap of torch to collect before each measurement."""
    monkeypatch.setenv("COLUMNS", "2000")
    for name in ("FORCE_COLOR", "NO_COLOR", "GITHUB_ACTIONS", "CI", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    warm_rounds.install(monkeypatch)
    gc.freeze()
    yield Bench(pytester, monkeypatch)
    gc.unfreeze()


@pytest.fixture(scope="module")
def without_floors(tmp_path_factory):
    """Baselines of a site in which every floor that ships is dropped."""
    folder = tmp_path_factory.mktemp("site")
    for path in (ROOT / "baselines").glob("*.json"):
        dropped = [
            replace(entry, value=0, figures=None, reason="limits are looked at by themselves")
            for entry in read_baseline(path).entries
            if entry.kind == "floor"
        ]
        if dropped:
            write_baseline(folder / path.name, Baseline(path.stem, tuple(dropped)))
    return folder
