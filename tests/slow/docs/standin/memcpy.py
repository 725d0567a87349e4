"""Named and parametrised as the shipped copies are."""

import pytest

from pytest_roofline import Work

MIB = 2**20


@pytest.mark.parametrize(
    "size_bytes", [4 * MIB, 64 * MIB, 1024 * MIB], ids=["4MiB", "64MiB", "1GiB"]
)
def test_memcpy_d2d(roofline, busy, size_bytes):
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
    roofline.measure(lambda: busy(2 * size_bytes / 2.6e12), work=work, metric="auto_traffic_GBps")


@pytest.mark.parametrize("size_bytes", [64 * MIB], ids=["64MiB"])
@pytest.mark.parametrize("memory", ["pinned"])
def test_memcpy_h2d(roofline, busy, size_bytes, memory):
    work = Work(payload_bytes=size_bytes, wire_bytes=size_bytes)
    roofline.measure(lambda: busy(size_bytes / 55e9), work=work, metric="pinned_auto_payload_GBps")


# With a size whose name ends as that of another does, as the shipped ones have.
SIZES = {"4KiB": 4096, "512KiB": MIB // 2, "4MiB": 4 * MIB, "2004MiB": 2004 * MIB}


@pytest.mark.parametrize("size_bytes", SIZES.values(), ids=SIZES)
def test_memcpy_h2h(roofline, busy, size_bytes):
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
    roofline.measure(lambda: busy(2e-6 + 2 * size_bytes / 2e12), work=work)
