"""Totals of a vendor's profiler, from its CSV files. `nsys stats` and `rocprofv3` write them, of
kernels and copies of some calls.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.errors import BadFile, BadInput
from .shares import CALL

Kind = Literal["kernel", "copy", "size", "range"]
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
# What rocprof lists of the host under the headings of its kernels: calls of HIP and HSA, and whole domains.
_HOST = re.compile(
    r"_*hip[A-Z_]\w*|hsa_\w+|roctx\w*|[A-Z]+_(API|DISPATCH)\w*|MEMORY_COPY|MEMORY_ALLOCATION\w*"
)
EXPECTED = (
    "expected the CSV of `nsys stats --format csv` (cuda_gpu_kern_sum, cuda_gpu_mem_time_sum or _size_sum) or "
    "of rocprofv3 (kernel_stats, kernel_trace, memory_copy_stats, memory_copy_trace, marker_api_trace)"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table. It is a name's total, or of a trace one launch with the time when it
    began.
    """

    kind: Kind
    name: str
    amount: float
    count: int = 1
    began_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of one test, as a profiler saw it. Seconds of all calls, kernels by name with
    their launches, the longest first.

    Args:
        copied_bytes: None where no table tells sizes.
        calls: how many were marked as ours; None where nothing tells.
    """

    kernels_s: float
    copies_s: float
    launches: int
    kernels: dict[str, tuple[float, int]]
    copied_bytes: float | None
    calls: int | None

    @property
    def seconds(self) -> float:
        """Kernels and copies, those that overlap counted each."""
        return self.kernels_s + self.copies_s


# Makes lines of the cells of a row, by heading.
Form = Callable[[dict[str, str]], Line | None]


def read_tables(text: str, source: str) -> list[list[Line]]:
    """Return every table of kernels, copies, sizes or ranges in a text. The text is a profiler's
    output; other tables are passed over.

    Raises:
        BadFile: a line that cannot be read, or no such table at all.
    """
    tables: list[list[Line]] = []
    header: list[str] = []
    form: Form | None = None
    reader = csv.reader(text.removeprefix("\ufeff").splitlines())
    for cells in reader:
        names = [cell.strip().lower() for cell in cells]
        if (heading := _form(names)) is not None:
            header, form = names, heading
            tables.append([])
        elif form is not None and len(cells) == len(header):
            try:
                line = form(dict(zip(header, map(str.strip, cells), strict=True)))
            except ValueError as error:
                raise BadFile(
                    f"{source}, line {reader.line_num}: {error}; expected digits with a point, as with LC_ALL=C"
                ) from None
            tables[-1] += [line] if line is not None else []
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
    """Return the reader of the lines below a heading. None if it heads no table that counts."""
    if {"start_timestamp", "end_timestamp"} <= {*names}:
        columns: dict[str, Kind] = {
            "kernel_name": "kernel",
            "direction": "copy",
            "function": "range",
        }
        return next((_trace(name, kind) for name, kind in columns.items() if name in names), None)
    if {"name", "calls", "totaldurationns"} <= {*names}:
        return _stats
    time, unit = next(
        ((name, match[1]) for name in names if (match := _TIME.fullmatch(name))), ("", "ns")
    )
    if time and "instances" in names and "operation" in names and "category" in names:
        # Beside both, cuda_api_gpu_sum has what the host called.
        return lambda row: None if "api" in row["category"].lower() else _line(
            "kernel" if "kernel" in row["category"].lower() else "copy",
            row["operation"], row[time], _SECONDS[unit], row["instances"])  # fmt: skip
    # With a source, names are those of MPI's calls.
    if time and "instances" in names and "name" in names and "source" not in names:
        return lambda row: _line("kernel", row["name"], row[time], _SECONDS[unit], row["instances"])
    count_column = next((name for name in ("count", "operations") if name in names), "")
    if time and count_column and "operation" in names:
        return lambda row: _line(
            "copy", row["operation"], row[time], _SECONDS[unit], row[count_column]
        )
    size, unit = next(
        ((name, match[1]) for name in names if (match := _SIZE.fullmatch(name))), ("", "b")
    )
    if size and count_column and "operation" in names:
        return lambda row: _line(
            "size", row["operation"], row[size], _BYTES[unit], row[count_column]
        )
    return None


_TIME = re.compile(rf"total time ?\(({'|'.join(_SECONDS)})\)")
_SIZE = re.compile(rf"total ?\(({'|'.join(_BYTES)})\)")


def _line(kind: Kind, name: str, amount: str, unit: float, count: str) -> Line:
    return Line(kind, name, float(amount) * unit, int(float(count)))


def _stats(row: dict[str, str]) -> Line | None:
    """Return a line of rocprof's sums. What the host did is no time of the device."""
    copies = row["name"].startswith("MEMORY_COPY_")
    if not copies and _HOST.fullmatch(row["name"]):
        return None
    return _line(
        "copy" if copies else "kernel", row["name"], row["totaldurationns"], 1e-9, row["calls"]
    )


def _trace(column: str, kind: Kind) -> Form:
    def launch(row: dict[str, str]) -> Line | None:
        # A trace of the host's calls has the headings of our ranges.
        if kind == "range" and row[column] != CALL:
            return None
        began, ended = (float(row[f"{end}_timestamp"]) for end in ("start", "end"))
        return Line(kind, row[column], (ended - began) * 1e-9, 1, began)

    return launch


def totals(tables: Sequence[Sequence[Line]], source: str) -> Totals:
    """Return the sum of one test's tables. If a trace marks our calls, only what began within them
    counts.

    Raises:
        BadInput: two tables of one kind, which would count everything twice, or no kernel at all.
    """
    by_kind: dict[str, list[Line]] = {}
    for table in tables:
        for kind in {line.kind for line in table}:
            if kind in by_kind:
                raise BadInput(
                    f"{source} has two tables of one kind ({kind}), which would be counted twice; name only one of them"
                )
            by_kind[kind] = [line for line in table if line.kind == kind]
    ranges = [
        (call_range.began_ns, call_range.began_ns + call_range.amount * 1e9)
        for call_range in by_kind.get("range", ())
        if call_range.began_ns is not None
    ]
    kernels, copies = (_within(by_kind.get(kind, []), ranges) for kind in ("kernel", "copy"))
    if not kernels and not copies:
        raise BadInput(f"{source} has no kernel or copy of the profiled calls; {EXPECTED}")
    by_name: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for line in kernels:
        by_name[line.name][0] += line.amount
        by_name[line.name][1] += line.count
    longest = sorted(by_name.items(), key=lambda pair: -pair[1][0])
    return Totals(
        kernels_s=sum(line.amount for line in kernels),
        copies_s=sum(line.amount for line in copies),
        launches=sum(line.count for line in kernels),
        kernels={name: (seconds, int(count)) for name, (seconds, count) in longest},
        copied_bytes=sum(line.amount for line in by_kind["size"]) if "size" in by_kind else None,
        calls=len(ranges) or None,
    )


def _within(lines: Sequence[Line], ranges: Sequence[tuple[float, float]]) -> list[Line]:
    """Return the lines that began within a range. Sums all count, and all lines count if nothing is
    marked.
    """
    if not ranges:
        return list(lines)
    return [
        line
        for line in lines
        if line.began_ns is None or any(began <= line.began_ns <= ended for began, ended in ranges)
    ]
