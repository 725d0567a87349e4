"""`roofline compare`, `explain` and `drill`: two runs, the reasons of a verdict, and a check that a gate fails."""

import math
import os
import re
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import BadInput
from ..core.samples import SIBLINGS
from ..core.units import format_percent, format_tolerance, listed, parse_fraction, parse_tolerance, printable
from ..plugin.options import SAVED_VARIABLE
from .options import command, folder_option, note_cuts, print_json, say, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..baselines.comparing import Comparison
    from ..baselines.runs import Run
    from ..core.judgements import Judgement
    from ..core.rows import Row

# The exit status of pytest that found, or was left with, nothing to run; importing it takes longer than the command.
NO_TESTS = 5
# Of a run of hundreds, so many names are enough to see how tests are called.
SHOWN = 8


@command("Compare a run with another or a baseline, worst first.", folder_option)
@click.argument("old")
@click.argument("new")
@click.option("--tolerance", help="Slowdown that still counts as the same: 5% or 0.05 (default: 5%, on a CPU 15%).")
@click.option(
    "--control", nargs=2, metavar="OLD NEW", help="Runs of devices that did not change, from before and after."
)
def compare(
    old: str, new: str, tolerance: str | None, control: tuple[str, str] | None, as_json: bool, folder: Path
) -> int:
    """Compare NEW with OLD, worst first. Each is a saved run (NAME or PATH), a folder, a pattern, or a baseline.

    Separate several by commas.

    With --control a staged rollout: each device is compared with itself, less what the devices of --control did
    meanwhile. These may be among OLD and NEW as well.

    Example: roofline compare before1,before2,before3 after1,after2,after3

    Exit status: 0 nothing regressed, 1 something did or was lost, 2 the input cannot be used.
    """
    from ..baselines.comparing import compare as compare_files

    allowed = None if tolerance is None else parse_tolerance(tolerance, "--tolerance")
    sides = _side(old, folder), _side(new, folder)
    if control is not None:
        return _compare_rollout(sides, (_side(control[0], folder), _side(control[1], folder)), allowed, as_json)
    compared = compare_files(*sides, allowed)
    note_cuts(compared.runs)
    if compared.only_old:
        say(f"note: only in {old}: {printable(', '.join(compared.only_old))}", err=True)
    if as_json:
        from ..report.comparison import comparison_as_json

        print_json(comparison_as_json(compared))
    else:
        _print_comparison(compared, *sides)
    return 1 if compared.regressed else 0


def _side(names: str, folder: Path) -> list[Path]:
    """One side of a comparison: one file, or several with commas between their names."""
    from ..baselines.run_files import paths_of

    parts = [names] if Path(names).exists() else names.split(",")
    return [Path(path) for part in parts if part for path in paths_of(part, folder)]


def _compare_rollout(
    sides: "Sequence[Sequence[Path]]", control: "Sequence[Sequence[Path]]", tolerance: float | None, as_json: bool
) -> int:
    """Judge and print a staged rollout; returns the exit status."""
    from ..baselines.rollout import judge_rollout
    from ..baselines.runs import read_run
    from ..report.comparison import rollout_as_json, rollout_text

    before, after, old, new = ([read_run(path) for path in side] for side in (*sides, *control))
    note_cuts([*before, *after, *old, *new])
    found = judge_rollout(before, after, (old, new), tolerance)
    if as_json:
        print_json(rollout_as_json(found))
    else:
        say(rollout_text(found, width(), sys.stdout.isatty()))
    return 1 if found.worse else 0


def _print_comparison(compared: "Comparison", old: "Sequence[Path]", new: "Sequence[Path]") -> None:
    from ..core.rows import worst_first
    from ..report.comparison import comparison_lines
    from ..report.messages import peak_lines
    from ..report.overview import ladder_lines, ladder_of
    from ..report.published import idle_lines
    from ..report.tables import comparison_table, exact_reason_lines, kernels_table
    from ..report.words import counts_text

    rows, kernels = compared.rows, compared.kernels
    terminal = sys.stdout.isatty()
    before, after = ([run for run in compared.runs if run.path in side] for side in (old, new))
    for line in comparison_lines(compared, before, after):
        say(line)
    if rows or not (kernels or compared.lost):
        say(comparison_table(rows, width(), terminal))
    told = [row for row in rows if row.judgement is not None and row.judgement.reason]
    lines = [printable(f"{row.judgement.verdict} {row.label}: {row.judgement.reason}") for row in told if row.judgement]
    lines += peak_lines(rows, at_most=len(rows)) + idle_lines(rows)
    lines += [kernels_table(kernels, width(), terminal)] if kernels else []
    lines += exact_reason_lines(kernels)
    lines += [printable(f"{row.verdict} {row.label}: {row.reason}") for row in compared.lost]
    lines += ladder_lines(ladder_of(rows, after))
    for line in [*lines, counts_text(worst_first(compared.everything))]:
        say(line)


@command("Show why each verdict of a run is what it is.", folder_option)
@click.argument("run")
@click.argument("test", default="")
def explain(run: str, test: str, as_json: bool, folder: Path) -> None:
    """Show why each verdict of RUN on TEST (part of its name or id; default: all) is what it is.

    Samples by process, the intervals, the spreads and where they come from, and the rule step by step. For a compiled
    kernel its figures, target and compiler. Also the test's other figures, its memory use and its profile.

    Example: roofline explain driver-570 64MiB

    Exit status: 0 shown, 2 the run cannot be used, or measured nothing of that name.
    """
    from ..baselines.run_files import resolve_run
    from ..baselines.run_rows import rows_of_run
    from ..baselines.runs import read_run
    from ..report.explain import explanation, explanation_as_json, note_lines
    from ..report.overview import ladder_lines, ladder_of

    read = read_run(resolve_run(run, folder))
    rows = rows_of_run(read)
    found = _matching(read, rows, test)
    red = {row.label for row in rows if row.judgement is not None and row.judgement.verdict == "REGRESSED"}
    told = ladder_lines(ladder_of(rows)) if red & found.keys() else []
    if as_json:
        print_json(explanation_as_json(read, list(found.items()), told))
        return
    blocks = []
    for label in found:
        lines = [line for row in rows if row.label == label for line in explanation(row, width())]
        blocks.append([*lines, *note_lines(read, label, width())])
    say("\n\n".join("\n".join(lines) for lines in [*blocks, *[told] * bool(told)]))


def _matching(run: "Run", rows: "Sequence[Row]", test: str) -> dict[str, str]:
    """What a run has whose label or test id holds the text, with its test id.

    Those alone that are called so, or have a parameter that is, where there are any: `4MiB` is not `2004MiB`.
    """
    from ..report.explain import note_labels

    ids = {row.label: row.test for row in rows if row.what != "test"} | note_labels(run)
    labels = list(ids)
    exact = [label for label in labels if test in (label, ids[label], *_parameters(label))]
    found = exact or [label for label in labels if test in label or test in ids[label]]
    if not found:
        if not labels:
            raise BadInput(f"{run.path} has no test {test!r}: it measured nothing at all; name another run")
        told = listed(labels, SHOWN)
        raise BadInput(f"{run.path} measured nothing whose name holds {test!r}; name one of these: {told}")
    return {label: ids[label] for label in found}


def _parameters(label: str) -> list[str]:
    return [word for inner in re.findall(r"\[([^][]*)\]", label) for word in inner.split("-")]


@command("Slow every test down and check that the gate fails.", context_settings={"ignore_unknown_options": True})
@click.argument("share")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def drill(share: str, arguments: tuple[str, ...], as_json: bool) -> int:
    """Run pytest with every measured function slowed down by SHARE (10%), and say which tests turned red.

    Undecided tests are repeated as in a gate. The real slowdown of the tests is printed: other load on the machine can
    turn a gate red as well.

    ARGUMENTS are pytest's: paths, -k, --roofline-against and so on. With --json, what pytest prints goes to standard
    error.

    Example: roofline drill 20% perf_tests -k memcpy

    Exit status: 0 every compared test turned red by SHARE, 1 one stayed green, or was slowed down by more or less, 2
    nothing was compared, or the input cannot be used.
    """
    from ..baselines.runs import read_run

    slowdown = parse_fraction(share, "SHARE")
    name = f"drill-{uuid.uuid4().hex[:12]}"
    # The rounds of the gate that it is to prove, unless ARGUMENTS name others.
    words = [sys.executable, "-m", "pytest", "--roofline-rounds=auto", *arguments]
    words += [f"--roofline-drill={share}", f"--roofline-save={name}"]
    with tempfile.TemporaryDirectory(prefix="roofline-drill-") as folder:
        told = Path(folder) / "path"
        # Standard output is for the machine alone then.
        redirected: dict[str, Any] = {"stdout": 2} if as_json else {}
        done = subprocess.run(words, check=False, env=os.environ | {SAVED_VARIABLE: str(told)}, **redirected)
        path = Path(told.read_text(encoding="utf-8")) if told.exists() else None
    if done.returncode == NO_TESTS:
        raise BadInput("pytest selected no test, so nothing was measured; name others by path or -k")
    if done.returncode not in (0, 1) or path is None or not path.exists():
        raise BadInput(
            f"pytest ended with status {done.returncode} and measured nothing that could be judged; mend what it says, "
            "or name other tests"
        )
    return tell_drill(read_run(path), slowdown, as_json=as_json)


def tell_drill(run: "Run", slowdown: float, *, as_json: bool) -> int:
    """Print what a drill found; returns the exit status."""
    # Siblings are compared with each other alone, and a drill slows them all alike.
    siblings = {(one.test_id, one.label) for one in run.measurements if SIBLINGS in one.samples.labels}
    judgements = [one for one in run.judgements if (one.test_id, one.label) not in siblings]
    # What was INVALID beside a baseline would not have turned red either.
    compared = [one for one in judgements if one.estimate is not None or (one.verdict == "INVALID" and one.reference)]
    if not compared:
        spoiled = next((judgement for judgement in judgements if judgement.verdict == "INVALID"), None)
        first = f"{spoiled.label} is INVALID: {spoiled.reason}" if spoiled else "record a baseline first"
        say(printable(f"roofline: nothing was compared, so nothing could turn red; {first}"), err=True)
        return 2
    told = [_drilled(judgement, slowdown, len(compared)) for judgement in compared]
    red = sum(one["red"] for one in told)
    if as_json:
        print_json({"slowdown": slowdown, "run": str(run.path), "compared": len(told), "red": red, "tests": told})
    else:
        _print_drill(compared, told, slowdown, red)
    return 1 if red < len(told) or any(one["missed"] for one in told) else 0


def _print_drill(compared: "Sequence[Judgement]", told: "Sequence[dict[str, Any]]", slowdown: float, red: int) -> None:
    from ..stats.stats import growth

    say(f"drill of +{format_tolerance(slowdown)}: {red} of {len(told)} tests turned red")
    for one in told:
        if not one["red"]:
            say(printable(f"  not red: {one['not_red']}"))
    seen = sorted(growth(one.estimate) for one in compared if one.estimate is not None and one.reference)
    if seen:
        reach = f" … {format_percent(seen[-1])}" if len(seen) > 1 else ""
        asked = f"{format_percent(slowdown)} was asked for"
        say(f"against their baselines {format_percent(seen[0])}{reach} time; {asked}")
    missed = [one for one in told if one["missed"]]
    for one in missed:
        say(printable(f"  not the drill's doing: {one['test']} {one['missed']}"))
    if missed:
        say(
            "What is red for another reason proves nothing: bring the machine back to how it was recorded, drill again."
        )


def _drilled(judgement: "Judgement", slowdown: float, tests: int) -> dict[str, Any]:
    """What a drill found of one test: how much slower it was, and why it did not turn red, or not by the drill."""
    from ..stats.stats import growth

    red = judgement.verdict == "REGRESSED"
    return {
        "test": judgement.label,
        "test_id": judgement.test_id,
        "verdict": judgement.verdict,
        "red": red,
        "seen": None if judgement.estimate is None else growth(judgement.estimate),
        "tolerance": judgement.tolerance,
        "not_red": "" if red else _not_red(judgement, slowdown),
        "missed": _missed(judgement, slowdown, tests),
    }


def _missed(judgement: "Judgement", slowdown: float, tests: int) -> str:
    """How a test was slowed down by something else than was asked for; empty where its interval holds that.

    It is widened as for the smallest of `tests` p values (Bonferroni): one drill of a hundred misses by chance.
    """
    if judgement.estimate is None or judgement.interval is None or not judgement.reference:
        return ""
    from ..stats.stats import CONFIDENCE, growth

    chance = (1 - CONFIDENCE) / 2
    wider = NormalDist().inv_cdf(chance / tests) / NormalDist().inv_cdf(chance)
    low, high = (judgement.estimate + wider * (bound - judgement.estimate) for bound in judgement.interval)
    if low <= math.log1p(slowdown) <= high:
        return ""
    bounds = "…".join(format_percent(growth(bound)).removesuffix(" %") for bound in (low, high))
    return f"takes {format_percent(growth(judgement.estimate))} time ({bounds} %)"


def _not_red(judgement: "Judgement", slowdown: float) -> str:
    if judgement.estimate is None:
        return f"{judgement.label} {judgement.verdict}: {judgement.reason}"
    from ..stats.stats import growth

    seen = format_percent(growth(judgement.estimate))
    text = f"{judgement.label} {judgement.verdict}, seen as {seen}"
    if slowdown <= judgement.tolerance:
        return f"{text}: within its tolerance of {format_tolerance(judgement.tolerance)}"
    if judgement.reach is not None and judgement.reach > slowdown:
        needed = f"this run detects slowdowns from {judgement.reach:.1%} only"
        return f"{text}: {needed}; use --roofline-rounds=auto, or record more sessions"
    return f"{text}: {judgement.reason}" if judgement.reason else text
