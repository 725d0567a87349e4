"""The formats of other tools.

`FORMATS` lists the readers, `EXPORTS` the writers.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from ..baselines.runs import Run
from ..core.errors import LARGEST, SMALLEST, BadFile, BadInput
from ..figures.reading import READERS
from . import (
    babelstream,
    dashboards,
    layout_reading,
    nccl_tests,
    nvbandwidth,
    openmetrics,
    osu,
    pytest_benchmark,
    transferbench,
)
from .building import identity_of_file, run_id_of
from .exportable import Exportable, Omission, refuse_duplicates, select_exportable
from .layouts import LAYOUTS
from .logs import lines
from .records import ImportedLog, UserFacts, decode, looks_like_json, refuse

# Bytes of the longest line of text.
MOST_LINE_BYTES = 256 * 2**10


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """One format of another tool.

    `name` is the value of `--read`, `title` is for messages; `sniff` recognises a text, `read` reads it.
    """

    name: str
    title: str
    sniff: Callable[[str], bool]
    read: Callable[[str, str, UserFacts], tuple[ImportedLog, ...]]


# A further format is a line of data in `layouts.py`, or a module with these two functions and a line here.
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
    *(
        ImportFormat(layout.name, layout.title, layout.is_of, partial(layout_reading.read, layout))
        for layout in LAYOUTS
    ),
)
# Output of any program, whose figures the user names. Nothing tells it from other texts.
OF_PROGRAMS = tuple(
    ImportFormat(
        reader,
        f"{reader} of a program",
        lambda _: False,
        partial(layout_reading.read_paths, reader),
    )
    for reader in READERS
)


def read(
    content: bytes, source: str, user_facts: UserFacts, name: str = ""
) -> tuple[ImportedLog, ...]:
    """Return the logs in a file: one for each process of the tool.

    Args:
        content: of the file.
        source: the name of the file, for messages.
        user_facts: facts that the user states by options, since files may lack them.
        name: of the format; an empty one is recognised by the content.

    Raises:
        BadFile: the file has no known format, or cannot be used.
    """
    text = decode(content, source)
    # A program may print lines of any length.
    if name not in READERS:
        _refuse_long(text, source)
    import_format = next(
        (
            candidate
            for candidate in (*FORMATS, *OF_PROGRAMS)
            if (candidate.name == name if name else candidate.sniff(text))
        ),
        None,
    )
    if import_format is None:
        number, line = next((number, line) for number, line in lines(text) if line.strip())
        titles = ", ".join(candidate.title for candidate in FORMATS)
        refuse(
            source,
            number,
            line,
            f"this file has no known format (tried: {titles}); name its format with --read, or a figure with "
            "--higher",
        )
    try:
        logs = import_format.read(text, source, user_facts)
    except BadInput as error:
        # A size in the file is larger than a number can be.
        raise BadFile(f"{source}: {error}") from None
    if not any(log.readings or log.failed for log in logs):
        reason = next((f": {reason}" for log in logs for reason in log.left_out), "")
        raise BadFile(f"{source}: {import_format.title} without a usable number{reason}")
    _refuse_contradiction(source, logs, user_facts)
    _refuse_impossible(source, logs)
    # The same file gives the same names again, also where other figures of it are read.
    digest = run_id_of([identity_of_file(content, source, user_facts.paths)])
    return tuple(replace(log, process=f"{digest}-{number}") for number, log in enumerate(logs, 1))


def _refuse_long(text: str, source: str) -> None:
    """Refuse a text with a line longer than any tool prints. JSON may have one."""
    if not looks_like_json(text) and (match := re.search(rf"[^\n]{{{MOST_LINE_BYTES + 1}}}", text)):
        number = text.count("\n", 0, match.start()) + 1
        raise BadFile(
            f"{source}, line {number}: more than {MOST_LINE_BYTES // 2**10} KiB; expected shorter "
            "lines, as a tool prints them"
        )


def _refuse_impossible(source: str, logs: tuple[ImportedLog, ...]) -> None:
    """Refuse times that no run file can hold."""
    for reading in (reading for log in logs for reading in log.readings):
        if not all(SMALLEST <= seconds <= LARGEST for seconds in reading.seconds):
            raise BadFile(
                f"{source}, {reading.where}: {min(reading.seconds):g} to {max(reading.seconds):g} s a call; "
                f"expected {SMALLEST:g} to {LARGEST:g}"
            )


def _refuse_contradiction(
    source: str, logs: tuple[ImportedLog, ...], user_facts: UserFacts
) -> None:
    """Raise BadFile if the file contradicts an option of the user."""
    counts = {reading.devices for log in logs for reading in log.readings}
    if user_facts.devices is not None and counts and user_facts.devices not in counts:
        raise BadFile(
            f"{source} has readings of {' or '.join(map(str, sorted(counts)))} devices, "
            f"but devices={user_facts.devices} was given; expected the same"
        )
    if user_facts.operation is not None and not all("ccl-tests" in log.tool.name for log in logs):
        raise BadFile(
            f"{source} is of {logs[0].tool.name}, which measures no collectives; leave the operation out"
        )


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One format for another tool.

    `name` is the value of `--to`, `name_of` names a measurement, `write` makes the document, plain data or a text;
    `why_not` returns why the format cannot hold a measurement, or an empty text.
    """

    name: str
    name_of: Callable[[Exportable], str]
    write: Callable[[Sequence[Exportable]], Any]
    why_not: Callable[[Exportable], str] = lambda _: ""


EXPORTS = (
    # pytest-benchmark finds the same test in another file by its node id.
    ExportFormat("pytest-benchmark", attrgetter("name"), pytest_benchmark.write),
    # The label stays the same when a file moves, and is short enough for a chart.
    ExportFormat("github-action-benchmark", attrgetter("row.label"), dashboards.write_times),
    ExportFormat(
        "github-action-benchmark-rates",
        attrgetter("row.label"),
        dashboards.write_rates,
        dashboards.why_no_rate,
    ),
    ExportFormat("bencher", attrgetter("row.label"), dashboards.write_bencher),
    ExportFormat("openmetrics", attrgetter("row.label"), openmetrics.write),
)
EXPORT_NAMES = tuple(export_format.name for export_format in EXPORTS)


def export(runs: Sequence[Run], name: str) -> tuple[Any, list[str], list[Omission]]:
    """Return the measurements of these runs in a format.

    Their names follow, and what is left out. The document is plain data or a text; None where nothing may be written.
    """
    export_format = next((candidate for candidate in EXPORTS if candidate.name == name), None)
    if export_format is None:
        raise BadInput(f"--to is {name!r}; expected one of {', '.join(EXPORT_NAMES)}")
    entries, left_out = select_exportable(runs)
    exportable_entries = [entry for entry in entries if not export_format.why_not(entry)]
    left_out += [
        Omission(entry.row.label, reason, measured=True)
        for entry in entries
        if (reason := export_format.why_not(entry))
    ]
    names = [export_format.name_of(entry) for entry in exportable_entries]
    refuse_duplicates(zip(names, exportable_entries, strict=True))
    document = export_format.write(exportable_entries) if exportable_entries else None
    return document, names, left_out
