"""What a published figure says in our terms: benchmark, parameters, metric and unit, with the conversion spelled out.

Sources disagree by factors of two in what a byte is, and by 7 % in what a gigabyte is. Each rule says what its source
does, by what its number is multiplied, and in what it differs from our measurement: by engine, direction, operation,
type, size, place or statistic. One difference, and a limit does not gate.
"""

import re
from collections.abc import Callable

from copies import host_link, limit_of_copy_engine, limit_of_rocm, local_copy
from figures import Figure
from groups import collective
from meaning import Found
from peers import peer
from streams import dcgm, elementwise, only_read, stream

from pytest_roofline.core.errors import BadInput

_NO_PRODUCT = "no test of ours multiplies matrices of such shapes by itself"
_RULES: tuple[tuple[str, Callable[[Figure], Found] | str], ...] = (
    (r"h2d_d2h_pinned_payload_GBps_min", limit_of_copy_engine),
    (r"h2d_d2h_(payload|bidir_sum)_GBps_min", limit_of_rocm),
    (r"(h2d|d2h)_(pinned_payload_GBps|pinned_payload_GiBps|sm_copy_payload_GBps)", host_link),
    (r"d2d_copy_traffic_Gi?Bps|device_local_copy_payload_GBps", local_copy),
    (r"stream_[a-z]+_traffic_GBps(_min)?", stream),
    (r"dram_read_GBps", only_read),
    (r"dcgm_dram_bw_GBps(_min)?", dcgm),
    (r"elementwise_traffic_GBps(_CACHE_RESIDENT)?", elementwise),
    (r"p2p_.*_GBps(_min)?", peer),
    (
        r"(all_\w+|broadcast|reduce\w*|non_allreduce)_(algbw|busbw|wirebw_nvls)_GBps(_min)?",
        collective,
    ),
    (r"all_reduce_time_us", collective),
    (r"matmul_bf16_max_TFLOPS", _NO_PRODUCT),
    (r"l2_read_GBps", "no test of ours reads from a cache"),
    (r"d2d_copy_(ce|sm)", "whether payload or traffic is counted is not stated"),
    (
        r"torch_copy_payload_GBps_\w+",
        "the same curve as in the document mi300x-memcpy, which is in with all its sizes",
    ),
    (
        r"a2a_per_link_payload_GBps_min",
        "no test of ours copies between all pairs at once and counts a single link",
    ),
    (
        r"h2d_under_bidir_payload_GBps",
        "one way while the other runs is a figure of memcpy_both_ways, no measurement",
    ),
    (
        r"dram_bw_GBps",
        "counted by the hardware's own counters, in a kernel of another intensity than any of ours",
    ),
    (r"spatter_stream_GBps|rvs_mem_test11_GBps", "what the tool counts is not stated"),
    (r"host_device_latency_ns", "no test of ours follows pointers in the host's memory"),
)


def meanings(figure: Figure) -> Found:
    """A published figure in our terms: one meaning for each of our measurements that it speaks of.

    Returns:
        The meanings; or, as text, why it speaks of none.

    Raises:
        BadInput: no rule knows its metric, or what it says of the size.
    """
    rule = next((rule for pattern, rule in _RULES if re.fullmatch(pattern, figure.metric)), None)
    if rule is None:
        text = "which no rule knows; expected one of conventions.py, or a new rule"
        raise BadInput(f"metric is {figure.metric!r}, {text}")
    return rule(figure) if callable(rule) else rule
