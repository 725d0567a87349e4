"""Which algorithm and protocol a library used for a collective, where that can be known.

NCCL and RCCL tell it in their log, or were forced to one by the environment; Gloo has one algorithm only.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

# By number, as NCCL 2.20 to 2.23 print them (src/init.cc: ncclAlgoStr, ncclProtoStr); RCCL has the same tables.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_to_all_v",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
)
# NCCL's name of an operation. torch sends all others as groups of sends and receives, which have no algorithm.
_FUNCTIONS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
# What is there at all for an operation (src/graph/tuning.cc, ncclTopoTuneModel).
_THERE_IS = {
    "all_reduce": ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE"),
    "all_gather": ("RING", "COLLNET_DIRECT", "NVLS", "PAT"),
    "reduce_scatter": ("RING", "COLLNET_DIRECT", "NVLS", "PAT"),
    "broadcast": ("RING",),
    "reduce": ("RING",),
}
# Of both of these, the count in the log is that of one rank since NCCL 2.24, and of all before.
_PER_RANK = ("all_gather", "reduce_scatter")

# Gloo's gloo/allreduce.cc takes the ring unless told otherwise, which torch does not; gloo/allgather.cc has no other.
_GLOO_RINGS = ("all_reduce", "all_gather")

# NCCL 2.20 to 2.22 and RCCL: `1048576 Bytes -> Algo 1 proto 2 time 12.3`; 2.23 with the operation before it.
_NUMBERED = re.compile(r"(?:(\w+): +)?(\d+) Bytes -> Algo (\d+) proto (\d+) time")
# From 2.24 on: `AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}`.
_NAMED = re.compile(r"(\w+): +(\d+) Bytes -> Algo ([A-Za-z_]+) proto (\w+)")
# From 2.27 on, for buffers in symmetric memory: `AllReduce [Symmetric]: 1024 Bytes -> Kernel AllReduce_AGxLL_R …`.
_SYMMETRIC = re.compile(r"(\w+) \[Symmetric\]: +(\d+) Bytes -> Kernel (\w+)")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How a library did a collective.

    Args:
        name: `RING`, `TREE`, `NVLS` …, or a symmetric kernel's name; None where only the protocol is known.
        protocol: `LL`, `LL128` or `SIMPLE`; None where it is not known, or there is none.
        told_by: the library's log; the variables NCCL_ALGO and NCCL_PROTO, which force it; or the library's source,
            where that has no other.
    """

    name: str | None
    protocol: str | None
    told_by: Literal["log", "environment", "source"]


def told(
    environ: Mapping[str, str], log_text: str, operation: str, size_bytes: int, ranks: int, backend: str = "nccl"
) -> Algorithm | None:
    """Which algorithm and protocol were used, by the log where it says so, else by what was forced; None is unknown.

    Args:
        environ: the variables of the ranks.
        log_text: what rank 0 printed under NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=TUNING; empty without.
        operation: as in `roofline_kernels.work.COLLECTIVES`.
        size_bytes: S of the collective, see there.
        ranks: ranks in its group.
        backend: of torch.distributed; `nccl` is RCCL as well.
    """
    if backend != "nccl":
        return Algorithm("RING", None, "source") if backend == "gloo" and operation in _GLOO_RINGS else None
    function = _FUNCTIONS.get(operation)
    if function is None:
        return None
    # Of several lines for the same size the last is the one that was in use when the measurement ended.
    found = [line for line in map(_read, log_text.splitlines()) if line is not None]
    for name, logged_bytes, algorithm, counts_all in reversed(found):
        parts = ranks if operation in _PER_RANK and not counts_all else 1
        if name in (function, None) and logged_bytes * parts == size_bytes:
            return algorithm
    return _forced(environ, operation, function)


def _read(line: str) -> tuple[str | None, int, Algorithm, bool] | None:
    """The operation (None where the line has none), bytes, algorithm, and whether the bytes are those of all ranks."""
    if match := _NUMBERED.search(line):
        algorithm, protocol = _nth(_ALGORITHMS, match[3]), _nth(_PROTOCOLS, match[4])
        return _function(match[1]), int(match[2]), Algorithm(algorithm, protocol, "log"), True
    if match := _NAMED.search(line):
        return match[1], int(match[2]), Algorithm(_known(match[3], _ALGORITHMS), match[4].upper(), "log"), False
    if match := _SYMMETRIC.search(line):
        return match[1], int(match[2]), Algorithm(match[3], None, "log"), False
    return None


def _function(word: str | None) -> str | None:
    """The operation that a line names; before 2.23 the word before the bytes is none."""
    return word if word in _FUNCTIONS.values() else None


def _nth(names: tuple[str, ...], number: str) -> str | None:
    return names[int(number)] if int(number) < len(names) else None


def _forced(environ: Mapping[str, str], operation: str, function: str) -> Algorithm | None:
    """What NCCL_ALGO and NCCL_PROTO leave only one of."""
    name = _only(environ.get("NCCL_ALGO", ""), function, _ALGORITHMS)
    protocol = _only(environ.get("NCCL_PROTO", ""), function, _PROTOCOLS)
    # What an operation does not have cannot be forced on it: NCCL falls back to another, or refuses.
    name = name if name in _THERE_IS[operation] else None
    return None if name is None and protocol is None else Algorithm(name, protocol, "environment")


def _only(setting: str, function: str, names: tuple[str, ...]) -> str | None:
    """The one name that a setting allows for a function; None where it allows several, or is not understood.

    `ring`, `^tree`, or from NCCL 2.24 on `ring;allreduce:tree,collnetdirect` (src/graph/tuning.cc, parseList).
    """
    allowed = None
    for index, token in enumerate(setting.split(";")):
        prefix, colon, listed = token.rpartition(":")
        if colon and prefix.lower() != function.lower():
            continue
        if not colon and index:
            return None
        allowed = _allowed(listed, names)
    return allowed[0] if allowed is not None and len(allowed) == 1 else None


def _allowed(listed: str, names: tuple[str, ...]) -> list[str]:
    words: Iterable[str] = listed.removeprefix("^").split(",")
    known = [_known(word.strip(), names) for word in words]
    return [name for name in names if (name in known) != listed.startswith("^")]


def _known(word: str, names: tuple[str, ...]) -> str | None:
    """The name as the log of today has it: the variable says NVLSTree, the log NVLS_TREE."""
    plain = word.replace("_", "").upper()
    return next((name for name in names if name.replace("_", "") == plain), None)
