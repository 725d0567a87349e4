"""`roofline drill`: a check that a gate fails."""

import math
import os
import shlex
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import click

from ..baselines.reasons import reason_text
from ..baselines.runs import Run, read_run
from ..core.errors import BadInput
from ..core.samples import SIBLINGS
from ..core.units import format_percent, format_tolerance, parse_fraction, printable
from ..core.verdicts import Kind, Verdict
from ..plugin.options import SAVED_VARIABLE
from .options import command, print_json, say

# The exit status of pytest that found, or was left with, nothing to run; importing it takes longer than the command.
NO_TESTS = 5
# Beside these no run records.
_NOT_RECORDED = ("--roofline-against=", "--roofline-ci")


@command(
    "Slow every test down and check that the gate fails.",
    context_settings={"ignore_unknown_options": True},
)
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
    slowdown = parse_fraction(share, "SHARE")
    name = f"drill-{uuid.uuid4().hex[:12]}"
    # The rounds of the gate that it is to prove, unless ARGUMENTS name others.
    words = [
        *(sys.executable, "-m", "pytest", "--roofline-rounds=auto", *arguments),
        *(f"--roofline-drill={share}", f"--roofline-save={name}"),
    ]
    with tempfile.TemporaryDirectory(prefix="roofline-drill-") as folder:
        saved = Path(folder) / "path"
        done = subprocess.run(
            words,
            check=False,
            env=os.environ | {SAVED_VARIABLE: str(saved)},
            # With --json, standard output is for the machine alone.
            stdout=2 if as_json else None,
        )
        path = Path(saved.read_text(encoding="utf-8")) if saved.exists() else None
    if done.returncode == NO_TESTS:
        raise BadInput(
            "pytest selected no test, so nothing was measured; name others by path or -k"
        )
    if done.returncode not in (0, 1):
        raise BadInput(
            f"pytest ended with status {done.returncode} before anything could be judged; expected 0 or 1: mend what "
            "it says (without -q it says more), or name other tests"
        )
    if path is None or not path.exists():
        raise BadInput(
            "no test that measures was run; expected tests that take the fixture roofline: name others by path or -k"
        )
    return tell_drill(read_run(path), slowdown, arguments, as_json=as_json)


def tell_drill(run: Run, slowdown: float, arguments: Sequence[str] = (), *, as_json: bool) -> int:
    """Print what a drill found of a run that pytest was given these arguments for; returns the exit status."""
    # Siblings are compared with each other alone, and a drill slows them all alike.
    siblings = {
        (one.test_id, one.label) for one in run.measurements if SIBLINGS in one.samples.labels
    }
    verdicts = [
        verdict
        for verdict in run.verdicts
        if (verdict.subject.test_id, verdict.subject.label) not in siblings
    ]
    # What was INVALID beside a baseline would not have turned red either.
    compared = [
        verdict
        for verdict in verdicts
        if verdict.estimate is not None
        or (verdict.kind is Kind.INVALID and verdict.reference is not None)
    ]
    if not compared:
        cause = _nothing_compared(run, verdicts, arguments)
        say(
            printable(f"roofline: nothing was compared, so nothing could turn red; {cause}"),
            err=True,
        )
        return 2
    told = [_drilled(verdict, slowdown, len(compared)) for verdict in compared]
    red = sum(one["red"] for one in told)
    if as_json:
        print_json(
            {
                "slowdown": slowdown,
                "run": str(run.path),
                "compared": len(told),
                "red": red,
                "tests": told,
            }
        )
    else:
        _print_drill(compared, told, slowdown, red)
    return 1 if red < len(told) or any(one["missed"] for one in told) else 0


def _nothing_compared(run: Run, verdicts: Sequence[Verdict], arguments: Sequence[str]) -> str:
    """Return why nothing was compared, and what to do first."""
    spoiled = next((verdict for verdict in verdicts if verdict.kind is Kind.INVALID), None)
    if spoiled is not None:
        return f"{spoiled.subject.label} is INVALID: {reason_text(spoiled)}"
    failed = next((each for each in run.outcomes if each.outcome == "failed"), None)
    if failed is not None and not verdicts:
        return f"{failed.test_id} failed before it was judged; mend it, and drill again"
    words = [word for word in arguments if not word.startswith(_NOT_RECORDED)]
    return f"record a baseline first: {shlex.join(['pytest', *words, '--roofline-record'])}"


def _print_drill(
    compared: Sequence[Verdict], told: Sequence[dict[str, Any]], slowdown: float, red: int
) -> None:
    from ..stats.stats import growth

    say(f"drill of +{format_tolerance(slowdown)}: {red} of {len(told)} tests turned red")
    for one in told:
        if not one["red"]:
            say(printable(f"  not red: {one['not_red']}"))
    seen = sorted(
        growth(one.estimate)
        for one in compared
        if one.estimate is not None and one.reference is not None
    )
    if seen:
        reach = f" … {format_percent(seen[-1])}" if len(seen) > 1 else ""
        say(
            f"against their baselines {format_percent(seen[0])}{reach} time; "
            f"{format_percent(slowdown)} was asked for"
        )
    missed = [one for one in told if one["missed"]]
    for one in missed:
        say(printable(f"  not the drill's doing: {one['test']} {one['missed']}"))
    if missed:
        say(
            "What is red for another reason proves nothing: bring the machine back to how it was recorded, drill again."
        )


def _drilled(verdict: Verdict, slowdown: float, tests: int) -> dict[str, Any]:
    """What a drill found of one test: how much slower it was, and why it did not turn red, or not by the drill."""
    from ..stats.stats import growth

    red = verdict.kind is Kind.REGRESSED
    return {
        "test": verdict.subject.label,
        "test_id": verdict.subject.test_id,
        "verdict": verdict.kind.value,
        "red": red,
        "seen": None if verdict.estimate is None else growth(verdict.estimate),
        "tolerance": verdict.tolerance,
        "not_red": "" if red else _not_red(verdict, slowdown),
        "missed": _missed(verdict, slowdown, tests),
    }


def _missed(verdict: Verdict, slowdown: float, tests: int) -> str:
    """Return how a test was slowed down by something else than was asked for; empty within the tolerance.

    Its interval is widened as for the smallest of `tests` p values (Bonferroni): one drill of a hundred misses by
    chance.
    """
    if verdict.estimate is None or verdict.interval is None or verdict.reference is None:
        return ""
    from ..stats.stats import CONFIDENCE, growth

    chance = (1 - CONFIDENCE) / 2
    wider = NormalDist().inv_cdf(chance / tests) / NormalDist().inv_cdf(chance)
    low, high = (
        verdict.estimate + wider * (bound - verdict.estimate) for bound in verdict.interval
    )
    same = math.log1p(verdict.tolerance)
    if low - same <= math.log1p(slowdown) <= high + same:
        return ""
    bounds = "…".join(format_percent(growth(bound)).removesuffix(" %") for bound in (low, high))
    return f"takes {format_percent(growth(verdict.estimate))} time ({bounds} %)"


def _not_red(verdict: Verdict, slowdown: float) -> str:
    if verdict.estimate is None:
        return f"{verdict.subject.label} {verdict.kind}: {reason_text(verdict)}"
    from ..stats.stats import growth

    text = (
        f"{verdict.subject.label} {verdict.kind}, "
        f"seen as {format_percent(growth(verdict.estimate))}"
    )
    if slowdown <= verdict.tolerance:
        return f"{text}: within its tolerance of {format_tolerance(verdict.tolerance)}"
    if verdict.reach is not None and verdict.reach > slowdown:
        return (
            f"{text}: this run detects slowdowns from {format_tolerance(round(verdict.reach, 3))} only; "
            "use --roofline-rounds=auto, or record more sessions"
        )
    return ": ".join(filter(None, (text, reason_text(verdict))))
