"""Output of TransferBench: transfers, and matrices of p2p and a2a."""

import re
from dataclasses import dataclass, field, replace

from ..core.keys import Scalar, Timing
from ..core.units import count
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

TOOL = Tool(
    "TransferBench",
    "the payload that arrives; GB is 1e9 bytes; means over the iterations; the device's clock times transfers and "
    "executors, the host's clock aggregates; seconds of a matrix are the time of 1 GB where no line gives the bytes",
)
# The bytes that a rate is taken to move where no line says them: 1 GB.
PAYLOAD_BYTES = 10**9
# The letters of device memory in the end of a transfer. Other letters are of the host's memory, or of no memory.
_DEVICE_MEMORY = "GFM"
# Executors that are a part of a GPU: its multiprocessors, its copy engines.
_GPU_EXECUTORS = ("GPU", "DMA")
_VERSION = re.compile(r" *TransferBench v(\S+).*")
_TEST = re.compile(r" *Test (\d+):.*")
_BAR = r"\s*[|│]?\s*"
_FIGURES = rf"{_BAR}(\d+\.\d+) GB/s{_BAR}(\d+\.\d+) ms{_BAR}(\d+) bytes{_BAR}"
_EXECUTOR = re.compile(rf" *Executor: (\w+ \d+){_FIGURES}.*")
_TRANSFER = re.compile(rf" *Transfer (\d+){_FIGURES}(\S+ -> \S+ -> \S+) *")
_AGGREGATE = re.compile(rf" *Aggregate \(CPU\){_FIGURES}.*")
_BROKEN = re.compile(r" *(?:Executor: |Transfer \d+ |Aggregate \(CPU\)).*")
_BORDER = re.compile(r"[ \-─┬┼┴┌┐└┘├┤│]+|.*\bTime += .*|Averages .*|[CG]PU->[CG]PU.*")
_BYTES = re.compile(
    r" *Bytes Per Direction (\d+) *|- Copying (\d+) bytes between .*|.*\[(\d+) bytes per Transfer\].*"
)
_TITLE = re.compile(
    r" *(?:(Uni|Bi)directional copy peak bandwidth GB/s .*?(?:Executor: (\w+)\).*)?|.*(All-To-All) .*:)"
)
_PRESET = re.compile(r" *(?:GPU-\S+ )?(\S.*?) [Bb]enchmark:.*")
_ITERATION = re.compile(r" *(?:Iter +\d+|StandardDev) .*")
_HEADING = re.compile(r" *SRC(?:\+EXE)?\\DST(?:\+EXE)?((?: +(?:[CG]PU \d+|STotal|Actual))+) *")
_ROW = re.compile(r" *([CG]PU) (\d+) +(?:(<->|->|<-) +)?(\S.*?) *")
_TOTAL = re.compile(r" *RTotal .*")
_OVERALL = re.compile(r"(Average|Aggregate) +bandwidth \((GPU|CPU) Timed\): +(\d+\.\d+) GB/s *")
_KINDS = {"Uni": "p2p_unidirectional", "Bi": "p2p_bidirectional", None: "a2a"}


@dataclass(slots=True)
class _Block(OpenTable[Reading]):
    """A test up to its aggregate, or a matrix."""

    columns: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Call:
    """One call of TransferBench: its current test or matrix, and all of its readings."""

    version: str = ""
    test: int = 0
    size_bytes: int = 0
    kind: str = ""
    engine: str = ""
    block: _Block | None = None
    rows: list[Reading] = field(default_factory=list)
    # Titles of presets whose tables are not read, and lines of single iterations.
    presets: list[str] = field(default_factory=list)
    iterations: int = 0

    def add(
        self, name: str, parameters: dict[str, Scalar], rate: float, size_bytes: int, number: int,
        *, counting: str = "", timing: Timing = "device", whole_block: bool = False,
    ) -> None:  # fmt: skip
        """Keep a rate as a reading.

        Args:
            name: of the benchmark.
            parameters: of the benchmark.
            rate: in GB/s.
            size_bytes: of the transfer; 0 if unknown, then 1 GB counts.
            number: of the line.
            counting: the beginning of the metric.
            timing: as in the key.
            whole_block: the rate is of all rows of the block, and so of all their devices.
        """
        if not rate:
            raise BadLine("the rate is 0; expected a rate above 0")
        moved_bytes = size_bytes or PAYLOAD_BYTES
        size_parameter: dict[str, Scalar] = {"size_bytes": size_bytes} if size_bytes else {}
        reading = Reading(
            key_of_reading(
                f"transferbench.{name}", size_parameter | parameters, f"{counting}payload_GBps", "mean", timing
            ),
            Work(payload_bytes=moved_bytes), (moved_bytes / (rate * 1e9),), f"line {number}",
            mode="events" if timing == "device" else "host",
        )  # fmt: skip
        rows = self.block.rows if whole_block and self.block is not None else [reading]
        gpus = {gpu for row in rows for gpu in row.gpus}
        reading = replace(reading, devices=max(1, len(gpus)))
        self.rows.append(reading)
        if self.block is not None:
            self.block.rows.append(reading)


class _Calls(list[_Call]):
    """The calls of a stream, one behind the other."""

    @property
    def table(self) -> _Block | None:
        """The test or the matrix that is being read. No line marks the end of a matrix."""
        return self[-1].block if self else None

    def run(self) -> _Call:
        """Return the current call. Begin one if the log lacks its first line."""
        if not self:
            self.append(_Call())
        return self[-1]


def _take_version(runs: _Calls, _number: int, match: re.Match[str]) -> None:
    """Begin a call at its first line."""
    runs.append(_Call(version=match[1]))


def _take_test(runs: _Calls, _number: int, match: re.Match[str]) -> None:
    """Begin a test."""
    run = runs.run()
    run.test, run.block = int(match[1]), _Block()


def _figures(rate: str, milliseconds: str, size: str) -> tuple[float, int]:
    """Return the rate in GB/s and the bytes of one printed transfer.

    Raise BadLine if the printed time does not agree with them, its rounding aside.
    """
    moved_bytes, printed_ms = whole_number(size), amount(milliseconds)
    expected_ms = moved_bytes / (amount(rate) or 1) / 1e6
    if abs(expected_ms - printed_ms) > 0.00051 + expected_ms * (0.00051 / (amount(rate) or 1)):
        raise BadLine(
            f"{moved_bytes} bytes at {rate} GB/s are {expected_ms:.3f} ms, but {milliseconds} ms are printed"
        )
    return amount(rate), moved_bytes


def _take_executor(runs: _Calls, number: int, match: re.Match[str]) -> None:
    """Read the rate of an executor. If it is part of a GPU, its index is that of the GPU."""
    name, *figures = match.groups()
    run, (rate, moved_bytes) = runs.run(), _figures(*figures)
    kind, index = name.split()
    parameters: dict[str, Scalar] = {"executor": f"{kind}{index}", "test": run.test}
    if kind in _GPU_EXECUTORS:
        parameters = {"executor": kind, "gpu": int(index), "test": run.test}
    run.add("executor", parameters, rate, moved_bytes, number)


def _take_transfer(runs: _Calls, number: int, match: re.Match[str]) -> None:
    """Read the rate of one transfer.

    An executor did it from a source to a target. Unusual kinds of device memory (F, M) are in its key.
    """
    transfer, *figures, path = match.groups()
    run, (rate, moved_bytes) = runs.run(), _figures(*figures)
    source, executor, target = path.replace(" ", "").split("->")
    parameters = {"source": _end(source), "target": _end(target), "executor": executor}
    letters = f"{source[:1]}-{target[:1]}"
    if "F" in letters or "M" in letters:
        parameters["memory"] = letters
    parameters |= {"test": run.test, "transfer": int(transfer)}
    run.add("transfer", parameters, rate, moved_bytes, number)


def _end(memory: str) -> Scalar:
    """Return one end of a transfer. A GPU is its number, any other end as printed."""
    letter, index = memory[:1], memory[1:]
    return int(index) if letter in _DEVICE_MEMORY and index.isdigit() else memory


def _take_aggregate(runs: _Calls, number: int, match: re.Match[str]) -> None:
    """Read the rate of all transfers of a test, and end the test."""
    run, (rate, moved_bytes) = runs.run(), _figures(*match.groups())
    run.add(
        "aggregate", {"test": run.test}, rate, moved_bytes, number, timing="wall", whole_block=True
    )
    if run.block is not None:
        run.block.ended = True
    run.block = None


def _refuse_broken(runs: _Calls, _number: int, _match: re.Match[str]) -> None:
    """Refuse a row of a test that no rule above reads."""
    if runs.table is None:
        raise ForeignLine
    raise BadLine("no rate, time and bytes in a known form")


def _take_bytes(runs: _Calls, _number: int, match: re.Match[str]) -> None:
    """Keep the bytes of each copy of a matrix."""
    runs.run().size_bytes = whole_number(match[1] or match[2] or match[3])


def _take_title(runs: _Calls, _number: int, match: re.Match[str]) -> None:
    """Keep the kind of the next matrix, and its engine."""
    direction, executor, _all_to_all = match.groups()
    run = runs.run()
    run.kind, run.engine, run.block = _KINDS[direction], (executor or "").lower(), None


def _take_preset(runs: _Calls, _number: int, match: re.Match[str]) -> None:
    """Keep the title of a preset whose table is not read."""
    runs.run().presets.append(match[1].lower())


def _take_iteration(runs: _Calls, _number: int, _match: re.Match[str]) -> None:
    """Count a line of a single iteration, which is not read."""
    runs.run().iterations += 1


def _take_heading(runs: _Calls, _number: int, match: re.Match[str]) -> None:
    """Begin a matrix at the names of its columns. Without a title it is an all-to-all."""
    run = runs.run()
    run.kind = run.kind or "a2a"
    columns = re.findall(r"[CG]PU \d+|STotal|Actual", match[1])
    run.block = _Block(columns)


def _take_row(runs: _Calls, number: int, match: re.Match[str]) -> None:
    """Read a row of a matrix, with a reading for each pair. Sums and N/A are left out."""
    kind, index, printed_arrow, cell_text = match.groups()
    run, block, cells = runs.run(), runs.table, cell_text.split()
    if block is None or not block.columns:
        raise ForeignLine
    require_columns(cells, len(block.columns), "cells")
    row, arrow = _place(kind, index), printed_arrow or "->"
    is_bidirectional = run.kind == "p2p_bidirectional"
    counting = ""
    if is_bidirectional:
        counting = "bidir_sum_" if arrow == "<->" else "bidir_per_dir_"
    for column, cell in zip(block.columns, cells, strict=True):
        # Only columns named CPU or GPU are pairs; the others are sums.
        if "PU" not in column or cell == "N/A":
            continue
        parameters: dict[str, Scalar] = {"source": row, "target": _place(*column.split())}
        if is_bidirectional:
            parameters["direction"] = arrow
        if run.engine:
            parameters["engine"] = run.engine
        run.add(run.kind, parameters, amount(cell), run.size_bytes, number, counting=counting)


def _place(kind: str, index: str) -> Scalar:
    """Return one end of a pair. A GPU is its number, a node of the host's memory `cpu0`."""
    return int(index) if kind == "GPU" else f"cpu{int(index)}"


def _take_overall(runs: _Calls, number: int, match: re.Match[str]) -> None:
    """Read the rate of a whole all-to-all.

    It is timed by the clock of the GPU or of the CPU.
    """
    statistic, clock, rate = match.groups()
    runs.run().add(
        f"a2a_{statistic.lower()}",
        {"timed_by": clock.lower()},
        amount(rate),
        size_bytes=0,
        number=number,
        timing="device" if clock == "GPU" else "wall",
        whole_block=True,
    )


_RULES: tuple[Rule[_Calls], ...] = (
    (_VERSION, _take_version), (_TEST, _take_test), (_EXECUTOR, _take_executor), (_TRANSFER, _take_transfer),
    (_AGGREGATE, _take_aggregate), (_BROKEN, _refuse_broken), (_BORDER, skip), (_TOTAL, skip), (_BYTES, _take_bytes),
    (_TITLE, _take_title), (_PRESET, _take_preset), (_ITERATION, _take_iteration),
    (_HEADING, _take_heading), (_ROW, _take_row), (_OVERALL, _take_overall),
)  # fmt: skip


sniff = has_line_with(r"TransferBench v\d|Executor: \w+ \d+ +[|│]|SRC(?:\+EXE)?\\DST")


def read(text: str, source: str, _user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the calls in a log, one behind the other."""
    return read_runs(
        text, source, _RULES, _Calls, lambda runs: [_imported(run, source) for run in runs]
    )


def _imported(run: _Call, source: str) -> ImportedLog:
    """Return the log of one call. A call without readings becomes a failed test."""
    unread = tuple(f"preset {preset} is not read" for preset in run.presets)
    reason = unread[0] if unread else "a run ended before a table with rows"
    if run.iterations:
        unread += (
            f"{count(run.iterations, 'line')} of SHOW_ITERATIONS, single iterations and their deviation",
        )
    return ImportedLog(
        source,
        TOOL,
        pool_readings(run.rows),
        machine=MachineFacts(software={"TransferBench": run.version} if run.version else {}),
        failed=() if run.rows else (("transferbench", reason),),
        left_out=unread,
    )
