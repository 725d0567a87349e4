"""`--roofline-memory-snapshot=DIR`: of every measurement one more call, untimed, under torch's memory history."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from .core.units import slug
from .planned import encodable
from .session import RooflineSession

if TYPE_CHECKING:
    from .measuring.devices import Device

# A file name may have 255 bytes, and a number and an ending come behind this.
MOST_NAME = 200


def take_snapshot(session: RooflineSession, device: "Device", label: str, call: Callable[[], object]) -> None:
    """Write the memory snapshot of a call, if that was asked for; a failure is told at the end and changes nothing.

    Args:
        session: the run; a further round takes none.
        device: on which the call works.
        label: of the measurement, which names the file.
        call: one call of what was measured.
    """
    folder = session.options.memory_snapshot
    if folder is None or session.round is not None:
        return
    from .measuring.memory_use.snapshot import snapshot, why_not

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
        session.noted.snapshots.append(path)
