"""The CSV of BabelStream (`--csv`), versions 3 to 6: `src/main.cpp` and the models' own lines before the table."""

import re
from dataclasses import dataclass, field, replace

from ..core.keys import Scalar
from ..core.work import MOST, Work
from .lines import numbered
from .records import Given, Imported, Reading
from .refusing import Printed, refuse, stripped, whole

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
_TABLE = re.compile(
    r"function,num_times,n_elements,sizeof,max_(?P<unit>\w+)_per_sec,min_runtime,max_runtime,avg_runtime"
)
# Of versions 3.4 and 4.0 with --triad-only: the time of all calls together.
_TRIAD_ONLY = re.compile(r"function,num_times,n_elements,sizeof,(?P<unit>gbytes|gibytes)_per_sec,runtime")
_PHASES = re.compile(r"phase,n_elements,sizeof,max_\w+_per_sec,runtime")
_PHASE = re.compile(r"(?:Init|Read),\d+,\d+,[^,]+,[^,]+")
_DEVICE = re.compile(r'Using (?:CUDA|HIP|OpenCL|SYCL|HC) device:? (\S.*?) *|CUDA Device \d+: "(.*)" \d+ SMs.*')
_DRIVER = re.compile(r"(?:CUDA )?Driver: (\S+) *")
_INVALID = re.compile(r"Validation failed on .*|FAILED validation of .*")
_SILENT = re.compile(
    r" *|Memory(?: Allocation)?: (?:DEFAULT|MANAGED|PAGEFAULT) *|Parallel for kernel config: .*"
    r"|Reduction kernel config: .*|Using TBB partitioner: .*|Thrust (?:version|backend): .*|Kokkos library for .*"
)


@dataclass(slots=True)
class _Table:
    """One run: what stood before its table, and the rows."""

    unit: str = ""
    columns: int = 0
    readings: list[Reading] = field(default_factory=list)
    product: str | None = None
    driver: str | None = None
    invalid: str = ""
    phases: int = 0


def sniff(text: str) -> bool:
    """Whether a text looks like such a file."""
    return re.search(r"^[^\n]*(?:function,num_times,|phase,n_elements,)", text, re.MULTILINE) is not None


def read(text: str, source: str, _: Given) -> tuple[Imported, ...]:
    """The runs in a file, one behind the other.

    Raises:
        BadFile: a line that is not understood, or contradicts itself.
    """
    tables = [_Table()]
    last = (1, "")
    for number, line in numbered(text, source):
        last = (number, line) if line.strip() else last
        if tables[-1].readings and not _is_row(line) and not _SILENT.fullmatch(line) and not _INVALID.fullmatch(line):
            tables.append(_Table())
        _take(tables[-1], source, number, line)
    if not tables[-1].readings:
        refuse(source, *last, "the file ends here, without rows of a table; expected a whole one")
    if not text.endswith("\n"):
        refuse(source, *last, "the last line has no end, so that a digit may be missing; expected a whole file")
    return tuple(_imported(table, source) for table in tables)


def _is_row(line: str) -> bool:
    return line.partition(",")[0] in KERNELS


def _take(table: _Table, source: str, number: int, line: str) -> None:
    if _is_row(line):
        _take_row(table, source, number, line)
    elif match := _TABLE.fullmatch(line) or _TRIAD_ONLY.fullmatch(line):
        if match["unit"] not in UNITS:
            refuse(source, number, line, f"unit {match['unit']!r}; expected one of {', '.join(UNITS)}")
        table.unit, table.columns = match["unit"], line.count(",") + 1
    elif match := _DEVICE.fullmatch(line):
        table.product = match[1] or match[2]
    elif match := _DRIVER.fullmatch(line):
        table.driver = match[1]
    elif _INVALID.fullmatch(line):
        table.invalid = "the tool's own check found wrong data, and the file does not tell which kernel's"
    elif _PHASE.fullmatch(line) or _PHASES.fullmatch(line):
        table.phases += not _PHASES.fullmatch(line)
    elif not _SILENT.fullmatch(line):
        refuse(source, number, line, "not a line of BabelStream's CSV")


def _take_row(table: _Table, source: str, number: int, line: str) -> None:
    values = line.split(",")
    if not table.unit or len(values) != table.columns:
        expected = f"expected {table.columns}" if table.unit else "expected the line that names them above"
        refuse(source, number, line, f"{len(values)} columns; {expected}")
    times, elements, element_bytes = (whole(value) for value in values[1:4])
    rate, *runtimes = (stripped(value) for value in values[4:])
    figures = [figure for figure in (rate, *runtimes) if figure is not None and figure.value > 0]
    if not (times and elements) or element_bytes not in _DTYPES or times < 2 or len(figures) < len(values) - 4:
        refuse(source, number, line, "something is not a number above zero, as counts, sizes of 4 or 8 and times are")
    assert element_bytes is not None
    array_bytes = elements * element_bytes
    if array_bytes > MOST // 8:
        refuse(source, number, line, f"arrays of {array_bytes} bytes; expected less than {MOST // 8}")
    work = _work(values[0], array_bytes)
    taken = _statistics(times, figures[1:])
    if why := _trouble(table, work, times, figures):
        refuse(source, number, line, why)
    parameters: dict[str, Scalar] = {"size_bytes": array_bytes, "dtype": _DTYPES[element_bytes]}
    if any(one.benchmark == _name(values[0]) and one.parameters == parameters for one in table.readings):
        refuse(source, number, line, "the kernel stands in this table twice; expected it once")
    table.readings += [
        Reading(_name(values[0]), parameters, "traffic_GBps", name, work, (seconds,), number, calls, 1)
        for name, seconds, calls in taken
    ]


def _name(kernel: str) -> str:
    return f"babelstream.{kernel.lower()}"


def _work(kernel: str, array_bytes: int) -> Work:
    read, written = KERNELS[kernel]
    return Work(read_bytes=read * array_bytes, write_bytes=written * array_bytes)


def _statistics(times: int, runtimes: list[Printed]) -> list[tuple[str, float, int]]:
    """Name, seconds per call, and calls behind it; the first call is in none."""
    if len(runtimes) == 1:
        return [("mean", runtimes[0].value / times, times)]
    best, slowest, mean = (runtime.value for runtime in runtimes)
    return [("best", best, 1), ("mean", mean, times - 1), ("slowest", slowest, 1)]


def _trouble(table: _Table, work: Work, times: int, figures: list[Printed]) -> str:
    """How rate and times of a row disagree by more than they were rounded; empty where they agree."""
    rate, shortest, *others = figures
    amount = work.traffic_bytes * (1 if others else times) / UNITS[table.unit]
    low, high = amount / shortest.high, amount / shortest.low
    if not rate.within(low, high):
        bytes_s = f"{work.traffic_bytes} bytes a call in {shortest.value:g} s"
        return f"{rate.value:g} {table.unit}/s, but {bytes_s} are {amount / shortest.value:.6g}"
    if others:
        slowest, mean = others
        if shortest.low > mean.high or mean.low > slowest.high:
            return f"best {shortest.value:g}, mean {mean.value:g} and slowest {slowest.value:g} s are out of order"
    return ""


def _imported(table: _Table, source: str) -> Imported:
    wrong = False if table.invalid else None
    readings = [replace(one, invalid=table.invalid, verified=wrong) for one in table.readings]
    left_out = f"{table.phases} phases (init, read), which are timed once each"
    return Imported(
        source=source,
        tool="BabelStream",
        convention=CONVENTION.format(unit=table.unit, factor=f"{UNITS[table.unit]:.0f}"),
        readings=tuple(readings),
        product=table.product,
        driver=table.driver,
        left_out=(left_out,) if table.phases else (),
    )
