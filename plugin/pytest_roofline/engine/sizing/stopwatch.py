"""One block of samples: stamps around calls. Calls go behind a spin where the device has one, so
that the host is ahead.

With the host ahead of the device all the time, no gap between two launches can be inside a sample. One question tells:
if the device has not reached the block's first stamp when the host has submitted its last, the whole block is valid.
"""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...core.errors import DeviceError
from ..devices import Device, Stamp, answering
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
    """A block's times: seconds of every sample, and of the host. The host spent `host_s` on
    submitting, and `wall_s` in all.

    `ahead` says whether the host was ahead of the device throughout, None without a spin; `clocks_hz` are the clocks
    before and after, from the spins there, of ranks the lowest; `alone` says that each sample was waited for before the
    next was submitted; for `left_s` host seconds the device went on after its last stamp. `rank_times` are this rank's
    own times, where all other fields are what all ranks agree upon.
    """

    spans: tuple[float, ...]
    ahead: bool | None
    host_s: float
    wall_s: float
    clocks_hz: tuple[float, float] | None = None
    alone: bool = False
    left_s: float = 0.0
    rank_times: "BlockTimes | None" = None


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A block's shape. It has `calls` per sample, `samples` per block, and `spin_s` of spinning in
    front; 0 is none.
    """

    calls: int
    samples: int
    spin_s: float = 0.0

    def relaxed(self) -> "BlockShape":
        """Return half the samples behind twice the spin. That is easier for a host that fell
        behind.
        """
        longer_s = max(self.spin_s, min(2 * self.spin_s, LONGEST_SPIN_S))
        return BlockShape(self.calls, max(1, self.samples // 2), longer_s)

    def smaller(self) -> "BlockShape | None":
        """Return a quarter of the entries, since the queue may have been full. None if there is
        nothing to take away.
        """
        if self.samples > 1:
            return BlockShape(self.calls, self.samples // 4 or 1, self.spin_s)
        return BlockShape(self.calls // 4 or 1, 1, self.spin_s) if self.calls > 1 else None


class Stops:
    """Counts how often this process went on after a stop. A stop is Ctrl-Z or SIGSTOP. The main
    thread must enter it.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGCONT, self._note)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGCONT, self._before)

    def _note(self, *_: object) -> None:
        self.count += 1


class Stopwatch:
    """Stamps and waits on a device, and names it if it fails. Without stamps that can be trusted,
    the host's clock counts.

    With peers, what it gives is what all ranks agree upon: the longest span, the dearest host. They meet when a span or
    block is over, never between two stamps. A `flush` goes before every call; `isolated` samples begin on idle devices,
    behind a barrier.
    """

    def __init__(
        self,
        device: Device,
        wall: bool,
        flush: Callable[[], object] | None,
        peers: Peers = ALONE,
        isolated: bool = False,
    ) -> None:
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
        """True if the device can be kept busy while the host submits."""
        return self.device.traits.spins and not self.wall

    def block(self, submit: Callable[[], None], shape: BlockShape) -> BlockTimes:
        """Take a block of this shape; `submit` submits a sample."""
        if shape.spin_s:
            return self.ahead(submit, shape)
        if self.spins and not self.isolated:
            return self.behind(submit, shape.samples)
        return self.plain(submit, shape.samples)

    def wait_until_done(self) -> None:
        """Wait until everything submitted is done."""
        self._ask(self.device.synchronize)

    def span_s(self, submit: Callable[[], None]) -> float:
        """Return the seconds of what `submit` submits, and wait for it. The host may well be
        behind.
        """
        self._begin(isolated=self.isolated)
        span_s = self._own_span_s(submit)
        span_s, self.submit_s = self.agreement.most(span_s, self.submit_s)
        return span_s

    def alone_s(self, submit: Callable[[], None]) -> float:
        """Return the host seconds until all that `submit` submits is done. It begins on every rank
        at once.
        """
        self._flush()
        self.wait_until_done()
        self.agreement.meet_s()
        began_s = self.device.host_s()
        submit()
        self.wait_until_done()
        return self.agreement.most(self.device.host_s() - began_s)[0]

    def host_cost_s(self, submit: Callable[[], None], spin_s: float) -> float:
        """Return the host seconds of submitting, behind a spin."""
        self._begin(isolated=False)
        self.wait_until_done()
        if spin_s:
            self._ask(self.device.spin, self._cycles(spin_s))
        self._submit(submit)
        self.wait_until_done()
        return self.agreement.most(self.submit_s)[0]

    def _begin(self, isolated: bool) -> None:
        """Start with the other ranks, each done with its earlier work. Alone, only an isolated
        sample starts idle.
        """
        if isolated or not self.agreement.alone:
            self.wait_until_done()
            self.agreement.barrier()

    def _own_span_s(self, submit: Callable[[], None]) -> float:
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
        began_s = self.device.host_s()
        submit()
        self.submit_s = self.device.host_s() - began_s

    def plain(self, submit: Callable[[], None], samples: int) -> BlockTimes:
        """Time samples one after the other, and wait for each."""
        self._begin(isolated=False)
        began_s, submitting_s, spans = self.device.host_s(), 0.0, []
        for _ in range(samples):
            if self.isolated:
                self._begin(isolated=True)
            spans.append(self._own_span_s(submit))
            submitting_s += self.submit_s
        return self._agree(
            BlockTimes(tuple(spans), None, submitting_s, self.device.host_s() - began_s, alone=True)
        )

    def behind(self, submit: Callable[[], None], samples: int) -> BlockTimes:
        """Time samples in a row that the host cannot stay ahead of. Gaps are inside, and `wall_s`
        tells.
        """
        self._begin(isolated=False)
        self.wait_until_done()
        began_s = self.device.host_s()
        pairs = self._submit_pairs(submit, samples)
        host_s = self.device.host_s() - began_s
        spans, left_s = tuple(self._read_s(*pair) for pair in pairs), self._left_s()
        wall_s = self.device.host_s() - began_s
        return self._agree(BlockTimes(spans, None, host_s, wall_s, left_s=left_s))

    def ahead(self, submit: Callable[[], None], shape: BlockShape) -> BlockTimes:
        """Time samples behind a spin, with a clock probe at either end. Isolated samples have a
        spin of their own each.
        """
        if self.isolated:
            return self._agree(self._one_by_one(submit, shape))
        self._begin(isolated=False)
        self.wait_until_done()
        began_s = self.device.host_s()
        self._lead_in()
        lead = self._spin(shape.spin_s)
        submitting_s = self.device.host_s()
        pairs = self._submit_pairs(submit, shape.samples)
        ahead = not self._ask(self.device.reached, pairs[0][0])
        host_s = self.device.host_s() - submitting_s
        tail = self._spin(PROBE_S)
        clocks_hz = _clock_pair(self._clock_hz(lead, shape.spin_s), self._clock_hz(tail, PROBE_S))
        left_s = self._left_s()
        wall_s = self.device.host_s() - began_s
        spans = tuple(self._read_s(*pair) for pair in pairs)
        return self._agree(BlockTimes(spans, ahead, host_s, wall_s, clocks_hz, left_s=left_s))

    def _left_s(self) -> float:
        """Return the host seconds of work that goes on after the last stamp."""
        began_s = self.device.host_s()
        self.wait_until_done()
        return self.device.host_s() - began_s

    def _one_by_one(self, submit: Callable[[], None], shape: BlockShape) -> BlockTimes:
        began_s, before_hz = self.device.host_s(), self._probe_hz()
        host_s, ahead, spans = 0.0, True, []
        for _ in range(shape.samples):
            self._begin(isolated=True)
            self._spin(shape.spin_s)
            submitting_s = self.device.host_s()
            ((start, end),) = self._submit_pairs(submit, 1)
            ahead = not self._ask(self.device.reached, start) and ahead
            host_s += self.device.host_s() - submitting_s
            spans.append(self._read_s(start, end))
        clocks_hz = _clock_pair(before_hz, self._probe_hz())
        return BlockTimes(tuple(spans), ahead, host_s, self.device.host_s() - began_s, clocks_hz)

    def _agree(self, block: BlockTimes) -> BlockTimes:
        """Return the block that all ranks agree upon. It is ahead only if it was ahead on every
        rank.
        """
        if self.agreement.alone:
            return block
        clocks = (-clock_hz for clock_hz in block.clocks_hz or (0.0, 0.0))
        most = self.agreement.most(
            *block.spans, block.host_s, block.wall_s, block.ahead is False, *clocks
        )
        spans, (host_s, wall_s, behind, *lowest) = (
            most[: len(block.spans)],
            most[len(block.spans) :],
        )
        ahead = None if block.ahead is None else not behind
        clocks_hz = _clock_pair(-lowest[0], -lowest[1])
        return BlockTimes(spans, ahead, host_s, wall_s, clocks_hz, block.alone, rank_times=block)

    def clock_hz(self) -> float | None:
        """Return this device's clock now, in cycles per second of a spin. None if it cannot be
        probed, or if the spin is too short for the stamps.
        """
        return self._probe_hz() if self.spins else None

    def _probe_hz(self) -> float | None:
        self.wait_until_done()
        self._lead_in()
        return self._clock_hz(self._spin(PROBE_S), PROBE_S)

    def _lead_in(self) -> None:
        self._ask(self.device.spin, int(LEAD_IN_S / PROBE_S * self._cycles(PROBE_S)))

    def _spin(self, seconds: float) -> tuple[Stamp, Stamp]:
        with answering(self.device):
            start = self.device.stamp()
            self.device.spin(self._cycles(seconds))
            return start, self.device.stamp()

    def _cycles(self, seconds: float) -> int:
        return max(1, int(seconds * self.spin_hz))

    def _clock_hz(self, pair: tuple[Stamp, Stamp], seconds: float) -> float | None:
        span_s = self._read_s(*pair)
        return self._cycles(seconds) / span_s if span_s > 0 else None

    def _submit_pairs(self, submit: Callable[[], None], samples: int) -> list[tuple[Stamp, Stamp]]:
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
        with answering(self.device):
            return question(*arguments)

    def _read_s(self, start: Stamp, end: Stamp) -> float:
        span_s = self._ask(self.device.elapsed_s, start, end)
        if span_s < 0:
            raise DeviceError(
                f"{self.device.name}'s time stamps run backwards ({span_s:g} s), so its times are invalid"
            )
        return span_s


def _clock_pair(before_hz: float | None, after_hz: float | None) -> tuple[float, float] | None:
    return (before_hz, after_hz) if before_hz and after_hz else None
