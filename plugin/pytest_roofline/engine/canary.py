"""Canaries: three tiny measurements that are none of the code under test.

Where they are slower too, it is the machine today; where they are not, it is the test.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from ..core.facts import HardwareKey
from ..core.keys import CANARIES, CANARY_BENCHMARK, Key, Scalar, Timing
from ..core.records import Measurement
from ..core.samples import CANARY
from ..core.units import MIB
from ..core.work import Work
from .cache import is_cold
from .devices import Device
from .timing import Plan, time_plan

TEST_ID = "roofline::canary"
# Of each, in seconds.
BUDGET_S = 0.12
# Bytes copied and rows multiplied, on a CPU and elsewhere: a millisecond or so, and more than most caches hold.
CPU_COPY_BYTES, COPY_BYTES = 64 * MIB, 256 * MIB
CPU_ROWS, ROWS = 256, 2048
# One launch is too short for any clock.
LAUNCHES = 100


@dataclass(frozen=True, slots=True)
class Canary:
    """What one of them does in a call, and how that is timed."""

    fn: Callable[[], object]
    work: Work
    parameters: dict[str, Scalar]
    metric: str
    timing: Timing = "device"


def measure_canaries(device: Device, hardware: HardwareKey, process: str) -> list[Measurement]:
    """Those that this device can do, each measured for a tenth of a second; a failure of one only leaves it out.

    Args:
        device: to measure on.
        hardware: its key.
        process: which process of the run this is.
    """
    found = []
    for name in CANARIES:
        # Of memory that is too full, or a device that failed, the tests themselves tell.
        with contextlib.suppress(Exception):
            found.append(_measure(device, hardware, process, name))
    with contextlib.suppress(Exception):
        device.release()
    return found


def _measure(device: Device, hardware: HardwareKey, process: str, name: str) -> Measurement:
    from .ceiling import multiplying

    with multiplying(device.name, "fp32"):
        return measure_canary(device, hardware, process, name, canary_of(device, name))


def measure_canary(device: Device, hardware: HardwareKey, process: str, name: str, canary: Canary) -> Measurement:
    """One of them, measured."""
    # A graph would leave out the launches, which one of them is about.
    plan = Plan(canary.fn, sets=[()], budget_s=BUDGET_S, timing=canary.timing, graph=False)
    cold = is_cold(1, canary.work, device.facts().last_level_cache_bytes or 0)
    samples = time_plan(device, plan, CANARY, *(() if cold else ("cache_resident",)))
    key = Key(CANARY_BENCHMARK, canary.parameters, canary.metric, hardware, "warm", canary.timing, name)
    return Measurement(key, TEST_ID, key.label, process, canary.work, samples, invalid=samples.trouble)


def canary_of(device: Device, name: str) -> Canary:
    """One of the three, with its buffers on the device.

    Raises:
        Exception: whatever the device cannot do, the fake one all of them.
    """
    import torch

    from .ceiling import array, square_matrices

    on_cpu = device.name == "cpu"
    if name == "copy":
        size_bytes = CPU_COPY_BYTES if on_cpu else COPY_BYTES
        source, target = (array(size_bytes, device.name).fill_(1.0) for _ in range(2))
        work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
        return Canary(lambda: target.copy_(source), work, {"dtype": "fp32", "size_bytes": size_bytes}, work.metric)
    if name == "gemm":
        rows, dtype = (CPU_ROWS, "fp32") if on_cpu else (ROWS, "bf16")
        left, right, out = square_matrices(rows, device.name, torch.float32 if on_cpu else torch.bfloat16)
        work = Work(flops=2 * rows**3)
        return Canary(lambda: torch.mm(left, right, out=out), work, {"dtype": dtype, "rows": rows}, f"{dtype}_TFLOPS")
    one = torch.zeros(1, device=device.name)

    def launch() -> None:
        for _ in range(LAUNCHES):
            one.add_(1.0)

    work = Work(calls=LAUNCHES)
    return Canary(launch, work, {"dtype": "fp32", "launches": LAUNCHES}, work.metric, "wall")
