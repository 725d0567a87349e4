"""A rank: `python -m pytest_roofline.distributed.rank`, the one command that every launcher starts.

Here stands what must hold before torch is there, whose import takes seconds: the rank ends with its controller, where
that is its parent, and what it forks ends with it.
"""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys

from ..measuring.devices.own import started_by
from .identity import Identity, identify
from .processes import PARENT_VARIABLE, guard_group

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve a controller until it says stop; the exit status."""
    faulthandler.enable()
    # Into a log they would write in blocks, and a rank that is lost would take its last words along.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    _die_with_parent()
    started_by(os.getppid())
    identity = identify(os.environ) or Identity(0, 1, 0, 1, "none")
    # Slurm has all ranks of a node in one group, and ends what a rank leaves behind itself.
    if identity.launcher != "srun":
        guard_group()
    from .serving import serve

    return serve(identity)


def _die_with_parent() -> None:
    """Where the controller itself is the parent, have the kernel end this process with it, stopped or not."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os._exit(1)


if __name__ == "__main__":
    status = main()
    # What torch still holds at the end of an orderly life is none of the controller's waiting.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
