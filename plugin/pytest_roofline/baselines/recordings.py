"""Recordings of one run in the baselines of its hardware.

They go in at once, without a proposal that a person approves. A session merges with the entries of a file as in an
approval. Two rules replace the person: an entry stays as it was where the run is surely slower, and processes that
began within six hours of a session belong to it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.entries import RESOURCES, Baseline, Entry, ExactEntry, Renewal, Session
from ..core.resources import Resources
from ..core.units import format_percent, format_tolerance, listed, moment
from ..core.verdicts import Kind
from ..stats.spread import ONE_DAY, Prior
from .exact import KernelRecord, judge_exact
from .exact_proposals import approve_exact
from .files import baseline_of, key_of_entry
from .fit import MOST_REASONS, Refusal, fit_of
from .references import default_tolerance, priors_of, typical_clock
from .renewal import MOST_ANCHORED, Change, merge, renew, since
from .runs import Run, now


@dataclass(frozen=True, slots=True)
class Recording:
    """The result of a recording: files, entries and refusals.

    Args:
        paths: the files that hold it.
        entries: the entries of tests that were merged, without canaries.
        exact: the entries of compiled kernels that were merged.
        slower: refusals of entries that stay as they were, since the run is slower or takes more memory.
        refusals: those of measurements and kernels that are not fit for a baseline.
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

    Each file is locked, and written whole or not at all.

    Args:
        run: with all its processes.
        fewest: how many sound processes an entry needs.
        folder: of the baselines; it is made where it is missing.
        reason: why slower results, or those that take more memory, are accepted; the entry keeps it. Empty where they
            are not accepted.

    Raises:
        CannotStore: a file cannot be written.
        BadFile: a file that is there cannot be read.
    """
    entries_by_family, fit_kernels, refusals = fit_of(run, fewest)
    paths, entries = [], []
    slower: list[Refusal] = []
    for family, fit_entries in entries_by_family.items():
        changes = _merge(Baseline(family, fit_entries), folder, reason)
        # Canaries are merged like tests, but a recording tells only of tests.
        tests = [change for change in changes if not change.entry.is_canary]
        merged = [change.entry for change in tests if not change.refusal]
        if merged:
            paths.append(folder / f"{family}.json")
        entries += merged
        slower += [
            Refusal(change.entry.test.id, change.refusal) for change in tests if change.refusal
        ]
    exact, worse = _harmless_kernels(fit_kernels, run.resources, folder, reason)
    if exact:
        paths.append(approve_exact(exact, folder))
    return Recording(
        paths=tuple(paths),
        entries=tuple(entries),
        exact=tuple(exact),
        slower=(*slower, *worse),
        refusals=refusals,
    )


def _merge(proposal: Baseline, folder: Path, reason: str) -> list[Change]:
    """Merge entries of one family, and return their changes.

    An entry with a refusal stays as it was.
    """

    def renew_all(before: Baseline) -> list[Change]:
        """Return the change of each entry, by the content of the file under its lock."""
        entries = {entry.identity: entry for entry in before.entries}
        priors = priors_of(before.entries)
        return [
            _renew(entry, entries.get(entry.identity), priors, reason) for entry in proposal.entries
        ]

    return merge(proposal.family, folder, renew_all)


def _renew(entry: Entry, before: Entry | None, priors: dict[str, Prior], reason: str) -> Change:
    """Return the change of one entry by a recording.

    Args:
        priors: by class of benchmark.
        reason: why a slower entry is accepted; empty where it is refused.
    """
    change = renew(entry, before, priors)
    # A recording has no person who approves it, so slower sessions never replace an entry without a reason.
    refusal = change.refusal or (_slower_text(change) if change.is_slower else "")
    if refusal and reason:
        change = renew(entry, before, priors, accept_slower=True)
        return replace(change, entry=_with_reason(change.entry, reason))
    if refusal:
        return replace(change, refusal=refusal)
    # Only sessions that join earlier ones can be of their day.
    if before is None or change.action != "joined":
        return change
    return replace(change, entry=_join_session(change.entry, before))


def _slower_text(change: Change) -> str:
    """Return the refusal of a change that makes an entry slower."""
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
    # An entry that was replaced has no renewal left, so one is made that holds the reason.
    *earlier, last = entry.renewals or (Renewal(now(), len(entry.sessions), 0.0, 0.0),)
    return replace(entry, renewals=(*earlier, replace(last, reason=reason)))


def _join_session(entry: Entry, before: Entry) -> Entry:
    """Return an entry whose new sessions are joined to earlier ones of their day.

    `before` is the entry without the new sessions.
    """
    old_run_ids = {session.run_id for session in (*before.sessions, *before.anchor)}
    sessions, anchor = (
        _join_days(sessions, old_run_ids) for sessions in (entry.sessions, entry.anchor)
    )
    # An anchor of the oldest sessions is not stored, since it follows from them.
    is_oldest = anchor == sessions[:MOST_ANCHORED]
    return replace(entry, sessions=sessions, anchor=() if is_oldest else anchor)


def _join_days(sessions: Sequence[Session], old_run_ids: Collection[str]) -> tuple[Session, ...]:
    """Return sessions, with new ones joined to earlier ones of their day.

    Old sessions are never joined with each other.
    """
    joined: list[Session] = []
    for session in sessions:
        places = [place for place, earlier in enumerate(joined) if _is_one_day(earlier, session)]
        if places and session.run_id not in old_run_ids:
            last = places[-1]
            joined[last] = _with_processes_of(joined[last], session)
        else:
            joined.append(session)
    return tuple(joined)


def _is_one_day(earlier: Session, later: Session) -> bool:
    """Return True where two sessions are of one day.

    The second began within six hours of the first, on the same device, and was timed in the same
    mode.
    """
    begun, again = (moment(session.started) for session in (earlier, later))
    if begun is None or again is None:
        return False
    alike = (earlier.device_uuid, earlier.achieved) == (later.device_uuid, later.achieved)
    return alike and again - begun < ONE_DAY


def _with_processes_of(session: Session, later: Session) -> Session:
    """Return a session with the processes of a later one.

    It keeps the facts of the environment that are the same in both.
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

    A kernel is harmless if it is not worse than its entry in the folder, or if a reason accepts it.
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
