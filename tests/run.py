"""What `tox run -e cpu` runs: `python tests/run.py REPORTS [slow [TEST…] | programs [TEST…] | ARGUMENT…]`.

Without an argument all of `tests` but `tests/slow`; with `slow` that, with `programs` the tests beside the developers'
programs, and the tests that are named behind it. Three files at a time, then, alone, those that are marked `serial`,
since they time something real. Their reports for JUnit are in REPORTS: `others.xml` and `serial.xml`, or
`slow-others.xml` and so on. With other arguments, pytest with these.
"""

import os
import subprocess
import sys
from pathlib import Path

PYTEST = [sys.executable, "-m", "pytest"]
# For two cores, since tests of launchers, faults and daemons mostly wait. Not sorted by their number of tests, which
# says nothing about their time.
THREE_FILES_AT_A_TIME = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
SLOW = Path("tests/slow")
# The folders of a part, and those in them that belong to another.
PARTS = {
    "": ([Path("tests")], [SLOW]),
    "slow": ([SLOW], []),
    "programs": ([Path("benchmarks/tests"), Path("baselines/published/tests")], []),
}


def file_of(test: str) -> Path:
    """Return the file of a test, or of all tests of a file."""
    return Path(test.partition("::")[0])


def run_all(reports: Path, name: str, further: list[str]) -> int:
    """Run a part, what must run alone at the end in any case; the exit status of the first that failed."""
    folders, others = PARTS[name]
    files = [path for folder in folders for path in sorted(folder.rglob("test_*.py"))]
    files = [path for path in files if not any(path.is_relative_to(other) for other in others)]
    # Only these files, since collecting all others takes a while.
    named = [*map(str, files), *further]
    serial = [test for test in named if "mark.serial" in file_of(test).read_text(encoding="utf-8")]
    chosen = [*map(str, folders), *(f"--ignore={other}" for other in others)]
    runs = {"others": [*chosen, *further, "-m", "not serial", *THREE_FILES_AT_A_TIME]}
    if serial:
        runs["serial"] = [*serial, "-m", "serial"]
    start = f"{name}-" if name else ""
    statuses = [
        subprocess.call(
            [*PYTEST, *arguments, "-q", "--durations=10", f"--junitxml={reports}/{start}{of}.xml"]
        )
        for of, arguments in runs.items()
    ]
    return next(filter(None, statuses), 0)


if __name__ == "__main__":
    # Tests start hundreds of processes, each of which would compile its modules anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    folder, *given = sys.argv[1:]
    part, *further = given or [""]
    if part not in PARTS:
        # In place of this process, so that a signal reaches pytest.
        os.execv(sys.executable, [*PYTEST, *given])
    sys.exit(run_all(Path(folder), part, further))
