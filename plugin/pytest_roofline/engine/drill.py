"""A drill: any measured function, slower by a given share, to see whether a gate turns red."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from statistics import median

from ..core.errors import BadInput
from ..core.samples import Calibration
from .calibration import calibrate
from .devices import Device

# Spans that tell how long the function takes, before the first call that may be timed.
SCOUTING = 5
# Of a short function a span holds as many calls as make it so long, in ticks of the clock, and at most so many.
SCOUTED_TICKS, MOST_SCOUTED = 200, 64
# Long enough to submit a call in.
SPIN_S = 2e-3


def slowed(
    fn: Callable[..., object],
    device: Device,
    share: float,
    *,
    on_host: bool = False,
    sets: Sequence[tuple[object, ...]] | None = None,
) -> Callable[..., object]:
    """`fn`, followed by a wait of `share` of its own duration: on the device where that queues, else on the host.

    Args:
        fn: a measured function.
        device: that it works on.
        share: 0.1 adds a tenth.
        on_host: whether its work is the host's, whatever device there is.
        sets: of arguments, through which short calls go in turn to be timed as they will be measured; None where every
            rank must make the same calls, so that none may make more.

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
    return _Spinning(fn, device, share, sets)


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

    def __init__(
        self, fn: Callable[..., object], device: Device, share: float, sets: Sequence[tuple[object, ...]] | None
    ) -> None:
        self._fn = fn
        self._device = device
        self._share = share
        self._sets = sets
        self._cycles: int | None = None

    def __call__(self, *arguments: object) -> object:
        if self._cycles is None:
            self._cycles = self._find_cycles(arguments)
        result = self._fn(*arguments)
        self._device.spin(self._cycles)
        return result

    def _find_cycles(self, arguments: tuple[object, ...]) -> int:
        calibration = calibrate(self._device)
        seconds = self._call_s([arguments], calibration)
        if self._sets:
            # A short one alone is little more than its stamps, and finds in the cache what a rotation does not.
            count = min(MOST_SCOUTED, math.ceil(SCOUTED_TICKS * calibration.tick_s / seconds))
            seconds = self._call_s(list(itertools.islice(itertools.cycle(self._sets), count)), calibration)
        assert calibration.spin_hz is not None
        return max(1, round(self._share * seconds * calibration.spin_hz))

    def _call_s(self, calls: Sequence[tuple[object, ...]], calibration: Calibration) -> float:
        """Device seconds of a call, the median of a few spans of these calls."""
        span_s = median(self._span_s(calls, calibration) for _ in range(SCOUTING))
        return max(span_s - calibration.event_pair_s, calibration.tick_s / MOST_SCOUTED) / len(calls)

    def _span_s(self, calls: Sequence[tuple[object, ...]], calibration: Calibration) -> float:
        """Calls behind a spin, so that the host's part of them is over when the device begins."""
        device = self._device
        device.synchronize()
        device.spin(round(SPIN_S * (calibration.spin_hz or 0.0)))
        start = device.stamp()
        for arguments in calls:
            self._fn(*arguments)
        end = device.stamp()
        return device.elapsed_s(start, end)
