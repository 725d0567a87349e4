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


def buffers(size_bytes, **keywords):
    """Buffers of both ends on the CPU."""
    return memcpy.CopyBuffers(size_bytes, CPU, CPU, **keywords)


def test_the_sweep_begins_at_four_kibibytes_and_ends_at_the_embedding_of_llama_3():
    assert (min(memcpy.SIZES_BYTES), max(memcpy.SIZES_BYTES)) == (4096, 2_101_346_304)


def test_the_last_size_is_the_embedding_of_llama_3_8b_in_single_precision():
    assert memcpy.LAST_SIZE_BYTES == 4096 * 128_256 * 4


def test_odd_sizes_lie_within_the_sweep():
    assert all(4096 < size < 2_101_346_304 for size in memcpy.ODD_SIZES_BYTES)


def test_buffers_are_contiguous_bytes_of_the_size_asked_for():
    for size_bytes in SIZES:
        expected = (torch.uint8, (size_bytes,), True)
        assert [expected] * 2 == [(b.dtype, tuple(b.shape), b.is_contiguous()) for b in buffers(size_bytes).pair()]


def test_buffers_start_where_vectors_of_sixteen_bytes_may():
    for size_bytes in SIZES:
        assert [buffer.data_ptr() % 16 for buffer in buffers(size_bytes).pair()] == [0, 0], size_bytes


def ranges(pairs):
    """The address ranges of all buffers, sorted."""
    return sorted((b.data_ptr(), b.data_ptr() + b.numel()) for pair in pairs for b in pair)


def test_no_buffer_overlaps_another():
    for odd_address, (size_bytes, count) in itertools.product(
        [False, True], [(1, 500), (4096, 500), (65_537, 500), (3 * MIB, 25)]
    ):
        made = buffers(size_bytes, odd_address=odd_address)
        taken = ranges([made.pair() for _ in range(count)])
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))


def test_no_byte_outside_a_pair_changes_when_it_is_copied():
    made = buffers(1000)
    pairs = [made.pair() for _ in range(20)]
    others = [pair for index, pair in enumerate(pairs) if index != 7]
    before = [target.clone() for _, target in others]
    memcpy.copy(*pairs[7])
    assert all(torch.equal(old, target) for old, (_, target) in zip(before, others, strict=True))


def test_a_source_cannot_be_compressed():
    for size_bytes in [MIB, LARGE_BYTES]:
        source, _ = buffers(size_bytes).pair()
        data = source[:MIB].numpy().tobytes()
        assert len(zlib.compress(data, 6)) / len(data) > 0.99, size_bytes


@pytest.mark.parametrize(("size_bytes", "count"), [(4096, 9000), (65_537, 400), (3 * MIB, 12), (LARGE_BYTES, 3)])
def test_sources_of_different_pairs_differ(size_bytes, count, monkeypatch):
    monkeypatch.setattr(memcpy, "_SLAB_BYTES", SLAB_BYTES)
    made = buffers(size_bytes)
    starts = [bytes(made.pair()[0][:64].numpy()) for _ in range(count)]
    assert count == len(set(starts))


def test_a_true_copy_is_the_same():
    source, target = buffers(65_537, odd_address=True).pair()
    memcpy.copy(source, target)
    assert memcpy.same(source, target)


@settings(max_examples=50)
@given(st.integers(0, 4095), st.integers(0, 7))
def test_one_wrong_bit_is_seen_wherever_it_is(position, bit):
    source, _ = buffers(4096).pair()
    target = source.clone()
    target[position] ^= 1 << bit
    assert not memcpy.same(source, target)


def first_bytes_missing(source, target):
    target[16:].copy_(source[16:])


def last_byte_missing(source, target):
    target[:-1].copy_(source[:-1])


def middle_byte_missing(source, target):
    middle = source.numel() // 2
    target[:middle].copy_(source[:middle])
    target[middle + 1 :].copy_(source[middle + 1 :])


def shifted_by_one(source, target):
    target[1:].copy_(source[:-1])
    target[0] = source[0]


MUTANTS = {
    "nothing": lambda source, target: None,
    "first sixteen bytes missing": first_bytes_missing,
    "last byte missing": last_byte_missing,
    "middle byte missing": middle_byte_missing,
    "shifted by one": shifted_by_one,
    "zeros": lambda source, target: target.zero_(),
    "reversed": lambda source, target: target.copy_(source.flip(0)),
    "complement": lambda source, target: target.copy_(~source),
}


def test_a_faulty_copy_is_caught():
    for size_bytes, mutant in itertools.product([17, 4096, 65_537], MUTANTS):
        source, target = buffers(size_bytes).pair()
        MUTANTS[mutant](source, target)
        assert not memcpy.same(source, target), (size_bytes, mutant)


def test_a_copy_from_another_pair_is_caught():
    made = buffers(4096)
    (source, target), (other, _) = made.pair(), made.pair()
    memcpy.copy(other, target)
    assert not memcpy.same(source, target)


# One slab and a half and more, with and without bytes between two buffers, and one buffer to a slab.
ROTATIONS = {1: 5000, 4096: 400, 65_537: 40, 700_001: 5, 3 * MIB: 3}


def copied(size_bytes, count, odd_address=False):
    """So many pairs, each copied."""
    made = buffers(size_bytes, odd_address=odd_address)
    pairs = [made.pair() for _ in range(count)]
    for pair in pairs:
        memcpy.copy(*pair)
    return pairs


@pytest.fixture
def comparisons(monkeypatch):
    """The numbers of bytes that two buffers were compared in, which on a GPU is one wait each."""
    counted = []
    equal = torch.equal

    def counting(left, right):
        counted.append(left.numel())
        return equal(left, right)

    monkeypatch.setattr(torch, "equal", counting)
    return counted


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(ROTATIONS)), st.booleans(), st.data())
def test_one_byte_that_was_left_out_is_found_in_whichever_set_it_is(size_bytes, odd_address, data):
    pairs = copied(size_bytes, ROTATIONS[size_bytes], odd_address)
    index = data.draw(st.integers(0, len(pairs) - 1))
    position = data.draw(st.integers(0, size_bytes - 1))
    source, target = pairs[index]
    target[position] = ~source[position]
    assert memcpy.same.first_wrong(pairs) == index


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(ROTATIONS)), st.data())
def test_only_the_sets_that_are_asked_about_are_looked_at(size_bytes, data):
    made = buffers(size_bytes)
    pairs = [made.pair() for _ in range(ROTATIONS[size_bytes])]
    # Of those in use at most every other one was left out, so that runs are cut at any place.
    used = (
        [pair for pair in pairs if data.draw(st.sampled_from([True, True, False]))] if len(pairs) < 50 else pairs[:77]
    )
    for pair in used:
        memcpy.copy(*pair)
    assert memcpy.same.first_wrong(used) is None


def test_bytes_between_two_buffers_are_nobodys():
    pairs = copied(65_537, 20)
    for _, target in pairs:
        behind = target.as_strided((1,), (1,), target.storage_offset() + 65_537)
        behind.bitwise_not_()
    assert memcpy.same.first_wrong(pairs) is None


def test_a_target_of_another_length_is_wrong():
    source, target = buffers(4096).pair()
    assert memcpy.same.first_wrong([(source, target[:-1])]) == 0


@pytest.mark.parametrize(("size_bytes", "count"), [(4096, 25_601), (65_536, 1601), (16 * MIB, 8)])
def test_a_slab_takes_one_comparison(size_bytes, count, comparisons, monkeypatch):
    monkeypatch.setattr(memcpy, "_SLAB_BYTES", SLAB_BYTES)
    made = buffers(size_bytes)
    pairs = [made.pair() for _ in range(count)]
    memcpy.same.spoil([])
    for source, target in pairs:
        target.copy_(source)
    assert memcpy.same.first_wrong(pairs) is None
    assert len(comparisons) == -(-count * size_bytes * 2 // SLAB_BYTES)


def test_in_ruined_sets_every_byte_of_a_target_differs_from_its_source():
    for odd_address, (size_bytes, count) in itertools.product([False, True], ROTATIONS.items()):
        pairs = copied(size_bytes, count, odd_address)
        sources = [source.clone() for source, _ in pairs]
        memcpy.same.spoil(pairs)
        assert not any(bool((source == target).any()) for source, target in pairs), (odd_address, size_bytes, count)
        assert all(torch.equal(before, source) for before, (source, _) in zip(sources, pairs, strict=True))


def test_sets_that_were_not_called_with_are_left_as_they_are():
    pairs = copied(4096, 100)
    memcpy.same.spoil(pairs[:30])
    assert memcpy.same.first_wrong(pairs) == 0
    assert memcpy.same.first_wrong(pairs[30:]) is None


def test_filling_begins_at_the_start_asked_for():
    for start in [0, 1, 1_000_003, 8 * MIB + 8]:
        tile = memcpy.random_tile("cpu")
        filled = memcpy.fill_random(torch.zeros(1, dtype=torch.uint8), start)
        assert int(tile[start]) == int(filled[0]), start


def test_filling_goes_round_the_tile():
    for start in [0, 5, 8 * MIB, 3 * (8 * MIB + 9) + 5]:
        tile = memcpy.random_tile("cpu")
        size = tile.numel() + 1000
        expected = tile.repeat(3)[start % tile.numel() :][:size]
        assert torch.equal(expected, memcpy.fill_random(torch.zeros(size, dtype=torch.uint8), start)), start


def test_a_pair_takes_no_more_memory_than_announced():
    for size_bytes in [4096, 65_537, LARGE_BYTES]:
        source, target = buffers(size_bytes).pair()
        assert memcpy.memory_needed(size_bytes) >= source.numel() + target.numel(), size_bytes


class Rounding:
    """As torch's allocator of page-locked memory: blocks are powers of two, so that they can be used again."""

    def __init__(self, monkeypatch):
        self.taken_bytes = 0
        empty = torch.empty

        def taking(*size, pin_memory=False, **keywords):
            if pin_memory:
                self.taken_bytes += 1 << (size[0] - 1).bit_length()
            return empty(*size, **keywords)

        monkeypatch.setattr(torch, "empty", taking)


@pytest.mark.parametrize("size_bytes", [2**20, 5 * MIB, 2**24, *memcpy.ODD_SIZES_BYTES])
def test_a_page_locked_pair_takes_no_more_than_announced(size_bytes, monkeypatch):
    allocator = Rounding(monkeypatch)
    monkeypatch.setattr(memcpy, "_SLAB_BYTES", 1)
    monkeypatch.setattr(memcpy, "_CHUNK_BYTES", 0)
    buffers(size_bytes, pinned=True, odd_address=size_bytes % 2 == 1).pair()
    tile = 2 * memcpy._TILE_BYTES
    assert memcpy.memory_needed(size_bytes, pinned=True) - tile == allocator.taken_bytes


def test_of_a_page_locked_buffer_the_next_power_of_two_is_announced():
    for size_bytes, taken in [(2**29, 2**29), (2**29 + 1, 2**30), (2**30 + 2**29, 2**31), (2_101_346_304, 2**31)]:
        pageable, pinned = (memcpy.memory_needed(size_bytes, pinned=one) for one in (False, True))
        assert (pinned - pageable) // 2 == taken - size_bytes - 256, (size_bytes, taken)


def test_allocated_memory_may_be_written_to_its_last_byte():
    for size_bytes in [1, 4 * MIB - 1, 4 * MIB, 5 * MIB + 1]:
        buffer = memcpy.allocate(size_bytes, CPU)
        buffer[-1] = 255
        assert (size_bytes, 255) == (buffer.numel(), int(buffer[-1])), size_bytes
