"""`roofline history` and `roofline fleet`: thousands of run files named, read, chosen from and judged."""

import fnmatch
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..cli.options import folder_option, json_option, print_json, say, width
from ..core.errors import BadInput
from ..core.units import count, parse_fraction, printable

if TYPE_CHECKING:
    from .fleet import Fleet, SlowPart
    from .history import History
    from .reading import Many

# How the node of an imported log is called that names none.
UNKNOWN = "unknown"
# Files that cannot be used are named up to so many.
MOST_NAMED = 5
EXTRA = "pip install 'pytest-roofline[report]'"


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """What both commands take."""
    for option in (
        folder_option,
        click.option("--cache/--no-cache", default=True, show_default=True, help="Keep what was read in DIR/cache."),
        json_option,
        click.option("--since", metavar="DATE", help="Only runs from this date on (ISO 8601)."),
        click.option("--tests", "patterns", multiple=True, metavar="PATTERN",
                     help="Only tests whose name matches: 'memcpy_*'. Repeatable."),
        click.argument("runs", nargs=-1, required=True, metavar="RUNS..."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(short_help="Show tests over time: steps, and drift that no comparison sees.")
@_options
@click.option(
    "--minimum",
    default="2%",
    show_default=True,
    help="The smallest change that is reported: 2% or 0.02.",
)
@click.option("--by", type=click.Choice(["device", "node", "hardware"]), default="device", show_default=True,
              help="What a series is of; CPUs count as nodes if hosts keep their names.")  # fmt: skip
def history(minimum: str, by: str, as_json: bool, **chosen: Any) -> None:
    """Show every test of RUNS over time: steps, and drift that no single comparison sees; worst first.

    RUNS are saved names, paths, folders, patterns, or - for a list on stdin.

    Example: roofline history .roofline/runs --minimum 5%

    Exit status: 0 nothing became slower, 1 something did, 2 the input cannot be used.
    """
    least = parse_fraction(minimum, "--minimum")
    many = _read(**chosen)
    from .history import history as history_of
    from .text import history_text

    found = history_of(many, least, by)
    if not found.series:
        raise BadInput(
            f"no test has 6 runs that count on one {by}, and fewer show no history; "
            f"the {many.rows['run'].nunique()} runs hold {found.short} shorter series; "
            "what is INVALID or failed is left out"
        )
    if as_json:
        print_json(_history_as_json(many, found))
    else:
        say(history_text(many, found, width(), sys.stdout.isatty()))
    sys.exit(1 if any(change.slower for change in found.changes) else 0)


def _history_as_json(many: "Many", found: "History") -> dict[str, object]:
    return {
        "changes": [
            {name: value for name, value in asdict(one).items() if name != "trend"}
            for one in found.changes
        ],
        "series": sum(not series.common for series in found.series),
        "too_short": found.short,
        "undated_runs": found.undated,
        "runs": int(many.rows["run"].nunique()),
        "left_out": list(many.left_out),
        "unfit": many.unfit,
    }


@click.command(short_help="Find the node, GPU or link that is slower than its peers.")
@_options
@click.option(
    "--minimum",
    default="5%",
    show_default=True,
    help="The smallest slowdown that is reported: 5% or 0.05.",
)
@click.option("--by", type=click.Choice(["node", "gpu", "link"]), help="Only these (default: all).")
def fleet(minimum: str, by: str | None, as_json: bool, **chosen: Any) -> None:
    """Show which node, GPU or link of RUNS is slower than its peers of the same hardware; worst first.

    RUNS are saved names, paths, folders, patterns, or - for a list on stdin.

    Example: roofline fleet runs/ --since 2026-03-01 --tests 'memcpy_*'

    Exit status: 0 none was found, 1 one was, 2 the input cannot be used, or a node or file cannot be judged.
    """
    least = parse_fraction(minimum, "--minimum")
    many = _read(**chosen)
    from .fleet import fleet as fleet_of
    from .text import fleet_text

    found = fleet_of(many, least)
    findings = [finding for finding in found.findings if by in (None, finding.level)]
    if not as_json:
        say(fleet_text(many, found, findings, width(), sys.stdout.isatty(), by))
    if not any(one.judged for one in found.hardware):
        unnamed = int((many.runs["node"] == UNKNOWN).sum())
        why = (
            f"; {count(unnamed, 'run')} of logs that name no node: import them with --host NODE"
            * bool(unnamed)
        )
        raise BadInput(
            f"no hardware has 4 devices, nodes or links that ran the same tests; expected runs of more{why}"
        )
    if as_json:
        print_json(_fleet_as_json(many, found, findings))
    # Which node a file is of that cannot be read, nobody knows.
    unjudged = many.unreadable or any(node.unjudged for node in found.incomplete)
    sys.exit(1 if findings else 2 if unjudged else 0)


def _fleet_as_json(
    many: "Many", found: "Fleet", findings: "Sequence[SlowPart]"
) -> dict[str, object]:
    told = {
        "findings": [asdict(one) for one in findings],
        "left_out": list(many.left_out),
        "unfit": many.unfit,
    }
    return {name: value for name, value in asdict(found).items() if name != "findings"} | told


def _read(
    runs: Sequence[str], folder: Path, cache: bool, since: str | None, patterns: Sequence[str]
) -> "Many":
    """The runs that a user names, with what had to be left out said on stderr."""
    missing = [name for name in ("pandas", "ruptures") if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(
            f"history and fleet found no {' and no '.join(missing)}; expected the extra: {EXTRA}"
        )
    from ..baselines.run_files import expand
    from .reading import read_many

    paths = expand(runs, folder, sys.stdin if "-" in runs else ())
    many = read_many(paths, folder / "cache" if cache else None)
    for note in many.notes[:MOST_NAMED]:
        say(f"note: {printable(note)}", err=True)
    if many.left_out:
        say(f"note: {len(many.left_out)} of {many.files} files are left out:", err=True)
        for why in many.left_out[:MOST_NAMED]:
            say(f"  {printable(why)}", err=True)
        if len(many.left_out) > MOST_NAMED:
            say(f"  … and {len(many.left_out) - MOST_NAMED} more", err=True)
    return _matching(_since(many, since), patterns)


def _since(many: "Many", since: str | None) -> "Many":
    if since is None:
        return many
    from ..baselines.picking import parse_moment

    later = many.runs["started"] >= parse_moment(since, "--since")
    if not later.any():
        raise BadInput(
            f"no run began on {since} or later; the last one began {many.runs['started'].max()}"
        )
    # A run without a date cannot be chosen, and is not to vanish.
    runs = many.runs.assign(chosen=later | many.runs["started"].isna())
    return replace(many, runs=runs, rows=many.rows[many.rows["run"].map(later)])


def _matching(many: "Many", patterns: Sequence[str]) -> "Many":
    if not patterns:
        return many
    matched = [
        number
        for number, test in enumerate(many.tests)
        if any(
            fnmatch.fnmatchcase(name, pattern)
            for name in (test.label, test.key.benchmark)
            for pattern in patterns
        )
    ]
    if not matched:
        known = ", ".join(list(dict.fromkeys(test.key.benchmark for test in many.tests))[:8])
        raise BadInput(
            f"no test matches --tests {', '.join(patterns)}; there are {printable(known)}"
        )
    rows = many.rows[many.rows["test"].isin(matched)]
    # Hardware without such a test was not asked for; of a run without any row nobody knows.
    hardware = many.runs["hardware"].isin(many.runs["hardware"].loc[rows["run"].unique()])
    empty = ~many.runs.index.isin(many.rows["run"])
    chosen = many.runs["chosen"] & (hardware | empty)
    return replace(many, runs=many.runs.assign(chosen=chosen), rows=rows)
