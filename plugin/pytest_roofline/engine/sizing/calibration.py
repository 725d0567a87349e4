"""The cost of stamps and launches on a device. It is measured once a process, and stored beside
every result.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from ...core.errors import BadInput
from ...core.samples import Calibration
from ..devices import Device, Stamp, Traits, answering
from .peers import UNKNOWN, Agreement
from .stopwatch import Stopwatch

# The traits that decide how blocks are taken; ranks must agree in them. The tick is not among them, since ranks may
# differ in it: the calibration then has the coarsest.
DECISIVE = ("shortest_span_s", "queues", "spins", "graphs", "stamps", "warmup_floor_s", "precision")
# Pairs of stamps that are submitted to learn what a pair costs.
PAIRS = 50
# The numbers of pairs to try in turn. A queue may be too shallow for the stamps of fifty pairs.
PAIRS_TO_TRY = (PAIRS, PAIRS, 20, 5)
# Empty calls that are made to learn what the engine's loop costs a call.
CALLS = 1000
# How long the device is kept busy while the host submits the pairs, in seconds.
LEAD_S = 2e-3
# A first guess of a spin's cycles per second, for the spins that measure it.
GUESSED_HZ = 1.5e9
# An idle card's clock takes some tenths of a second of work to rise. So it spins this long before each attempt, and
# attempts go on until two in a row agree. Every known clock has risen within seconds.
WARM_S = 0.1
FEWEST_ATTEMPTS, MOST_ATTEMPTS = 3, 20
# Two attempts agree if they differ by no more than this share.
AGREEMENT = 0.01
# How long the device is kept busy while the queue is filled, in seconds.
SEARCH_S = 50e-3
# The search for the queue's end stops after so many stamps. No block fills a queue that is deeper.
DEEPEST = 2500
# Submitting one stamp takes longer than this only if it waits for room in the queue.
STALL_S = 1e-3


# Eight GPUs make 56 ordered pairs, each a device of its own.
@functools.lru_cache(maxsize=128)
def calibrate(device: Device) -> Calibration:
    """Return the calibration of a device. It is measured once, at the first call."""
    traits = device.traits
    # The first spins and stamps load the code that they need. The loops below leave them out.
    spin_hz = _spin_hz(device) if traits.spins else None
    spans = _empty_spans(device, spin_hz)
    return Calibration(
        device=device.name,
        tick_s=max(traits.tick_s, _smallest_step(spans) or 0.0),
        event_pair_s=max(0.0, median(spans)),
        record_host_s=_record_host_s(device),
        call_host_s=_cost_s(device, _nothing, CALLS),
        spin_hz=spin_hz,
        queue_depth=_queue_depth(device, spin_hz) if spin_hz else None,
    )


def _spin_hz(device: Device) -> float:
    """Return the spin's cycles per second at the full clock.

    An idle device has a lower clock, so the device spins until two attempts in a row agree.
    """
    attempts = [GUESSED_HZ]
    for _ in range(MOST_ATTEMPTS):
        # This spin only raises the clock.
        device.spin(int(GUESSED_HZ * WARM_S))
        attempts.append(_spin_hz_now(device))
        before_hz, last_hz = attempts[-2:]
        if len(attempts) > FEWEST_ATTEMPTS and abs(last_hz / before_hz - 1) <= AGREEMENT:
            break
    return attempts[-1]


def _spin_hz_now(device: Device) -> float:
    """Return the spin's cycles per second at this moment.

    It follows from the difference of two spins, which leaves out the fixed cost of a spin.
    """
    spans = []
    for cycles in (int(GUESSED_HZ * LEAD_S), int(2 * GUESSED_HZ * LEAD_S)):
        device.synchronize()
        start = device.stamp()
        device.spin(cycles)
        end = device.stamp()
        spans.append(device.elapsed_s(start, end))
    short_s, long_s = spans
    difference_s = long_s - short_s
    return GUESSED_HZ * LEAD_S / difference_s if difference_s > 0 else GUESSED_HZ


def _empty_spans(device: Device, spin_hz: float | None) -> list[float]:
    """Return the seconds of pairs of stamps with nothing between.

    The host must be ahead of the device for all of them, so fewer pairs are tried if it was not.
    Without any success, the result is the shortest span alone.
    """
    for pairs in PAIRS_TO_TRY:
        device.synchronize()
        if spin_hz:
            device.spin(int(spin_hz * LEAD_S))
        stamps: list[tuple[Stamp, Stamp]] = [(device.stamp(), device.stamp()) for _ in range(pairs)]
        first_stamp, _ = stamps[0]
        # If the device had reached the first stamp by now, the spin ended too early.
        host_was_ahead = spin_hz is None or not device.reached(first_stamp)
        spans = [device.elapsed_s(start, end) for start, end in stamps]
        if host_was_ahead:
            return spans
    # The host was never ahead. The shortest span holds the least of the host's time; alone it shows no tick.
    return [min(spans)]


def _smallest_step(spans: list[float]) -> float | None:
    """Return the smallest difference between two spans; None without one.

    Smaller differences than a millionth are left out: they are rounding of 32-bit floats.
    """
    ordered = sorted(set(spans))
    steps = [later - earlier for earlier, later in itertools.pairwise(ordered)]
    return min((step for step in steps if step > 1e-6 * ordered[-1]), default=None)


def _record_host_s(device: Device) -> float:
    """Return the host seconds to submit one stamp to an idle device."""
    device.synchronize()
    cost_s = _cost_s(device, device.stamp, PAIRS)
    # The next step finds the device idle again.
    device.synchronize()
    return cost_s


def _cost_s(device: Device, call: Callable[[], object], times: int) -> float:
    """Return the mean host seconds of a number of calls."""
    began_s = device.host_s()
    for _ in range(times):
        call()
    return (device.host_s() - began_s) / times


def _nothing() -> None:
    """Do nothing. Timing this call shows what the engine's loop costs around a call."""


def _queue_depth(device: Device, spin_hz: float) -> int | None:
    """Return how many stamps the queue holds behind a spin.

    Submitting one more has to wait. None if that did not happen within `DEEPEST` stamps.
    """
    device.synchronize()
    spin_end_s = device.host_s() + SEARCH_S
    device.spin(int(spin_hz * SEARCH_S))
    depth = next((count for count in range(DEEPEST) if _waits_for_room(device, spin_end_s)), None)
    device.synchronize()
    return depth


def _waits_for_room(device: Device, spin_end_s: float) -> bool:
    """Submit a stamp, and return whether it waited for the spin's end.

    A wait counts from half of the spin's remaining time on; a hiccup of the host is shorter.
    """
    began_s = device.host_s()
    device.stamp()
    return device.host_s() - began_s > max(STALL_S, (spin_end_s - began_s) / 2)


def calibrate_ranks(watch: Stopwatch) -> Calibration:
    """Return the calibration that all ranks agree upon.

    It also gives the stopwatch this rank's own spin rate.
    """
    with answering(watch.device):
        calibration = calibrate(watch.device)
    watch.spin_hz = calibration.spin_hz or 0.0
    if watch.agreement.is_alone:
        return calibration
    require_alike(watch.agreement, watch.device.traits)
    return agreed_calibration(watch.agreement, calibration)


def agreed_calibration(agreement: Agreement, calibration: Calibration) -> Calibration:
    """Return the largest costs and the shallowest queue of all ranks.

    The spin's rate stays this rank's own.
    """
    tick_s, event_pair_s, record_host_s, call_host_s = agreement.most(
        calibration.tick_s,
        calibration.event_pair_s,
        calibration.record_host_s,
        calibration.call_host_s,
    )
    # Ranks agree on the largest number, so the smallest depth is exchanged with its sign changed.
    (negative_depth,) = agreement.most(
        -float("inf") if calibration.queue_depth is None else -calibration.queue_depth
    )
    return replace(
        calibration,
        tick_s=tick_s,
        event_pair_s=event_pair_s,
        record_host_s=record_host_s,
        call_host_s=call_host_s,
        queue_depth=None if negative_depth == -float("inf") else int(-negative_depth),
    )


def require_alike(agreement: Agreement, traits: Traits) -> None:
    """Raise BadInput if ranks would have to be timed in different ways."""
    own_traits = [getattr(traits, name) for name in DECISIVE]
    rows = agreement.rows(*(UNKNOWN if trait is None else float(trait) for trait in own_traits))
    for rank, row in enumerate(rows):
        for name, first, rank_trait in zip(DECISIVE, rows[0], row, strict=True):
            if first != rank_trait:
                raise BadInput(
                    f"the devices of rank 0 and rank {rank} must be timed in different ways ({name} {first:g} and "
                    f"{rank_trait:g}); expected ranks on devices of one kind"
                )
