"""A rank: `python -m pytest_roofline.ranks.rank`, the one command that every launcher starts.

Here stands what must hold before torch is there, whose import takes seconds: the rank ends with its controller, where
that is its parent, and what it forks ends with it.
"""

import faulthandler
import os
import sys

from ..engine.devices.base import started_by
from .identity import Identity, identify
from .processes import die_with_parent, guard_group


def main() -> int:
    """Serve a controller until it says stop; the exit status."""
    faulthandler.enable()
    # Into a log they would write in blocks, and a rank that is lost would take its last words along.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    die_with_parent()
    started_by(os.getppid())
    identity = identify(os.environ) or Identity(0, 1, 0, 1, "none")
    # Slurm has all ranks of a node in one group, and ends what a rank leaves behind itself.
    if identity.launcher != "srun":
        guard_group()
    from .worker import serve

    return serve(identity)


if __name__ == "__main__":
    status = main()
    # What torch still holds at the end of an orderly life is none of the controller's waiting.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
