"""`roofline export`: runs become files that other tools read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import BadInput
from ..core.units import listed, printable
from .options import folder_option, json_option_for, print_document, print_json

if TYPE_CHECKING:
    from ..baselines.runs import Run
    from ..exchange import Exported
    from ..exchange.exportable import LeftOut

# Of tests that have no number at all, so many are named under each reason.
SHOWN = 3


@click.command(short_help="Write runs as files for dashboards and other gates.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--to",
    "format_name",
    required=True,
    metavar="FORMAT",
    help="pytest-benchmark, github-action-benchmark, github-action-benchmark-rates or bencher.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write this file; standard output without, or with -."
)
@json_option_for("With -o, print what was written and left out as JSON.")
@folder_option
def export(runs: tuple[str, ...], format_name: str, output: Path | None, as_json: bool, folder: Path) -> None:
    """Write RUNs (NAME or PATH) as another tool's JSON: pytest-benchmark, github-action-benchmark, Bencher.

    Only numbers that may stand go out: what is INVALID, held wrong data, was oversubscribed, profiled, or slowed down
    by a drill is left out, and named on standard error. A test that is only slower goes out.

    Example: roofline export driver-570 --to bencher -o bencher.json

    Exit status: 0 written, 2 the input cannot be used, or nothing of it may go out.
    """
    from ..baselines.run_files import resolve_run
    from ..baselines.runs import read_run
    from ..core.writing import refuse_overwriting, write_atomically
    from ..exchange import export as export_runs

    paths = [resolve_run(name, folder) for name in runs]
    # As with other tools, a hyphen is standard output.
    into = None if output == Path("-") else output
    if into is not None:
        refuse_overwriting(into, paths)
    read = [read_run(path) for path in paths]
    exported = export_runs(read, format_name)
    _tell(read, exported.left_out)
    measured = len(exported.names) + sum(one.measured for one in exported.left_out)
    if exported.document is None:
        raise BadInput(f"none of {measured} measurements may go out as {format_name}; expected one at least")
    counted = f"{len(exported.names)} of {measured} measurements exported"
    text = json.dumps(exported.document, indent=2, allow_nan=False) + "\n"
    if into is None:
        print_document(text)
        click.echo(counted, err=True)
        return
    write_atomically(into, text)
    if as_json:
        print_json(_as_json(exported, format_name, into))
    else:
        click.echo(printable(f"{counted} to {into}"))


def _tell(runs: "Iterable[Run]", left_out: "Iterable[LeftOut]") -> None:
    """What does not go out, on standard error: every number by name, and the rest by what keeps it."""
    for run in runs:
        if run.cut:
            click.echo(f"note: {printable(str(run.path))} ends in the middle of a line, which is left out", err=True)
    without: dict[str, list[str]] = {}
    for one in left_out:
        if one.measured:
            click.echo(printable(f"left out: {one.label}: {one.reason}"), err=True)
        else:
            without.setdefault(one.reason, []).append(one.label)
    for reason, labels in without.items():
        click.echo(printable(f"without a time: {listed(labels, SHOWN)}: {reason}"), err=True)


def _as_json(exported: "Exported", format_name: str, output: Path) -> dict[str, Any]:
    return {
        "format": format_name,
        "file": str(output),
        "exported": list(exported.names),
        "left_out": [{"label": one.label, "reason": one.reason, "measured": one.measured} for one in exported.left_out],
    }
