"""Memory copies: within a memory, and between host and device; 4 KiB to the embedding table of Llama 3 8B.

On a CPU, host to host. On an accelerator, device to device by PyTorch's `copy_` and by a Triton kernel, and host to
device and back, each from pinned and from pageable memory.
"""

import pytest
import torch

from pytest_roofline import Work, size_label
from roofline_kernels import memcpy
from roofline_kernels.work import copy_bytes, link_copy_bytes

HOST = torch.device("cpu")
# Saturates memories and links alike.
SIBLINGS_BYTES = 2**29


def _size(size_bytes: int):
    quick = size_bytes in memcpy.DECADE_SIZES_BYTES
    # The decade sizes are what a baseline is recorded from by default.
    mark = pytest.mark.roofline(tier="quick", gate=True) if quick else pytest.mark.roofline(tier="nightly")
    return pytest.param(size_bytes, id=size_label(size_bytes), marks=mark)


ALL_SIZES = [_size(size_bytes) for size_bytes in sorted((*memcpy.SIZES_BYTES, *memcpy.ODD_SIZES_BYTES))]

sizes = pytest.mark.parametrize("size_bytes", ALL_SIZES)
memories = pytest.mark.parametrize("memory", ["pinned", "pageable"])
on_accelerator = pytest.mark.roofline(needs="accelerator")


def _measure(roofline, buffers, work, copy=memcpy.copy, metric=None):
    roofline.measure(copy, make_args=buffers.pair, work=Work(**work), cache="rotate", verify=memcpy.same, metric=metric)


def _buffers(roofline, size_bytes, source, target, pinned=False):
    for where in {"host" if place.type == "cpu" else "device" for place in (source, target)}:
        need = memcpy.memory_needed(size_bytes, pinned=pinned and where == "host")
        roofline.require_memory(need if source == target else need // 2, where=where)
    odd = size_bytes in memcpy.ODD_SIZES_BYTES
    return memcpy.CopyBuffers(size_bytes, source, target, pinned=pinned, odd_address=odd)


@pytest.mark.roofline(needs="cpu")
@sizes
def test_memcpy_h2h(roofline, size_bytes):
    """Host to host, within this process's memory."""
    _measure(roofline, _buffers(roofline, size_bytes, HOST, HOST), copy_bytes(size_bytes))


@on_accelerator
@sizes
def test_memcpy_d2d(roofline, device, size_bytes):
    """Device to device within one memory, by the engine that PyTorch chooses."""
    buffers = _buffers(roofline, size_bytes, device, device)
    _measure(roofline, buffers, copy_bytes(size_bytes), metric="auto_traffic_GBps")


@on_accelerator
@sizes
def test_memcpy_d2d_triton(roofline, device, size_bytes):
    """Device to device within one memory, by the multiprocessors."""
    pytest.importorskip("triton", reason="needs Triton, found none")
    buffers = _buffers(roofline, size_bytes, device, device)
    _measure(roofline, buffers, copy_bytes(size_bytes), copy=memcpy.triton_copy(), metric="sm_traffic_GBps")


@on_accelerator
@memories
@sizes
def test_memcpy_h2d(roofline, device, size_bytes, memory):
    """Host to device."""
    buffers = _buffers(roofline, size_bytes, HOST, device, pinned=memory == "pinned")
    _measure(roofline, buffers, link_copy_bytes(size_bytes), metric=f"{memory}_auto_payload_GBps")


@on_accelerator
@memories
@sizes
def test_memcpy_d2h(roofline, device, size_bytes, memory):
    """Device to host."""
    buffers = _buffers(roofline, size_bytes, device, HOST, pinned=memory == "pinned")
    _measure(roofline, buffers, link_copy_bytes(size_bytes), metric=f"{memory}_auto_payload_GBps")


@pytest.mark.roofline(needs="siblings")
@pytest.mark.parametrize("way", ["d2d", "h2d", "d2h"])
def test_memcpy_siblings(roofline, way):
    """Every visible GPU in turn, held against the others: within its memory, from pinned host memory and back."""
    within = way == "d2d"

    def make_args(device):
        source, target = HOST if way == "h2d" else device, HOST if way == "d2h" else device
        return memcpy.CopyBuffers(SIBLINGS_BYTES, source, target, pinned=not within).pair

    roofline.measure_siblings(
        memcpy.copy,
        make_args=make_args,
        work=Work(**(copy_bytes if within else link_copy_bytes)(SIBLINGS_BYTES)),
        verify=memcpy.same,
        metric="auto_traffic_GBps" if within else "pinned_auto_payload_GBps",
        needs_bytes=memcpy.memory_needed(SIBLINGS_BYTES) // (1 if within else 2),
    )
