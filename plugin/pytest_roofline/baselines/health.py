"""What stands behind the entries of a baseline, and how little of a slowdown they would find."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..core.entries import Entry
from ..core.records import rate
from ..core.units import format_tolerance, moment
from ..stats.spread import ENOUGH_SESSIONS, Group, Prior, Spread
from ..stats.stats import CONFIDENCE, Difference, difference, growth, quantile
from ..stats.verdicts import POWER
from .comparators import class_of_key, default_tolerance, key_of_entry, reference_of
from .renewal import priors_of


@dataclass(frozen=True, slots=True)
class Health:
    """One measured entry with what a comparison against it can tell.

    Args:
        time_s: the centre of its processes.
        rate: bytes (or FLOP) per second under its metric; None where its work has none.
        process: the spread between processes; `session` between sessions; both of log seconds.
        mde: the slowdown, as a share of time, that one new process finds 80 times in 100 at the 1 % level.
        newest: when its newest session began, ISO 8601; empty where no session says.
        provisional: why it is no full baseline yet; empty where it is.
    """

    entry: Entry
    time_s: float
    rate: float | None
    devices: int
    process: Spread
    session: Spread
    mde: float
    tolerance: float
    drivers: tuple[str, ...]
    newest: str
    provisional: str


def health_of(entries: Iterable[Entry], tolerance: float | None = None) -> list[Health]:
    """The health of the measured entries, with what all of them tell of their class as the prior.

    Args:
        tolerance: of time, for entries that have none of their own; None is that of their class.
    """
    measured = [entry for entry in entries if entry.kind == "measured"]
    assumed = priors_of(measured)
    return [
        _health(entry, entry.tolerance or tolerance or default_tolerance(key), assumed[class_of_key(key)])
        for entry, key in zip(measured, map(key_of_entry, measured), strict=True)
    ]


def _health(entry: Entry, tolerance: float, prior: Prior) -> Health:
    assert entry.work is not None
    reference = reference_of(entry, "")
    found = _one_more(reference.groups, prior)
    dated = [(time, session.started) for session in entry.sessions if (time := moment(session.started))]
    return Health(
        entry=entry,
        time_s=reference.median_s,
        rate=rate(entry.work, entry.metric, reference.median_s),
        devices=reference.devices,
        process=found.process,
        session=found.session,
        mde=_mde(found),
        tolerance=tolerance,
        drivers=tuple(sorted({facts["driver"] for facts in reference.environments if "driver" in facts})),
        newest=max(dated)[1] if dated else "",
        provisional=provisional(entry, tolerance, prior),
    )


def provisional(entry: Entry, tolerance: float, prior: Prior) -> str:
    """Why an entry is no full baseline yet; empty where it is, and for published figures and canaries.

    A label, never a refusal.

    Args:
        tolerance: of time: what a comparison against the entry shall find.
        prior: what to assume where the entry does not tell.
    """
    if entry.kind != "measured" or entry.is_canary:
        return ""
    reasons = []
    count = len(entry.sessions)
    if count < ENOUGH_SESSIONS:
        reasons.append(f"{count} of {ENOUGH_SESSIONS} sessions")
    mde = _mde(_one_more(reference_of(entry, "").groups, prior))
    if mde > tolerance:
        reasons.append(f"finds {mde * 100:.1f} %, its tolerance is {format_tolerance(tolerance)}")
    return "; ".join(reasons)


def _one_more(groups: Sequence[Group], prior: Prior) -> Difference:
    """The comparison of one more process, in a session of its own on the device that is known best."""
    device = Counter(group.device for group in groups).most_common(1)[0][0]
    typical = math.exp(math.fsum(value for group in groups for value in group.logs) / sum(len(g.logs) for g in groups))
    return difference([Group((typical,), device)], groups, prior)


def _mde(found: Difference) -> float:
    return growth((quantile(CONFIDENCE, found.freedom) + quantile(POWER, found.freedom)) * found.error)
