"""The lines of a log of nccl-tests or rccl-tests, in every version's columns, taken apart; each or none."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .collectives import Row, Times
from .lines import numbered
from .refusing import Printed, printed, refuse, stripped, whole

_CONFIG = re.compile(
    r"# nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+) step: (\d+)\((?:factor|bytes)\) warmup iters: (\d+) "
    r"iters: (\d+)(?: agg iters: (\d+))? validation: (\d+)(?: graph: (\d+))?(?: unalign: (\d+))? *"
)
_RANK = re.compile(
    r"# +Rank +(\d+) +(?:Group +(\d+) +)?Pid +\d+ on +(\S+) device +(\d+) \[[0-9a-fA-Fx:.]+\](?: (.*\S))? *"
)
_START = re.compile(r"# Collective test starting: (\S+) *")
_VERSION = re.compile(r"# ([nr]ccl-tests) version (\S+)(?: \(\S+\))? [nr]ccl-headers=(\d+) [nr]ccl-library=(\d+) *")
_BOUNDS = re.compile(r"# Out of bounds values *: (\d+) (OK|FAILED) *")
_AVERAGE = re.compile(r"# Avg bus bandwidth *: (\S+) *(OK|FAILED)? *")
_BLOCKING = re.compile(r"# Blocking Enabled: (.*\S) *")
_ROW = re.compile(r" *\d+ +\d+ .*")
_LIBRARY = re.compile(
    r"(?:(rccl-tests): Version|((?:NCCL|RCCL|HIP|ROCm) version)(?: :| *:)?|(Librccl path) *:|Hostname *:) *(\S.*?) *"
)
_SPOKEN = re.compile(r"(?:\[[^\]]*\] )?\S+:\d+:\d+ \[\d+\] (?:.* )?NCCL (INFO|WARN|TRACE|VERSION) .*")
_SILENT = re.compile(
    r"#? *|# Using devices *|# +out-of-place(?: +in-place)? *|# +in-place *|# Parallel Init Enabled: .*"
    r"|# Reducing maxBytes to \d+ due to memory limitation *|# Testing \d+ cycle\. *|# Collective test concluded: \S+ *"
    r"|# Errors with asterisks indicate errors that have exceeded the maximum threshold\. *|# GPU memory usage *: .*"
    r"|# Writing JSON output to .*"
)
_HALF = ("time", "algbw", "busbw")
_UNITS = {"size": "(B)", "count": "(elements)", "time": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)"}
_SHARED = ("size", "count", "type", "redop", "root")


@dataclass(slots=True)
class Log:
    """What was read so far of one run of one test."""

    program: str = ""
    config: tuple[int, ...] = ()
    config_line: int = 0
    ranks: list[tuple[int, int, str, str]] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    columns_line: int = 0
    units: bool = False
    rows: list[tuple[int, str, Row, list[Times]]] = field(default_factory=list)
    blocking: str = ""
    bounds: int | None = None
    ended: bool = False
    average: tuple[int, str, Printed] | None = None
    own_limit: str = ""
    spoken: dict[str, int] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)


def logs_of(text: str, source: str) -> list[Log]:
    """The runs in a text, one behind the other, each up to its average.

    Raises:
        BadFile: a line that is not understood, or no end.
    """
    logs: list[Log] = []
    last = (1, "")
    for number, line in numbered(text, source):
        if not line.strip() and not logs:
            continue
        last = (number, line) if line.strip() else last
        if not logs or _begins(line, logs[-1]):
            if logs and not logs[-1].ended:
                refuse(source, number, line, "another log begins here, before the one above came to its average")
            logs.append(Log())
        _take(logs[-1], source, number, line)
    if not logs or not logs[-1].ended:
        refuse(source, *last, "the log ends here, before its 'Avg bus bandwidth'; expected a whole one")
    return logs


def _begins(line: str, log: Log) -> bool:
    """Whether a line is the first of another run: one that the run at hand has already, or has left behind."""
    seen = log.ended or bool(log.rows)
    if _VERSION.fullmatch(line) or _START.fullmatch(line):
        return seen or bool(log.config or (log.program and _START.fullmatch(line)))
    return bool(_CONFIG.fullmatch(line)) and (seen or bool(log.config))


def _take(log: Log, source: str, number: int, line: str) -> None:
    """Take one line into the log, or refuse it."""
    if _ROW.fullmatch(line):
        _take_row(log, source, number, line)
    elif match := _CONFIG.fullmatch(line):
        log.config, log.config_line = tuple(int(digits or 0) for digits in match.groups()), number
    elif match := _RANK.fullmatch(line):
        rank = int(match[1])
        if rank != len(log.ranks):
            refuse(source, number, line, f"rank {rank}; expected rank {len(log.ranks)}")
        log.ranks.append((number, int(match[2] or 0), match[3], match[5] or ""))
    elif match := _START.fullmatch(line):
        log.program = match[1]
    elif match := _VERSION.fullmatch(line):
        log.software |= {match[1]: match[2], "NCCL headers": match[3], "NCCL": match[4]}
    elif match := _BLOCKING.fullmatch(line):
        log.blocking = match[1]
    elif line.startswith("#") and line[1:].split()[:2] == ["size", "count"]:
        _take_columns(log, source, number, line)
    elif line.startswith("#") and line[1:].split()[:1] == ["(B)"]:
        _take_units(log, source, number, line)
    else:
        _take_rest(log, source, number, line)


def _take_rest(log: Log, source: str, number: int, line: str) -> None:
    if match := _BOUNDS.fullmatch(line):
        log.bounds = int(match[1])
        if (match[2] == "FAILED") != bool(log.bounds):
            refuse(source, number, line, "the count contradicts the word behind it")
    elif match := _AVERAGE.fullmatch(line):
        value = stripped(match[1])
        if value is None or not log.rows or log.ended:
            refuse(source, number, line, "no average of rows above; expected one number behind them")
        log.average, log.ended, log.own_limit = (number, line, value), True, match[2] or ""
    elif match := _LIBRARY.fullmatch(line):
        name = match[1] or match[2] or match[3]
        if name:
            log.software[name] = match[4]
    elif match := _SPOKEN.fullmatch(line):
        log.spoken[match[1]] = log.spoken.get(match[1], 0) + 1
    elif not _SILENT.fullmatch(line):
        refuse(source, number, line, "not a line of nccl-tests, rccl-tests or their libraries")


def _take_columns(log: Log, source: str, number: int, line: str) -> None:
    names = line[1:].split()
    at = next((index for index, name in enumerate(names) if name in ("time", "cputime")), len(names))
    if "cputime" in names:
        refuse(source, number, line, "time of the CPU (-C 1) says nothing of the operation; run it without")
    halves = names[at:]
    if halves[-1:] == ["timestamp"]:
        halves = halves[:-1]
    each = len(halves) // 2 if halves.count("time") == 2 else len(halves)
    known = [(*_HALF, "#wrong"), (*_HALF, "error"), (*_HALF, "#wrong", "i_min", "i_max", "i_p99", "i_cv%")]
    fine = tuple(halves[:each]) in known and halves in (halves[:each], halves[:each] * 2)
    if not fine or names[:at] != [name for name in _SHARED if name in names[:at]] or log.columns:
        refuse(source, number, line, "columns that this importer does not know")
    log.columns, log.columns_line = tuple(names), number


def _take_units(log: Log, source: str, number: int, line: str) -> None:
    percent = {"i_min": "(us)", "i_max": "(us)", "i_p99": "(us)", "i_cv%": "(%)", "timestamp": "%Y-%m-%d %H:%M:%S"}
    expected = " ".join(unit for name in log.columns if (unit := (_UNITS | percent).get(name)))
    if not log.columns or " ".join(line[1:].split()) != expected:
        refuse(source, number, line, f"units that this importer does not know; expected {expected or 'columns first'}")
    log.units = True


def _take_row(log: Log, source: str, number: int, line: str) -> None:
    if not log.units or log.ended:
        refuse(
            source, number, line, "a row of numbers where none is expected: the lines that name its columns are missing"
        )
    values = line.split()
    names = list(log.columns)
    if names[-1] == "timestamp":
        names[-1:] = ["date", "clock"]
    if len(values) == len(names) - 1 and "redop" in names and not values[3].isalpha():
        # Operations without a reduction left the column blank until 2022.
        values.insert(3, "")
    if len(values) != len(names):
        refuse(source, number, line, f"{len(values)} columns; expected {len(names)}")
    shared = dict(zip(names, values, strict=True))
    size, count = whole(shared["size"]), whole(shared["count"])
    root = shared.get("root", "-1")
    if size is None or count is None or re.fullmatch(r"-1|\d{1,9}", root) is None:
        refuse(source, number, line, "size, count or root is not a whole number")
    row = Row(size, count, shared["type"], shared.get("redop", ""), int(root))
    at = names.index("time")
    first, halves = names[at:], names[at:].count("time")
    each = first.index("time", 1) if halves == 2 else len([name for name in first if name not in ("date", "clock")])
    places = ("out_of_place", "in_place")[-halves:]
    parts = [values[at + index * each : at + (index + 1) * each] for index in range(halves)]
    times = [_times(part, place, source, number, line) for part, place in zip(parts, places, strict=True)]
    log.rows.append((number, line, row, times))


def _times(values: Sequence[str], place: str, source: str, number: int, line: str) -> Times:
    figures = [printed(value) for value in values[:3]]
    wrong = None if values[3] == "N/A" else printed(values[3])
    others = [printed(value) for value in values[4:]]
    if None in figures or None in others or (wrong is None and values[3] != "N/A"):
        refuse(source, number, line, f"something {place} is not a number, zero or more")
    time_us, algbw, busbw = (figure for figure in figures if figure is not None)
    return Times(place, time_us, algbw, busbw, None if wrong is None else wrong.value)
