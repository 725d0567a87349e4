"""`roofline report`: saved runs as files for people, spreadsheets, CI and scripts."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import BadInput
from ..core.units import printable
from ..plugin.options import SUMMARY_VARIABLE
from .options import folder_option, json_option_for, print_document, print_json

if TYPE_CHECKING:
    from ..baselines.runs import Run


@click.command(short_help="Write runs as a page with plots, a table and a summary.")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("-o", "--output", metavar="DIR", help="Where the four files go.")
@json_option_for("Print what run.json holds.")
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of run.json; takes no RUN.")
@folder_option
def report(runs: tuple[str, ...], output: str | None, as_json: bool, as_schema: bool, folder: Path) -> None:
    """Write a report of RUNs into DIR: run.json, results.csv, summary.md, and index.html with plots.

    RUN is a saved name or a path; several runs stand in one report. Files of an earlier report are replaced. Where
    GITHUB_STEP_SUMMARY names a file, the summary is appended to that as well. This judges nothing: the verdicts are
    those that the runs gave themselves.

    Example: roofline report driver-570 -o report

    Exit status: 0 the report is written, whatever it says, 2 the input cannot be used or the report not be written.
    """
    if as_schema:
        _refuse_beside_schema(runs, output, as_json)
        from ..report.files import schema

        print_json(schema())
        return
    if not runs:
        raise BadInput("no RUN is given; expected the name or path of a saved run, or several")
    if output is None and not as_json:
        raise BadInput("neither -o DIR nor --json is given; expected where to write the report, or --json to print it")
    into = None if output is None else _folder(output)
    read = _read(runs, folder)
    if into is not None:
        _write(read, into, silent=as_json)
    if as_json:
        from ..report.files import run_json

        print_document(run_json(read))


def _folder(output: str) -> Path:
    from ..report.folder import check_folder

    if not output:
        # An empty variable in a script; as a path it would be the folder that everything lies in.
        raise BadInput("-o is empty; expected a path")
    return check_folder(Path(output), "-o")


def _refuse_beside_schema(runs: tuple[str, ...], output: str | None, as_json: bool) -> None:
    if runs or output is not None or as_json:
        raise BadInput("--schema is given beside others; expected it alone, since it is the same for all runs")


def _read(names: tuple[str, ...], folder: Path) -> "list[Run]":
    from ..baselines.run_files import resolve_run
    from ..baselines.runs import read_run

    runs: list[Run] = []
    for name in names:
        run = read_run(resolve_run(name, folder, what="RUN"))
        # A copy under another name would count everything twice.
        same = next((other for other, known in zip(names, runs, strict=False) if known.header == run.header), None)
        if same is not None:
            raise BadInput(f"{same!r} and {name!r} are the same run; expected each once")
        if run.cut:
            click.echo(printable(f"note: {run.path} ends in the middle of a line, which is left out"), err=True)
        # As the run itself would name it, so that its report is the same.
        runs.append(replace(run, path=run.path.resolve()))
    return runs


def _write(runs: "list[Run]", output: Path, *, silent: bool) -> None:
    from ..baselines.rows import rows_of
    from ..report.files import append_summary, write_report

    rows = rows_of(runs)
    for path in write_report(runs, output, rows):
        if not silent:
            click.echo(printable(str(path)))
    job = os.environ.get(SUMMARY_VARIABLE)
    if job:
        append_summary(runs, Path(job), rows)
