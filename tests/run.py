"""All tests: two files at a time, and then alone those that time something real. With arguments it is pytest.

    python tests/run.py                 both, in some ten minutes on two cores
    python tests/run.py tests/judging   as `python -m pytest tests/judging`

Where TEST_REPORTS names a folder, as in CI, `others.xml` and `serial.xml` are written there, and little is printed.
"""

import os
import subprocess
import sys
from pathlib import Path

# A file stays with one worker, since its tests share fixtures.
TWO_AT_A_TIME = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
MARK = "mark.serial"


def main(arguments: list[str]) -> int:
    """Run pytest once or twice; the exit status is that of the first run that was not good."""
    if arguments:
        return pytest(arguments)
    serial = sorted(str(path) for path in Path("tests").rglob("test_*.py") if MARK in path.read_text(encoding="utf-8"))
    others = pytest(["tests", "-m", "not serial", *TWO_AT_A_TIME, *_report("others")])
    alone = pytest([*serial, "-m", "serial", *_report("serial")])
    return others or alone


def pytest(arguments: list[str]) -> int:
    """Run pytest in a process of its own, which leaves nothing to the next; its exit status."""
    return subprocess.call([sys.executable, "-m", "pytest", *arguments])


def _report(name: str) -> list[str]:
    folder = os.environ.get("TEST_REPORTS")
    if not folder:
        return []
    return [f"--junitxml={folder}/{name}.xml", "-q", "-p", "no:cacheprovider", "--durations=10"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
