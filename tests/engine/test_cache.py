"""Cache policy: how many sets a rotation takes, whether it is cold, and how large the last-level cache is."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.facts import DeviceFacts
from pytest_roofline.core.work import Work
from pytest_roofline.engine import calls
from pytest_roofline.engine.devices.base import INFINITY_CACHE_BYTES, last_level_cache
from pytest_roofline.engine.peers import ALONE
from pytest_roofline.engine.request import Request, Timed, as_tuple

MIB = 2**20
PLENTY = 2**50


def copy_of(size_bytes):
    """The work of a copy within one memory, which touches twice its size."""
    return Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)


def test_a_copy_touches_what_it_reads_and_what_it_writes():
    assert calls.bytes_per_set(copy_of(MIB)) == 2 * MIB


def test_a_copy_over_a_link_touches_its_payload():
    assert calls.bytes_per_set(Work(payload_bytes=MIB, wire_bytes=MIB)) == MIB


@pytest.mark.parametrize(
    ("touched", "sets"),
    [
        (4 * MIB, 1),
        (5 * MIB, 1),
        (4 * MIB - 2, 3),
        (2 * MIB, 3),
        (MIB, 5),
        (MIB // 2, 9),
    ],
)
def test_other_sets_between_two_uses_of_one_touch_four_times_the_cache(touched, sets):
    assert sets == calls.rotation_sets(copy_of(touched // 2), MIB, PLENTY)


def test_a_rotation_takes_no_more_than_half_of_the_memory():
    assert calls.rotation_sets(copy_of(MIB), 100 * MIB, memory_bytes=16 * MIB) == 4


def test_sets_that_hold_more_than_a_call_touches_take_no_more_than_half_of_the_memory_either():
    work, page = Work(read_bytes=4096), torch.zeros(MIB, dtype=torch.uint8)
    held = calls.bytes_held(work, (page, {"rows": [page.view(torch.float32)]}, 7))
    assert (held, calls.rotation_sets(work, MIB, 100 * MIB, held)) == (2 * MIB, 25)


@pytest.mark.parametrize(
    ("argument", "held"),
    [
        (torch.zeros(100 * MIB, dtype=torch.uint8)[: 2 * MIB], 2 * MIB),
        (torch.zeros(1).expand(100 * MIB), 4096),
        (torch.sparse_coo_tensor(size=(2**20, 2**20), check_invariants=True), 4096),
        ("no tensor", 4096),
    ],
    ids=["a part of an allocation", "one element many times", "sparse", "no tensor"],
)
def test_a_set_takes_what_its_tensors_hold_and_never_less_than_a_call_touches(argument, held):
    assert calls.bytes_held(Work(read_bytes=4096), (argument,)) == held


def test_at_least_one_set_is_made_however_small_the_memory():
    assert calls.rotation_sets(copy_of(MIB), 100 * MIB, memory_bytes=0) == 1


def test_a_device_that_does_not_tell_its_memory_is_taken_to_have_enough():
    assert calls.rotation_sets(copy_of(MIB), 100 * MIB, memory_bytes=None) == 201


def test_the_number_of_sets_is_bounded():
    assert calls.rotation_sets(copy_of(1), 2**30, PLENTY) == calls.MOST_SETS


def test_so_many_sets_suffice_for_four_kibibytes_through_the_largest_known_cache():
    work = Work(payload_bytes=4096, wire_bytes=4096)
    sets = calls.rotation_sets(work, INFINITY_CACHE_BYTES, PLENTY)
    assert (sets, calls.is_cold(sets, work, INFINITY_CACHE_BYTES)) == (calls.MOST_SETS, True)


def test_a_rotation_for_which_too_little_is_free_says_what_it_needs_what_there_is_and_what_to_do():
    assert calls.no_room(100, 2 * MIB, free_bytes=10**8) == (
        "needs 210 MB of free memory to rotate through 100 sets of arguments, found 100 MB; free what others hold, "
        "or use cache='flush', which takes one set"
    )


def test_there_is_room_for_a_rotation_that_just_fits():
    assert calls.no_room(100, 2 * MIB, free_bytes=200 * MIB) == ""


def test_one_set_is_made_without_a_look_at_free_memory():
    assert calls.no_room(1, 2 * MIB, free_bytes=0) == ""


def test_work_without_bytes_needs_one_set():
    assert calls.rotation_sets(Work(flops=1), MIB, PLENTY) == 1


@given(st.integers(1, 2**32), st.integers(1, 2**30))
def test_a_rotation_with_enough_memory_is_cold_unless_its_sets_are_too_many(size_bytes, cache_bytes):
    sets = calls.rotation_sets(copy_of(size_bytes), cache_bytes, PLENTY)
    assert calls.is_cold(sets, copy_of(size_bytes), cache_bytes) or sets == calls.MOST_SETS


@given(st.integers(1, 2**32), st.integers(1, 2**30), st.integers(0, 2**34))
def test_a_rotation_is_cold_exactly_if_it_touches_four_times_the_cache_between_two_uses(size_bytes, cache_bytes, held):
    sets = calls.rotation_sets(copy_of(size_bytes), cache_bytes, held)
    others = 2 * size_bytes * max(1, sets - 1)
    assert (others >= 4 * cache_bytes) == calls.is_cold(sets, copy_of(size_bytes), cache_bytes)


def test_one_set_that_overflows_the_cache_four_times_is_cold():
    assert calls.is_cold(1, copy_of(2 * MIB), MIB)


def test_one_set_that_just_fits_four_caches_is_not_cold():
    assert not calls.is_cold(1, copy_of(2 * MIB - 1), MIB)


def test_two_sets_are_no_colder_than_the_one_between():
    assert not calls.is_cold(2, copy_of(MIB), MIB)


def test_a_rotation_of_work_without_bytes_is_not_cold():
    assert not calls.is_cold(1, Work(flops=1), MIB)


def counted(seconds_per_set):
    """A maker of numbered sets, and a clock that each of them moves."""
    made = itertools.count()
    now = [0.0]

    def make():
        now[0] += seconds_per_set
        return (next(made),)

    return make, lambda: now[0]


def told_of(count, seconds_per_set):
    """What is told while so many sets are made that take so long, beside how many were made."""
    make, clock = counted(seconds_per_set)
    told = []
    # So many of 4 MiB go through the cache four times; one does where the cache is as small as a quarter of it.
    facts = DeviceFacts("cpu", "a processor", last_level_cache_bytes=(count - 1) * MIB or MIB, memory_bytes=PLENTY)
    device = SimpleNamespace(facts=lambda: facts, free_bytes=lambda: PLENTY, host_s=clock)
    request = Request(Work(read_bytes=4 * MIB), 1.0, Timed(print, make), cache="rotate")
    sets = []
    assert calls.fill(sets, request, device, ALONE, told.append)
    assert sets == [(index,) for index in range(count)]
    return told


@pytest.mark.parametrize("seconds_per_set", [0.0, 0.09, 60.0])
def test_as_many_sets_are_made_as_asked_for_however_long_that_takes(seconds_per_set):
    told_of(100, seconds_per_set)


def test_who_waits_long_for_sets_is_told_once_how_long_and_what_is_faster():
    assert told_of(1000, 0.5) == [
        "make_args took 10 s for 21 of the 1000 sets of arguments to rotate through: about 500 s for all; let it "
        "return parts of one allocation, or use cache='flush', which takes one set"
    ]


@pytest.mark.parametrize(("count", "seconds_per_set"), [(1, 60.0), (10, 1.0)])
def test_nothing_is_told_of_sets_that_are_made_in_ten_seconds_or_when_all_are_made(count, seconds_per_set):
    assert told_of(count, seconds_per_set) == []


@pytest.mark.parametrize(
    ("given_arguments", "expected"),
    [((1, 2), (1, 2)), ([1, 2], (1, 2)), (None, ()), (1, (1,)), ("ab", ("ab",)), ((), ())],
)
def test_arguments_become_a_tuple(given_arguments, expected):
    assert expected == as_tuple(given_arguments)


def test_a_tensor_is_one_argument():
    tensor = torch.zeros(3)
    assert as_tuple(tensor)[0] is tensor


@pytest.mark.parametrize("architecture", ["gfx940", "gfx942", "gfx942:sramecc+:xnack-", "gfx950"])
def test_an_infinity_cache_counts_as_the_last_level(architecture):
    assert last_level_cache(4 * MIB, architecture) == 256 * MIB


@pytest.mark.parametrize("architecture", ["gfx90a", "gfx1100", "gfx9420", "sm_90", ""])
def test_other_architectures_have_the_cache_that_they_report(architecture):
    assert last_level_cache(8 * MIB, architecture) == 8 * MIB


def test_a_larger_cache_than_the_infinity_cache_stays():
    assert last_level_cache(512 * MIB, "gfx942") == 512 * MIB


@pytest.mark.parametrize(("architecture", "size_bytes"), [("sm_90", 64 * MIB), ("gfx942", 256 * MIB)])
def test_an_unknown_cache_is_assumed_large(architecture, size_bytes):
    assert last_level_cache(0, architecture) == size_bytes
