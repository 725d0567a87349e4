"""Graphs of calls, which a device replays without the host."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

from ..devices import Device
from .stopwatch import Stopwatch

# The reason to take no further graph of a device in this process: after a failed capture, not even an empty one worked.
# A later failure would have no reason of its own.
_refusals: WeakKeyDictionary[Device, str] = WeakKeyDictionary()


def capture(watch: Stopwatch, submit: Callable[[], None]) -> tuple[Callable[[], None] | None, str]:
    """Return a replay of the work that `submit` submits, and why there is none.

    There is none if that work cannot be captured, or if nothing can any more.
    """
    device = watch.device
    if refusal := _refusals.get(device, ""):
        return None, refusal
    try:
        return device.capture(submit), ""
    # Torch's, for whatever a capture may not contain; the events are there anyway.
    except RuntimeError as error:
        refusal = str(error).partition("\n")[0]
    watch.wait_until_done()
    if not _takes_graphs(device):
        _refusals[device] = refusal
    return None, refusal


def _takes_graphs(device: Device) -> bool:
    """Return whether a device takes an empty graph, after a failed capture.

    This also mends the random numbers of an older torch: its generator refuses every call outside of a graph until a
    capture ends well. Memory of the failed capture stays allocated: torch keeps the pool of such a graph.
    """
    try:
        device.capture(lambda: None)
    except RuntimeError:
        return False
    return True
