"""Creep: what every renewal adds stays within the tolerance, and their sum does not.

Sessions that join move what a baseline holds, so that code that becomes 1 % slower a week is never far from it. So an
entry keeps its oldest sessions as an anchor, also when they are no longer among its newest, and each renewal is held
against them too. Only a person who accepts slower code, or code that is faster, lets an entry begin anew.
"""

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.entries import Entry, Renewal, Session
from ..core.errors import BadInput
from ..core.units import format_percent, format_tolerance, listed, moment
from ..stats.spread import Group, Prior
from ..stats.stats import Difference, difference, growth
from ..stats.verdicts import WORTH_REPORTING
from .comparators import default_tolerance, key_of_entry, reference_of
from .runs import now

# Enough to know how sessions differ, and few, since they are kept for years.
MOST_ANCHORED = 3
# A year of weekly renewals, and some.
MOST_RENEWALS = 60
# The chance that code which became slower by no more than what is worth reporting is called slower than its anchor.
FALSE_CREEP = 0.005
_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Renewed:
    """An entry with its anchor and one more renewal, and why it is refused; empty where it is not."""

    entry: Entry
    refusal: str = ""


def renewed(
    after: Entry, before: Entry, fresh: Sequence[Session], prior: Prior, *, anew: bool, accept_slower: bool
) -> Renewed:
    """What a renewal leaves, held against the anchor of the entry before.

    Args:
        after: the entry as it will stand, with the anchor and the renewals of `before`.
        fresh: its sessions that `before` has not.
        prior: what to assume of their class.
        anew: whether they replace the others: where they are no slower than the anchor, the entry begins anew.
        accept_slower: whether a drift beyond the tolerance is accepted: it begins a new anchor.
    """
    anchor = anchor_of(before)
    found = _against(fresh, replace(before, sessions=anchor, anchor=()), prior)
    if anew and found.estimate <= 0:
        return Renewed(replace(after, anchor=(), renewals=()))
    tolerance = after.tolerance or default_tolerance(key_of_entry(before))
    worth = math.log1p(WORTH_REPORTING * tolerance)
    slower = found.estimate > math.log1p(tolerance) and found.p_slower_than(worth) <= FALSE_CREEP
    # The anchor of a young entry grows: one session alone is known too little.
    older = () if slower else anchor
    kept = tuple({session.run_id: session for session in (*older, *in_order(fresh))}.values())[:MOST_ANCHORED]
    change, drift = growth(_against(fresh, before, prior).estimate), growth(found.estimate)
    renewals = (*before.renewals, Renewal(now(), len(fresh), change, drift, slower))
    entry = replace(
        after,
        anchor=() if kept == in_order(after.sessions)[:MOST_ANCHORED] else kept,
        renewals=renewals[-MOST_RENEWALS:],
    )
    if not slower or accept_slower:
        return Renewed(entry)
    count = len(since_accepted(renewals[:-1])) + 1
    told = f"{after.label} takes {format_percent(drift)} time since {since(before)}, over {count} renewal"
    return Renewed(entry, f"{told}{'s' * (count > 1)} (tolerance {format_tolerance(tolerance)})")


def refuse(refusals: Sequence[str]) -> None:
    """Refuse an approval of which some renewals are slower than their anchor.

    Raises:
        BadInput: there are some.
    """
    if refusals:
        raise BadInput(
            f"{listed(refusals, 5, '; ')}; expected no more than the tolerance, however many renewals it took; find "
            "out what made it slower, approve other entries with --only, or accept it with --accept-slower"
        )


def anchor_of(entry: Entry) -> tuple[Session, ...]:
    """The sessions that an entry's renewals are held against; without any of its own, its oldest."""
    return entry.anchor or in_order(entry.sessions)[:MOST_ANCHORED]


def since(entry: Entry) -> str:
    """The date of an entry's anchor."""
    started = anchor_of(entry)[0].started
    return started[:10] if moment(started) else "its first session"


def since_accepted(renewals: Sequence[Renewal]) -> Sequence[Renewal]:
    """The renewals since slower code was last accepted."""
    last = max((number for number, renewal in enumerate(renewals, 1) if renewal.accepted_slower), default=0)
    return renewals[last:]


def in_order(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """Oldest first; without a date is oldest."""
    return tuple(sorted(sessions, key=lambda session: moment(session.started) or _LONG_AGO))


def on_known_devices(fresh: Sequence[Session], before: Entry) -> tuple[Group, ...]:
    """The new sessions that tell the most: those on devices that the entry knows; all where it knows none of them."""
    known = {session.device_uuid for session in before.sessions}
    told = [session for session in fresh if session.device_uuid in known] or fresh
    return reference_of(replace(before, sessions=tuple(told)), "").groups


def _against(fresh: Sequence[Session], before: Entry, prior: Prior) -> Difference:
    return difference(on_known_devices(fresh, before), reference_of(before, "").groups, prior)
