"""The pretended multiprocessor notices what hardware does not forgive."""

import pytest
import torch

from .hopper.language import Descriptor, language
from .hopper.machine import Fault, Machine

ROWS, STAGES, TILES = 4, 2, 6
TILE_BYTES = ROWS * ROWS * 4
SEEDS = range(20)


def sums_of_squares(words, left_out):
    """A program that multiplies tiles by themselves and adds them up: one partition loads, one computes and stores.

    `left_out` is the step that it forgets.
    """
    source = torch.arange(TILES * ROWS * ROWS).view(-1, ROWS).float() / 100
    target = torch.full((ROWS, ROWS), torch.nan)
    into, out_of = Descriptor(source, [ROWS, ROWS]), Descriptor(target, [ROWS, ROWS])
    gl, mbarrier, tma = words.gl, words.mbarrier, words.tma
    tiles = gl.allocate_shared_memory(torch.float32, [STAGES, ROWS, ROWS], None)
    result = gl.allocate_shared_memory(torch.float32, [1, ROWS, ROWS], None)
    full, empty = (gl.allocate_shared_memory(torch.int64, [STAGES, 1], None) for _ in range(2))
    for slot in range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)

    def step(name, action, *arguments, **options):
        if name != left_out:
            action(*arguments, **options)

    def load():
        for number in range(TILES):
            slot, phase = number % STAGES, number // STAGES & 1
            step("wait until empty", mbarrier.wait, empty.index(slot), phase ^ 1)
            mbarrier.expect(full.index(slot), TILE_BYTES)
            tma.async_load(into, [number * ROWS, 0], full.index(slot), tiles.index(slot))

    def compute():
        total = torch.zeros(ROWS, ROWS)
        for number in range(TILES):
            slot, phase = number % STAGES, number // STAGES & 1
            step("wait until full", mbarrier.wait, full.index(slot), phase)
            tile = tiles.index(slot)
            product = words.warpgroup_mma(tile, tile, total, is_async=True)
            if left_out == "leave after the product":
                mbarrier.arrive(empty.index(slot), count=1)
            left = 1 if left_out == "wait for the product" else 0
            total = words.warpgroup_mma_wait(left, deps=[product])
            if left_out != "leave after the product":
                step("leave", mbarrier.arrive, empty.index(slot), count=1)
        result.index(0).store(total)
        step("fence", words.fence_async_shared)
        tma.async_store(out_of, [0, 0], result.index(0))
        step("wait for the store", tma.store_wait, 0)

    gl.warp_specialize([(compute, ()), (load, ())], [1], [24])
    tiles_of_source = source.view(TILES, ROWS, ROWS)
    return target, (tiles_of_source @ tiles_of_source).sum(0)


def faults(left_out):
    """What is said of the program in several orders of events."""
    messages = set()
    for seed in SEEDS:
        machine = Machine(0, 1, seed)
        try:
            sums_of_squares(language(machine), left_out)
        except Fault as fault:
            messages.add(str(fault))
    return messages


def test_a_program_that_waits_for_everything_is_right_in_every_order_of_events():
    for seed in SEEDS:
        target, expected = sums_of_squares(language(Machine(0, 1, seed)), "")
        torch.testing.assert_close(target, expected)


@pytest.mark.parametrize(
    ("left_out", "fault"),
    [
        ("wait until full", "a tile was read before its copy had come"),
        ("wait until empty", "more arrived at a barrier than it expects"),
        ("leave", "partitions [0, 1] wait for what never comes"),
        ("leave after the product", "a tile was overwritten under a product that reads it"),
        ("wait for the product", "a product was handed on before it was waited for"),
        ("fence", "a tile was read without a fence behind the threads that wrote it"),
        ("wait for the store", "a partition ended before its stores had read shared memory"),
    ],
)
def test_a_step_that_is_left_out_is_noticed(left_out, fault):
    assert fault in faults(left_out)


def test_a_seed_stands_for_an_order_of_events():
    assert faults("wait until empty") == faults("wait until empty")


def test_a_barrier_refuses_more_arrivals_than_it_expects():
    words = language(Machine(0, 1, 0))
    barrier = words.gl.allocate_shared_memory(torch.int64, [1, 1], None).index(0)
    words.mbarrier.init(barrier, count=2)
    with pytest.raises(Fault, match="more arrived"):
        words.mbarrier.arrive(barrier, count=3)


def write_under_a_store(words, change):
    """A program that stores a tile and writes it without waiting."""
    tensor = Descriptor(torch.zeros(ROWS, ROWS), [ROWS, ROWS])
    tile = words.gl.allocate_shared_memory(torch.float32, [1, ROWS, ROWS], None).index(0)
    barrier = words.gl.allocate_shared_memory(torch.int64, [1, 1], None).index(0)
    words.mbarrier.init(barrier, count=1)

    def body():
        words.tma.async_store(tensor, [0, 0], tile)
        if change == "store":
            tile.store(torch.ones(ROWS, ROWS))
        else:
            words.tma.async_load(tensor, [0, 0], barrier, tile)
        words.tma.store_wait(0)

    words.gl.warp_specialize([(body, ())], [], [])


@pytest.mark.parametrize("change", ["store", "load"])
def test_a_tile_that_a_store_reads_is_not_to_be_written(change):
    # In this order of events the store has not been made yet.
    with pytest.raises(Fault, match="a tile was written while a store read it"):
        write_under_a_store(language(Machine(0, 1, seed=1)), change)


def test_what_lies_beyond_a_tensor_reads_as_zero_and_is_not_written():
    descriptor = Descriptor(torch.ones(5, 4), [4, 4])
    for corner, inside, part in (
        ([3, 0], slice(3, 5), slice(0, 2)),
        ([-2, 0], slice(0, 2), slice(2, 4)),
        ([8, 0], slice(8, 8), slice(0, 0)),
    ):
        assert descriptor.place(corner) == ((inside, slice(0, 4)), (part, slice(0, 4)))
