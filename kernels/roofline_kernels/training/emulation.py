"""Types that a CPU computes too slowly to measure a step. A product shows it, not a table."""

import functools
import time

import torch

from .precisions import Precision

# A product of this many rows takes 35 ms where float16 is emulated at 1 GFLOP/s, and under one where it is not.
PROBE_ROWS = 256
# Threads that were just started may share a core for the first tenth of a second.
PATIENCE_S = 0.5
# Emulation is thirty to a hundred times slower than float32; lacking instructions for a type alone costs less.
EMULATED = 10
LONGEST_CALL_S = 60.0


def why_too_slow(flops: int, precision: Precision, device: torch.device) -> str:
    """Return why a call is too slow to be measured; empty if it is not, or not on a CPU.

    Args:
        flops: of one call.
        precision: in whose products they are.
        device: that would do them.
    """
    if device.type != "cpu" or precision.products == torch.float32:
        return ""
    rate, plain = product_rate(precision.products), product_rate(torch.float32)
    if rate * EMULATED > plain or flops / rate <= LONGEST_CALL_S:
        return ""
    return (
        f"needs about {flops / rate / 60:.0f} min a call, found {rate / 1e9:.2f} GFLOP/s in {precision.products}, "
        f"{plain / rate:.0f} x below float32; expected {LONGEST_CALL_S:.0f} s a call at most where a type is emulated"
    )


@functools.cache
def product_rate(dtype: torch.dtype) -> float:
    """Return the FLOP/s of a matrix product on the CPU, the best of half a second."""
    factor = torch.ones(PROBE_ROWS, PROBE_ROWS, dtype=dtype)
    # The first product of a type makes its kernels. That may take a second, the product a tenth of a millisecond.
    _product_s(factor)
    seconds = [_product_s(factor)]
    while sum(seconds) < PATIENCE_S:
        seconds.append(_product_s(factor))
    return float(2 * PROBE_ROWS**3 / min(seconds))


def _product_s(factor: torch.Tensor) -> float:
    began_s = time.perf_counter()
    torch.mm(factor, factor)
    return time.perf_counter() - began_s
