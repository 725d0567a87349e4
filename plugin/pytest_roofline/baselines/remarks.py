"""Remarks on a verdict: sentences that may explain it, made from its record where they are printed."""

import re
import shlex
from collections.abc import Iterable

from ..core.features import FEATURES
from ..core.units import count, format_percent, format_seconds, format_tolerance, printable
from ..core.verdicts import Difference, Kind, LastPass, OddSession, Spread, Verdict
from ..stats.causes import ClockChange, Modes, clock_change, modes
from ..stats.spread import has_fewer_days
from ..stats.stats import growth
from .reasons import left_out_text

# The remedy for a baseline of one day.
RECORD = "record the baseline on three days"
# Changes between two runs that `roofline bisect` can search; a hash of an archive behind `#` is no part of a version.
_COMMITS = re.compile(r"code ([0-9a-f]{7,40})\b.* → [0-9a-f]{7,40}\b")
_PACKAGE = re.compile(r"package (\S+) ([^\s#,]+)(?: ?#\w+)? → ([^\s#,]+)")


def remarks(verdict: Verdict) -> tuple[str, ...]:
    """Return the possible explanations of a verdict.

    They are the clock, changes since the baseline, modes, another device, and processes left out.
    """
    if verdict.reference is None:
        return ()
    lines = list(verdict.subject.changed)
    shift = format_percent(growth(verdict.reference.shift))
    # A shift that is printed as zero explains nothing.
    if shift.strip("+-0. %"):
        lines.insert(
            0,
            f"all tests of this run changed together; this common part, {shift}, is subtracted from each test",
        )
    clock = clock_change(verdict)
    if clock is not None:
        # The clock explains most, so it comes first.
        lines.insert(0, clock_text(clock, verdict.tolerance))
    lines += odd_lines(verdict.reference.odd)
    if verdict.difference is not None:
        lines += _days_text(verdict, verdict.difference.session)
        lines += _difference_lines(verdict, verdict.difference)
    if verdict.subject.left_out:
        processes = count(len(verdict.subject.left_out), "process", "es")
        lines.append(f"{processes} left out: {left_out_text(verdict)}")
    return tuple(map(printable, lines))


def since_lines(verdict: Verdict) -> list[str]:
    """Return lines that tell since when a test is slower.

    They tell the origin of its baseline, its last pass, and the changes since then: `baseline of
    2026-11-20 (abc1234567, driver 550.54, torch 2.13.0)`, `last PASSED 2026-11-26 in nightly-41`.
    """
    reference, last_pass = verdict.reference, verdict.subject.last_pass
    if reference is None or verdict.kind is not Kind.REGRESSED:
        return []
    origin = [reference.commit] if reference.commit else []
    origin += [f"driver {reference.driver}"] if reference.driver else []
    origin += [f"torch {reference.torch}"] if reference.torch else []
    origin_text = f" ({', '.join(origin)})" if origin else ""
    lines = [f"baseline of {reference.day or 'an unknown day'}{origin_text}"]
    if last_pass is not None:
        lines.append(f"last PASSED {last_pass.day} in {last_pass.run}")
        changes = ", ".join(last_pass.changed) or "no recorded fact changed"
        lines.append(f"since then: {changes}")
        command = _bisect_command(last_pass, verdict.subject.test_id)
        lines += [f"find which: {command}"] if command else []
    return list(map(printable, lines))


def _bisect_command(last_pass: LastPass, test_id: str) -> str:
    """Return the command that finds which change made a test slower.

    It is empty if none can be switched here. Commits come first. Variables and several packages are the differences of
    two runs. If the run at hand has no name, torch stands for several packages, since the others follow its version.
    """
    if "bisect" not in FEATURES:
        return ""
    # `ends` is the range of commits, `versions` the range of each package, as the command takes them.
    ends, versions = "", {}
    has_variable = any(change.startswith("$") for change in last_pass.changed)
    for change in last_pass.changed:
        commits, package = _COMMITS.match(change), _PACKAGE.match(change)
        if commits is not None:
            ends = f"{commits[1]} ."
        elif package is not None:
            name, before, after = package.groups()
            versions[name] = f"with:{name}=={before} with:{name}=={after}"
    if not ends and last_pass.now and (has_variable or len(versions) > 1):
        ends = f"{last_pass.run} {last_pass.now}"
    elif not ends and len(versions) == 1:
        (ends,) = versions.values()
    elif not ends:
        ends = versions.get("torch", "")
    return f"roofline bisect {ends} -- {shlex.quote(test_id)}" if ends else ""


def _difference_lines(verdict: Verdict, difference: Difference) -> list[str]:
    """Return the remarks on two modes, a wider spread and another device.

    A verdict of PASSED needs none.
    """
    if verdict.kind not in (Kind.REGRESSED, Kind.INCONCLUSIVE, Kind.IMPROVED):
        return []
    lines = []
    split = modes(verdict.baseline_medians_s, verdict.new_medians_s, verdict.tolerance)
    if split is not None:
        lines.append(modes_text(split))
    if difference.unequal:
        new_spread = difference.process.value
        lines.append(
            f"the new processes differ more from each other than the baseline's processes (spread {new_spread:.1%})"
        )
    device = difference.device
    if device is not None:
        between = f"spread between devices {device.value:.1%} ({device.origin})"
        lines.append(f"the baseline does not hold this device: {between}")
    return lines


def odd_lines(odd: Iterable[OddSession]) -> list[str]:
    """Return a line on each odd session that was left out.

    It reads `session of 3 Nov: 110 of 221 tests are 20 % slower; left out`.
    """
    return [printable(f"{session.text}; left out") for session in odd]


def _days_text(verdict: Verdict, session: Spread) -> list[str]:
    """Return the remark that the spread between sessions is assumed.

    Only a test that is or looks slower needs it, against a baseline of too few days.
    """
    may_be_slow = verdict.kind is Kind.INCONCLUSIVE and verdict.looks_slow
    is_assumed = session.origin.startswith("prior") and has_fewer_days(verdict.sessions)
    if not is_assumed or not (verdict.kind is Kind.REGRESSED or may_be_slow):
        return []
    share = format_tolerance(round(session.value, 4))
    when = (
        "within six hours"
        if session.origin.endswith("within six hours")
        else "with several sessions on one day"
    )
    return [
        f"the baseline was recorded {when}, so the spread between sessions is assumed ({share}); {RECORD}"
    ]


def clock_text(clock: ClockChange, tolerance: float) -> str:
    """Return `the clock explains the change: 1980 → 1500 MHz (-24.2 %), in cycles +0.4 %`."""
    word = (
        "the clock explains the change"
        if clock.explains(tolerance)
        else "the clock explains only a part of the change"
    )
    word += " and more" if clock.overshoots(tolerance) else ""
    change = format_percent(clock.after_hz / clock.before_hz - 1)
    return (
        f"{word}: {clock.before_hz / 1e6:.0f} → {clock.after_hz / 1e6:.0f} MHz ({change}), "
        f"in cycles {format_percent(growth(clock.in_cycles))}"
    )


def modes_text(split: Modes) -> str:
    """Return the sentence on two modes of processes.

    It reads `3 of 15 baseline processes and 5 of 6 new ones are in the slow mode, at 25.5 ms; the
    others take 22.5 ms`.
    """
    return (
        f"{split.slow_before} of {split.before} baseline processes and {split.slow_now} of {split.now} new ones are "
        f"in the slow mode, at {format_seconds(split.slow_s)}; the others take {format_seconds(split.fast_s)}"
    )
