"""Measurements of the machine itself: its rooflines without a datasheet, and its canaries.

A roofline of traffic is the bandwidth of a STREAM-like triad, one of arithmetic the rate of a square matrix product.
Canaries are three short measurements that have nothing to do with the code under test. If they are slower too, the
machine is slower.

Other code about canaries: `plugin/deciding.py` has them measured behind the tests, `core/keys.py` tells their keys
apart, `plugin/timed.py` and `baselines/comparing.py` hand them to the rule of `stats/shared.py`, and
`baselines/proposals.py` keeps them in a baseline.
"""

import contextlib
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ..core.errors import DeviceError
from ..core.facts import HardwareKey
from ..core.keys import CANARIES, CANARY_BENCHMARK, Key, Scalar, Timing
from ..core.memory import out_of_memory
from ..core.records import Ceiling, Measurement
from ..core.samples import CANARY
from ..core.units import MIB, format_amount
from ..core.work import Work
from .calls import ROTATION_FACTOR, is_cold
from .devices import Device
from .timing import Plan, time_plan

BUDGET_S = 0.3
# The triad's arrays are some times as large as the last-level cache, as STREAM asks, but no larger than this.
LARGEST_ARRAY_BYTES = 256 * MIB
# Rows of a square product. From about a thousand on, a device that computes 300 FLOPs in the time of a byte is kept
# busy by arithmetic (2n/3 FLOPs a number of three matrices); 8192 also fill the last wave of its hundreds of cores.
SMALLEST_PRODUCT, LARGEST_PRODUCT = 128, 8192
# If there is no memory for a product of this many rows, the product is too small to be a roofline.
FAIR_PRODUCT = 1024
# A longer product leaves too few samples in the budget: some processors compute float16 a thousand times slower.
LONGEST_PRODUCT_S = 0.04
# A size is timed by the fastest of so many products, or of those within so many seconds: other processes may have the
# cores for a while.
TRIES, PATIENCE_S = 3, 0.1
# The types of metrics such as `bf16_TFLOPS`. TF32 is a way to multiply float32.
TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
CANARY_TEST = "roofline::canary"
# Seconds of measuring each canary.
CANARY_S = 0.12
# The bytes of the copy and the rows of the product, on a CPU and on another device. Both take about a millisecond, and
# do not fit into most caches.
CPU_COPY_BYTES, COPY_BYTES = 64 * MIB, 256 * MIB
CPU_ROWS, ROWS = 256, 2048
# The launch canary makes so many launches, since one is too short for any clock.
LAUNCHES = 100
# Rows of the self test's product, which is so large that the device reaches its power limit.
MATMUL_SIZE = 8192


def measure_triad(device: Device, kind: str, cache_bytes: int) -> Ceiling | None:
    """Return the traffic that a[i] = b[i] + s·c[i] reaches, in bytes per second.

    None if its arrays do not fit into half of the free memory. Bytes are counted by STREAM's rules: two arrays are
    read, one is written (McCalpin, "STREAM: Sustainable Memory Bandwidth").
    """
    array_bytes = min(ROTATION_FACTOR * cache_bytes, LARGEST_ARRAY_BYTES)
    if 3 * array_bytes > device.free_bytes() / 2:
        return None
    out, left, right = (array(array_bytes, kind).fill_(start) for start in (0.0, 1.0, 2.0))
    samples = time_plan(
        device,
        Plan(lambda: torch.add(left, right, alpha=3.0, out=out), sets=[()], budget_s=BUDGET_S),
    )
    # The best sample counts, since a ceiling is what the machine can reach, not what it usually reaches.
    return Ceiling(
        metric="traffic_GBps",
        value=3 * array_bytes / min(samples.seconds),
        source="measured",
        origin=f"triad over three arrays of {format_amount(array_bytes)}, best of {len(samples.seconds)}",
    )


def array(size_bytes: int, kind: str) -> "torch.Tensor":
    """Return an uninitialized tensor of [size_bytes / 4], float32.

    On a CPU it is in huge pages if the system has them: page faults would lower the roofline.
    """
    if kind != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size_bytes // 4, device=kind)
    pages = mmap.mmap(-1, size_bytes)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class MeasuredProduct:
    """The ceiling that products reached; None if there is none.

    `settled` is true if another attempt would have the same outcome.
    """

    ceiling: Ceiling | None
    settled: bool = True


def measure_product(device: Device, kind: str, metric: str) -> MeasuredProduct:
    """Return the most FLOP/s of a product of square matrices.

    There is no ceiling if it cannot be measured. The matrices have the type that `metric` names, such as
    `bf16_TFLOPS`; n rows count 2n³ FLOPs.
    """
    name = metric.removesuffix("_TFLOPS")
    if (
        name not in TYPES
        or not metric.endswith("_TFLOPS")
        or (name == "tf32" and not kind.startswith("cuda"))
    ):
        return MeasuredProduct(None)
    try:
        with multiplying(kind, name):
            return _best_product(device, kind, name)
    except (RuntimeError, DeviceError) as error:
        # There is no memory, no kernel for this type, or the device failed. The user's own measurement reports that.
        # A later attempt may succeed, unless torch has no kernel for this type.
        may_succeed_later = isinstance(error, DeviceError) or out_of_memory(error) is not None
        return MeasuredProduct(None, settled=not may_succeed_later)


def _best_product(device: Device, kind: str, name: str) -> MeasuredProduct:
    """Return the ceiling of the largest product that time and memory allow.

    It is not settled, so that it may be measured again later, if too little memory was free for the largest one. It is
    None if that left only a product too small to reach the device's peak.
    """
    dtype = getattr(torch, TYPES[name])
    (left, right, out), was_cut = _largest_matrices(device, kind, dtype)
    rows = left.shape[0]
    if was_cut and rows < FAIR_PRODUCT:
        return MeasuredProduct(None, settled=False)
    samples = time_plan(
        device, Plan(lambda: torch.mm(left, right, out=out), sets=[()], budget_s=BUDGET_S)
    )
    ceiling = Ceiling(
        metric=f"{name}_TFLOPS",
        value=2 * rows**3 / min(samples.seconds),
        source="measured",
        origin=f"product of two {rows} x {rows} matrices, best of {len(samples.seconds)}",
    )
    return MeasuredProduct(ceiling, settled=not was_cut)


def _largest_matrices(
    device: Device, kind: str, dtype: "torch.dtype"
) -> tuple[tuple["torch.Tensor", ...], bool]:
    """Return three matrices of [n, n], and whether memory limits n.

    They are as large as time and memory allow: with twice as many rows, a product would take too long, or the matrices
    would not fit.
    """
    rows, matrices = SMALLEST_PRODUCT, square_matrices(SMALLEST_PRODUCT, kind, dtype)
    while rows < LARGEST_PRODUCT:
        rows *= 2
        if 3 * rows**2 * dtype.itemsize > device.free_bytes() / 4:
            return matrices, True
        try:
            larger = square_matrices(rows, kind, dtype)
        except RuntimeError as error:
            # This process may be limited to less than the free memory.
            if out_of_memory(error) is None:
                raise
            return matrices, True
        if _product_s(device, larger) > LONGEST_PRODUCT_S:
            break
        matrices = larger
    return matrices, False


def square_matrices(rows: int, kind: str, dtype: "torch.dtype") -> tuple["torch.Tensor", ...]:
    """Return three random matrices of [rows, rows].

    Zeros would need less power, so that the device would be faster than it is with real data.
    """
    return tuple(
        torch.rand(rows, rows, device=kind, dtype=torch.float32).to(dtype) for _ in range(3)
    )


def _product_s(device: Device, matrices: tuple["torch.Tensor", ...]) -> float:
    """Return the least host seconds of a few products.

    The first product of a size takes longer, since libraries choose and load a kernel.
    """
    left, right, out = matrices
    seconds: list[float] = []
    # After `TRIES` products, more are tried only while none was short enough, since the next may be.
    while sum(seconds) < PATIENCE_S and (len(seconds) < TRIES or min(seconds) > LONGEST_PRODUCT_S):
        device.synchronize()
        began_s = device.host_s()
        torch.mm(left, right, out=out)
        device.synchronize()
        seconds.append(device.host_s() - began_s)
    return min(seconds)


@contextlib.contextmanager
def multiplying(kind: str, name: str) -> Iterator[None]:
    """Let products use the named type, and restore the user's settings afterwards.

    `tf32` lets float32 be multiplied in TF32; any other name multiplies float32 exactly.
    """
    settings = float32_settings()
    before = [setting.fp32_precision for setting in settings]
    with torch.no_grad(), torch.autocast(kind.partition(":")[0], enabled=False):
        try:
            for setting in settings:
                setting.fp32_precision = "tf32" if name == "tf32" else "ieee"
            yield
        finally:
            for setting, precision in zip(settings, before, strict=True):
                setting.fp32_precision = precision


def float32_settings() -> list[Any]:
    """Return the settings object of each library that decides how float32 is multiplied."""
    libraries: list[Any] = [torch.backends.cuda, torch.backends.mkldnn]
    return [library.matmul for library in libraries]


@dataclass(frozen=True, slots=True)
class Canary:
    """The call of a canary, and how it is timed."""

    fn: Callable[[], object]
    work: Work
    parameters: dict[str, Scalar]
    metric: str
    timing: Timing = "device"


def measure_canaries(device: Device, hardware: HardwareKey, process: str) -> list[Measurement]:
    """Measure each canary of a device, for a tenth of a second each. Leave out those that fail.

    Canaries are short measurements that have nothing to do with the tests: if they are slower, the machine is.
    """
    measurements = []
    for name in CANARIES:
        # If memory is full or the device failed, the tests themselves report it.
        with contextlib.suppress(Exception), multiplying(device.name, "fp32"):
            measurements.append(
                measure_canary(device, hardware, process, name, canary_of(device, name))
            )
    with contextlib.suppress(Exception):
        device.release()
    return measurements


def measure_canary(
    device: Device, hardware: HardwareKey, process: str, name: str, canary: Canary
) -> Measurement:
    """Return the measurement of one canary.

    A canary is a short measurement that shows whether the machine itself is slower.
    """
    # A graph would leave out the launches, which one of the canaries measures.
    plan = Plan(canary.fn, sets=[()], budget_s=CANARY_S, timing=canary.timing, graph=False)
    evicts_cache = is_cold(1, canary.work, device.facts().last_level_cache_bytes or 0)
    labels = (CANARY,) if evicts_cache else (CANARY, "cache_resident")
    samples = time_plan(device, plan, *labels)
    key = Key(
        CANARY_BENCHMARK, canary.parameters, canary.metric, hardware, "warm", canary.timing, name
    )
    return Measurement(
        key, CANARY_TEST, key.label, process, canary.work, samples, invalid=samples.trouble
    )


def canary_of(device: Device, name: str) -> Canary:
    """Return the canary `copy`, `gemm` or (for any other name) `launch`, with its buffers."""
    on_cpu = device.name == "cpu"
    if name == "copy":
        size_bytes = CPU_COPY_BYTES if on_cpu else COPY_BYTES
        source, target = (array(size_bytes, device.name).fill_(1.0) for _ in range(2))
        work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
        return Canary(
            lambda: target.copy_(source),
            work,
            {"dtype": "fp32", "size_bytes": size_bytes},
            work.metric,
        )
    if name == "gemm":
        rows, dtype = (CPU_ROWS, "fp32") if on_cpu else (ROWS, "bf16")
        left, right, out = square_matrices(
            rows, device.name, torch.float32 if on_cpu else torch.bfloat16
        )
        work = Work(flops=2 * rows**3)
        return Canary(
            lambda: torch.mm(left, right, out=out),
            work,
            {"dtype": dtype, "rows": rows},
            f"{dtype}_TFLOPS",
        )
    tensor = torch.zeros(1, device=device.name)

    def launch() -> None:
        for _ in range(LAUNCHES):
            tensor.add_(1.0)

    work = Work(calls=LAUNCHES)
    return Canary(launch, work, {"dtype": "fp32", "launches": LAUNCHES}, work.metric, "wall")


class Workloads(Protocol):
    """The workloads of the self test, each as a call without arguments."""

    def copy(self, size_bytes: int) -> Callable[[], object]:
        """Return a call that copies so many bytes from one buffer to another."""

    def read(self, size_bytes: int) -> Callable[[], object]:
        """Return a call that reads so many bytes. It writes next to nothing."""

    def matmul(self) -> Callable[[], object] | None:
        """Return a call of one large bf16 matrix product. None on a device without a power cap."""


class TorchWorkloads:
    """The workloads of the self test as torch operations, on any device."""

    def __init__(self, device: Device) -> None:
        self._where = torch.device(device.name)

    def copy(self, size_bytes: int) -> Callable[[], object]:
        """Return a copy of random 8-byte integers, which the device's memory cannot compress."""
        source = torch.randint(-(2**62), 2**62, (max(1, size_bytes // 8),), device=self._where)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source)

    def read(self, size_bytes: int) -> Callable[[], object]:
        """Return a call that finds the largest of so many bytes of 8-byte integers.

        A maximum reads all of them, and unlike a sum it cannot overflow.
        """
        source = torch.randint(-(2**62), 2**62, (max(1, size_bytes // 8),), device=self._where)
        out = torch.empty((), dtype=source.dtype, device=self._where)
        return lambda: torch.amax(source, dim=(), out=out)

    def matmul(self) -> Callable[[], object] | None:
        """Return a call of a product of [8192, 8192] matrices; None on a CPU."""
        if self._where.type == "cpu":
            return None
        left, right = (
            torch.randn((MATMUL_SIZE, MATMUL_SIZE), dtype=torch.bfloat16, device=self._where)
            for _ in range(2)
        )
        out = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=out)
