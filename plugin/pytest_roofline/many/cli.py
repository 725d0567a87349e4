"""The commands `roofline history`, `fleet` and `rollout`. They judge thousands of files."""

import contextlib
import fnmatch
import gc
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..baselines.picking import parse_moment
from ..baselines.run_files import SUFFIX, expand
from ..baselines.runs import cut_note
from ..cli.options import (
    command,
    folder_option,
    print_json,
    read_options,
    say,
    width,
)
from ..core.errors import BadInput
from ..core.features import require
from ..core.units import count, parse_fraction, parse_tolerance, printable
from ..figures.plan import RECOGNISED, ReadPlan, plan_of_options

if TYPE_CHECKING:
    from ..baselines.test_texts import RunFile
    from .fleet import Fleet, SlowPart
    from .history import History
    from .reading import RunTables

# The node of an imported log that names none.
UNKNOWN = "unknown"
# The number of unusable files that are named.
MOST_NAMED = 5
EXTRA = "pip install 'pytest-roofline[report]'"


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Switch Python's collector of cycles off.

    Millions of rows hold no cycle, and it would look through them again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


runs_argument = click.argument("runs", nargs=-1, required=True, metavar="RUNS...")
since_option = click.option(
    "--since", metavar="DATE", help="Use only runs from this date on (ISO 8601)."
)
tests_option = click.option("--tests", "patterns", multiple=True, metavar="PATTERN",
    help="Use only tests whose name matches: 'memcpy_*' (repeatable).")  # fmt: skip
host_option = click.option("--host", default="", metavar="NODE|PATTERN",
    help="The node of logs that name none; as '{node}/*' or '*-{node}.log' where the paths name it.")  # fmt: skip
nodes_option = click.option("--nodes", metavar="LIST|@FILE",
    help="The nodes to expect, as gpu[001-050],login1: one that is silent is named.")  # fmt: skip


@command(since_option, tests_option, folder_option)
@runs_argument
@click.option(
    "--minimum",
    default="2%",
    show_default=True,
    help="The smallest change that is reported: 2% or 0.02.",
)
@click.option("--by", type=click.Choice(["device", "node", "hardware"]), default="device", show_default=True,
              help="What a series follows; a CPU counts as its node where nodes keep their names.")  # fmt: skip
@_without_collector()
def history(minimum: str, by: str, as_json: bool, **selection: Any) -> int:
    """Show every test of RUNS over time: steps, and drift that no single comparison sees; worst first.

    RUNS are saved names, paths, folders, patterns, or - for a list on stdin.

    Example: roofline history .roofline/runs --minimum 5%

    Exit status: 0 nothing became slower, 1 something did, 2 the input cannot be used.
    """
    smallest_change = parse_fraction(minimum, "--minimum")
    tables, _ = _read(**selection)
    from .history import history as history_of

    run_history = history_of(tables, smallest_change, by)
    if not run_history.series:
        raise BadInput(
            f"no test has 6 valid runs on one {by}; add runs until a test has 6; "
            f"the {tables.rows['run'].nunique()} runs hold {run_history.short} shorter series; "
            "INVALID and failed results do not count"
        )
    if as_json:
        print_json(_history_as_json(tables, run_history))
    else:
        # Its tables load much that --json does not need.
        from .text import history_text

        say(history_text(tables, run_history, width(), sys.stdout.isatty()))
    return int(any(change.slower for change in run_history.changes))


def _history_as_json(tables: "RunTables", run_history: "History") -> dict[str, object]:
    """Return a history for --json.

    Trends are left out, and of series only the numbers are given.
    """
    return {
        "changes": [
            {name: value for name, value in asdict(change).items() if name != "trend"}
            for change in run_history.changes
        ],
        "series": sum(not series.common for series in run_history.series),
        "too_short": run_history.short,
        "undated_runs": run_history.undated,
        "runs": int(tables.rows["run"].nunique()),
        "left_out": list(tables.left_out),
        "unfit": tables.unfit,
    }


@command(since_option, tests_option, folder_option)
@runs_argument
@host_option
@read_options("In logs")
@nodes_option
@click.option(
    "--minimum",
    default="5%",
    show_default=True,
    help="The smallest slowdown that is reported: 5% or 0.05.",
)
@click.option(
    "--by",
    type=click.Choice(["node", "gpu", "link"]),
    help="Show only these levels (default: all).",
)
@_without_collector()
def fleet(
    minimum: str,
    by: str | None,
    as_json: bool,
    nodes: str | None,
    host: str,
    read: str | None,
    higher: tuple[str, ...],
    lower: tuple[str, ...],
    **selection: Any,
) -> int:
    """Show which node, GPU or link of RUNS is slower than its peers of the same hardware; worst first.

    RUNS are saved names, paths, folders, patterns, or - for a list on stdin: run files, or logs of nccl-tests,
    nvbandwidth and others as they came.

    Example: roofline fleet logs/ --nodes 'gpu[001-050]'

    Exit status: 0 none was found, 1 one was, or a node of --nodes is silent, 2 the input cannot be used, or a node or
    file cannot be judged.
    """
    from .nodes import parse_nodes, silent_nodes

    smallest_slowdown = parse_fraction(minimum, "--minimum")
    expected_nodes = parse_nodes(nodes, "--nodes") if nodes is not None else ()
    plan = _plan(read, higher, lower)
    tables, files = _read(**selection, host=host, plan=plan, logs=True)
    from .fleet import fleet as fleet_of

    report = replace(
        fleet_of(tables, smallest_slowdown), silent=silent_nodes(expected_nodes, {"": files})
    )
    findings = [finding for finding in report.findings if by in (None, finding.level)]
    # The text is printed even where no hardware can be judged: it counts what is there.
    if not as_json:
        from .text import fleet_text

        say(fleet_text(tables, report, findings, width(), sys.stdout.isatty(), by))
    if not any(hardware.judged for hardware in report.hardware):
        unnamed_count = int((tables.runs["node"] == UNKNOWN).sum())
        hint = (
            f"; logs of {count(unnamed_count, 'run')} name no node; import these logs with --host NODE"
            if unnamed_count
            else ""
        )
        raise BadInput(
            f"no hardware has 4 devices, nodes or links with the same tests; add runs of further devices{hint}"
        )
    if as_json:
        print_json(_fleet_as_json(tables, report, findings))
    # The node of an unreadable file is unknown.
    has_unjudged = any(file.broken for file in files) or any(
        node.unjudged for node in report.incomplete
    )
    return 1 if findings or report.silent else 2 if has_unjudged else 0


def _fleet_as_json(
    tables: "RunTables", report: "Fleet", findings: "Sequence[SlowPart]"
) -> dict[str, object]:
    """Return a report for --json, with only the chosen findings."""
    details = {
        "findings": [asdict(finding) for finding in findings],
        "left_out": list(tables.left_out),
        "unfit": tables.unfit,
    }
    return {name: value for name, value in asdict(report).items() if name != "findings"} | details


@command(folder_option)
@click.argument("before")
@click.argument("after")
@click.option(
    "--control", nargs=2, metavar="BEFORE AFTER", help="Runs of nodes that did not change."
)
@click.option("--changed", metavar="LIST|@FILE",
              help="The nodes that changed, as gpu[001-050],login1; all others are controls.")  # fmt: skip
@nodes_option
@host_option
@read_options("In logs")
@click.option("--label", nargs=2, metavar="OLD NEW",
              help="What changed, if the files do not say: the versions of a driver, say.")  # fmt: skip
@click.option(
    "--tolerance",
    help="Slowdown that still counts as the same: 3% or 0.03 (default: 3%, on a CPU 15%).",
)
@click.option("--name-only", is_flag=True,
              help="Print only the nodes that are slower than their own group, one a line.")  # fmt: skip
@_without_collector()
def rollout(
    before: str,
    after: str,
    control: tuple[str, str] | None,
    changed: str | None,
    nodes: str | None,
    host: str,
    read: str | None,
    higher: tuple[str, ...],
    lower: tuple[str, ...],
    label: tuple[str, str] | None,
    tolerance: str | None,
    name_only: bool,
    as_json: bool,
    folder: Path,
) -> int:
    """Judge a change on some nodes against nodes without it: what it does to all, to each test, and slow nodes.

    Each node is compared with itself, less what the nodes of the other group did meanwhile. BEFORE and AFTER are saved
    names, paths, folders or patterns, several with commas between: run files, or logs of nccl-tests, nvbandwidth and
    others as they came.

    Example: roofline rollout before after --changed 'gpu[001-050]' --label 550.54 570.86

    Exit status: 0 nothing is slower, 1 something is, or a node, device or test is missing, 2 it cannot tell, or the
    input cannot be used.
    """
    from .nodes import is_among, parse_nodes, silent_nodes

    # Exactly one of both options tells which nodes are the controls.
    if (control is None) == (changed is None):
        raise BadInput(
            "a roll-out needs nodes without the change; expected --control BEFORE AFTER or --changed LIST"
        )
    accepted_slowdown = None if tolerance is None else parse_tolerance(tolerance, "--tolerance")
    changed_nodes = parse_nodes(changed, "--changed") if changed is not None else ()
    expected_nodes = parse_nodes(nodes, "--nodes") if nodes is not None else ()
    plan = _plan(read, higher, lower)
    from .files import read_files
    from .rollout import judge_rollout
    from .rollout_text import rollout_as_json, rollout_text

    # Before, after, and with --control the same of the controls. A path that exists may have a comma in its name.
    paths_by_side = [
        expand([side] if Path(side).exists() else side.split(","), folder, logs=True)
        for side in (before, after, *(control or ()))
    ]
    _note_unused(plan, [path for paths in paths_by_side for path in paths])
    sides = [read_files(paths, host, plan) for paths in paths_by_side]
    broken = [file.broken for side in sides for file in side if file.broken]
    _note_left_out([file for side in sides for file in side], broken)
    names = frozenset(changed_nodes)
    is_changed = (lambda node: is_among(node, names)) if control is None else None
    fleet_rollout = judge_rollout(
        sides[0], sides[1], (sides[2], sides[3]) if control is not None else None,
        is_changed=is_changed, tolerance=accepted_slowdown,
    )  # fmt: skip
    before_sides, after_sides = sides[::2], sides[1::2]
    silent = silent_nodes(
        tuple(dict.fromkeys((*changed_nodes, *expected_nodes))),
        {"before": [file for side in before_sides for file in side],
         "after": [file for side in after_sides for file in side]},
    )  # fmt: skip
    fleet_rollout = replace(fleet_rollout, silent=silent, unreadable=len(broken))
    if as_json:
        print_json(rollout_as_json(fleet_rollout, label or (), broken))
    elif name_only:
        for node in fleet_rollout.slow_nodes:
            say(printable(node.node))
    else:
        say(rollout_text(fleet_rollout, label or (), width(), sys.stdout.isatty()))
    return fleet_rollout.status


def _plan(read: str | None, higher: Sequence[str], lower: Sequence[str]) -> ReadPlan:
    """Return the plan of the options by which logs are read.

    Raises:
        BadInput: they contradict each other, or a fact behind the name of a tool cannot be true.
    """
    plan = plan_of_options(read, higher, lower)
    if plan.facts:
        require("exchange")
        from ..exchange.building import check_plan

        check_plan(plan, "--read")
    return plan


def _read(
    runs: Sequence[str],
    folder: Path,
    since: str | None,
    patterns: Sequence[str],
    host: str = "",
    plan: ReadPlan = RECOGNISED,
    *,
    logs: bool = False,
) -> "tuple[RunTables, list[RunFile]]":
    """Return the runs that a user names, as tables and as files. Print on stderr which are left out."""
    if importlib.util.find_spec("pandas") is None:
        raise BadInput(f"history and fleet need pandas, which cannot be imported; type: {EXTRA}")
    from .files import read_files
    from .reading import tables_of

    paths = expand(runs, folder, sys.stdin if "-" in runs else (), logs=logs)
    _note_unused(plan, paths)
    files = read_files(paths, host, plan)
    tables = tables_of(files)
    _note_left_out(files, tables.left_out)
    return _matching(_since(tables, since), patterns), files


def _note_unused(plan: ReadPlan, paths: Sequence[str]) -> None:
    """Print on stderr where the options on figures have no effect.

    They have none where no file is a log.
    """
    if plan != RECOGNISED and all(path.endswith(SUFFIX) for path in paths):
        say(
            "note: --read, --higher and --lower have no effect on run files, and no file is a log",
            err=True,
        )


def _note_left_out(files: "Sequence[RunFile]", reasons: Sequence[str]) -> None:
    """Print on stderr which files were cut, and why some are left out."""
    cut = [file.path for file in files if file.cut]
    for path in cut[:MOST_NAMED]:
        say(f"note: {printable(cut_note(path))}", err=True)
    if reasons:
        say(f"note: {len(reasons)} of {len(files)} files are left out:", err=True)
    for reason in reasons[:MOST_NAMED]:
        say(f"  {printable(reason)}", err=True)
    if len(reasons) > MOST_NAMED:
        say(f"  … and {len(reasons) - MOST_NAMED} more", err=True)


def _since(tables: "RunTables", since: str | None) -> "RunTables":
    """Return the tables with only the rows of runs since a date.

    Earlier runs stay in the table of runs, where `chosen` is false.
    """
    if since is None:
        return tables
    # By the number of a run. A run without a date is not recent.
    is_recent = tables.runs["started"] >= parse_moment(since, "--since")
    if not is_recent.any():
        raise BadInput(
            f"no run began on {since} or later; the last run began {tables.runs['started'].max()}"
        )
    # The rows of a run without a date do not count, but it stays chosen, so that its node is still reported.
    runs = tables.runs.assign(chosen=is_recent | tables.runs["started"].isna())
    return replace(tables, runs=runs, rows=tables.rows[tables.rows["run"].map(is_recent)])


def _matching(tables: "RunTables", patterns: Sequence[str]) -> "RunTables":
    """Return the tables with only the tests that match a pattern.

    A pattern is compared with a test's label and with the name of its benchmark.
    """
    if not patterns:
        return tables
    test_numbers = [
        number
        for number, test in enumerate(tables.tests)
        if any(
            fnmatch.fnmatchcase(name, pattern)
            for name in (test.label, test.key.benchmark)
            for pattern in patterns
        )
    ]
    if not test_numbers:
        benchmarks = ", ".join(list(dict.fromkeys(test.key.benchmark for test in tables.tests))[:8])
        raise BadInput(
            f"no test matches --tests {', '.join(patterns)}; the tests are {printable(benchmarks)}"
        )
    rows = tables.rows[tables.rows["test"].isin(test_numbers)]
    # Runs on hardware without such a test are not chosen. A run without any row may have tried such a test.
    hardware_with_test = tables.runs["hardware"].loc[rows["run"].unique()]
    has_test = tables.runs["hardware"].isin(hardware_with_test)
    is_empty = ~tables.runs.index.isin(tables.rows["run"])
    is_selected = tables.runs["chosen"] & (has_test | is_empty)
    return replace(tables, runs=tables.runs.assign(chosen=is_selected), rows=rows)
