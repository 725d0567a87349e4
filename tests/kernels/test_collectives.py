"""Collectives on real ranks over Gloo: the right ones pass every check, and no faulty one does."""

import itertools
import zlib

import pytest
import torch

from roofline_kernels import collective_limits as limits
from roofline_kernels.collective_data import TILE, Data, bits, most_ranks, poison
from roofline_kernels.collective_layout import IN_PLACE, SUMMED, actual_bytes, layout, part_elements
from roofline_kernels.collectives import Collective
from roofline_kernels.work import COLLECTIVES

from .forked_ranks import printed_by

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MIB = 2**20
EVERY_PLACE = [(operation, place) for operation, places in IN_PLACE.items() for place in places]
# Faults that an operation can have whatever it does; see `collective_ranks.py`.
FAULTS = ("no_op", "done_once", "end_missing", "chunks_swapped", "stale_rank")


@pytest.fixture(scope="module")
def answers():
    """What every rank's check said, by case, in a world of six, a group of two and one of four."""
    return printed_by("collective_ranks.py", 6)


def test_what_is_done_right_passes_and_what_is_not_done_after_a_refill_is_seen(answers):
    for operation, place in EVERY_PLACE:
        cases = {
            case: given
            for case, given in answers.items()
            if case.startswith(f"{operation}-{place}-")
        }
        # Four sizes on two and on four ranks, one on six, and one beyond the tile on two.
        assert len(cases) == 2 * 4 + 1 + 1, operation
        for case, given in cases.items():
            assert all(first and after_refill for first, _, after_refill in given), case
            assert not all(idle for _, idle, _ in given), case


def test_every_fault_is_seen_and_a_stale_rank_by_another(answers):
    faulty = {case: given for case, given in answers.items() if case.count("-") == 3}
    assert [case for case, given in faulty.items() if False not in given] == []
    assert all(
        f"{fault}-{operation}-{place}-2" in faulty
        for fault in FAULTS
        for operation, place in EVERY_PLACE
    )
    assert {
        "wrong_root-reduce-True-4",
        "order_reversed-gather-False-2",
        "neighbour_left_out-all_reduce-True-4",
    } <= {*faulty}
    for operation, place in EVERY_PLACE:
        sender = 0 if operation in ("broadcast", "scatter") else 1
        given = faulty[f"stale_rank-{operation}-{place}-4"]
        assert False in [answer for rank, answer in enumerate(given) if rank != sender], operation


def test_an_operation_and_a_place_that_torch_does_not_have_are_refused():
    for operation in ["all_reduce", "all_to_all"]:
        wrong = not IN_PLACE[operation][0]
        with pytest.raises(ValueError) as error:
            Collective(operation, 1024, torch.float32, None, CPU, in_place=wrong)
        told = (
            f"{operation} is to run {'in' if wrong else 'out of'} place; torch.distributed has it only "
            f"{'out of' if wrong else 'in'} place"
        )
        assert str(error.value) == told
    with pytest.raises(
        ValueError, match=r"operation is 'allreduce'; expected one of all_reduce, all_gather, "
    ):
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
        assert actual == actual_bytes(operation, size_bytes, 4, ranks), (
            operation,
            size_bytes,
            ranks,
        )


def test_every_element_that_is_received_is_checked():
    for (operation, place), rank in itertools.product(EVERY_PLACE, range(4)):
        plan = layout(operation, part_elements(operation, 4096, 4, 4), rank, 4, in_place=place)
        covered = [
            element
            for part in plan.received
            for element in range(part.start, part.start + part.count)
        ]
        # A sum for one rank leaves nothing that is defined in the others.
        expected = 0 if operation == "reduce" and rank else plan.receive_elements
        assert covered == list(range(expected)), (operation, place)


def test_sums_are_exact_in_any_order_or_refused_and_one_wrong_element_is_seen():
    for ranks, dtype in itertools.product([2, 6, 64], DTYPES):
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
        total[4_999] += 1
        assert not data.holds_sum(total, iteration=3, first=17), (ranks, dtype)
    assert most_ranks(torch.bfloat16) == 256
    with pytest.raises(
        ValueError,
        match=r"a sum over 257 ranks is not exact in torch.bfloat16; expected at most 256",
    ):
        Data(torch.bfloat16, CPU, 257, summed=True)


def test_neighbours_in_position_rank_and_iteration_differ():
    for dtype, summed in itertools.product(DTYPES, [False, True]):
        data = Data(dtype, CPU, 8, summed=summed)
        made = []
        for rank, iteration, first in [(2, 5, 0), (3, 5, 0), (2, 6, 0), (2, 5, 1), (2, 5, 256)]:
            buffer = torch.empty(20_000, dtype=dtype)
            data.fill(buffer, rank, iteration, first)
            made.append(bits(buffer))
        # Of whole numbers between -32 and 32, one in 65 is the same by chance.
        assert all((made[0] == other).float().mean() < 0.03 for other in made[1:]), (dtype, summed)


def test_one_wrong_element_is_seen_wherever_it_is_and_poison_is_no_number():
    for element, summed in itertools.product([0, TILE - 1, TILE, TILE + 999], [False, True]):
        data = Data(torch.bfloat16, CPU, 2, summed=summed)
        buffer = torch.empty(TILE + 1_000, dtype=torch.bfloat16)
        data.fill(buffer, 1, 4)
        assert data.holds(buffer, 1, 4), element
        bits(buffer)[element] ^= 1
        assert not data.holds(buffer, 1, 4), element
    buffer = torch.zeros(3)
    poison(buffer)
    assert buffer.isnan().all()


def test_data_that_are_only_carried_cannot_be_compressed():
    for dtype in DTYPES:
        buffer = torch.empty(100_000, dtype=dtype)
        Data(dtype, CPU, 2, summed=False).fill(buffer, 0, 0)
        raw = buffer.view(torch.uint8).numpy().tobytes()
        assert len(zlib.compress(raw)) > 0.99 * len(raw), dtype


def test_the_ladder_goes_from_a_kibibyte_past_every_accelerators_memory_and_ends_where_the_memory_does():
    assert (limits.SIZES_BYTES[0], limits.SIZES_BYTES[-1]) == (1024, 256 * 1024 * MIB)
    assert 150_000_000_000 in limits.SIZES_BYTES
    assert [(size % 4, size % 16 != 0) for size in limits.ODD_SIZES_BYTES] == [(0, True)] * len(
        limits.ODD_SIZES_BYTES
    )
    few, many = (limits.sizes_bytes(free, "all_gather", 4) for free in (256 * MIB, 1024 * MIB))
    assert max(few) < max(many) < 1024 * MIB
    assert many[: len(few)] == few


def test_what_mpi_lacks_is_named_and_sums_are_those_that_reduce():
    for operation, dtype, place, reason in [
        (
            "reduce_scatter",
            torch.float32,
            False,
            "needs reduce_scatter, which torch's MPI backend does not have",
        ),
        (
            "all_reduce",
            torch.bfloat16,
            True,
            "needs bfloat16, which torch's MPI backend does not have",
        ),
        ("all_to_all", torch.float32, True, "torch.distributed has all_to_all out of place only"),
        ("all_reduce", torch.float32, True, None),
    ]:
        assert reason == limits.unsupported(operation, "mpi", dtype, in_place=place)
    assert set(SUMMED) == {operation for operation in COLLECTIVES if "reduce" in operation}
