"""Memory copies: within a memory, and between host and device; 4 KiB to the embedding table of Llama 3 8B.

On a CPU, host to host. On an accelerator, device to device by PyTorch's `copy_` and by a Triton kernel, and host to
device and back, each from pinned and from pageable memory, both ways at once, and by a Triton kernel that reads and
writes the host's memory itself.
"""

import pytest
import torch

from pytest_roofline import Work, size_label
from roofline_kernels import memcpy, peer_copy
from roofline_kernels.work import copy_bytes, link_copy_bytes

HOST = torch.device("cpu")
# Saturates memories and links alike.
SIBLINGS_BYTES = 2**29


def _size(size_bytes: int):
    quick = size_bytes in memcpy.DECADE_SIZES_BYTES
    # The decade sizes are what a baseline is recorded from by default.
    mark = (
        pytest.mark.roofline(tier="quick", gate=True)
        if quick
        else pytest.mark.roofline(tier="nightly")
    )
    return pytest.param(size_bytes, id=size_label(size_bytes), marks=mark)


ALL_SIZES = [
    _size(size_bytes) for size_bytes in sorted((*memcpy.SIZES_BYTES, *memcpy.ODD_SIZES_BYTES))
]

sizes = pytest.mark.parametrize("size_bytes", ALL_SIZES)
# Without a baseline of theirs by default: other ways over a link that is measured already.
by_night = pytest.mark.parametrize(
    "size_bytes",
    [
        pytest.param(
            size_bytes, id=size_label(size_bytes),
            marks=pytest.mark.roofline(tier="nightly" if size_bytes in memcpy.DECADE_SIZES_BYTES else "full"),
        )
        for size_bytes in memcpy.SIZES_BYTES
    ],
)  # fmt: skip
memories = pytest.mark.parametrize("memory", ["pinned", "pageable"])
on_accelerator = pytest.mark.roofline(needs="accelerator")


def _measure(roofline, buffers, work, copy=memcpy.copy, metric=None):
    roofline.measure(
        copy,
        make_args=buffers.pair,
        work=Work(**work),
        cache="rotate",
        verify=memcpy.same,
        metric=metric,
    )


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
    _measure(
        roofline,
        buffers,
        copy_bytes(size_bytes),
        copy=memcpy.triton_copy(),
        metric="sm_traffic_GBps",
    )


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


@on_accelerator
@by_night
def test_memcpy_both_ways(roofline, device, size_bytes):
    """Host to device and device to host at once, pinned: what arrives at both, added up; figures have each way."""
    if device.type != "cuda":
        roofline.skip_for_hardware(f"needs streams of CUDA or ROCm, and {device.type} is measured")
    for where in ("host", "device"):
        roofline.require_memory(
            memcpy.memory_needed(size_bytes, pinned=where == "host"), where=where
        )
    ways = [(HOST, device), (device, HOST)]
    make = peer_copy.PeerBuffers(size_bytes, ways, pinned=True).make
    roofline.measure(
        peer_copy.AtOnce(ways),
        make_args=make,
        work=Work(**peer_copy.work_at_once(size_bytes, len(ways))),
        cache="rotate",
        verify=peer_copy.same,
        metric="bidir_sum_pinned_auto_payload_GBps",
    )
    taken = peer_copy.AtOnce(ways, timed=True).seconds_each(*make())
    for name, seconds in zip(
        ("host to device beside", "device to host beside"), taken, strict=True
    ):
        roofline.figure(name, size_bytes / seconds, "B/s")


def _measure_kernel(roofline, source, target, size_bytes):
    """A copy over the host's link by the multiprocessors, from or to pinned memory that they can address."""
    pytest.importorskip("triton", reason="needs Triton, found none")
    copy = memcpy.triton_copy()
    try:
        copy(*memcpy.CopyBuffers(4096, source, target, pinned=True).pair())
    except ValueError as error:
        roofline.skip_for_hardware(
            f"needs pinned memory that a Triton kernel can address, found: {error}"
        )
    buffers = _buffers(roofline, size_bytes, source, target, pinned=True)
    _measure(
        roofline, buffers, link_copy_bytes(size_bytes), copy=copy, metric="sm_pinned_payload_GBps"
    )


@on_accelerator
@by_night
def test_memcpy_h2d_triton(roofline, device, size_bytes):
    """Host to device, read by the multiprocessors."""
    _measure_kernel(roofline, HOST, device, size_bytes)


@on_accelerator
@by_night
def test_memcpy_d2h_triton(roofline, device, size_bytes):
    """Device to host, written by the multiprocessors."""
    _measure_kernel(roofline, device, HOST, size_bytes)


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
