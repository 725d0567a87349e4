"""The state of a device from block to block. It tells why a block must not count, and what to write
down beside it.

A block is excluded for a cause and never for its values. The software power cap is no cause: a busy card lives there.

Asking takes time in which the device idles, so no more than a share of the time goes into it. Where a round of
questions is dear, several blocks go by between two rounds, and the later one tells of all of them: what a device adds
up while a cause is active has grown, or it has not.
"""

from dataclasses import replace
from typing import Literal

from ...core.facts import BRAKE, HARDWARE, POWER_CAP, THERMAL
from ...core.samples import PREEMPTED
from ..devices import Counters, Device, answering
from ..log import BlockState
from ..sizing.peers import UNKNOWN, Agreement, of_ranks
from ..sizing.stopwatch import Stops

CAUSES = (THERMAL, HARDWARE, BRAKE)
HOST_GAP = "host gap"
NEIGHBOUR = "another process on the device"
STOPPED = "a stop of the process"
JUMPED = "a jump of the clock"
# In the order in which they are named where ranks differ: the first of these that any rank saw.
CODES = ("", STOPPED, JUMPED, HOST_GAP, *CAUSES, NEIGHBOUR)
NEIGHBOURS: tuple[Literal["none", "unknown", "seen"], ...] = ("none", "unknown", "seen")
# Samples cannot take longer than their block by the host's clock; two clocks differ by less than this.
CLOCKS_DIFFER, CLOCKS_DIFFER_S = 0.05, 1e-3
# A quiet machine interrupts a threaded copy some 30 times a second, a single busy neighbour 200 times (measured).
MOST_PREEMPTIONS_HZ = 100
# A process with more threads than cores, or that gets its memory from the kernel anew at every call, is interrupted as
# often on a quiet machine. So somebody else must have had the cores, for this share of the block and more than the
# 10 ms by which the kernel counts are wrong at either end.
LEAST_SHARE_TAKEN, CORE_TIME_ERROR_S = 0.05, 0.02
SHORTEST_INTERVAL_S = 0.1
# Of the device's time, by other processes.
MOST_OTHERS_BUSY = 0.05
# Another process holds memory: no harm in itself, but a spin that then takes longer shares its time.
OTHERS_BYTES = 256 * 2**20
PROBE_SPREAD = 0.10
# Of the time, for questions.
MOST_ASKING = 0.05


class Conditions:
    """Asks a device about itself between blocks.

    What the last round of questions found: `spoiled`, the cause for which the last `judged` blocks do not count (empty
    where they do), and `power_capped`, whether the software power cap was active in them, None where nobody tells.
    """

    def __init__(self, device: Device, stops: Stops) -> None:
        self._device = device
        self._stops = stops
        self._stops_before = 0
        self._first: Counters | None = None
        self._began_s = 0.0
        self._before = Counters()
        self._after = Counters()
        self._every_s = 0.0
        self._last_ask_s = float("-inf")
        self._waiting, self._wall_s = 0, 0.0
        self._probes_differed = False
        self.spoiled = ""
        self.judged = 0
        self.power_capped: bool | None = None
        self.neighbours: Literal["none", "seen", "unknown"] = "unknown"
        self.throttle_known = False
        # The clock moved within a block by more than `PROBE_SPREAD`, and nobody tells why.
        self.clock_moved = False

    def pace(self) -> None:
        """Learn the cost of a round of questions, and so its pace. The first round opens the
        library.
        """
        costs = []
        for _ in range(2):
            began_s = self._device.host_s()
            with answering(self._device):
                self._device.counters()
            costs.append(self._device.host_s() - began_s)
        self._every_s = min(costs) / MOST_ASKING

    def begin(self, anew: bool = False) -> None:
        """Begin a block. `anew` says that it is the first of a row; blocks before the row do not
        matter any more.
        """
        if anew:
            self._waiting, self._last_ask_s, self._probes_differed = 0, float("-inf"), False
            self._stops_before = self._stops.count
        if self._waiting:
            return
        self._before = self._ask() if self._due() else self._after
        self._wall_s = 0.0
        if self._first is None:
            self._first, self._began_s = self._before, self._device.host_s()

    def cause(
        self,
        ahead: bool | None,
        clocks_hz: tuple[float, float] | None,
        wall_s: float,
        samples_s: float = 0.0,
    ) -> str:
        """Return why the block that ends now does not count. Empty if it counts, or if nobody was
        asked yet.

        Whether the host was `ahead` of the device all the time is None where that plays no part; `samples_s` are all
        samples together.
        """
        stopped, self._stops_before = self._stops.count > self._stops_before, self._stops.count
        self._waiting += 1
        self._wall_s += wall_s
        self.spoiled, self.judged, self.power_capped = "", 0, None
        probes_differ = (
            clocks_hz is not None and abs(clocks_hz[1] / clocks_hz[0] - 1) > PROBE_SPREAD
        )
        self._probes_differed = self._probes_differed or probes_differ
        if self._due():
            self._judge()
        if stopped:
            return STOPPED
        if samples_s > (1 + CLOCKS_DIFFER) * wall_s + CLOCKS_DIFFER_S:
            return JUMPED
        if ahead is False:
            return HOST_GAP
        if self.spoiled:
            return self.spoiled
        if probes_differ and self._is_time_sliced():
            self.neighbours = "seen"
            return NEIGHBOUR
        if self.judged:
            self._explain()
        return ""

    def state(self, cause: str, alone: bool) -> BlockState:
        """Return what this rank's device tells of the blocks so far. The one with this cause is the
        last of them, and the rank is `alone` where no others measure with it.
        """
        # A collective wakes its own threads some 4000 times a second (measured), which tells of no neighbour.
        harmless = "" if alone else PREEMPTED
        cause, spoiled = ("" if code == harmless else code for code in (cause, self.spoiled))
        return BlockState(
            cause,
            self.power_capped,
            self.neighbours,
            self.throttle_known,
            spoiled=spoiled,
            judged=self.judged,
            clock_moved=self.clock_moved,
        )

    def end_row(self) -> bool:
        """End the row of blocks, and ask about those not yet judged. Return whether there were any."""
        self.spoiled, self.judged, self.power_capped = "", 0, None
        if not self._waiting:
            return False
        self._judge()
        self._waiting = 0
        self._explain()
        return True

    def _due(self) -> bool:
        return self._device.host_s() - self._last_ask_s >= self._every_s

    def _ask(self) -> Counters:
        with answering(self._device):
            self._after = self._device.counters()
        self._last_ask_s = self._device.host_s()
        return self._after

    def _judge(self) -> None:
        """Ask, and judge all blocks since the last round. None are judged if the device has not
        renewed what it tells.
        """
        before, after = self._before, self._ask()
        self._note_neighbours()
        if after.renewals is not None and after.renewals == before.renewals:
            return
        self.judged, self._waiting = self._waiting, 0
        if after.active is not None or POWER_CAP in after.seconds:
            self.power_capped = self._was_active(POWER_CAP)
        self.spoiled = next((cause for cause in CAUSES if self._was_active(cause)), "")
        if self.spoiled:
            return
        if (after.others_busy or 0.0) > MOST_OTHERS_BUSY:
            self.spoiled, self.neighbours = NEIGHBOUR, "seen"
        elif self._was_preempted():
            self.spoiled = PREEMPTED

    def _was_active(self, cause: str) -> bool:
        before, after = self._before, self._after
        at_the_ends = any(cause in (counters.active or ()) for counters in (before, after))
        after_s = after.seconds.get(cause, 0.0)
        return at_the_ends or after_s > before.seconds.get(cause, after_s)

    def _note_neighbours(self) -> None:
        after = self._after
        self.throttle_known = (
            self.throttle_known or after.active is not None or THERMAL in after.seconds
        )
        # Memory in use tells of a neighbour even where the list of processes is blind, but not whether it works.
        if after.others_bytes is None:
            return
        if after.others_bytes > OTHERS_BYTES:
            self.neighbours = "seen"
        elif self.neighbours == "unknown":
            self.neighbours = "none"

    def _is_time_sliced(self) -> bool:
        """Return whether a neighbour alone can have moved the clock.

        Somebody else holds memory, nobody can say whether it works, and the power cap was not active. Products of
        matrices alone make a card at its power cap do that, so less knowledge excludes nothing.
        """
        others_bytes = self._after.others_bytes
        memory_is_shared = others_bytes is not None and others_bytes > OTHERS_BYTES
        return memory_is_shared and self._after.others_busy is None and self.power_capped is False

    def _explain(self) -> None:
        """Note that the clock moved, if nothing explains it. This process alone on the device
        explains it, and so does the power cap.
        """
        others_bytes = self._after.others_bytes
        alone = others_bytes is not None and others_bytes <= OTHERS_BYTES
        self.clock_moved = self.clock_moved or (
            self._probes_differed and not alone and not self.power_capped
        )
        self._probes_differed = False

    def _was_preempted(self) -> bool:
        before, after = self._before.preemptions, self._after.preemptions
        most = max(1, MOST_PREEMPTIONS_HZ * self._wall_s)
        return (
            before is not None
            and after is not None
            and after - before > most
            and self._others_had_cores()
        )

    def _others_had_cores(self) -> bool:
        """Return whether others had the cores in these blocks. If the blocks are too short to tell,
        since the first began.

        True also where nobody counts.
        """
        first, after = self._first or self._before, self._after.others_core_s
        since_first_s = self._device.host_s() - self._began_s
        for before, seconds in (
            (self._before.others_core_s, self._wall_s),
            (first.others_core_s, since_first_s),
        ):
            if before is None or after is None:
                return True
            if seconds >= SHORTEST_INTERVAL_S:
                return after - before > LEAST_SHARE_TAKEN * seconds + CORE_TIME_ERROR_S
        return True


def agreed_state(agreement: Agreement, state: BlockState) -> BlockState:
    """Return the state of all devices. What spoiled the block on one rank spoiled it for all, who
    waited for that one.
    """
    if agreement.alone:
        return replace(state, cause_text=state.cause)
    capped = UNKNOWN if state.power_capped is None else float(state.power_capped)
    numbers = (
        CODES.index(state.cause),
        capped,
        NEIGHBOURS.index(state.neighbours),
        state.throttle_known,
        CODES.index(state.spoiled),
        state.judged,
        state.clock_moved,
    )
    causes, caps, neighbours, throttles_known, spoils, judged, clocks_moved = zip(
        *agreement.rows(*map(float, numbers)), strict=True
    )
    code, spoil = (min((code for code in codes if code), default=0.0) for codes in (causes, spoils))
    cause = CODES[int(code)]
    # Every rank asks at its own pace: those that found something wrong say how far back it reaches.
    reaches = max(
        (count for count, code in zip(judged, spoils, strict=True) if code), default=min(judged)
    )
    return BlockState(
        cause,
        power_capped=True if 1.0 in caps else None if UNKNOWN in caps else False,
        neighbours=NEIGHBOURS[int(max(neighbours))],
        throttle_known=all(throttles_known),
        cause_text=cause
        + of_ranks(
            [rank for rank, rank_cause in enumerate(causes) if rank_cause == code], len(causes)
        )
        * bool(cause),
        spoiled=CODES[int(spoil)],
        judged=int(reaches),
        clock_moved=any(clocks_moved),
    )
