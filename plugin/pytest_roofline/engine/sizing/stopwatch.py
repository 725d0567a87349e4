"""Timing of one block of samples, by stamps around calls.

If the device has a spin, the calls are submitted behind it, so that the host is ahead of the device. While the host is
ahead, no gap between two launches can be inside a sample. One look shows it for the whole block: when the host has
submitted the last stamp, the device must not have reached the first.
"""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...core.errors import DeviceError
from ..devices import Device, Stamp, answering, stopped_answering
from .peers import ALONE, Agreement, Peers

Answer = TypeVar("Answer")
# A sample must span this many ticks of the clock, or its value is the clock's and not the device's.
TICKS_PER_SAMPLE = 200
# The spin behind a block that tells the clock it ran at, in seconds: some 2·10⁵ cycles.
PROBE_S = 1e-4
LONGEST_SPIN_S = 1.0
# A spin in front of a probe on an idle device, so that the probe's own launch is not in it.
LEAD_IN_S = 2e-4


@dataclass(frozen=True, slots=True)
class BlockTimes:
    """The times of one block.

    Args:
        spans: seconds of every sample.
        host_was_ahead: whether the host was ahead of the device throughout; None without a spin.
        host_s: host seconds of submitting.
        wall_s: host seconds of the whole block.
        clocks_hz: the device's clock before and after the samples, from the spins there; of ranks the lowest.
        one_by_one: whether the host waited for each sample before it submitted the next.
        late_work_s: host seconds for which the device went on working after its last stamp.
        rank_times: over ranks, the times of this rank; all other fields are then what all ranks agree upon.
    """

    spans: tuple[float, ...]
    host_was_ahead: bool | None
    host_s: float
    wall_s: float
    clocks_hz: tuple[float, float] | None = None
    one_by_one: bool = False
    late_work_s: float = 0.0
    rank_times: "BlockTimes | None" = None


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The shape of a block.

    It has `calls` per sample, `samples` per block, and a spin of `spin_s` in front; 0 is no spin.
    """

    calls: int
    samples: int
    spin_s: float = 0.0

    def relaxed(self) -> "BlockShape":
        """Return a block with half the samples behind a spin of twice the length.

        The host fell behind this block; it can stay ahead of such a block more easily.
        """
        # A spin that is longer than the longest already keeps its length.
        longer_s = max(self.spin_s, min(2 * self.spin_s, LONGEST_SPIN_S))
        return BlockShape(self.calls, max(1, self.samples // 2), longer_s)

    def smaller(self) -> "BlockShape | None":
        """Return a block with a quarter of the samples.

        Of a single sample it has a quarter of its calls. The queue may have been full. None if a single call is left.
        """
        if self.samples > 1:
            return BlockShape(self.calls, self.samples // 4 or 1, self.spin_s)
        return BlockShape(self.calls // 4 or 1, 1, self.spin_s) if self.calls > 1 else None


class Stops:
    """A counter of stops of this process, by Ctrl-Z or SIGSTOP.

    A stop counts when the process goes on. The counter works only if the main thread enters it.
    """

    def __init__(self) -> None:
        self.count = 0
        self._previous_handler: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGCONT, self._note)

    def __exit__(self, *_: object) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGCONT, self._previous_handler)

    def _note(self, *_: object) -> None:
        self.count += 1


class Stopwatch:
    """A stopwatch for the calls on a device.

    An error of the device is raised as a DeviceError that names it. With peers, every result is what all ranks agree
    upon: the longest span, and the longest time of a host. The ranks exchange numbers after a span or a block, never
    between two stamps.

    Args:
        wall: whether to time by the host's clock. A device without trustworthy stamps is always timed so.
        flush: called before every sample; None calls nothing.
        isolated: whether every sample begins on idle devices, behind a barrier of the ranks.
    """

    def __init__(
        self,
        device: Device,
        wall: bool,
        flush: Callable[[], object] | None,
        peers: Peers = ALONE,
        isolated: bool = False,
    ) -> None:
        """Prepare to time calls on a device.

        Args:
            device: that does the work.
            wall: whether to time by the host's clock, not by the device's stamps.
            flush: called before each sample; None calls nothing.
            peers: the ranks that measure together.
            isolated: whether ranks begin each sample together, after a barrier.
        """
        self.device = device
        self.flush = flush
        self.wall = wall or not device.traits.stamps
        self.isolated = isolated
        self.agreement = Agreement(peers, device.host_s)
        # Cycles per second of the device's spin, once they are calibrated.
        self.spin_hz = 0.0
        self.stops = Stops()
        # Host seconds that submitting the last span took.
        self.submit_s = 0.0

    @property
    def spins(self) -> bool:
        """True if blocks may be submitted behind a spin."""
        return self.device.traits.spins and not self.wall

    def block(self, submit: Callable[[], None], shape: BlockShape) -> BlockTimes:
        """Time a block of this shape. `submit` submits the calls of one sample."""
        if shape.spin_s:
            return self.time_ahead(submit, shape)
        if self.spins and not self.isolated:
            return self.time_in_a_row(submit, shape.samples)
        return self.time_one_by_one(submit, shape.samples)

    def wait_until_done(self) -> None:
        """Wait until everything submitted is done."""
        self._ask(self.device.synchronize)

    def span_s(self, submit: Callable[[], None]) -> float:
        """Return the seconds of the work that `submit` submits, once it is done.

        The host may be behind the device, so gaps between launches count too.
        """
        self._begin(isolated=self.isolated)
        span_s = self._own_span_s(submit)
        span_s, self.submit_s = self.agreement.most(span_s, self.submit_s)
        return span_s

    def alone_s(self, submit: Callable[[], None]) -> float:
        """Return the host seconds until all submitted work is done.

        The device is idle at the beginning, and all ranks begin together.
        """
        self._flush()
        self.wait_until_done()
        self.agreement.meet_s()
        began_s = self.device.host_s()
        submit()
        self.wait_until_done()
        lasted_s = self.device.host_s() - began_s
        (longest_s,) = self.agreement.most(lasted_s)
        return longest_s

    def host_cost_s(self, submit: Callable[[], None], spin_s: float) -> float:
        """Return the host seconds that submitting takes behind a spin of `spin_s`.

        A spin keeps the device busy for that long; 0 is without a spin.
        """
        self._begin(isolated=False)
        self.wait_until_done()
        if spin_s:
            self._ask(self.device.spin, self._cycles(spin_s))
        self._submit(submit)
        self.wait_until_done()
        (longest_s,) = self.agreement.most(self.submit_s)
        return longest_s

    def _begin(self, isolated: bool) -> None:
        """Wait for the device and for the other ranks before a span or a block.

        Without other ranks, only an isolated sample waits for the device.
        """
        if isolated or not self.agreement.is_alone:
            self.wait_until_done()
            self.agreement.barrier()

    def _own_span_s(self, submit: Callable[[], None]) -> float:
        """Return the seconds of one span on this rank.

        They are by stamps or by the host's clock.
        """
        self._flush()
        if self.wall:
            self.wait_until_done()
            began_s = self.device.host_s()
            self._submit(submit)
            self.wait_until_done()
            return self.device.host_s() - began_s
        start = self._ask(self.device.stamp)
        self._submit(submit)
        return self._read_s(start, self._ask(self.device.stamp))

    def _submit(self, submit: Callable[[], None]) -> None:
        """Submit the work, and store the host seconds of that in `submit_s`."""
        began_s = self.device.host_s()
        submit()
        self.submit_s = self.device.host_s() - began_s

    def time_one_by_one(self, submit: Callable[[], None], samples: int) -> BlockTimes:
        """Time samples one after the other, and wait for each."""
        self._begin(isolated=False)
        began_s, submitting_s, spans = self.device.host_s(), 0.0, []
        for _ in range(samples):
            if self.isolated:
                self._begin(isolated=True)
            spans.append(self._own_span_s(submit))
            submitting_s += self.submit_s
        return self._agree(
            BlockTimes(
                tuple(spans),
                host_was_ahead=None,
                host_s=submitting_s,
                wall_s=self.device.host_s() - began_s,
                one_by_one=True,
            )
        )

    def time_in_a_row(self, submit: Callable[[], None], samples: int) -> BlockTimes:
        """Time samples in a row, without a spin in front.

        The host may be behind the device, so gaps between launches are inside the samples.
        """
        self._begin(isolated=False)
        self.wait_until_done()
        began_s = self.device.host_s()
        pairs = self._submit_pairs(submit, samples)
        host_s = self.device.host_s() - began_s
        spans = tuple(self._read_s(start, end) for start, end in pairs)
        late_work_s = self._wait_for_late_work_s()
        wall_s = self.device.host_s() - began_s
        return self._agree(BlockTimes(spans, None, host_s, wall_s, late_work_s=late_work_s))

    def time_ahead(self, submit: Callable[[], None], shape: BlockShape) -> BlockTimes:
        """Time samples behind a spin, and probe the device's clock before and after.

        The spin keeps the device busy until the host has submitted all samples, so that no gap of the
        host is in their times. The cycles of a spin in a second are the clock. Each isolated sample has its own spin.
        """
        if self.isolated:
            return self._agree(self._time_isolated(submit, shape))
        self._begin(isolated=False)
        self.wait_until_done()
        began_s = self.device.host_s()
        self._lead_in()
        lead = self._spin(shape.spin_s)
        submitting_began_s = self.device.host_s()
        pairs = self._submit_pairs(submit, shape.samples)
        first_stamp, _ = pairs[0]
        host_was_ahead = not self._ask(self.device.reached, first_stamp)
        host_s = self.device.host_s() - submitting_began_s
        tail = self._spin(PROBE_S)
        clocks_hz = _clock_pair(self._clock_hz(lead, shape.spin_s), self._clock_hz(tail, PROBE_S))
        late_work_s = self._wait_for_late_work_s()
        wall_s = self.device.host_s() - began_s
        spans = tuple(self._read_s(start, end) for start, end in pairs)
        return self._agree(
            BlockTimes(spans, host_was_ahead, host_s, wall_s, clocks_hz, late_work_s=late_work_s)
        )

    def _wait_for_late_work_s(self) -> float:
        """Wait for all work, and return the host seconds of that.

        The stamps have been reached before, so this is work that no stamp covers.
        """
        began_s = self.device.host_s()
        self.wait_until_done()
        return self.device.host_s() - began_s

    def _time_isolated(self, submit: Callable[[], None], shape: BlockShape) -> BlockTimes:
        """Time isolated samples, each behind a spin and a barrier, on this rank."""
        began_s, before_hz = self.device.host_s(), self._probe_hz()
        host_s, host_was_ahead, spans = 0.0, True, []
        for _ in range(shape.samples):
            self._begin(isolated=True)
            self._spin(shape.spin_s)
            submitting_began_s = self.device.host_s()
            ((start, end),) = self._submit_pairs(submit, 1)
            host_was_ahead = not self._ask(self.device.reached, start) and host_was_ahead
            host_s += self.device.host_s() - submitting_began_s
            spans.append(self._read_s(start, end))
        clocks_hz = _clock_pair(before_hz, self._probe_hz())
        wall_s = self.device.host_s() - began_s
        return BlockTimes(tuple(spans), host_was_ahead, host_s, wall_s, clocks_hz)

    def _agree(self, block: BlockTimes) -> BlockTimes:
        """Exchange this rank's times of a block, and return those that all ranks agree upon.

        They are the largest times and the lowest clocks. The host was ahead only if it was on every rank.
        """
        if self.agreement.is_alone:
            return block
        # Ranks agree on the largest number, so clocks are exchanged with their sign changed.
        negative_clocks = (-clock_hz for clock_hz in block.clocks_hz or (0.0, 0.0))
        largest = self.agreement.most(
            *block.spans,
            block.host_s,
            block.wall_s,
            block.host_was_ahead is False,
            *negative_clocks,
        )
        sample_count = len(block.spans)
        spans = largest[:sample_count]
        host_s, wall_s, host_was_behind, negative_before_hz, negative_after_hz = largest[
            sample_count:
        ]
        return BlockTimes(
            spans,
            None if block.host_was_ahead is None else not host_was_behind,
            host_s,
            wall_s,
            _clock_pair(-negative_before_hz, -negative_after_hz),
            block.one_by_one,
            rank_times=block,
        )

    def clock_hz(self) -> float | None:
        """Return this device's clock now, in cycles per second of a spin.

        None if the device has no spin, or if its stamps cannot resolve the probe.
        """
        return self._probe_hz() if self.spins else None

    def _probe_hz(self) -> float | None:
        """Return the clock of the idle device, from a short spin behind another one."""
        self.wait_until_done()
        self._lead_in()
        return self._clock_hz(self._spin(PROBE_S), PROBE_S)

    def _lead_in(self) -> None:
        """Keep the device busy while the host submits the spin that is timed."""
        self._ask(self.device.spin, int(LEAD_IN_S / PROBE_S * self._cycles(PROBE_S)))

    def _spin(self, seconds: float) -> tuple[Stamp, Stamp]:
        """Keep the device busy for so many seconds.

        Return the stamps before and after that.
        """
        with answering(self.device):
            start = self.device.stamp()
            self.device.spin(self._cycles(seconds))
            return start, self.device.stamp()

    def _cycles(self, seconds: float) -> int:
        return max(1, int(seconds * self.spin_hz))

    def _clock_hz(self, pair: tuple[Stamp, Stamp], seconds: float) -> float | None:
        """Return the clock from the stamps around a spin that was to last `seconds`.

        None if the stamps show no time between them.
        """
        start, end = pair
        span_s = self._read_s(start, end)
        return self._cycles(seconds) / span_s if span_s > 0 else None

    def _submit_pairs(self, submit: Callable[[], None], samples: int) -> list[tuple[Stamp, Stamp]]:
        """Submit samples in a row, and return the stamps before and after each."""
        pairs = []
        for _ in range(samples):
            self._flush()
            start = self._ask(self.device.stamp)
            submit()
            pairs.append((start, self._ask(self.device.stamp)))
        return pairs

    def _flush(self) -> None:
        if self.flush is not None:
            self._ask(self.flush)

    def _ask(self, question: Callable[..., Answer], *arguments: object) -> Answer:
        """Call the device. A failure becomes a DeviceError that names it."""
        # A context manager would take longer than all else that the host does around a stamp.
        try:
            return question(*arguments)
        except DeviceError:
            raise
        except Exception as error:
            raise stopped_answering(self.device, error) from error

    def _read_s(self, start: Stamp, end: Stamp) -> float:
        """Return the seconds between two stamps. Raise DeviceError if they are negative."""
        span_s = self._ask(self.device.elapsed_s, start, end)
        if span_s < 0:
            raise DeviceError(
                f"the time stamps of {self.device.name} run backwards ({span_s:g} s), so its times are invalid"
            )
        return span_s


def _clock_pair(before_hz: float | None, after_hz: float | None) -> tuple[float, float] | None:
    """Return both clocks; None if either is unknown or zero."""
    return (before_hz, after_hz) if before_hz and after_hz else None
