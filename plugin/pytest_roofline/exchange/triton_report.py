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
# By the label of the axis without spaces, dots and slashes: the work that a rate is kept of, or the unit of a time.
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
    """Whether a text looks like such a file: names, and below them numbers and nothing else."""
    return _HEADING.match(text) is not None


def _values(line: str, source: str, number: int) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        refuse(
            source, number, line, f"not a row of a table ({error}); expected values between commas"
        )


def read(text: str, source: str, given: UserFacts) -> tuple[ImportedLog, ...]:
    """The one report in a file."""
    table = [
        (number, _values(line, source, number)) for number, line in lines(text) if line.strip()
    ]
    (_, names), *rows = table
    # A last line without an end may hold half a number.
    cut = rows.pop()[0] if rows and not text.endswith("\n") else 0
    if any(len(values) != len(names) for _, values in rows):
        number, values = next(row for row in rows if len(row[1]) != len(names))
        refuse(source, number, ",".join(values), f"{len(values)} columns; expected {len(names)}")
    shown = [_COLUMN.fullmatch(name.strip()) for name in names]
    told = next((at for at, match in enumerate(shown) if match and _unit(match["unit"])), None)
    # Without a unit in the names, what is swept are the columns of whole numbers at the left.
    whole = (
        at
        for at in range(len(names))
        if not all(_WHOLE.fullmatch(values[at]) for _, values in rows)
    )
    swept = told if told is not None else max(1, next(whole, len(names) - 1))
    benchmark = (
        f"triton.{PurePath(source).stem}" if source.endswith(".csv") else "triton.perf_report"
    )
    readings: list[Reading] = []
    for at in range(swept, len(names)):
        match = shown[at]
        unit = _unit(match["unit"] if match else "")
        if names[at].strip() == "Diff" or (told is not None and unit is None):
            continue
        unit = unit or _unit(given.unit)
        if unit is None:
            raise BadFile(
                f"{source}: column {names[at]!r} has no unit, as in files of Triton 2; give it with --unit: "
                "GB/s, TFLOPS, ms, us"
            )
        line = match["line"] if match else names[at].strip()
        readings += _line(rows, names[:swept], at, line, unit, benchmark, source)
    return (
        ImportedLog(
            source,
            TOOL,
            tuple(readings),
            left_out=(f"the last line, {cut}, since it has no line end and may be cut",)
            if cut
            else (),
        ),
    )


def _unit(label: str) -> tuple[str, Work, float] | None:
    """Metric, work and the factor to seconds or work, by what an axis is called; None where it tells no unit."""
    last = (re.findall(r"\(([^()]*)\)", label) or [label])[-1]
    word = re.sub(r"[\s./]", "", last).lower()
    if word in _RATES:
        work = _RATES[word]
        return ("payload_GBps" if work.payload_bytes else "TFLOPS"), work, 0.0
    return ("time_s", Work(calls=1), _TIMES[word]) if word in _TIMES else None


def _line(
    rows: list[tuple[int, list[str]]], swept: list[str], at: int, line: str, unit: tuple[str, Work, float],
    benchmark: str, source: str,
) -> Iterator[Reading]:  # fmt: skip
    """The points of one line; one that is empty was not measured."""
    metric, work, factor = unit
    for number, values in rows:
        if values[at] in ("", "nan"):
            continue
        try:
            value = amount(values[at])
            if not value:
                raise BadLine("0; expected more")
        except BadLine as error:
            refuse(source, number, ",".join(values), str(error))
        points: dict[str, Scalar] = {
            # A whole number, which pandas writes as `4096.0`, is one.
            name.strip(): int(float(text)) if _WHOLE.fullmatch(text) else text
            for name, text in zip(swept, values, strict=False)
        }
        seconds = value * factor or 1 / value
        yield Reading(
            key_of_reading(benchmark, points | {"line": line}, metric, "median_or_mean", "device"),
            work, (seconds,), f"line {number}", mode="events",
        )  # fmt: skip
