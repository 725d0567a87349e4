"""What `tox run -e cpu` runs: `python tests/run.py REPORTS [ARGUMENT…]`.

With arguments, pytest with these. Without, all tests of the project: two files at a time, then, alone, those that are
marked `serial`, since they time something real. Their reports for JUnit are `others.xml` and `serial.xml` in REPORTS.
"""

import os
import subprocess
import sys
from pathlib import Path

PYTEST = [sys.executable, "-m", "pytest"]
# Not sorted by their number of tests, which says nothing about their time.
TWO_FILES_AT_A_TIME = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


def run_all(reports: Path) -> int:
    """Run both parts, whatever becomes of the first; the exit status of the first that failed."""
    # Only these files, since collecting all others takes a while.
    files = sorted(Path("tests").rglob("test_*.py"))
    serial = [str(path) for path in files if "mark.serial" in path.read_text(encoding="utf-8")]
    parts = {
        "others": ["tests", "-m", "not serial", *TWO_FILES_AT_A_TIME],
        "serial": [*serial, "-m", "serial"],
    }
    options = ["-q", "--durations=10"]
    statuses = [
        subprocess.call([*PYTEST, *arguments, *options, f"--junitxml={reports / name}.xml"])
        for name, arguments in parts.items()
    ]
    return next(filter(None, statuses), 0)


if __name__ == "__main__":
    folder, *given = sys.argv[1:]
    if given:
        # In place of this process, so that a signal reaches pytest.
        os.execv(sys.executable, [*PYTEST, *given])
    sys.exit(run_all(Path(folder)))
