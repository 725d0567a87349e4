"""Totals of a vendor's profiler, from its CSV files. `nsys stats` and `rocprofv3` write them, of
kernels and copies of some calls.
"""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.errors import BadFile, BadInput
from .shares import CALL

Kind = Literal["kernel", "copy", "size", "range"]
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
# Names of the host's work that rocprof lists among kernels: calls of HIP and HSA, and whole domains.
_HOST = re.compile(
    r"_*hip[A-Z_]\w*|hsa_\w+|roctx\w*|[A-Z]+_(API|DISPATCH)\w*|MEMORY_COPY|MEMORY_ALLOCATION\w*"
)
EXPECTED = (
    "expected the CSV of `nsys stats --format csv` (cuda_gpu_kern_sum, cuda_gpu_mem_time_sum or _size_sum) or "
    "of rocprofv3 (kernel_stats, kernel_trace, memory_copy_stats, memory_copy_trace, marker_api_trace)"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: the total of a name, or in a trace one launch.

    Args:
        kind: of the table.
        name: of the kernel, copy or range.
        amount: seconds, or bytes in a table of sizes.
        count: the number of launches or copies.
        began_ns: when the launch began; None in a table of totals.
    """

    kind: Kind
    name: str
    amount: float
    count: int = 1
    began_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of one test, as a profiler recorded it. Seconds are of all its calls.

    Args:
        kernels_s: the time of all kernels.
        copies_s: the time of all copies.
        launches: the number of kernels.
        kernels: the time and the launches of each kernel by name, the longest first.
        copied_bytes: None where no table has sizes.
        calls: the number of calls that are marked by a range; None where no table has ranges.
    """

    kernels_s: float
    copies_s: float
    launches: int
    kernels: dict[str, tuple[float, int]]
    copied_bytes: float | None
    calls: int | None

    @property
    def seconds(self) -> float:
        """Return the time of kernels and copies, also where they overlap."""
        return self.kernels_s + self.copies_s


# Makes a line of the cells of a row, which are by heading; None for a row that does not count.
Form = Callable[[dict[str, str]], Line | None]


def read_tables(text: str, source: str) -> list[list[Line]]:
    """Return every table of a profiler's text.

    They are tables of kernels, copies, sizes or ranges. Other tables in it are skipped.

    Args:
        text: of the file.
        source: the name of the file in errors.

    Raises:
        BadFile: a line that cannot be read, or no such table at all.
    """
    tables: list[list[Line]] = []
    header: list[str] = []
    # Reads the rows of the present table; None outside of a table that counts.
    form: Form | None = None
    reader = csv.reader(text.removeprefix("\ufeff").splitlines())
    for cells in reader:
        names = [cell.strip().lower() for cell in cells]
        if (new_form := _form(names)) is not None:
            header, form = names, new_form
            tables.append([])
        elif form is not None and len(cells) == len(header):
            try:
                line = form(dict(zip(header, map(str.strip, cells), strict=True)))
            except ValueError as error:
                raise BadFile(
                    f"{source}, line {reader.line_num}: {error}; expected digits with a point, as with LC_ALL=C"
                ) from None
            if line is not None:
                tables[-1].append(line)
        elif form is not None and len(cells) > 1:
            raise BadFile(
                f"{source}, line {reader.line_num} has {len(cells)} cells; expected {len(header)}, as in the heading"
            )
        else:
            form = None
    if not any(tables):
        raise BadFile(f"{source} has no table of kernels or copies; {EXPECTED}")
    return [table for table in tables if table]


def _form(names: Sequence[str]) -> Form | None:
    """Return the function that reads the rows below a heading.

    It is None if the names are no heading, or that of a table that does not count. A table is known
    by its columns, in lower case: first those of rocprofv3, then those of nsys.
    """
    # A trace of rocprofv3, with a row for each launch.
    if {"start_timestamp", "end_timestamp"} <= {*names}:
        columns: dict[str, Kind] = {
            "kernel_name": "kernel",
            "direction": "copy",
            "function": "range",
        }
        return next((_trace(name, kind) for name, kind in columns.items() if name in names), None)
    # Totals of rocprofv3.
    if {"name", "calls", "totaldurationns"} <= {*names}:
        return _stats
    # Totals of nsys: times of kernels and copies, or sizes of copies.
    time, unit = _amount_column(names, _TIME) or ("", "ns")
    if time and "instances" in names and "operation" in names and "category" in names:
        # This table (cuda_api_gpu_sum) also has the calls of the host, which are skipped.
        return lambda row: None if "api" in row["category"].lower() else _line(
            "kernel" if "kernel" in row["category"].lower() else "copy",
            row["operation"], row[time], _SECONDS[unit], row["instances"])  # fmt: skip
    # In a table with a column `source`, the names are those of MPI's calls.
    if time and "instances" in names and "name" in names and "source" not in names:
        return lambda row: _line("kernel", row["name"], row[time], _SECONDS[unit], row["instances"])
    count_column = next((name for name in ("count", "operations") if name in names), "")
    if time and count_column and "operation" in names:
        return lambda row: _line(
            "copy", row["operation"], row[time], _SECONDS[unit], row[count_column]
        )
    size, unit = _amount_column(names, _SIZE) or ("", "b")
    if size and count_column and "operation" in names:
        return lambda row: _line(
            "size", row["operation"], row[size], _BYTES[unit], row[count_column]
        )
    return None


def _amount_column(names: Sequence[str], pattern: re.Pattern[str]) -> tuple[str, str] | None:
    """Return the first column that matches, with its unit."""
    for name in names:
        match = pattern.fullmatch(name)
        if match is not None:
            return name, match["unit"]
    return None


_TIME = re.compile(rf"total time ?\((?P<unit>{'|'.join(_SECONDS)})\)")
_SIZE = re.compile(rf"total ?\((?P<unit>{'|'.join(_BYTES)})\)")


def _line(kind: Kind, name: str, amount: str, unit: float, count: str) -> Line:
    """Return a line from its cells.

    `unit` is the size of the amount's unit.
    """
    return Line(kind, name, float(amount) * unit, int(float(count)))


def _stats(row: dict[str, str]) -> Line | None:
    """Return a line of rocprof's totals; None for work of the host."""
    is_copy = row["name"].startswith("MEMORY_COPY_")
    if not is_copy and _HOST.fullmatch(row["name"]):
        return None
    return _line(
        "copy" if is_copy else "kernel", row["name"], row["totaldurationns"], 1e-9, row["calls"]
    )


def _trace(column: str, kind: Kind) -> Form:
    """Return the function that reads a row of a trace.

    The names stand in a column.
    """

    def launch(row: dict[str, str]) -> Line | None:
        """Return the line of one launch.

        It is None for a range that is no profiled call.
        """
        # A trace of the host's calls has the same headings as one of ranges.
        if kind == "range" and row[column] != CALL:
            return None
        began_ns, ended_ns = float(row["start_timestamp"]), float(row["end_timestamp"])
        return Line(
            kind, row[column], amount=(ended_ns - began_ns) * 1e-9, count=1, began_ns=began_ns
        )

    return launch


def totals(tables: Sequence[Sequence[Line]], source: str) -> Totals:
    """Return the totals of one test from a profiler's tables.

    If a trace has the ranges of the profiled calls, only launches that began within them count.

    Raises:
        BadInput: two tables of one kind, which would count everything twice, or no kernel at all.
    """
    by_kind = _lines_by_kind(tables, source)
    ranges = [
        (call_range.began_ns, call_range.began_ns + call_range.amount * 1e9)
        for call_range in by_kind.get("range", ())
        if call_range.began_ns is not None
    ]
    kernels = _within(by_kind.get("kernel", []), ranges)
    copies = _within(by_kind.get("copy", []), ranges)
    if not kernels and not copies:
        raise BadInput(f"{source} has no kernel or copy of the profiled calls; {EXPECTED}")
    seconds_by_name: dict[str, float] = defaultdict(float)
    launches_by_name: Counter[str] = Counter()
    for line in kernels:
        seconds_by_name[line.name] += line.amount
        launches_by_name[line.name] += line.count
    longest_first = sorted(seconds_by_name, key=lambda name: -seconds_by_name[name])
    return Totals(
        kernels_s=sum(line.amount for line in kernels),
        copies_s=sum(line.amount for line in copies),
        launches=sum(line.count for line in kernels),
        kernels={name: (seconds_by_name[name], launches_by_name[name]) for name in longest_first},
        copied_bytes=sum(line.amount for line in by_kind["size"]) if "size" in by_kind else None,
        calls=len(ranges) or None,
    )


def _lines_by_kind(tables: Sequence[Sequence[Line]], source: str) -> dict[str, list[Line]]:
    """Return the lines of all tables by kind.

    Two tables of one kind are refused (BadInput).
    """
    by_kind: dict[str, list[Line]] = {}
    for table in tables:
        # A table may have kernels and copies.
        for kind in {line.kind for line in table}:
            if kind in by_kind:
                raise BadInput(
                    f"{source} has two tables of one kind ({kind}), which would be counted twice. Name only one table "
                    "of this kind"
                )
            by_kind[kind] = [line for line in table if line.kind == kind]
    return by_kind


def _within(lines: Sequence[Line], ranges: Sequence[tuple[float, float]]) -> list[Line]:
    """Return the lines of launches within a profiled call.

    Those count that began within its range. Totals always count, since they have no time. All lines count if there are
    no ranges.
    """
    if not ranges:
        return list(lines)
    return [
        line
        for line in lines
        if line.began_ns is None
        or any(began_ns <= line.began_ns <= ended_ns for began_ns, ended_ns in ranges)
    ]
