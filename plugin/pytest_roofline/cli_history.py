"""`roofline history`: tests over time, where they stepped or drifted, and what changed then."""

import sys
from pathlib import Path

import click

from .cli_many import cache_option, read_runs, runs_argument, since_option, tests_option
from .cli_options import folder_option, json_option, print_json, width
from .core.errors import BadInput
from .core.units import parse_fraction


@click.command(short_help="Show tests over time: steps, and drift that no comparison sees.")
@runs_argument
@tests_option
@since_option
@click.option("--minimum", default="2%", show_default=True, help="The smallest change that is reported: 2% or 0.02.")
@click.option(
    "--by",
    type=click.Choice(["device", "node", "hardware"]),
    default="device",
    show_default=True,
    help="What a series is of; as devices, CPUs of one kind are one.",
)
@json_option
@cache_option
@folder_option
def history(
    runs: tuple[str, ...],
    patterns: tuple[str, ...],
    since: str | None,
    minimum: str,
    by: str,
    as_json: bool,
    cache: bool,
    folder: Path,
) -> None:
    """Show every test of RUNS over time: steps, and drift that no single comparison sees; worst first.

    RUNS are saved names, paths, folders, patterns, or - for a list on stdin.

    Example: roofline history .roofline/runs --minimum 5%

    Exit status: 0 nothing became slower, 1 something did, 2 the input cannot be used.
    """
    from .judging.history import history as history_of
    from .reporting.history import history_as_json, history_text

    least = parse_fraction(minimum, "--minimum")
    many = read_runs(runs, folder, cache=cache, since=since, patterns=patterns)
    found = history_of(many, least, by)
    if not found.series:
        raise BadInput(
            f"no test has 6 runs that count on one {by}, and fewer show no history; "
            f"the {many.rows['run'].nunique()} runs hold {found.short} shorter series; "
            "what is INVALID or failed is left out"
        )
    if as_json:
        print_json(history_as_json(many, found))
    else:
        click.echo(history_text(many, found, width(), sys.stdout.isatty()))
    sys.exit(1 if found.slower else 0)
