"""The benchmarks that ship, in processes of their own, and as modules."""

import importlib.util
import os
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.settings.command_line import _command_key

from .. import warm

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "perf_tests"


def stand_in_config(option=None, ini=None):
    """Return what a module of the suite asks pytest's configuration: one value of every option, and a bare command."""
    command = Namespace(override_ini=None)
    return SimpleNamespace(
        getoption=lambda name: option, getini=lambda name: ini, stash={_command_key: command}
    )


def run_on_suite(*arguments, program=(), limit_bytes=None, statuses=(0,), **variables):
    """A run of pytest, or of a program, among the benchmarks, in a process of its own that may have so much memory.

    It ends with one of `statuses`.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "ROOFLINE_"))
    }
    how = ["-c", *program] if program else ["-m", "pytest", "-p", "no:cacheprovider"]
    done = warm.run([*how, *arguments], cwd=ROOT, env=env | variables, limit_bytes=limit_bytes)
    assert done.returncode in statuses, done.stdout + done.stderr
    return done


def short_run_of(folder, *arguments, **options):
    """The finished process of a run with little time for each measurement, and its run."""
    short = ("--roofline-device=cpu", "--roofline-budget=0.05", f"--roofline-dir={folder}")
    done = run_on_suite(*short, *arguments, **options)
    (path,) = (folder / "runs").glob("*.jsonl")
    return done, read_run(path)


def load(name):
    """A module of the benchmarks, freshly imported."""
    spec = importlib.util.spec_from_file_location(f"{name}_looked_at", SUITE / f"test_{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Roofline:
    """In place of the fixture: skips, and notes what it is to measure, and figures by their name."""

    def __init__(self, device="cpu"):
        self.device = torch.device(device) if isinstance(device, str) else device
        self.figures = {}

    def require_memory(self, size_bytes, where):
        pass

    def skip_for_hardware(self, reason):
        pytest.skip(reason)

    def measure(self, fn, **arguments):
        self.fn, self.arguments = fn, arguments

    measure_siblings = measure

    def figure(self, name, value, unit):
        self.figures[name] = (value, unit)
