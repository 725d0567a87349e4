"""Logs of nccl-tests and rccl-tests, in every version's columns.

`all_reduce_perf` and the other programs print them.
"""

import re
from dataclasses import dataclass, field, replace

from ..core.errors import BadFile
from ..core.keys import Scalar
from .collectives import (
    CONVENTION,
    DEVICES_ADVICE,
    CollectiveLine,
    Setting,
    find_operation,
    operation_of,
    readings_of,
)
from .cut_rows import CUT_ROW, ROW_HALF, front_of
from .logs import (
    HEAD_LINE,
    ForeignLine,
    HeadedTable,
    Rule,
    has_line_with,
    keep_head,
    read_runs,
    require_columns,
    skip,
)
from .records import (
    BadLine,
    ImportedLog,
    MachineFacts,
    Reading,
    Tool,
    UserFacts,
    amount,
    whole_number,
)

_CONFIG = re.compile(
    r"(?:# )?nThreads?:? (\d+) nGpus:? (\d+)(?: nRanks: \d+)? minBytes:? (\d+) maxBytes:? (\d+) step: (\d+)"
    r"\((?:factor|bytes)\) warmup ?[iI]ters: (\d+) iters: (\d+)(?: agg iters: (\d+))?(?: validation: (\d+))?"
    r"(?: graph: (\d+))?(?: unalign: (\d+))?(?: +side_work: (\d+) work_sms: (\d+).*)? *"
)
_RANK = re.compile(
    r"#? *Rank +(\d+) +(?:Group +(\d+) +)?(?:Pid +\d+ +)?on +(\S+) device +(\d+) \[[0-9a-fA-Fx:.]+\](?: (.*\S))? *"
)
_START = re.compile(r"#? *Collective test starting: (\S+) *")
_VERSION = re.compile(
    r"#? *([nr]ccl-tests) version (\S+)(?: \(\S+\))? [nr]ccl-headers=(\d+) [nr]ccl-library=(\d+) *"
)
_COLUMNS = re.compile(r"# +size +count .*|size +count +type .*")
_UNITS = re.compile(r"# +\(B\) .*|\(B\) +\(elements\) .*")
_ROW = re.compile(r" *\d+ +\d+ +[a-z]\w* .*")
_ROW_END = re.compile(rf"{ROW_HALF}(?:{ROW_HALF})? *")
# A row behind a prefix that no launcher is known to write: size, count, type, maybe redop and root, time, two rates.
_PREFIXED = re.compile(
    r".*?\b\d{1,20} +\d{1,20} +[a-z]\w*(?: +[a-z]+)?(?: +-?\d{1,20})?(?: +\d[\d.e+]*){3}(?: .*)?"
)
_COMMAND = re.compile(r".*\b\w+_perf\b.*")
_BOUNDS = re.compile(r"#? *Out of bounds values *: (\d+) (?:OK|FAILED) *")
_AVERAGE = re.compile(r"#? *Avg bus bandwidth *: \S+(?: GB/s)? *(?:OK|FAILED)? *")
_REDUCED = re.compile(r"#? *Reducing maxBytes to (\d+) due to memory limitation.*")
_BLOCKING = re.compile(r"# Blocking Enabled: (.*\S) *")
_LIBRARY = re.compile(
    r"(rccl-tests|NCCL version|RCCL version|HIP version|ROCm version|Librccl path)[ :]* (\S.*?) *"
)
_SHARED = (
    "size count type",
    "size count type redop",
    "size count type root",
    "size count type redop root",
)
_HALF = ("time", "algbw", "busbw")
_HALVES = (
    (*_HALF, "#wrong"),
    (*_HALF, "error"),
    (*_HALF, "#wrong", "i_min", "i_max", "i_p99", "i_cv%"),
)
# The last columns of half a row.
_LAST = {half[-1] for half in _HALVES}
_PLACES = ("out_of_place", "in_place")


@dataclass(slots=True)
class _Head:
    """The lines above the table of a run.

    `config` holds the numbers of `_CONFIG` in their order. `ranks` has group, host and product of each rank that a line
    names, `highest_rank` the number of the last. `reduced_max_bytes` is maxBytes after the tool reduced it for lack of
    memory. `hints` are lines of the job above the log that may name the collective.
    """

    program: str = ""
    config: tuple[int, ...] = ()
    ranks: list[tuple[int, str, str]] = field(default_factory=list)
    highest_rank: int = -1
    blocking: str = ""
    software: dict[str, str] = field(default_factory=dict)
    reduced_max_bytes: int | None = None
    hints: tuple[str, ...] = ()

    @property
    def abridged(self) -> bool:
        """True if lines of ranks are missing, as in a shortened log."""
        return self.highest_rank >= len(self.ranks)

    @property
    def family(self) -> str:
        """The beginning of the names of its benchmarks."""
        return "rccl_tests" if "rccl-tests" in self.software else "nccl_tests"

    @property
    def tool(self) -> Tool:
        """The tool that printed it."""
        return Tool(self.family.replace("_", "-"), CONVENTION)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a table.

    `shared` are the columns of the whole row; `half` those that each of the `places` repeats: out of place, in place.
    `count` is the number of words in a row; `unread` are the last columns, which are not read.
    """

    shared: tuple[str, ...]
    half: tuple[str, ...]
    places: tuple[str, ...]
    count: int
    unread: tuple[str, ...]


@dataclass(slots=True)
class _Log(HeadedTable[CollectiveLine]):
    """One run of one test, as far as it was read.

    `cut_cells` are the cells of a row so far, whose line NCCL cut in two.
    """

    head: _Head = field(default_factory=_Head)
    columns: _Columns | None = None
    cut_cells: list[str] = field(default_factory=list)
    out_of_bounds: int = 0


class _Logs(list[_Log]):
    """The runs of a stream, one behind the other. The last is being read.

    `hints` are lines since the last run that may name the collective of the next.
    """

    hints: tuple[str, ...] = ()

    @property
    def table(self) -> _Log | None:
        """The run whose rows are expected."""
        return self[-1] if self and self[-1].columns and not self[-1].ended else None

    def begin(self, is_repeated: bool = False) -> _Log:
        """Return the run that a line of a head belongs to.

        It is a new run if the last one has rows, has ended, or has this line already (`is_repeated`).
        """
        if not self or self[-1].ended or self[-1].rows or is_repeated:
            self.append(_Log(head=_Head(hints=self.hints)))
            self.hints = ()
        return self[-1]

    def refuse_mixed(self) -> None:
        """Raise for a row or an average behind the end of the last run.

        BadLine if an earlier run has no end, so that two logs are mixed. Otherwise ForeignLine: the line was printed
        again, and is skipped.
        """
        if not all(log.ended for log in self):
            raise BadLine("two logs are mixed: one begins before the average of the other")
        raise ForeignLine


def _take_config(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the settings of a run, which its first line prints."""
    numbers = tuple(int(digits or 0) for digits in match.groups())
    logs.begin(is_repeated=bool(logs and logs[-1].head.config)).head.config = numbers


def _take_start(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the name of the program."""
    logs.begin(is_repeated=bool(logs and logs[-1].head.program)).head.program = match[1]


def _take_version(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the versions of the tool and of NCCL."""
    # If the run above has a version of this tool already, this line begins another run.
    tool, version, headers, library = match.groups()
    logs.begin(is_repeated=bool(logs and tool in logs[-1].head.software)).head.software |= {
        tool: version,
        "NCCL headers": headers,
        "NCCL": library,
    }


def _take_library(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the version or path of a library."""
    name, version = match.groups()
    logs.begin().head.software[name] = version.removeprefix("Version ")


def _take_rank(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the group, the host and the product of a rank.

    Ranks must rise from 0. Numbers between them may be missing, as in a shortened log.
    """
    head = logs.begin().head
    number, group, host, _device, product = match.groups()
    if number == "0" and head.ranks:
        raise BadLine(
            "a second rank 0: independent processes wrote into one log, as with nccl-tests built without "
            "MPI; build nccl-tests with MPI=1, or label the lines (srun -l, mpirun --tag-output)"
        )
    rank = whole_number(number)
    if rank <= head.highest_rank or (rank and not head.ranks):
        raise BadLine(f"rank {rank}; expected rank {head.highest_rank + 1}")
    head.highest_rank = rank
    head.ranks.append((int(group or 0), host, product or ""))


def _take_blocking(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the text on blocking calls."""
    logs.begin().head.blocking = match[1]


def _take_columns(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the columns of the table, in the layouts of all versions.

    The columns that all versions share come first. Then come the time, the rates and the errors, once or twice: for
    operations out of place and in place. Raise BadLine for another layout.
    """
    names = ["#wrong" if name == "wrong" else name for name in match[0].removeprefix("#").split()]
    if "cputime" in names:
        raise BadLine("CPU time (-C 1) is not the time of the operation; run the test without -C 1")
    # A timestamp is two words in a row: date and clock.
    timestamp_words = 2 if names[-1] == "timestamp" else 0
    names = names[:-1] if timestamp_words else names
    # Columns behind the last known one are not read.
    end = max((index for index, name in enumerate(names) if name in _LAST), default=len(names))
    names, extra_columns = names[: end + 1], names[end + 1 :]
    time_column = names.index("time") if "time" in names else len(names)
    # From the first time on, each place has the same columns.
    half_count = (len(names) - time_column) // max(1, names.count("time"))
    half = tuple(names[time_column : time_column + half_count])
    is_known = (
        " ".join(names[:time_column]) in _SHARED
        and half in _HALVES
        and names[time_column:] in ([*half], [*half, *half])
        and all(name.startswith("#") for name in extra_columns)
    )
    if not is_known:
        raise BadLine("unknown columns")
    logs.begin().columns = _Columns(
        shared=tuple(names[:time_column]),
        half=half,
        # A table with one place has `in_place`.
        places=_PLACES[-names.count("time") :],
        count=len(names) + len(extra_columns) + timestamp_words,
        unread=tuple(extra_columns),
    )


def _take_units(_logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Refuse units that no version prints."""
    units = match[0].removeprefix("#").split()
    if units[:2] != ["(B)", "(elements)"] or units[2:5] != ["(us)", "(GB/s)", "(GB/s)"]:
        raise BadLine("unknown units; expected (B) (elements) (us) (GB/s) (GB/s)")


def _take_row(logs: _Logs, number: int, match: re.Match[str]) -> None:
    """Read a whole row of the table. A row behind the end of the last run is skipped, or refused if logs are mixed."""
    if logs and logs[-1].ended:
        logs.refuse_mixed()
    log = logs[-1] if logs else None
    if log is None or log.columns is None:
        raise BadLine(
            "a row of numbers without a heading above it; expected the lines that name its columns"
        )
    _add_row(log, log.columns, number, match[0].split())


def _take_cut_row(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the beginning of a row that a line of NCCL cut."""
    table = logs.table
    front = front_of(match, {host for _, host, _ in table.head.ranks}) if table is not None else ""
    if table is None or not front:
        raise ForeignLine
    table.cut_cells += front.split()


def _take_row_end(logs: _Logs, number: int, match: re.Match[str]) -> None:
    """Read the end of a row whose beginning a line of NCCL cut."""
    table = logs.table
    if table is None or table.columns is None or not table.cut_cells:
        raise ForeignLine
    _add_row(table, table.columns, number, match[0].split())


def _add_row(log: _Log, columns: _Columns, number: int, values: list[str]) -> None:
    """Add the results in a row to the log.

    There is one out of place and one in place, or one of them. `values` are the words of the row. The words of its
    beginning, if another line cut it off, go before them.
    """
    values, log.cut_cells = log.cut_cells + values, []
    # Operations without a reduction left its column blank until 2022.
    redop_column = 3
    lacks_a_cell = len(values) == columns.count - 1 and "redop" in columns.shared
    if lacks_a_cell and not values[redop_column].isalpha():
        values.insert(redop_column, "")
    require_columns(values, columns.count)
    shared_count, half_count = len(columns.shared), len(columns.half)
    names = columns.shared + columns.half
    for index, place in enumerate(columns.places):
        start = shared_count + index * half_count
        half = values[start : start + half_count]
        cells = dict(zip(names, values[:shared_count] + half, strict=True))
        log.rows.append(_row(number, place, cells))


def _row(number: int, place: str, cells: dict[str, str]) -> CollectiveLine:
    """Return one of a row's two results, out of place or in place. `cells` are the texts by column."""
    root, wrong = cells.get("root", "-1"), cells.get("#wrong") or cells["error"]
    wrong_or_error = None if wrong == "N/A" else amount(wrong)
    # Old versions print the largest error instead of a count; then no element counts as wrong.
    has_count = "#wrong" in cells or wrong_or_error is None
    wrong_count = wrong_or_error if has_count else 0.0
    time_us, algbw, busbw = (amount(cells[name]) for name in _HALF)
    size_bytes = whole_number(cells["size"])
    if "e" in cells["time"] and algbw:
        # A time above ten seconds is printed with one digit. The rate has two or more, so the time follows from it.
        time_us = size_bytes / algbw / 1e3
    return CollectiveLine(
        where=f"line {number}",
        size_bytes=size_bytes,
        dtype=cells["type"],
        redop=cells.get("redop", ""),
        root=-1 if root == "-1" else whole_number(root),
        place=place,
        time_us=time_us,
        algbw=algbw,
        busbw=busbw,
        wrong=wrong_count,
    )


def _take_bounds(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep the number of values out of bounds in all rows."""
    if logs:
        logs[-1].out_of_bounds = whole_number(match[1])


def _take_average(logs: _Logs, _number: int, _match: re.Match[str]) -> None:
    """End a run, whose last line is the average."""
    if logs and logs[-1].ended:
        logs.refuse_mixed()
    if not logs or logs[-1].columns is None or logs[-1].cut_cells:
        raise BadLine("an average without rows, or inside a row; expected a whole log")
    logs[-1].ended = True


def _take_reduced(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep maxBytes after the tool reduced it."""
    logs.begin().head.reduced_max_bytes = whole_number(match[1])


def _take_command(logs: _Logs, _number: int, match: re.Match[str]) -> None:
    """Keep a line of the job as a hint. It still counts as a line of another program."""
    logs.hints = (*logs.hints, match[0])
    raise ForeignLine


def _refuse_prefixed(logs: _Logs, _number: int, _match: re.Match[str]) -> None:
    """Refuse a row behind a prefix, which would be skipped otherwise."""
    if logs.table is None:
        raise ForeignLine
    raise BadLine("a row with an unknown prefix; remove the prefix")


_RULES: tuple[Rule[_Logs], ...] = (
    (CUT_ROW, _take_cut_row), (_ROW, _take_row), (_ROW_END, _take_row_end), (_CONFIG, _take_config),
    (_RANK, _take_rank), (_START, _take_start), (_VERSION, _take_version), (_BLOCKING, _take_blocking),
    (_COLUMNS, _take_columns), (_UNITS, _take_units), (_BOUNDS, _take_bounds), (_AVERAGE, _take_average),
    (_LIBRARY, _take_library),
    (_REDUCED, _take_reduced), (HEAD_LINE, keep_head),
    (re.compile(r"#.*"), skip), (_PREFIXED, _refuse_prefixed), (_COMMAND, _take_command),
)  # fmt: skip


sniff = has_line_with(
    r"nThreads?:? \d+ nGpus|# Collective test starting:|# [nr]ccl-tests version|# +\(B\) +\(elements\)"
    r"|Avg bus bandwidth +:"
)


def read(text: str, source: str, user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the runs in a log, one behind the other."""
    return read_runs(
        text,
        source,
        _RULES,
        _Logs,
        lambda logs: [_imported(log, source, user_facts) for log in logs],
    )


def _imported(log: _Log, source: str, user_facts: UserFacts) -> ImportedLog:
    """Return the log of one run. A run without an end or without rows becomes a failed test."""
    head = log.head
    products = list(dict.fromkeys(name for *_, name in head.ranks if name))
    hosts = tuple(host for _, host, _ in head.ranks)
    if len(products) > 1:
        raise BadFile(f"{source}: ranks on {' and '.join(products)}; expected one product")
    machine = MachineFacts(
        product=products[0] if products else None,
        host=hosts[0] if hosts else None,
    )
    # Some sizes of such a run may be missing, so none of it is used.
    if not (log.ended and log.rows and log.columns):
        operation = operation_of(head.program)
        name = operation.name if operation is not None else head.program or "test"
        return ImportedLog(
            source,
            head.tool,
            (),
            machine=machine,
            failed=((f"{head.family}.{name}", _failure_reason(log)),),
            ended=log.ended,
        )
    setting = _setting(head, source, user_facts)
    operation, note = find_operation(
        head.program, user_facts, (source, *head.hints), log.rows, setting.ranks, source
    )
    readings, left_out = readings_of(log.rows, operation, setting, source)
    return ImportedLog(
        source=source,
        tool=head.tool,
        readings=tuple(_apply_bounds_check(reading, log) for reading in readings),
        machine=replace(
            machine,
            hosts=hosts if len(set(hosts)) > 1 and not head.abridged else (),
            software=head.software,
        ),
        left_out=(*left_out, *(f"column {name} is not read" for name in log.columns.unread)),
        notes=tuple(filter(None, (note, _abridged_note(head, setting.devices)))),
        unread=log.unread,
    )


def _abridged_note(head: _Head, devices: int) -> str:
    """Return a note on missing lines of ranks; empty if all are there."""
    if not head.abridged:
        return ""
    coverage = f"{len(head.ranks)} of {devices} ranks are named"
    return f"{coverage}; the number of devices was given, product and nodes are from the log"


def _failure_reason(log: _Log) -> str:
    """Return why a log without rows, or without an end, is not used."""
    if not log.ended:
        return f"a run ended before its 'Avg bus bandwidth' (rows read: {len(log.rows)})"
    head = log.head
    # The settings begin with the threads, the GPUs of each, and the smallest size.
    _, _, min_bytes, *_ = head.config or (0, 0, 0)
    if head.reduced_max_bytes is not None and head.reduced_max_bytes < min_bytes:
        return f"maxBytes was reduced to {head.reduced_max_bytes}, below minBytes {min_bytes}; no size was measured"
    return "no size was measured"


def _apply_bounds_check(reading: Reading, log: _Log) -> Reading:
    """Return a reading, invalid if the log counts values out of bounds.

    The log has one count for all rows. It is not used where rows count their own wrong elements.
    """
    if not log.out_of_bounds or any(row.wrong for row in log.rows):
        return reading
    return replace(
        reading,
        verified=None if reading.verified is None else False,
        invalid=f"{log.out_of_bounds} values were out of bounds; the log does not say in which rows",
    )


def _devices(head: _Head, source: str, user_facts: UserFacts) -> int:
    """Return the number of devices that took part.

    It is the number of ranks, or the user's number where lines of ranks are missing. Raise BadFile if both differ.
    """
    if head.abridged:
        if user_facts.devices is None or user_facts.devices <= head.highest_rank:
            raise BadFile(
                f"{source}: lines '# Rank …' are missing below rank {head.highest_rank}; {DEVICES_ADVICE}"
            )
        if len({group for group, *_ in head.ranks}) > 1:
            raise BadFile(
                f"{source}: lines '# Rank …' of several groups are missing; expected every rank"
            )
        return user_facts.devices
    devices = len(head.ranks) or user_facts.devices
    if not devices:
        raise BadFile(f"{source}: no lines '# Rank …'; {DEVICES_ADVICE}")
    if user_facts.devices not in (None, devices):
        raise BadFile(
            f"{source}: {devices} ranks, but devices={user_facts.devices} was given; expected the same"
        )
    return devices


def _blocking_mode(text: str) -> int:
    """Return the number of the option for blocking calls.

    The tool prints a text for it. It prints "wait and barrier …" for 1, "wait …, no barrier" for 2, the same of its
    outer loop for 3, nothing for 0.
    """
    if "outer" in text:
        return 3
    if "no barrier" in text:
        return 2
    return 1 if text else 0


def _setting(head: _Head, source: str, user_facts: UserFacts) -> Setting:
    """Return the settings of a run. Raise BadFile if the ranks do not match them."""
    if not head.config:
        raise BadFile(f"{source}: no line '# nThread …' above the rows; expected a whole log")
    (
        threads,
        gpus,
        *_,
        warmup,
        iterations,
        calls_per_iteration,
        _,
        graph,
        unalign,
        side_work,
        work_sms,
    ) = head.config
    devices = _devices(head, source, user_facts)
    if devices % (threads * gpus or 1):
        raise BadFile(
            f"{source}: {devices} ranks; expected a multiple of {threads} threads with {gpus} GPUs each"
        )
    groups = [group for group, *_ in head.ranks]
    group_count, host_count = len(set(groups)), len({host for _, host, _ in head.ranks})
    blocking = _blocking_mode(head.blocking)
    # Settings that are not the default are part of the key; 0 stands for the default.
    settings: dict[str, Scalar] = {
        "nodes": host_count if host_count > 1 else 0, "groups": group_count if group_count > 1 else 0,
        "agg_iters": calls_per_iteration if calls_per_iteration > 1 else 0, "graph": graph, "unalign": unalign,
        "blocking": blocking,
        "side_work": side_work, "work_sms": work_sms if side_work else 0,
    }  # fmt: skip
    return Setting(
        tool=head.family,
        ranks=groups.count(groups[0]) if groups and not head.abridged else devices,
        devices=devices,
        iterations=max(1, iterations) * max(1, calls_per_iteration) * max(1, graph),
        warmup_iterations=warmup,
        timing="isolated" if blocking else "pipelined",
        extra={name: value for name, value in settings.items() if value},
    )
