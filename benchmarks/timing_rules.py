"""What this engine and the published rules of other tools report of the same scripted device.

The device is the fake one, so the truth is known exactly and nothing depends on this machine. Each rule is written
afresh from its tool's documentation and source, in the versions named in `RULES`; on hardware the tools themselves may
do better or worse for reasons that no script holds. Run it with `python benchmarks/timing_rules.py`; it rewrites
`docs/results/timing-rules.md`, and keeps the parts of other programs.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, pstdev

import numpy as np
from parts import comments, keep_parts

from pytest_roofline.core.units import format_seconds
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan

PAGE = Path(__file__).parents[1] / "docs/results/timing-rules.md"
# The programs whose parts stand at the end of the page.
PARTS = ("benchmarks/memcpy_sweep.py", "benchmarks/rounds.py")
MIB = 2**20
# Of the launch-queue model: host seconds per launch and per stamp, launch latency, tick.
HOST = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6}


@dataclass(frozen=True)
class Scenario:
    """A scripted device, the function on it, and the seconds per call that are right."""

    name: str
    device: Callable[[], FakeDevice]
    call: Callable[[FakeDevice], None]
    truth_s: float | None
    cold: bool = False


@dataclass
class Answer:
    """What a rule says: seconds per call or None, and a label."""

    seconds: float | None
    label: str = ""
    samples: int = 0
    figures: dict[str, float] = field(default_factory=dict)


def droop(busy_s: float) -> float:
    """A clock that falls by 15 % between 50 and 300 ms of work."""
    return 1 - 0.15 * min(1.0, max(0.0, (busy_s - 0.05) / 0.25))


def late_droop(busy_s: float) -> float:
    """The same between 850 and 1,100 ms of work: later than most rules look."""
    return droop(busy_s - 0.8)


def kernels(count: int, seconds: float) -> Callable[[FakeDevice], None]:
    """A function of so many launches."""

    def call(device: FakeDevice) -> None:
        for _ in range(count):
            device.work(seconds)

    return call


def big_cache() -> FakeDevice:
    """An MI300-class device: 256 MiB between it and memory, of which the driver names 4."""
    return FakeDevice(
        "AMD Instinct MI300X",
        cache_bytes=256 * MIB,
        reported_cache_bytes=4 * MIB,
        architecture="gfx942",
        **HOST,
    )


SCENARIOS = (
    Scenario(
        "three 2.3 µs kernels at 8 µs a launch",
        lambda: FakeDevice(**HOST),
        kernels(3, 2.3e-6),
        6.9e-6,
    ),
    Scenario(
        "15 % clock droop, 200 µs kernel",
        lambda: FakeDevice(clock=droop, **HOST),
        kernels(1, 2e-4),
        2e-4 / 0.85,
    ),
    Scenario(
        "15 % clock droop, 10 µs kernel",
        lambda: FakeDevice(clock=droop, **HOST),
        kernels(1, 1e-5),
        1e-5 / 0.85,
    ),
    Scenario(
        "15 % clock droop only after 0.85 s of work, 200 µs kernel",
        lambda: FakeDevice(clock=late_droop, **HOST),
        kernels(1, 2e-4),
        2e-4 / 0.85,
    ),
    Scenario(
        "thermal slowdown to 70 % throughout",
        lambda: FakeDevice(
            clock=lambda _: 0.7, throttle=lambda _: frozenset({"thermal slowdown"}), **HOST
        ),
        kernels(1, 1e-4),
        None,
    ),
    Scenario(
        "256 MiB cache that reports 4 MiB, 64 MiB read cold",
        big_cache,
        lambda device: device.work(1e-4, touch="x", size_bytes=64 * MIB, cached=0.5),
        1e-4,
        cold=True,
    ),
    Scenario(
        "queue depth 1000, 40 launches of 2.3 µs",
        lambda: FakeDevice(queue_depth=1000, **HOST),
        kernels(40, 2.3e-6),
        92e-6,
    ),
    Scenario(
        "0.5 µs ticks, 10.3 µs kernel", lambda: FakeDevice(**HOST), kernels(1, 10.3e-6), 10.3e-6
    ),
)


def roofline(device: FakeDevice, call: Callable[[], None], cold: bool) -> Answer:
    """This engine, with its default budget of a second."""
    flush = device.flusher(2 * (device.facts().last_level_cache_bytes or 0)) if cold else None
    engine = Engine(device, Plan(call, sets=[()], budget_s=1.0, flush=flush))
    engine.run()
    samples = engine.samples()
    assert samples is not None
    label = "INVALID" if samples.trouble else ", ".join(samples.labels) or samples.mode
    return Answer(samples.median_s, label, len(samples.seconds))


def do_bench(device: FakeDevice, call: Callable[[], None], cold: bool) -> Answer:
    """triton.testing.do_bench: an estimate of 5, 25 ms of warm-up, 100 ms of pairs, 256 MiB zeroed before each."""
    flush = zeroing(device, 256 * MIB)
    call()
    device.synchronize()
    start = device.stamp()
    for _ in range(5):
        flush()
        call()
    estimate_s = device.elapsed_s(start, device.stamp()) / 5
    for _ in range(max(1, int(0.025 / estimate_s))):
        call()
    pairs = []
    for _ in range(max(1, int(0.1 / estimate_s))):
        flush()
        start = device.stamp()
        call()
        pairs.append((start, device.stamp()))
    times = [device.elapsed_s(*pair) for pair in pairs]
    return Answer(fmean(times), "mean", len(times))


def zeroing(device: FakeDevice, size_bytes: int) -> Callable[[], None]:
    """Writes so many bytes, at 3 TB/s."""
    return lambda: device.work(size_bytes / 3e12, touch="zeroed", size_bytes=size_bytes)


def _nvbench_samples(device: FakeDevice, call: Callable[[], None]) -> Iterator[float]:
    """Cold samples behind a blocking kernel, for 15 s; those at a clock below 0.75 of the default are thrown away."""
    # One L2 as the driver reports it, written only.
    reported = (
        4 * MIB
        if device.facts().architecture == "gfx942"
        else device.facts().last_level_cache_bytes or 0
    )
    flush = zeroing(device, reported)
    call()
    device.synchronize()
    began_s = device.host_s()
    while device.host_s() - began_s <= 15:
        flush()
        device.synchronize()
        device.spin(int(device.clock_hz * 2e-3))
        start = device.stamp()
        call()
        end = device.stamp()
        before_s = device.busy_s
        device.spin(2000)
        clock = 1e-6 / (device.busy_s - before_s)
        time_s = device.elapsed_s(start, end)
        if clock >= 0.75:
            yield time_s


def nvbench_stdrel(device: FakeDevice, call: Callable[[], None], cold: bool) -> Answer:
    """NVBench's default: 0.5 s of GPU time and a spread below 0.5 %, or a spread that no longer moves; 15 s at most."""
    times: list[float] = []
    noises: deque[float] = deque(maxlen=512)
    for time_s in _nvbench_samples(device, call):
        times.append(time_s)
        if len(times) >= 5:
            noises.append(
                pstdev(times) / fmean(times)
                if len(times) % 16 == 0 or len(times) < 64
                else noises[-1]
            )
        if len(times) < 10 or math.fsum(times) < 0.5:
            continue
        stable = len(noises) > 64 and pstdev(noises) < 0.05 * fmean(noises)
        if noises[-1] < 0.005 or stable:
            break
    return Answer(fmean(times) if times else None, "mean" if times else "no samples", len(times))


def nvbench_entropy(device: FakeDevice, call: Callable[[], None], cold: bool) -> Answer:
    """NVBench's entropy criterion: the entropy of the times seen stops growing (angle 0.048°, R² 0.36, ring of 299)."""
    times: list[float] = []
    seen: Counter[float] = Counter()
    ring: deque[float] = deque(maxlen=299)
    for time_s in _nvbench_samples(device, call):
        times.append(time_s)
        seen[round(time_s * 1e9)] += 1
        shares = np.array(list(seen.values())) / len(times)
        ring.append(float(-(shares * np.log2(shares)).sum()))
        if len(times) < 10 or len(times) % 2:
            continue
        values = np.array(ring)
        slope, intercept = np.polyfit(np.arange(len(values)), values, 1)
        spread = ((values - values.mean()) ** 2).sum()
        left = ((values - slope * np.arange(len(values)) - intercept) ** 2).sum()
        fit = 1.0 if spread < 1e-18 else 1 - left / spread
        if abs(math.degrees(math.atan(slope))) <= 0.048 and fit >= 0.36:
            break
    return Answer(fmean(times) if times else None, "mean" if times else "no samples", len(times))


def blocked_autorange(device: FakeDevice, call: Callable[[], None], cold: bool) -> Answer:
    """torch.utils.benchmark: blocks of calls by the host's clock with a synchronize at either end, for 0.2 s."""

    def block_s(number: int) -> float:
        device.synchronize()
        began_s = device.host_s()
        for _ in range(number):
            call()
        device.synchronize()
        return device.host_s() - began_s

    number, overhead_s = 1, 1e-7
    while True:
        time_s = block_s(number)
        if (overhead_s / time_s <= 1e-4 and time_s >= 0.2 / 1000) or time_s > 0.2:
            break
        number *= 10
    times: list[float] = []
    while math.fsum(times) < 0.2:
        times.append(block_s(number))
    return Answer(median(times) / number, "median", len(times))


def pytest_benchmark(device: FakeDevice, call: Callable[[], None], cold: bool) -> Answer:
    """pytest-benchmark around the call and a synchronize, as its users write it: rounds for a second, at least five."""

    def round_s() -> float:
        began_s = device.host_s()
        call()
        device.synchronize()
        return device.host_s() - began_s

    duration_s = round_s()
    rounds = max(5, math.ceil(1.0 / duration_s))
    times = [round_s() for _ in range(rounds)]
    return Answer(median(times), "median", len(times))


RULES: dict[str, Callable[[FakeDevice, Callable[[], None], bool], Answer]] = {
    "this engine": roofline,
    "triton 3.9 do_bench": do_bench,
    "NVBench stdrel": nvbench_stdrel,
    "NVBench entropy": nvbench_entropy,
    "torch 2.13 blocked_autorange": blocked_autorange,
    "pytest-benchmark 5": pytest_benchmark,
}


def cell(answer: Answer, truth_s: float | None, after_s: float) -> str:
    """The error in percent with what is said beside the number."""
    if answer.seconds is None:
        return f"{answer.label}, after {format_seconds(after_s)}"
    if truth_s is None:
        return f"{format_seconds(answer.seconds)}, {answer.label}, after {format_seconds(after_s)}"
    return f"{100 * (answer.seconds / truth_s - 1):+.1f} % ({answer.label}, {answer.samples})"


def text() -> tuple[str, str, str]:
    """Return the first sentence; a row a scenario and a column a rule; which rules are off, and by how much at most."""
    lines = [f"| scripted device | truth | {' | '.join(RULES)} |", "|---" * (len(RULES) + 2) + "|"]
    errors: dict[str, list[float]] = {name: [] for name in RULES}
    silent: list[str] = []
    for scenario in SCENARIOS:
        cells = []
        for name, rule in RULES.items():
            device = scenario.device()
            answer = rule(device, lambda d=device, s=scenario: s.call(d), scenario.cold)
            cells.append(cell(answer, scenario.truth_s, device.host_s()))
            if answer.seconds is None:
                silent.append(f"{name} has no number for: {scenario.name}")
            elif scenario.truth_s is not None:
                errors[name].append(answer.seconds / scenario.truth_s - 1)
        truth = (
            "no number stands for this device"
            if scenario.truth_s is None
            else format_seconds(scenario.truth_s)
        )
        lines.append(f"| {scenario.name} | {truth} | {' | '.join(cells)} |")
    sentences = [conclusion(name, by_rule) for name, by_rule in errors.items()] + silent
    bullets = "\n".join(f"* {sentence}." for sentence in sentences)
    return first_sentence(errors), "\n".join(lines), bullets


def first_sentence(errors: dict[str, list[float]]) -> str:
    """Return the sentence that the page begins with.

    Args:
        errors: of each rule, this engine the first, on every device whose truth is known; shares of the truth.
    """
    own, *peers = (sum(abs(error) > OFF for error in by_rule) for by_rule in errors.values())
    devices = len(next(iter(errors.values())))
    return (
        f"Of {devices} scripted devices whose truth is known, this engine is off by more than {OFF:.0%} on {own}, and "
        f"each of {len(peers)} other rules on {min(peers)} to {max(peers)}."
    )


def conclusion(name: str, errors: list[float]) -> str:
    """On how many scripted devices a rule is off, and by how much at most."""
    off = [error for error in errors if abs(error) > OFF]
    worst = f", by {100 * max(off, key=abs):+.1f} % at most" if off else ""
    return f"{name} is off by more than {OFF:.0%} on {len(off)} of {len(errors)} devices whose truth is known{worst}"


# Beyond this a rule is called off: the plugin's default tolerance.
OFF = 0.05
TEXT = """# Timing rules, on a scripted device and on a CPU

{first}

Made by `python benchmarks/timing_rules.py` on the fake device (`engine/devices/fake.py`), where the truth is known.
Every rule sees the same device, fresh: an in-order stream with {launch:g} µs of host time a launch, {record:g} µs a
stamp, {latency:g} µs of launch latency and {tick:g} µs ticks. Each cell gives the error of the reported seconds per
call, and in brackets what the tool says beside it and how many samples it took. The rules of the other tools are
written afresh from their documentation and source; what they do on hardware may differ for reasons that no script
holds.

{table}

{conclusions}

Reasons, by how the rules are made: one that waits for every call, or records events without keeping the device busy,
has the launch in its number. A fixed warm-up, or an end when samples agree, can come before a clock has settled. No
rule sees what begins after it has ended. A flush of the size that a driver reports is too small where that is one die's
share; `do_bench` flushes a fixed 256 MiB. Only the cause of a throttle tells a throttled device from a slow one.
"""


def main() -> None:
    """Write the page."""
    first, rows, conclusions = text()
    page = TEXT.format(
        first=first,
        launch=HOST["launch_s"] * 1e6, record=HOST["record_s"] * 1e6, latency=HOST["latency_s"] * 1e6,
        tick=HOST["tick_s"] * 1e6, table=rows, conclusions=conclusions,
    )  # fmt: skip
    page += "\n" + "\n\n".join(line for program in PARTS for line in comments(program)) + "\n"
    page = keep_parts(page, PAGE.read_text(encoding="utf-8") if PAGE.exists() else "", PARTS)
    PAGE.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
