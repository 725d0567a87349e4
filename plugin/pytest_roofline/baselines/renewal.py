"""Renewing baselines: what a proposal changes in the file of its hardware, entry by entry, and merging it.

A renewal must not ratchet. A baseline renewed as min(old, new), or taken anew only when the new sessions look faster,
drifts to the luckiest session there ever was: about 1.5 standard deviations below the truth after ten renewals of
unchanged code, and then honest runs turn red. So new sessions replace the old only where they surely differ by more
than the tolerance, either way; everywhere else they join them. Every session then counts alike, lucky or not, the mean
stays where it is, and each renewal makes it better known.

What joins may still creep: code that becomes 1 % slower a week is never far from a baseline that it joins. So an entry
keeps its oldest sessions as an anchor, also when they are no longer among its newest, and each renewal is held against
them too. Only a person who accepts slower code, or code that is faster, lets an entry begin anew.
"""

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..core.entries import Baseline, Entry, ExactEntry, Renewal, Session
from ..core.errors import BadInput
from ..core.units import format_memory, format_percent, format_tolerance, listed, moment
from ..core.verdicts import Difference, Group, Kind
from ..core.writing import alone
from ..stats.key_results import judge_peak, moved_text
from ..stats.outlook import WORTH_REPORTING, Policy
from ..stats.spread import Prior
from ..stats.stats import CONFIDENCE, bound_of, difference, growth, p_slower_than
from ..stats.verdicts import judge, other_mode
from .comparators import class_of_key, default_tolerance, priors_of, reference_of
from .exact_proposals import ExactChange, exact_changes
from .files import baseline_of, key_of_entry, write_baseline
from .plausible import refuse_absurd
from .runs import now

Labelled = TypeVar("Labelled", Entry, ExactEntry)
Action = Literal["new", "replaced", "joined", "unchanged"]
# A month of nightlies: older sessions tell of drivers that are gone, and thirty know the spread well enough.
MOST_SESSIONS = 30
# Enough to know how sessions differ, and few, since they are kept for years.
MOST_ANCHORED = 3
# A year of weekly renewals, and some.
MOST_RENEWALS = 60
# The chance that code which became slower by no more than what is worth reporting is called slower than its anchor.
FALSE_CREEP = 0.005
# How `Change.why` begins where the new sessions are surely slower.
_SLOWER = "slower "
_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """What an approval does to one entry.

    Args:
        action: whether the proposal's sessions replace the old ones or join them.
        why: what decided, for a person: `IMPROVED -7.1 %`, `its work changed`, `peak 1.00 GiB → 1.10 GiB`.
        refusal: why it may not be: it is too slow for the entry's anchor, or takes more memory; empty where it may.
    """

    entry: Entry
    before: Entry | None
    action: Action
    why: str = ""
    refusal: str = ""

    @property
    def before_s(self) -> float | None:
        """The geometric mean of the processes' medians before; None where there are none."""
        return None if self.before is None else _centre(self.before)

    @property
    def is_slower(self) -> bool:
        """Return whether the new sessions are surely slower than the entry by more than its tolerance."""
        return self.action == "replaced" and self.why.startswith(_SLOWER)

    @property
    def after_s(self) -> float | None:
        """The same afterwards."""
        return _centre(self.entry)


def _centre(entry: Entry) -> float | None:
    return reference_of(entry, "").median_s if entry.sessions else None


def changes(
    proposal: Baseline,
    folder: Path,
    *,
    only: Sequence[str] = (),
    replaces: bool = False,
    accept_slower: bool = False,
) -> list[Change]:
    """What approving `proposal` into `folder` would do to each of its entries that are not exact."""
    refuse_absurd(proposal)
    known = {entry.identity: entry for entry in baseline_of(proposal.family, folder).entries}
    assumed = priors_of(known.values())
    found = [
        renew(
            entry,
            known.get(entry.identity),
            assumed,
            replaces=replaces,
            accept_slower=accept_slower,
        )
        for entry in select(proposal.entries, only, [entry.label for entry in proposal.exact])
    ]
    refusals = [change.refusal for change in found if change.refusal]
    if refusals:
        raise BadInput(
            f"{listed(refusals, 5, '; ')}; expected no more than the tolerance, however many renewals it took; find "
            "out what made it slower, approve other entries with --only, or accept it with --accept-slower"
        )
    return found


def kernel_changes(
    proposal: Baseline, folder: Path, *, only: Sequence[str] = ()
) -> list[ExactChange]:
    """The same for its exact entries, which go into a file of their own."""
    return exact_changes(
        select(proposal.exact, only, [entry.label for entry in proposal.entries]), folder
    )


def approve(
    proposal: Baseline,
    folder: Path,
    *,
    only: Sequence[str] = (),
    replaces: bool = False,
    accept_slower: bool = False,
) -> Path:
    """Merge a proposal into the family's file in `folder`, whole or not at all; other entries stay as they are."""

    def all_changes(_: Baseline) -> list[Change]:
        return changes(proposal, folder, only=only, replaces=replaces, accept_slower=accept_slower)

    merge(proposal.family, folder, all_changes)
    return folder / f"{proposal.family}.json"


def merge(
    family: str, folder: Path, changes_of: Callable[[Baseline], list[Change]]
) -> list[Change]:
    """Write those changes of a family's file that are not refused, and return all."""
    path = folder / f"{family}.json"
    with alone(path):
        before = baseline_of(family, folder)
        merged = changes_of(before)
        entries = {entry.identity: entry for entry in before.entries}
        entries |= {change.entry.identity: change.entry for change in merged if not change.refusal}
        if tuple(entries.values()) != before.entries:
            write_baseline(path, replace(before, entries=tuple(entries.values())))
    return merged


def select(
    entries: Sequence[Labelled], parts: Sequence[str], beside: Sequence[str] = ()
) -> list[Labelled]:
    """The entries whose label has one of `parts` in it; all of them where there are none."""
    labels = list(dict.fromkeys([*(entry.label for entry in entries), *beside]))
    for part in parts:
        if not any(part in label for label in labels):
            raise BadInput(
                f"no entry has {part!r} in its label; there are {listed(labels, 5) or 'none'}"
            )
    return [entry for entry in entries if not parts or any(part in entry.label for part in parts)]


def renew(
    proposed: Entry,
    before: Entry | None,
    assumed: dict[str, Prior],
    *,
    replaces: bool = False,
    accept_slower: bool = False,
) -> Change:
    """One entry of a proposal merged with the one that is there."""
    anew = replace(proposed, sessions=newest(proposed.sessions))
    if before is None:
        return Change(anew, None, "new")
    joined = replace(anew, sessions=newest([*before.sessions, *anew.sessions]))
    other = _why_other(joined, before, proposed.sessions)
    size_bytes, peak_why, more_memory = (
        (proposed.peak_bytes, "", "") if other else _renewed_peak(proposed, before, replaces)
    )
    test = proposed if proposed.tier else before
    decided: dict[str, Any] = {
        "tolerance": proposed.tolerance or before.tolerance,
        "reason": proposed.reason or before.reason,
        "peak_bytes": size_bytes,
        "called": proposed.called,
        "test_id": test.test_id,
        "tier": test.tier,
        "marks": test.marks,
    }
    anew, joined = (
        replace(entry, **decided, anchor=before.anchor, renewals=before.renewals)
        for entry in (anew, joined)
    )
    kept = replace(before, **decided)
    refusal = "" if accept_slower else more_memory
    known = (
        before.kind == "measured"
        and joined.work == before.work
        and joined.sessions == newest(before.sessions)
    )
    if anew == kept or (known and not replaces):
        why = peak_why or "tolerance"
        same = kept == replace(
            before, called=kept.called, test_id=kept.test_id, tier=kept.tier, marks=kept.marks
        )
        return (
            Change(kept, before, "unchanged")
            if same
            else Change(kept, before, "replaced", why, refusal)
        )
    if other:
        return Change(
            replace(anew, anchor=(), renewals=()),
            before,
            "replaced",
            "--replace" if replaces else other,
        )
    key = key_of_entry(before)
    prior = assumed[class_of_key(key)]
    merged = anew if replaces else joined
    fresh = [session for session in merged.sessions if session not in before.sessions] or list(
        merged.sessions
    )
    why = (
        "--replace"
        if replaces
        else _why_anew(fresh, before, merged.tolerance or default_tolerance(key), prior)
    )
    after, crept = _anchored(
        anew if why else joined, before, fresh, prior, bool(why), accept_slower
    )
    told = "; ".join(filter(None, (why, peak_why)))
    return Change(after, before, "replaced" if why else "joined", told, crept or refusal)


def _renewed_peak(proposed: Entry, before: Entry, replaces: bool) -> tuple[int | None, str, str]:
    """The peak after a renewal, what became of it, and why that may not be.

    It stays the old one as long as the new one is within its tolerance, so that small steps do not add up.
    """
    old, new = before.peak_bytes, proposed.peak_bytes
    if old == new or (new is None and not replaces):
        return old, "", ""
    before_text, after_text = (
        "none" if size is None else format_memory(size) for size in (old, new)
    )
    told = f"peak {before_text} → {after_text}"
    if old is None or new is None:
        return new, told, ""
    found = judge_peak(new, reference_of(before, ""), key_of_entry(before))
    if found is None or found.verdict == Kind.PASSED:
        return old, "", ""
    return new, told, f"{before.label} takes {moved_text(old, new)}" if new > old else ""


def newest(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """At most thirty sessions, oldest first; of those of one run the last in the list. Without a date is oldest."""
    return _in_order(list({session.run_id: session for session in sessions}.values()))[
        -MOST_SESSIONS:
    ]


def _in_order(sessions: Sequence[Session]) -> tuple[Session, ...]:
    return tuple(sorted(sessions, key=lambda session: moment(session.started) or _LONG_AGO))


def _why_other(joined: Entry, before: Entry, proposed: Sequence[Session]) -> str:
    """Why the old sessions are of something else than the new ones; empty where they are of the same."""
    if joined.kind != "measured":
        return "published figure"
    if joined.work != before.work:
        return "its work changed"
    reference = reference_of(before, "")
    other = any(other_mode(session.achieved, reference) for session in proposed)
    return "timed in another mode" if other else ""


def _why_anew(fresh: Sequence[Session], before: Entry, tolerance: float, prior: Prior) -> str:
    """Why the old sessions no longer stand for this; empty where the new ones may join them."""
    verdict = judge(
        _on_known_devices(fresh, before), reference_of(before, ""), Policy(tolerance, prior=prior)
    )
    found = verdict.difference
    assert found is not None
    change = growth(found.estimate)
    if verdict.kind is Kind.IMPROVED:
        return f"IMPROVED {format_percent(change)}"
    # The mirror image of IMPROVED, so that chance loosens a baseline as often as it tightens it.
    surely_slower = found.estimate - bound_of(found, CONFIDENCE) > math.log1p(tolerance)
    return f"{_SLOWER}{format_percent(change)}" if surely_slower else ""


def _anchored(
    after: Entry,
    before: Entry,
    fresh: Sequence[Session],
    prior: Prior,
    anew: bool,
    accept_slower: bool,
) -> tuple[Entry, str]:
    """A renewed entry with its anchor and one more renewal, and why it is refused; empty where it is not."""
    anchor = anchor_of(before)
    found = _against(fresh, replace(before, sessions=anchor, anchor=()), prior)
    if anew and found.estimate <= 0:
        return replace(after, anchor=(), renewals=()), ""
    tolerance = after.tolerance or default_tolerance(key_of_entry(before))
    worth = math.log1p(WORTH_REPORTING * tolerance)
    slower = found.estimate > math.log1p(tolerance) and p_slower_than(found, worth) <= FALSE_CREEP
    # The anchor of a young entry grows: one session alone is known too little.
    older = () if slower else anchor
    kept = tuple({session.run_id: session for session in (*older, *_in_order(fresh))}.values())[
        :MOST_ANCHORED
    ]
    change, drift = growth(_against(fresh, before, prior).estimate), growth(found.estimate)
    renewals = (*before.renewals, Renewal(now(), len(fresh), change, drift, slower))
    own = kept == _in_order(after.sessions)[:MOST_ANCHORED]
    entry = replace(after, anchor=() if own else kept, renewals=renewals[-MOST_RENEWALS:])
    if not slower or accept_slower:
        return entry, ""
    count = len(since_accepted(renewals[:-1])) + 1
    told = f"{after.label} takes {format_percent(drift)} time since {since(before)}, over {count} renewal"
    return entry, f"{told}{'s' * (count > 1)} (tolerance {format_tolerance(tolerance)})"


def anchor_of(entry: Entry) -> tuple[Session, ...]:
    """The sessions that an entry's renewals are held against; without any of its own, its oldest."""
    return entry.anchor or _in_order(entry.sessions)[:MOST_ANCHORED]


def since(entry: Entry) -> str:
    """The date of an entry's anchor."""
    started = anchor_of(entry)[0].started
    return started[:10] if moment(started) else "its first session"


def since_accepted(renewals: Sequence[Renewal]) -> Sequence[Renewal]:
    """The renewals since slower code was last accepted."""
    last = max(
        (number for number, renewal in enumerate(renewals, 1) if renewal.accepted_slower), default=0
    )
    return renewals[last:]


def _on_known_devices(fresh: Sequence[Session], before: Entry) -> tuple[Group, ...]:
    """The new sessions that tell the most: those on devices that the entry knows; all where it knows none of them."""
    known = {session.device_uuid for session in before.sessions}
    told = [session for session in fresh if session.device_uuid in known] or fresh
    return reference_of(replace(before, sessions=tuple(told)), "").groups


def _against(fresh: Sequence[Session], before: Entry, prior: Prior) -> Difference:
    return difference(_on_known_devices(fresh, before), reference_of(before, "").groups, prior)
