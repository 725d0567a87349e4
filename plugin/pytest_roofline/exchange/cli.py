"""The commands `roofline import` and `roofline export`.

One reads files of other tools, the other writes them.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import cast

import click

from ..baselines.run_files import make_run_folder, resolve_run
from ..baselines.runs import Line, read_run
from ..cli.options import (
    MOST_NAMED,
    command,
    folder_option,
    json_option_for,
    note_cuts,
    print_document,
    print_json,
    say,
    width,
)
from ..core.errors import BadFile, BadInput, CannotStore
from ..core.records import Header
from ..core.storage import MOST_BYTES, check_name
from ..core.units import listed, printable
from ..core.writing import json_text, refuse_overwriting, write_atomically
from ..report.tables import TextTable, render
from ..version import __version__
from .building import (
    build,
    check_user_facts,
    run_id_of,
    save,
    unknown_product,
    without_impossible,
)
from .exportable import Omission
from .formats import export as export_runs
from .formats import read
from .nodes import by_node, refuse_several, with_node
from .records import ImportedLog, UserFacts

# The number of lines that are shown of those that an import leaves out.
LINES = 5


@command(folder_option, name="import")
@click.argument("files", nargs=-1, required=True)
@click.option("--format", "format_name", help="Format of the files; default: recognised.")
@click.option("--product", help="The device, as its driver prints it, if the files do not name it.")
@click.option("--devices", type=int, help="Number of devices, if the files do not say.")
@click.option("--link", help="How the devices are linked: nvlink, nvlink-switch, xgmi, pcie, …")
@click.option("--operation", help="The collective, such as all_gather, if a log does not name it.")
@click.option(
    "--begun",
    default="",
    metavar="DATE",
    help="Date or time of the measurement (ISO 8601), if the files do not say.",
)
@click.option(
    "--host",
    default="",
    metavar="NODE|PATTERN",
    help="The node, if the files do not say; as '{node}/*.log' or 'nvbw-{node}.json' where the paths name it.",
)
@click.option(
    "--by", type=click.Choice(["node"]), help="Write a run of each node into the folder DIR."
)
@click.option(
    "--unit", default="", help="Unit of the figures, if a CSV has none: GB/s, TFLOPS, ms, us."
)
@click.option("--save", "name", help="Name of the run; default: made from the content.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Write the run to this .jsonl file instead; with --by node: the folder of the runs, one for each node.",
)
def import_(
    files: tuple[str, ...],
    format_name: str | None,
    product: str | None,
    devices: int | None,
    link: str | None,
    operation: str | None,
    begun: str,
    host: str,
    by: str | None,
    unit: str,
    name: str | None,
    output: Path | None,
    as_json: bool,
    folder: Path,
) -> None:
    """Read FILES of other tools into one run: nccl-tests, nvbandwidth, BabelStream, OSU, pytest-benchmark and more.

    All FILES are of one machine, unless --by node writes a run of each; `-` is standard input. Tables are found inside
    the logs of jobs; a line inside a table that cannot be read is refused with its number, and then nothing is written.

    Example: roofline import all_reduce.log --save nccl --product "NVIDIA H100 80GB HBM3"

    Example: roofline import logs/*/nvbandwidth.json --by node -o nodes --host '{node}/*'

    Exit status: 0 imported, or the run is there already; 2 the input cannot be used, or another run has that name.
    """
    user_facts = check_user_facts(UserFacts(product, devices, link, operation, begun, unit, host))
    contents = {file: _content(file) for file in files}
    logs, duplicates = _read_all(contents, user_facts, format_name)
    nodes = {"": logs} if by is None else by_node(logs)
    for entries in nodes.values():
        refuse_several(entries)
    sources = {_source(file): content for file, content in contents.items()}
    runs = [_build_run(entries, user_facts, sources) for entries in nodes.values()]
    for node, run in zip(nodes, runs, strict=True):
        run.path = _path(name, output, run.header.run_id, folder, node)
    # An existing file with another content is refused before anything is written.
    for run in sorted(runs, key=lambda run: not run.path.exists()):
        run.written = save(run.lines, run.path)
    if as_json:
        documents = [_imported_json(run) for run in runs]
        print_json(documents[0] if by is None else {"runs": documents})
        return
    _print_imported([entry for run in runs for entry in run.imported])
    for file, first_file in duplicates.items():
        say(printable(f"note: {file} holds the same as {first_file}, and was ignored"))
    for line in dict.fromkeys(line for run in runs for line in run.remarks):
        say(printable(line))


def _read_all(
    contents: dict[str, bytes], user_facts: UserFacts, format_name: str | None
) -> tuple[list[ImportedLog], dict[str, str]]:
    """Return the logs in the files, and the duplicates.

    A duplicate maps to the first file that holds the same of the same nodes.
    """
    logs: list[ImportedLog] = []
    duplicates: dict[str, str] = {}
    firsts: dict[tuple[bytes, tuple[str | None, ...]], str] = {}
    for file, content in contents.items():
        entries = [
            with_node(entry, file, user_facts.host)
            for entry in read(content, _source(file), user_facts, format_name)
        ]
        first_file = firsts.setdefault(
            (content, tuple(entry.machine.host for entry in entries)), file
        )
        if first_file == file:
            logs += entries
        else:
            duplicates[file] = first_file
    return logs, duplicates


@dataclass(slots=True)
class _ImportedRun:
    """A run of imported logs, and its path."""

    imported: Sequence[ImportedLog]
    lines: Sequence[Line]
    path: Path = Path()
    written: bool = False

    @property
    def header(self) -> Header:
        """The first line of the run."""
        return cast("Header", self.lines[0])

    @property
    def remarks(self) -> list[str]:
        """Notes on its product and on the path of the run."""
        remark = unknown_product(self.header.environment)
        state = "already holds this import, and was not changed"
        path_remark = f"saved as {self.path}" if self.written else f"{self.path} {state}"
        return [f"note: {remark}", path_remark] if remark else [path_remark]


def _build_run(
    logs: Sequence[ImportedLog], user_facts: UserFacts, contents: dict[str, bytes]
) -> _ImportedRun:
    """Return the run of one node's logs. Impossible readings are invalid."""
    sources = list(dict.fromkeys(entry.source for entry in logs))
    run_id = run_id_of([contents[source] for source in sources])
    possible, command = without_impossible(logs, user_facts), ("roofline", "import", *sources)
    lines = build(possible, user_facts, run_id, f"pytest-roofline {__version__}", command)
    return _ImportedRun(possible, lines)


def _source(file: str) -> str:
    """Return the name of a file in a run. A path may hold bytes that are no UTF-8."""
    return "standard input" if file == "-" else printable(file)


def _content(file: str) -> bytes:
    """Return the bytes of a file, or of standard input."""
    try:
        path = Path(file)
        if file != "-" and path.exists() and not (path.is_file() or path.is_dir()):
            raise BadFile(
                f"{_source(file)} is a pipe or a device; name a file, or pass the content on standard input: -"
            )
        with sys.stdin.buffer if file == "-" else path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadFile(
            f"{file} cannot be read: {reason}; name a file that a tool wrote, or - for standard input"
        ) from None
    if len(content) > MOST_BYTES:
        raise BadFile(
            f"{_source(file)} has more than {MOST_BYTES // 2**20} MiB; "
            "name the output of one tool, without its debug lines"
        )
    return content


def _path(name: str | None, output: Path | None, run_id: str, folder: Path, node: str) -> Path:
    if node:
        if output is None or name is not None:
            raise BadInput("--by node writes a run of each node; expected -o DIR, and no --save")
        return output / f"{check_name(node, 'the name of a node')}.jsonl"
    if output is not None:
        if name is not None:
            raise BadInput("--save and -o both name the run; give one of them")
        return output
    name = check_name(name if name is not None else run_id, "--save")
    try:
        make_run_folder(folder)
    except OSError as error:
        raise CannotStore(
            f"{folder} cannot be written: {error.strerror}; name another with --dir or -o"
        ) from None
    return folder / "runs" / f"{name}.jsonl"


def _print_imported(logs: Sequence[ImportedLog]) -> None:
    """Print the readings, their conventions, and the left-out lines."""
    for log in logs:
        say(
            printable(
                f"{log.source}: {log.tool.name}, {log.machine.product or log.machine.cpu_model or 'product unknown'}"
            )
        )
        table = TextTable(
            ("test", "left"), ("metric", "left"), ("statistic", "left"), ("readings", "right")
        )
        counts = Counter(
            (reading.key.benchmark, reading.key.metric, reading.key.name)
            for reading in log.readings
        )
        for (benchmark, metric), statistics in groupby(counts, key=lambda identity: identity[:2]):
            words = [statistic for *_, statistic in statistics]
            readings = sum(counts[benchmark, metric, word] for word in words)
            table.add_row(printable(benchmark), metric, ", ".join(words), str(readings))
        if log.readings:
            say(render(table, width(), sys.stdout.isatty()))
        for line in _remarks(log):
            say(printable(line))
    for tool in {log.tool.name: log.tool for log in logs}.values():
        say(f"how {tool.name} counts: {tool.convention}")


def _remarks(log: ImportedLog) -> list[str]:
    lines = [
        f"INVALID {reading.label}, {reading.where}: {reading.invalid}"
        for reading in log.readings
        if reading.invalid
    ]
    lines += [f"FAILED {name}: {reason}" for name, reason in log.failed]
    if unchecked_count := sum(reading.verified is None for reading in log.readings):
        lines.append(
            f"note: {unchecked_count} of {len(log.readings)} readings do not say whether their data were checked"
        )
    lines += [f"note: {note}" for note in log.notes]
    lines += [f"note: not compared: {name}: {text}" for name, text in log.unread.items()]
    lines += [f"left out: {line}" for line in log.left_out[:LINES]]
    if len(log.left_out) > LINES:
        lines.append(f"left out: {len(log.left_out) - LINES} more like these")
    return lines


READING_FIELDS = ("label", "seconds", "where", "verified", "invalid")


def _imported_json(run: _ImportedRun) -> dict[str, object]:
    return {
        "run": str(run.path),
        "run_id": run.header.run_id,
        "written": run.written,
        "files": [
            {
                "source": log.source,
                "tool": log.tool.name,
                "convention": log.tool.convention,
                "product": log.machine.product,
                "readings": [
                    {name: getattr(reading, name) for name in READING_FIELDS}
                    | {"metric": reading.key.metric}
                    for reading in log.readings
                ],
                "failed": dict(log.failed),
                "left_out": list(log.left_out),
                "notes": list(log.notes),
                "unread": log.unread,
            }
            for log in run.imported
        ],
    }


@command(
    folder_option,
    json_option=json_option_for("With -o: print the written and left-out measurements as JSON."),
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--to",
    "format_name",
    required=True,
    metavar="FORMAT",
    help="pytest-benchmark, github-action-benchmark, github-action-benchmark-rates or bencher.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write this file; default, and with -: standard output.",
)
def export(
    runs: tuple[str, ...], format_name: str, output: Path | None, as_json: bool, folder: Path
) -> None:
    """Write RUNs (NAME or PATH) as another tool's JSON: pytest-benchmark, github-action-benchmark, Bencher.

    Only numbers that can be trusted are written: what is INVALID, had wrong data, was oversubscribed, profiled, or
    slowed down by a drill is left out, and named on standard error. A test that is only slower is written.

    Example: roofline export driver-570 --to bencher -o bencher.json

    Exit status: 0 written, 2 the input cannot be used, or nothing of it may go out.
    """
    paths = [resolve_run(name, folder) for name in runs]
    # As with other tools, a hyphen is standard output.
    target = None if output == Path("-") else output
    if target is not None:
        refuse_overwriting(target, paths)
    exported_runs = [read_run(path) for path in paths]
    exported_document = export_runs(exported_runs, format_name)
    note_cuts(exported_runs)
    _print_left_out(exported_document.left_out)
    measured_count = len(exported_document.names) + sum(
        entry.measured for entry in exported_document.left_out
    )
    if exported_document.document is None:
        raise BadInput(
            f"none of {measured_count} measurements can be exported as {format_name}; name a run that has one"
        )
    summary = f"{len(exported_document.names)} of {measured_count} measurements exported"
    text = json_text(exported_document.document, ensure_ascii=True)
    if target is None:
        print_document(text)
        say(summary, err=True)
        return
    write_atomically(target, text)
    if as_json:
        print_json(
            {
                "format": format_name,
                "file": str(target),
                "exported": list(exported_document.names),
                "left_out": [asdict(entry) for entry in exported_document.left_out],
            }
        )
    else:
        say(printable(f"{summary} to {target}"))


def _print_left_out(left_out: Iterable[Omission]) -> None:
    """Print on standard error what is not exported.

    Every number is named; labels without a time are listed by their reason.
    """
    labels_by_reason: dict[str, list[str]] = {}
    for entry in left_out:
        if entry.measured:
            say(printable(f"left out: {entry.label}: {entry.reason}"), err=True)
        else:
            labels_by_reason.setdefault(entry.reason, []).append(entry.label)
    for reason, labels in labels_by_reason.items():
        say(printable(f"without a time: {listed(labels, MOST_NAMED)}: {reason}"), err=True)
