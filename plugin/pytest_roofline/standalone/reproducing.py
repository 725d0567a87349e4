"""A reproducer at work: measure in fresh processes, compare with what was recorded, and say whether it is slow here."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..core.cases import CASE_FILE, Case, Recorded, read_cases
from ..core.errors import RooflineError
from ..core.units import format_flops, format_rate, format_seconds, format_tolerance, printable
from ..core.work import rate_suffix
from .results import VARIABLE, read_results

FAST, SLOW, UNKNOWN = 0, 1, 2
# As many as show that one of them was no accident.
PROCESSES = 3
# Lines of pytest's output that tell why it measured nothing.
TOLD_LINES = 25
PLUGIN = "pytest_roofline.standalone.plugin"


def main(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """Measure every case of a folder; the exit status.

    Args:
        folder: with `case.json`, `lib` and `tests`.
        arguments: of the command line; those of this process by default.
    """
    parser = argparse.ArgumentParser(
        prog="reproduce.py",
        description="Measure the failing test of a bundle again. "
        "Exit status: 0 as fast as it should be, 1 the slowness is here too, 2 it could not be measured.",
    )
    parser.add_argument("--processes", type=_number, default=PROCESSES, help="how many to measure in (default 3)")
    asked = parser.parse_args(arguments)
    try:
        found = [_reproduce(folder, case, asked.processes) for case in read_cases(folder / CASE_FILE)]
    except (RooflineError, OSError) as error:
        print(f"reproduce.py: {printable(str(error))}", file=sys.stderr)
        return UNKNOWN
    return max(found, default=UNKNOWN)


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes; expected 1 or more")
    return int(text)


@dataclass(frozen=True, slots=True)
class _Process:
    """What one process of pytest measured and printed."""

    found: dict[str, Any]
    output: str
    failed: bool


def _reproduce(folder: Path, case: Case, processes: int) -> int:
    print(f"{printable(case.node_id)}\n  recorded on {printable(case.machine)}")
    taken: list[_Process] = []
    for number in range(1, processes + 1):
        process = _measure(folder, case)
        if process.failed or not process.found.get("results"):
            _tell_failure(process)
            return UNKNOWN
        if number == 1:
            print(f"  measured on {printable(process.found['machine'] or 'ranks')}")
        taken.append(process)
    return max((_compare(recorded, taken) for recorded in case.recorded), default=UNKNOWN)


def _measure(folder: Path, case: Case) -> _Process:
    with tempfile.TemporaryDirectory(prefix="roofline-reproduce-") as temporary:
        results = Path(temporary) / "results.json"
        done = subprocess.run(
            command(case, Path(temporary)),
            cwd=folder / "tests",
            env=_environment(folder, results),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        return _Process(read_results(results), done.stdout, done.returncode != 0)


def command(case: Case, temporary: Path) -> list[str]:
    """How pytest is called: this test alone, without pytest-roofline and without anybody's other plugins."""
    plugins = ["-p", "no:roofline", "-p", "no:cacheprovider", "-p", PLUGIN]
    shown = ["-c", "pytest.ini", "-q", "-rs", "--tb=short"]
    # Where a conftest.py gives the device, nobody may ask for another.
    device = [f"--roofline-device={case.device}"] if case.device else []
    options = [*device, f"--roofline-dir={temporary}", *case.options]
    return [sys.executable, "-m", "pytest", *plugins, *shown, *options, case.node_id]


def _environment(folder: Path, results: Path) -> dict[str, str]:
    own = [str(folder / "lib"), str(folder / "tests")]
    changed = {
        "PYTHONPATH": os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        VARIABLE: str(results),
    }
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")}
    return inherited | changed


def _tell_failure(process: _Process) -> None:
    lines = [printable(line) for line in process.output.splitlines()[-TOLD_LINES:]]
    print("\n".join(f"  | {line}" for line in lines))
    why = "pytest failed" if process.failed else "the test measured nothing, or was skipped"
    print(f"  could not be measured: {why}; its output is above")


def _compare(recorded: Recorded, taken: Sequence[_Process]) -> int:
    """Print one measurement beside its records; whether it is slow here."""
    here = [one for process in taken for one in process.found["results"] if one["name"] == recorded.name]
    if not here:
        names = ", ".join(repr(one["name"]) for one in taken[0].found["results"])
        print(f"  {printable(recorded.label)}: measured nothing under the name {recorded.name!r}; there is {names}")
        return UNKNOWN
    seconds = median(one["median_s"] for one in here)
    print(f"  {printable(recorded.label)}")
    lines = [("here", seconds, len(here)), ("recorded", median(recorded.seconds), len(recorded.seconds))]
    for called, value, count in lines:
        print(f"    {called:<9} {time_and_rate(recorded, value)}, {count} process{'es' * (count != 1)}")
    if recorded.baseline_s is not None:
        print(f"    baseline  {time_and_rate(recorded, recorded.baseline_s)}")
    for trouble in sorted({one["trouble"] for one in here if one["trouble"]}):
        print(f"    do not trust the time here: {printable(trouble)}")
    for keyword in sorted({keyword for one in here for keyword in one["unused"]}):
        print(f"    measure({printable(keyword)}=…) is not known here and was left out")
    slow, sentence = judge(recorded, seconds)
    print(f"    {sentence}")
    return SLOW if slow else FAST


def judge(recorded: Recorded, seconds: float) -> tuple[bool, str]:
    """Whether a time is slow, and why, in a sentence.

    With a baseline it is where it takes longer than that by more than the tolerance; without one where it takes as long
    as was recorded, less the tolerance.
    """
    tolerance = format_tolerance(recorded.tolerance)
    if recorded.baseline_s is not None:
        ratio = seconds / recorded.baseline_s
        slow = ratio > 1 + recorded.tolerance
        return slow, f"here / baseline: {ratio:.3f}, tolerance {tolerance}: {_outcome(slow)}"
    ratio = seconds / median(recorded.seconds)
    slow = ratio * (1 + recorded.tolerance) >= 1
    return slow, f"here / recorded: {ratio:.3f}, tolerance {tolerance}, no baseline: {_outcome(slow)}"


def _outcome(slow: bool) -> str:
    return "SLOW, it reproduces" if slow else "fast, it does not reproduce"


def time_and_rate(recorded: Recorded, seconds: float) -> str:
    """`12.3 µs, 683 GB/s`; the time alone where it has no rate."""
    amount, kind = recorded.work.amount(recorded.metric), rate_suffix(recorded.metric)
    if amount is None or kind is None:
        return format_seconds(seconds)
    shown = format_flops if kind == "TFLOPS" else format_rate
    return f"{format_seconds(seconds)}, {shown(amount / seconds)}"
