"""The state of a device from block to block, and the causes to exclude a block.

A block is excluded for a cause, never for its values. The software power cap is no cause, since it is normal for a busy
card.

The device idles while it is asked about its state, so questions take no more than a share of the time. If a round of
questions takes long, several blocks pass between two rounds. The later round judges all of them: the device counts the
seconds for which a cause was active, and that count has grown since the earlier round, or it has not.
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
# All causes by the number that ranks exchange. If ranks saw different causes, the first in this order counts.
CODES = ("", STOPPED, JUMPED, HOST_GAP, *CAUSES, NEIGHBOUR)
NEIGHBOURS: tuple[Literal["none", "unknown", "seen"], ...] = ("none", "unknown", "seen")
# Samples cannot take longer than their block by the host's clock; two clocks differ by less than this.
CLOCKS_DIFFER, CLOCKS_DIFFER_S = 0.05, 1e-3
# A quiet machine interrupts a threaded copy some 30 times a second, a single busy neighbour 200 times (measured).
MOST_PREEMPTIONS_HZ = 100
# A process with more threads than cores, or that gets its memory from the kernel anew at every call, is interrupted as
# often on a quiet machine. So other processes must also have had the cores for this share of the block, and for longer
# than the kernel's counts can be wrong: 10 ms at either end.
LEAST_SHARE_TAKEN, CORE_TIME_ERROR_S = 0.05, 0.02
# The kernel's counts of core time are too coarse for a shorter interval.
SHORTEST_INTERVAL_S = 0.1
# The most of the device's time that other processes may use, as a share.
MOST_OTHERS_BUSY = 0.05
# Other processes that hold more memory than this may also work on the device.
OTHERS_BYTES = 256 * 2**20
# The clock moved within a block if its probes before and after differ by more than this share.
PROBE_SPREAD = 0.10
# The most of the time that questions to the device may take, as a share.
MOST_ASKING = 0.05


class Conditions:
    """The state of a device, which is asked about itself between blocks.

    The last round of questions judged `judged_count` blocks. `spoiled_reason` is why they do not count, empty if they
    count; `power_capped` is whether the software power cap was active in them, None if the device does not report it.
    """

    def __init__(self, device: Device, stops: Stops) -> None:
        """Prepare to judge blocks by the counters of a device.

        `stops` counts how often this process was stopped.
        """
        self._device = device
        self._stops = stops
        self._stops_before = 0
        # The first state of the device, and when it was asked for.
        self._first: Counters | None = None
        self._began_s = 0.0
        # The states before and after the blocks that the newest round of questions judged.
        self._before = Counters()
        self._after = Counters()
        # The device is asked only every so many seconds, since asking takes time.
        self._interval_s = 0.0
        self._last_ask_s = float("-inf")
        # Blocks since the last round of questions, and their host seconds.
        self._unjudged_count, self._wall_s = 0, 0.0
        self._probes_differed = False
        # The results: see `BlockState`.
        self.spoiled_reason = ""
        self.judged_count = 0
        self.power_capped: bool | None = None
        self.neighbours: Literal["none", "seen", "unknown"] = "unknown"
        self.throttle_known = False
        # The clock moved within a block by more than `PROBE_SPREAD`, and nobody tells why.
        self.clock_moved = False

    def learn_pace(self) -> None:
        """Set the seconds between two rounds of questions.

        They follow from the cost of asking the device for its state, which is done twice. The cheaper round counts,
        since the first one also opens the library.
        """
        costs = []
        for _ in range(2):
            began_s = self._device.host_s()
            with answering(self._device):
                self._device.counters()
            costs.append(self._device.host_s() - began_s)
        self._interval_s = min(costs) / MOST_ASKING

    def begin(self, anew: bool = False) -> None:
        """Begin a block.

        The device is asked for its state before it if that is due. With `anew` it is the first block of a measurement,
        and blocks of attempts before it are forgotten.
        """
        if anew:
            self._unjudged_count, self._last_ask_s, self._probes_differed = 0, float("-inf"), False
            self._stops_before = self._stops.count
        if self._unjudged_count:
            # The state before the oldest of these blocks is the one to compare with.
            return
        # If it is too early to ask again, the last answer stands for the state before this block.
        self._before = self._ask() if self._is_due() else self._after
        self._wall_s = 0.0
        if self._first is None:
            self._first, self._began_s = self._before, self._device.host_s()

    def end_block(
        self,
        host_was_ahead: bool | None,
        clocks_hz: tuple[float, float] | None,
        wall_s: float,
        samples_s: float = 0.0,
    ) -> str:
        """End a block, and return why it does not count.

        Empty if it counts, or if the device has not been asked about it yet.

        Args:
            host_was_ahead: whether the host was ahead of the device all the time; None without a spin.
            clocks_hz: the clock before and after the block; None if it was not probed.
            wall_s: host seconds of the block.
            samples_s: seconds of all samples together.
        """
        was_stopped = self._stops.count > self._stops_before
        self._stops_before = self._stops.count
        self._unjudged_count += 1
        self._wall_s += wall_s
        self.spoiled_reason, self.judged_count, self.power_capped = "", 0, None
        probes_differ = False
        if clocks_hz is not None:
            before_hz, after_hz = clocks_hz
            probes_differ = abs(after_hz / before_hz - 1) > PROBE_SPREAD
        self._probes_differed = self._probes_differed or probes_differ
        if self._is_due():
            self._judge()
        if was_stopped:
            return STOPPED
        # Samples cannot take longer than the block that holds them, unless a clock was set meanwhile.
        if samples_s > (1 + CLOCKS_DIFFER) * wall_s + CLOCKS_DIFFER_S:
            return JUMPED
        if host_was_ahead is False:
            return HOST_GAP
        if self.spoiled_reason:
            return self.spoiled_reason
        if probes_differ and self._is_time_sliced():
            self.neighbours = "seen"
            return NEIGHBOUR
        if self.judged_count:
            self._note_clock_moved()
        return ""

    def state(self, cause: str, alone: bool) -> BlockState:
        """Return the state of this rank's device after the newest block.

        Args:
            cause: why the newest block does not count; empty if it counts.
            alone: whether this rank measures without others.
        """
        # With other ranks, interruptions are no sign of a neighbour: a collective wakes its own threads some 4000 times
        # a second (measured).
        harmless = "" if alone else PREEMPTED
        return BlockState(
            "" if cause == harmless else cause,
            self.power_capped,
            self.neighbours,
            self.throttle_known,
            spoiled_reason="" if self.spoiled_reason == harmless else self.spoiled_reason,
            judged_count=self.judged_count,
            clock_moved=self.clock_moved,
        )

    def end_row(self) -> bool:
        """End a measurement's blocks.

        Return whether the device was asked for its state once more. It is asked if some blocks have not been judged
        yet.
        """
        self.spoiled_reason, self.judged_count, self.power_capped = "", 0, None
        if not self._unjudged_count:
            return False
        self._judge()
        # Blocks that could not be judged now never will be.
        self._unjudged_count = 0
        self._note_clock_moved()
        return True

    def _is_due(self) -> bool:
        return self._device.host_s() - self._last_ask_s >= self._interval_s

    def _ask(self) -> Counters:
        """Ask the device for its state, remember it and the time, and return it."""
        with answering(self._device):
            self._after = self._device.counters()
        self._last_ask_s = self._device.host_s()
        return self._after

    def _judge(self) -> None:
        """Judge all blocks since the last round of questions.

        The device is asked for its state now. No block is judged if the device has not renewed its counters since then.
        """
        before, after = self._before, self._ask()
        self._note_neighbours()
        if after.renewals is not None and after.renewals == before.renewals:
            return
        self.judged_count, self._unjudged_count = self._unjudged_count, 0
        # Only a device that reports causes of throttling can say whether the power cap was active.
        if after.active is not None or POWER_CAP in after.seconds:
            self.power_capped = self._was_active(POWER_CAP)
        self.spoiled_reason = next((cause for cause in CAUSES if self._was_active(cause)), "")
        if self.spoiled_reason:
            return
        if (after.others_busy or 0.0) > MOST_OTHERS_BUSY:
            self.spoiled_reason, self.neighbours = NEIGHBOUR, "seen"
        elif self._was_preempted():
            self.spoiled_reason = PREEMPTED

    def _was_active(self, cause: str) -> bool:
        """Return whether a cause was active before or after the blocks, or was counted meanwhile."""
        before, after = self._before, self._after
        was_seen = any(cause in (counters.active or ()) for counters in (before, after))
        after_s = after.seconds.get(cause, 0.0)
        return was_seen or after_s > before.seconds.get(cause, after_s)

    def _note_neighbours(self) -> None:
        """Note whether the device reports throttling, and whether another process holds memory."""
        after = self._after
        self.throttle_known = (
            self.throttle_known or after.active is not None or THERMAL in after.seconds
        )
        # Memory in use shows a neighbour even in a container, where processes cannot be listed. It does not show
        # whether the neighbour works.
        if after.others_bytes is None:
            return
        if after.others_bytes > OTHERS_BYTES:
            self.neighbours = "seen"
        elif self.neighbours == "unknown":
            self.neighbours = "none"

    def _is_time_sliced(self) -> bool:
        """Return whether only a neighbour can have moved the clock.

        Another process holds memory, its activity is unknown, and the power cap was certainly not active. A power cap
        also moves the clock, under large matrix products for example, so an unknown power cap excludes nothing.
        """
        others_bytes = self._after.others_bytes
        memory_is_shared = others_bytes is not None and others_bytes > OTHERS_BYTES
        return memory_is_shared and self._after.others_busy is None and self.power_capped is False

    def _note_clock_moved(self) -> None:
        """Note a clock that moved for no known reason.

        Without a neighbour the calls themselves are the reason, and so is an active power cap.
        """
        others_bytes = self._after.others_bytes
        is_alone = others_bytes is not None and others_bytes <= OTHERS_BYTES
        self.clock_moved = self.clock_moved or (
            self._probes_differed and not is_alone and not self.power_capped
        )
        self._probes_differed = False

    def _was_preempted(self) -> bool:
        """Return whether other processes interrupted this one too often.

        The blocks since the last round of questions count. Interruptions alone do not show it, since the process's own
        threads interrupt each other too.
        """
        before, after = self._before.preemptions, self._after.preemptions
        most_preemptions = max(1, MOST_PREEMPTIONS_HZ * self._wall_s)
        return (
            before is not None
            and after is not None
            and after - before > most_preemptions
            and self._others_had_cores()
        )

    def _others_had_cores(self) -> bool:
        """Return whether other processes computed on the cores in the blocks since the last round.

        If these blocks are too short for the kernel's counts, the time since the first block is looked at. True if the
        machine does not count, or if that time is too short as well.
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


def _any_capped(caps: tuple[float, ...]) -> bool | None:
    """Return whether the power cap was active on any rank.

    A rank gives 1 if it was, 0 if it was not, or `UNKNOWN`. None if a rank does not know, and no rank gives 1.
    """
    if 1.0 in caps:
        return True
    return None if UNKNOWN in caps else False


def _as_numbers(state: BlockState) -> tuple[float, ...]:
    """Return a state as numbers, which ranks can exchange. A text is given by its index."""
    capped = UNKNOWN if state.power_capped is None else float(state.power_capped)
    return (
        float(CODES.index(state.cause)),
        capped,
        float(NEIGHBOURS.index(state.neighbours)),
        float(state.throttle_known),
        float(CODES.index(state.spoiled_reason)),
        float(state.judged_count),
        float(state.clock_moved),
    )


def agreed_state(agreement: Agreement, state: BlockState) -> BlockState:
    """Return the state of the devices after the newest block.

    All ranks agree upon it. A block that is spoiled on one rank is spoiled on all, since the others waited for that
    rank.

    Args:
        agreement: exchanges numbers with the other ranks.
        state: of this rank's own device.
    """
    if agreement.is_alone:
        return replace(state, cause_text=state.cause)
    # Each name is a column: the number of every rank, by rank.
    causes, caps, neighbours, throttles_known, spoiled_reasons, judged_counts, clocks_moved = zip(
        *agreement.rows(*_as_numbers(state)), strict=True
    )
    # If ranks saw different causes, the one with the smallest index in `CODES` counts. The index 0 means no cause.
    cause_code, spoiled_code = (
        min((code for code in codes if code), default=0.0) for codes in (causes, spoiled_reasons)
    )
    cause = CODES[int(cause_code)]
    # The text also names the ranks that saw the cause, unless all did.
    cause_text = cause
    if cause:
        ranks = [rank for rank, code in enumerate(causes) if code == cause_code]
        cause_text += of_ranks(ranks, len(causes))
    # Each rank asks its own device now and then, and its answer judges all blocks since it last asked. If some devices
    # had a reason, the longest of their stretches of blocks is excluded. If none had, a block counts as judged only
    # once every rank has judged it.
    judged_count = max(
        (count for count, code in zip(judged_counts, spoiled_reasons, strict=True) if code),
        default=min(judged_counts),
    )
    return BlockState(
        cause,
        power_capped=_any_capped(caps),
        neighbours=NEIGHBOURS[int(max(neighbours))],
        throttle_known=all(throttles_known),
        cause_text=cause_text,
        spoiled_reason=CODES[int(spoiled_code)],
        judged_count=int(judged_count),
        clock_moved=any(clocks_moved),
    )
