"""The default text of nvbandwidth as its JSON document. Versions 0.2 on are read: `output.cpp`."""

import re
from dataclasses import dataclass
from typing import Any

from .logs import ForeignLine, OpenTable, Rule, require_columns, skip
from .records import BadLine, amount

_HEAD = re.compile(
    r" *(?:nvbandwidth Version: (?P<version>\S+)|Built from Git version: (?P<git_version>\S+)"
    r"|CUDA Runtime Version: (?P<runtime>\S.*?)|Driver Version: (?P<driver>\S+)) *"
)
_NAMES = {"runtime": "CUDA Runtime Version", "driver": "Driver Version"}
_DEVICE = re.compile(r" *(?:Device (\d+)|Process (\d+) \(([^()]*)\): device \d+): (\S.*?) *")
# Versions 0.8 and 0.9 print it between the driver and the first device.
_NODE = re.compile(r" *([\w.-]{1,99}) *")
_CASE = re.compile(r" *Running (?:benchmark )?([a-z][a-z0-9_]*)\. *")
_STATUS = re.compile(r" *(Waived|Error|ERROR): *(.*?) *")
_DESCRIPTION = re.compile(r" *(\S.*(?:\(GB/s\)|\(ns\)|BW)) *")
_CELLS = re.compile(r" *\S+(?:(?: +(?:\d+\.\d\d|N/A))+|(?: +\d+)+) *")
_COLUMN = re.compile(r" *\d+ *")
_SUM = re.compile(r" *(?:SUM|&&&& PERF) \w+ (\d[\d.e+]*)\S* *")
# The line of a job that calls nvbandwidth.
_COMMAND = re.compile(r".*\bnvbandwidth( +-.*)")
_BUFFER = re.compile(r" (?:-b|--bufferSize)[ =]?([1-9]\d{0,8})\b")
_MEAN = re.compile(r" (?:-m|--useMean)\b")
_IGNORED_LINE = re.compile(
    r" *(?:(?:MIN|MAX|AVG|COEFFICIENT_OF_VARIATION) \w+ \S+|CUDA Driver Version.*|MPI version: .*|\t?Sample \d+: .*"
    r"|NOTE: .*|Performance can vary .*|Additional system-specific tuning .*)"
)


@dataclass(slots=True)
class Matrix(OpenTable[list[str]]):
    """One matrix between its description and its sum.

    `square` is True if each GPU has a row; `columns` is the number of columns, 0 until the heading is read.
    """

    square: bool
    columns: int = 0

    @property
    def is_complete(self) -> bool:
        """True if no row is missing. There is one for each GPU, and one for the host."""
        return len(self.rows) == (self.columns if self.square else 1)


class Texts(list[dict[str, Any]]):
    """The runs of a stream as documents, and the open matrix.

    `unnamed_count` counts the waived test cases that the text does not name. `settings` are those of the job's command,
    for the next run.
    """

    table: Matrix | None = None
    unnamed_count: int = 0
    settings: dict[str, Any] | None = None

    def run(self) -> dict[str, Any]:
        """Return the run that a line above its test cases (version, driver, devices) belongs to.

        It is a new run if the last one has test cases.
        """
        if not self or self[-1]["testcases"]:
            self.close()
            self.append({"testcases": [], **(self.settings or {})})
            self.settings = None
        return self[-1]

    def case(self) -> dict[str, Any]:
        """Return the latest test case. Raise ForeignLine if there is none."""
        if not self or not self[-1]["testcases"]:
            raise ForeignLine
        case: dict[str, Any] = self[-1]["testcases"][-1]
        return case

    def close(self) -> None:
        """Keep the open matrix, if its sum is printed or no row is missing."""
        if self.table is not None and (self.table.ended or self.table.is_complete):
            case = self.case()
            case["bandwidth_matrix"] = [*case.get("bandwidth_matrix", ()), *self.table.rows]
            case["status"] = "Passed"
        self.table = None


def _take_head(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """Keep the facts of a line above the test cases."""
    texts.run().update(
        {_NAMES.get(name, name): text for name, text in match.groupdict().items() if text}
    )


def _take_node(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """Keep a bare word as the name of the node.

    It counts only between the line of the driver and the first device.
    """
    run = texts[-1] if texts else {}
    if _NAMES["driver"] not in run or "GPU Device list" in run or run["testcases"]:
        raise ForeignLine
    run["Hostname"] = match[1]


def _take_device(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """Add a device as the JSON lists it. With several hosts its process is its number."""
    number, process, host, product = match.groups()
    host_text = f": ({host})" if host else ""
    texts.run().setdefault("GPU Device list", []).append(
        f"{number or process}: {product}{host_text}"
    )


def _take_command(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """Keep the settings in a command for the next run.

    The output of the run does not hold them.
    """
    buffer = _BUFFER.search(match[1])
    texts.settings = {"bufferSize": int(buffer[1])} if buffer else {}
    texts.settings["useMean"] = _MEAN.search(match[1]) is not None


def _take_case(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """Begin a test case."""
    texts.close()
    if not texts:
        texts.run()
    texts[-1]["testcases"].append({"name": match[1], "status": "Running"})


def _take_status(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """Keep the status of a test case that has no matrix.

    It failed or was waived; the reason is kept too. A waived test case may be printed without a name.
    """
    status, reason = match.groups()
    has_running_case = texts and texts[-1]["testcases"] and texts.case()["status"] == "Running"
    if status == "Waived" and not has_running_case:
        texts.unnamed_count += 1
        return
    texts.case().update(status=status.capitalize(), error=reason or None)


def _take_description(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """Begin a matrix at its description."""
    texts.close()
    texts.case().update(bandwidth_description=match[1], status="Running")
    texts.table = Matrix("GPU(row)" in match[1])


def _take_cells(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """Read a row of a matrix. The first one is the heading, which gives the number of columns."""
    if texts.table is None:
        raise ForeignLine
    words = match[0].split()
    if not texts.table.columns:
        # The heading has a word for each column.
        texts.table.columns = len(words)
        return
    _name, *cells = words
    require_columns(cells, texts.table.columns, "cells")
    texts.table.rows.append(cells)


def _take_column(texts: Texts, _number: int, _match: re.Match[str]) -> None:
    """Read the heading of a matrix with one column, which is a bare number."""
    if texts.table is None:
        raise ForeignLine
    if texts.table.columns:
        raise BadLine("a line inside a matrix that is not a row")
    texts.table.columns = 1


def _take_sum(texts: Texts, _number: int, match: re.Match[str]) -> None:
    """End a matrix at its sum. Raise BadLine if its cells do not add up to it."""
    if texts.table is None:
        raise ForeignLine
    cells = [amount(cell) for row in texts.table.rows for cell in row if cell != "N/A"]
    if abs(sum(cells) - amount(match[1])) > 0.006 * (len(cells) + 1):
        raise BadLine(f"the sum of the matrix above is {sum(cells):.2f}")
    texts.table.ended = True
    texts.close()


RULES: tuple[Rule[Texts], ...] = (
    (_IGNORED_LINE, skip), (_HEAD, _take_head), (_DEVICE, _take_device), (_CASE, _take_case), (_STATUS, _take_status),
    (_SUM, _take_sum), (_DESCRIPTION, _take_description), (_CELLS, _take_cells), (_COLUMN, _take_column),
    (_COMMAND, _take_command), (_NODE, _take_node),
)  # fmt: skip
