"""`--roofline-memory-snapshot=DIR`: of every measurement one more call, untimed, under torch's memory history."""

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .core.memory import out_of_memory
from .core.units import slug
from .memory import forget_locals
from .planned import encodable
from .session import RooflineSession

if TYPE_CHECKING:
    from .measuring.devices import Device

# A file name may have 255 bytes, and a number and an ending come behind this.
MOST_NAME = 200
RANKS = "--roofline-memory-snapshot: of ranks there are no snapshots, only of what `measure` times in this process"


def take_snapshot(session: RooflineSession, device: "Device", label: str, call: Callable[[], object]) -> None:
    """Write the memory snapshot of a call, if that was asked for; a failure is told at the end and changes nothing.

    Args:
        session: the run; a further round takes none.
        device: on which the call works.
        label: of the measurement, which names the file.
        call: one call of what was measured.
    """
    folder = _folder(session)
    if folder is None:
        return
    from .observe.snapshot import snapshot, why_not

    why = why_not(device)
    if why:
        session.noted.warn(f"no memory snapshot: {why}")
        return
    try:
        path = snapshot(device, call, folder, slug(label)[:MOST_NAME])
    except Exception as error:
        told = encodable(f"{type(error).__name__}: {error}".splitlines()[0])[:300]
        session.noted.warn(f"no memory snapshot of {label}: {told}")
    else:
        session.noted.snapshots.append((label, path))


def take_snapshot_of_failure(
    session: RooflineSession, device: "Device", label: str, error: BaseException, call: Callable[[], object]
) -> None:
    """The same of a measurement that ran out of memory, which the call is to do once more under the history.

    Recorded from the start, the history of every allocation would have slowed what was measured.
    """
    if _folder(session) is None or out_of_memory(error) is None:
        return
    # What the failed call holds would make the next one end before it comes to where this one did.
    forget_locals(error)
    gc.collect()
    with contextlib.suppress(Exception):
        device.release()
    take_snapshot(session, device, label, call)


def warn_of_ranks(session: RooflineSession) -> None:
    """Say that there are no snapshots of what ranks do, where some were asked for."""
    if _folder(session) is not None:
        session.noted.warn(RANKS)


def _folder(session: RooflineSession) -> Path | None:
    """Where snapshots go; None where none are wanted. A further round only repeats a test."""
    return session.options.memory_snapshot if session.round is None else None
