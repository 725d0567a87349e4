"""Bytes and FLOPs of what is measured, against numbers worked out by hand."""

import pytest

from pytest_roofline import Work
from roofline_kernels.work import STREAM, copy_bytes, link_copy_bytes, stream_work


def test_a_copy_within_a_memory_reads_and_writes_every_byte():
    assert copy_bytes(7) == {"read_bytes": 7, "write_bytes": 7, "payload_bytes": 7}


def test_a_copy_over_a_link_counts_every_byte_once():
    assert link_copy_bytes(7) == {"payload_bytes": 7, "wire_bytes": 7}


def test_a_copy_within_a_memory_is_shown_as_traffic():
    assert Work(**copy_bytes(7)).metric == "traffic_GBps"


def test_a_copy_over_a_link_is_shown_as_payload():
    assert Work(**link_copy_bytes(7)).metric == "payload_GBps"


# BabelStream at its default size, 2^25 doubles: 2 arrays of 268,435,456 bytes for copy, mul and dot, 3 for add, triad.
@pytest.mark.parametrize(
    ("operation", "moved_bytes"),
    [
        ("copy", 536_870_912),
        ("scale", 536_870_912),
        ("add", 805_306_368),
        ("triad", 805_306_368),
        ("dot", 536_870_912),
    ],
)
def test_traffic_is_that_of_babelstream(operation, moved_bytes):
    assert moved_bytes == Work(**stream_work(operation, 2**25, 8)).traffic_bytes


@pytest.mark.parametrize(
    ("operation", "flops"), [("copy", 0), ("scale", 100), ("add", 100), ("triad", 200), ("dot", 200)]
)
def test_an_operation_counts_its_flops_for_each_element(operation, flops):
    assert flops == stream_work(operation, 100, 8)["flops"]


def test_dot_writes_no_array():
    assert stream_work("dot", 100, 8)["write_bytes"] == 0


def test_single_precision_moves_half_the_bytes():
    assert 2 * stream_work("triad", 100, 4)["read_bytes"] == stream_work("triad", 100, 8)["read_bytes"]


def test_the_five_operations_are_babelstreams():
    assert list(STREAM) == ["copy", "scale", "add", "triad", "dot"]


def test_an_unknown_operation_is_an_error():
    with pytest.raises(KeyError):
        stream_work("nop", 100, 8)
