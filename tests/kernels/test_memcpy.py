"""Copies: the sizes of the sweep, buffers that no faulty copy can fool, and the check that sees every byte."""

import itertools
import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline_kernels import memcpy

CPU = torch.device("cpu")
MIB = 2**20
SIZES = [1, 15, 4096, 65_537, 1_000_003, 3 * MIB]
# More than half a slab, and in huge pages.
LARGE_BYTES = 40 * MIB
SLAB_BYTES = memcpy._SLAB_BYTES


@pytest.fixture(scope="module", autouse=True)
def small_slabs():
    """Slabs that fill in a millisecond; what depends on their size sets it itself."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(memcpy, "_SLAB_BYTES", 2 * MIB)
        yield


def pairs_of(size_bytes, count, **keywords):
    """So many sources and targets on the CPU."""
    made = memcpy.CopyBuffers(size_bytes, CPU, CPU, **keywords)
    return [made.pair() for _ in range(count)]


def copied(size_bytes, count, odd_address=False):
    """So many pairs, each copied."""
    pairs = pairs_of(size_bytes, count, odd_address=odd_address)
    for pair in pairs:
        memcpy.copy(*pair)
    return pairs


def test_the_sweep_goes_from_four_kibibytes_to_the_embedding_of_llama_3_8b_in_single_precision():
    assert (min(memcpy.SIZES_BYTES), max(memcpy.SIZES_BYTES)) == (4096, 2_101_346_304)
    assert memcpy.LAST_SIZE_BYTES == 4096 * 128_256 * 4
    assert all(4096 < size < 2_101_346_304 for size in memcpy.ODD_SIZES_BYTES)


def test_buffers_are_contiguous_bytes_of_the_size_asked_for_where_vectors_of_sixteen_bytes_may_begin():
    for size_bytes in SIZES:
        for buffer in pairs_of(size_bytes, 1)[0]:
            found = (
                buffer.dtype,
                tuple(buffer.shape),
                buffer.is_contiguous(),
                buffer.data_ptr() % 16,
            )
            assert found == (torch.uint8, (size_bytes,), True, 0), size_bytes
    for size_bytes in [1, 4 * MIB - 1, 4 * MIB, 5 * MIB + 1]:
        buffer = memcpy.allocate(size_bytes, CPU)
        buffer[-1] = 255
        assert (size_bytes, 255) == (buffer.numel(), int(buffer[-1])), size_bytes


def test_no_buffer_overlaps_another():
    for odd_address, (size_bytes, count) in itertools.product(
        [False, True], [(1, 500), (4096, 500), (65_537, 500), (3 * MIB, 25)]
    ):
        pairs = pairs_of(size_bytes, count, odd_address=odd_address)
        taken = sorted(
            (one.data_ptr(), one.data_ptr() + one.numel()) for pair in pairs for one in pair
        )
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))


def test_sources_cannot_be_compressed_and_differ(monkeypatch):
    monkeypatch.setattr(memcpy, "_SLAB_BYTES", SLAB_BYTES)
    for size_bytes, count in [(4096, 9000), (65_537, 400), (3 * MIB, 12), (LARGE_BYTES, 3)]:
        pairs = pairs_of(size_bytes, count)
        assert len({bytes(source[:64].numpy()) for source, _ in pairs}) == count, size_bytes
        data = pairs[0][0][:MIB].numpy().tobytes()
        assert len(zlib.compress(data, 6)) / len(data) > 0.99, size_bytes


@settings(max_examples=50)
@given(st.integers(0, 4095), st.integers(0, 7))
def test_one_wrong_bit_is_seen_wherever_it_is(position, bit):
    ((source, _),) = pairs_of(4096, 1)
    target = source.clone()
    assert memcpy.same(source, target)
    target[position] ^= 1 << bit
    assert not memcpy.same(source, target)


def shifted_by_one(source, target):
    target[1:].copy_(source[:-1])
    target[0] = source[0]


MUTANTS = {
    "nothing": lambda source, target: None,
    "first sixteen bytes missing": lambda source, target: target[16:].copy_(source[16:]),
    "last byte missing": lambda source, target: target[:-1].copy_(source[:-1]),
    "shifted by one": shifted_by_one,
    "zeros": lambda source, target: target.zero_(),
    "reversed": lambda source, target: target.copy_(source.flip(0)),
    "complement": lambda source, target: target.copy_(~source),
}


def test_a_faulty_copy_is_caught_and_one_from_another_pair_too():
    for size_bytes, mutant in itertools.product([17, 4096, 65_537], MUTANTS):
        (source, target), (other, _) = pairs_of(size_bytes, 2)
        MUTANTS[mutant](source, target)
        assert not memcpy.same(source, target), (size_bytes, mutant)
        memcpy.copy(other, target)
        assert not memcpy.same(source, target), size_bytes


# One slab and a half and more, with and without bytes between two buffers, and one buffer to a slab.
ROTATIONS = {1: 5000, 4096: 400, 65_537: 40, 700_001: 5, 3 * MIB: 3}


def test_one_byte_that_was_left_out_is_found_in_whichever_set_it_is():
    for size_bytes, odd_address in itertools.product(ROTATIONS, [False, True]):
        pairs = copied(size_bytes, ROTATIONS[size_bytes], odd_address)
        for index, position in itertools.product(
            [0, len(pairs) // 3, len(pairs) - 1], [0, size_bytes - 1]
        ):
            source, target = pairs[index]
            target[position] = ~source[position]
            assert memcpy.same.first_wrong(pairs) == index, (size_bytes, odd_address)
            target[position] = source[position]
        # Bytes between two buffers are nobody's.
        if size_bytes == 65_537:
            first = pairs[0][1]
            first.as_strided((1,), (1,), first.storage_offset() + size_bytes).bitwise_not_()
        assert memcpy.same.first_wrong(pairs) is None, size_bytes
    assert memcpy.same.first_wrong([(source, target[:-1])]) == 0


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(ROTATIONS)), st.data())
def test_only_the_sets_that_are_asked_about_are_looked_at(size_bytes, data):
    pairs = pairs_of(size_bytes, ROTATIONS[size_bytes])
    # Of those in use at most every other one was left out, so that runs are cut at any place.
    some = st.sampled_from([True, True, False])
    used = [pair for pair in pairs if data.draw(some)] if len(pairs) < 50 else pairs[:77]
    for pair in used:
        memcpy.copy(*pair)
    assert memcpy.same.first_wrong(used) is None


def test_a_slab_takes_one_comparison(monkeypatch):
    # Each is a wait for the device.
    monkeypatch.setattr(memcpy, "_SLAB_BYTES", SLAB_BYTES)
    equal, counted = torch.equal, []
    monkeypatch.setattr(
        torch, "equal", lambda left, right: counted.append(left) or equal(left, right)
    )
    for size_bytes, count in [(4096, 25_601), (16 * MIB, 8)]:
        pairs = copied(size_bytes, count)
        memcpy.same.spoil([])
        counted.clear()
        assert memcpy.same.first_wrong(pairs) is None
        assert len(counted) == -(-count * size_bytes * 2 // SLAB_BYTES)


def test_in_ruined_sets_every_byte_of_a_target_differs_and_others_are_left_as_they_are():
    for odd_address, (size_bytes, count) in itertools.product([False, True], ROTATIONS.items()):
        pairs = copied(size_bytes, count, odd_address)
        sources = [source.clone() for source, _ in pairs]
        ruined, others = pairs[: count // 2], pairs[count // 2 :]
        memcpy.same.spoil(ruined)
        assert not any(bool((source == target).any()) for source, target in ruined), (
            odd_address,
            size_bytes,
        )
        assert all(
            torch.equal(before, source) for before, (source, _) in zip(sources, pairs, strict=True)
        )
        assert memcpy.same.first_wrong(others) is None
        assert memcpy.same.first_wrong(pairs) == 0


def test_filling_begins_at_the_start_asked_for_and_goes_round_the_tile():
    tile = memcpy.random_tile("cpu")
    for start in [0, 1, 1_000_003, 8 * MIB + 8, 3 * (8 * MIB + 9) + 5]:
        size = tile.numel() + 1000
        expected = tile.repeat(3)[start % tile.numel() :][:size]
        assert torch.equal(
            expected, memcpy.fill_random(torch.zeros(size, dtype=torch.uint8), start)
        ), start


def test_a_pair_takes_no_more_memory_than_announced():
    for size_bytes in [4096, 65_537, LARGE_BYTES]:
        ((source, target),) = pairs_of(size_bytes, 1)
        assert memcpy.memory_needed(size_bytes) >= source.numel() + target.numel(), size_bytes


def test_of_a_page_locked_buffer_the_next_power_of_two_is_announced_and_taken(monkeypatch):
    for size_bytes, taken in [(2**29, 2**29), (2**29 + 1, 2**30), (2_101_346_304, 2**31)]:
        pageable, pinned = (memcpy.memory_needed(size_bytes, pinned=one) for one in (False, True))
        assert (pinned - pageable) // 2 == taken - size_bytes - 256, (size_bytes, taken)
    blocks, empty = [], torch.empty

    def taking(*size, pin_memory=False, **keywords):
        # As torch's allocator of page-locked memory does, so that blocks can be used again.
        if pin_memory:
            blocks.append(1 << (size[0] - 1).bit_length())
        return empty(*size, **keywords)

    monkeypatch.setattr(torch, "empty", taking)
    monkeypatch.setattr(memcpy, "_SLAB_BYTES", 1)
    monkeypatch.setattr(memcpy, "_CHUNK_BYTES", 0)
    for size_bytes in [2**20, 5 * MIB, *memcpy.ODD_SIZES_BYTES]:
        blocks.clear()
        pairs_of(size_bytes, 1, pinned=True, odd_address=size_bytes % 2 == 1)
        assert memcpy.memory_needed(size_bytes, pinned=True) - 2 * memcpy._TILE_BYTES == sum(blocks)
