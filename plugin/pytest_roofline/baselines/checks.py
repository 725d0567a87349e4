"""Flaws of a baseline file, and the health of its entries, for its reviewer."""

import datetime
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.directions import is_own_figure
from ..core.entries import RESOURCES, Baseline, Entry, ExactEntry, Session
from ..core.errors import Flaw
from ..core.keys import JOB_METRIC
from ..core.records import rate
from ..core.resources import registers_of
from ..core.units import format_seconds, format_tolerance, moment
from ..core.verdicts import Difference, Group, OddSession, Spread
from ..core.work import RATE_SUFFIXES, rate_suffix
from ..stats.outlook import detectable_effect
from ..stats.spread import ENOUGH_SESSIONS, Prior
from ..stats.stats import difference
from .files import key_of_entry
from .plausible import absurd_entry, family_of_key
from .references import class_of_key, default_tolerance, odd_in, priors_of, reference_of

# Processes of one entry lie a few percent apart, on a bad CPU a factor of two. A larger factor is a flaw.
MOST_APART = 3.0
# Clocks of two nodes may differ by so much.
CLOCKS_APART = datetime.timedelta(hours=1)
_RECORD_AGAIN = "remove the entry, and record the test again with `pytest … --roofline-record`"


def check(path: Path, baseline: Baseline, now: datetime.datetime) -> list[Flaw]:
    """Return the flaws of a baseline file, in the order of its entries."""
    flaws = []
    if path.stem != baseline.family:
        flaws.append(
            Flaw(
                f"the file is {path.name}",
                f"{baseline.family}.json",
                "rename the file, since baselines are found by name; `roofline baseline approve` gives the right name",
                hint=True,
            )
        )
    for entry in baseline.entries:
        entry_flaws = (
            _measured_flaws(entry, now) if entry.kind == "measured" else _published_flaws(entry)
        )
        flaws += [
            replace(flaw, entry=entry.label)
            for flaw in (*_hardware_flaws(entry, baseline.family), *entry_flaws)
        ]
    flaws += map(_odd_flaw, odd_in(baseline.entries))
    for exact in baseline.exact:
        flaws += [replace(flaw, entry=exact.label) for flaw in _exact_flaws(exact, baseline.family)]
    return flaws


def _odd_flaw(session: OddSession) -> Flaw:
    """Return the hint that a session is odd."""
    return Flaw(
        session.text,
        "as fast as the other sessions",
        "comparisons leave the session out; find out why it differs, and propose the runs without this session",
        hint=True,
    )


def _exact_flaws(entry: ExactEntry, family: str) -> Iterator[Flaw]:
    """Yield the flaws of the entry of a compiled kernel."""
    if family != RESOURCES:
        yield Flaw(
            f"an exact entry in {family}.json",
            f"exact entries in {RESOURCES}.json only",
            f"approve the entry, or move the entry to {RESOURCES}.json",
        )
    if not _has_provenance(entry) or not entry.compiler:
        yield Flaw("no provenance", "the run and the compiler of the entry", _RECORD_AGAIN)
    if registers_of(entry.figures) is None:
        yield Flaw("no registers", "registers for every target", _RECORD_AGAIN)


def _has_provenance(entry: Entry | ExactEntry) -> bool:
    return any(text.strip() for text in entry.provenance.values())


def _hardware_flaws(entry: Entry, family: str) -> Iterator[Flaw]:
    """Yield a flaw where an entry belongs in the file of another family."""
    belongs = family_of_key(entry.hardware)
    if belongs is not None and belongs != family:
        yield Flaw(
            f"hardware {entry.hardware}",
            f"hardware of family {family}",
            f"move the entry to {belongs}.json",
        )


def _measured_flaws(entry: Entry, now: datetime.datetime) -> Iterator[Flaw]:
    """Yield the flaws of a measured entry."""
    if not _has_provenance(entry):
        yield Flaw("no provenance", "the facts of the measuring run", _RECORD_AGAIN)
    # The time of a whole program, and a program's own figure, have no bytes to count.
    is_of_program = entry.metric == JOB_METRIC or is_own_figure(entry.metric)
    if rate_suffix(entry.metric) is None and entry.metric != "time_s" and not is_of_program:
        yield Flaw(
            f"metric {entry.metric!r}",
            f"a name that ends in {', '.join(RATE_SUFFIXES)}, or time_s",
            "add to the metric's name how bytes are counted",
        )
    low, high = min(entry.medians), max(entry.medians)
    if high > MOST_APART * low:
        yield Flaw(
            f"processes that took from {format_seconds(low)} to {format_seconds(high)}",
            f"the slowest process to take at most {MOST_APART:g} times as long as the fastest",
            "find the odd session, and propose the runs without this session",
        )
    yield from _session_flaws(entry.sessions, now)
    flaw = absurd_entry(entry)
    if flaw is not None:
        yield flaw


def _session_flaws(sessions: Sequence[Session], now: datetime.datetime) -> Iterator[Flaw]:
    """Yield the flaws of sessions.

    They are a run that is in several of them, and start times that cannot be.
    """
    for run_id, count in Counter(session.run_id for session in sessions).items():
        if count > 1:
            yield Flaw(
                f"run {run_id} in {count} sessions",
                "every run in one session",
                "remove all sessions of this run but one",
            )
    for session in sessions:
        time = moment(session.started)
        begun = f"session {session.run_id} with the start time {session.started!r}"
        # A file that was imported may tell no date.
        if session.started and time is None:
            yield Flaw(begun, "a date in ISO 8601", "correct the date, or record the entry again")
        elif time is not None and time > now + CLOCKS_APART:
            yield Flaw(
                f"{begun}, which lies in the future",
                f"a time before {now:%Y-%m-%d %H:%M}",
                "set the clock of the machine, and record the entry again",
            )


def _published_flaws(entry: Entry) -> Iterator[Flaw]:
    """Yield the flaws of a published figure: a threshold, a floor or a reference."""
    needed = ("unit", "source") if entry.kind == "floor" else ("unit", "convention", "source")
    missing = [name for name in needed if not str(getattr(entry, name)).strip()]
    if missing:
        yield Flaw(
            f"no {' and no '.join(missing)}",
            f"{', '.join(needed[:-1])} and {needed[-1]}",
            "add these fields, which say what the figure means",
        )
    if entry.kind in ("threshold", "floor"):
        yield from _limit_flaws(entry)
    elif entry.hardware.product is None and not entry.note:
        # A note may say why the product is open.
        yield Flaw(
            "no product",
            "the exact variant, such as h100-sxm5",
            "name the variant in `hardware`, unless the entry holds for every variant",
            hint=True,
        )


def _limit_flaws(entry: Entry) -> Iterator[Flaw]:
    """Yield the flaws of a limit.

    A limit fails tests on all hardware that it matches, so it must name one product, whole or one
    partition of it.
    """
    open_fields = [
        name for name in ("product", "memory", "partition") if getattr(entry.hardware, name) is None
    ]
    if open_fields:
        yield Flaw(
            f"a limit for any {' and any '.join(open_fields)}",
            "the exact variant, such as product h100-sxm5, memory 80gb, partition none",
            "name the variant in `hardware`, or change the kind to `reference`, which is only shown",
        )
    if not _has_provenance(entry):
        yield Flaw(
            "no provenance",
            "the author and the date of the limit",
            "write author and date in `provenance`",
            hint=True,
        )


@dataclass(frozen=True, slots=True)
class Health:
    """A measured entry, and how well a comparison with it would work.

    Args:
        time_s: the median of its processes; `rate` is under the entry's metric.
        devices: how many devices were measured.
        process: the spread between processes; `session` that between sessions.
        mde: the detectable effect for one more process, as a share of time.
        drivers: the versions under which sessions were recorded.
        newest: when the newest session began, ISO 8601; empty where no session has a date.
        provisional: why it is no full baseline yet; empty where it is one.
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
    """Return the health of each measured entry.

    It tells its spreads, and the slowdown that one more process would show. `tolerance` is that of the run, for entries
    without one. The priors of the classes are estimated from all entries together.
    """
    measured = [entry for entry in entries if entry.kind == "measured"]
    priors = priors_of(measured)
    return [
        _health(
            entry,
            entry.tolerance or tolerance or default_tolerance(key),
            priors[class_of_key(key)],
        )
        for entry, key in zip(measured, map(key_of_entry, measured), strict=True)
    ]


def _health(entry: Entry, tolerance: float, prior: Prior) -> Health:
    """Return the health of a measured entry."""
    assert entry.work is not None
    reference = reference_of(entry, "")
    comparison = _compare_one_more(reference.groups, prior)
    # Times are compared as moments, since their texts may have different zones.
    dated = [
        (time, session.started) for session in entry.sessions if (time := moment(session.started))
    ]
    _, newest = max(dated, default=(None, ""))
    drivers = {
        session.environment["driver"]
        for session in entry.sessions
        if "driver" in session.environment
    }
    return Health(
        entry=entry,
        time_s=reference.median_s,
        rate=rate(entry.work, entry.metric, reference.median_s),
        devices=reference.devices,
        process=comparison.process,
        session=comparison.session,
        mde=detectable_effect(comparison),
        tolerance=tolerance,
        drivers=tuple(sorted(drivers)),
        newest=newest,
        provisional=provisional(entry, tolerance, prior),
    )


def provisional(entry: Entry, tolerance: float, prior: Prior) -> str:
    """Return why an entry is no full baseline yet.

    It is empty where the entry is one, and for published figures and canaries.
    """
    if entry.kind != "measured" or entry.is_canary:
        return ""
    reasons = []
    if len(entry.sessions) < ENOUGH_SESSIONS:
        reasons.append(f"{len(entry.sessions)} of {ENOUGH_SESSIONS} sessions")
    mde = detectable_effect(_compare_one_more(reference_of(entry, "").groups, prior))
    if mde > tolerance:
        reasons.append(
            f"detects slowdowns from {mde * 100:.1f} %, tolerance {format_tolerance(tolerance)}"
        )
    return "; ".join(reasons)


def _compare_one_more(groups: Sequence[Group], prior: Prior) -> Difference:
    """Return the comparison of one more process with an entry's sessions.

    The process takes the mean time, in a new session on the device with the most sessions. The error of the comparison
    does not depend on that time, so it foresees how small a slowdown the entry can show.
    """
    device, _ = Counter(group.device for group in groups).most_common(1)[0]
    logs = [log_s for group in groups for log_s in group.logs]
    mean_s = math.exp(math.fsum(logs) / len(logs))
    return difference([Group((mean_s,), device)], groups, prior)
