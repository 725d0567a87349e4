"""Collectives on real ranks over Gloo: the right ones pass every check, and no faulty one does."""

import itertools
import zlib

import pytest
import torch

from roofline_kernels import collective_limits as limits
from roofline_kernels.collective_data import TILE, Data, bits, most_ranks
from roofline_kernels.collective_layout import IN_PLACE, SUMMED, actual_bytes, layout, part_elements
from roofline_kernels.collectives import Collective
from roofline_kernels.work import COLLECTIVES

from .forked_ranks import printed_by

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MIB = 2**20
# How many ranks the script's world has; it also has a group of two and one of four.
RANKS = 6
EVERY_PLACE = [(operation, place) for operation, places in IN_PLACE.items() for place in places]
# Faults that an operation can have whatever it does, and what it must have to have the others.
FAULTS = ("no_op", "done_once", "end_missing", "chunks_swapped", "stale_rank")


@pytest.fixture(scope="module")
def answers():
    """What every rank's check said, by case: see `collective_ranks.py`."""
    return printed_by("collective_ranks.py", RANKS)


def of_case(answers, prefix, count):
    """The answers of all cases that begin so; there must be so many."""
    found = {case: given for case, given in answers.items() if case.startswith(prefix)}
    assert len(found) == count
    return found


# Two and four ranks: three sizes in three types; six ranks: one size; and one size beyond the tile on two ranks.
CASES = 2 * 3 * 3 + 3 + 1


@pytest.mark.parametrize(("operation", "place"), EVERY_PLACE)
def test_what_is_done_right_passes(answers, operation, place):
    for case, given in of_case(answers, f"{operation}-{place}-", CASES).items():
        assert all(first and after_refill for first, _, after_refill in given), case


@pytest.mark.parametrize(("operation", "place"), EVERY_PLACE)
def test_what_is_not_done_after_a_refill_is_seen(answers, operation, place):
    for case, given in of_case(answers, f"{operation}-{place}-", CASES).items():
        assert not all(idle for _, idle, _ in given), case


@pytest.mark.parametrize(("operation", "place"), EVERY_PLACE)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(answers, fault, operation, place):
    for case, given in of_case(answers, f"{fault}-{operation}-{place}-", 2).items():
        assert False in given, case


@pytest.mark.parametrize(("operation", "place"), EVERY_PLACE)
def test_a_stale_rank_is_seen_by_another(answers, operation, place):
    sender = 0 if operation in ("broadcast", "scatter") else 1
    for case, given in of_case(answers, f"stale_rank-{operation}-{place}-", 2).items():
        assert False in [answer for rank, answer in enumerate(given) if rank != sender], case


def test_a_place_that_torch_does_not_have_is_refused():
    for operation in ["all_reduce", "broadcast", "all_to_all"]:
        wrong = not IN_PLACE[operation][0]
        with pytest.raises(ValueError) as error:
            Collective(operation, 1024, torch.float32, None, CPU, in_place=wrong)
        assert (
            str(error.value) == f"{operation} {'in' if wrong else 'out of'} place; torch.distributed has only the other"
        )


def test_an_unknown_operation_is_refused():
    with pytest.raises(ValueError, match=r"operation 'allreduce'; expected one of all_reduce, all_gather, "):
        Collective("allreduce", 1024, torch.float32, None, CPU)


def test_the_actual_size_is_that_of_whole_elements_in_every_part():
    for operation, size_bytes, ranks, actual in [
        ("all_reduce", 1023, 6, 1020),
        ("send_recv", 1, 2, 4),
        ("all_gather", 1024, 6, 1008),
        ("reduce_scatter", 1024, 4, 1024),
        ("gather", 1, 8, 32),
        # 256 elements hold 7 units of 1 + 2 + … + 8.
        ("all_to_all_v", 1024, 8, 7 * 36 * 4),
        ("all_to_all_v", 1, 2, 12),
    ]:
        assert actual == actual_bytes(operation, size_bytes, 4, ranks), (operation, size_bytes, ranks, actual)


def test_every_element_that_is_received_is_checked():
    for operation, place in EVERY_PLACE:
        count = part_elements(operation, 4096, 4, 4)
        for rank in range(4):
            plan = layout(operation, count, rank, 4, in_place=place)
            covered = [element for part in plan.received for element in range(part.start, part.start + part.count)]
            # A sum for one rank leaves nothing that is defined in the others.
            expected = 0 if operation == "reduce" and rank else plan.receive_elements
            assert covered == list(range(expected)), (operation, place)


def test_sums_are_exact_in_any_order():
    for ranks, dtype in itertools.product([2, 6, 8, 64], DTYPES):
        data = Data(dtype, CPU, ranks, summed=True)
        parts = torch.empty(ranks, 5_000, dtype=dtype)
        for rank in range(ranks):
            data.fill(parts[rank], rank, iteration=3, first=17)
        for order in (range(ranks), reversed(range(ranks))):
            total = torch.zeros(5_000, dtype=dtype)
            for rank in order:
                total += parts[rank]
            assert torch.equal(total.double(), parts.double().sum(0)), (ranks, dtype)
            assert data.holds_sum(total, iteration=3, first=17), (ranks, dtype)


def test_a_sum_that_cannot_be_exact_is_refused():
    assert most_ranks(torch.bfloat16) == 256
    with pytest.raises(ValueError, match=r"a sum over 257 ranks is not exact in torch.bfloat16; expected at most 256"):
        Data(torch.bfloat16, CPU, 257, summed=True)


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_in_position_rank_and_iteration_differ(dtype, summed):
    data = Data(dtype, CPU, 8, summed=summed)

    def made(rank, iteration, first=0):
        buffer = torch.empty(20_000, dtype=dtype)
        data.fill(buffer, rank, iteration, first)
        return bits(buffer)

    one = made(2, 5)
    for other in (made(3, 5), made(2, 6), made(2, 5, first=1), made(2, 5, first=256)):
        # Of whole numbers between -32 and 32, one in 65 is the same by chance.
        assert (one == other).float().mean() < 0.03


def test_one_wrong_element_is_seen_wherever_it_is():
    for element in [0, 1, TILE - 1, TILE, TILE + 999]:
        for summed in (False, True):
            data = Data(torch.bfloat16, CPU, 2, summed=summed)
            buffer = torch.empty(TILE + 1_000, dtype=torch.bfloat16)
            data.fill(buffer, 1, 4)
            assert data.holds(buffer, 1, 4), element
            bits(buffer)[element] ^= 1
            assert not data.holds(buffer, 1, 4), element


def test_one_wrong_element_of_a_sum_is_seen():
    data = Data(torch.float32, CPU, 2, summed=True)
    parts = torch.empty(2, 3_000)
    for rank in range(2):
        data.fill(parts[rank], rank, 0)
    total = parts.sum(0)
    assert data.holds_sum(total, 0)
    total[2_999] += 1
    assert not data.holds_sum(total, 0)


def test_data_that_are_only_carried_cannot_be_compressed():
    for dtype in DTYPES:
        buffer = torch.empty(100_000, dtype=dtype)
        Data(dtype, CPU, 2, summed=False).fill(buffer, 0, 0)
        raw = buffer.view(torch.uint8).numpy().tobytes()
        assert len(zlib.compress(raw)) > 0.99 * len(raw), dtype


def test_the_ladder_goes_from_a_kibibyte_past_every_accelerators_memory():
    assert (limits.SIZES_BYTES[0], limits.SIZES_BYTES[-1]) == (1024, 256 * 1024 * MIB)
    assert 150_000_000_000 in limits.SIZES_BYTES


def test_odd_sizes_are_whole_elements_and_not_aligned():
    for size_bytes in limits.ODD_SIZES_BYTES:
        assert (size_bytes % 4, size_bytes % 16 != 0) == (0, True), size_bytes


def test_sizes_end_where_the_memory_does():
    few, many = (limits.sizes_bytes(free, "all_gather", 4) for free in (256 * MIB, 1024 * MIB))
    assert max(few) < max(many) < 1024 * MIB
    assert many[: len(few)] == few


def test_what_mpi_lacks_is_named():
    for operation, dtype, place, reason in [
        ("reduce_scatter", torch.float32, False, "needs reduce_scatter, which torch's MPI backend does not have"),
        ("all_reduce", torch.bfloat16, True, "needs bfloat16, which torch's MPI backend does not have"),
        ("all_to_all", torch.float32, True, "torch.distributed has all_to_all out of place only"),
        ("all_reduce", torch.float32, True, None),
    ]:
        assert reason == limits.unsupported(operation, "mpi", dtype, in_place=place)


def test_sums_are_those_that_reduce():
    assert set(SUMMED) == {operation for operation in COLLECTIVES if "reduce" in operation}
