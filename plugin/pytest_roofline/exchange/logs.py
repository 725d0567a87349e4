"""Tables of a tool, as they stand in the log of a job.

A text format is a table of rules, a pattern and an action for a line that matches; every line is
given to the first that fits. Ranks that a launcher labels are read each for itself, and a table
that several of them printed is used once. Lines that no rule knows are skipped and counted around a
table; inside one only lines of libraries and launchers, and remarks between rows that begin with a
number.
"""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from ..core.errors import BadFile
from ..core.units import count
from .records import BadLine, ImportedLog, looks_like_json, refuse

Row = TypeVar("Row")
# Labels of `mpirun --tag-output`, which stand before every piece of a line: `[1,0]<stdout>:`.
_TAG = re.compile(r"((?:\[[^\[\]<>\s]*\d,\d+\])?)<std(?:out|err)>: ?")
# Time stamps of `kubectl logs --timestamps`, `ts`, journals, CI and the files of containerd.
_STAMP = re.compile(
    r"\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|\d\d:\d\d:\d\d|\d{10}\.\d+)\]? (?:std(?:out|err) [FP] |\d\d[OE][ +])?"
)
# Labels of `kubectl logs --prefix`, `srun -l`, `mpiexec -l`, of `pdsh` and `clush`, which label by host, of Ray and
# SkyPilot, torchrun, Compose and journals.
_LABEL = re.compile(
    r"(\[pod/[^\]\s]+\]) | *(\d+|[A-Za-z][A-Za-z.-]*\d[\w.-]*):(?: |$)|(\[\d+\]) |(\([^()]{0,99}\bpid=\d[^()]{0,99}\)) "
    r"|(\[default\d+\]):|([\w.-]{1,99}-\d+) +\| |([\w.-]{1,99} [\w./-]{1,99}\[\d+\]): "
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# A line that ends in a decimal number; the group holds the decimals.
_END = re.compile(r"^[^,]*\d\.(\d+) *$")
# Lines between the rows of a table that are no rows: remarks, and lines of libraries and launchers.
_FOREIGN = re.compile(
    r"\s*(?:#.*)?|.*\b[NR]CCL (?:INFO|WARN|TRACE|ERROR|version)\b.*|.*\bUCX +[A-Z]+ .*|.*: Test (?:\w+ )?failure .*"
    r"|(?:srun|slurmstepd|salloc|mpirun|mpiexec|prterun|kubectl|libfabric|Warning|WARNING|\+):? .*"
    r"|\[[\w.-]+:\d+(?::\d+)?\].*|.*\blibfabric:\d+:.*|\[?[\w./-]+\.(?:c|cc|cpp|cu|h|hpp|py|go|rs):\d+\b.*"
)
# A line that ends in a decimal or in two numbers may be the end of a row.
_ROW_TAIL = re.compile(r".*(?:\d\.\d+|\d\s+\d+)\s*")
# A line of a tool's head.
HEAD_LINE = re.compile(r"# *([A-Za-z][\w ()/.-]{0,60}?) *: +(\S.*?) *")


def has_line_with(marks: str) -> Callable[[str], bool]:
    """Return a function that finds a line with one of these marks."""
    pattern = re.compile(rf"^[^\n]*(?:{marks})", re.MULTILINE)
    return lambda text: pattern.search(text) is not None


def skip(_runs: object, _number: int, _match: re.Match[str]) -> None:
    """Ignore a line of the tool that holds no fact."""


@dataclass(slots=True, kw_only=True)
class OpenTable(Generic[Row]):
    """A table that is read row by row. `ended` is true behind a line that closes it."""

    rows: list[Row] = field(default_factory=list)
    ended: bool = False


@dataclass(slots=True, kw_only=True)
class HeadedTable(OpenTable[Row]):
    """A table below a head. `unread` holds the lines that no rule reads, by name."""

    unread: dict[str, str] = field(default_factory=dict)


def keep_head(tables: Sequence[HeadedTable[Any]], _number: int, match: re.Match[str]) -> None:
    """Keep a `HEAD_LINE` that no other rule reads.

    It is ignored before the first run, and behind the rows of a run.
    """
    if tables and not tables[-1].rows:
        name, text = match[1], match[2]
        tables[-1].unread[name] = text


def require_columns(values: Sequence[str], expected: int, name: str = "columns") -> None:
    """Raise BadLine for a row with another number of values.

    `name` is the word for them in the message.
    """
    if len(values) != expected:
        raise BadLine(f"{len(values)} {name}; expected {expected}")


class ForeignLine(Exception):
    """A line of another program, which only looks like one of the tool."""


class Runs(Protocol):
    """The runs of a tool in one stream, while they are read."""

    @property
    def table(self) -> OpenTable[Any] | None:
        """The table whose rows are expected. None outside of a table."""

    def __len__(self) -> int:
        """Return the number of runs."""

    def pop(self) -> object:
        """Remove the last run."""


AnyRuns = TypeVar("AnyRuns", bound=Runs)
# The action for a line: it gets the runs so far, the number of the line from 1, and the match.
Rule = tuple[re.Pattern[str], Callable[[AnyRuns, int, re.Match[str]], None]]


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield every line with its number from 1. Its ending and colours are removed."""
    for number, match in enumerate(re.finditer(r"(?m)^.*$", text), 1):
        yield number, _CONTROL.sub("", _COLOUR.sub("", match[0]))


def _without_stamp(line: str) -> str:
    """Return a line without the time stamp at its start."""
    match = _STAMP.match(line)
    return line[match.end() :] if match else line


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """Yield each rank's label with its piece of a line.

    The label is "" for a line without one. `mpirun --tag-output` may put several labels into a line. Neighbours with
    the same label are joined.
    """
    line = _without_stamp(line)
    # The text before the first tag, then each tag and the text behind it.
    parts = _TAG.split(line)
    if len(parts) == 1:
        match = _LABEL.match(line)
        # Only one group of the pattern matches: the label.
        yield (
            (next(filter(None, match.groups())), _without_stamp(line[match.end() :]))
            if match
            else ("", line)
        )
        return
    labelled = zip(parts[1::2], parts[2::2], strict=True)
    for label, pieces in groupby(labelled, key=itemgetter(0)):
        yield label, "".join(piece for _, piece in pieces)


@dataclass(slots=True)
class _Stream(Generic[AnyRuns]):
    """The lines of one labelled rank, or those without a label.

    `skipped_count` counts the lines of other programs. `doubtful_lines` are those in the open table that may be broken
    rows; `remarks` are those that turned out to be none. Both hold the number of a line and its text.
    `has_numbered_rows` is True if the last row began with a digit. `line_above` is the line before.
    """

    runs: AnyRuns
    skipped_count: int = 0
    doubtful_lines: list[tuple[int, str]] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)
    has_numbered_rows: bool = False
    line_above: str = ""

    def take(self, rules: Sequence[Rule[AnyRuns]], source: str, number: int, line: str) -> None:
        """Give a line to the first rule that matches all of it.

        A line that no rule accepts is counted. Inside a table it is doubtful until the next row, or the table's end.
        Raise BadFile if it may be a broken row.
        """
        runs, table = self.runs, self.runs.table
        row_count, run_count = len(table.rows) if table is not None else 0, len(runs)
        line_above, self.line_above = self.line_above, line
        is_of_tool = _apply_rules(rules, runs, source, number, line)
        if len(runs) > run_count and line == line_above:
            # A heading directly below itself begins no second run.
            runs.pop()
        if not is_of_tool:
            self.skipped_count += bool(line.strip())
            if table is not None and not _FOREIGN.fullmatch(line):
                self.doubtful_lines.append((number, line))
            return
        has_new_row = table is not None and len(table.rows) > row_count
        self.has_numbered_rows = line[:1].isdigit() if has_new_row else self.has_numbered_rows
        # A doubtful line is inside the table only if a row, or the end of the table, follows it.
        if table is not None and (has_new_row or table.ended):
            self._settle(source)
        if runs.table is not table:
            self.doubtful_lines.clear()

    def _settle(self, source: str) -> None:
        """Keep doubtful lines as remarks. Raise BadFile for a possible row."""
        for number, line in self.doubtful_lines:
            if not self.has_numbered_rows or line[:1].isdigit() or _ROW_TAIL.fullmatch(line):
                refuse(source, number, line, "a line inside a table that is not a row")
            self.remarks.append((number, line))
        self.doubtful_lines.clear()

    def omits_cut_line(
        self, rules: Sequence[Rule[AnyRuns]], source: str, number: int, line: str
    ) -> bool:
        """Give a last line without a line end to the rules.

        Return True if it is a row, which may end inside a number. Then the runs are as before.
        """
        runs_before, table = copy.deepcopy(self.runs), self.runs.table
        row_count = len(table.rows) if table is not None else 0
        try:
            self.take(rules, source, number, line)
            table = self.runs.table
            if table is None or len(table.rows) == row_count:
                return False
        except BadFile:
            # A broken row is left out as well.
            pass
        self.runs = runs_before
        return True


def _apply_rules(
    rules: Sequence[Rule[AnyRuns]], runs: AnyRuns, source: str, number: int, line: str
) -> bool:
    """Give a line to the first rule whose pattern matches it. Return True if the rule's action accepts the line.

    The action adds what the line says to `runs`.
    """
    for pattern, take in rules:
        if match := pattern.fullmatch(line):
            try:
                take(runs, number, match)
            except ForeignLine:
                return False
            except BadLine as error:
                refuse(source, number, line, str(error))
            return True
    return False


def read_runs(
    text: str,
    source: str,
    rules: Sequence[Rule[AnyRuns]],
    begin: Callable[[], AnyRuns],
    finish: Callable[[AnyRuns], Sequence[ImportedLog]],
) -> tuple[ImportedLog, ...]:
    """Return the runs in a log. A run that several ranks printed is there once.

    `begin` makes the empty collection of runs that the rules fill from one stream; `finish` turns it into imported
    logs. Raise BadFile for a log without a row.
    """
    if looks_like_json(text):
        raise BadFile(f"{source}: the log is inside a JSON string; extract it first")
    # By the label of a rank; an empty label for lines without one.
    streams: dict[str, _Stream[AnyRuns]] = {}
    cut_number, notes = _cut_line_number(text), []
    for number, line in lines(text):
        for label, piece in _pieces(line):
            if label not in streams:
                streams[label] = _Stream(begin())
            # A log that somebody quotes may be indented, and some programs print tabs between columns.
            printed_line = piece.replace("\t", " ").lstrip(" ")
            if number < cut_number or not printed_line:
                streams[label].take(rules, source, number, printed_line)
            elif streams[label].omits_cut_line(rules, source, number, printed_line):
                notes = [
                    f"left out the last line, {number}, since it has no line end and may be cut"
                ]
    logs = [log for stream in streams.values() for log in finish(stream.runs)]
    remarks = sorted(remark for stream in streams.values() for remark in stream.remarks)
    # Each remark was also counted as a skipped line.
    skipped_count = sum(stream.skipped_count for stream in streams.values()) - len(remarks)
    # The first of several copies is kept, in the order of the log: in reverse order it is written last.
    unique_logs = list({_content(log): log for log in reversed(logs)}.values())[::-1]
    if not any(log.readings or log.ended for log in unique_logs):
        reason = next(
            (reason for log in unique_logs for _, reason in log.failed),
            "the log has no table with rows, or another program wrote into every row",
        )
        raise BadFile(f"{source}: {reason}; expected the whole output of a known tool")
    if remarks:
        (number, line), line_count = remarks[0], count(len(remarks), "line")
        notes.append(
            f"skipped {line_count} inside a table that do not begin with a number: line {number}, '{line}'"
        )
    notes += [f"skipped {count(skipped_count, 'line')} around the tables"] if skipped_count else []
    if copies := len(logs) - len(unique_logs):
        notes.append(f"left out {count(copies, 'repeated table')}, as every rank prints one")
    first_log, *further_logs = unique_logs
    return (replace(first_log, notes=(*first_log.notes, *notes)), *further_logs)


def _cut_line_number(text: str) -> int:
    """Return the number of the last line if it may be cut.

    Else it is the number after it, so that no line counts as cut. A last line without a line end is cut, or only its
    line end was stripped. It is whole if it has as many words, and as many decimals in the last word, as the line
    above.
    """
    last_number = text.count("\n") + 1
    row_ends = [
        (len(match[1]), len(line.split()))
        for line in text.rsplit("\n", 2)[1:]
        if (match := _END.search(line))
    ]
    is_whole = len(row_ends) == 2 and row_ends[0] == row_ends[1]
    return last_number + 1 if is_whole else last_number


def _content(log: ImportedLog) -> object:
    """Return the content that two copies of a table share."""
    return (
        log.tool,
        log.failed,
        tuple((reading.label, reading.key.metric, reading.seconds) for reading in log.readings),
    )
