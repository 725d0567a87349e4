"""Stage 1: what the fakes assume, asked of a device through the timing engine's own seam.

Every probe gives facts; one that raises leaves its error as a fact, and the next is asked. The same code runs on a card
and on the faithful fake.
"""

import itertools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from pytest_roofline.core.facts import POWER_CAP
from pytest_roofline.core.units import format_bytes
from pytest_roofline.engine.calls import FLUSH_FACTOR, MOST_SETS, ROTATION_FACTOR
from pytest_roofline.engine.sizing.calibration import DEEPEST, calibrate
from pytest_roofline.machine.selftest import BEYOND_BYTES, COLD_SHARES, FEWEST_TICKS

from .facts import Fact, Facts
from .labs import Lab, Lacking

STAGE = "probe"
MIB = 2**20
Found = Iterator[tuple[str, dict[str, Any]]]
Submit = Callable[[], object]

# Cycles of a spin that samples the rising clock, and how long it is watched, in seconds of work.
RAMP_CYCLES, RAMP_S = 1_000_000, 3.0
# Having been watched, it settles: two windows of half a second agree to 1 %, after so many at most.
SETTLE_S, SETTLE_WINDOWS, SETTLED = 0.5, 20, 0.01
# The clock has risen when it stays within this share of where it ends.
RISEN = 0.02
# A spin that the host gets ahead behind, in seconds, and how often it is doubled where that is not enough.
LEAD_S, DOUBLINGS = 2e-3, 6
# Nodes of graphs, with the bytes of each: the rotations that the shipped copies make on an H100 among them.
GRAPHS = ((200, 4096), (501, 4096), (3201, 32 * 1024), (201, 512 * 1024), (220, 6_553_600))
# From so many nodes on an upload is more than what any first replay costs.
MANY_NODES = 500
# Calls in a row, few enough for every queue.
IN_A_ROW = 64
REPLAYS = 5
PAIRS = 100
TICK_SPINS = 200
ROUNDS = 20
# Pairs of 4 KiB that fill a slab of 64 MiB.
SLAB_PAIRS, SMALL_BYTES = 8192, 4096
CHECKS = 64
# The largest shipped copy, just below a power of two, and one just above.
PINNED_BYTES = (2_101_346_304, 2**30 + 4096)
# Matrix products between two looks at the clock: half a second on an H100.
PRODUCTS = 400
DROOP_CYCLES = 200_000


def ask(lab: Lab, facts: Facts, probes: "list[str] | None" = None) -> None:
    """Ask every probe that was not asked yet, one after the other.

    Args:
        lab: to ask.
        facts: to add to.
        probes: only these.
    """
    for name in probes if probes is not None else list(PROBES):
        if name in facts.asked(STAGE):
            continue
        for fact in answers(name, lab):
            facts.add(fact)


def answers(name: str, lab: Lab) -> Iterator[Fact]:
    """What a probe finds, then the probe itself with its error, if any: so that it counts as asked."""
    try:
        for what, values in PROBES[name](lab):
            yield Fact(STAGE, f"{name}: {what}", values)
        yield Fact(STAGE, name)
    except Lacking as lacking:
        yield Fact(STAGE, name, lacking=f"needs {lacking}")
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}, line {where.lineno}"
        yield Fact(STAGE, name, error=f"{type(error).__name__}: {error} ({place})")


def _spin_hz(lab: Lab) -> float:
    hz = calibrate(lab.device).spin_hz
    if hz is None:
        raise Lacking(f"a device that spins; {lab.device.name} does not")
    return hz


def _spun_s(lab: Lab, cycles: int) -> float:
    lab.device.synchronize()
    start = lab.device.stamp()
    lab.device.spin(cycles)
    return lab.device.elapsed_s(start, lab.device.stamp())


def ahead_s(lab: Lab, submit: Submit, before: Submit | None = None) -> tuple[float, bool, float]:
    """Device seconds of what `submit` submits, whether the host was ahead, and host seconds to submit it.

    `before` is submitted in front of the spin that the host gets ahead behind.
    """
    device, hz, spin_s = lab.device, _spin_hz(lab), LEAD_S
    for _ in range(DOUBLINGS):
        device.synchronize()
        if before is not None:
            before()
        device.spin(int(spin_s * hz))
        start, began_s = device.stamp(), device.host_s()
        submit()
        host_s = device.host_s() - began_s
        end, ahead = device.stamp(), not device.reached(start)
        seconds = device.elapsed_s(start, end)
        if ahead:
            break
        spin_s *= 2
    return seconds, ahead, host_s


def _median_s(lab: Lab, submit: Submit, before: Submit | None = None) -> float:
    return median(ahead_s(lab, submit, before)[0] for _ in range(REPLAYS))


def clock(lab: Lab) -> Found:
    """The first work of the process: does the clock rise from that of an idle card, and over how long?"""
    if not lab.device.traits.spins:
        raise Lacking(f"a device that spins; {lab.device.name} does not")
    # Loading what a spin needs is no part of it.
    _spun_s(lab, 1)
    busy_s, rows = 0.0, []
    while busy_s < RAMP_S:
        span_s = _spun_s(lab, RAMP_CYCLES)
        rows.append((busy_s, RAMP_CYCLES / span_s))
        busy_s += span_s
    full_hz = rows[-1][1]
    unsettled = [at_s for at_s, hz in rows if abs(hz / full_hz - 1) > RISEN]
    # Every tenth of a second is enough to draw it.
    drawn = [next(rows) for _, rows in itertools.groupby(rows, key=lambda row: int(row[0] * 10))]
    yield "ramp", {
        "first_hz": rows[0][1], "full_hz": full_hz, "first_share": rows[0][1] / full_hz,
        "risen_s": unsettled[-1] if unsettled else 0.0, "seconds_and_hz": drawn,
    }  # fmt: skip
    settled_hz = [full_hz]
    while len(settled_hz) < SETTLE_WINDOWS and (
        len(settled_hz) < 2 or abs(settled_hz[-1] / settled_hz[-2] - 1) > SETTLED
    ):
        cycles = int(SETTLE_S * settled_hz[-1])
        settled_hz.append(cycles / _spun_s(lab, cycles))
    yield "settled", {"full_hz": settled_hz[-1], "windows": len(settled_hz) - 1}


def stamps(lab: Lab) -> Found:
    """An empty pair of stamps, and the step of the clock: the least difference between spans of many lengths."""
    hz, device = _spin_hz(lab), lab.device
    device.synchronize()
    device.spin(int(LEAD_S * hz))
    pairs = [(device.stamp(), device.stamp()) for _ in range(PAIRS)]
    spans = sorted(device.elapsed_s(start, end) for start, end in pairs)
    yield "pair", {"median_s": median(spans), "least_s": spans[0], "most_s": spans[-1]}
    lengths = sorted(
        {_between_spins_s(lab, int(hz * 1e-5) + 37 * number) for number in range(TICK_SPINS)}
    )
    # Less than a billionth of a span is the rounding of a number, no step.
    steps = [
        later - earlier
        for earlier, later in itertools.pairwise(lengths)
        if later - earlier > 1e-9 * later + 1e-12
    ]
    yield "tick", {"step_s": min(steps) if steps else 0.0, "lengths": len(lengths)}


def _between_spins_s(lab: Lab, cycles: int) -> float:
    device = lab.device
    device.synchronize()
    device.spin(int(1e-4 * _spin_hz(lab)))
    start = device.stamp()
    device.spin(cycles)
    return device.elapsed_s(start, device.stamp())


def host(lab: Lab) -> Found:
    """What submitting costs the host, how soon an idle device starts, and how much its queue holds."""
    device, known = lab.device, calibrate(lab.device)
    call = lab.node("kernel", SMALL_BYTES)
    call()
    _, ahead, host_s = ahead_s(lab, lambda: _times(call, IN_A_ROW))
    device.synchronize()
    yield "launch", {
        "host_s": host_s / IN_A_ROW, "ahead": ahead, "record_host_s": known.record_host_s,
        "queue_depth": known.queue_depth or DEEPEST,
    }  # fmt: skip
    alone_s = []
    call_s = _median_s(lab, lambda: _times(call, IN_A_ROW)) / IN_A_ROW
    for _ in range(ROUNDS):
        device.synchronize()
        began_s = device.host_s()
        call()
        device.synchronize()
        alone_s.append(device.host_s() - began_s)
    yield "start", {"latency_s": median(alone_s) - host_s / IN_A_ROW - call_s, "call_s": call_s}


def _times(call: Submit, count: int) -> None:
    for _ in range(count):
        call()


def accounts(lab: Lab) -> Found:
    """What is in use on a device that only this process works on, before it has allocated anything to speak of."""
    device = lab.device
    device.synchronize()
    counters = device.counters()
    yield "neighbours", {"others_bytes": counters.others_bytes, "others_busy": counters.others_busy}
    active = counters.active
    yield (
        "causes",
        {
            "active": None if active is None else len(active - {POWER_CAP}),
            "names": sorted(active or ()),
        },
    )
    found = lab.accounts()
    yield "accounts", {
        "first_bytes": found.first, "second_bytes": found.second, "own_bytes": found.own,
        "before_bytes": found.before, "driver_bytes": found.first - found.second,
        "context_bytes": found.second - found.own - (found.before or 0),
    }  # fmt: skip


def questions(lab: Lab) -> Found:
    """How long the management library takes for an answer, question by question."""
    for name, asked in lab.questions().items():
        try:
            asked()
        except Exception as error:
            # A driver that does not answer one of them answers others.
            yield name, {"refused": f"{type(error).__name__}: {error}"}
            continue
        began_s = lab.device.host_s()
        _times(asked, ROUNDS)
        yield name, {"seconds": (lab.device.host_s() - began_s) / ROUNDS}


def graphs(lab: Lab) -> Found:
    """A stream against the first and the later replays of a graph of the same calls."""
    if not lab.device.traits.graphs:
        raise Lacking(f"a device with graphs; {lab.device.name} has none")
    for (nodes, size_bytes), kind in itertools.product(GRAPHS, ("copy", "kernel")):
        name = f"{nodes} × {kind} of {format_bytes(size_bytes)}"
        yield name, _graph(lab, nodes, size_bytes, kind)


def _graph(lab: Lab, nodes: int, size_bytes: int, kind: str) -> dict[str, Any]:
    calls = [lab.node(kind, size_bytes) for _ in range(min(nodes, IN_A_ROW))]
    around = itertools.cycle(calls)

    def submit(count: int) -> None:
        for _ in range(count):
            next(around)()

    submit(len(calls))
    call_s = _median_s(lab, lambda: submit(IN_A_ROW)) / IN_A_ROW
    known: dict[str, Any] = {"nodes": nodes, "size_bytes": size_bytes, "call_s": call_s}
    try:
        replay = lab.device.capture(lambda: submit(nodes))
    except RuntimeError as error:
        return known | {"captured": False, "refused": str(error).partition("\n")[0]}
    first_s, first_ahead, _ = ahead_s(lab, replay)
    later_s = _median_s(lab, replay)
    found = {"captured": True, "first_s": first_s, "first_ahead": first_ahead, "later_s": later_s}
    left = later_s / (nodes * call_s)
    upload_s = {"upload_s": (first_s - later_s) / nodes} if nodes > MANY_NODES else {}
    return known | found | {"left_share": left, "saved_share": 1 - left} | upload_s


def cold(lab: Lab) -> Found:
    """Reads and copies behind a flush, against those of memory."""
    device = lab.device
    cache_bytes = device.facts().last_level_cache_bytes or 0
    _spin_hz(lab)
    if not cache_bytes:
        raise Lacking("a device that tells of its last-level cache")
    beyond = max(ROTATION_FACTOR * cache_bytes // 2, min(BEYOND_BYTES, device.free_bytes() // 16))
    tick_s, pair_s = calibrate(device).tick_s, calibrate(device).event_pair_s
    flush = device.flusher(FLUSH_FACTOR * cache_bytes)
    memory = beyond / (_steady_s(lab, lab.read(beyond)) - pair_s)
    for share in COLD_SHARES:
        size = int(share * cache_bytes)
        seconds = _median_s(lab, lab.read(size), flush)
        if size <= beyond and seconds >= FEWEST_TICKS * tick_s:
            rate = size / (seconds - pair_s)
            yield (
                f"read of {share:g} × cache",
                {"bytes_per_s": rate, "advantage": rate / memory - 1},
            )
    yield "memory", {"read_bytes_per_s": memory, "cache_bytes": cache_bytes}
    # A copy as large as the cache: whatever of it stays there unwritten, by how much faster than from memory it is.
    usual = 2 * beyond / (_steady_s(lab, lab.copy(beyond)) - pair_s)
    copied = 2 * cache_bytes / (_median_s(lab, lab.copy(cache_bytes), flush) - pair_s)
    yield "copy", {
        "bytes_per_s": copied, "memory_bytes_per_s": usual, "dirty_share": max(0.0, 2 * (1 - usual / copied)),
    }  # fmt: skip


def _steady_s(lab: Lab, call: Submit) -> float:
    """Seconds of a call that pays for what the one before it left in the cache."""
    call()
    return _median_s(lab, call)


def verification(lab: Lab) -> Found:
    """What it costs to verify pairs of 4 KiB, one by one and a slab of 64 MiB at once."""
    one, slab = lab.checks(SLAB_PAIRS, SMALL_BYTES)
    pair_s, slab_s = _host_s(lab, one, CHECKS), _host_s(lab, slab, REPLAYS)
    yield "pairs", {
        "pair_s": pair_s, "slab_s": slab_s, "share": slab_s / (SLAB_PAIRS * pair_s),
        "most_sets_s": slab_s * MOST_SETS / SLAB_PAIRS,
    }  # fmt: skip


def _host_s(lab: Lab, asked: Submit, count: int) -> float:
    asked()
    began_s = lab.device.host_s()
    _times(asked, count)
    return (lab.device.host_s() - began_s) / count


def pinned(lab: Lab) -> Found:
    """Page-locked memory: asked, taken, and left when it is given back."""
    for size_bytes in PINNED_BYTES:
        taken, left = lab.pin(size_bytes)
        power = 1 << (size_bytes - 1).bit_length()
        yield f"{size_bytes} bytes", {
            "asked_bytes": size_bytes, "taken_bytes": taken, "of_power_of_two": taken / power,
            "left_share": left / size_bytes,
        }  # fmt: skip


def droop(lab: Lab) -> Found:
    """The clock before and right behind matrix products that would draw more than the power cap."""
    call = lab.matmul()
    if call is None:
        raise Lacking(
            f"a device that draws all the power there is; {lab.device.name} has no such work"
        )
    _spin_hz(lab)
    device, shares, told, light = lab.device, [], [], lab.node("kernel", SMALL_BYTES)
    for _ in range(3):
        # The clock comes back with work that draws less.
        light()
        _spun_s(lab, int(SETTLE_S * _spin_hz(lab)))
        before_hz = DROOP_CYCLES / _between_spins_s(lab, DROOP_CYCLES)
        # Waiting for the queue is no harm: what is asked is the clock when they end.
        _times(call, PRODUCTS)
        start = device.stamp()
        device.spin(DROOP_CYCLES)
        end = device.stamp()
        active = device.counters().active
        shares.append(1 - DROOP_CYCLES / device.elapsed_s(start, end) / before_hz)
        told.append(None if active is None else POWER_CAP in active)
    yield "products", {"droop": median(shares), "told": told[-1], "droops": shares}


def failed_capture(lab: Lab) -> Found:
    """A capture that fails: whose stream is current then, can memory be given back, does a second one work?"""
    device = lab.device
    if not device.traits.graphs:
        raise Lacking(f"a device with graphs; {device.name} has none")
    before, call = lab.stream(), lab.node("kernel", SMALL_BYTES)
    call()
    try:
        device.capture(lab.forbidden)
        yield "after", {"fails": False, "words": ""}
        return
    except RuntimeError as error:
        words = str(error).partition("\n")[0]
    steps: dict[str, Callable[[], object]] = {
        "given_back": device.release, "computes": call, "again": lambda: device.capture(call)(),
        "random": lab.random,
    }  # fmt: skip
    found = {"fails": True, "words": words, "stream_restored": lab.stream() == before}
    for name, step in steps.items():
        try:
            step()
            device.synchronize()
            found[name] = True
        except RuntimeError as error:
            found |= {name: False, f"{name}_words": str(error).partition("\n")[0]}
    yield "after", found


PROBES: dict[str, Callable[[Lab], Found]] = {
    "clock": clock, "memory": accounts, "stamps": stamps, "host": host,
    "questions": questions, "graphs": graphs, "cold": cold, "verification": verification,
    "pinned": pinned, "droop": droop, "failed capture": failed_capture,
}  # fmt: skip
# Those that may leave a process in a state in which nothing else can be asked.
ALONE = ("failed capture",)
