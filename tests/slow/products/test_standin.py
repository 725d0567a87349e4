"""The stand-in is honest: what was not copied is seen, and its clock goes by what was really done."""

import pytest
import torch

from roofline_kernels import memcpy

from .recorded import facts_of
from .standin import Clockwork, Rates, StandIn

MIB = 2**20
HOST = torch.device("cpu")


@pytest.fixture
def device():
    return StandIn(facts_of("h100-sxm5-80gb"), Rates(memory_GBps=1000, h2d_GBps=50, tflops=1))


def busy_s(device, call):
    """Device seconds of a call."""
    before = device.busy_s
    call()
    return device.busy_s - before


@pytest.mark.parametrize("size_bytes", [MIB, 512 * MIB])
def test_a_copy_is_really_made(device, size_bytes):
    with Clockwork(device):
        source, target = memcpy.CopyBuffers(size_bytes, HOST, HOST).pair()
        assert not memcpy.same(source, target)
        memcpy.copy(source, target)
        assert memcpy.same(source, target)


def test_a_copy_is_made_again_where_its_source_changed(device):
    with Clockwork(device):
        source, target = memcpy.CopyBuffers(512 * MIB, HOST, HOST).pair()
        memcpy.copy(source, target)
        memcpy.copy(source, target)
        source.bitwise_not_()
        assert not memcpy.same(source, target)
        memcpy.copy(source, target)
        assert memcpy.same(source, target)


def test_a_copy_takes_as_long_the_second_time(device):
    with Clockwork(device):
        source, target = memcpy.CopyBuffers(512 * MIB, HOST, HOST).pair()
        times = [busy_s(device, lambda: memcpy.copy(source, target)) for _ in range(2)]
    assert times == pytest.approx([2 * 512 * MIB / 1e12] * 2)


@pytest.mark.parametrize(("memory", "share"), [("pinned", 1.0), ("pageable", 0.4)])
def test_a_copy_over_the_link_takes_the_links_time(device, memory, share):
    device.way, device.memory = "h2d", memory
    with Clockwork(device):
        source, target = memcpy.CopyBuffers(512 * MIB, HOST, HOST, pinned=memory == "pinned").pair()
        took_s = busy_s(device, lambda: memcpy.copy(source, target))
    assert took_s == pytest.approx(512 * MIB / (50e9 * share))


def test_a_product_takes_the_time_of_its_operations(device):
    with Clockwork(device):
        left, right = torch.ones(64, 4096), torch.ones(4096, 64)
        took_s = busy_s(device, lambda: left @ right)
    assert took_s == pytest.approx(2 * 64 * 64 * 4096 / 1e12)


def test_two_gibibytes_take_hardly_any_memory(device):
    with Clockwork(device):
        vector = torch.full((2**28,), 0.5, dtype=torch.float64)
        low, high = torch.aminmax(vector)
    assert (float(low), float(high)) == (0.5, 0.5)
    pages = torch.count_nonzero(vector[: 8 * MIB])
    assert 0 < int(pages) < 64 * 1024
