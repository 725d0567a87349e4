"""What a measurement is compared with: the entries of baseline files, or saved runs, behind one question."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import cached_property
from itertools import chain
from operator import itemgetter
from pathlib import Path
from statistics import median
from types import MappingProxyType

from ..core.entries import Entry, Statistic
from ..core.entries import Session as RecordedSession
from ..core.errors import BadFile, BadInput
from ..core.facts import HardwareKey
from ..core.groups import grouped
from ..core.keys import Key, canonical, told_by_position
from ..core.records import Measurement
from ..core.samples import IMPORTED
from ..core.verdicts import Group, OddSession, Reference
from ..core.work import Work
from ..hardware import identity_of
from ..stats.key_results import typical_peak
from ..stats.limits import MEDIANS_ONLY, Summary, exact, process_s
from ..stats.odd_sessions import odd_sessions
from ..stats.outlook import DEFAULT_TOLERANCES
from ..stats.spread import Prior, class_of, lend, priors
from .files import Entries, key_of_entry, nearest
from .runs import Run, read_run

# Odd sessions, each with the names of the tests in which it is strange.
Odd = Mapping[OddSession, frozenset[str]]


class Comparator(ABC):
    """Something that may know how long a measurement used to take: entries of baseline files, or runs."""

    entries = Entries({}, ())
    runs: Sequence[Run] = ()
    # Of runs, what is not fit for a comparison, with the reason.
    unfit: Sequence[tuple[Measurement, str]] = ()
    # The sessions that were set aside, each with the names of the tests in which it is strange.
    odd: Odd = MappingProxyType({})

    @property
    @abstractmethod
    def name(self) -> str:
        """What to call it in a header: file names."""

    @abstractmethod
    def reference(self, key: Key) -> Reference | None:
        """What stands under exactly this key."""

    @abstractmethod
    def environments(self, key: Key) -> tuple[dict[str, str], ...]:
        """The facts of every session, or process, behind a key, as text by name."""

    @abstractmethod
    def work(self, key: Key) -> Work | None:
        """The work that was timed under this key; times of different work must not be compared."""

    @abstractmethod
    def achieved(self, key: Key) -> tuple[tuple[str, ...], ...]:
        """How the processes under this key were timed, as `Reference.achieved`; empty where it knows none."""

    @abstractmethod
    def label(self, key: Key) -> str:
        """What it calls this key."""

    @abstractmethod
    def keys(self) -> list[Key]:
        """Everything that it knows."""

    def measured(self, key: Key) -> list[Measurement]:
        """Return all measurements of a key; none of entries."""
        del key
        return []

    def measurement(self, key: Key) -> Measurement | None:
        """One of the measurements of a key, for its work and its roofline, which are those of all; None of entries."""
        return next(iter(self.measured(key)), None)

    def tolerance(self, key: Key) -> float | None:
        """The tolerance that the test itself asked for, in its marker or its call; None of entries."""
        return next((m.tolerance for m in self.measured(key) if m.tolerance), None)

    def judged(self, key: Key) -> tuple[Group, ...]:
        """The processes of a key as they are judged."""
        reference = self.reference(key)
        return reference.groups if reference is not None else ()

    def summary(self, key: Key, statistic: Statistic) -> Summary | str:
        """The same by a statistic, with whether every attempt tells it by itself; or why there is none."""
        groups = self.judged(key)
        return Summary(groups) if groups and statistic == "median" else MEDIANS_ONLY

    def references(self) -> list[tuple[Key, Reference]]:
        """Everything that it knows, for what only many tests can tell."""
        return [
            (key, reference)
            for key in self.keys()
            if (reference := self.reference(key)) is not None
        ]

    def without_odd_sessions(self) -> "Comparator":
        """Return the same without its odd sessions, for measurements to be compared with."""
        odd = odd_among(self.references())
        return self._without(odd) if odd else self

    @abstractmethod
    def _without(self, odd: Odd) -> "Comparator":
        """Return the same without these sessions in the tests that they spoil."""

    def _odd_in(self, key: Key) -> tuple[OddSession, ...]:
        """Return the sessions that were set aside in a test."""
        return tuple(session for session, tests in self.odd.items() if key.identity in tests)

    def hardware(self) -> list[HardwareKey]:
        """Every hardware that it knows anything of."""
        return [key.hardware for key in self.keys()]

    def count(self, benchmark: str, parameters: dict[str, object], hardware: HardwareKey) -> int:
        """How many measurements of a test are known on a hardware, however many of its devices the test uses."""
        return self._counted[benchmark, canonical(parameters), hardware.alone]

    @cached_property
    def _counted(self) -> Counter[tuple[str, str, HardwareKey]]:
        return Counter(
            (key.benchmark, canonical(key.parameters), key.hardware.alone) for key in self.keys()
        )


class BaselineComparator(Comparator):
    """Compares with the `measured` entries of baseline files."""

    def __init__(self, entries: Entries, odd: Odd = MappingProxyType({})) -> None:
        self.entries = entries
        self.odd = odd

    @property
    def name(self) -> str:
        """The paths of the files."""
        return ", ".join(str(path) for path in self.entries.paths) or "no baseline"

    def reference(self, key: Key) -> Reference | None:
        """The processes of the entry for `key`."""
        entry = self._entry(key)
        if entry is None:
            return None
        reference = reference_of(entry, str(self.entries.path_of(entry)))
        return replace(reference, odd=self._odd_in(key_of_entry(entry)))

    def environments(self, key: Key) -> tuple[dict[str, str], ...]:
        """Those of the sessions of the entry for `key`."""
        entry = self._entry(key)
        return () if entry is None else tuple(session.environment for session in entry.sessions)

    def work(self, key: Key) -> Work | None:
        """The work of the entry for `key`."""
        entry = self._entry(key)
        return None if entry is None else entry.work

    def achieved(self, key: Key) -> tuple[tuple[str, ...], ...]:
        """How the sessions of the entry for `key` were timed."""
        entry = self._entry(key)
        return _each_once(session.achieved for session in entry.sessions) if entry else ()

    def label(self, key: Key) -> str:
        """The label of the entry for `key`."""
        entry = self._entry(key)
        return key.label if entry is None else entry.label

    def keys(self) -> list[Key]:
        """The keys of the measured entries."""
        return [key_of_entry(entry) for entry in self.entries if entry.kind == "measured"]

    def _without(self, odd: Odd) -> "BaselineComparator":
        return BaselineComparator(self.entries.changed(lambda entry: leave_out(entry, odd)), odd)

    def _entry(self, key: Key) -> Entry | None:
        for entry in self.entries.of(key.benchmark, key.name):
            if entry.kind == "measured" and entry.matches(key):
                return entry
        return None


# A run's name, when it began, and its device: a name alone may be that of each night, or of each node.
Session = tuple[str, str, str]
Process = tuple[Session, str]


class RunComparator(Comparator):
    """Compares with the fit measurements of saved runs; several runs stand side by side as processes."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.unfit = unfit = []
        # By key, and then by process, its attempts.
        self._processes: dict[str, dict[Process, list[Measurement]]] = {}
        self._keys: dict[str, Key] = {}
        self._runs: dict[Session, Run] = {}
        for run in runs:
            session = run.header.run_id, run.header.started, identity_of(run.header.environment)
            for measurement in run.measurements:
                if why := run.unfit(measurement, accept_slower=True) or told_by_position(
                    measurement.key.parameters
                ):
                    unfit.append((measurement, why))
                else:
                    self._add(run, session, measurement)

    def _add(self, run: Run, session: Session, measurement: Measurement) -> None:
        processes = self._processes.setdefault(measurement.key.identity, {})
        # Times of different work do not mix; the first run says which work is meant.
        if all(measurement.work == attempts[0].work for attempts in list(processes.values())[:1]):
            processes.setdefault((session, measurement.process), []).append(measurement)
            self._keys[measurement.key.identity] = measurement.key
            self._runs[session] = run

    @property
    def name(self) -> str:
        """The paths of the runs."""
        return ", ".join(str(run.path) for run in self.runs)

    def reference(self, key: Key) -> Reference | None:
        """The processes that measured `key`, a session a run, each with all of its attempts together."""
        processes = self._processes.get(key.identity)
        if not processes:
            return None
        measured = self.measured(key)
        newest = self._newest(processes).environment.comparable()
        return Reference(
            groups=_by_session(
                {process: pooled_median(attempts) for process, attempts in processes.items()}
            ),
            source=self.name,
            achieved=_each_once(each.samples.achieved for each in measured),
            clock_hz=typical_clock(one.samples.clock_hz for one in measured),
            peak_bytes=typical_peak(processes.values()),
            odd=self._odd_in(key),
            commit=_commit(newest),
            driver=newest.get("driver", ""),
            torch=newest.get("torch", ""),
        )

    def _newest(self, processes: Iterable[tuple[Session, str]]) -> Run:
        """Return the run of the newest session of some processes."""
        return self._runs[max((session for session, _ in processes), key=itemgetter(1))]

    def environments(self, key: Key) -> tuple[dict[str, str], ...]:
        """Those of every process that measured `key`, with the way in which it did."""
        return tuple(
            self._runs[session].environment.everything() | attempts[0].comparable()
            for (session, _), attempts in self._processes.get(key.identity, {}).items()
        )

    def judged(self, key: Key, statistic: Statistic = "median") -> tuple[Group, ...]:
        """The same as what is judged: each process its slowest attempt, which in a reference would only loosen it."""
        processes = self._processes.get(key.identity, {}).items()
        return _by_session(
            {
                process: max(process_s(one.samples, statistic) for one in attempts)
                for process, attempts in processes
            }
        )

    def summary(self, key: Key, statistic: Statistic) -> Summary:
        """The same, with whether every attempt was taken in a way that tells the statistic itself."""
        told = all(exact(one.samples, statistic) for one in self.measured(key))
        return Summary(self.judged(key, statistic), told)

    def measured(self, key: Key) -> list[Measurement]:
        """Return every attempt of every process under a key, in the order of the runs."""
        return list(chain.from_iterable(self._processes.get(key.identity, {}).values()))

    def work(self, key: Key) -> Work | None:
        """The work that the runs timed."""
        one = self.measurement(key)
        return None if one is None else one.work

    def achieved(self, key: Key) -> tuple[tuple[str, ...], ...]:
        """How the runs timed it."""
        return _each_once(one.samples.achieved for one in self.measured(key))

    def label(self, key: Key) -> str:
        """What the runs call it."""
        one = self.measurement(key)
        return key.label if one is None else one.label

    def keys(self) -> list[Key]:
        """Every key measured, in the order of the runs."""
        return list(self._keys.values())

    def _without(self, odd: Odd) -> "RunComparator":
        left = copy(self)
        left.odd = odd
        left._processes = {
            identity: {
                process: attempts
                for process, attempts in processes.items()
                if not _is_spoiled(odd, identity, process)
            }
            for identity, processes in self._processes.items()
        }
        return left


def _is_spoiled(odd: Odd, identity: str, process: Process) -> bool:
    (_, started, device), _ = process
    return (device, started) in _odd_days(odd, identity)


def _odd_days(odd: Odd, identity: str) -> set[tuple[str, str]]:
    """Return the devices and beginnings of the sessions that are strange in a test."""
    return {
        (session.device, session.started) for session, tests in odd.items() if identity in tests
    }


def _by_session(processes: dict[Process, float]) -> tuple[Group, ...]:
    return tuple(
        Group(tuple(processes[process] for process in members), device, began)
        for (_, began, device), members in grouped(processes, itemgetter(0)).items()
    )


def reference_of(entry: Entry, source: str) -> Reference:
    """A measured entry as one side of a comparison."""
    newest = max(entry.sessions, key=lambda session: session.started).environment
    return Reference(
        groups=tuple(
            Group(s.process_medians, s.device_uuid or "", s.started) for s in entry.sessions
        ),
        source=source,
        tolerance=entry.tolerance,
        achieved=_each_once(session.achieved for session in entry.sessions),
        clock_hz=typical_clock(session.clock_hz for session in entry.sessions),
        peak_bytes=entry.peak_bytes,
        commit=_commit(newest),
        driver=newest.get("driver", ""),
        torch=newest.get("torch", ""),
    )


def _commit(environment: Mapping[str, str]) -> str:
    """Return the commit of the tests' code, without what is said of changes to it; empty where it is not told."""
    return environment.get("code", "").partition(" ")[0]


def _each_once(achieved: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return the ways in which sessions were timed, each once and in one order."""
    return tuple(sorted(set(achieved)))


def typical_clock(clocks_hz: Iterable[float | None]) -> float | None:
    """The median of the clocks that are known."""
    known = [clock_hz for clock_hz in clocks_hz if clock_hz is not None]
    return median(known) if known else None


def pooled_median(measurements: Iterable[Measurement]) -> float:
    """The median of all blocks' medians that one process took under one key; a rerun cannot replace what was first."""
    return median(
        sample for measurement in measurements for sample in measurement.samples.block_medians
    )


def open_comparator(paths: Sequence[Path]) -> Comparator:
    """A comparator from run files or baseline files, by what is inside."""
    runs = [path for path in paths if path.suffix != ".json"]
    baselines = [path for path in paths if path.suffix == ".json"]
    if runs and baselines:
        raise BadFile(f"{runs[0]} is a run and {baselines[0]} a baseline; expected all of one kind")
    return (
        RunComparator([read_run(path) for path in runs])
        if runs
        else BaselineComparator(Entries.merged(baselines))
    )


def refuse_both_sides(old: Sequence[Run], new: Sequence[Run]) -> None:
    """Raise BadInput where a process stands on both sides, under whatever names of files."""
    paths = {identity: run.path for run in old for identity in _identities(run)}
    for run in new:
        path = next((paths[identity] for identity in _identities(run) if identity in paths), None)
        if path is not None:
            names = f"run {path.stem}" if path == run.path else f"the run in {path} and {run.path}"
            raise BadInput(
                f"{names} is on both sides, and is never slower than itself; name a run of before and one of after"
            )


def refuse_own_baseline(before: Comparator, after: Comparator) -> None:
    """Raise BadInput where one side is a baseline that the other side is, or was recorded by."""
    for baseline, side in ((before, after), (after, before)):
        recorded = {(session.run_id, session.started) for session in _sessions(baseline)}
        for run in side.runs:
            if (run.header.run_id, run.header.started) in recorded:
                raise BadInput(
                    f"run {run.path.stem} is a session of {baseline.name}, and is never slower than itself; "
                    "name a run that the baseline does not hold"
                )
    sessions = _sessions(before)
    if sessions and sessions == _sessions(after):
        raise BadInput(
            f"{before.name} and {after.name} hold the same sessions, which are never slower than themselves; "
            "name the baseline of before and a run of after"
        )


def _sessions(comparator: Comparator) -> list[RecordedSession]:
    """Return every session that the entries of a baseline hold; none of runs."""
    return [session for entry in comparator.entries for session in entry.sessions]


def _identities(run: Run) -> list[object]:
    """Return what no other run has: each measurement of a process, or its header where nothing was measured."""
    header = run.header.run_id, run.header.started
    # A process of an import is named by the content of its log, which may be a part of several imports.
    return [
        ("" if IMPORTED in timed.samples.labels else header, timed.process, timed.key.identity)
        for timed in run.measurements
    ] or [header]


def find_reference(comparator: Comparator, key: Key, work: Work) -> tuple[Reference | None, str]:
    """What to compare a measurement of `work` with, or why there is nothing."""
    known = comparator.work(key)
    if known is not None and known != work:
        before, now = (
            ", ".join(
                f"{one.name}={amount}"
                for one in fields(side)
                if (amount := getattr(side, one.name))
            )
            for side in (known, work)
        )
        return (
            None,
            f"the test's work changed from {before} to {now}, so the times are not comparable",
        )
    reference = comparator.reference(key)
    if reference is not None:
        return reference, ""
    elsewhere = [
        other.hardware
        for other in comparator.keys()  # noqa: SIM118
        if (other.benchmark, other.name) == (key.benchmark, key.name)
        and other.hardware != key.hardware
    ]
    if elsewhere:
        names = "; ".join(map(str, nearest(key.hardware, elsewhere)))
        return None, f"no entry for this hardware ({key.hardware}); nearest known: {names}"
    return (
        None,
        f"{comparator.name} has no such measurement"
        if comparator.hardware()
        else "no baseline recorded",
    )


def prior_of(references: Iterable[tuple[Key, Reference]], kind: str) -> Prior:
    """What to assume of a class of benchmarks: the starting values, or what the references of that class tell."""
    groups = [reference.groups for key, reference in references if class_of_key(key) == kind]
    return lend(priors()[kind], groups, kind)


def priors_of(entries: Iterable[Entry]) -> dict[str, Prior]:
    """What to assume of each class of benchmarks where an entry does not tell: what the others of its file do."""
    tests = [entry for entry in entries if entry.kind == "measured" and not entry.is_canary]
    references = [(key_of_entry(entry), reference_of(entry, "")) for entry in tests]
    return {kind: prior_of(references, kind) for kind in priors()}


def odd_among(references: Iterable[tuple[Key, Reference]]) -> Odd:
    """Return the sessions that are strange in many tests; canaries are no tests."""
    tests = {key.identity: (key, groups.groups) for key, groups in references if not key.is_canary}
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
    days = _odd_days(odd, key_of_entry(entry).identity)
    sessions = tuple(
        session
        for session in entry.sessions
        if (session.device_uuid or "", session.started) not in days
    )
    return replace(entry, sessions=sessions)


def default_tolerance(key: Key) -> float:
    """The tolerance of a test for which nobody asked for one: that of its class."""
    return DEFAULT_TOLERANCES[class_of_key(key)]


def class_of_key(key: Key) -> str:
    """The class of a benchmark by its key."""
    return class_of("cpu" if key.hardware.is_cpu else "device", key.metric)
