"""The ten collectives of torch.distributed over 2, 4, 6 and 8 ranks, from 1 KiB as far as memory allows.

Over Gloo on CPUs, NCCL on NVIDIA's and RCCL on AMD's accelerators. Sizes, algbw and busbw are counted as the nccl-tests
do, and like them every call uses the same buffers, one after the other without waiting; `isolated` waits for all ranks
before each call. Time is that of the slowest rank.
"""

import pytest
import torch
import torch.distributed as dist

from pytest_roofline import Timed, Work, format_amount, size_label, usable_cores
from roofline_kernels.collective_layout import IN_PLACE, actual_bytes
from roofline_kernels.collective_limits import (
    LARGEST_PUBLISHED_BYTES,
    ODD_SIZES_BYTES,
    POWERS_BYTES,
    SIZES_BYTES,
    memory_needed,
    unsupported,
)
from roofline_kernels.collectives import Collective
from roofline_kernels.work import collective_bytes

KIB, MIB = 2**10, 2**20
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PLACES = {False: "out_of_place", True: "in_place"}
WORLD_SIZES = (2, 4, 6, 8)
# Ranks that may share fewer cores than they are.
MOST_SHARING = 6
# Each a power of four, and of 64, times 1 KiB.
FOURS_BYTES = POWERS_BYTES[::2]
FEW_BYTES = POWERS_BYTES[::6]
# Where figures of nccl-tests on eight accelerators are published.
PUBLISHED_BYTES = 8 * 1024 * MIB
# What a CPU can do in the time of a quick run; links of accelerators are not full below a gigabyte.
QUICK_MOST_BYTES = 2**40 if torch.cuda.is_available() else 64 * MIB
# Thousands of calls fit in less than the usual second.
SMALL_BYTES, SMALL_BUDGET_S = 4 * MIB, 0.3
# Of published whole-program times: decimal megabytes.
JOB_SIZES_BYTES = tuple(
    size * 1_000_000 for size in (1, 10, 100, 1000, 5000, 10_000, 15_000, 50_000, 75_000, 100_000)
)
JOB_SIZES_BYTES += (LARGEST_PUBLISHED_BYTES,)
# The largest of them that a night measures; and what a program may take that moves more than a gigabyte.
NIGHTLY_JOB_BYTES, LONG_JOB_TIMEOUT_S = 10_000_000_000, 900.0


def _cases(operation):
    """Every case of an operation: all sizes in fp32, a few in other types and in the other place."""
    sizes = (
        SIZES_BYTES
        if operation == "all_reduce"
        else sorted((*FOURS_BYTES, *ODD_SIZES_BYTES, PUBLISHED_BYTES))
    )
    first, *others = IN_PLACE[operation]
    variants = [("fp32", first, sizes), *((dtype, first, FEW_BYTES) for dtype in ("bf16", "fp16"))]
    variants += [("fp32", place, (*FEW_BYTES, PUBLISHED_BYTES)) for place in others]
    for world_size in WORLD_SIZES:
        for dtype, place, sizes_bytes in variants:
            plain = (dtype, place) == ("fp32", first)
            for size_bytes in sizes_bytes:
                yield (
                    world_size,
                    size_bytes,
                    dtype,
                    place,
                    _marks(operation, world_size, size_bytes, plain),
                )


def _marks(operation, world_size, size_bytes, plain):
    """The tier, the budget, and whether it belongs to the small set from which baselines are recorded by default."""
    if operation == "all_reduce":
        quick = FOURS_BYTES if world_size == 2 else (4 * KIB, MIB, 16 * MIB, 1024 * MIB)
        gated = (KIB, MIB, 64 * MIB)
    else:
        quick = (16 * KIB, 4 * MIB, 1024 * MIB) if world_size == 2 else ()
        gated = (4 * MIB,)
    runs = plain and size_bytes in quick and size_bytes <= QUICK_MOST_BYTES
    gate = plain and world_size == 2 and size_bytes in gated
    budget = SMALL_BUDGET_S if size_bytes <= SMALL_BYTES else None
    return pytest.mark.roofline(tier="quick" if runs else "nightly", gate=gate, budget=budget)


def sweep(operation):
    """Parametrise a test with all that there is of an operation: `2ranks-1KiB-fp32`."""
    both = len(IN_PLACE[operation]) > 1
    cases = []
    for world_size, size_bytes, dtype, place, marks in _cases(operation):
        values = [world_size, size_bytes, dtype] + [PLACES[place]] * both
        test_id = "-".join((f"{world_size}ranks", size_label(size_bytes), *values[2:]))
        cases.append(pytest.param(*values, id=test_id, marks=marks))
    return pytest.mark.parametrize(["world_size", "size_bytes", "dtype"] + ["place"] * both, cases)


def collective(rank, operation, size_bytes, dtype, in_place, members=None):
    """What a rank times: one collective among all ranks, or among `members`; others of the world do nothing."""
    group = rank.group if members is None else rank.subgroup(members)
    if group is None:
        return Timed(_nothing, make_args=tuple)
    one = Collective(operation, size_bytes, DTYPES[dtype], group, rank.device, in_place=in_place)
    return Timed(one.call, one.make, one.verify, one.refill, one.as_timed)


def _nothing():
    pass


def _measure(
    roofline,
    distributed,
    operation,
    world_size,
    size_bytes,
    dtype,
    place=None,
    timing="pipelined",
    backend=None,
):
    in_place = IN_PLACE[operation][0] if place is None else place == PLACES[True]
    _require(roofline, distributed, operation, world_size, size_bytes, dtype, in_place, backend)
    roofline.measure_ranks(
        distributed,
        collective,
        operation,
        size_bytes,
        dtype,
        in_place,
        world_size=world_size,
        work=_work(operation, size_bytes, dtype, world_size),
        timing=timing,
        backend=backend,
        collective=operation,
    )


def _work(operation, size_bytes, dtype, ranks):
    actual = actual_bytes(operation, size_bytes, DTYPES[dtype].itemsize, ranks)
    return Work(**collective_bytes(operation, actual, ranks))


def _require(
    roofline, distributed, operation, world_size, size_bytes, dtype, in_place, backend=None
):
    """Skip what cannot run here: too few devices, no such operation in the backend, too little memory."""
    if reason := distributed.available(world_size) or _too_few_cores(roofline, world_size):
        roofline.skip_for_hardware(reason)
    if reason := unsupported(
        operation, backend or distributed.backends[0], DTYPES[dtype], in_place=in_place
    ):
        pytest.skip(reason)
    need = memory_needed(
        operation, size_bytes, DTYPES[dtype].itemsize, world_size, in_place=in_place
    )
    # Ranks on a CPU take theirs from the same memory.
    sharing = world_size if roofline.device.type == "cpu" else 1
    free = distributed.free_bytes(world_size)
    if need * sharing > free:
        whose = f"{world_size} ranks of one memory" if sharing > 1 else "every rank"
        roofline.skip_for_hardware(
            f"needs {format_amount(need * sharing)} for {whose}, found {format_amount(free)}"
        )


def _too_few_cores(roofline, world_size):
    """Why a CPU has no use for so many ranks; up to six run on any, labelled where they share its cores."""
    cores = usable_cores()
    shared = roofline.device.type == "cpu" and world_size > max(MOST_SHARING, cores)
    return f"needs {world_size} cores, found {cores}" if shared else ""


@sweep("all_reduce")
def test_all_reduce(roofline, distributed, world_size, size_bytes, dtype):
    """The sum over all ranks, in every rank, in place: S is one rank's buffer, busbw = S/t · 2(n-1)/n."""
    _measure(roofline, distributed, "all_reduce", world_size, size_bytes, dtype)


@sweep("all_gather")
def test_all_gather(roofline, distributed, world_size, size_bytes, dtype, place):
    """Every rank's part in every rank: S is all n parts together, busbw = S/t · (n-1)/n."""
    _measure(roofline, distributed, "all_gather", world_size, size_bytes, dtype, place)


@sweep("reduce_scatter")
def test_reduce_scatter(roofline, distributed, world_size, size_bytes, dtype, place):
    """A share of the sum in every rank: S is all n shares together, busbw = S/t · (n-1)/n."""
    _measure(roofline, distributed, "reduce_scatter", world_size, size_bytes, dtype, place)


@sweep("all_to_all")
def test_all_to_all(roofline, distributed, world_size, size_bytes, dtype):
    """A part from every rank to every rank: S is the n parts that one rank sends, busbw = S/t · (n-1)/n."""
    _measure(roofline, distributed, "all_to_all", world_size, size_bytes, dtype)


@sweep("all_to_all_v")
def test_all_to_all_v(roofline, distributed, world_size, size_bytes, dtype):
    """Parts of 1 to n units from every rank to every rank: S is the most that one sends, busbw = S/t · (n-1)/n."""
    _measure(roofline, distributed, "all_to_all_v", world_size, size_bytes, dtype)


@sweep("broadcast")
def test_broadcast(roofline, distributed, world_size, size_bytes, dtype):
    """One rank's buffer to every rank: S is that buffer, busbw = S/t."""
    _measure(roofline, distributed, "broadcast", world_size, size_bytes, dtype)


@sweep("reduce")
def test_reduce(roofline, distributed, world_size, size_bytes, dtype):
    """The sum over all ranks, in one rank, in place: S is one rank's buffer, busbw = S/t."""
    _measure(roofline, distributed, "reduce", world_size, size_bytes, dtype)


@sweep("gather")
def test_gather(roofline, distributed, world_size, size_bytes, dtype, place):
    """Every rank's part in one rank: S is all n parts together, busbw = S/t · (n-1)/n."""
    _measure(roofline, distributed, "gather", world_size, size_bytes, dtype, place)


@sweep("scatter")
def test_scatter(roofline, distributed, world_size, size_bytes, dtype, place):
    """One rank's n parts, one to every rank: S is all n parts together, busbw = S/t · (n-1)/n."""
    _measure(roofline, distributed, "scatter", world_size, size_bytes, dtype, place)


@sweep("send_recv")
def test_send_recv(roofline, distributed, world_size, size_bytes, dtype):
    """Every rank sends to the next and receives from the one before: S is one buffer, busbw = S/t."""
    _measure(roofline, distributed, "send_recv", world_size, size_bytes, dtype)


@pytest.mark.parametrize(
    "size_bytes", [pytest.param(size, id=size_label(size)) for size in (KIB, MIB)]
)
@pytest.mark.parametrize("world_size", [pytest.param(2, id="2ranks")])
@pytest.mark.roofline(budget=SMALL_BUDGET_S)
def test_all_reduce_isolated(roofline, distributed, world_size, size_bytes):
    """One all_reduce at a time, all ranks waiting for each other before it: busbw = S/t · 2(n-1)/n."""
    _measure(roofline, distributed, "all_reduce", world_size, size_bytes, "fp32", timing="isolated")


@pytest.mark.parametrize("size_bytes", [pytest.param(4 * MIB, id="4MiB")])
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "broadcast"])
@pytest.mark.parametrize("world_size", [pytest.param(4, id="4ranks")])
def test_subgroup(roofline, distributed, world_size, operation, size_bytes):
    """Among every other rank of a world: busbw by the number of ranks in the sub-group, others idle."""
    members = list(range(1, world_size, 2))
    in_place = IN_PLACE[operation][0]
    _require(roofline, distributed, operation, world_size, size_bytes, "fp32", in_place)
    roofline.measure_ranks(
        distributed,
        collective,
        operation,
        size_bytes,
        "fp32",
        in_place,
        members,
        world_size=world_size,
        work=_work(operation, size_bytes, "fp32", len(members)),
        timing="pipelined",
    )


@pytest.mark.parametrize("size_bytes", [pytest.param(4 * MIB, id="4MiB")])
@pytest.mark.parametrize("world_size", [pytest.param(2, id="2ranks")])
@pytest.mark.roofline(tier="nightly", mpi=True)
def test_all_reduce_mpi(roofline, distributed, world_size, size_bytes):
    """The sum over all ranks by torch's MPI backend, host buffers: busbw = S/t · 2(n-1)/n."""
    if "mpi" not in distributed.backends:
        pytest.skip("needs torch's MPI backend, found a torch that is built without it")
    _measure(roofline, distributed, "all_reduce", world_size, size_bytes, "fp32", backend="mpi")


def job(rank, size_bytes):
    """A program that sums one buffer over all ranks, once."""
    buffer = torch.ones(size_bytes // 4, device=rank.device)
    dist.all_reduce(buffer)
    assert float(buffer[-1]) == rank.size


def _job(world_size, size_bytes):
    quick = (world_size, size_bytes) == (2, JOB_SIZES_BYTES[0])
    tier = "quick" if quick else "nightly" if size_bytes <= NIGHTLY_JOB_BYTES else "full"
    test_id = f"{world_size}ranks-{size_bytes // 1_000_000}MB"
    return pytest.param(world_size, size_bytes, id=test_id, marks=pytest.mark.roofline(tier=tier))


@pytest.mark.parametrize(
    ("world_size", "size_bytes"),
    [_job(n, size_bytes) for n in WORLD_SIZES for size_bytes in JOB_SIZES_BYTES],
)
def test_all_reduce_job(roofline, distributed, world_size, size_bytes):
    """A whole program, from the start of its processes to their end, that sums one buffer; and that sum, steadily."""
    _require(roofline, distributed, "all_reduce", world_size, size_bytes, "fp32", True)
    work = _work("all_reduce", size_bytes, "fp32", world_size)
    timeout = LONG_JOB_TIMEOUT_S if size_bytes > 10**9 else None
    roofline.measure_ranks(
        distributed,
        collective,
        "all_reduce",
        size_bytes,
        "fp32",
        True,
        world_size=world_size,
        work=work,
        name="steady",
        timing="pipelined",
        budget=SMALL_BUDGET_S,
        timeout=timeout,
    )
    roofline.measure_job(
        distributed, job, size_bytes, world_size=world_size, work=work, timeout=timeout
    )
