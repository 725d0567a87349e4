"""Measured rooflines for devices without a datasheet, each once a session.

Of traffic it is the bandwidth of a STREAM-like triad, of arithmetic the rate of a square matrix product.
"""

import contextlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..core.errors import DeviceError
from ..core.memory import out_of_memory
from ..core.records import Ceiling
from ..core.units import MIB, format_amount
from .cache import ROTATION_FACTOR
from .devices import Device
from .timing import Plan, time_plan

BUDGET_S = 0.3
# Three arrays of this many times the last-level cache, as STREAM asks.
LARGEST_ARRAY_BYTES = 256 * MIB
# Rows of a square product. From about a thousand on, a device that computes 300 FLOPs in the time of a byte is kept
# busy by arithmetic (2n/3 FLOPs a number of three matrices); 8192 also fill the last wave of its hundreds of cores.
SMALLEST_PRODUCT, LARGEST_PRODUCT = 128, 8192
# A product that memory kept smaller than this is no roofline.
FAIR_PRODUCT = 1024
# A product that takes longer leaves too few samples in the budget: some processors compute float16 a thousand times
# slower. It is found out by one that takes eight times as long at most.
LONGEST_PRODUCT_S = 0.04
# Products of each size, and seconds of them before it is given up: others may have the cores for a while.
TRIES, PATIENCE_S = 3, 0.1
# The types of metrics such as `bf16_TFLOPS`. TF32 is a way to multiply float32.
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def measure_triad(device: Device, kind: str, cache_bytes: int) -> Ceiling | None:
    """The traffic that a[i] = b[i] + s·c[i] reaches, in bytes per second; None where its arrays do not fit.

    Counted by STREAM's rules: two arrays read, one written (McCalpin, "STREAM: Sustainable Memory Bandwidth").
    """
    array_bytes = min(ROTATION_FACTOR * cache_bytes, LARGEST_ARRAY_BYTES)
    if 3 * array_bytes > device.free_bytes() / 2:
        return None
    out, left, right = (array(array_bytes, kind).fill_(value) for value in (0.0, 1.0, 2.0))
    samples = time_plan(device, Plan(lambda: torch.add(left, right, alpha=3.0, out=out), sets=[()], budget_s=BUDGET_S))
    # The best sample: a ceiling is what the machine can reach, not what it usually does.
    return Ceiling(
        metric="traffic_GBps",
        value=3 * array_bytes / min(samples.seconds),
        source="measured",
        origin=f"triad over three arrays of {format_amount(array_bytes)}, best of {len(samples.seconds)}",
    )


def array(size_bytes: int, kind: str) -> torch.Tensor:
    """[size_bytes / 4] float32; in huge pages where the host has them, since a roofline of page faults is too low."""
    if kind != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size_bytes // 4, device=kind)
    pages = mmap.mmap(-1, size_bytes)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class MeasuredProduct:
    """What multiplying showed.

    Args:
        ceiling: None where nothing was multiplied, or too little.
        settled: whether trying again would show the same; not so where memory was too full, or the device failed.
    """

    ceiling: Ceiling | None
    settled: bool = True


def measure_product(device: Device, kind: str, metric: str) -> MeasuredProduct:
    """The FLOP/s that the product of two square matrices reaches in the type that a metric names.

    2n³ FLOPs are counted for n rows. The product is as large as a budget of its own allows, found by doubling.

    Args:
        device: to measure on.
        kind: where its tensors live: `cpu`, `cuda:0`.
        metric: `fp32_TFLOPS`, `tf32_TFLOPS`, `bf16_TFLOPS` or `fp16_TFLOPS`.

    Returns:
        The best sample; no ceiling for another metric, or where the device does not multiply that type.
    """
    name = metric.removesuffix("_TFLOPS")
    if name not in TYPES or not metric.endswith("_TFLOPS") or (name == "tf32" and not kind.startswith("cuda")):
        return MeasuredProduct(None)
    try:
        with multiplying(kind, name):
            return _best_product(device, kind, name)
    except (RuntimeError, DeviceError) as error:
        # No room, no kernel for this type, or a device that failed: the measurement itself tells of that.
        return MeasuredProduct(None, settled=not isinstance(error, DeviceError) and out_of_memory(error) is None)


def _best_product(device: Device, kind: str, name: str) -> MeasuredProduct:
    matrices, cut = _largest_matrices(device, kind, TYPES[name])
    rows = matrices[0].shape[0]
    if cut and rows < FAIR_PRODUCT:
        return MeasuredProduct(None, settled=False)
    samples = time_plan(device, Plan(lambda: _multiply(*matrices), sets=[()], budget_s=BUDGET_S))
    ceiling = Ceiling(
        metric=f"{name}_TFLOPS",
        value=2 * rows**3 / min(samples.seconds),
        source="measured",
        origin=f"product of two {rows} x {rows} matrices, best of {len(samples.seconds)}",
    )
    return MeasuredProduct(ceiling, settled=not cut)


def _largest_matrices(device: Device, kind: str, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], bool]:
    """Three [n, n]: so many rows that twice as many would take too long, or not fit; and whether they do not fit."""
    rows, matrices = SMALLEST_PRODUCT, square_matrices(SMALLEST_PRODUCT, kind, dtype)
    while rows < LARGEST_PRODUCT:
        rows *= 2
        larger = _fitting(device, rows, kind, dtype)
        if larger is None:
            return matrices, True
        if _product_s(device, larger) > LONGEST_PRODUCT_S:
            break
        matrices = larger
    return matrices, False


def _fitting(device: Device, rows: int, kind: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...] | None:
    """Three [rows, rows]; None where there is no room."""
    if 3 * rows**2 * dtype.itemsize > device.free_bytes() / 4:
        return None
    try:
        return square_matrices(rows, kind, dtype)
    except RuntimeError as error:
        # A limit of this process may be below what is free.
        if out_of_memory(error) is None:
            raise
        return None


def square_matrices(rows: int, kind: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Three [rows, rows]; a device draws less power on zeros, and is faster than it ever is."""
    return tuple(torch.rand(rows, rows, device=kind, dtype=torch.float32).to(dtype) for _ in range(3))


def _product_s(device: Device, matrices: tuple[torch.Tensor, ...]) -> float:
    """The least host seconds of a product, over a few; in the first of a size libraries choose and load a kernel.

    Of one that seems too slow there are more, since others may have the cores for a while.
    """
    seconds: list[float] = []
    while sum(seconds) < PATIENCE_S and (len(seconds) < TRIES or min(seconds) > LONGEST_PRODUCT_S):
        seconds.append(_once_s(device, matrices))
    return min(seconds)


def _once_s(device: Device, matrices: tuple[torch.Tensor, ...]) -> float:
    device.synchronize()
    began_s = device.host_s()
    _multiply(*matrices)
    device.synchronize()
    return device.host_s() - began_s


def _multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(left, right, out=out)


@contextlib.contextmanager
def multiplying(kind: str, name: str) -> Iterator[None]:
    """In the type that is asked for, whatever the test that measures has chosen for itself."""
    backends = float32_settings()
    before = [backend.fp32_precision for backend in backends]
    with torch.no_grad(), torch.autocast(kind.partition(":")[0], enabled=False):
        try:
            for backend in backends:
                backend.fp32_precision = "tf32" if name == "tf32" else "ieee"
            yield
        finally:
            for backend, precision in zip(backends, before, strict=True):
                backend.fp32_precision = precision


def float32_settings() -> list[Any]:
    """What says how float32 is multiplied, one setting a library."""
    libraries: list[Any] = [torch.backends.cuda, torch.backends.mkldnn]
    return [library.matmul for library in libraries]
