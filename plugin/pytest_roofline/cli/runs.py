"""`roofline explain` and `roofline drill`: why a verdict is what it is, and proof that the gate is awake."""

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
from ..core.units import format_percent, format_tolerance, parse_fraction, printable
from ..plugin.options import SAVED_VARIABLE
from .options import folder_option, json_option, print_json, width

# The exit status of pytest that found, or was left with, nothing to run; importing it takes longer than the command.
NO_TESTS = 5

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..baselines.runs import Run
    from ..core.records import Judgement
    from ..core.rows import Row


@click.command(short_help="Show why each verdict of a run is what it is.")
@click.argument("run")
@click.argument("test", default="")
@json_option
@folder_option
def explain(run: str, test: str, as_json: bool, folder: Path) -> None:
    """Show why each verdict of RUN on TEST (part of its name or id; all without) is what it is.

    Samples by process, the intervals, the spreads and where they come from, and the rule step by step; of a compiled
    kernel its figures, what it was compiled for and by what; and what the test found besides times: figures, what its
    memory goes into, where its time goes.

    Example: roofline explain driver-570 64MiB

    Exit status: 0 shown, 2 the run cannot be used, or measured nothing of that name.
    """
    from ..baselines.rows import rows_of_run
    from ..baselines.run_files import resolve_run
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
    click.echo("\n\n".join("\n".join(lines) for lines in [*blocks, *[told] * bool(told)]))


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
        known = ", ".join(labels[:8]) + (", …" if len(labels) > 8 else "")
        told = known or "nothing at all"
        raise BadInput(f"{run.path} measured nothing whose name holds {test!r}; it measured {told}")
    return {label: ids[label] for label in found}


def _parameters(label: str) -> list[str]:
    return [word for inner in re.findall(r"\[([^][]*)\]", label) for word in inner.split("-")]


@click.command(
    context_settings={"ignore_unknown_options": True},
    short_help="Prove that the gate is awake: slow all down, count red.",
)
@click.argument("share")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@json_option
def drill(share: str, arguments: tuple[str, ...], as_json: bool) -> None:
    """Run pytest with every measured function slowed down by SHARE (10%), and say which tests turned red.

    As a gate does, it runs what is undecided again, and tells of each test how much slower it really was: whatever
    else slows the machine down turns a gate red that sleeps.

    ARGUMENTS are pytest's: paths, -k, --roofline-against and so on. With --json, what pytest prints goes to standard
    error.

    Example: roofline drill 20% perf_tests -k memcpy

    Exit status: 0 every compared test turned red by what was asked for, 1 one slept or was slowed down by more or less
    than that, 2 nothing was compared, or the input cannot be used.
    """
    from ..baselines.runs import read_run

    slowdown = parse_fraction(share, "SHARE")
    name = f"drill-{uuid.uuid4().hex[:12]}"
    # The rounds of the gate that it is to prove, unless ARGUMENTS name others.
    command = [sys.executable, "-m", "pytest", "--roofline-rounds=auto", *arguments]
    command += [f"--roofline-drill={share}", f"--roofline-save={name}"]
    with tempfile.TemporaryDirectory(prefix="roofline-drill-") as folder:
        told = Path(folder) / "path"
        # Standard output is for the machine alone then.
        redirected: dict[str, Any] = {"stdout": 2} if as_json else {}
        done = subprocess.run(command, check=False, env=os.environ | {SAVED_VARIABLE: str(told)}, **redirected)
        path = Path(told.read_text(encoding="utf-8")) if told.exists() else None
    if done.returncode == NO_TESTS:
        raise BadInput("pytest selected no test, so nothing was measured; look at its paths and at -k")
    if done.returncode not in (0, 1) or path is None or not path.exists():
        raise BadInput(f"pytest ended with status {done.returncode} and measured nothing that could be judged")
    sys.exit(_tell(read_run(path), slowdown, as_json=as_json))


def _tell(run: "Run", slowdown: float, *, as_json: bool) -> int:
    # Siblings are held against each other alone, and a drill slows them all alike.
    siblings = {(one.test_id, one.label) for one in run.measurements if SIBLINGS in one.samples.labels}
    judgements = [one for one in run.judgements if (one.test_id, one.label) not in siblings]
    # What was INVALID beside a baseline would not have turned red either.
    compared = [one for one in judgements if one.estimate is not None or (one.verdict == "INVALID" and one.reference)]
    if not compared:
        spoiled = [judgement for judgement in judgements if judgement.verdict == "INVALID"]
        first = f"{spoiled[0].label} is INVALID: {spoiled[0].reason}" if spoiled else "record a baseline first"
        click.echo(printable(f"roofline: nothing was compared, so nothing could turn red; {first}"), err=True)
        return 2
    asleep = [judgement for judgement in compared if judgement.verdict != "REGRESSED"]
    missed = {one.label: why for one in compared if (why := _missed(one, slowdown, len(compared)))}
    if as_json:
        print_json(
            {
                "slowdown": slowdown,
                "run": str(run.path),
                "compared": len(compared),
                "red": len(compared) - len(asleep),
                "tests": [
                    _as_json(judgement, slowdown) | {"missed": missed.get(judgement.label, "")}
                    for judgement in compared
                ],
            }
        )
        return 1 if asleep or missed else 0
    click.echo(
        f"drill of +{format_tolerance(slowdown)}: {len(compared) - len(asleep)} of {len(compared)} tests turned red"
    )
    for judgement in asleep:
        click.echo(printable(f"  asleep: {_asleep(judgement, slowdown)}"))
    from ..stats.stats import growth

    seen = sorted(growth(one.estimate) for one in compared if one.estimate is not None and one.reference)
    if seen:
        reach = f" … {format_percent(seen[-1])}" if len(seen) > 1 else ""
        click.echo(
            f"against their baselines {format_percent(seen[0])}{reach} time; {format_percent(slowdown)} was asked for"
        )
    for label, why in missed.items():
        click.echo(printable(f"  not the drill's doing: {label} {why}"))
    if missed:
        click.echo(
            "What is red for another reason proves nothing: bring the machine back to how it was recorded, drill again."
        )
    return 1 if asleep or missed else 0


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


def _as_json(judgement: "Judgement", slowdown: float) -> dict[str, Any]:
    from ..stats.stats import growth

    red = judgement.verdict == "REGRESSED"
    return {
        "test": judgement.label,
        "test_id": judgement.test_id,
        "verdict": judgement.verdict,
        "red": red,
        "seen": None if judgement.estimate is None else growth(judgement.estimate),
        "tolerance": judgement.tolerance,
        "asleep": "" if red else _asleep(judgement, slowdown),
    }


def _asleep(judgement: "Judgement", slowdown: float) -> str:
    if judgement.estimate is None:
        return f"{judgement.label} {judgement.verdict}: {judgement.reason}"
    from ..stats.stats import growth

    seen = format_percent(growth(judgement.estimate))
    text = f"{judgement.label} {judgement.verdict}, seen as {seen}"
    if slowdown <= judgement.tolerance:
        return f"{text}: within its tolerance of {format_tolerance(judgement.tolerance)}"
    if judgement.reach is not None and judgement.reach > slowdown:
        needed = f"this run would have caught slowdowns from {judgement.reach:.1%} up only"
        return f"{text}: {needed}; use --roofline-rounds=auto, or record more sessions"
    return f"{text}: {judgement.reason}" if judgement.reason else text
