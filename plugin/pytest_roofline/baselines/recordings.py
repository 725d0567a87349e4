"""Recordings: one run goes into the baselines of its hardware at once, without a proposal that a person approves.

How a session merges with what is there is decided as for a proposal. Two rules stand in place of the person: what is
surely slower stays as it was, and processes within six hours of a session belong to it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.entries import RESOURCES, Baseline, Entry, ExactEntry, Renewal, Session
from ..core.resources import Resources
from ..core.units import format_percent, format_tolerance, listed, moment
from ..core.verdicts import Kind
from ..stats.spread import ONE_DAY, Prior
from .comparators import default_tolerance, priors_of, typical_clock
from .exact import KernelRecord, judge_exact
from .exact_proposals import approve_exact
from .files import baseline_of, key_of_entry
from .fit import MOST_REASONS, Refusal, fit_of
from .renewal import MOST_ANCHORED, Change, merge, renew, since
from .runs import Run, now


@dataclass(frozen=True, slots=True)
class Recording:
    """The result of a recording: files, entries and refusals.

    Args:
        paths: the files that hold it.
        entries: the entries of tests as they stand there now; canaries are of no test.
        exact: the same of compiled kernels.
        slower: what stays as it was, since it is slower or takes more.
        refusals: what is not fit.
    """

    paths: tuple[Path, ...] = ()
    entries: tuple[Entry, ...] = ()
    exact: tuple[ExactEntry, ...] = ()
    slower: tuple[Refusal, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def tests(self) -> frozenset[str]:
        """Return the tests of which every result is recorded."""
        recorded = {entry.test.id for entry in self.entries}
        recorded |= {entry.test.id for entry in self.exact}
        return frozenset(recorded - {refusal.test_id for refusal in (*self.slower, *self.refusals)})


def record(run: Run, fewest: int, folder: Path, *, reason: str = "") -> Recording:
    """Merge a run into the baselines of a folder.

    Each file is under its lock, and written whole or not at all.

    Args:
        run: as `fit_of` takes it.
        fewest: sound processes that an entry needs.
        folder: of the baselines; it is made where it is missing.
        reason: why what is slower, or takes more, is accepted; it is kept in the entry. Empty where it is not.

    Raises:
        CannotStore: a file cannot be written.
        BadFile: a file that is there cannot be read.
    """
    fit = fit_of(run, fewest)
    paths, entries = [], []
    slower: list[Refusal] = []
    for family, proposed in fit.entries.items():
        changes = _merge(Baseline(family, proposed), folder, reason)
        tests = [change for change in changes if not change.entry.is_canary]
        merged = [change.entry for change in tests if not change.refusal]
        paths += [folder / f"{family}.json"] * bool(merged)
        entries += merged
        slower += [
            Refusal(change.entry.test.id, change.refusal) for change in tests if change.refusal
        ]
    exact, worse = _harmless_kernels(fit.exact, run.resources, folder, reason)
    if exact:
        paths.append(approve_exact(exact, folder))
    return Recording(tuple(paths), tuple(entries), tuple(exact), (*slower, *worse), fit.refusals)


def _merge(proposal: Baseline, folder: Path, reason: str) -> list[Change]:
    """Merge entries of one family, and return their changes.

    An entry with a refusal stays as it was.
    """

    def renew_all(before: Baseline) -> list[Change]:
        entries = {entry.identity: entry for entry in before.entries}
        assumed = priors_of(before.entries)
        return [
            _renew(entry, entries.get(entry.identity), assumed, reason)
            for entry in proposal.entries
        ]

    return merge(proposal.family, folder, renew_all)


def _renew(entry: Entry, before: Entry | None, assumed: dict[str, Prior], reason: str) -> Change:
    """Return the change of one entry by a recording."""
    change = renew(entry, before, assumed)
    refusal = change.refusal or (_slower_text(change) if change.is_slower else "")
    if refusal and reason:
        change = renew(entry, before, assumed, accept_slower=True)
        return replace(change, entry=_with_reason(change.entry, reason))
    if refusal:
        return replace(change, refusal=refusal)
    if before is None or change.action != "joined":
        return change
    return replace(change, entry=_join_session(change.entry, before))


def _slower_text(change: Change) -> str:
    assert change.before is not None
    assert change.before_s is not None
    assert change.after_s is not None
    tolerance = change.entry.tolerance or default_tolerance(key_of_entry(change.before))
    more_time = format_percent(change.after_s / change.before_s - 1)
    return (
        f"{change.entry.label} takes {more_time} time since {since(change.before)} "
        f"(tolerance {format_tolerance(tolerance)})"
    )


def _with_reason(entry: Entry, reason: str) -> Entry:
    """Return an entry whose newest renewal has a reason."""
    *earlier, last = entry.renewals or (Renewal(now(), len(entry.sessions), 0.0, 0.0),)
    return replace(entry, renewals=(*earlier, replace(last, reason=reason)))


def _join_session(entry: Entry, before: Entry) -> Entry:
    """Return a joined entry with new processes in an earlier session.

    That session began within six hours before them.
    """
    old = {session.run_id for session in (*before.sessions, *before.anchor)}
    sessions, anchor = (_fuse(group, old) for group in (entry.sessions, entry.anchor))
    return replace(
        entry, sessions=sessions, anchor=() if anchor == sessions[:MOST_ANCHORED] else anchor
    )


def _fuse(sessions: Sequence[Session], old: Collection[str]) -> tuple[Session, ...]:
    joined: list[Session] = []
    for session in sessions:
        near = [place for place, earlier in enumerate(joined) if _is_one_day(earlier, session)]
        if near and session.run_id not in old:
            joined[near[-1]] = _with_processes_of(joined[near[-1]], session)
        else:
            joined.append(session)
    return tuple(joined)


def _is_one_day(earlier: Session, later: Session) -> bool:
    """Return True where two sessions are of one day.

    The second began within six hours of the first, on the same device, timed alike.
    """
    begun, again = (moment(session.started) for session in (earlier, later))
    if begun is None or again is None:
        return False
    alike = (earlier.device_uuid, earlier.achieved) == (later.device_uuid, later.achieved)
    return alike and again - begun < ONE_DAY


def _with_processes_of(session: Session, later: Session) -> Session:
    """Return a session with the processes of a later one.

    Of the environment it keeps what both have alike.
    """
    return replace(
        session,
        process_medians=(*session.process_medians, *later.process_medians),
        environment=dict(session.environment.items() & later.environment.items()),
        clock_hz=typical_clock((session.clock_hz, later.clock_hz)),
    )


def _harmless_kernels(
    entries: Iterable[ExactEntry], resources: Iterable[Resources], folder: Path, reason: str
) -> tuple[list[ExactEntry], list[Refusal]]:
    """Return the harmless compiled kernels, and refusals of the others.

    They ask for no more than the folder's, or a reason accepts them.
    """
    before = {entry.identity: entry for entry in baseline_of(RESOURCES, folder).exact}
    by_kernel = {kernel.key.identity: kernel for kernel in resources}
    harmless: list[ExactEntry] = []
    worse = []
    for entry in entries:
        kernel, old = by_kernel[entry.identity], before.get(entry.identity)
        reference = KernelRecord(old, str(folder)) if old is not None else None
        measured = KernelRecord(entry, "", kernel.slack, kernel.unread)
        verdict = judge_exact(measured, reference, "")
        if verdict.verdict not in (Kind.REGRESSED, Kind.INVALID):
            harmless.append(entry)
        elif reason:
            harmless.append(replace(entry, provenance=entry.provenance | {"accepted": reason}))
        else:
            figures = [f"{step.figure} {step.before} → {step.after}" for step in verdict.changes]
            text = verdict.reason or listed(figures, MOST_REASONS)
            worse.append(Refusal(entry.test.id, f"{entry.label}: {text}"))
    return harmless, worse
