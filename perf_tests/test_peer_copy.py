"""Copies from one memory to another one's: between GPUs of one process, and between processes.

Between GPUs by PyTorch's `copy_`: every pair one way and both ways at once, from one to all and from all to one; and
by a Triton kernel of the source that writes into the other's memory.
Between two ranks through memory that they share, by Gloo's send and receive, and by MPI's: these run on CPUs too.
"""

import itertools

import pytest
import torch

import pytest_roofline
from pytest_roofline import (
    Timed,
    Work,
    format_amount,
    link_between,
    option_value,
    size_label,
)
from roofline_kernels import memcpy, messages, mpi_copy, peer_copy, shared_copy
from roofline_kernels.messages import Message
from roofline_kernels.work import link_copy_bytes

HOST = torch.device("cpu")
# Asks the driver and makes no context.
GPUS = torch.cuda.device_count()
# Of the full matrix: one whose time is nearly all latency, one whose time is nearly all bandwidth.
SMALL, LARGE = 2**15, 2**29
DECADES = memcpy.DECADE_SIZES_BYTES
ONE_WAY, BOTH_WAYS = "auto_payload_GBps", "bidir_sum_auto_payload_GBps"


def _tier(pair, size_bytes):
    """The matrix always, the sweep of the pairs of GPU 0 at more sizes by night, everything in the tier `full`."""
    if size_bytes in (SMALL, LARGE):
        return "quick"
    if pair[0] == 0:
        return "quick" if size_bytes in DECADES else "nightly"
    return "full"


def _param(pair, size_bytes, tier):
    return pytest.param(*pair, size_bytes, id="-".join([*map(str, pair), size_label(size_bytes)]),
                        marks=pytest.mark.roofline(tier=tier))  # fmt: skip


def _pairs(ways):
    sizes = memcpy.SIZES_BYTES if GPUS > 1 else (LARGE,)
    params = [_param(pair, size, _tier(pair, size)) for pair in ways for size in sizes]
    return pytest.mark.parametrize(("source", "target", "size_bytes"), params)


def _ends(name):
    """One GPU with all others: GPU 0 over the decades, every one at the large size of the matrix."""
    params = [
        _param((index,), size, "quick" if index == 0 or size == LARGE else "full")
        for index in range(max(1, GPUS))
        for size in (DECADES if GPUS > 2 else (LARGE,))
    ]
    return pytest.mark.parametrize((name, "size_bytes"), params)


def _message(pattern, size_bytes):
    # A round trip is there for its latency.
    quick = size_bytes in DECADES if pattern == "one_way" else size_bytes == DECADES[0]
    mark = pytest.mark.roofline(tier="quick" if quick else "nightly")
    return pytest.param(pattern, size_bytes, id=f"{pattern}-{size_label(size_bytes)}", marks=mark)


messages_of_all_sizes = pytest.mark.parametrize(
    ("pattern", "size_bytes"),
    [
        _message(pattern, size_bytes)
        for pattern in ("one_way", "round_trip")
        for size_bytes in memcpy.SIZES_BYTES
    ],
)


@pytest.fixture
def need_gpus(roofline):
    """Skips where this run measures fewer GPUs than a copy needs: one GPU never copies to itself instead."""

    def need(count):
        if roofline.device.type != "cuda" and count <= GPUS:
            roofline.skip_for_hardware(
                f"needs {count} GPUs, and {roofline.device.type} is measured"
            )
        if count > GPUS:
            roofline.skip_for_hardware(f"needs {count} GPUs, found {GPUS}")

    return need


def _leave_to_another_pair(config, pair, size_bytes):
    """Skips all but the first pair of GPU 0 of a link class, unless it belongs to the matrix or all was asked for."""
    if size_bytes in (SMALL, LARGE) or (option_value(config, "tier") or "quick") == "full":
        return
    kind = link_between(*pair).kind
    first = next(target for target in range(1, GPUS) if link_between(0, target).kind == kind)
    if pair != (0, first):
        pytest.skip(
            f"the sweep over {kind} measures the pair 0 to {first}; the tier full measures all pairs at all sizes"
        )


def _require_memory(roofline, ways, devices, size_bytes):
    """Skips where one of the GPUs has no room for its ends of the ways."""
    for index in devices:
        ends = sum(index in way for way in ways)
        # A pair's both ends are announced, and each GPU holds one.
        need, free = ends * memcpy.memory_needed(size_bytes) // 2, torch.cuda.mem_get_info(index)[0]
        if need > free:
            roofline.skip_for_hardware(
                f"needs {format_amount(need)} on cuda:{index}, found {format_amount(free)}"
            )


def _measure(roofline, ways, size_bytes, metric, copy=None):
    """Copies along all ways at once, timed on every GPU that they touch."""
    devices = list(dict.fromkeys(index for way in ways for index in way))
    _require_memory(roofline, ways, devices, size_bytes)
    on_gpus = peer_copy.on_gpus(ways)
    alone = len(ways) == 1
    roofline.measure(
        memcpy.copy if alone and copy is None else peer_copy.AtOnce(on_gpus, copy),
        make_args=peer_copy.PeerBuffers(size_bytes, on_gpus).make,
        work=Work(
            **(
                link_copy_bytes(size_bytes)
                if alone
                else peer_copy.work_at_once(size_bytes, len(ways))
            )
        ),
        cache="rotate",
        verify=peer_copy.same,
        metric=metric,
        devices=[f"cuda:{index}" for index in devices],
    )


@_pairs(peer_copy.ordered_pairs(GPUS))
def test_peer_copy_one_way(roofline, need_gpus, pytestconfig, source, target, size_bytes):
    """From one GPU to another; `staged` in the hardware key where they cannot reach each other's memory."""
    need_gpus(2)
    _leave_to_another_pair(pytestconfig, (source, target), size_bytes)
    _measure(roofline, [(source, target)], size_bytes, ONE_WAY)


@pytest.mark.parametrize(
    ("source", "target", "size_bytes"),
    [
        _param(pair, size, "full" if pair[0] else "nightly")
        for pair in peer_copy.ordered_pairs(GPUS)
        for size in (DECADES if GPUS > 1 and pair == (0, 1) else (LARGE,))
    ],
)
def test_peer_copy_one_way_triton(roofline, need_gpus, source, target, size_bytes):
    """From one GPU to another by the source's multiprocessors, beside PyTorch's copy."""
    need_gpus(2)
    pytest.importorskip("triton", reason="needs Triton, found none")
    if not torch.cuda.can_device_access_peer(source, target):
        roofline.skip_for_hardware(f"needs memory of cuda:{target} that cuda:{source} can address")
    for way in peer_copy.on_gpus(peer_copy.both_ways(source, target)):
        # PyTorch's first copy lets each address the other's memory.
        memcpy.copy(*memcpy.CopyBuffers(4096, *way).pair())
    _measure(roofline, [(source, target)], size_bytes, "sm_payload_GBps", copy=memcpy.triton_copy())


@_pairs([(first, second) for first, second in peer_copy.ordered_pairs(GPUS) if first < second])
def test_peer_copy_both_ways(roofline, need_gpus, pytestconfig, source, target, size_bytes):
    """From each of two GPUs to the other, at once: what arrives at both, added up."""
    need_gpus(2)
    _leave_to_another_pair(pytestconfig, (source, target), size_bytes)
    _measure(roofline, peer_copy.both_ways(source, target), size_bytes, BOTH_WAYS)


@_ends("source")
def test_peer_copy_one_to_all(roofline, need_gpus, source, size_bytes):
    """From one GPU to all others at once, to each its own data; the report has it beside the sum of the links."""
    need_gpus(3)
    _measure(roofline, peer_copy.one_to_all(source, GPUS), size_bytes, ONE_WAY)


@_ends("target")
def test_peer_copy_all_to_one(roofline, need_gpus, target, size_bytes):
    """From all other GPUs to one at once."""
    need_gpus(3)
    _measure(roofline, peer_copy.all_to_one(target, GPUS), size_bytes, ONE_WAY)


@pytest.mark.roofline(needs="siblings", budget=0.3)
def test_peer_copy_siblings(roofline):
    """From every GPU to every other, one way and one at a time: each link against the others of its class."""
    roofline.measure_siblings(
        memcpy.copy,
        make_args=lambda source, target: peer_copy.PeerBuffers(LARGE, [(source, target)]).make,
        among=[
            (f"cuda:{source}", f"cuda:{target}") for source, target in peer_copy.ordered_pairs(GPUS)
        ],
        work=Work(**link_copy_bytes(LARGE)),
        verify=peer_copy.same,
        metric=ONE_WAY,
        needs_bytes=memcpy.memory_needed(LARGE) // 2,
    )


@pytest.fixture(scope="module")
def awareness():
    """Whether MPI takes device buffers, once that was found out."""
    return []


@pytest.fixture
def gpu_aware_mpi(distributed, awareness):
    """Asks once whether MPI takes device buffers, in ranks that may die of it."""

    def ask():
        if not awareness:
            # A launch that gives worlds of one is a failure, not a lack of awareness.
            distributed.run(mpi_size)
            awareness.append(pytest_roofline.gpu_awareness(distributed.run))
        return awareness[0]

    return ask


def mpi_size(rank):
    """On a rank: whether MPI's world is the one that was asked for."""
    return pytest_roofline.mpi_world(rank.size).size


def _timed(exchange, rank, size_bytes, device, returns):
    """Messages of one size, timed on two ranks by the host's clock, which waits for them; each has data of its own."""
    numbers = itertools.count()
    return Timed(
        exchange,
        make_args=lambda: (Message(int(rank), size_bytes, device, next(numbers), returns=returns),),
        verify=Message.arrived,
        refill=Message.fill,
        on_host=True,
    )


def through_shared_memory(rank, size_bytes, returns):
    """On a rank: messages copied into memory that both ranks share, and out of it."""
    memory = shared_copy.SharedMemory.between(
        int(rank), size_bytes, lambda name: torch.distributed.broadcast(name, 0)
    )
    return _timed(
        lambda message: memory.exchange(int(rank), message), rank, size_bytes, HOST, returns
    )


def by_gloo(rank, size_bytes, returns):
    """On a rank: messages by send and receive of torch.distributed."""
    return _timed(
        lambda message: messages.exchange(int(rank), message), rank, size_bytes, HOST, returns
    )


def by_mpi(rank, size_bytes, returns, memory):
    """On a rank that mpirun started: messages by MPI, from the memory of the host or of the device, or staged."""
    comm = pytest_roofline.mpi_world(rank.size)
    device = HOST if memory == "host" else rank.device
    if memory != "staged":
        return _timed(
            lambda message: mpi_copy.exchange(comm, int(rank), message),
            rank,
            size_bytes,
            device,
            returns,
        )
    host = mpi_copy.staging(size_bytes, device)
    return _timed(
        lambda message: mpi_copy.exchange_staged(comm, int(rank), message, host),
        rank,
        size_bytes,
        device,
        returns,
    )


def _measure_ranks(roofline, distributed, fn, size_bytes, pattern, *args, metric):
    returns = pattern == "round_trip"
    roofline.require_memory(messages.memory_needed(size_bytes), where="host")
    work = Work(**messages.work_of(size_bytes, returns=returns))
    return roofline.measure_ranks(
        distributed, fn, size_bytes, returns, *args, work=work, cache="rotate", metric=metric
    )


@pytest.mark.roofline(needs="cpu", ranks=2)
@messages_of_all_sizes
def test_peer_copy_shared_memory(roofline, distributed, pattern, size_bytes):
    """From one process to another through memory that they share: copied in, then out."""
    if not shared_copy.supported():
        roofline.skip_for_hardware("needs anonymous shared memory, which only Linux has")
    if len({facts.host for facts in distributed.facts[:2]}) > 1:
        roofline.skip_for_hardware("needs two ranks on one node, found the ranks on two nodes")
    _measure_ranks(
        roofline,
        distributed,
        through_shared_memory,
        size_bytes,
        pattern,
        metric="shared_memory_payload_GBps",
    )


@pytest.mark.roofline(needs="cpu", ranks=2)
@messages_of_all_sizes
def test_peer_copy_gloo(roofline, distributed, pattern, size_bytes):
    """From one process to another by Gloo's send and receive."""
    _measure_ranks(roofline, distributed, by_gloo, size_bytes, pattern, metric="gloo_payload_GBps")


@pytest.mark.roofline(mpi=True, ranks=2)
@pytest.mark.parametrize("memory", ["host", "device", "staged"])
@messages_of_all_sizes
def test_peer_copy_mpi(roofline, distributed, gpu_aware_mpi, memory, pattern, size_bytes):
    """From one process to another by MPI's send and receive; `staged` goes through the host's memory by hand."""
    if memory != "host" and roofline.device.type != "cuda":
        roofline.skip_for_hardware(f"needs 2 GPUs, found {roofline.device.type}")
    if memory == "device":
        awareness = gpu_aware_mpi()
        if not awareness.aware:
            pytest.skip(f"needs an MPI that takes device buffers: {awareness.reason}")
    _measure_ranks(
        roofline, distributed, by_mpi, size_bytes, pattern, memory, metric="mpi_payload_GBps"
    )
