"""The CSV of BabelStream (`--csv`), versions 3 to 6: `src/main.cpp` and the models' own lines before the table."""

import re
from dataclasses import dataclass, field, replace

from ..core.errors import BadFile
from ..core.keys import Scalar
from ..core.work import Work
from .records import Given, Imported, Reading, Refused, Rule, amount, pooled, scan, whole

CONVENTION = (
    "bytes read and written; {unit} is {factor} bytes; the host's clock around each call until it is done, the first "
    "call left out; best, mean and slowest apart, of which the file's bandwidth is the best"
)
UNITS = {
    "mbytes": 1e6, "mibytes": 2.0**20, "gbytes": 1e9, "gibytes": 2.0**30,
    "MB": 1e6, "MiB": 2.0**20, "GB": 1e9, "GiB": 2.0**30, "TB": 1e12, "TiB": 2.0**40,
}  # fmt: skip
# Arrays read and written by each kernel: `src/benchmark.h`.
KERNELS = {"Copy": (1, 1), "Mul": (1, 1), "Add": (2, 1), "Triad": (2, 1), "Dot": (2, 0), "Nstream": (3, 1)}
_DTYPES = {4: "fp32", 8: "fp64"}
_COLUMNS = 8
_TABLE = re.compile(r"function,num_times,n_elements,sizeof,max_(\w+)_per_sec,min_runtime,max_runtime,avg_runtime")
_ROW = re.compile(r"[A-Z][a-z]+,\d.*")
# Of version 5.0, timed once each.
_PHASE = re.compile(r"(?:Init|Read),\d+,\d+,[^,]+,[^,]+")
_DEVICE = re.compile(r'Using (?:CUDA|HIP|OpenCL|SYCL|HC) device:? (\S.*?) *|CUDA Device \d+: "(.*)" \d+ SMs.*')
_DRIVER = re.compile(r"(?:CUDA )?Driver: (\S+) *")
_WRONG = re.compile(r"Validation failed on .*|FAILED validation of .*")


@dataclass(slots=True)
class _Table:
    """One run: what stood before its table, and the rows."""

    unit: str = ""
    readings: list[Reading] = field(default_factory=list)
    product: str | None = None
    driver: str | None = None
    wrong: bool = False


class _Tables(list[_Table]):
    """The runs of a file, one behind the other."""

    def head(self) -> _Table:
        """The run that a line before a table belongs to."""
        if not self or self[-1].readings:
            self.append(_Table())
        return self[-1]


def _take_device(tables: _Tables, _: int, match: re.Match[str]) -> None:
    tables.head().product = match[1] or match[2]


def _take_driver(tables: _Tables, _: int, match: re.Match[str]) -> None:
    tables.head().driver = match[1]


def _skip(_: _Tables, __: int, ___: re.Match[str]) -> None:
    """No row of a kernel."""


def _take_wrong(tables: _Tables, _: int, __: re.Match[str]) -> None:
    # Some versions say it before the table, some behind it.
    (tables[-1] if tables else tables.head()).wrong = True


def _take_columns(tables: _Tables, _: int, match: re.Match[str]) -> None:
    unit = match[1]
    if unit not in UNITS:
        raise Refused(f"unit {unit!r}; expected one of {', '.join(UNITS)}")
    tables.head().unit = unit


def _take_row(tables: _Tables, number: int, match: re.Match[str]) -> None:
    values = match[0].split(",")
    known = bool(tables and tables[-1].unit)
    if not known or len(values) != _COLUMNS:
        expected = _COLUMNS if known else "the line that names them above"
        raise Refused(f"{len(values)} columns; expected {expected}")
    table, kernel = tables[-1], values[0]
    if kernel not in KERNELS:
        raise Refused(f"kernel {kernel!r}; expected one of {', '.join(KERNELS)}")
    calls, elements, element_bytes = (whole(value) for value in values[1:4])
    _, *times_s = (amount(value) for value in values[4:])
    if calls < 2 or not elements or element_bytes not in _DTYPES or not all(times_s):
        raise Refused("a count, a size or a time that cannot be; expected two calls or more of fp32 or fp64")
    array_bytes = elements * element_bytes
    work = Work(read_bytes=KERNELS[kernel][0] * array_bytes, write_bytes=KERNELS[kernel][1] * array_bytes)
    best, slowest, mean = times_s
    parameters: dict[str, Scalar] = {"size_bytes": array_bytes, "dtype": _DTYPES[element_bytes]}
    table.readings += [
        Reading(
            f"babelstream.{kernel.lower()}", parameters, "traffic_GBps", name, work, (seconds,), f"line {number}",
            iterations, 1,
        )
        for name, seconds, iterations in (("best", best, 1), ("mean", mean, calls - 1), ("slowest", slowest, 1))
    ]  # fmt: skip


_RULES: tuple[Rule[_Tables], ...] = (
    (_PHASE, _skip), (_ROW, _take_row), (_TABLE, _take_columns), (_DEVICE, _take_device),
    (_DRIVER, _take_driver), (_WRONG, _take_wrong),
)  # fmt: skip


def sniff(text: str) -> bool:
    """Whether a text looks like such a file."""
    return re.search(r"^[^\n]*(?:function,num_times,|phase,n_elements,)", text, re.MULTILINE) is not None


def read(text: str, source: str, _: Given) -> tuple[Imported, ...]:
    """The runs in a file, one behind the other."""
    tables = _Tables()
    scan(text, source, _RULES, tables)
    if not tables or not tables[-1].readings:
        raise BadFile(f"{source} ends without rows of a table; expected a whole file of BabelStream")
    return tuple(_imported(table, source) for table in tables)


def _imported(table: _Table, source: str) -> Imported:
    invalid = "the tool's own check found wrong data, and the file does not say which kernel's" if table.wrong else ""
    return Imported(
        source=source,
        tool="BabelStream",
        convention=CONVENTION.format(unit=table.unit, factor=f"{UNITS[table.unit]:.0f}"),
        readings=pooled([replace(one, invalid=invalid, verified=False if invalid else None) for one in table.readings]),
        product=table.product,
        driver=table.driver,
    )
