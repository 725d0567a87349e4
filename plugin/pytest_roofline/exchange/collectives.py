"""Counting of nccl-tests and rccl-tests: sizes, factors and types.

Formulas: `GetCollByteCount` and `GetBw` of every file under src/ of both repositories, and doc/PERFORMANCE.md.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ..core.errors import BadFile
from ..core.keys import Scalar, Timing
from ..core.work import Work
from .records import MOST_SHOWN, Reading, UserFacts, key_of_reading, pool_readings

# By the type that the tests print: the bytes of an element, and the name of the type in keys.
DTYPES = {
    "int8": (1, "int8"), "char": (1, "int8"), "uint8": (1, "uint8"),
    "int32": (4, "int32"), "int": (4, "int32"), "uint32": (4, "uint32"),
    "int64": (8, "int64"), "uint64": (8, "uint64"),
    "half": (2, "fp16"), "float": (4, "fp32"), "double": (8, "fp64"), "bfloat16": (2, "bf16"),
    "f8e4m3": (1, "fp8_e4m3"), "f8e5m2": (1, "fp8_e5m2"), "fp8_e4m3": (1, "fp8_e4m3"), "fp8_e5m2": (1, "fp8_e5m2"),
}  # fmt: skip
REDUCTIONS = ("sum", "prod", "max", "min", "avg", "mulsum")
CONVENTION = (
    "size is the tool's S; for all_gather, reduce_scatter and similar operations S is the whole array of all ranks; "
    "time is the mean over successive calls, by the host's clock, and over ranks unless -a was given; GB is 1e9 "
    "bytes; data are checked in separate calls"
)
# Every command that reads logs takes it, and a test as its argument `read`.
DEVICES_ADVICE = "give the number behind the tool: --read=nccl-tests,devices=8"
# The rounding of rates above 1000 GB/s, as a share: they are printed with fewer digits.
ROUNDED = 0.002


@dataclass(frozen=True, slots=True)
class Operation:
    """One of the tests.

    For n ranks busbw is `shares` * (n - 1) / n times algbw; where `shares` is 0, both are equal. `reduces` says whether
    rows name a reduction, None means that they may; `rooted` says whether they name a root.
    """

    name: str
    shares: int
    reduces: bool | None
    rooted: bool

    def factor(self, ranks: int) -> Fraction:
        """Return bus bandwidth as a multiple of algorithm bandwidth.

        They are the busbw and the algbw of an operation. `shares` is 0 where both are equal.
        """
        if not self.shares:
            return Fraction(1)
        return Fraction(self.shares * (ranks - 1), ranks)


# By the name of the binary without underscores and `perf`: `allreduce` for `all_reduce_perf`.
OPERATIONS = {
    "allreduce": Operation("all_reduce", 2, True, False),
    "allgather": Operation("all_gather", 1, False, False),
    "reducescatter": Operation("reduce_scatter", 1, True, False),
    "alltoall": Operation("all_to_all", 1, False, False),
    "alltoallv": Operation("all_to_all_v", 1, False, False),
    "broadcast": Operation("broadcast", 0, False, True),
    "reduce": Operation("reduce", 0, True, True),
    "gather": Operation("gather", 1, False, True),
    "scatter": Operation("scatter", 1, False, True),
    "sendrecv": Operation("send_recv", 0, None, False),
}
NAMES = tuple(operation.name for operation in OPERATIONS.values())


def operation_of(program: str) -> Operation | None:
    """Return the operation of a binary or of a name; None if unknown.

    Examples: `./build/all_reduce_perf_mpi`, `all_reduce`, `AllReduce`.
    """
    *_, file_name = re.split(r"[/\\]", program)
    name, _, _ = file_name.partition("_perf")
    return OPERATIONS.get(name.removesuffix(".exe").replace("_", "").lower())


@dataclass(frozen=True, slots=True)
class CollectiveLine:
    """One half of a row: size in bytes, time, and rates in GB/s.

    A row has a half for each place: out of place, and in place. `root` is -1 where there is none; `wrong` is the number
    of wrong elements, None where the tool did not check.
    """

    where: str
    size_bytes: int
    dtype: str
    redop: str
    root: int
    place: str
    time_us: float
    algbw: float
    busbw: float
    wrong: float | None

    def mismatch_reason(self, operation: Operation, ranks: int) -> str:
        """Return why this is no row of an operation; empty if it is.

        `ranks` is the number of ranks that take part.
        """
        # Type, reduction, root, time and the ratio of the two bandwidths must all be possible for the operation.
        if self.dtype not in DTYPES:
            return f"type {self.dtype!r}; expected one of {', '.join(DTYPES)}"
        if operation.reduces is not None and (self.redop in REDUCTIONS) != operation.reduces:
            return f"reduction {self.redop!r} for {operation.name}; expected {'one' if operation.reduces else 'none'}"
        if (self.root >= 0) != operation.rooted:
            return f"root {self.root} for {operation.name}"
        if not self.time_us and self.algbw:
            return f"algbw is {self.algbw:g} GB/s, but the time is 0 us"
        factor = float(operation.factor(ranks))
        # Rates are printed with two decimals, or as three digits.
        if abs(self.busbw - factor * self.algbw) > 0.006 * (1 + factor) + ROUNDED * self.busbw:
            return f"busbw is {self.busbw:g} GB/s; expected {factor:.6g} times {self.algbw:g}"
        return ""

    def work(self, operation: Operation, ranks: int) -> Work:
        """Return the bytes of one call, as nccl-tests counts them for its two bandwidths.

        algbw counts the size S, busbw S times the factor, rounded to whole bytes.
        """
        return Work(
            algbw_bytes=self.size_bytes,
            busbw_bytes=int(self.size_bytes * operation.factor(ranks) + Fraction(1, 2)),
            calls=0 if self.size_bytes else 1,
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a test.

    `ranks` is their number in the reported group, `devices` their number in all groups; `extra` holds settings that are
    not the default.
    """

    tool: str
    ranks: int
    devices: int
    iterations: int = 1
    warmup_iterations: int = 0
    timing: Timing = "pipelined"
    extra: dict[str, Scalar] = field(default_factory=dict)


def find_operation(
    program: str,
    user_facts: UserFacts,
    hints: Sequence[str],
    rows: Sequence[CollectiveLine],
    ranks: int,
    source: str,
) -> tuple[Operation, str]:
    """Return the operation of the rows, and a note on its origin.

    The file or the user names it. Otherwise it is the only operation that can have all the rows. Where several can, a
    hint decides: a line of the job above the log, or the name of the file, that names one of them.

    Args:
        program: the name of the test's program in the log; empty if the log does not have it.
        user_facts: with the operation that the user names, if any.
        hints: the name of the file, then lines above the log.
        rows: of the table.
        ranks: the number of ranks, on which the ratio of the two bandwidths depends.
        source: the name of the file, for messages.

    Raises:
        BadFile: file and user differ, the name is unknown, or several operations remain.
    """
    of_file, of_user = operation_of(program), operation_of(user_facts.operation or "")
    if of_file and of_user and of_file != of_user:
        raise BadFile(
            f"{source} is a log of {of_file.name}, but operation={of_user.name} was given; expected the same operation"
        )
    if operation := of_file or of_user:
        return operation, ""
    if program:
        raise BadFile(
            f"{source}: {program!r} is an unknown test; expected one of {', '.join(NAMES)}"
        )
    candidates = _candidates(rows, ranks)
    if len(candidates) == 1:
        return candidates[0], ""
    # The hint nearest to the log counts.
    for hint in reversed(hints):
        if (hinted := operation_named_in(hint)) in candidates:
            return (
                hinted,
                f"the log does not name its collective; {hinted.name} follows from {hint.strip()[:MOST_SHOWN]!r}",
            )
    if not candidates:
        raise BadFile(
            f"{source}: no collective of {ranks} ranks has these bus bandwidths; {DEVICES_ADVICE}"
        )
    names = [operation.name for operation in candidates]
    raise BadFile(
        f"{source} does not name its collective; expected one of {', '.join(names)}; "
        f"give the name behind the tool: --read=nccl-tests,operation={names[0]}"
    )


def _candidates(rows: Sequence[CollectiveLine], ranks: int) -> list[Operation]:
    """Return the operations that can have printed all rows: their types, roots and bandwidths fit.

    Rows of all_to_all_v look like those of all_to_all, so it counts only where it is named. A row without bytes fits
    every operation.
    """
    sized_rows = [row for row in rows if row.size_bytes]
    return [
        operation
        for operation in OPERATIONS.values()
        if operation.name != "all_to_all_v"
        and not any(row.mismatch_reason(operation, ranks) for row in sized_rows)
    ]


def operation_named_in(text: str) -> Operation | None:
    """Return the operation that a text names, in any spelling.

    The text is a line of a job, or the name of a file. None if it names no operation, or several.
    """
    *_, file_name = re.split(r"[/\\]", text)
    programs = " ".join(re.findall(r"\w+_perf", text))
    name = programs or file_name
    letters = re.sub(r"[^a-z]", "", name.lower())
    matches = [key for key in OPERATIONS if key in letters]
    # `allreduce` also contains `reduce`, which then does not count.
    longest = [
        key for key in matches if not any(key != longer and key in longer for longer in matches)
    ]
    return OPERATIONS[longest[0]] if len(longest) == 1 else None


def readings_of(
    rows: Sequence[CollectiveLine], operation: Operation, setting: Setting, source: str
) -> tuple[tuple[Reading, ...], tuple[str, ...]]:
    """Return rows as readings, and the reasons for rows left out.

    Raise BadFile for a row that cannot be of the operation.
    """
    readings: list[Reading] = []
    left_out: list[str] = []
    for row in rows:
        if reason := row.mismatch_reason(operation, setting.ranks):
            raise BadFile(f"{source}, {row.where}: {reason}")
        if row.size_bytes and row.time_us:
            readings.append(_reading(row, operation, setting))
        else:
            left_out.append(
                f"{row.where}, {row.place}: {'no time' if row.size_bytes else 'moves nothing'}"
            )
    return pool_readings(readings), tuple(left_out)


def _reading(row: CollectiveLine, operation: Operation, setting: Setting) -> Reading:
    """Return a row as a reading.

    The kind of reduction (`redop`) and the rank that sends or receives (`root`) are in its key where the row has them.
    """
    work = row.work(operation, setting.ranks)
    _, dtype = DTYPES[row.dtype]
    parameters: dict[str, Scalar] = {"size_bytes": row.size_bytes, "dtype": dtype}
    if row.redop in REDUCTIONS:
        parameters["redop"] = row.redop
    if row.root >= 0:
        parameters["root"] = row.root
    return Reading(
        key=key_of_reading(
            f"{setting.tool}.{operation.name}",
            parameters | {"place": row.place} | setting.extra,
            work.metric,
            "mean",
            setting.timing,
        ),
        work=work,
        seconds=(row.time_us * 1e-6,),
        where=row.where,
        iterations=setting.iterations,
        warmup_iterations=setting.warmup_iterations,
        devices=setting.devices,
        verified=None if row.wrong is None else not row.wrong,
        invalid=f"{row.wrong:g} elements were wrong in the tool's own check" if row.wrong else "",
    )
