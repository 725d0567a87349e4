"""Copies and STREAM as a user starts them: what their buffers leave, and one short real run."""

import re
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline import Work
from pytest_roofline.core.samples import for_neighbours
from pytest_roofline.engine.calls import is_cold, rotation_sets
from pytest_roofline.engine.devices.base import INFINITY_CACHE_BYTES
from roofline_kernels.stream import ELEMENTS, LARGE_ELEMENTS
from roofline_kernels.work import STREAM, stream_work

from .benchmarks import Roofline, load, short_run_of

MIB = 2**20


def test_the_large_arrays_of_stream_are_made_once_whatever_the_cache():
    """Two sets of 6.4 GB would be more than the rotation needs, and than some devices have."""
    for operation in STREAM:
        work = Work(**stream_work(operation, LARGE_ELEMENTS, 8))
        assert {
            rotation_sets(work, size, 10**12) for size in (4 * MIB, 50 * MIB, INFINITY_CACHE_BYTES)
        } == {1}


def test_the_arrays_of_stream_leave_the_largest_cache_of_a_processor_too():
    for operation in STREAM:
        work = Work(**stream_work(operation, ELEMENTS, 8))
        sets = rotation_sets(work, 480 * MIB, 16 * 2**30, set_bytes=3 * ELEMENTS * 8)
        assert is_cold(sets, work, 480 * MIB), operation


def test_a_short_run_measures_verifies_and_prints_what_was_selected(tmp_path):
    done, run = short_run_of(tmp_path, "perf_tests", "-k=memcpy_h2h and (4KiB or 32KiB)")
    found = [(one.label, one.verified, one.key.cache) for one in run.measurements]
    assert found == [("memcpy_h2h[4KiB]", True, "rotate"), ("memcpy_h2h[32KiB]", True, "rotate")]
    # Others on this machine may spoil what is measured, and nothing else may.
    assert [
        one.invalid for one in run.measurements if one.invalid and not for_neighbours(one.invalid)
    ] == []
    assert [one.outcome for one in run.outcomes] == ["passed", "passed"]
    assert (run.footer.measured, run.footer.exit_status) == (2, 0)
    assert len(re.findall(r"^memcpy_h2h\[(4|32)KiB\] ", done.stdout, re.MULTILINE)) == 2, (
        done.stdout
    )


def test_both_ways_over_the_hosts_link_are_counted_together_and_told_apart(monkeypatch):
    module, gpu, ways = load("memcpy"), SimpleNamespace(type="cuda"), []

    class AtOnce:
        def __init__(self, given, timed=False):
            ways.append((given, timed))

        def seconds_each(self, *buffers):
            return [1e-3, 2e-3]

    monkeypatch.setattr(module.peer_copy, "AtOnce", AtOnce)
    monkeypatch.setattr(
        module.peer_copy, "PeerBuffers", lambda *given, pinned: SimpleNamespace(make=tuple)
    )
    roofline = Roofline(gpu)
    module.test_memcpy_both_ways(roofline, gpu, 4 * MIB)
    both = [(module.HOST, gpu), (gpu, module.HOST)]
    assert [(both, False), (both, True)] == ways
    found = roofline.arguments
    assert (8 * MIB, 4 * MIB) == (found["work"].payload_bytes, found["work"].wire_bytes)
    assert "bidir_sum_pinned_auto_payload_GBps" == found["metric"]
    rates = {
        "host to device beside": (4 * MIB / 1e-3, "B/s"),
        "device to host beside": (4 * MIB / 2e-3, "B/s"),
    }
    assert rates == roofline.figures
    with pytest.raises(
        pytest.skip.Exception, match="needs streams of CUDA or ROCm, and mps is measured"
    ):
        module.test_memcpy_both_ways(roofline, SimpleNamespace(type="mps"), 4 * MIB)


def test_a_kernel_copies_over_the_hosts_link_where_it_can_address_the_hosts_memory(monkeypatch):
    module = load("memcpy")
    monkeypatch.setattr(
        module.memcpy,
        "allocate",
        lambda size, device, pinned=False: torch.empty(size, dtype=torch.uint8),
    )
    copied = []
    monkeypatch.setattr(
        module.memcpy, "triton_copy", lambda: lambda source, target: copied.append(source.numel())
    )
    roofline = Roofline(module.HOST)
    module.test_memcpy_h2d_triton(roofline, module.HOST, 2 * MIB)
    assert ([4096], "sm_pinned_payload_GBps") == (copied, roofline.arguments["metric"])
    assert 2 * MIB == roofline.arguments["work"].payload_bytes

    def refuse(source, target):
        raise ValueError("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)")

    monkeypatch.setattr(module.memcpy, "triton_copy", lambda: refuse)
    with pytest.raises(pytest.skip.Exception, match="kernel can address, found: Pointer argument"):
        module.test_memcpy_d2h_triton(roofline, module.HOST, 2 * MIB)
