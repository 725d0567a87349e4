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
    # Metal has no double precision.
    dtype = torch.float32 if device.type == "mps" else torch.float64
    arrays = stream.Arrays(stream.ELEMENTS, device, dtype)
    roofline.require_memory(3 * arrays.array_bytes)
    roofline.measure(
        arrays.operation(operation),
        make_args=arrays.make,
        work=Work(**stream_work(operation, stream.ELEMENTS, dtype.itemsize)),
        cache="rotate",
        verify=arrays.check(operation),
    )
