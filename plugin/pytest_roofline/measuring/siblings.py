"""Several like devices of one process: which there are, and whether others of the machine are at work."""

import time
from collections.abc import Callable

from .conditions import MOST_OTHERS_BUSY
from .devices import Device
from .devices.base import Sibling

# Management libraries average over a second at most: what this process did before is forgotten by then.
FORGOTTEN_S = 1.2


def siblings_of(device: Device) -> tuple[str, ...]:
    """The names of all devices like this one that the process sees; of a kind without siblings none."""
    return device.siblings() if isinstance(device, Sibling) else ()


def busy_text(device: Device, pause: Callable[[float], object] = time.sleep) -> str:
    """Which other devices of the machine are at work, in words; empty where none is seen, or nobody tells.

    Args:
        device: that is measured, by this process alone.
        pause: waits so many seconds before the second question: what is busy once may be what this process just did.
    """
    if not isinstance(device, Sibling) or not _busy(device):
        return ""
    pause(FORGOTTEN_S)
    found = _busy(device)
    return ", ".join(f"{name} was {share * 100:.0f} % busy" for name, share in found.items())


def _busy(device: Sibling) -> dict[str, float]:
    return {name: share for name, share in device.busy_siblings().items() if share > MOST_OTHERS_BUSY}
