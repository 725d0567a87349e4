"""One measurement, from its request to its outcome. Only this module knows the order of its steps."""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ..core.errors import BadInput
from ..core.memory import Phase
from ..core.samples import Calibration, Samples
from . import calls
from .calls import renewal, verify_data
from .devices import Device
from .freshness import FreshnessCheck, refill_of
from .log import Log
from .quiet import CoreWatch, busy_text
from .request import Request
from .sizing.calibration import calibrate
from .sizing.peers import ALONE, Peers
from .timing import Engine, Plan

# Calls that the freshness check makes of an honest function.
LOOK_CALLS = 6
# A drill times so many spans of calls to learn how long the function takes.
SCOUTING = 5
# A span of short calls lasts so many ticks of the clock, and holds at most so many calls.
SCOUTED_TICKS, MOST_SCOUTED = 200, 64
# Seconds of the spin in front of a span. The host submits the calls meanwhile.
SPIN_S = 2e-3


@dataclass(frozen=True, slots=True)
class MeasuredRequest:
    """The outcome of a request.

    Args:
        samples: seconds per call; of ranks the longest of every sample.
        calibration: what stamps cost here.
        rank_seconds: every sample of this rank, in seconds per call.
        verified: whether the data of all ranks are right; None where none verifies.
        wrong: what is wrong with the data; empty where nothing is.
        doubt: why the calls are not believed: work behind the last stamp, or results that were remembered.
        disturbance: why times tell nothing of the machine, beside busy neighbours.
        peak_bytes: the most memory that a call held; None where the device does not tell, or nobody asked.
        held_bytes: what a call left allocated; None as above.
        siblings_busy: which other devices of the machine were at work, where they share what is measured.
    """

    samples: Samples
    calibration: Calibration | None = None
    rank_seconds: tuple[float, ...] = ()
    verified: bool | None = None
    wrong: str = ""
    doubt: str = ""
    disturbance: str = ""
    peak_bytes: int | None = None
    held_bytes: int | None = None
    siblings_busy: str = ""


class Observer:
    """A listener to a measurement. The methods of this class do nothing."""

    def tell(self, sentence: str) -> None:
        """Say something to whoever waits for the measurement."""

    def block_added(self, log: Log) -> None:
        """Hear that the log holds one block more."""

    def finished(
        self,
        measured: MeasuredRequest,
        fn: Callable[..., object],
        sets: Sequence[tuple[object, ...]],
    ) -> None:
        """Hear that the measurement is complete, while its buffers still exist.

        `fn` was called with each of these argument sets in turn.
        """

    def failed(self, error: BaseException, phase: Phase, measured: MeasuredRequest | None) -> None:
        """Hear of a failure in a phase, before any buffer is released.

        `measured` is the outcome so far; None without a sample.
        """


def measure_request(
    device: Device, request: Request, observer: Observer, peers: Peers = ALONE
) -> MeasuredRequest:
    """Measure what a request asks for, on a device.

    The steps are: arguments → warm-up → blocks → memory → verification of data → freshness check.

    Raises:
        BadInput: the function returned what only promises to work, or the ranks are too different.
        NoRoom: what the measurement needs does not fit into free memory.
        DeviceError: the device stopped answering.
        Exception: whatever the function raises; its buffers are released.
    """
    steps = _Steps(device, request, observer, peers)
    try:
        return steps.run()
    except BaseException as error:
        observer.failed(error, steps.phase, steps.partial())
        raise
    finally:
        steps.close()


class _Steps:
    """The steps of one measurement. It holds all buffers, and `close` releases them."""

    def __init__(self, device: Device, request: Request, observer: Observer, peers: Peers) -> None:
        """Prepare the steps of one measurement. `observer` hears of blocks, of the end and of failures."""
        self.device, self.request, self.observer, self.peers = device, request, observer, peers
        self.sets: list[tuple[object, ...]] = []
        self.phase: Phase = "arguments"
        self.facts = device.facts()
        self.fn = request.instead or request.target.call
        self.engine: Engine | None = None

    def run(self) -> MeasuredRequest:
        """Take all steps, and return the outcome."""
        request, device = self.request, self.device
        is_cold = calls.fill(self.sets, request, device, self.peers, self.observer.tell)
        # With a refill, buffers need no renewal: it overwrites what the warm-up left in them.
        renew = renewal(self.peers, request.target, self.sets) if not request.refill else None
        # A hook's own function is timed as it is, since the hook itself may slow the test's function down.
        if request.drill is not None and request.instead is None:
            self.fn = self._slow_down(request.drill, renewed=renew is not None)
        freshness_check = self._freshness_check(renewed=renew is not None)
        siblings_busy = busy_text(device) if request.over_host_link else ""
        # Only the engine refers to the plan. A local name would keep its buffers alive in the traceback of a failure.
        engine = self.engine = Engine(device, self._plan(renew))
        engine.log.labels |= self._labels(is_cold)
        watch = CoreWatch(self.peers, on_processors=self.facts.type == "cpu")
        self.phase = "calls"
        engine.run()
        measured = self.partial()
        assert measured is not None
        measured = replace(measured, disturbance=watch.disturbance(), siblings_busy=siblings_busy)
        measured = self._check_calls(engine, measured, freshness_check)
        self.observer.finished(measured, self.fn, self.sets)
        return measured

    def _check_calls(
        self, engine: Engine, measured: MeasuredRequest, freshness_check: FreshnessCheck | None
    ) -> MeasuredRequest:
        """Return the outcome with the memory of a call.

        The checks that calls did their work follow.
        """
        request = self.request
        self.phase = "peak_bytes"
        peak_bytes = engine.peak_bytes() if request.peak_bytes else None
        self.phase = "held_bytes"
        held_bytes = engine.held_bytes() if request.held_bytes else None
        self.phase = "verify"
        engine.watch.wait_until_done()
        data_are_right, wrong = verify_data(
            self.peers, self.device, request.target, engine.calls.called_sets
        )
        doubt = engine.blocks.left_running
        if not doubt and not wrong and freshness_check is not None:
            doubt = self._why_stale(freshness_check, engine, measured.samples)
        return replace(
            measured,
            verified=data_are_right,
            wrong=wrong,
            doubt=doubt,
            peak_bytes=peak_bytes,
            held_bytes=held_bytes,
        )

    def _labels(self, is_cold: bool) -> set[str]:
        """Return the labels of the request, and those that follow from how it is measured."""
        conditions = {
            "cache_resident": not is_cold,
            "replaced": self.fn is not self.request.target.call,
            "refilled": self.request.refill,
        }
        return {*self.request.labels, *(label for label, holds in conditions.items() if holds)}

    def partial(self) -> MeasuredRequest | None:
        """Return the outcome of the blocks so far; None without a sample."""
        engine = self.engine
        samples = engine.samples() if engine is not None else None
        if engine is None or samples is None:
            return None
        return MeasuredRequest(samples, engine.log.calibration, engine.log.rank_seconds)

    def close(self) -> None:
        """Release all buffers, also if a traceback still refers to this object."""
        self.sets.clear()
        if self.engine is not None:
            self.engine.close()
            self.engine = None
        # If the device fails here, it has failed before, and that error is already on its way to the user.
        with contextlib.suppress(Exception):
            self.device.release()

    def _slow_down(self, share: float, *, renewed: bool) -> Callable[..., object]:
        """Return the function of a drill, which is slower by a share.

        `renewed` says whether the argument sets are renewed after the warm-up.
        """
        timed = self.request.target
        # Scouting makes calls of its own. A rank must not make more calls than others, and renewed sets are replaced.
        scouting_sets = None if self.peers.size > 1 or renewed else self.sets
        return slow_down(timed.call, self.device, share, on_host=timed.on_host, sets=scouting_sets)

    def _plan(self, renew: Callable[[int], None] | None) -> Plan:
        """Return the engine's plan. It makes the buffers that a flush or a refill needs."""
        request, device = self.request, self.device
        flush_bytes = calls.FLUSH_FACTOR * (self.facts.last_level_cache_bytes or 0)
        return Plan(
            fn=self.fn,
            sets=self.sets,
            budget_s=request.budget_s,
            timing="wall" if request.timing == "wall" or request.target.on_host else "device",
            flush=device.flusher(flush_bytes) if request.cache == "flush" else None,
            refill=refill_of(request.target.call, self.sets, device.free_bytes())
            if request.refill
            else None,
            renew=renew,
            first_calls=max(request.first_calls, int(request.compiles)),
            graph=request.graph,
            peers=self.peers,
            isolated=request.timing == "isolated",
            after_block=self.observer.block_added,
        )

    def _freshness_check(self, *, renewed: bool) -> FreshnessCheck | None:
        """Return the freshness check, which must be made before the first call.

        None if the request turns it off or refills every sample, and over ranks, which might make different calls.
        """
        request = self.request
        if request.refill is not None or request.ranks is not None:
            return None
        # Renewed buffers do not show what calls did to them. First calls are timed, and noting the content of tensors
        # before them would do a part of their start-up.
        before = not (renewed or request.first_calls or request.compiles)
        return FreshnessCheck(request.target.call, self.sets, before=before)

    def _why_stale(self, freshness_check: FreshnessCheck, engine: Engine, samples: Samples) -> str:
        """Return why calls are not believed; empty if they are.

        If the check would take longer than the budget it is left out: such slow calls certainly work.
        """
        if samples.median_s * LOOK_CALLS > self.request.budget_s:
            return ""
        return freshness_check.why_stale(
            engine.plan.fn, engine.watch.wait_until_done, self.device.free_bytes
        )


def slow_down(
    fn: Callable[..., object],
    device: Device,
    share: float,
    *,
    on_host: bool = False,
    sets: Sequence[tuple[object, ...]] | None = None,
) -> Callable[..., object]:
    """Return a function that calls `fn` and then waits for `share` of its duration.

    The device waits if it has a queue, else the host. On a device the first call finds out how long: it times `fn` with
    its arguments and, so that a rotation is timed as one, with the `sets` in turn. With None it does not use the sets.
    """
    if on_host or not device.traits.queues:
        return lambda *arguments: _then_wait(fn, arguments, share)
    if not device.traits.spins:
        raise BadInput(
            f"{device.name} cannot be kept busy for a given time, so a drill cannot slow down functions on this "
            "device. Slow a function down yourself with the hook pytest_roofline_function"
        )
    return _Spinning(fn, device, share, sets)


def _then_wait(fn: Callable[..., object], arguments: tuple[object, ...], share: float) -> object:
    """Call `fn`, and return its result.

    The host is then kept busy for a share of its time.
    """
    began_s = time.perf_counter()
    output = fn(*arguments)
    now_s = time.perf_counter()
    end_s = now_s + share * (now_s - began_s)
    while time.perf_counter() < end_s:
        pass
    return output


class _Spinning:
    """A function with a spin behind it. Its first call, in the warm-up, finds out how long to spin."""

    def __init__(
        self,
        fn: Callable[..., object],
        device: Device,
        share: float,
        sets: Sequence[tuple[object, ...]] | None,
    ) -> None:
        """Wrap `fn`, to spin for `share` of its duration after each call.

        The first call finds the duration with its own arguments, and with `sets` unless that is None.
        """
        self._fn, self._device, self._share, self._sets = fn, device, share, sets
        self._cycles: int | None = None

    def __call__(self, *arguments: object) -> object:
        """Call the function, keep the device busy behind it, and return its result."""
        if self._cycles is None:
            self._cycles = self._find_cycles(arguments)
        output = self._fn(*arguments)
        self._device.spin(self._cycles)
        return output

    def _find_cycles(self, arguments: tuple[object, ...]) -> int:
        """Return the cycles of a spin that lasts the share of a call."""
        calibration = calibrate(self._device)
        seconds = self._call_s([arguments], calibration)
        if self._sets:
            # A single short call is hard to tell from its stamps, and its data are in the cache. So time as many calls,
            # through the sets in turn, as the clock needs.
            count = min(MOST_SCOUTED, math.ceil(SCOUTED_TICKS * calibration.tick_s / seconds))
            seconds = self._call_s(
                list(itertools.islice(itertools.cycle(self._sets), count)), calibration
            )
        assert calibration.spin_hz is not None
        return max(1, round(self._share * seconds * calibration.spin_hz))

    def _call_s(self, calls: Sequence[tuple[object, ...]], calibration: Calibration) -> float:
        """Return the device seconds of a call.

        They are from the median of a few spans of these calls.
        """
        span_s = median(self._span_s(calls, calibration) for _ in range(SCOUTING))
        # Noise may make a span shorter than what two stamps cost, but no call takes zero or less.
        least_s = calibration.tick_s / MOST_SCOUTED
        return max(span_s - calibration.event_pair_s, least_s) / len(calls)

    def _span_s(self, calls: Sequence[tuple[object, ...]], calibration: Calibration) -> float:
        """Return the device seconds of calls behind a spin, during which the host submits them."""
        device = self._device
        device.synchronize()
        device.spin(round(SPIN_S * (calibration.spin_hz or 0.0)))
        start = device.stamp()
        for arguments in calls:
            self._fn(*arguments)
        end = device.stamp()
        return device.elapsed_s(start, end)
