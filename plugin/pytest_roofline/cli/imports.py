"""`roofline import`: files of other tools become a run that the other commands can read."""

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import BadFile, BadInput, CannotStore
from ..core.units import printable
from ..version import __version__
from .options import folder_option, json_option, print_json, width

if TYPE_CHECKING:
    from ..exchange.records import Imported

# The most that is read of a file: logs of sweeps have kilobytes.
MOST_BYTES = 256 * 2**20
# Of what is left out, so many lines are shown.
SHOWN = 5


@click.command(name="import", short_help="Read files of other tools into a run.")
@click.argument("files", nargs=-1, required=True)
@click.option("--format", "format_name", default=None, help="What the files are; each is recognised by default.")
@click.option("--product", default=None, help="The device, as its driver prints it, where the files do not tell.")
@click.option("--devices", type=int, default=None, help="How many devices took part, where the files do not tell.")
@click.option("--link", default=None, help="What lies between the devices: nvlink, nvlink-switch, xgmi, pcie, …")
@click.option("--operation", default=None, help="The collective, where a log does not name it: all_gather, …")
@click.option("--save", "name", default=None, help="Name of the run; one made of the content by default.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the run to this .jsonl file instead.")
@json_option
@folder_option
def import_(
    files: tuple[str, ...],
    format_name: str | None,
    product: str | None,
    devices: int | None,
    link: str | None,
    operation: str | None,
    name: str | None,
    output: Path | None,
    as_json: bool,
    folder: Path,
) -> None:
    """Read FILES of other tools into one run: nccl-tests, rccl-tests, nvbandwidth, BabelStream, pytest-benchmark.

    All FILES are of one machine; `-` is standard input. What is not understood is refused with its line, and then
    nothing is written.

    Example: roofline import all_reduce.log --save nccl --product "NVIDIA H100 80GB HBM3"

    Exit status: 0 imported, 2 the input cannot be used, or something of that name is there already.
    """
    from ..exchange import read
    from ..exchange.building import build, check_given, run_id_of, save, unknown_product
    from ..exchange.records import Given

    given = check_given(Given(product, devices, link, operation))
    contents = [_content(file) for file in files]
    _refuse_twice(files, contents)
    imported = [
        one
        for file, content in zip(files, contents, strict=True)
        for one in read(content, _source(file), given, format_name)
    ]
    run_id = run_id_of(contents)
    path = _path(name, output, run_id, folder)
    lines = build(
        imported, given, run_id, f"pytest-roofline {__version__}", ("roofline", "import", *map(printable, files))
    )
    save(lines, path)
    environment = lines[0].environment  # type: ignore[union-attr]
    remark = unknown_product(environment)
    if as_json:
        print_json(_as_json(imported, path, run_id))
        return
    _print(imported)
    if remark:
        click.echo(printable(f"note: {remark}"))
    click.echo(printable(f"saved as {path}"))


def _source(file: str) -> str:
    """What a run calls this file; UTF-8 may not hold its name as it is."""
    return "standard input" if file == "-" else printable(file)


def _content(file: str) -> bytes:
    """The bytes of a file, or of standard input."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            path = Path(file)
            if path.is_dir():
                raise BadFile(f"{file} is a directory; expected a file")
            with path.open("rb") as opened:
                data = opened.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise BadFile(f"{file} does not exist") from None
    except (OSError, ValueError) as error:
        raise BadFile(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MOST_BYTES:
        raise BadFile(f"{_source(file)} has more than {MOST_BYTES} bytes; expected the output of one tool")
    return data


def _refuse_twice(files: Sequence[str], contents: Sequence[bytes]) -> None:
    for index, content in enumerate(contents):
        first = contents.index(content)
        if first != index:
            raise BadInput(f"{files[first]} and {files[index]} hold the same; expected each run of a tool once")


def _path(name: str | None, output: Path | None, run_id: str, folder: Path) -> Path:
    from ..baselines.run_files import make_run_folder, refuse_existing
    from ..core.storage import check_name

    if output is not None:
        if name is not None:
            raise BadInput("--save and -o both name the run; expected one of them")
        return output
    name = check_name(name if name is not None else run_id, "--save")
    refuse_existing(folder, name)
    try:
        make_run_folder(folder)
    except OSError as error:
        raise CannotStore(f"{folder} cannot be written: {error.strerror or error}") from None
    return folder / "runs" / f"{name}.jsonl"


def _print(imported: Sequence["Imported"]) -> None:
    """What was read, under which names, how it counts, and what was left out."""
    from ..report.tables import new_table, render

    for one in imported:
        click.echo(printable(f"{one.source}: {one.tool}, {one.product or one.cpu_model or 'product unknown'}"))
        table = new_table(("test", "left"), ("metric", "left"), ("statistic", "left"), ("readings", "right"))
        counted = Counter((reading.benchmark, reading.metric, reading.statistic) for reading in one.readings)
        for (benchmark, metric), statistics in groupby(counted, key=lambda known: known[:2]):
            words = [statistic for *_, statistic in statistics]
            count = sum(counted[benchmark, metric, word] for word in words)
            table.add_row(printable(benchmark), metric, ", ".join(words), str(count))
        if one.readings:
            click.echo(render(table, width(), sys.stdout.isatty()))
        for line in _remarks(one):
            click.echo(printable(line))
    for tool, convention in {one.tool: one.convention for one in imported}.items():
        click.echo(f"{tool} counts so: {convention}")


def _remarks(one: "Imported") -> list[str]:
    lines = [f"INVALID {bad.label}, {bad.where}: {bad.invalid}" for bad in one.readings if bad.invalid]
    lines += [f"FAILED {name}: {why}" for name, why in one.failed]
    unchecked = sum(reading.verified is None for reading in one.readings)
    if unchecked:
        lines.append(f"note: it does not tell of {unchecked} of {len(one.readings)} readings that data were checked")
    lines += [f"note: {note}" for note in one.notes]
    lines += [f"left out: {line}" for line in one.left_out[:SHOWN]]
    if len(one.left_out) > SHOWN:
        lines.append(f"left out: {len(one.left_out) - SHOWN} more like these")
    return lines


def _as_json(imported: Sequence["Imported"], path: Path, run_id: str) -> dict[str, Any]:
    return {
        "run": str(path),
        "run_id": run_id,
        "files": [
            {
                "source": one.source,
                "tool": one.tool,
                "convention": one.convention,
                "product": one.product,
                "readings": [
                    {
                        "label": reading.label,
                        "metric": reading.metric,
                        "seconds": list(reading.seconds),
                        "where": reading.where,
                        "verified": reading.verified,
                        "invalid": reading.invalid,
                    }
                    for reading in one.readings
                ],
                "failed": dict(one.failed),
                "left_out": list(one.left_out),
                "notes": list(one.notes),
            }
            for one in imported
        ],
    }
