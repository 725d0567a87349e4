"""A drill: any measured function, slower by a given share, to see whether a gate turns red."""

import time
from collections.abc import Callable
from statistics import median

from ..core.errors import BadInput
from .calibration import calibrate
from .devices import Device

# Calls that tell how long the function takes, before the first that may be timed; a drill need not be exact.
SCOUTING = 5
# Long enough to submit a call in.
SPIN_S = 2e-3


def slowed(fn: Callable[..., object], device: Device, share: float, *, on_host: bool = False) -> Callable[..., object]:
    """`fn`, followed by a wait of `share` of its own duration: on the device where that queues, else on the host.

    Args:
        fn: a measured function.
        device: that it works on.
        share: 0.1 adds a tenth.
        on_host: whether its work is the host's, whatever device there is.

    Raises:
        BadInput: the device queues work but cannot be kept busy for a given time.
    """
    if on_host or not device.traits.queues:
        return lambda *arguments: _then_wait(fn, arguments, share)
    if not device.traits.spins:
        raise BadInput(
            f"{device.name} cannot be kept busy for a given time, so nothing can be slowed down on it; a drill of your "
            "own goes through the hook pytest_roofline_function"
        )
    return _Spinning(fn, device, share)


def _then_wait(fn: Callable[..., object], arguments: tuple[object, ...], share: float) -> object:
    began_s = time.perf_counter()
    result = fn(*arguments)
    now_s = time.perf_counter()
    end_s = now_s + share * (now_s - began_s)
    while time.perf_counter() < end_s:
        pass
    return result


class _Spinning:
    """Calls the function and then spins; how long is found in the first call, which is one of warming up."""

    def __init__(self, fn: Callable[..., object], device: Device, share: float) -> None:
        self._fn = fn
        self._device = device
        self._share = share
        self._cycles: int | None = None

    def __call__(self, *arguments: object) -> object:
        if self._cycles is None:
            self._cycles = self._find_cycles(arguments)
        result = self._fn(*arguments)
        self._device.spin(self._cycles)
        return result

    def _find_cycles(self, arguments: tuple[object, ...]) -> int:
        spin_hz = calibrate(self._device).spin_hz
        assert spin_hz is not None
        seconds = median(self._once_s(arguments, spin_hz) for _ in range(SCOUTING))
        return max(1, round(self._share * seconds * spin_hz))

    def _once_s(self, arguments: tuple[object, ...], spin_hz: float) -> float:
        """One call behind a spin, so that the host's part of it is over when the device begins."""
        device = self._device
        device.synchronize()
        device.spin(round(SPIN_S * spin_hz))
        start = device.stamp()
        self._fn(*arguments)
        end = device.stamp()
        return device.elapsed_s(start, end)
