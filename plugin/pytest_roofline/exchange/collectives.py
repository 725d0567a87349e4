"""How nccl-tests and rccl-tests count: sizes, factors, types, and whether time and bandwidths of a row agree.

Formulas: `GetCollByteCount` and `GetBw` of every file under src/ of both repositories, and doc/PERFORMANCE.md.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ..core.keys import Scalar, Timing
from ..core.work import MOST, Work
from .records import Reading
from .refusing import Printed

# Bytes of an element, and the name under which it stands in keys, by what the tests print.
DTYPES = {
    "int8": (1, "int8"), "char": (1, "int8"), "uint8": (1, "uint8"),
    "int32": (4, "int32"), "int": (4, "int32"), "uint32": (4, "uint32"),
    "int64": (8, "int64"), "uint64": (8, "uint64"),
    "half": (2, "fp16"), "float": (4, "fp32"), "double": (8, "fp64"), "bfloat16": (2, "bf16"),
    "f8e4m3": (1, "fp8_e4m3"), "f8e5m2": (1, "fp8_e5m2"), "fp8_e4m3": (1, "fp8_e4m3"), "fp8_e5m2": (1, "fp8_e5m2"),
}  # fmt: skip
REDUCTIONS = ("sum", "prod", "max", "min", "avg", "mulsum")
NO_REDUCTION = ("none", "")


@dataclass(frozen=True, slots=True)
class Operation:
    """One of the tests.

    Args:
        name: ours.
        parts: the size that is printed counts the parts of all ranks; else the count of one.
        factor: the bus bandwidth as a multiple of the algorithm bandwidth, among n ranks.
        reduces: whether a reduction stands in its rows; None where either may.
        rooted: whether a root of 0 or more does.
    """

    name: str
    parts: bool
    factor: Callable[[int], Fraction]
    reduces: bool | None
    rooted: bool


def _share(ranks: int) -> Fraction:
    return Fraction(ranks - 1, ranks)


def _twice(ranks: int) -> Fraction:
    return Fraction(2 * (ranks - 1), ranks)


def _one(_: int) -> Fraction:
    return Fraction(1)


# By the binary without `_perf` (alltoall_perf) and by the name in rccl-tests' JSON (AlltoAll), both in lower case.
OPERATIONS = {
    "allreduce": Operation("all_reduce", False, _twice, True, False),
    "allgather": Operation("all_gather", True, _share, False, False),
    "reducescatter": Operation("reduce_scatter", True, _share, True, False),
    "alltoall": Operation("all_to_all", True, _share, False, False),
    "alltoallv": Operation("all_to_all_v", True, _share, False, False),
    "broadcast": Operation("broadcast", False, _one, False, True),
    "reduce": Operation("reduce", False, _one, True, True),
    "gather": Operation("gather", True, _share, False, True),
    "scatter": Operation("scatter", True, _share, False, True),
    "sendrecv": Operation("send_recv", False, _one, None, False),
    "hypercube": Operation("hypercube", True, _one, False, False),
}
NAMES = tuple(operation.name for operation in OPERATIONS.values())


def operation_of(program: str) -> Operation | None:
    """The operation of a binary (`./build/all_reduce_perf_mpi`) or of a name (`all_reduce`, `AllReduce`)."""
    name = re.split(r"[/\\]", program)[-1].split("_perf")[0].removesuffix(".exe")
    return OPERATIONS.get(name.replace("_", "").lower())


@dataclass(frozen=True, slots=True)
class Row:
    """What stands in front of the times: bytes, elements, their type, the reduction (or none) and the root (or -1)."""

    size_bytes: int
    count: int | None
    dtype: str
    redop: str
    root: int | None

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype][0]

    def trouble(self, operation: Operation, ranks: int) -> str:
        """Why a row cannot be one of this operation among so many ranks; empty where it can."""
        if self.dtype not in DTYPES:
            return f"type {self.dtype!r}; expected one of {', '.join(DTYPES)}"
        if self.redop not in (*REDUCTIONS, *NO_REDUCTION):
            return f"reduction {self.redop!r}; expected one of {', '.join(REDUCTIONS)} or none"
        if operation.reduces is not None and (self.redop in REDUCTIONS) != operation.reduces:
            return f"reduction {self.redop!r} for {operation.name}; expected {'one' if operation.reduces else 'none'}"
        if self.root is not None and (self.root >= 0) != operation.rooted:
            return f"root {self.root} for {operation.name}; expected {'a rank' if operation.rooted else '-1'}"
        if self.root is not None and self.root >= ranks:
            return f"root {self.root} among {ranks} ranks"
        return self._size_trouble(operation, ranks)

    def _size_trouble(self, operation: Operation, ranks: int) -> str:
        if self.size_bytes > MOST // 2:
            return f"{self.size_bytes} bytes; expected less than {MOST // 2}"
        if self.count is None or operation.name == "all_to_all_v":
            return ""
        expected = self.count * self.element_bytes * (ranks if operation.parts else 1)
        if self.size_bytes == expected:
            return ""
        return f"{self.count} elements of {self.dtype} make {expected} bytes for {operation.name} among {ranks} ranks"

    def work(self, operation: Operation, ranks: int) -> Work:
        """The bytes of one call: S, and S times the factor, in whole bytes, halves up."""
        size_bytes = self.size_bytes
        if operation.name == "hypercube":
            # It prints the bytes of all n parts, and divides those of the n - 1 that arrive by the time.
            size_bytes = size_bytes // ranks * (ranks - 1)
        busbw_bytes = int(size_bytes * operation.factor(ranks) + Fraction(1, 2))
        return Work(algbw_bytes=size_bytes, busbw_bytes=busbw_bytes, calls=0 if size_bytes else 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """How a test was run.

    Args:
        ranks: in the group that is reported.
        devices: of all ranks together.
        extra: what of the way of running belongs into the key, where it is not the default.
    """

    ranks: int
    devices: int
    iterations: int
    warmup_iterations: int
    timing: Timing
    extra: dict[str, Scalar]


@dataclass(frozen=True, slots=True)
class Times:
    """One half of a row: microseconds, GB/s, and how many elements were wrong (None: not checked)."""

    place: str
    time_us: Printed
    algbw: Printed
    busbw: Printed
    wrong: float | None

    def trouble(self, work: Work) -> str:
        """How time, size and bandwidths disagree by more than they were rounded; empty where they agree."""
        for name, rate, amount in (("algbw", self.algbw, work.algbw_bytes), ("busbw", self.busbw, work.busbw_bytes)):
            low, high = _rates(amount, self.time_us)
            if not rate.within(low, high):
                if not self.time_us.value:
                    return f"{name} is {rate.value:g} GB/s {self.place}, but the time is 0 us; expected one above zero"
                return (
                    f"{name} is {rate.value:g} GB/s {self.place}, but {amount} bytes in {self.time_us.value:g} us are "
                    f"{amount / self.time_us.value / 1e3:.6g} GB/s"
                )
        if not work.algbw_bytes:
            return ""
        factor = work.busbw_bytes / work.algbw_bytes
        if not self.busbw.within(self.algbw.low * factor, self.algbw.high * factor):
            return f"busbw is {self.busbw.value:g} GB/s {self.place}; expected {factor:.6g} times {self.algbw.value:g}"
        return ""


def _rates(amount: int, time_us: Printed) -> tuple[float, float]:
    """The slowest and the fastest rate, in GB/s, of bytes in a time that was rounded."""
    fastest = amount / time_us.low / 1e3 if time_us.low > 0 else float("inf")
    return amount / time_us.high / 1e3, fastest if amount else 0.0


def reading(
    tool: str, operation: Operation, row: Row, times: Times, setting: Setting, line: int, checked: bool | None
) -> Reading:
    """One half of a row as a reading.

    Args:
        tool: prefix of the benchmark.
        operation: of the test.
        row: what was measured.
        times: what came out.
        setting: how it was run.
        line: in the file.
        checked: whether the data were found right; None where nobody looked.
    """
    work = row.work(operation, setting.ranks)
    parameters: dict[str, Scalar] = {"size_bytes": row.size_bytes, "dtype": DTYPES[row.dtype][1]}
    if row.redop in REDUCTIONS:
        parameters["redop"] = row.redop
    if row.root is not None and row.root >= 0:
        parameters["root"] = row.root
    return Reading(
        benchmark=f"{tool}.{operation.name}",
        parameters=parameters | {"place": times.place} | setting.extra,
        metric=work.metric,
        statistic="mean",
        work=work,
        seconds=(times.time_us.value * 1e-6,),
        line=line,
        iterations=setting.iterations,
        warmup_iterations=setting.warmup_iterations,
        timing=setting.timing,
        devices=setting.devices,
        verified=checked,
        invalid=_wrong(times.wrong),
    )


def _wrong(count: float | None) -> str:
    return f"{count:g} elements were wrong in the tool's own check" if count else ""
