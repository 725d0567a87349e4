"""STREAM: copy, scale, add, triad and dot over arrays far larger than the last-level cache, by BabelStream's rules."""

import pytest
import torch

from pytest_roofline import Work
from roofline_kernels import stream
from roofline_kernels.work import STREAM, stream_work


@pytest.mark.parametrize("operation", STREAM)
@pytest.mark.roofline(gate=True)
def test_stream(roofline, device, operation):
    """One operation; traffic counts each array once for every time it is read or written."""
    dtype = torch.float64 if stream.has_double(device) else torch.float32
    _measure(roofline, stream.Arrays(stream.ELEMENTS, device, dtype), operation)


@pytest.mark.parametrize("operation", STREAM)
@pytest.mark.roofline(needs="accelerator")
def test_stream_large(roofline, device, operation):
    """The same over arrays of 2 GiB, which published acceptance limits are of, in double precision only."""
    if not stream.has_double(device):
        pytest.skip(f"needs float64, which {device.type} does not have")
    _measure(roofline, stream.Arrays(stream.LARGE_ELEMENTS, device, torch.float64), operation)


def _measure(roofline, arrays, operation):
    roofline.require_memory(3 * arrays.array_bytes)
    roofline.measure(
        arrays.operation(operation),
        make_args=arrays.make,
        work=Work(**stream_work(operation, arrays.elements, arrays.dtype.itemsize)),
        cache="rotate",
        verify=arrays.check(operation),
    )
