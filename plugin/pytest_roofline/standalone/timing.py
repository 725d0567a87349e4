"""One measurement with the plugin's engine, from checked arguments to samples, and nothing written down."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ..core.errors import NoRoom
from ..core.samples import Samples
from ..requests import Request

if TYPE_CHECKING:
    from ..measuring.devices import Device
    from ..measuring.timing import Engine


@dataclass(frozen=True, slots=True)
class Timed:
    """What was taken.

    Args:
        samples: in seconds per call.
        verified: whether the timed buffers hold the right data; None where nobody looks.
        wrong: what of the timed buffers does not hold the right data; empty where all does, or nobody looks.
        disturbed: why a processor's time tells of its neighbours.
        peak_bytes: the most that a call holds; None where nobody asked, or the device does not tell.
        held_bytes: likewise what a call leaves allocated.
    """

    samples: Samples
    verified: bool | None
    wrong: str
    disturbed: str
    peak_bytes: int | None
    held_bytes: int | None


def time_request(device: "Device", request: Request, make: Callable[[], object]) -> Timed | None:
    """Warm up and time a function as the plugin does: sets of arguments, cache policy, blocks, fresh buffers.

    Args:
        device: to measure on.
        request: what to measure.
        make: makes one set of arguments.

    Returns:
        None where not one sample was taken.
    """
    from ..measuring import cache, host
    from ..measuring.calls import renewal
    from ..measuring.timing import Engine, Plan

    cache_bytes = device.facts().last_level_cache_bytes or 0
    sets = _sets(device, request, make)

    plan = Plan(
        fn=request.fn,
        sets=sets,
        budget_s=request.budget_s,
        timing=request.timing,
        flush=device.flusher(cache.FLUSH_FACTOR * cache_bytes) if request.cache == "flush" else None,
        renew=renewal(sets, make, request.verify) if request.fresh else None,
        first_calls=request.first_calls,
    )
    engine = Engine(device, plan)
    try:
        watch = host.Neighbours()
        engine.run()
        disturbed = host.too_busy(watch.cores_taken()) if device.facts().type == "cpu" else ""
        samples = engine.samples()
        if samples is None:
            return None
        peak_bytes = engine.peak_bytes() if request.peak_bytes else None
        held_bytes = engine.held_bytes() if request.held_bytes else None
        wrong = _wrong(request.verify, engine)
        verified = None if request.verify is None else not wrong
        return Timed(samples, verified, wrong, disturbed, peak_bytes, held_bytes)
    finally:
        sets.clear()
        engine.close()
        device.release()


def _sets(device: "Device", request: Request, make: Callable[[], object]) -> list[tuple[object, ...]]:
    """The sets of arguments; the test is skipped where there is no room for them."""
    from ..measuring import cache

    if request.cache != "rotate":
        return [cache.as_tuple(make())]
    try:
        return cache.make_sets(make, request.work, device.facts(), device.free_bytes(), device.host_s, print)
    except NoRoom as error:
        pytest.skip(str(error))


def _wrong(verify: Callable[..., object] | None, engine: "Engine") -> str:
    """What is wrong with the data of a set of arguments that was timed; empty where nothing is."""
    from ..measuring.calls import wrong_data

    if verify is None:
        return ""
    engine.settle()
    return wrong_data(verify, engine.sets_touched)
