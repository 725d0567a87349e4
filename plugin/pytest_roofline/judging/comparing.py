"""The offline comparison of two files, by the same verdicts as a live run."""

from dataclasses import dataclass
from pathlib import Path

from ..core.entries import Entry
from ..core.errors import BadInput, OtherHardware
from ..core.keys import Key
from ..core.records import Measurement
from ..core.work import Work
from . import stats
from .baselines import nearest
from .comparators import BaselineComparator, Comparator, RunComparator, find_reference, open_comparator
from .runs import Run
from .verdicts import DEFAULT_TOLERANCE, Kind, Policy, Verdict, gating_limits, judge, other_mode


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement on both sides."""

    key: Key
    label: str
    old_s: float | None
    new_s: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows, worst first; what only the old side knows; and the runs that were read."""

    rows: tuple[Row, ...]
    only_old: tuple[str, ...]
    runs: tuple[Run, ...]


def compare(old: Path, new: Path, tolerance: float = DEFAULT_TOLERANCE) -> Comparison:
    """Every measurement of `new` against `old`.

    Args:
        old: a run or a baseline.
        new: a run or a baseline.
        tolerance: of time, where an entry of `old` has none of its own.

    Raises:
        BadFile: a file cannot be used.
        OtherHardware: the two are of different hardware.
        BadInput: they share no measurement.
    """
    before, after = open_comparator([old]), open_comparator([new])
    keys = _keys(after)
    _refuse_other_hardware(before, after)
    shared = [(key, *find_reference(before, key, _work(after, key))) for key in keys]
    count = sum(reference is not None for _, reference, _ in shared)
    if not count:
        raise BadInput(
            f"{old} and {new} share no measurement{_why_not(before, after)}; expected runs of the same tests"
        )
    rows = []
    for key, reference, why_none in shared:
        fresh = after.reference(key)
        assert fresh is not None
        policy = Policy(
            tolerance=_own_tolerance(after, key) or (reference and reference.tolerance) or tolerance,
            comparisons=count,
            prior=stats.prior_for(_device_type(key), key.metric),
        )
        thresholds = _thresholds(before, key, _work(after, key))
        changed = next((why for mode in fresh.achieved if (why := other_mode(mode, reference))), "")
        verdict = judge(fresh.medians_s, reference, policy, invalid=changed, thresholds=thresholds, why_none=why_none)
        rows.append(Row(key, key.label, reference.median_s if reference else None, fresh.median_s, verdict))
    known = {key.identity for key in keys}
    rows += _unfit_rows(before, after, known, tolerance)
    known |= {row.key.identity for row in rows}
    return Comparison(
        rows=tuple(sorted(rows, key=worst_first)),
        only_old=tuple(key.label for key in _keys(before) if key.identity not in known),
        runs=tuple(run for side in (before, after) if isinstance(side, RunComparator) for run in side.runs),
    )


def _why_not(before: Comparator, after: Comparator) -> str:
    """What two sides that cannot be compared share all the same: measurements that are not fit for it."""
    unfit = {m.key.identity: why for side in (before, after) for m, why in _unfit(side)}
    shared = set.intersection(
        *({key.identity for key in _keys(side)} | {m.key.identity for m, _ in _unfit(side)} for side in (before, after))
    )
    if not shared & unfit.keys():
        return ""
    first = unfit[min(shared & unfit.keys())]
    return f" that is fit on both sides: of {len(shared)} that they share, the first is not, since {first}"


def _unfit(side: Comparator) -> list[tuple[Measurement, str]]:
    return side.unfit if isinstance(side, RunComparator) else []


def _thresholds(before: Comparator, key: Key, work: Work) -> list[tuple[Entry, float]]:
    """The published limits in a baseline file that speak of a measurement."""
    if not isinstance(before, BaselineComparator):
        return []
    entries = before.entries.of(key.benchmark, key.name)
    return gating_limits((entry for entry in entries if entry.matches(key)), work)


def _unfit_rows(before: Comparator, after: Comparator, known: set[str], tolerance: float) -> list[Row]:
    """What the new run measured but cannot vouch for: shown as INVALID, never left out in silence."""
    if not isinstance(after, RunComparator):
        return []
    rows = {}
    for measurement, why in after.unfit:
        key = measurement.key
        if key.identity not in known:
            reference, _ = find_reference(before, key, measurement.work)
            verdict = Verdict(Kind.INVALID, tolerance, reason=why, reference=reference)
            old_s = reference.median_s if reference else None
            rows[key.identity] = Row(key, key.label, old_s, measurement.median_s, verdict)
    return list(rows.values())


def _keys(comparator: Comparator) -> list[Key]:
    if isinstance(comparator, RunComparator):
        return comparator.keys()
    assert isinstance(comparator, BaselineComparator)
    return [
        Key(e.benchmark, e.parameters, e.metric, e.hardware, e.cache, e.timing, e.name)
        for e in comparator.entries
        if e.kind == "measured" and e.cache is not None and e.timing is not None
    ]


def _own_tolerance(comparator: Comparator, key: Key) -> float | None:
    return comparator.tolerance(key) if isinstance(comparator, RunComparator) else None


def _work(comparator: Comparator, key: Key) -> Work:
    work = comparator.work(key)
    assert work is not None
    return work


def _device_type(key: Key) -> str:
    """A CPU's partition names its cores; no accelerator's does."""
    return "cpu" if "-cores" in (key.hardware.partition or "") else "device"


def _refuse_other_hardware(before: Comparator, after: Comparator) -> None:
    mine, theirs = after.hardware(), before.hardware()
    if mine and theirs and not any(key in theirs for key in mine):
        known = "; ".join(str(key) for key in nearest(mine[0], theirs))
        raise OtherHardware(
            f"{after.name} was measured on {mine[0]}, but {before.name} knows only {known}; "
            "a comparison across hardware would mean nothing"
        )


def worst_first(row: Row) -> tuple[int, float]:
    """Sort key: regressions first, by how much slower; then what could not be judged; then the rest."""
    rank = {Kind.REGRESSED: 0, Kind.INVALID: 1, Kind.INCONCLUSIVE: 2, Kind.NO_BASELINE: 4}.get(row.verdict.kind, 3)
    return rank, -(row.verdict.estimate or 0.0)
