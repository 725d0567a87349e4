"""The program behind `tox run -e cpu`: `python tests/run.py REPORTS [PART [TEST…] | ARGUMENT…]`.

Parts: `fast`, as without an argument, is all of `tests` but `tests/slow`, `slow` that, `programs` the tests beside the
developers' programs, each with the tests that are named behind it: three files at a time, since no test depends on what
runs beside it. The report for JUnit is in REPORTS, `fast.xml` and so on. With other arguments, pytest with these.
"""

import os
import sys

PYTEST = [sys.executable, "-m", "pytest"]
# For two cores, since tests of launchers, faults and daemons mostly wait. Not sorted by their number of tests, which
# says nothing about their time.
THREE_FILES_AT_A_TIME = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
PARTS = {
    "fast": ["tests", "--ignore=tests/slow"],
    "slow": ["tests/slow"],
    "programs": ["benchmarks/tests", "baselines/published/tests"],
}


def arguments_of(reports: str, part: str, tests: list[str]) -> list[str]:
    """Return pytest's arguments for a part of the tests and further ones."""
    report = f"--junitxml={reports}/{part}.xml"
    return [*PARTS[part], *tests, *THREE_FILES_AT_A_TIME, "-q", "--durations=10", report]


if __name__ == "__main__":
    # Tests start hundreds of processes, each of which would compile its modules anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    folder, *words = sys.argv[1:]
    part, *tests = words or ["fast"]
    arguments = arguments_of(folder, part, tests) if part in PARTS else words
    # In place of this process, so that a signal reaches pytest.
    os.execv(sys.executable, [*PYTEST, *arguments])
