"""`roofline fleet`: which node, GPU or link of many is slower than its fellows."""

import sys
from pathlib import Path

import click

from .cli_many import cache_option, read_runs, runs_argument, since_option, tests_option
from .cli_options import folder_option, json_option, print_json, width
from .core.errors import BadInput
from .core.units import parse_fraction


@click.command(short_help="Find the node, GPU or link that is slower than its fellows.")
@runs_argument
@tests_option
@since_option
@click.option("--minimum", default="5%", show_default=True, help="The smallest slowdown that is reported: 5% or 0.05.")
@click.option("--by", type=click.Choice(["node", "gpu", "link"]), help="Only these; all without.")
@json_option
@cache_option
@folder_option
def fleet(
    runs: tuple[str, ...],
    patterns: tuple[str, ...],
    since: str | None,
    minimum: str,
    by: str | None,
    as_json: bool,
    cache: bool,
    folder: Path,
) -> None:
    """Show which node, GPU or link of RUNS is slower than its fellows of the same hardware; worst first.

    RUNS are saved names, paths, folders, patterns, or - for a list on stdin.

    Example: roofline fleet runs/ --since 2026-03-01 --tests 'memcpy_*'

    Exit status: 0 none is, 1 one is, 2 the input cannot be used, or holds too few devices to say.
    """
    from .judging.fleet import fleet as fleet_of
    from .reporting.fleet import fleet_as_json, fleet_text

    least = parse_fraction(minimum, "--minimum")
    many = read_runs(runs, folder, cache=cache, since=since, patterns=patterns)
    found = fleet_of(many, least)
    findings = [finding for finding in found.findings if by in (None, finding.level)]
    if not as_json:
        click.echo(fleet_text(many, found, findings, width(), sys.stdout.isatty()))
    if not found.judged:
        raise BadInput("no hardware has 4 devices, nodes or links that ran the same tests; expected runs of more")
    if as_json:
        print_json(fleet_as_json(many, found, findings))
    sys.exit(1 if findings else 0)
