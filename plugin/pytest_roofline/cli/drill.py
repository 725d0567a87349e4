"""`roofline drill`: a check that a gate fails.

It runs pytest with the hidden option `--roofline-drill` (`settings/options.py`). Other parts of a drill:
`engine/measure.py` slows the function down, `plugin/timed.py` does not look for a slowdown that all tests share,
`baselines/runs.py` reads the share in a run file, and `plugin/display.py` and `report/page_text.py` say that it was a
drill.
"""

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
from ..settings.options import SAVED_VARIABLE
from ..stats.stats import CONFIDENCE, growth
from .options import command, print_json, say

# The exit status of pytest without a test to run. It is a copy, since importing pytest is slow.
NO_TESTS = 5
# Options of a gate or a comparison, which a recording must not have.
_NOT_RECORDED = ("--roofline-against=", "--roofline-ci")


@command(
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
    # Rounds as in a gate, unless ARGUMENTS have another number.
    pytest_command = [
        *(sys.executable, "-m", "pytest", "--roofline-rounds=auto", *arguments),
        *(f"--roofline-drill={share}", f"--roofline-save={name}"),
    ]
    with tempfile.TemporaryDirectory(prefix="roofline-drill-") as folder:
        # pytest writes the path of its run into this file.
        path_file = Path(folder) / "path"
        process = subprocess.run(
            pytest_command,
            check=False,
            env=os.environ | {SAVED_VARIABLE: str(path_file)},
            # With --json only the document goes to standard output (2 is standard error).
            stdout=2 if as_json else None,
        )
        path = Path(path_file.read_text(encoding="utf-8")) if path_file.exists() else None
    if process.returncode == NO_TESTS:
        raise BadInput(
            "pytest selected no test, so nothing was measured; select other tests by path or -k"
        )
    if process.returncode not in (0, 1):
        raise BadInput(
            f"pytest ended with status {process.returncode} before any verdict; expected status 0 or 1; correct the "
            "fault that pytest's output shows, of which -q hides a part, or select other tests"
        )
    if path is None or not path.exists():
        raise BadInput(
            "no test measured anything; expected tests with the fixture roofline; select such tests by path or -k"
        )
    return report_drill(read_run(path), slowdown, arguments, as_json=as_json)


def report_drill(run: Run, slowdown: float, arguments: Sequence[str] = (), *, as_json: bool) -> int:
    """Print the outcome of a drill, and return the exit status.

    `slowdown` is the share of time that was added, `arguments` are those of pytest.
    """
    verdicts = _verdicts_without_siblings(run)
    compared_verdicts = [verdict for verdict in verdicts if _is_compared(verdict)]
    if not compared_verdicts:
        cause = _cause_of_no_comparison(run, verdicts, arguments)
        say(
            printable(f"roofline: nothing was compared, so no test could turn red; {cause}"),
            err=True,
        )
        return 2
    drilled_tests = [
        _test_as_json(verdict, slowdown, len(compared_verdicts)) for verdict in compared_verdicts
    ]
    red_count = sum(test["red"] for test in drilled_tests)
    if as_json:
        print_json(
            {
                "slowdown": slowdown,
                "run": str(run.path),
                "compared": len(drilled_tests),
                "red": red_count,
                "tests": drilled_tests,
            }
        )
    else:
        _print_drill(compared_verdicts, drilled_tests, slowdown, red_count)
    is_missed = red_count < len(drilled_tests) or any(test["missed"] for test in drilled_tests)
    return 1 if is_missed else 0


def _verdicts_without_siblings(run: Run) -> list[Verdict]:
    """Return the verdicts of a run, without those on siblings.

    Siblings are compared only with each other, and a drill slows all of them equally.
    """
    siblings = {
        (measurement.test_id, measurement.label)
        for measurement in run.measurements
        if SIBLINGS in measurement.samples.labels
    }
    return [
        verdict
        for verdict in run.verdicts
        if (verdict.subject.test_id, verdict.subject.label) not in siblings
    ]


def _is_compared(verdict: Verdict) -> bool:
    """Return True where a test was compared.

    An INVALID test that has a baseline counts as compared: it did not turn red.
    """
    is_invalid_with_baseline = verdict.kind is Kind.INVALID and verdict.reference is not None
    return verdict.estimate is not None or is_invalid_with_baseline


def _cause_of_no_comparison(run: Run, verdicts: Sequence[Verdict], arguments: Sequence[str]) -> str:
    """Return the cause of an empty comparison, with its remedy.

    It is the first that applies: an INVALID test, a failed test, a missing baseline.
    """
    invalid = next((verdict for verdict in verdicts if verdict.kind is Kind.INVALID), None)
    if invalid is not None:
        return f"{invalid.subject.label} is INVALID: {reason_text(invalid)}"
    failed_test = next((outcome for outcome in run.outcomes if outcome.outcome == "failed"), None)
    if failed_test is not None and not verdicts:
        return f"{failed_test.test_id} failed before its verdict; correct the test, and repeat the drill"
    words = [word for word in arguments if not word.startswith(_NOT_RECORDED)]
    return f"record a baseline first: {shlex.join(['pytest', *words, '--roofline-record'])}"


def _print_drill(
    compared_verdicts: Sequence[Verdict],
    drilled_tests: Sequence[dict[str, Any]],
    slowdown: float,
    red_count: int,
) -> None:
    """Print the outcome of a drill.

    It names the tests that are not red, the measured slowdowns, and slowdowns that do not come from the drill.
    """
    say(
        f"drill of +{format_tolerance(slowdown)}: {red_count} of {len(drilled_tests)} tests turned red"
    )
    for test in drilled_tests:
        if not test["red"]:
            say(printable(f"  not red: {test['not_red']}"))
    slowdowns = sorted(
        growth(verdict.estimate)
        for verdict in compared_verdicts
        if verdict.estimate is not None and verdict.reference is not None
    )
    if slowdowns:
        smallest, largest = slowdowns[0], slowdowns[-1]
        upper_end = f" … {format_percent(largest)}" if len(slowdowns) > 1 else ""
        say(
            f"measured against the baselines: {format_percent(smallest)}{upper_end} time; "
            f"requested: {format_percent(slowdown)}"
        )
    mismatches = [test for test in drilled_tests if test["missed"]]
    for test in mismatches:
        say(printable(f"  not caused by the drill: {test['test']} {test['missed']}"))
    if mismatches:
        say(
            "Tests that are red for another reason prove nothing; restore the state in which the "
            "baseline was recorded, and repeat the drill."
        )


def _test_as_json(verdict: Verdict, slowdown: float, test_count: int) -> dict[str, Any]:
    """Return the outcome of one test as JSON.

    `seen` is its measured slowdown, `not_red` the reason why it is not red, `missed` a slowdown other than the drill's.
    """
    is_red = verdict.kind is Kind.REGRESSED
    return {
        "test": verdict.subject.label,
        "test_id": verdict.subject.test_id,
        "verdict": verdict.kind.value,
        "red": is_red,
        "seen": None if verdict.estimate is None else growth(verdict.estimate),
        "tolerance": verdict.tolerance,
        "not_red": "" if is_red else _not_red_reason(verdict, slowdown),
        # The number of tests widens the interval in which a slowdown counts as the drill's.
        "missed": _mismatch(verdict, slowdown, test_count),
    }


def _mismatch(verdict: Verdict, slowdown: float, test_count: int) -> str:
    """Return a text on a slowdown other than the drill's.

    It is empty if both agree. They agree if the drill's slowdown lies in the test's interval, the tolerance added at
    both ends. The interval is widened for `test_count` tests (Bonferroni), so that chance causes a mismatch in one of a
    hundred drills.
    """
    if verdict.estimate is None or verdict.interval is None or verdict.reference is None:
        return ""
    # The chance that a value lies beyond one end of an interval of one test.
    chance = (1 - CONFIDENCE) / 2
    # How many times as far from the estimate a bound lies that holds for all tests together.
    widening = NormalDist().inv_cdf(chance / test_count) / NormalDist().inv_cdf(chance)
    # The estimate and its interval are logarithms of ratios.
    low, high = (
        verdict.estimate + widening * (bound - verdict.estimate) for bound in verdict.interval
    )
    tolerance = math.log1p(verdict.tolerance)
    if low - tolerance <= math.log1p(slowdown) <= high + tolerance:
        return ""
    bounds = "…".join(format_percent(growth(bound)).removesuffix(" %") for bound in (low, high))
    return f"takes {format_percent(growth(verdict.estimate))} time ({bounds} %)"


def _not_red_reason(verdict: Verdict, slowdown: float) -> str:
    """Return why a test is not red, after its label.

    The drill is within the tolerance, or smaller than the detectable effect (`reach`), or the verdict has its reason.
    """
    if verdict.estimate is None:
        return f"{verdict.subject.label} {verdict.kind}: {reason_text(verdict)}"
    text = (
        f"{verdict.subject.label} {verdict.kind}, "
        f"measured as {format_percent(growth(verdict.estimate))}"
    )
    if slowdown <= verdict.tolerance:
        return f"{text}: within the tolerance of {format_tolerance(verdict.tolerance)}"
    if verdict.reach is not None and verdict.reach > slowdown:
        return (
            f"{text}: this run detects only slowdowns from {format_tolerance(round(verdict.reach, 3))}; "
            "use --roofline-rounds=auto, or record more sessions"
        )
    return ": ".join(filter(None, (text, reason_text(verdict))))
