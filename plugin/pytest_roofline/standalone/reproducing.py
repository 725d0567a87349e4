"""A reproducer at work: measure in fresh processes, compare with what was recorded, and say whether it is so here."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.cases import CASE_FILE, Case, kind_of_failure, read_cases
from ..core.units import printable
from .comparing import FAST, SLOW, UNKNOWN, compare, together
from .results import VARIABLE, Told, read_results

# As many as show that one of them was no accident.
PROCESSES = 3
# Until a process counts as hanging.
TIMEOUT_S = 3600
# Lines of pytest's output that tell why it measured nothing.
TOLD_LINES = 25
PLUGIN = "pytest_roofline.standalone.plugin"


def main(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """Measure every case of a folder; the exit status, which is that of a traceback, 1, in no other case.

    Args:
        folder: with `case.json`, `lib` and `tests`.
        arguments: of the command line; those of this process by default.
    """
    parser = argparse.ArgumentParser(
        prog="reproduce.py",
        description="Measure the failing test of a bundle again. "
        "Exit status: 0 as fast as it should be, 1 it is slow (or fails) here too, 2 that cannot be told.",
    )
    parser.add_argument("--processes", type=_number, default=PROCESSES, help="how many to measure in (default 3)")
    asked = parser.parse_args(arguments)
    try:
        return together([_reproduce(folder, case, asked.processes) for case in read_cases(folder / CASE_FILE)])
    except KeyboardInterrupt:
        print("reproduce.py: interrupted", file=sys.stderr)
    except Exception as error:
        # Whatever it is, it tells nothing of the machine.
        print(f"reproduce.py: {printable(str(error) or type(error).__name__)}", file=sys.stderr)
    return UNKNOWN


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes; expected 1 or more")
    return int(text)


@dataclass(frozen=True, slots=True)
class _Process:
    """What one process of pytest told and printed."""

    told: Told
    output: str
    failed: bool


def _reproduce(folder: Path, case: Case, processes: int) -> int:
    print(f"{printable(case.node_id)}\n  recorded on {printable(case.machine)}")
    taken: list[Told] = []
    for number in range(1, processes + 1):
        # It may take minutes.
        print(f"  process {number} of {processes} …", flush=True)
        process = _measure(folder, case)
        if number == 1 and process.told.found:
            print(f"  measured on {printable(process.told.machine or 'ranks')}")
        if case.failure and process.failed and _fails_alike(case, process.told):
            print(f"  recorded  {printable(case.failure)}\n  here      {printable(process.told.failure)}")
            print("  it FAILS here too, it reproduces")
            return SLOW
        # Where only the failure is looked for, a test that ended early tells nothing.
        ended = bool(process.told.found) and not (case.failure and process.told.skipped)
        if process.failed or not ended:
            _tell_failure(process)
            # What was measured before is worth reading all the same.
            _compare(case, taken)
            return UNKNOWN
        taken.append(process.told)
    if case.failure:
        print(f"  recorded  {printable(case.failure)}\n  it does not fail here, it does not reproduce")
        return FAST
    return _compare(case, taken)


def _fails_alike(case: Case, told: Told) -> bool:
    return kind_of_failure(told.failure) == kind_of_failure(case.failure)


def _compare(case: Case, taken: Sequence[Told]) -> int:
    return together([compare(recorded, taken) for recorded in case.recorded]) if taken else UNKNOWN


def _measure(folder: Path, case: Case) -> _Process:
    with tempfile.TemporaryDirectory(prefix="roofline-reproduce-") as temporary:
        results, output = Path(temporary) / "results.json", Path(temporary) / "output.txt"
        # A file and no pipe, which what the test started could hold open when it was killed itself.
        with output.open("wb") as file, contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                command(case, Path(temporary)),
                cwd=folder / "tests",
                env=_environment(folder, results),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
            text = output.read_text(encoding="utf-8", errors="replace")
            return _Process(read_results(results), text, done.returncode != 0)
        text = output.read_text(encoding="utf-8", errors="replace")
        return _Process(Told(), f"{text.rstrip()}\nkilled after {TIMEOUT_S} s", failed=True)


def command(case: Case, temporary: Path) -> list[str]:
    """How pytest is called: this test alone, without pytest-roofline and without anybody's other plugins."""
    plugins = ["-p", "no:roofline", "-p", "no:cacheprovider", "-p", PLUGIN]
    # The reason stands at the end, whatever was printed or warned of before.
    shown = ["-c", "pytest.ini", "-q", "-rfEs", "--tb=short", "--disable-warnings"]
    # Where a conftest.py gives the device, nobody may ask for another.
    device = [f"--roofline-device={case.device}"] if case.device else []
    options = [*device, f"--roofline-dir={temporary}", *case.options]
    return [sys.executable, "-m", "pytest", *plugins, *shown, *options, case.node_id]


def _environment(folder: Path, results: Path) -> dict[str, str]:
    own = [str(folder / "lib"), str(folder / "tests")]
    changed = {
        "PYTHONPATH": os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # pytest cuts a reason at the terminal's width.
        "COLUMNS": "120",
        VARIABLE: str(results),
    }
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")}
    return inherited | changed


def _tell_failure(process: _Process) -> None:
    lines = [printable(line) for line in process.output.splitlines()[-TOLD_LINES:]]
    print("\n".join(f"  | {line}" for line in lines))
    why = "pytest failed" if process.failed else "the test measured nothing, or was skipped"
    print(f"  could not be measured: {why}; its output is above")
