"""Graphs of calls, which a device replays without the host."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

from ..devices import Device
from .stopwatch import Stopwatch

# By device the reason of a failed capture after which not even an empty graph could be captured. No further capture is
# tried in this process, since its failure would not show a reason of its own.
_refusals: WeakKeyDictionary[Device, str] = WeakKeyDictionary()


def capture(watch: Stopwatch, submit: Callable[[], None]) -> tuple[Callable[[], None] | None, str]:
    """Return a replay of the work that `submit` submits, and an empty text.

    If that work cannot be captured, return None and the reason. The reason is that of an earlier capture if that left
    the device unable to capture anything.
    """
    device = watch.device
    if refusal := _refusals.get(device, ""):
        return None, refusal
    try:
        return device.capture(submit), ""
    # Torch raises it for everything that a capture must not contain. The calls are then timed without a graph.
    except RuntimeError as error:
        refusal = str(error).partition("\n")[0]
    watch.wait_until_done()
    if not _takes_graphs(device):
        _refusals[device] = refusal
    return None, refusal


def _takes_graphs(device: Device) -> bool:
    """Return whether a device still captures a graph, an empty one, after a failed capture.

    This also mends the random numbers of an older torch: its generator refuses every call outside of a graph until a
    capture ends well. Memory of the failed capture stays allocated: torch keeps the pool of such a graph.
    """
    try:
        device.capture(lambda: None)
    except RuntimeError:
        return False
    return True
