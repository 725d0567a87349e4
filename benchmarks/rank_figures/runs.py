"""Runs of pytest in a folder of their own, and the processes that they started."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "no:cacheprovider",
    "--roofline-device=cpu",
    "--junitxml=junit.xml",
)
# Launchers hand on what begins so, and by it no process of a run can hide.
MARK = "ROOFLINE_FIGURE_RUN"
PATIENCE_S = 180.0
POLL_S = 0.02


def prepared(folder: Path, suite: str) -> Path:
    """A root folder for pytest with one suite."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").touch()
    (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    return folder


def run(
    folder: Path, command: Sequence[str], environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command there to its end."""
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1"} | (environ or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_seconds(folder: Path) -> dict[str, float]:
    """Seconds by test, as pytest wrote them."""
    cases = ElementTree.parse(folder / "junit.xml").iter("testcase")
    return {case.get("name", ""): float(case.get("time", 0)) for case in cases}


def properties(folder: Path) -> dict[str, dict[str, str]]:
    """What tests recorded, by test and name."""
    cases = ElementTree.parse(folder / "junit.xml").iter("testcase")
    return {
        case.get("name", ""): {
            node.get("name", ""): node.get("value", "") for node in case.iter("property")
        }
        for case in cases
    }


@contextlib.contextmanager
def started(
    folder: Path, command: Sequence[str], environ: dict[str, str]
) -> Iterator[tuple[subprocess.Popen, str]]:
    """A command that runs, and the mark that all its processes bear; whatever is left at the end is killed."""
    mark = uuid.uuid4().hex
    with (folder / "output").open("wb") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environ | {MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield child, mark
    finally:
        # A process that is killed is still seen for a moment; one that it was about to start, only then.
        while left := running(mark):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        child.wait()


def running(mark: str, word: str = "") -> dict[int, str]:
    """Processes of a run that have not ended, with their command lines.

    Args:
        mark: of the run.
        word: that must be in the command line.
    """
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X"):
                continue
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in line and f"{MARK}={mark}".encode() in (
                folder / "environ"
            ).read_bytes().split(b"\0"):
                found[int(folder.name)] = line
    return found


def wait_for(path: Path, child: subprocess.Popen) -> str:
    """The text of a file, once it is there.

    Raises:
        RuntimeError: the process ended, or time went by, before it was.
    """
    until_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        if child.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError(
                f"{path} never came: {(path.parent / 'output').read_text(errors='replace')[-2000:]}"
            )
        time.sleep(POLL_S)
    return path.read_text()
