"""Files of other tools, read into runs, and runs written as files that other tools read; `FORMATS` and `EXPORTS`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from ..baselines.runs import Run
from ..core.errors import LARGEST, SMALLEST, BadFile, BadInput
from . import (
    babelstream,
    dashboards,
    google_benchmark,
    nccl_tests,
    nvbandwidth,
    nvbench,
    osu,
    pytest_benchmark,
    transferbench,
    triton_report,
)
from .building import run_id_of
from .exportable import Exportable, Omission, refuse_twice, select_exportable
from .logs import lines
from .records import ImportedLog, UserFacts, decode, looks_like_json, refuse

# Of a line of text.
MOST_LINE_BYTES = 256 * 2**10


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """One format: its name for `--format`, what a person calls it, whether a text looks like it, and its reader."""

    name: str
    title: str
    sniff: Callable[[str], bool]
    read: Callable[[str, str, UserFacts], tuple[ImportedLog, ...]]


# A further format is a module with these two functions, and a line here.
FORMATS = (
    ImportFormat(
        "nccl-tests", "log of nccl-tests or rccl-tests", nccl_tests.sniff, nccl_tests.read
    ),
    ImportFormat("nvbandwidth", "text or JSON of nvbandwidth", nvbandwidth.sniff, nvbandwidth.read),
    ImportFormat("babelstream", "text or CSV of BabelStream", babelstream.sniff, babelstream.read),
    ImportFormat("osu", "text of the OSU Micro-Benchmarks", osu.sniff, osu.read),
    ImportFormat("transferbench", "text of TransferBench", transferbench.sniff, transferbench.read),
    ImportFormat(
        "pytest-benchmark",
        "JSON of pytest-benchmark",
        pytest_benchmark.sniff,
        pytest_benchmark.read,
    ),
    ImportFormat("nvbench", "JSON of NVBench", nvbench.sniff, nvbench.read),
    ImportFormat(
        "google-benchmark",
        "JSON of Google Benchmark",
        google_benchmark.sniff,
        google_benchmark.read,
    ),
    ImportFormat(
        "triton", "CSV of triton.testing.perf_report", triton_report.sniff, triton_report.read
    ),
)
NAMES = tuple(one.name for one in FORMATS)


def read(
    data: bytes, source: str, given: UserFacts, name: str | None = None
) -> tuple[ImportedLog, ...]:
    """What a file holds: one entry for each process of the tool."""
    if name is not None and name not in NAMES:
        raise BadInput(f"--format is {name!r}; expected one of {', '.join(NAMES)}")
    text = decode(data, source)
    _refuse_long(text, source)
    chosen = next(
        (one for one in FORMATS if one.name == name or (name is None and one.sniff(text))), None
    )
    if chosen is None:
        number, line = next((number, line) for number, line in lines(text) if line.strip())
        titles = ", ".join(each.title for each in FORMATS)
        refuse(
            source,
            number,
            line,
            f"no format understands this file (tried: {titles}); --format tells what it is",
        )
    try:
        found = chosen.read(text, source, given)
    except BadInput as error:
        # A size beyond what arithmetic holds.
        raise BadFile(f"{source}: {error}") from None
    if not any(imported.readings or imported.failed for imported in found):
        why = next((f": {reason}" for imported in found for reason in imported.left_out), "")
        raise BadFile(f"{source}: {chosen.title} without a number that could be taken{why}")
    _refuse_contradiction(source, found, given)
    _refuse_impossible(source, found)
    # By content, so that a log that was imported twice is known again.
    digest = run_id_of([data])
    return tuple(
        replace(imported, process=f"{digest}-{number}") for number, imported in enumerate(found, 1)
    )


def _refuse_long(text: str, source: str) -> None:
    """Refuse what no tool prints as a line; of JSON any."""
    if not looks_like_json(text) and (match := re.search(rf"[^\n]{{{MOST_LINE_BYTES + 1}}}", text)):
        number = text.count("\n", 0, match.start()) + 1
        raise BadFile(
            f"{source}, line {number}: more than {MOST_LINE_BYTES // 2**10} KiB; expected lines as a tool prints them"
        )


def _refuse_impossible(source: str, found: tuple[ImportedLog, ...]) -> None:
    """Refuse times that no run file can hold."""
    for reading in (reading for imported in found for reading in imported.readings):
        if not all(SMALLEST <= seconds <= LARGEST for seconds in reading.seconds):
            raise BadFile(
                f"{source}, {reading.where}: {min(reading.seconds):g} to {max(reading.seconds):g} s a call; "
                f"expected {SMALLEST:g} to {LARGEST:g}"
            )


def _refuse_contradiction(source: str, found: tuple[ImportedLog, ...], given: UserFacts) -> None:
    """Refuse what the user tells where it is said of something else."""
    counts = {reading.devices for imported in found for reading in imported.readings}
    if given.devices is not None and counts and given.devices not in counts:
        raise BadFile(
            f"{source} has readings of {' or '.join(map(str, sorted(counts)))} devices, "
            f"but --devices={given.devices}; expected the same"
        )
    if given.operation is not None and not all("ccl-tests" in imported.tool for imported in found):
        raise BadFile(
            f"{source} is of {found[0].tool}, which knows no collectives; expected no --operation"
        )


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One format: its name for `--to`, what it calls a measurement, its writer, and why it cannot hold one."""

    name: str
    name_of: Callable[[Exportable], str]
    write: Callable[[Sequence[Exportable]], Any]
    why_not: Callable[[Exportable], str] = lambda _: ""


EXPORTS = (
    # By the node id it finds the same test in another file.
    ExportFormat("pytest-benchmark", attrgetter("name"), pytest_benchmark.write),
    # By a name that stays when a file moves, and that a chart has room for.
    ExportFormat("github-action-benchmark", attrgetter("row.label"), dashboards.write_times),
    ExportFormat(
        "github-action-benchmark-rates",
        attrgetter("row.label"),
        dashboards.write_rates,
        dashboards.why_no_rate,
    ),
    ExportFormat("bencher", attrgetter("row.label"), dashboards.write_bencher),
)
EXPORT_NAMES = tuple(one.name for one in EXPORTS)


@dataclass(frozen=True, slots=True)
class ExportedDocument:
    """A document for another tool as plain data, None where nothing is fit; what is in it, and what is not and why."""

    document: Any
    names: tuple[str, ...]
    left_out: tuple[Omission, ...]


def export(runs: Sequence[Run], name: str) -> ExportedDocument:
    """What of these runs may go out, as a format writes it."""
    chosen = next((one for one in EXPORTS if one.name == name), None)
    if chosen is None:
        raise BadInput(f"--to is {name!r}; expected one of {', '.join(EXPORT_NAMES)}")
    fit, left_out = select_exportable(runs)
    written = [entry for entry in fit if not chosen.why_not(entry)]
    left_out += [
        Omission(entry.row.label, reason, measured=True)
        for entry in fit
        if (reason := chosen.why_not(entry))
    ]
    names = [chosen.name_of(entry) for entry in written]
    refuse_twice(zip(names, written, strict=True))
    return ExportedDocument(
        chosen.write(written) if written else None, tuple(names), tuple(left_out)
    )
