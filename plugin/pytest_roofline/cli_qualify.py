"""`roofline qualify`: what a new driver does to every test, from a staged rollout over several devices."""

import sys
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_options import folder_option, json_option, print_json, width
from .core.errors import BadInput
from .core.units import parse_tolerance, printable

if TYPE_CHECKING:
    from .judging.runs import Run

_SIDES = ("--before", "--after")


class _ManyRuns(click.Command):
    """Lets every name behind `--before` or `--after` belong to it, as a shell's `runs/*.jsonl` needs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given: list[str] = []
        side = ""
        for argument in args:
            if argument.startswith("-"):
                option, equals, value = argument.partition("=")
                side = option if option in _SIDES else ""
                given += [option, value] if side and equals else [] if side else [argument]
            elif side:
                given += [side, argument]
            else:
                given.append(argument)
        return super().parse_args(ctx, given)


@click.command(cls=_ManyRuns, short_help="Tell what a new driver does, from a staged rollout.")
@click.option("--before", multiple=True, metavar="RUN...", help="Runs from before: NAMEs, PATHs, folders, patterns.")
@click.option("--after", multiple=True, metavar="RUN...", help="Runs from after, of the same devices.")
@click.option("--driver-old", metavar="VERSION", help="Which driver was replaced, where the runs hold several.")
@click.option("--driver-new", metavar="VERSION", help="Which driver it was replaced by.")
@click.option("--tolerance", default="5%", show_default=True, help="How much slower is still the same: 5% or 0.05.")
@json_option
@folder_option
def qualify(
    before: tuple[str, ...],
    after: tuple[str, ...],
    driver_old: str | None,
    driver_new: str | None,
    tolerance: str,
    as_json: bool,
    folder: Path,
) -> None:
    """Tell what a new driver does to every test, from devices that got it and devices that did not.

    Runs are paired by device. A device with another driver after than before is upgraded, one with the same driver is a
    control, and the driver's effect is the difference between how both changed.

    Example: roofline qualify --before before/ --after after/

    Exit status: 0 nothing is known to be worse, which with few devices is far from "roll out" (read the last line, or
    "advice" of --json); 1 a test is slower, upgraded devices lost a test or ran no more, or one of them became slower
    than the rest; 2 the input cannot be used.
    """
    from .judging.qualifying import qualify as qualify_rollout
    from .judging.qualifying_pairs import pair_devices
    from .reporting.qualification import (
        qualification_as_json,
        qualification_lines,
        qualification_notes,
        qualification_table,
        summary_sentence,
    )

    rollout = pair_devices(_read(before, "--before", folder), _read(after, "--after", folder), driver_old, driver_new)
    found = qualify_rollout(rollout, parse_tolerance(tolerance, "--tolerance"))
    if as_json:
        print_json(qualification_as_json(found))
    else:
        for line in qualification_lines(found):
            click.echo(line)
        click.echo(qualification_table(found, width(), sys.stdout.isatty()))
        for line in (*qualification_notes(found), summary_sentence(found)):
            click.echo(line)
    sys.exit(1 if found.worse else 0)


def _read(names: tuple[str, ...], option: str, folder: Path) -> "list[Run]":
    from .judging.runs import read_run

    paths = [path for name in names for path in _paths(name, option, folder)]
    if not paths:
        raise BadInput(f"{option} names no run; expected saved runs by name, by path, or a folder of them")
    runs = [read_run(path) for path in paths]
    for run in runs:
        if run.cut:
            click.echo(f"note: {run.path} ends in the middle of a line, which is left out", err=True)
    return runs


def _paths(name: str, option: str, folder: Path) -> list[Path]:
    """The run files that a NAME, a PATH, a folder or a pattern means, as a shell gives it where it is quoted."""
    from .judging.runs import resolve_run

    if Path(name).is_dir():
        found = sorted(Path(name).glob("*.jsonl"))
        if not found:
            raise BadInput(f"{option}: the folder {name} holds no run file (*.jsonl)")
        return found
    if not Path(name).exists() and has_magic(name):
        found = [Path(path) for path in sorted(glob(name))]  # noqa: PTH207 absolute ones too, which Path.glob refuses
        if not found:
            raise BadInput(f"{option}: no file is named as {printable(name)}; expected run files")
        return found
    return [resolve_run(name, folder)]
