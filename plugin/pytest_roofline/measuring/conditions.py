"""The state of a device from block to block: why a block must not count, and what to write down beside it.

A block is excluded for a cause and never for its values. The software power cap is no cause: a busy card lives there.
"""

from typing import Literal

from .devices import Counters, Device
from .devices.base import BRAKE, HARDWARE, POWER_CAP, THERMAL

CAUSES = (THERMAL, HARDWARE, BRAKE)
HOST_GAP = "host gap"
NEIGHBOUR = "another process on the device"
PREEMPTED = "cores taken by the scheduler"
# A quiet machine interrupts a threaded copy some 30 times a second, a single busy neighbour 200 times (measured).
MOST_PREEMPTIONS_HZ = 100
# A process with more threads than cores, or that gets its memory from the kernel anew at every call, is interrupted as
# often on a quiet machine. So somebody else must have had the cores, for this share of the block and more than the
# 10 ms by which the kernel counts are wrong at either end.
LEAST_TAKEN, TAKEN_ERROR_S = 0.05, 0.02
SHORTEST_TOLD_S = 0.1
# Of the device's time, by other processes.
MOST_OTHERS_BUSY = 0.05
# Another process holds memory, or nobody knows: no harm in itself, but a spin that then takes longer shares its time.
OTHERS_BYTES = 256 * 2**20
PROBE_SPREAD = 0.10


class Conditions:
    """Asks a device about itself between blocks."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._first: Counters | None = None
        self._began_s = 0.0
        self._before = Counters()
        self._after = Counters()
        self.neighbours: Literal["none", "seen", "unknown"] = "unknown"
        self.throttle_known = False

    def begin(self) -> None:
        """A block begins."""
        self._before = self._device.counters()
        if self._first is None:
            self._first, self._began_s = self._before, self._device.host_s()

    def cause(self, ahead: bool | None, clocks_hz: tuple[float, float] | None, wall_s: float) -> str:
        """Why the block that ends now does not count; empty where it does.

        Args:
            ahead: whether the host was ahead of the device all the time; None where that plays no part.
            clocks_hz: of the probes before and after it.
            wall_s: how long it took.
        """
        self._after = self._device.counters()
        self._note_neighbours()
        if ahead is False:
            return HOST_GAP
        for cause in CAUSES:
            if self._was_active(cause):
                return cause
        if self._disturbed(clocks_hz):
            self.neighbours = "seen"
            return NEIGHBOUR
        return PREEMPTED if self._preempted(wall_s) else ""

    @property
    def power_capped(self) -> bool | None:
        """Whether the software power cap was active in the last block; None where the device does not tell."""
        if self._after.active is None and POWER_CAP not in self._after.seconds:
            return None
        return self._was_active(POWER_CAP)

    def _was_active(self, cause: str) -> bool:
        before, after = self._before, self._after
        at_the_ends = any(cause in counters.active for counters in (before, after) if counters.active is not None)
        grew = after.seconds.get(cause, 0.0) > before.seconds.get(cause, after.seconds.get(cause, 0.0))
        return at_the_ends or grew

    def _note_neighbours(self) -> None:
        after = self._after
        self.throttle_known = self.throttle_known or after.active is not None or THERMAL in after.seconds
        # Memory in use tells of a neighbour even where the list of processes is blind, but not whether it works.
        if after.others_bytes is None:
            return
        if after.others_bytes > OTHERS_BYTES:
            self.neighbours = "seen"
        elif self.neighbours == "unknown":
            self.neighbours = "none"

    def _disturbed(self, clocks_hz: tuple[float, float] | None) -> bool:
        after = self._after
        if after.others_busy is not None and after.others_busy > MOST_OTHERS_BUSY:
            return True
        alone = after.others_bytes is not None and after.others_bytes <= OTHERS_BYTES
        if clocks_hz is None or alone:
            return False
        return abs(clocks_hz[1] / clocks_hz[0] - 1) > PROBE_SPREAD and not self._was_active(POWER_CAP)

    def _preempted(self, wall_s: float) -> bool:
        before, after = self._before.preemptions, self._after.preemptions
        often = before is not None and after is not None and after - before > max(1, MOST_PREEMPTIONS_HZ * wall_s)
        return often and self._taken_by_others(wall_s)

    def _taken_by_others(self, wall_s: float) -> bool:
        """Whether others had the cores: in the block, or where that is too short to tell, since the first one began.

        True also where nobody counts.
        """
        first, after = self._first or self._before, self._after.others_core_s
        since_first_s = self._device.host_s() - self._began_s
        for before, seconds in ((self._before.others_core_s, wall_s), (first.others_core_s, since_first_s)):
            if before is None or after is None:
                return True
            if seconds >= SHORTEST_TOLD_S:
                return after - before > LEAST_TAKEN * seconds + TAKEN_ERROR_S
        return True
