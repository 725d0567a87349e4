"""What `tox run -e cpu` runs: `python tests/run.py REPORTS [slow | ARGUMENT…]`.

Without an argument all tests but those in `tests/slow`, with `slow` those: two files at a time, then, alone, those that
are marked `serial`, since they time something real. Their reports for JUnit are in REPORTS: `others.xml` and
`serial.xml`, or `slow-others.xml` and `slow-serial.xml`. With other arguments, pytest with these.
"""

import os
import subprocess
import sys
from pathlib import Path

PYTEST = [sys.executable, "-m", "pytest"]
# Not sorted by their number of tests, which says nothing about their time.
TWO_FILES_AT_A_TIME = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
SLOW = Path("tests/slow")


def run_all(reports: Path, *, slow: bool) -> int:
    """Run both parts, whatever becomes of the first; the exit status of the first that failed."""
    files = [path for path in sorted(Path("tests").rglob("test_*.py")) if path.is_relative_to(SLOW) == slow]
    # Only these files, since collecting all others takes a while.
    serial = [str(path) for path in files if "mark.serial" in path.read_text(encoding="utf-8")]
    chosen = [str(SLOW)] if slow else ["tests", f"--ignore={SLOW}"]
    parts = {"others": [*chosen, "-m", "not serial", *TWO_FILES_AT_A_TIME]}
    if serial:
        parts["serial"] = [*serial, "-m", "serial"]
    statuses = [
        subprocess.call([*PYTEST, *arguments, "-q", "--durations=10", f"--junitxml={reports / report}.xml"])
        for report, arguments in ((f"slow-{name}" if slow else name, of_part) for name, of_part in parts.items())
    ]
    return next(filter(None, statuses), 0)


if __name__ == "__main__":
    folder, *given = sys.argv[1:]
    if given not in ([], ["slow"]):
        # In place of this process, so that a signal reaches pytest.
        os.execv(sys.executable, [*PYTEST, *given])
    sys.exit(run_all(Path(folder), slow=bool(given)))
