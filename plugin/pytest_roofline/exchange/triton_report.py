"""The CSV that `triton.testing.perf_report` saves: a row for each point, a column for each line of its plot."""

import csv
import re
from collections.abc import Iterator
from pathlib import PurePath

from ..core.errors import BadFile
from ..core.keys import Scalar
from ..core.work import Work
from .logs import lines
from .records import BadLine, ImportedLog, Reading, Tool, UserFacts, amount, key_of_reading, refuse

TOOL = Tool(
    "triton.testing",
    "rates and times as the benchmark function gave them, most often a median of do_bench; GB is 1e9 bytes; seconds of "
    "a rate are those of 1 GB or 1 TFLOP, since the file has rates only",
)
# By the label of the axis without spaces, dots and slashes: the work that a rate is stored with, or the unit of a time.
_RATES = {
    "gbps": Work(payload_bytes=10**9), "gbs": Work(payload_bytes=10**9), "tbs": Work(payload_bytes=10**12),
    "tflops": Work(flops=10**12), "tflop": Work(flops=10**12), "gflops": Work(flops=10**9),
}  # fmt: skip
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_WHOLE = re.compile(r"\d+(?:\.0+)?")
_COLUMN = re.compile(r"(?P<line>.*\S) \((?P<unit>[^()]+(?:\([^()]*\))?)\)")
_HEADING = re.compile(
    r"\A\s*[^\W\d]\w*(?:,[^,\n\"]+)+\r?\n(?:-?[\d.]+(?:e[+-]?\d+)?,[-\d.e+,naN]+\r?\n)+[-\d.e+,naN]*\s*\Z"
)


def sniff(text: str) -> bool:
    """Return True for a line of names with nothing but numbers below it."""
    return _HEADING.match(text) is not None


def _values(line: str, source: str, number: int) -> list[str]:
    """Return the values between the commas of a line."""
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        refuse(
            source, number, line, f"not a row of a table ({error}); expected values between commas"
        )


def read(text: str, source: str, user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the log of a file, which holds one report.

    The columns at the left are the parameters of a point; each other column is a line of the plot.
    """
    table = [
        (number, _values(line, source, number)) for number, line in lines(text) if line.strip()
    ]
    (_, names), *rows = table
    # A last line without an end may hold half a number.
    cut_number = rows.pop()[0] if rows and not text.endswith("\n") else 0
    if any(len(values) != len(names) for _, values in rows):
        number, values = next(row for row in rows if len(row[1]) != len(names))
        refuse(source, number, ",".join(values), f"{len(values)} columns; expected {len(names)}")
    matches = [_COLUMN.fullmatch(name.strip()) for name in names]
    first_with_unit = next(
        (index for index, match in enumerate(matches) if match and _unit(match["unit"])), None
    )
    # Without a unit in the names, the parameters are the columns of whole numbers at the left.
    fractional_columns = (
        index
        for index in range(len(names))
        if not all(_WHOLE.fullmatch(values[index]) for _, values in rows)
    )
    parameter_count = (
        first_with_unit
        if first_with_unit is not None
        else max(1, next(fractional_columns, len(names) - 1))
    )
    benchmark = (
        f"triton.{PurePath(source).stem}" if source.endswith(".csv") else "triton.perf_report"
    )
    readings: list[Reading] = []
    for index in range(parameter_count, len(names)):
        match = matches[index]
        unit = _unit(match["unit"] if match else "")
        # Triton adds the difference of two lines. Where some columns have a unit, one without is no line.
        if names[index].strip() == "Diff" or (first_with_unit is not None and unit is None):
            continue
        unit = unit or _unit(user_facts.unit)
        if unit is None:
            raise BadFile(
                f"{source}: column {names[index]!r} has no unit, as in files of Triton 2; give it with --unit: "
                "GB/s, TFLOPS, ms, us"
            )
        readings += _readings_of_line(
            rows,
            names[:parameter_count],
            index,
            line=match["line"] if match else names[index].strip(),
            unit=unit,
            benchmark=benchmark,
            source=source,
        )
    return (
        ImportedLog(
            source,
            TOOL,
            tuple(readings),
            left_out=(f"the last line, {cut_number}, since it has no line end and may be cut",)
            if cut_number
            else (),
        ),
    )


def _unit(label: str) -> tuple[str, Work, float] | None:
    """Return metric, work and seconds of a unit, for the label of an axis.

    The seconds are 0 for a rate. None if the label has no known unit. The last brackets of the label count.
    """
    last = (re.findall(r"\(([^()]*)\)", label) or [label])[-1]
    word = re.sub(r"[\s./]", "", last).lower()
    if word in _RATES:
        work = _RATES[word]
        return ("payload_GBps" if work.payload_bytes else "TFLOPS"), work, 0.0
    return ("time_s", Work(calls=1), _TIMES[word]) if word in _TIMES else None


def _readings_of_line(
    rows: list[tuple[int, list[str]]], parameter_names: list[str], column: int, *, line: str,
    unit: tuple[str, Work, float], benchmark: str, source: str,
) -> Iterator[Reading]:  # fmt: skip
    """Yield the points of one line of the plot. An empty cell was not measured.

    Args:
        rows: each with the number of its line in the file.
        parameter_names: of the first columns.
        column: the index of the column that holds the line.
        line: its name.
        unit: as `_unit` returns it.
        benchmark: the name of the benchmark.
        source: the name of the file, for messages.
    """
    metric, work, unit_s = unit
    for number, values in rows:
        if values[column] in ("", "nan"):
            continue
        try:
            value = amount(values[column])
            if not value:
                raise BadLine("0; expected more")
        except BadLine as error:
            refuse(source, number, ",".join(values), str(error))
        parameters: dict[str, Scalar] = {
            # pandas may write a whole number as `4096.0`.
            name.strip(): int(float(text)) if _WHOLE.fullmatch(text) else text
            for name, text in zip(parameter_names, values, strict=False)
        }
        # A rate has no seconds of its own: those of the work in `_RATES` are kept.
        seconds = value * unit_s or 1 / value
        yield Reading(
            key_of_reading(benchmark, parameters | {"line": line}, metric, "median_or_mean", "device"),
            work, (seconds,), f"line {number}", mode="events",
        )  # fmt: skip
