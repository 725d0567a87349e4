"""Which algorithm was used: lines as the sources of NCCL and RCCL print them, and what the variables force."""

import pytest

from pytest_roofline.distributed.algorithms import Algorithm, told

MIB = 2**20


def logged(*lines):
    """A log as it comes: host, process, thread and device stand before every line."""
    return "\n".join(f"node-0:309:309 [0] NCCL INFO {line}" for line in lines)


@pytest.mark.parametrize(
    ("line", "name", "protocol"),
    [
        # 2.20 to 2.22, and RCCL: src/enqueue.cc, "%ld Bytes -> Algo %d proto %d time %f".
        ("1048576 Bytes -> Algo 1 proto 2 time 12.300000", "RING", "SIMPLE"),
        ("1048576 Bytes -> Algo 0 proto 0 time 12.300000", "TREE", "LL"),
        ("1048576 Bytes -> Algo 5 proto 1 time 12.300000", "NVLS_TREE", "LL128"),
        # 2.23: with the operation.
        ("AllReduce: 1048576 Bytes -> Algo 4 proto 2 time 2860.208008", "NVLS", "SIMPLE"),
        # From 2.24 on: by name, with the channels.
        ("AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}", "RING", "LL128"),
        ("AllReduce: 1048576 Bytes -> Algo COLLNET_DIRECT proto SIMPLE channel{Lo..Hi}={0..0}", "COLLNET_DIRECT",
         "SIMPLE"),
        # From 2.27 on, in symmetric memory.
        ("AllReduce [Symmetric]: 1048576 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1",
         "AllReduce_AGxLL_R", None),
    ],
)  # fmt: skip
def test_the_log_tells(line, name, protocol):
    assert Algorithm(name, protocol, "log") == told({}, logged(line), "all_reduce", MIB, 8)


def test_the_log_counts_all_ranks_parts_before_2_24():
    log = logged("AllGather: 8388608 Bytes -> Algo 1 proto 2 time 12.3")
    assert told({}, log, "all_gather", 8 * MIB, 8) == Algorithm("RING", "SIMPLE", "log")
    assert told({}, log, "all_gather", 64 * MIB, 8) is None


@pytest.mark.parametrize(("operation", "function"), [("all_gather", "AllGather"), ("reduce_scatter", "ReduceScatter")])
def test_the_log_counts_one_ranks_part_from_2_24_on(operation, function):
    log = logged(f"{function}: 1048576 Bytes -> Algo PAT proto SIMPLE channel{{Lo..Hi}}={{0..7}}")
    assert told({}, log, operation, 8 * MIB, 8) == Algorithm("PAT", "SIMPLE", "log")
    assert told({}, log, operation, MIB, 8) is None


def test_a_line_of_another_operation_or_size_tells_nothing():
    log = logged(
        "Broadcast:    32768 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}",
        "AllReduce: 32768 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..3}",
    )
    assert told({}, log, "broadcast", 32768, 2) == Algorithm("RING", "SIMPLE", "log")
    assert told({}, log, "broadcast", 65536, 2) is None


def test_the_last_line_of_a_size_counts():
    log = logged(
        "AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}",
        "AllReduce: 1048576 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..7}",
        "comm 0x5 rank 0 nranks 8 - Destroy COMPLETE",
    )
    assert told({}, log, "all_reduce", MIB, 8) == Algorithm("NVLS", "SIMPLE", "log")


def test_a_number_that_is_not_known_is_no_name():
    log = logged("1048576 Bytes -> Algo 9 proto 2 time 12.3")
    assert told({}, log, "all_reduce", MIB, 8) == Algorithm(None, "SIMPLE", "log")


@pytest.mark.parametrize("operation", ["all_to_all", "all_to_all_v", "gather", "scatter", "send_recv"])
def test_what_is_made_of_sends_has_no_algorithm(operation):
    log = logged("1048576 Bytes -> Algo 1 proto 2 time 12.3")
    assert told({"NCCL_ALGO": "Ring"}, log, operation, MIB, 8) is None


@pytest.mark.parametrize(
    ("environ", "name", "protocol"),
    [
        ({"NCCL_ALGO": "Ring"}, "RING", None),
        ({"NCCL_ALGO": "ring", "NCCL_PROTO": "simple"}, "RING", "SIMPLE"),
        ({"NCCL_ALGO": "NVLSTree"}, "NVLS_TREE", None),
        ({"NCCL_PROTO": "^LL128,LL"}, None, "SIMPLE"),
        # The example of src/graph/tuning.cc, and one that is about another operation.
        ({"NCCL_ALGO": "ring,collnetdirect;allreduce:tree;broadcast:ring"}, "TREE", None),
        ({"NCCL_ALGO": "ring;broadcast:tree"}, "RING", None),
    ],
)
def test_what_is_forced_is_known_without_a_log(environ, name, protocol):
    assert Algorithm(name, protocol, "environment") == told(environ, "", "all_reduce", MIB, 8)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NCCL_ALGO": ""},
        {"NCCL_ALGO": "Ring,Tree"},
        {"NCCL_ALGO": "^Tree"},
        {"NCCL_ALGO": "Quick"},
        {"NCCL_PROTO": "allreduce:LL,Simple"},
        {"NCCL_ALGO": "broadcast:ring"},
    ],
)
def test_what_leaves_a_choice_tells_nothing(environ):
    assert told(environ, "", "all_reduce", MIB, 8) is None


def test_an_algorithm_that_an_operation_does_not_have_is_not_forced_on_it():
    assert told({"NCCL_ALGO": "Tree"}, "", "all_gather", MIB, 8) is None


def test_the_log_goes_before_what_was_asked_for():
    log = logged("AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}")
    assert told({"NCCL_ALGO": "NVLS"}, log, "all_reduce", MIB, 8) == Algorithm("RING", "SIMPLE", "log")


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather"])
def test_gloo_has_rings_whatever_nccl_is_forced_to(operation):
    found = told({"NCCL_ALGO": "Tree"}, "", operation, MIB, 4, backend="gloo")
    assert found == Algorithm("RING", None, "source")


@pytest.mark.parametrize(("operation", "backend"), [("reduce", "gloo"), ("all_to_all", "gloo"), ("all_reduce", "mpi")])
def test_of_other_libraries_nothing_is_known(operation, backend):
    assert told({"NCCL_ALGO": "Ring"}, "", operation, MIB, 4, backend=backend) is None
