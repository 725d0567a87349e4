"""Renewal of baselines.

The module has the changes that a proposal makes in the file of its hardware, and merges them.

A renewal must not ratchet. A baseline renewed as min(old, new), or replaced only when the new sessions look faster,
drifts to the luckiest session there ever was: about 1.5 standard deviations below the truth after ten renewals of
unchanged code, and then sound runs turn red. So new sessions replace the old only where they surely differ by more than
the tolerance, either way; everywhere else they join them. Then every session counts alike, lucky or not, the mean stays
where it is, and each renewal makes it more precise.

Sessions that join may still creep: code that becomes 1 % slower a week is never far from a baseline that it joins. So
an entry keeps its oldest sessions as an anchor, even when they are no longer among its newest, and each renewal is
compared with them too. An entry gets a new anchor only when a person accepts slower code, or when the code is faster.
"""

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from ..core.entries import Baseline, Entry, ExactEntry, Renewal, Session
from ..core.errors import BadInput
from ..core.units import count, format_memory, format_percent, format_tolerance, listed, moment
from ..core.verdicts import Difference, Group, Kind
from ..core.writing import lock_file
from ..stats.key_results import judge_peak, moved_text
from ..stats.outlook import WORTH_REPORTING, Policy
from ..stats.spread import Prior
from ..stats.stats import CONFIDENCE, bound_of, difference, growth, p_slower_than
from ..stats.verdicts import judge, other_mode
from .exact_proposals import ExactChange, exact_changes
from .files import baseline_of, key_of_entry, write_baseline
from .plausible import refuse_absurd
from .references import class_of_key, default_tolerance, priors_of, reference_of
from .runs import now

Labelled = TypeVar("Labelled", Entry, ExactEntry)
Action = Literal["new", "replaced", "joined", "unchanged"]
# A month of nightlies. Older sessions are of drivers that are gone, and thirty are enough to estimate the spread.
MOST_SESSIONS = 30
# Enough to show how sessions differ, and few, since they are kept for years.
MOST_ANCHORED = 3
# Somewhat more than a year of weekly renewals.
MOST_RENEWALS = 60
# The chance that code is called slower than its anchor though its slowdown is not worth reporting.
FALSE_CREEP = 0.005
# The start of `Change.why` where the new sessions are surely slower.
_SLOWER = "slower "
_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one entry by an approval.

    Args:
        action: whether the proposal's sessions replace the old ones or join them.
        entry: the entry after the change.
        why: the reason, for a person: `IMPROVED -7.1 %`, `its work changed`, `peak 1.00 GiB → 1.10 GiB`.
        refusal: why the change is not allowed: it is slower than the entry's anchor, or takes more memory. Empty where
            it is allowed.
    """

    entry: Entry
    before: Entry | None
    action: Action
    why: str = ""
    refusal: str = ""

    @property
    def before_s(self) -> float | None:
        """Return the geometric mean of the medians before, or None."""
        return None if self.before is None else _centre(self.before)

    @property
    def is_slower(self) -> bool:
        """Return True where the new sessions are surely slower.

        They are slower than the entry by more than its tolerance.
        """
        return self.action == "replaced" and self.why.startswith(_SLOWER)

    @property
    def after_s(self) -> float | None:
        """Return the geometric mean of the medians afterwards."""
        return _centre(self.entry)


def _centre(entry: Entry) -> float | None:
    """Return the geometric mean of the medians in seconds; None without sessions."""
    return reference_of(entry, "").median_s if entry.sessions else None


def changes(
    proposal: Baseline,
    folder: Path,
    *,
    only: Sequence[str] = (),
    replaces: bool = False,
    accept_slower: bool = False,
) -> list[Change]:
    """Return the changes that approving `proposal` into `folder` makes.

    Those of compiled kernels are left out: see `kernel_changes`.

    Args:
        only: substrings of the labels of entries to approve; empty for all.
        replaces: whether new sessions always replace the old.
        accept_slower: whether changes are allowed that would be refused.

    Raises:
        BadInput: a change is refused, or the proposal is absurd.
    """
    refuse_absurd(proposal)
    entries = {entry.identity: entry for entry in baseline_of(proposal.family, folder).entries}
    priors = priors_of(entries.values())
    entry_changes = [
        renew(
            entry,
            entries.get(entry.identity),
            priors,
            replaces=replaces,
            accept_slower=accept_slower,
        )
        for entry in select(
            proposal.entries, only, other_labels=[entry.label for entry in proposal.exact]
        )
    ]
    refusals = [change.refusal for change in entry_changes if change.refusal]
    if refusals:
        raise BadInput(
            f"{listed(refusals, 5, '; ')}; expected at most the tolerance, over all renewals together; find the "
            "cause, or approve only other entries with --only, or accept the change with --accept-slower"
        )
    return entry_changes


def kernel_changes(
    proposal: Baseline, folder: Path, *, only: Sequence[str] = ()
) -> list[ExactChange]:
    """Return the changes that approving makes to entries of compiled kernels.

    They are in a separate file.
    """
    # A substring of `only` may be meant for the entries of times, so the labels of these are no mistake.
    return exact_changes(
        select(proposal.exact, only, other_labels=[entry.label for entry in proposal.entries]),
        folder,
    )


def approve(
    proposal: Baseline,
    folder: Path,
    *,
    only: Sequence[str] = (),
    replaces: bool = False,
    accept_slower: bool = False,
) -> Path:
    """Merge a proposal into the family's file, all of it or nothing.

    Other entries of the file stay as they are. Return the path of the file.
    """

    def all_changes(_: Baseline) -> list[Change]:
        # `changes` reads the file again, which stays the same under the lock of `merge`.
        return changes(proposal, folder, only=only, replaces=replaces, accept_slower=accept_slower)

    merge(proposal.family, folder, all_changes)
    return folder / f"{proposal.family}.json"


def merge(
    family: str, folder: Path, changes_of: Callable[[Baseline], list[Change]]
) -> list[Change]:
    """Write the changes of a family's file that are not refused.

    `changes_of` gets the file's content under its lock. Return all changes.
    """
    path = folder / f"{family}.json"
    with lock_file(path):
        before = baseline_of(family, folder)
        merged = changes_of(before)
        entries = {entry.identity: entry for entry in before.entries}
        entries |= {change.entry.identity: change.entry for change in merged if not change.refusal}
        if tuple(entries.values()) != before.entries:
            write_baseline(path, replace(before, entries=tuple(entries.values())))
    return merged


def select(
    entries: Sequence[Labelled], substrings: Sequence[str], other_labels: Sequence[str] = ()
) -> list[Labelled]:
    """Return the entries whose label contains one of `substrings`.

    Without substrings all entries are returned.

    Args:
        other_labels: labels that a substring may match, too, before it is called wrong.

    Raises:
        BadInput: a substring matches no label.
    """
    labels = list(dict.fromkeys([*(entry.label for entry in entries), *other_labels]))
    for substring in substrings:
        if not any(substring in label for label in labels):
            raise BadInput(
                f"no entry has {substring!r} in its label; the labels are {listed(labels, 5) or 'none'}"
            )
    return [
        entry
        for entry in entries
        if not substrings or any(substring in entry.label for substring in substrings)
    ]


def renew(
    proposed: Entry,
    before: Entry | None,
    priors: dict[str, Prior],
    *,
    replaces: bool = False,
    accept_slower: bool = False,
) -> Change:
    """Return the change of an entry by a proposed one.

    Its sessions replace the old ones or join them.

    Args:
        before: the entry in the file; None where it is new.
        priors: the assumed spreads, by class of benchmark.
        replaces: whether new sessions always replace the old (`--replace`).
        accept_slower: whether a change is allowed that would be refused.
    """
    renewed = replace(proposed, sessions=newest(proposed.sessions))
    if before is None:
        return Change(renewed, None, "new")
    joined = replace(renewed, sessions=newest([*before.sessions, *renewed.sessions]))
    why_different = _difference_reason(joined, before, proposed.sessions)
    peak_bytes, peak_why, memory_refusal = (
        (proposed.peak_bytes, "", "") if why_different else _renew_peak(proposed, before, replaces)
    )
    refusal = "" if accept_slower else memory_refusal
    # With the new sessions, with the new and the old, and with the old ones; other facts are taken over in each.
    renewed, joined, unchanged = (
        _with_facts(entry, proposed, before, peak_bytes) for entry in (renewed, joined, before)
    )
    # All proposed sessions are in the entry already.
    if renewed == unchanged or (not replaces and _is_recorded(joined, before)):
        return _keep_sessions(unchanged, before, peak_why, refusal)
    if why_different:
        why = "--replace" if replaces else why_different
        return Change(replace(renewed, anchor=(), renewals=()), before, "replaced", why)
    prior = priors[class_of_key(key_of_entry(before))]
    change = _renew_sessions(
        renewed, joined, before, prior, replaces=replaces, accept_slower=accept_slower
    )
    return replace(
        change,
        why="; ".join(filter(None, (change.why, peak_why))),
        refusal=change.refusal or refusal,
    )


def _with_facts(entry: Entry, proposed: Entry, before: Entry, peak_bytes: int | None) -> Entry:
    """Return an entry with all that a renewal takes over beside sessions."""
    return replace(
        entry,
        tolerance=proposed.tolerance or before.tolerance,
        reason=proposed.reason or before.reason,
        peak_bytes=peak_bytes,
        called=proposed.called,
        # What a program imported names no test that a run could select.
        test=proposed.test if proposed.test.tier else before.test,
        anchor=before.anchor,
        renewals=before.renewals,
    )


def _is_recorded(joined: Entry, before: Entry) -> bool:
    """Return whether the entry holds all of the proposed sessions already."""
    return (
        before.kind == "measured"
        and joined.work == before.work
        and joined.sessions == newest(before.sessions)
    )


def _keep_sessions(unchanged: Entry, before: Entry, peak_why: str, refusal: str) -> Change:
    """Return the change of an entry that keeps its sessions, if anything else changes."""
    # Another name, or another test that recorded it, is no change to approve.
    if unchanged == replace(before, called=unchanged.called, test=unchanged.test):
        return Change(unchanged, before, "unchanged")
    return Change(unchanged, before, "replaced", why=peak_why or "tolerance", refusal=refusal)


def _renew_sessions(
    renewed: Entry,
    joined: Entry,
    before: Entry,
    prior: Prior,
    replaces: bool,
    accept_slower: bool,
) -> Change:
    """Return the change of an entry by sessions that can be compared with it.

    Args:
        renewed: the entry if the new sessions replace the old.
        joined: the entry if they join them.
        before: the entry as it is.
        prior: of its class.
        replaces: whether new sessions always replace the old.
        accept_slower: whether a change is allowed that would be refused.
    """
    merged = renewed if replaces else joined
    # The sessions that are compared with the entry. With --replace all of them may be in it already.
    new_sessions = [
        session for session in merged.sessions if session not in before.sessions
    ] or list(merged.sessions)
    tolerance = merged.tolerance or default_tolerance(key_of_entry(before))
    why = "--replace" if replaces else _replacement_reason(new_sessions, before, tolerance, prior)
    entry, refusal = _with_anchor(
        renewed if why else joined,
        before,
        new_sessions,
        prior,
        is_replaced=bool(why),
        accept_slower=accept_slower,
    )
    return Change(entry, before, "replaced" if why else "joined", why=why, refusal=refusal)


def _renew_peak(proposed: Entry, before: Entry, replaces: bool) -> tuple[int | None, str, str]:
    """Return the peak after a renewal, its change as text, and a refusal.

    The old peak stays as long as the new one is within its tolerance, so that small steps cannot add up.
    """
    old, new = before.peak_bytes, proposed.peak_bytes
    # A run that took no peak keeps the old one, unless it replaces everything.
    if old == new or (new is None and not replaces):
        return old, "", ""
    before_text, after_text = (
        "none" if size is None else format_memory(size) for size in (old, new)
    )
    text = f"peak {before_text} → {after_text}"
    if old is None or new is None:
        return new, text, ""
    verdict = judge_peak(new, reference_of(before, ""), key_of_entry(before))
    if verdict is None or verdict.verdict == Kind.PASSED:
        return old, "", ""
    return new, text, f"{before.label} takes {moved_text(old, new)}" if new > old else ""


def newest(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """Return at most thirty sessions, oldest first.

    Of several sessions of one run the last in the list counts. A session without a date is older
    than all others.
    """
    session_by_run = {session.run_id: session for session in sessions}
    return _by_date(list(session_by_run.values()))[-MOST_SESSIONS:]


def _by_date(sessions: Sequence[Session]) -> tuple[Session, ...]:
    return tuple(sorted(sessions, key=lambda session: moment(session.started) or _LONG_AGO))


def _difference_reason(joined: Entry, before: Entry, proposed: Sequence[Session]) -> str:
    """Return why old and new sessions cannot be compared.

    It is empty where they can.
    """
    if joined.kind != "measured":
        return "published figure"
    if joined.work != before.work:
        return "its work changed"
    reference = reference_of(before, "")
    differs = any(other_mode(session.achieved, reference) for session in proposed)
    return "timed in another mode" if differs else ""


def _replacement_reason(
    new_sessions: Sequence[Session], before: Entry, tolerance: float, prior: Prior
) -> str:
    """Return why the new sessions replace the old ones.

    It is empty where the new ones may join them.
    """
    verdict = judge(
        _comparable_groups(new_sessions, before),
        reference_of(before, ""),
        Policy(tolerance, prior=prior),
    )
    comparison = verdict.difference
    assert comparison is not None
    change = growth(comparison.estimate)
    if verdict.kind is Kind.IMPROVED:
        return f"IMPROVED {format_percent(change)}"
    # The mirror image of IMPROVED, so that by chance a baseline becomes looser as often as stricter.
    is_surely_slower = comparison.estimate - bound_of(comparison, CONFIDENCE) > math.log1p(
        tolerance
    )
    return f"{_SLOWER}{format_percent(change)}" if is_surely_slower else ""


def _with_anchor(
    after: Entry,
    before: Entry,
    new_sessions: Sequence[Session],
    prior: Prior,
    is_replaced: bool,
    accept_slower: bool,
) -> tuple[Entry, str]:
    """Return a renewed entry with its anchor, and a refusal.

    The refusal is empty where the entry is accepted. Faster sessions that replace the old begin a new
    anchor; so do slower ones that are accepted.

    Args:
        after: the renewed entry; `before` is the entry before the renewal.
        prior: the assumed spreads of its class.
        is_replaced: whether the new sessions replace the old ones.
        accept_slower: whether a slower entry is not refused.
    """
    anchor = anchor_of(before)
    # The difference of the new sessions from the anchor, over all renewals together.
    drift = _compare(new_sessions, replace(before, sessions=anchor, anchor=()), prior)
    # Faster code needs no old anchor: its own sessions are what later renewals are held against.
    if is_replaced and drift.estimate <= 0:
        return replace(after, anchor=(), renewals=()), ""
    tolerance = after.tolerance or default_tolerance(key_of_entry(before))
    least = math.log1p(WORTH_REPORTING * tolerance)
    is_slower = (
        drift.estimate > math.log1p(tolerance) and p_slower_than(drift, least) <= FALSE_CREEP
    )
    # The anchor of a young entry grows, as a single session is not precise enough.
    anchor_sessions = [*(() if is_slower else anchor), *_by_date(new_sessions)]
    session_by_run = {session.run_id: session for session in anchor_sessions}
    new_anchor = tuple(session_by_run.values())[:MOST_ANCHORED]
    # The change by this renewal, and by all renewals together.
    change_share = growth(_compare(new_sessions, before, prior).estimate)
    drift_share = growth(drift.estimate)
    renewals = (
        *before.renewals,
        # `is_slower` is stored as accepted: a change that is refused is not written.
        Renewal(now(), len(new_sessions), change_share, drift_share, is_slower),
    )
    # An anchor of the oldest sessions is not stored: `anchor_of` takes these.
    is_oldest = new_anchor == _by_date(after.sessions)[:MOST_ANCHORED]
    entry = replace(
        after, anchor=() if is_oldest else new_anchor, renewals=renewals[-MOST_RENEWALS:]
    )
    if not is_slower or accept_slower:
        return entry, ""
    # This renewal counts, too, although it would be stored as accepted.
    renewal_count = len(since_accepted(before.renewals)) + 1
    return entry, (
        f"{after.label} takes {format_percent(drift_share)} time since {since(before)}, over "
        f"{count(renewal_count, 'renewal')} (tolerance {format_tolerance(tolerance)})"
    )


def anchor_of(entry: Entry) -> tuple[Session, ...]:
    """Return the sessions that an entry's renewals are compared with.

    They are its oldest sessions where it stores no anchor.
    """
    return entry.anchor or _by_date(entry.sessions)[:MOST_ANCHORED]


def since(entry: Entry) -> str:
    """Return the date of an entry's anchor."""
    started = anchor_of(entry)[0].started
    return started[:10] if moment(started) else "its first session"


def since_accepted(renewals: Sequence[Renewal]) -> Sequence[Renewal]:
    """Return the renewals since slower code was last accepted."""
    accepted_numbers = (
        number for number, renewal in enumerate(renewals, 1) if renewal.accepted_slower
    )
    # Numbers begin with 1, so the slice begins behind the last of them, or with the first renewal if there is none.
    last = max(accepted_numbers, default=0)
    return renewals[last:]


def _comparable_groups(new_sessions: Sequence[Session], before: Entry) -> tuple[Group, ...]:
    """Return the new sessions on devices that the entry has.

    If the entry has none of these devices, all new sessions are returned.
    """
    devices = {session.device_uuid for session in before.sessions}
    on_devices = [session for session in new_sessions if session.device_uuid in devices]
    comparable = on_devices or new_sessions
    return reference_of(replace(before, sessions=tuple(comparable)), "").groups


def _compare(new_sessions: Sequence[Session], before: Entry, prior: Prior) -> Difference:
    """Return the difference between new sessions and an entry."""
    return difference(
        _comparable_groups(new_sessions, before), reference_of(before, "").groups, prior
    )
