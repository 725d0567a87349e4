"""References, and what all of them together say: priors of classes, and odd sessions."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median

from ..core.directions import is_of_program
from ..core.entries import Entry
from ..core.keys import Key
from ..core.records import Measurement
from ..core.verdicts import Group, OddSession, Reference
from ..stats.odd_sessions import odd_sessions
from ..stats.outlook import DEFAULT_TOLERANCES
from ..stats.spread import PROGRAM, Prior, class_of, lend, priors
from .files import key_of_entry

# Odd sessions, each with the names of the tests in which it is strange.
Odd = Mapping[OddSession, frozenset[str]]


def odd_days(odd: Odd, identity: str) -> set[tuple[str, str]]:
    """Return the device and start of each session that is strange in a test."""
    return {
        (session.device, session.started) for session, tests in odd.items() if identity in tests
    }


def reference_of(entry: Entry, source: str) -> Reference:
    """Return a measured entry as one side of a comparison."""
    newest = entry.newest_session.environment
    return Reference(
        groups=tuple(
            Group(session.process_medians, session.device_uuid or "", session.started)
            for session in entry.sessions
        ),
        source=source,
        tolerance=entry.tolerance,
        achieved=unique_modes(session.achieved for session in entry.sessions),
        clock_hz=typical_clock(session.clock_hz for session in entry.sessions),
        peak_bytes=entry.peak_bytes,
        commit=commit_of(newest),
        driver=newest.get("driver", ""),
        torch=newest.get("torch", ""),
    )


def commit_of(environment: Mapping[str, str]) -> str:
    """Return the commit of the tests' code, or an empty text.

    A note on changes to the code is left out.
    """
    return environment.get("code", "").partition(" ")[0]


def unique_modes(achieved: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return the modes of sessions, each once and in one order."""
    return tuple(sorted(set(achieved)))


def typical_clock(clocks_hz: Iterable[float | None]) -> float | None:
    """Return the median of the recorded clocks, in Hz, or None."""
    clocks = [clock_hz for clock_hz in clocks_hz if clock_hz is not None]
    return median(clocks) if clocks else None


def pooled_median(measurements: Iterable[Measurement]) -> float:
    """Return the median of all block medians of a process.

    A rerun adds to the first attempt and cannot replace it.
    """
    return median(
        sample for measurement in measurements for sample in measurement.samples.block_medians
    )


def prior_of(references: Iterable[tuple[Key, Reference]], kind: str) -> Prior:
    """Return the prior of a class of benchmarks: the spread that is assumed of each test.

    It is estimated from the references of the class, or the starting value where they are too few.
    """
    groups = [reference.groups for key, reference in references if class_of_key(key) == kind]
    return lend(priors()[kind], groups, kind)


def priors_of(entries: Iterable[Entry]) -> dict[str, Prior]:
    """Return the prior of each class of benchmarks: the spread that is assumed of each test.

    Priors are estimated from the measured entries together, without canaries.
    """
    tests = [entry for entry in entries if entry.kind == "measured" and not entry.is_canary]
    references = [(key_of_entry(entry), reference_of(entry, "")) for entry in tests]
    return {kind: prior_of(references, kind) for kind in priors()}


def odd_among(references: Iterable[tuple[Key, Reference]]) -> Odd:
    """Return the sessions that are strange in many tests; canaries are no tests."""
    tests = {
        key.identity: (key, reference.groups) for key, reference in references if not key.is_canary
    }
    return odd_sessions(
        {name: groups for name, (_, groups) in tests.items()},
        {name: class_of_key(key) for name, (key, _) in tests.items()},
    )


def odd_in(entries: Iterable[Entry]) -> Odd:
    """Return the sessions that are strange in many entries."""
    tests = [entry for entry in entries if entry.kind == "measured"]
    return odd_among([(key_of_entry(entry), reference_of(entry, "")) for entry in tests])


def leave_out(entry: Entry, odd: Odd) -> Entry:
    """Return an entry without the odd sessions that are strange in it."""
    if entry.kind != "measured":
        return entry
    days = odd_days(odd, key_of_entry(entry).identity)
    sessions = tuple(
        session
        for session in entry.sessions
        if (session.device_uuid or "", session.started) not in days
    )
    return replace(entry, sessions=sessions)


def default_tolerance(key: Key) -> float:
    """Return the tolerance of a test's class.

    It holds where neither test, baseline nor run gives another.
    """
    return DEFAULT_TOLERANCES[class_of_key(key)]


def class_of_key(key: Key) -> str:
    """Return the class of a benchmark by its key."""
    if is_of_program(key.benchmark, key.metric, key.name):
        return PROGRAM
    return class_of("cpu" if key.hardware.is_cpu else "device", key.metric)
