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
    read_options,
    say,
    width,
)
from ..core.errors import BadFile, BadInput, CannotStore
from ..core.records import Header
from ..core.storage import MOST_BYTES, check_name
from ..core.units import listed, printable
from ..core.writing import json_text, refuse_overwriting, write_atomically
from ..figures.plan import plan_of_options
from ..report.tables import TextTable, render
from ..version import __version__
from .building import (
    build,
    check_plan,
    identity_of_file,
    mark_impossible,
    run_id_of,
    save,
    unknown_product,
    user_facts_of,
)
from .exportable import Omission
from .formats import export as export_runs
from .formats import read as read_logs
from .nodes import by_node, refuse_several, with_node
from .records import ImportedLog, UserFacts

# The number of lines that are shown of those that an import leaves out.
LINES = 5


@command(folder_option, name="import")
@click.argument("files", nargs=-1, required=True)
@read_options("In FILES")
@click.option(
    "--product", help="The name of the device as its driver prints it, if the files have no name."
)
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
    help="The node, if the files do not name one; or a pattern, if their paths do: '{node}/*.log', 'nvbw-{node}.json'.",
)
@click.option(
    "--by", type=click.Choice(["node"]), help="Write one run for each node, into the folder DIR."
)
@click.option(
    "--unit", default="", help="Unit of the figures, if a CSV has none: GB/s, TFLOPS, ms, us."
)
@click.option("--save", "name", help="Name of the run; default: made of the logs.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Write the run to this .jsonl file instead; with --by node: the folder of the runs, one for each node.",
)
def import_(
    files: tuple[str, ...],
    read: str | None,
    higher: tuple[str, ...],
    lower: tuple[str, ...],
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
    plan = plan_of_options(read, higher, lower)
    check_plan(plan, "--read")
    user_facts = user_facts_of(
        plan, UserFacts(product, devices, link, operation, begun, unit, host)
    )
    content_by_file = {file: _content(file) for file in files}
    logs, duplicates = _read_all(content_by_file, user_facts, plan.reader)
    logs_by_node = {"": logs} if by is None else by_node(logs)
    for logs_of_node in logs_by_node.values():
        refuse_several(logs_of_node)
    content_by_source = {_source(file): content for file, content in content_by_file.items()}
    runs = [
        _build_run(logs_of_node, user_facts, content_by_source)
        for logs_of_node in logs_by_node.values()
    ]
    for node, run in zip(logs_by_node, runs, strict=True):
        run.path = _path(name, output, run.header.run_id, folder, node)
    # Existing files come first: one with another content is refused before anything is written.
    for run in sorted(runs, key=lambda run: not run.path.exists()):
        run.written = save(run.lines, run.path)
    if as_json:
        documents = [_imported_json(run) for run in runs]
        print_json(documents[0] if by is None else {"runs": documents})
        return
    _print_imported([log for run in runs for log in run.logs])
    for file, first_file in duplicates.items():
        say(printable(f"note: {file} holds the same as {first_file}, and was ignored"))
    for line in dict.fromkeys(line for run in runs for line in run.remarks):
        say(printable(line))


def _read_all(
    content_by_file: dict[str, bytes], user_facts: UserFacts, reader: str
) -> tuple[list[ImportedLog], dict[str, str]]:
    """Return the logs in the files, and the duplicate files.

    A duplicate maps to the first file with the same identity and the same nodes. Its logs are left out.
    Without a `reader` the format of each file is recognised.
    """
    logs: list[ImportedLog] = []
    duplicates: dict[str, str] = {}
    first_file_by_identity: dict[tuple[bytes, tuple[str | None, ...]], str] = {}
    for file, content in content_by_file.items():
        logs_of_file = [
            with_node(log, file, user_facts.host)
            for log in read_logs(content, _source(file), user_facts, reader)
        ]
        identity = identity_of_file(content, _source(file), user_facts.paths)
        first_file = first_file_by_identity.setdefault(
            (identity, tuple(log.machine.host for log in logs_of_file)), file
        )
        if first_file == file:
            logs += logs_of_file
        else:
            duplicates[file] = first_file
    return logs, duplicates


@dataclass(slots=True)
class _ImportedRun:
    """A run of imported logs, and its path.

    `written` is False where the file holds the import already.
    """

    logs: Sequence[ImportedLog]
    lines: Sequence[Line]
    path: Path = Path()
    written: bool = False

    @property
    def header(self) -> Header:
        """The first line of the run."""
        return cast("Header", self.lines[0])

    @property
    def remarks(self) -> list[str]:
        """A note on an unknown product, and the path of the run."""
        remark = unknown_product(self.header.environment)
        state = "already holds this import, and was not changed"
        path_remark = f"saved as {self.path}" if self.written else f"{self.path} {state}"
        return [f"note: {remark}", path_remark] if remark else [path_remark]


def _build_run(
    logs: Sequence[ImportedLog], user_facts: UserFacts, content_by_source: dict[str, bytes]
) -> _ImportedRun:
    """Return the run of one node's logs. Impossible readings are invalid."""
    sources = list(dict.fromkeys(log.source for log in logs))
    paths = user_facts.paths
    identities = [identity_of_file(content_by_source[source], source, paths) for source in sources]
    run_id = run_id_of(identities, paths)
    marked_logs, command = mark_impossible(logs, user_facts), ("roofline", "import", *sources)
    lines = build(marked_logs, user_facts, run_id, f"pytest-roofline {__version__}", command)
    return _ImportedRun(marked_logs, lines)


def _source(file: str) -> str:
    """Return the printable name of a file, as the run states it."""
    return "standard input" if file == "-" else printable(file)


def _content(file: str) -> bytes:
    """Return the bytes of a file, or of standard input.

    Raise BadFile for a pipe, a device, and a file that is too large.
    """
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
    """Return the path of the run file.

    It is below `-o` with `--by node`, else the file of `-o`, else in the folder of runs, which is made.
    `node` is empty without `--by node`.
    """
    if node:
        if output is None or name is not None:
            raise BadInput(
                "--by node writes a run for each node; give -o DIR, and leave out --save"
            )
        return output / f"{check_name(node, 'the name of a node')}.jsonl"
    if output is not None:
        if name is not None:
            raise BadInput("--save and -o both name the run; give only one of these options")
        return output
    name = check_name(name if name is not None else run_id, "--save")
    try:
        make_run_folder(folder)
    except OSError as error:
        raise CannotStore(
            f"{folder} cannot be written: {error.strerror}; name another folder with --dir or -o"
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
            names = [statistic for *_, statistic in statistics]
            reading_count = sum(counts[benchmark, metric, name] for name in names)
            table.add_row(printable(benchmark), metric, ", ".join(names), str(reading_count))
        if log.readings:
            say(render(table, width(), sys.stdout.isatty()))
        for line in _remarks(log):
            say(printable(line))
    for tool in {log.tool.name: log.tool for log in logs}.values():
        say(f"how {tool.name} counts: {tool.convention}")


def _remarks(log: ImportedLog) -> list[str]:
    """Return the remarks on a log, each on a line.

    They are invalid readings, failures, notes, and the first lines that were left out.
    """
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
        lines.append(f"left out: {len(log.left_out) - LINES} further lines")
    return lines


# Fields of a reading that the JSON of an import holds.
READING_FIELDS = ("label", "seconds", "where", "verified", "invalid")


def _imported_json(run: _ImportedRun) -> dict[str, object]:
    """Return the JSON of an imported run."""
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
            for log in run.logs
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
    help="pytest-benchmark, github-action-benchmark, github-action-benchmark-rates, bencher or openmetrics.",
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
    """Write RUNs (NAME or PATH) for another tool: pytest-benchmark, github-action-benchmark, Bencher, OpenMetrics.

    Only numbers that can be trusted are written: what is INVALID, had wrong data, was oversubscribed, profiled, or
    slowed down by a drill is left out, and named on standard error. A test that is only slower is written.

    Example: roofline export driver-570 --to bencher -o bencher.json

    Exit status: 0 written, 2 the input cannot be used, or nothing of it may go out.
    """
    paths = [resolve_run(name, folder) for name in runs]
    # `-o -` means standard output, as with other tools.
    target = None if output == Path("-") else output
    if target is not None:
        refuse_overwriting(target, paths)
    exported_runs = [read_run(path) for path in paths]
    document, names, left_out = export_runs(exported_runs, format_name)
    note_cuts(exported_runs)
    _print_left_out(left_out)
    measured_count = len(names) + sum(entry.measured for entry in left_out)
    if document is None:
        raise BadInput(
            f"none of {measured_count} measurements can be exported as {format_name}; name another run"
        )
    summary = f"{len(names)} of {measured_count} measurements exported"
    text = document if isinstance(document, str) else json_text(document, ensure_ascii=True)
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
                "exported": names,
                "left_out": [asdict(entry) for entry in left_out],
            }
        )
    else:
        say(printable(f"{summary} to {target}"))


def _print_left_out(left_out: Iterable[Omission]) -> None:
    """Print the omissions of an export on standard error.

    Each measured result has its line; labels without a time are listed by their reason.
    """
    labels_by_reason: dict[str, list[str]] = {}
    for entry in left_out:
        if entry.measured:
            say(printable(f"left out: {entry.label}: {entry.reason}"), err=True)
        else:
            labels_by_reason.setdefault(entry.reason, []).append(entry.label)
    for reason, labels in labels_by_reason.items():
        say(printable(f"without a time: {listed(labels, MOST_NAMED)}: {reason}"), err=True)
