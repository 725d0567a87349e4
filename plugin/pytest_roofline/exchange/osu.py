"""Output of the OSU Micro-Benchmarks, versions 2 to 7.

They are point to point, one-sided and collective.
"""

import re
from dataclasses import dataclass, field, replace

from ..core.errors import BadFile
from ..core.keys import Scalar
from ..core.units import slug
from ..core.work import Work
from .logs import (
    HEAD_LINE,
    ForeignLine,
    HeadedTable,
    Rule,
    has_line_with,
    keep_head,
    read_runs,
    require_columns,
)
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

TOOL = Tool(
    "OSU Micro-Benchmarks",
    "MB is 1e6 bytes; a latency is half a round trip; the latency of a collective is the time of one call, the mean "
    "over ranks; bibw is the sum of both directions; mbw_mr is the sum of all pairs; the host's clock times bandwidths "
    "over a window of messages, and latencies call by call",
)
_TITLE = re.compile(r"# *OSU (\S+) (\S.*?)(?: Test)?(?: +v(\d\S*)| +\(Version (\S+)\))? *")
_PAIRS = re.compile(r"# *\[ *pairs: (\d+) *\] *\[ *window size: (\d+|varied) *\] *")
_BUFFERS = re.compile(r"# *Send Buffer on \w+ \((\w+)\) and Receive Buffer on \w+ \((\w+)\) *")
_DATATYPE = re.compile(r"# *Datatype: MPI_(\w+)\. *")
# Settings of one-sided tests. The key holds those that are not the default.
_ONE_SIDED_SETTING = re.compile(r"# *(Window creation|Synchronization): *(MPI_\w+) *")
# By the printed name: the name in keys, and the default.
_ONE_SIDED_SETTINGS = {
    "Window creation": ("window", "MPI_Win_allocate"),
    "Synchronization": ("sync", "MPI_Win_flush"),
}
_HEADING = re.compile(r"# *(?:Size\b.*|Avg Latency.*|Latency \(us\).*)|Overall\(us\) .*")
_ROW = re.compile(r"\s*\d+(?:\.\d+)?(?:\s+\S+)*\s*")
# By column: the unit of its rate or time, and the statistic. A column without a unit is no figure.
_COLUMNS = {
    "Size": ("", ""), "Bandwidth (MB/s)": ("MB/s", "mean"), "MB/s": ("MB/s", "mean"), "Messages/s": ("", ""),
    "Latency (us)": ("us", "mean"), "Latency(us)": ("us", "mean"), "Avg Latency(us)": ("us", "mean"),
    "Min Latency(us)": ("us", "fastest_rank"), "Max Latency(us)": ("us", "slowest_rank"),
    "Avg Lat(us)": ("us", "mean"), "Overall(us)": ("us", "mean"), "Pure Comm.(us)": ("us", "pure_comm"),
    "Min Comm.(us)": ("us", "pure_comm_fastest_rank"), "Max Comm.(us)": ("us", "pure_comm_slowest_rank"),
    "P50 Tail Lat(us)": ("us", "p50"), "P90 Tail Lat(us)": ("us", "p90"), "P99 Tail Lat(us)": ("us", "p99"),
    "Compute(us)": ("", ""), "Coll. Init(us)": ("", ""), "MPI_Test(us)": ("", ""), "MPI_Wait(us)": ("", ""),
    "Overlap(%)": ("", ""), "Iterations": ("", ""), "Validation": ("", ""),
}  # fmt: skip
# A heading has a size and a figure, or the figure alone.
FEWEST_COLUMNS = 2
_NAMES = {
    "Bandwidth": "bw", "Bi-Directional Bandwidth": "bibw", "Multiple Bandwidth / Message Rate": "mbw_mr",
    "Multi Latency": "multi_lat", "Multi-threaded Latency": "latency_mt", "Broadcast Latency": "bcast",
    "Latency": "latency",
}  # fmt: skip


@dataclass(slots=True)
class _Test(HeadedTable[Reading]):
    """One test: its title, its head, and the rows. `last_bytes` is the size of the last row."""

    api: str
    title: str
    version: str
    extra_parameters: dict[str, Scalar] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    last_bytes: int = -1

    @property
    def name(self) -> str:
        """The name of the program without `osu_`.

        The output has only the title, from which the name is made.
        """
        # The API of a one-sided test is the MPI function that it calls: MPI_Put.
        is_one_sided = self.api.startswith("MPI_")
        one_sided = slug(self.api.removeprefix("MPI_")) + "_" if is_one_sided else ""
        name = _NAMES.get(self.title) or slug(self.title.removesuffix(" Latency")).replace("-", "_")
        return one_sided + name

    @property
    def is_collective(self) -> bool:
        """True if more ranks than a pair may take part."""
        return self.title.endswith(" Latency") and not self.title.startswith("Multi-")


class _Tests(list[_Test]):
    """The tests of a stream, one behind the other."""

    @property
    def table(self) -> _Test | None:
        """The test whose rows are expected. No line marks the last row."""
        return self[-1] if self and self[-1].columns else None

    def head(self) -> _Test:
        """Return the test whose head is being read. Raise ForeignLine if there is none."""
        if not self or self[-1].columns:
            raise ForeignLine
        return self[-1]


def _take_title(tests: _Tests, _number: int, match: re.Match[str]) -> None:
    """Begin a test at its title."""
    api, title, version, old_version = match.groups()
    tests.append(_Test(api, title, version or old_version or ""))


def _take_pairs(tests: _Tests, _number: int, match: re.Match[str]) -> None:
    """Keep the numbers of pairs and of messages in a window."""
    pairs, window = match.groups()
    tests.head().extra_parameters |= {
        "pairs": int(pairs),
        "window": int(window) if window.isdigit() else window,
    }


def _take_buffers(tests: _Tests, _number: int, match: re.Match[str]) -> None:
    """Keep where both buffers are, such as `D-H` for device and host."""
    tests.head().extra_parameters["buffers"] = f"{match[1]}-{match[2]}"


def _take_datatype(tests: _Tests, _number: int, match: re.Match[str]) -> None:
    """Keep the data type of a test.

    It is printed above or below the names of the columns. Behind rows it begins a further table with the same head. The
    default, CHAR, is not in the key.
    """
    if not tests:
        raise ForeignLine
    test = tests[-1]
    parameters = {name: value for name, value in test.extra_parameters.items() if name != "dtype"}
    if match[1] != "CHAR":
        parameters["dtype"] = match[1].lower()
    if test.rows:
        tests.append(
            _Test(test.api, test.title, test.version, parameters, test.columns, unread=test.unread)
        )
    else:
        test.extra_parameters = parameters


def _take_one_sided_setting(tests: _Tests, _number: int, match: re.Match[str]) -> None:
    """Keep a setting of a one-sided test, unless it is the default."""
    label, value = match[1], match[2]
    name, default = _ONE_SIDED_SETTINGS[label]
    if value != default:
        tests.head().extra_parameters[name] = value.removeprefix("MPI_").lower()


def _take_heading(tests: _Tests, _number: int, match: re.Match[str]) -> None:
    """Read the names of the columns.

    Names contain blanks, so the text is split at known names. Unknown columns behind the first two are allowed.
    """
    if not tests or tests[-1].rows:
        raise ForeignLine
    test, unread_text = tests[-1], match[0].removeprefix("#").strip()
    test.columns = []
    while unread_text:
        # The longest known name, since some names begin others; else the words up to two blanks.
        unknown_name, *_ = re.split(r"\s{2,}", unread_text)
        known_names = [name for name in _COLUMNS if unread_text.startswith(name)]
        name = max(known_names, key=len, default=unknown_name)
        if name not in _COLUMNS and len(test.columns) < FEWEST_COLUMNS:
            raise BadLine(f"an unknown column: {unread_text!r}")
        test.columns.append(name)
        unread_text = unread_text.removeprefix(name).lstrip()


def _take_row(tests: _Tests, number: int, match: re.Match[str]) -> None:
    """Read a row, with a reading for each of its figures.

    Sizes must rise. A figure of 0 is left out.
    """
    test, values = tests.table, match[0].split()
    has_only_figures = all(re.fullmatch(r"[\d.]+|N/A|Pass|Fail", value) for value in values)
    # A line with another number of words is a row of the table only if all of them are figures; then it is broken.
    if test is None or (len(values) != len(test.columns) and not has_only_figures):
        raise ForeignLine
    require_columns(values, len(test.columns))
    cells = dict(zip(test.columns, values, strict=True))
    size_bytes = whole_number(cells["Size"]) if "Size" in cells else None
    if size_bytes is not None:
        if size_bytes <= test.last_bytes:
            raise BadLine(
                f"{size_bytes} bytes after {test.last_bytes}; expected a larger size in every row"
            )
        test.last_bytes = size_bytes
    for name, value in cells.items():
        unit, statistic = _COLUMNS.get(name, ("", ""))
        if unit and value != "N/A" and not amount(value):
            test.left_out.append(f"line {number}, {name}: the tool printed 0 {unit}")
        elif unit and value != "N/A":
            is_valid = {"Pass": True, "Fail": False}.get(cells.get("Validation", ""))
            test.rows.append(
                _reading(
                    test,
                    size_bytes,
                    amount(value),
                    unit=unit,
                    statistic=statistic,
                    is_valid=is_valid,
                    number=number,
                )
            )


def _reading(
    test: _Test,
    size_bytes: int | None,
    value: float,
    unit: str,
    statistic: str,
    is_valid: bool | None,
    number: int,
) -> Reading:
    """Return one figure of a row as a reading.

    `value` is in the printed unit, `is_valid` the check of the data, None without one, `number` the number of the line.
    """
    is_rate = unit == "MB/s"
    parameters: dict[str, Scalar] = {} if size_bytes is None else {"size_bytes": size_bytes}
    api: dict[str, Scalar] = (
        {} if test.api.startswith("MPI") and "-" not in test.api else {"api": test.api.lower()}
    )
    return Reading(
        key=key_of_reading(
            f"osu.{test.name}",
            parameters | test.extra_parameters | api,
            ("bidir_sum_payload_GBps" if test.name.endswith("bibw") else "payload_GBps")
            if is_rate
            else "time_s",
            statistic,
            "pipelined" if is_rate else "isolated",
        ),
        work=Work(payload_bytes=size_bytes or 0) if is_rate else Work(calls=1),
        seconds=((size_bytes or 0) / (value * 1e6) if is_rate else value * 1e-6,),
        where=f"line {number}",
        devices=2,
        verified=is_valid,
        invalid="the tool's own check found wrong data" if is_valid is False else "",
    )


_RULES: tuple[Rule[_Tests], ...] = (
    (_TITLE, _take_title), (_PAIRS, _take_pairs), (_BUFFERS, _take_buffers), (_DATATYPE, _take_datatype),
    (_ONE_SIDED_SETTING, _take_one_sided_setting),
    (_HEADING, _take_heading), (_ROW, _take_row), (HEAD_LINE, keep_head),
)  # fmt: skip


sniff = has_line_with(r"# *OSU \S+ ")


def read(text: str, source: str, user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the tests of a log, one for each run of a program."""
    return read_runs(
        text,
        source,
        _RULES,
        _Tests,
        lambda tests: [_imported(test, source, user_facts) for test in tests],
    )


def _imported(test: _Test, source: str, user_facts: UserFacts) -> ImportedLog:
    """Return the log of one test. Raise BadFile for a collective without a number of ranks."""
    if test.rows and test.is_collective and user_facts.devices is None:
        raise BadFile(
            f"{source}: no line gives the number of ranks of {test.name}; "
            "give the number behind the tool: --read=osu,devices=8"
        )
    unknown_columns = [name for name in test.columns if name not in _COLUMNS]
    ranks = user_facts.devices if test.is_collective else None
    return ImportedLog(
        source=source,
        tool=TOOL,
        readings=pool_readings([replace(row, devices=ranks or row.devices) for row in test.rows]),
        machine=MachineFacts(
            device_type="cpu"
            if test.api.startswith("MPI") and "-" not in test.api
            else "accelerator",
            software={"OSU Micro-Benchmarks": test.version} if test.version else {},
        ),
        left_out=(*test.left_out, *(f"column {name} is not read" for name in unknown_columns)),
        failed=()
        if test.rows
        else ((f"osu.{test.name}", "a run ended before the rows of its table"),),
        unread=test.unread,
    )
