"""A measured roofline for a device without a datasheet: the bandwidth of a STREAM-like triad, once a session."""

import mmap

import torch

from ..core.records import Ceiling
from ..core.units import MIB, format_amount
from .cache import ROTATION_FACTOR
from .devices import Device
from .timing import Engine, Plan

BUDGET_S = 0.3
# Three arrays of this many times the last-level cache, as STREAM asks.
LARGEST_ARRAY_BYTES = 256 * MIB


def measure_triad(device: Device, kind: str, cache_bytes: int) -> Ceiling | None:
    """The traffic that a[i] = b[i] + s·c[i] reaches, in bytes per second; None where its arrays do not fit.

    Counted by STREAM's rules: two arrays read, one written (McCalpin, "STREAM: Sustainable Memory Bandwidth").
    """
    array_bytes = min(ROTATION_FACTOR * cache_bytes, LARGEST_ARRAY_BYTES)
    if 3 * array_bytes > device.free_bytes() / 2:
        return None
    out, left, right = (_array(array_bytes, kind).fill_(value) for value in (0.0, 1.0, 2.0))
    engine = Engine(device, Plan(lambda: torch.add(left, right, alpha=3.0, out=out), sets=[()], budget_s=BUDGET_S))
    engine.run()
    samples = engine.samples()
    if samples is None:
        return None
    # The best sample: a ceiling is what the machine can reach, not what it usually does.
    return Ceiling(
        metric="traffic_GBps",
        value=3 * array_bytes / min(samples.seconds),
        source="measured",
        origin=f"triad over three arrays of {format_amount(array_bytes)}, best of {len(samples.seconds)}",
    )


def _array(size_bytes: int, kind: str) -> torch.Tensor:
    """[size_bytes / 4] float32; in huge pages where the host has them, since a roofline of page faults is too low."""
    if kind != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size_bytes // 4, device=kind)
    pages = mmap.mmap(-1, size_bytes)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.float32)
