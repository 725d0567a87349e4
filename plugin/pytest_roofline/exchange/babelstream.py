"""Text and CSV (`--csv`) of BabelStream and GPU-STREAM. Versions 0 to 6 are read: `src/main.cpp`."""

import math
import re
from dataclasses import dataclass, field, replace

from ..core.keys import Scalar
from ..core.units import MIB
from ..core.work import Work
from .logs import ForeignLine, OpenTable, Rule, has_line_with, read_runs, require_columns, skip
from .records import (
    BadLine,
    ImportedLog,
    MachineFacts,
    Reading,
    Tool,
    UserFacts,
    amount,
    key_of_reading,
    pool_readings,
    whole_number,
)

CONVENTION = (
    "bytes read and written; {unit} is {factor} bytes; the host's clock times each call until its end; the first call "
    "is left out; best, mean and slowest are separate results; the file's bandwidth is the best"
)
UNITS = {
    "mbytes": 1e6, "mibytes": 2.0**20, "gbytes": 1e9, "gibytes": 2.0**30,
    "MBytes": 1e6, "Mbytes": 1e6, "MiBytes": 2.0**20, "KB": 1e3, "KiB": 2.0**10,
    "MB": 1e6, "MiB": 2.0**20, "GB": 1e9, "GiB": 2.0**30, "TB": 1e12, "TiB": 2.0**40,
}  # fmt: skip
# Arrays read and written by each kernel: `src/benchmark.h`.
KERNELS = {
    "Copy": (1, 1),
    "Mul": (1, 1),
    "Add": (2, 1),
    "Triad": (2, 1),
    "Dot": (2, 0),
    "Nstream": (3, 1),
}
_DTYPES = {4: "fp32", 8: "fp64"}
_SIZES = {"float": 4, "double": 8}
# Columns of a row of the CSV.
_COLUMNS = 8
# The text has five decimals of a second, three of a rate and one of a size.
_HALF_TICK_S = 5.1e-6
_BANNER = re.compile(r" *(?:BabelStream|(?P<old>GPU-STREAM)) *")
_HEAD = re.compile(
    r" *(?:Version: (?P<version>\S+)|Implementation: (?P<implementation>.*\S)"
    r"|(?:Number of elements:|Resizing array from \d+ to) (?P<elements>\d+)"
    r"|Precision: (?P<precision>\w+)|Array size: (?P<size>\d\S*) (?P<size_unit>\w+)(?: .*)?"
    r"|Running .*?\b(?P<calls>\d{1,19}) times(?: in +(?P<order>\w+) order)?) *"
)
# The heading of `--list` above the devices; no run has it.
_LISTING = re.compile(r" *Devices: *")
_HEADING = re.compile(r" *Function +(\w+)/s(?:ec)? +Min \(sec\) +Max +Average *")
_TABLE = re.compile(
    r"function,num_times,n_elements,sizeof,max_(\w+)_per_sec,min_runtime,max_runtime,avg_runtime"
)
_TEXT_ROW = re.compile(r" *(?:Copy|Mul|Add|Triad|Dot|Nstream)(?: .*)?")
_ROW = re.compile(r"[A-Z][a-z]+,\d.*")
_TRIAD_ONLY = re.compile(r"Bandwidth \((\w+)/s\): +(\S+) *")
# Phases that version 5.0 times once each; they are not read.
_PHASE = re.compile(
    r" *(?:(?:Init|Read),\d+,\d+,[^,]+,[^,]+|(?:Init|Read|Total size|Memory(?: Allocation)?|[\w ]+ kernel config): .*)"
)
_DEVICE = re.compile(
    r" *Using (?:CUDA|HIP|OpenCL|SYCL\w*|HC) device:? +(?P<name>\S.*?)?(?:with index: \d+)? *"
    r'|CUDA Device \d+: "(?P<quoted>.*)" \d+ SMs.*'
)
_DRIVER = re.compile(r" *(?:CUDA )?Driver: (\S.*?) *")
_WRONG = re.compile(r"(?:Validation failed on|FAILED validation of) (?P<array>\w+).*")


@dataclass(slots=True)
class _Table(OpenTable[Reading]):
    """One run: the lines above its table, and the rows."""

    head: dict[str, str] = field(default_factory=dict)
    unit: str = ""
    left_out: list[str] = field(default_factory=list)
    product: str | None = None
    driver: str | None = None
    wrong_arrays: set[str] = field(default_factory=set)
    is_device_list: bool = False

    def text_of(self, name: str) -> str:
        """Return the text that a line above the table has for a name.

        Raise BadLine where no line has it.
        """
        if name not in self.head:
            raise BadLine(
                f"no line above gives the {name}; expected the whole output of BabelStream"
            )
        return self.head[name]

    @property
    def calls(self) -> int:
        """The calls of each kernel.

        Versions before 1 do not print the number. Then it is 2: the first call, which is left out, and a timed one.
        """
        return whole_number(self.head.get("calls", "2"))

    @property
    def element_bytes(self) -> int:
        """The bytes of one number."""
        precision = self.text_of("precision")
        if precision not in _SIZES:
            raise BadLine(
                f"the precision above is {precision!r}; expected one of {', '.join(_SIZES)}"
            )
        return _SIZES[precision]

    def array_bytes(self) -> int:
        """Return the bytes of one array.

        The text rounds the size to a tenth of its unit. A power of two that rounds to the same text is preferred.
        """
        element_bytes = self.element_bytes
        if whole_number(self.head.get("elements", "0")):
            return whole_number(self.head["elements"]) * element_bytes
        unit, printed_size = self.text_of("size_unit"), amount(self.text_of("size"))
        # Version 1 printed MiB, and called them MB.
        is_binary = (
            unit == "MB"
            and "old" in self.head
            and self.head.get("version", "").startswith(("0.", "1."))
        )
        factor = float(MIB) if is_binary else UNITS.get(unit, 0.0)
        if not printed_size * factor:
            raise BadLine(
                f"the array size above is {printed_size:g} {unit}; expected a size above 0"
            )
        size_bytes = printed_size * factor
        power = 2 ** round(math.log2(size_bytes))
        has_same_text = f"{power / factor:.1f}" == f"{printed_size:.1f}"
        return power if has_same_text else round(size_bytes)


class _Tables(list[_Table]):
    """The runs of a stream, one behind the other."""

    @property
    def table(self) -> _Table | None:
        """The run whose rows are expected. No line marks the last row."""
        return self[-1] if self and self[-1].unit else None

    def begin(self) -> _Table:
        """Return the run that a line before a table belongs to."""
        if not self or self[-1].rows:
            self.append(_Table())
        return self[-1]


def _take_banner(tables: _Tables, _number: int, match: re.Match[str]) -> None:
    """Begin a run at its first line."""
    tables.append(_Table(head={name: text for name, text in match.groupdict().items() if text}))


def _take_head(tables: _Tables, _number: int, match: re.Match[str]) -> None:
    """Add the facts of a line above the table."""
    if not tables or tables[-1].unit:
        raise ForeignLine
    tables[-1].head |= {name: text for name, text in match.groupdict().items() if text}


def _take_listing(tables: _Tables, _number: int, _match: re.Match[str]) -> None:
    """Note that the output is a list of devices (`--list`)."""
    if not tables or tables[-1].unit:
        raise ForeignLine
    tables[-1].is_device_list = True


def _take_device(tables: _Tables, _number: int, match: re.Match[str]) -> None:
    """Note the product of the device."""
    tables.begin().product = match["name"] or match["quoted"]


def _take_driver(tables: _Tables, _number: int, match: re.Match[str]) -> None:
    """Note the version of the driver."""
    tables.begin().driver = match[1]


def _take_wrong(tables: _Tables, _number: int, match: re.Match[str]) -> None:
    """Note an array that the tool found wrong. Versions print it before or behind the table."""
    table = tables[-1] if tables else tables.begin()
    table.wrong_arrays.add(match["array"])


def _take_columns(tables: _Tables, _number: int, match: re.Match[str]) -> None:
    """Note the unit of the rates, which the names of the columns hold."""
    unit = match[1]
    if unit not in UNITS:
        raise BadLine(f"unit {unit!r}; expected one of {', '.join(UNITS)}")
    tables.begin().unit = unit


def _take_row(tables: _Tables, number: int, match: re.Match[str]) -> None:
    """Read a row of the CSV into the open table.

    It has a kernel, three whole numbers, a rate and three times. `number` is that of the line, for messages; `match` is
    the whole row.
    """
    values = match[0].split(",")
    table = tables.table
    if table is None or len(values) != _COLUMNS:
        expected = _COLUMNS if table is not None else "a line above that names the columns"
        raise BadLine(f"{len(values)} columns; expected {expected}")
    kernel = values[0]
    calls, elements, element_bytes = (whole_number(value) for value in values[1:4])
    # The rate follows from the best time, so it is not read.
    _rate, best, slowest, mean = (amount(value) for value in values[4:])
    if not (best and slowest and mean):
        raise BadLine("a time is 0; expected times above 0")
    table.rows += _readings(
        kernel,
        calls,
        array_bytes=elements * element_bytes,
        element_bytes=element_bytes,
        times={"best": best, "mean": mean, "slowest": slowest},
        number=number,
        further_parameters={},
    )


def _take_text_row(tables: _Tables, number: int, match: re.Match[str]) -> None:
    """Read a row of the printed text into the open table.

    The best time is calculated from the rate, which has more digits than the printed time.
    """
    table, values = tables.table, match[0].split()
    if table is None:
        raise ForeignLine
    require_columns(values, 5)
    kernel = values[0]
    rate, best, slowest, mean = (amount(value) for value in values[1:])
    _note_precision(table, kernel, rate, best)
    array_bytes = table.array_bytes()
    seconds = _seconds_by_rate(table, kernel, rate, best, array_bytes)
    times = {"best": seconds, "mean": mean, "slowest": slowest}
    table.left_out += [
        f"line {number}, {name}: the tool printed 0 s"
        for name, time_s in times.items()
        if not time_s
    ]
    order = table.head.get("order", "Classic").lower()
    parameters: dict[str, Scalar] = {} if order == "classic" else {"order": order}
    table.rows += _readings(
        kernel,
        table.calls,
        array_bytes=array_bytes,
        element_bytes=table.element_bytes,
        times={name: time_s for name, time_s in times.items() if time_s},
        number=number,
        further_parameters=parameters,
    )


def _note_precision(table: _Table, kernel: str, rate: float, best: float) -> None:
    """Note the type of numbers that a row fits.

    Nothing is done if a line above the table names it. The first version printed neither type nor size. Rate times time
    is the moved bytes, which only one type fits.

    Args:
        kernel: of the row.
        rate: in the unit of the table.
        best: the least time, in seconds.
    """
    if "precision" in table.head or "elements" not in table.head:
        return
    array_count = sum(KERNELS[kernel])
    element_bytes = rate * UNITS[table.unit] * best / array_count / int(table.head["elements"])
    for precision, size in _SIZES.items():
        if abs(element_bytes / size - 1) < 0.01:
            table.head["precision"] = precision
            return


def _seconds_by_rate(
    table: _Table, kernel: str, rate: float, best: float, array_bytes: int
) -> float:
    """Return the seconds of the best call by its rate. Raise BadLine if the printed time `best` contradicts it."""
    moved_bytes = sum(KERNELS[kernel]) * array_bytes
    if not rate:
        raise BadLine("the rate is 0; expected a rate above 0")
    seconds = moved_bytes / (rate * UNITS[table.unit])
    # The rounded size, rate and time together allow this difference.
    size_unit = UNITS.get(table.head.get("size_unit", "KB"), 0.0)
    rounding_s = seconds * (0.06 * size_unit / array_bytes + 0.0006 / rate) + _HALF_TICK_S
    if abs(seconds - best) > rounding_s:
        raise BadLine(
            f"{rate:g} {table.unit}/s of {moved_bytes} bytes are {seconds:.5f} s, but the least time is {best:g} s"
        )
    return seconds


def _take_triad_only(tables: _Tables, number: int, match: re.Match[str]) -> None:
    """Read the line of `--triad-only` in place of a table.

    Its rate counts all calls, including the first.
    """
    # A run with a unit has a table, and one without a size lacks the lines above: this line is no part of such a run.
    if not tables or tables[-1].unit or "size" not in tables[-1].head:
        raise ForeignLine
    table = tables[-1]
    unit, rate_text = match.groups()
    if unit not in UNITS:
        raise BadLine(f"unit {unit!r}; expected one of {', '.join(UNITS)}")
    array_bytes, calls = table.array_bytes(), table.calls
    table.unit, rate = unit, amount(rate_text)
    if not rate:
        raise BadLine("the rate is 0; expected a rate above 0")
    # One call more, since a mean is taken to leave the first call out, and this rate does not.
    table.rows += _readings(
        "Triad",
        calls + 1,
        array_bytes=array_bytes,
        element_bytes=table.element_bytes,
        times={"mean": 3 * array_bytes / (rate * UNITS[table.unit])},
        number=number,
        further_parameters={"calls": "all"},
    )


def _readings(
    kernel: str, calls: int, array_bytes: int, element_bytes: int, times: dict[str, float], number: int,
    further_parameters: dict[str, Scalar],
) -> list[Reading]:  # fmt: skip
    """Return one kernel's times as readings.

    A mean is of all calls but the first, any other statistic of one call.

    Args:
        kernel: its name as printed, such as `Triad`.
        calls: of the kernel, with the first.
        array_bytes: the bytes of one array.
        element_bytes: the bytes of one number.
        times: seconds per call, by statistic.
        number: of the line.
        further_parameters: settings that are not the default.
    """
    if kernel not in KERNELS:
        raise BadLine(f"kernel {kernel!r}; expected one of {', '.join(KERNELS)}")
    if calls < 2 or not array_bytes or element_bytes not in _DTYPES:
        raise BadLine(
            f"{calls} calls on arrays of {array_bytes} bytes, {element_bytes} bytes an element; expected at least two "
            "calls, and 4 (fp32) or 8 bytes (fp64) an element"
        )
    arrays_read, arrays_written = KERNELS[kernel]
    work = Work(read_bytes=arrays_read * array_bytes, write_bytes=arrays_written * array_bytes)
    parameters: dict[str, Scalar] = {"size_bytes": array_bytes, "dtype": _DTYPES[element_bytes]}
    return [
        Reading(
            key_of_reading(f"babelstream.{kernel.lower()}", parameters | further_parameters, "traffic_GBps", name),
            work, (seconds,), f"line {number}", calls - 1 if name == "mean" else 1, 1,
        )
        for name, seconds in times.items()
    ]  # fmt: skip


_RULES: tuple[Rule[_Tables], ...] = (
    (_PHASE, skip), (_ROW, _take_row), (_TEXT_ROW, _take_text_row), (_TABLE, _take_columns), (_HEADING, _take_columns),
    (_BANNER, _take_banner), (_HEAD, _take_head), (_DEVICE, _take_device), (_DRIVER, _take_driver),
    (_WRONG, _take_wrong), (_LISTING, _take_listing), (_TRIAD_ONLY, _take_triad_only),
)  # fmt: skip


sniff = has_line_with(
    r"function,num_times,|phase,n_elements,|(?:BabelStream|GPU-STREAM) *\r?$"
    r"|Function[ \t]+\w+/s(?:ec)?[ \t]+Min \(sec\)"
)


def read(text: str, source: str, _user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the runs in a file, one behind the other."""
    return read_runs(
        text,
        source,
        _RULES,
        _Tables,
        lambda tables: [
            _imported(table, source) for table in tables if table.rows or not table.is_device_list
        ],
    )


def _imported(table: _Table, source: str) -> ImportedLog:
    """Return the log of one run. A run without rows becomes a failed test."""
    if not table.rows:
        failure = ("babelstream", "a run ended before the rows of its table")
        return ImportedLog(source, Tool("BabelStream", CONVENTION), (), failed=(failure,))
    software = {
        "BabelStream": table.head.get("version"),
        "implementation": table.head.get("implementation"),
    }
    return ImportedLog(
        source=source,
        tool=Tool(
            "BabelStream", CONVENTION.format(unit=table.unit, factor=f"{UNITS[table.unit]:.0f}")
        ),
        readings=pool_readings(
            [_apply_check(reading, table.wrong_arrays) for reading in table.rows]
        ),
        machine=MachineFacts(
            product=table.product,
            driver=table.driver,
            software={name: text for name, text in software.items() if text},
        ),
        left_out=tuple(table.left_out),
    )


def _apply_check(reading: Reading, wrong_arrays: set[str]) -> Reading:
    """Return a reading, invalid where the tool found wrong data.

    A wrong sum makes the readings of `dot` invalid, a wrong array all readings.
    """
    if not wrong_arrays or (wrong_arrays == {"sum"} and not reading.key.benchmark.endswith(".dot")):
        return reading
    return replace(
        reading,
        invalid=f"the tool's own check found wrong data in {' and '.join(sorted(wrong_arrays))}",
        verified=False,
    )
