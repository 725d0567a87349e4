"""One command with a deadline that ends it, its children with it, and keeps what it wrote."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# So long before its deadline a command is interrupted, to write down what it has: a share of its time, in seconds.
GRACE_SHARE, MOST_GRACE_S = 0.2, 15.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Args:
        status: its exit status; None where its deadline ended it.
        seconds: it took.
        said: the file with what it printed.
    """

    status: int | None
    seconds: float
    said: Path


def run(
    command: Sequence[str], said: Path, limit_s: float, environment: dict[str, str], folder: Path
) -> Ended:
    """Run a command in a process group of its own, and end all of it at its deadline.

    Args:
        command: to run.
        said: takes its standard output; what it prints as errors goes beside it.
        limit_s: seconds until it is killed; it is interrupted a little earlier.
        environment: added to this process's.
        folder: to run it in.
    """
    said.parent.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    with said.open("wb") as out, said.with_suffix(".err").open("wb") as err:
        process = subprocess.Popen(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=folder, env=os.environ | environment,
            start_new_session=True,
        )  # fmt: skip
        status = _wait(process, limit_s)
    return Ended(status, time.monotonic() - began_s, said)


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    grace_s = min(GRACE_SHARE * limit_s, MOST_GRACE_S)
    try:
        return process.wait(max(0.0, limit_s - grace_s))
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGINT)
    except BaseException:
        # Whoever interrupts us means what we started, too.
        _signal(process, signal.SIGKILL)
        process.wait()
        raise
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    # Whatever it started and left behind ends with it.
    _signal(process, signal.SIGKILL)
    process.wait()
    return None


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
