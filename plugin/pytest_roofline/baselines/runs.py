"""Run files of JSON lines.

They are written as results come, so that an interrupted run keeps those it has.
"""

import datetime
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import BadFile
from ..core.facts import Environment
from ..core.keys import positional_names_note
from ..core.memory import MemoryUse, OutOfMemory
from ..core.profiles import Figure, Profile
from ..core.records import Footer, Header, Measurement, Outcome
from ..core.resources import Resources
from ..core.samples import CANARY, Calibration
from ..core.storage import MOST_BYTES, check_schema, decode_json, read_lines, to_plain, to_record
from ..core.verdicts import ExactVerdict, Kind, Verdict
from ..core.writing import json_text
from .fitness import Fitness, drill_of, not_passed_of, spoiled_reasons_of

Line = (
    Header
    | Calibration
    | Measurement
    | Figure
    | MemoryUse
    | Profile
    | Resources
    | OutOfMemory
    | Outcome
    | Verdict
    | ExactVerdict
    | Footer
)
Record = TypeVar("Record", bound=Line)
LINE_TYPES: dict[str, type[Line]] = {
    "header": Header,
    "calibration": Calibration,
    "measurement": Measurement,
    "figure": Figure,
    "memory_use": MemoryUse,
    "profile": Profile,
    "resources": Resources,
    "out_of_memory": OutOfMemory,
    "outcome": Outcome,
    "verdict": Verdict,
    "exact": ExactVerdict,
    "footer": Footer,
}
_NAMES = {kind: name for name, kind in LINE_TYPES.items()}
FOREIGN = "`roofline import LOG --save NAME` makes a run from another tool's log"
# The end of a file that is searched for its footer, which grows with the number of sweeps.
MOST_FOOTER_BYTES = 2**20


def now() -> str:
    """Return the time in UTC, to the second, as ISO 8601."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_run_id() -> str:
    """Return a name for a run that sorts by time.

    It ends with the process id, so that two runs at once have different names.
    """
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    return f"{stamp}-{os.getpid()}"


def _lines_of(kind: type[Record]) -> "cached_property[tuple[Record, ...]]":
    """Return a property of a run: its lines of one kind."""
    return cached_property(lambda run: tuple(line for line in run.lines if isinstance(line, kind)))


@dataclass(frozen=True)
class Run:
    """One run file, read back: its header, and the lines behind it."""

    path: Path
    header: Header
    lines: tuple[Line, ...]
    cut: bool = False

    calibrations = _lines_of(Calibration)
    # Those of all processes, canaries included.
    measurements = _lines_of(Measurement)
    figures = _lines_of(Figure)
    memory_uses = _lines_of(MemoryUse)
    profiles = _lines_of(Profile)
    resources = _lines_of(Resources)
    out_of_memory = _lines_of(OutOfMemory)
    outcomes = _lines_of(Outcome)
    # Those on times; `exact` are those by exact baselines.
    verdicts = _lines_of(Verdict)
    exact = _lines_of(ExactVerdict)

    def with_lines(self, kind: type[Record], lines: Iterable[Record]) -> "Run":
        """Return the run with these lines in place of all of their kind."""
        kept = (line for line in self.lines if not isinstance(line, kind))
        return replace(self, lines=(*kept, *lines))

    @cached_property
    def footer(self) -> Footer | None:
        """The last line of a run that came to its end; None of another."""
        return next((line for line in self.lines[::-1] if isinstance(line, Footer)), None)

    @cached_property
    def spoiled_reasons(self) -> dict[str, str]:
        """By key, why none of its measurements counts: over half of its processes are invalid."""
        return spoiled_reasons_of(
            [(entry.key.identity, entry.process, entry.invalid) for entry in self.measurements]
        )

    @cached_property
    def environment(self) -> Environment:
        """Return the environment at the end of the run.

        It is that of the header, with packages, libraries and programs that came later.
        """
        environment = self.header.environment
        if self.footer is None:
            return environment
        return replace(
            environment,
            software=environment.software | self.footer.software,
            packages=environment.packages | self.footer.packages,
            libraries=environment.libraries | self.footer.libraries,
        )

    @property
    def drill(self) -> str:
        """Return the slowdown of a drill, as its command gives it: `30%`.

        It is empty for a run without a drill.
        """
        return drill_of(self.header.command)

    @property
    def tested(self) -> tuple[Measurement, ...]:
        """Return the measurements of its tests, without canaries."""
        return tuple(
            measurement
            for measurement in self.measurements
            if CANARY not in measurement.samples.labels
        )

    @cached_property
    def not_passed(self) -> dict[str, Outcome]:
        """Return the outcome of each test that did not pass, by its id.

        A rerun that passed does not undo a failure.
        """
        return not_passed_of(self.outcomes)

    @cached_property
    def _fitness(self) -> Fitness:
        ended = frozenset(outcome.test_id for outcome in self.outcomes)
        return Fitness(self.drill, ended, self.not_passed)

    def unfit(self, measurement: Measurement, accept_slower: bool) -> str:
        """Return why a measurement is unfit for a comparison or a baseline.

        It is empty where the measurement is fit. With `accept_slower` a test may have failed by its
        verdict.
        """
        spoiled = self.spoiled_reasons.get(measurement.key.identity, "")
        return self._fitness.unfit(
            measurement.test_id,
            measurement.samples.labels,
            invalid=measurement.invalid or spoiled,
            siblings_busy=measurement.siblings_busy,
            accept_slower=accept_slower,
        )

    def unfit_resources(self, resources: Resources, accept_worse: bool) -> str:
        """Return why a compiled kernel is unfit for a comparison or a baseline.

        It is empty where the kernel is fit. With `accept_worse` a test may have failed by its verdict.
        """
        by_position = positional_names_note(resources.key.parameters)
        test_reason = self._fitness.test_unfit(resources.test_id, accept_worse)
        return resources.invalid or by_position or test_reason

    def unjudged(self, resources: Resources) -> str:
        """Return why a compiled kernel was not judged, or an empty text.

        It is empty where the kernel was compared with its baseline, or had none.
        """
        identity = resources.test_id, resources.key.name, resources.target
        verdicts = (
            verdict
            for verdict in self.exact
            if (verdict.test_id, verdict.name, verdict.target) == identity
        )
        return next((verdict.reason for verdict in verdicts if verdict.verdict == Kind.INVALID), "")


def cut_note(path: Path | str) -> str:
    """Return the note on a run file that was cut."""
    return f"{path} ends in the middle of a line; that line is left out"


def read_run(path: Path) -> Run:
    """Return a run file.

    A last line that was cut in the middle is left out; `cut` is True then.
    """
    records: list[Line] = []
    cut = False
    for number, line in enumerate(read_lines(path, "run file"), 1):
        if not line.strip():
            continue
        try:
            records.append(read_line(line.removesuffix(b"\n"), number, path))
        except BadFile as error:
            # The first line of a run file has a type; a file without one is most likely another tool's log.
            if number == 1 and b'"type"' not in line:
                raise BadFile(f"{error}; {FOREIGN}") from None
            # Only the last line may have no end: a process was killed while it wrote this line.
            if line.endswith(b"\n") or not records:
                raise
            cut = True
    return assemble(path, records, cut)


def ends_of(path: Path) -> tuple[Header, Footer] | None:
    """Return the header and the footer of a run file, without reading the rest.

    None where the run did not come to its end.
    """
    # A footer may be long, but its type is among its first characters.
    with path.open("rb") as file:
        first = file.readline(MOST_BYTES)
        file.seek(max(0, path.stat().st_size - MOST_FOOTER_BYTES))
        _, _, last = file.read().rstrip(b"\n").rpartition(b"\n")
    # A run that was interrupted ends with another record.
    if b'"footer"' not in last[:40]:
        return None
    # The number of the last line is unknown: -1 stands for it in a message.
    header, footer = read_line(first, 1, path), read_line(last, -1, path)
    return (header, footer) if isinstance(header, Header) and isinstance(footer, Footer) else None


def read_line(line: bytes, number: int, path: Path) -> Line:
    """Return the record of a line.

    Args:
        number: of the line in the file, for the message.

    Raises:
        BadFile: the line is no record of a run file.
    """
    place = f"run file {path}, line {number}"
    raw = decode_json(line, place)
    kind = raw.pop("type", None) if isinstance(raw, dict) else None
    if not isinstance(kind, str) or kind not in LINE_TYPES:
        raise BadFile(f"{place} has type {kind!r}; expected one of {', '.join(LINE_TYPES)}")
    if kind == "header":
        check_schema(raw, place)
    if kind == "measurement":
        raw.pop("derived", None)
    return to_record(raw, LINE_TYPES[kind], place)


def assemble(path: Path, records: list[Line], cut: bool) -> Run:
    """Return the run from a file's records.

    Raises:
        BadFile: the first record is no header, or there is a second one.
    """
    header = records[0]
    if not isinstance(header, Header):
        raise BadFile(
            f"run file {path} starts with a {type(header).__name__.lower()}; expected its header"
        )
    if sum(isinstance(record, Header) for record in records) > 1:
        raise BadFile(f"run file {path} has two headers; expected one run in a file")
    return Run(path, header, tuple(records[1:]), cut)


def encode_line(record: Line) -> str:
    """Return one line of a run file, newline included."""
    plain: dict[str, Any] = {"type": _NAMES[type(record)], **to_plain(record)}
    if isinstance(record, Measurement):
        plain["derived"] = record.derived()
    return json_text(plain, indent=None)
