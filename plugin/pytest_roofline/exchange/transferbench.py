"""What TransferBench prints: the transfers of its tests, and the matrices of its presets p2p and a2a."""

import re
from dataclasses import dataclass, field

from ..core.keys import Scalar, Timing
from ..core.work import Work
from .logs import Foreign, Rule, marked, read_runs, skip
from .records import Given, Imported, Reading, Refused, amount, pooled, whole

CONVENTION = (
    "payload that arrives; GB is 1e9 bytes; means over the iterations; transfers and executors by the device's clock, "
    "aggregates by the host's; seconds of a matrix are those of 1 GB where no line tells the bytes"
)
PAYLOAD_BYTES = 10**9
# Memory of devices, by the letter before the index; the others are of hosts, or none.
_DEVICE_MEMORY = "GFM"
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
_HEADING = re.compile(r" *SRC(?:\+EXE)?\\DST(?:\+EXE)?((?: +(?:[CG]PU \d+|STotal|Actual))+) *")
_ROW = re.compile(r" *([CG]PU) (\d+) +(?:(<->|->|<-) +)?(\S.*?) *")
_TOTAL = re.compile(r" *RTotal .*")
_OVERALL = re.compile(r"(Average|Aggregate) +bandwidth \((GPU|CPU) Timed\): +(\d+\.\d+) GB/s *")
_KINDS = {"Uni": "p2p_unidirectional", "Bi": "p2p_bidirectional", None: "a2a"}


@dataclass(slots=True)
class _Block:
    """A test up to its aggregate, or a matrix."""

    columns: list[str] = field(default_factory=list)
    rows: list[Reading] = field(default_factory=list)
    ended: bool = False


@dataclass(slots=True)
class _Call:
    """One call of TransferBench: where the reading stands, and what was read."""

    version: str = ""
    test: int = 0
    size_bytes: int = 0
    kind: str = ""
    engine: str = ""
    block: _Block | None = None
    rows: list[Reading] = field(default_factory=list)

    def add(
        self, name: str, parameters: dict[str, Scalar], rate: float, size_bytes: int, number: int,
        *, devices: int = 1, metric: str = "payload_GBps", timing: Timing = "device",
    ) -> None:  # fmt: skip
        """Keep a rate, in GB/s."""
        if not rate:
            raise Refused("a rate of 0; expected more")
        moved = size_bytes or PAYLOAD_BYTES
        sized: dict[str, Scalar] = {"size_bytes": size_bytes} if size_bytes else {}
        self.rows.append(
            Reading(
                f"transferbench.{name}", sized | parameters, metric, "mean", Work(payload_bytes=moved),
                (moved / (rate * 1e9),), f"line {number}", devices=devices, timing=timing,
                mode="events" if timing == "device" else "host",
            )
        )  # fmt: skip
        if self.block is not None:
            self.block.rows.append(self.rows[-1])


class _Calls(list[_Call]):
    """The calls of a stream, one behind the other."""

    @property
    def table(self) -> _Block | None:
        """The test or the matrix that is read; no line tells that a matrix is at its end."""
        return self[-1].block if self else None

    def run(self) -> _Call:
        """The call at hand; a log may lack its first line."""
        if not self:
            self.append(_Call())
        return self[-1]


def _take_version(runs: _Calls, _: int, match: re.Match[str]) -> None:
    runs.append(_Call(version=match[1]))


def _take_test(runs: _Calls, _: int, match: re.Match[str]) -> None:
    run = runs.run()
    run.test, run.block = int(match[1]), _Block()


def _figures(rate: str, milliseconds: str, size: str) -> tuple[float, int]:
    """Rate and bytes, where the time agrees with them."""
    moved, printed = whole(size), amount(milliseconds)
    took = moved / (amount(rate) or 1) / 1e6
    if abs(took - printed) > 0.00051 + took * (0.00051 / (amount(rate) or 1)):
        raise Refused(
            f"{moved} bytes at {rate} GB/s are {took:.3f} ms, but {milliseconds} ms are printed"
        )
    return amount(rate), moved


def _take_executor(runs: _Calls, number: int, match: re.Match[str]) -> None:
    run, (rate, moved) = runs.run(), _figures(*match.groups()[1:])
    run.add(
        "executor", {"executor": match[1].replace(" ", ""), "test": run.test}, rate, moved, number
    )


def _take_transfer(runs: _Calls, number: int, match: re.Match[str]) -> None:
    run, (rate, moved) = runs.run(), _figures(*match.groups()[1:4])
    path = match[5].replace(" ", "")
    ends = {path.split("->")[0], path.split("->")[2]}
    devices = sum(end[0] in _DEVICE_MEMORY for end in ends)
    run.add(
        "transfer", {"path": path, "test": run.test, "transfer": int(match[1])}, rate, moved, number,
        devices=max(1, devices),
    )  # fmt: skip


def _take_aggregate(runs: _Calls, number: int, match: re.Match[str]) -> None:
    run, (rate, moved) = runs.run(), _figures(*match.groups())
    run.add("aggregate", {"test": run.test}, rate, moved, number, timing="wall")
    if run.block is not None:
        run.block.ended = True
    run.block = None


def _refuse_broken(runs: _Calls, _: int, __: re.Match[str]) -> None:
    if runs.table is None:
        raise Foreign
    raise Refused("no rate, time and bytes as this importer knows them")


def _take_bytes(runs: _Calls, _: int, match: re.Match[str]) -> None:
    runs.run().size_bytes = whole(match[1] or match[2] or match[3])


def _take_title(runs: _Calls, _: int, match: re.Match[str]) -> None:
    run = runs.run()
    run.kind, run.engine, run.block = _KINDS[match[1]], (match[2] or "").lower(), None


def _take_heading(runs: _Calls, _: int, match: re.Match[str]) -> None:
    run = runs.run()
    run.kind, run.block = (
        run.kind or "a2a",
        _Block(re.findall(r"[CG]PU \d+|STotal|Actual", match[1])),
    )


def _take_row(runs: _Calls, number: int, match: re.Match[str]) -> None:
    run, block, cells = runs.run(), runs.table, match[4].split()
    if block is None or not block.columns:
        raise Foreign
    if len(cells) != len(block.columns):
        raise Refused(f"{len(cells)} cells; expected {len(block.columns)}")
    row, way = f"{match[1].lower()}{int(match[2])}", match[3] or "->"
    prefix = (
        ""
        if run.kind != "p2p_bidirectional"
        else "bidir_sum_"
        if way == "<->"
        else "bidir_per_dir_"
    )
    for column, cell in zip(block.columns, cells, strict=True):
        if "PU" not in column or cell == "N/A":
            continue
        other = f"{column[:3].lower()}{int(column[4:])}"
        parameters: dict[str, Scalar] = {"pair": f"{row}{way}{other}"}
        if run.engine:
            parameters["engine"] = run.engine
        devices = len({name for name in (row, other) if name.startswith("gpu")})
        run.add(
            run.kind, parameters, amount(cell), run.size_bytes, number,
            devices=max(1, devices), metric=f"{prefix}payload_GBps",
        )  # fmt: skip


def _take_overall(runs: _Calls, number: int, match: re.Match[str]) -> None:
    run = runs.run()
    timing: Timing = "device" if match[2] == "GPU" else "wall"
    timed: dict[str, Scalar] = {"timed_by": match[2].lower()}
    run.add(f"a2a_{match[1].lower()}", timed, amount(match[3]), 0, number, timing=timing)


_RULES: tuple[Rule[_Calls], ...] = (
    (_VERSION, _take_version), (_TEST, _take_test), (_EXECUTOR, _take_executor), (_TRANSFER, _take_transfer),
    (_AGGREGATE, _take_aggregate), (_BROKEN, _refuse_broken), (_BORDER, skip), (_TOTAL, skip), (_BYTES, _take_bytes),
    (_TITLE, _take_title), (_HEADING, _take_heading), (_ROW, _take_row), (_OVERALL, _take_overall),
)  # fmt: skip


sniff = marked(r"TransferBench v\d|Executor: \w+ \d+ +[|│]|SRC(?:\+EXE)?\\DST")


def read(text: str, source: str, _: Given) -> tuple[Imported, ...]:
    """The calls in a log, one behind the other."""
    return read_runs(
        text, source, _RULES, _Calls, lambda runs: [_imported(run, source) for run in runs]
    )


def _imported(run: _Call, source: str) -> Imported:
    failed = () if run.rows else (("transferbench", "a run ended before a table with rows"),)
    software = {"TransferBench": run.version} if run.version else {}
    return Imported(
        source, "TransferBench", CONVENTION, pooled(run.rows), software=software, failed=failed
    )
