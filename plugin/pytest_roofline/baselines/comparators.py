"""What a measurement is compared with: the entries of baseline files, or saved runs, behind one question."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Protocol

from ..core.entries import Entry, Statistic
from ..core.errors import BadFile
from ..core.facts import HardwareKey
from ..core.keys import Key, canonical, told_by_position
from ..core.records import Measurement
from ..core.work import Work
from ..hardware import identity_of
from ..stats.key_results import typical_peak
from ..stats.limits import Summary, exact, process_s
from ..stats.outlook import DEFAULT_TOLERANCES, Reference
from ..stats.spread import Group, Prior, class_of, lend, priors
from .files import Entries, nearest
from .runs import Run, read_run


class Comparator(Protocol):
    """Something that may know how long a measurement used to take."""

    @property
    def name(self) -> str:
        """What to call it in a header: file names."""

    def reference(self, key: Key) -> Reference | None:
        """What stands under exactly this key."""

    def work(self, key: Key) -> Work | None:
        """The work that was timed under this key; times of different work must not be compared."""

    def elsewhere(self, key: Key) -> list[HardwareKey]:
        """The hardware on which the same benchmark is known."""

    def hardware(self) -> list[HardwareKey]:
        """Every hardware that has an entry."""

    def count(self, benchmark: str, parameters: dict[str, object], hardware: HardwareKey) -> int:
        """How many measurements of a test are known on a hardware, however many of its devices the test uses."""

    def references(self) -> list[tuple[Key, Reference]]:
        """Everything that it knows, for what only many tests can tell."""


class BaselineComparator:
    """Compares with the `measured` entries of baseline files."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    @property
    def name(self) -> str:
        """The paths of the files."""
        return ", ".join(str(path) for path in self.entries.paths) or "no baseline"

    def reference(self, key: Key) -> Reference | None:
        """The processes of the entry for `key`."""
        for entry in self._measured(key.benchmark, key.name):
            if entry.matches(key):
                return reference_of(entry, str(self.entries.path_of(entry)))
        return None

    def work(self, key: Key) -> Work | None:
        """The work of the entry for `key`."""
        return next((e.work for e in self._measured(key.benchmark, key.name) if e.matches(key)), None)

    def elsewhere(self, key: Key) -> list[HardwareKey]:
        """The hardware of the other entries of the same benchmark."""
        return [entry.hardware for entry in self._measured(key.benchmark, key.name)]

    def hardware(self) -> list[HardwareKey]:
        """The hardware of every measured entry."""
        return [entry.hardware for entry in self.entries if entry.kind == "measured"]

    def count(self, benchmark: str, parameters: dict[str, object], hardware: HardwareKey) -> int:
        """The measured entries of a test."""
        found = (entry for name in self.entries.names(benchmark) for entry in self._measured(benchmark, name))
        asked = canonical(parameters)
        return sum(canonical(entry.parameters) == asked and entry.hardware.alone == hardware.alone for entry in found)

    def references(self) -> list[tuple[Key, Reference]]:
        """Every measured entry."""
        return [
            (key_of_entry(entry), reference_of(entry, str(self.entries.path_of(entry))))
            for entry in self.entries
            if entry.kind == "measured"
        ]

    def _measured(self, benchmark: str, name: str) -> list[Entry]:
        return [entry for entry in self.entries.of(benchmark, name) if entry.kind == "measured"]


# A run's name, when it began, and its device: a name alone may be that of each night, or of each node.
Session = tuple[str, str, str]
Process = tuple[Session, str]


def session_of(run: Run) -> Session:
    """Which session a run is."""
    return run.header.run_id, run.header.started, identity_of(run.header.environment)


def _unfit(run: Run, measurement: Measurement) -> str:
    return run.unfit(measurement, accept_slower=True) or told_by_position(measurement.key.parameters)


class RunComparator:
    """Compares with the fit measurements of saved runs; several runs stand side by side as processes."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        fit = [(run, measurement) for run in runs for measurement in run.measurements if not _unfit(run, measurement)]
        self.unfit = [
            (measurement, why) for run in runs for measurement in run.measurements if (why := _unfit(run, measurement))
        ]
        self._processes: dict[str, dict[Process, list[Measurement]]] = {}
        self._keys: dict[str, Key] = {}
        self._runs: dict[Session, Run] = {}
        works: dict[str, Work] = {}
        for run, measurement in fit:
            identity = measurement.key.identity
            # Times of different work do not mix; the first run says which work is meant.
            if not measurement.work.agrees(works.setdefault(identity, measurement.work)):
                continue
            self._keys[identity] = measurement.key
            session = session_of(run)
            process = session, measurement.process
            self._processes.setdefault(identity, {}).setdefault(process, []).append(measurement)
            self._runs[session] = run

    @property
    def name(self) -> str:
        """The paths of the runs."""
        return ", ".join(str(run.path) for run in self.runs)

    def reference(self, key: Key) -> Reference | None:
        """The processes that measured `key`, a session a run."""
        processes = self._processes.get(key.identity)
        if not processes:
            return None
        return Reference(
            groups=self.groups(key),
            source=self.name,
            environments=tuple(
                self._runs[session].header.environment.comparable() | measurements[0].comparable()
                for (session, _), measurements in processes.items()
            ),
            achieved=frozenset(m.samples.achieved for measurements in processes.values() for m in measurements),
            clock_hz=typical_clock(m.samples.clock_hz for measurements in processes.values() for m in measurements),
            peak_bytes=typical_peak(processes.values()),
        )

    def groups(self, key: Key) -> tuple[Group, ...]:
        """The processes that measured `key`, by session, each with all of its attempts together."""
        processes = self._processes.get(key.identity, {})
        return self._by_session({process: pooled_median(measured) for process, measured in processes.items()})

    def judged(self, key: Key, statistic: Statistic = "median") -> tuple[Group, ...]:
        """The same as what is judged: each process its slowest attempt, which in a reference would only loosen it."""
        processes = self._processes.get(key.identity, {}).items()
        return self._by_session(
            {process: max(process_s(m.samples, statistic) for m in attempts) for process, attempts in processes}
        )

    def summary(self, key: Key, statistic: Statistic) -> Summary:
        """The same, with whether every attempt was taken in a way that tells the statistic itself."""
        attempts = (m for attempts in self._processes.get(key.identity, {}).values() for m in attempts)
        told = all(exact(measurement.samples, statistic) for measurement in attempts)
        return Summary(self.judged(key, statistic), told)

    def _by_session(self, processes: dict[Process, float]) -> tuple[Group, ...]:
        sessions: dict[Session, list[float]] = {}
        for (session, _), seconds in processes.items():
            sessions.setdefault(session, []).append(seconds)
        return tuple(Group(tuple(medians), device, began) for (_, began, device), medians in sessions.items())

    def work(self, key: Key) -> Work | None:
        """The work that the runs timed."""
        processes = self._processes.get(key.identity)
        return next(iter(processes.values()))[0].work if processes else None

    def elsewhere(self, key: Key) -> list[HardwareKey]:
        """The hardware on which the runs measured the same benchmark."""
        return [known.hardware for known in self._keys.values() if known.benchmark == key.benchmark]

    def hardware(self) -> list[HardwareKey]:
        """The hardware of every measurement."""
        return [key.hardware for key in self._keys.values()]

    def count(self, benchmark: str, parameters: dict[str, object], hardware: HardwareKey) -> int:
        """The keys that the runs measured in a test."""
        wanted = (benchmark, canonical(parameters), hardware.alone)
        keys = self._keys.values()
        return sum((key.benchmark, canonical(key.parameters), key.hardware.alone) == wanted for key in keys)

    def tolerance(self, key: Key) -> float | None:
        """The tolerance that the test itself asked for, in its marker or its call."""
        processes = self._processes.get(key.identity, {})
        return next((m.tolerance for measurements in processes.values() for m in measurements if m.tolerance), None)

    def measurement(self, key: Key) -> Measurement | None:
        """One of the measurements of a key, for its work and its roofline, which are those of all."""
        return next((one for attempts in self._processes.get(key.identity, {}).values() for one in attempts), None)

    def keys(self) -> list[Key]:
        """Every key measured, in the order of the runs."""
        return list(self._keys.values())

    def references(self) -> list[tuple[Key, Reference]]:
        """Everything that the runs measured."""
        found = ((key, self.reference(key)) for key in self._keys.values())
        return [(key, reference) for key, reference in found if reference is not None]


def key_of_entry(entry: Entry) -> Key:
    """The key of a measured entry."""
    assert entry.cache is not None
    assert entry.timing is not None
    return Key(entry.benchmark, entry.parameters, entry.metric, entry.hardware, entry.cache, entry.timing, entry.name)


def reference_of(entry: Entry, source: str) -> Reference:
    """A measured entry as one side of a comparison."""
    return Reference(
        groups=tuple(Group(s.process_medians, s.device_uuid or "", s.started) for s in entry.sessions),
        source=source,
        environments=tuple(session.environment for session in entry.sessions),
        tolerance=entry.tolerance,
        achieved=frozenset(session.achieved for session in entry.sessions),
        clock_hz=typical_clock(session.clock_hz for session in entry.sessions),
        peak_bytes=entry.peak_bytes,
    )


def typical_clock(clocks_hz: Iterable[float | None]) -> float | None:
    """The median of the clocks that are known."""
    known = [clock_hz for clock_hz in clocks_hz if clock_hz is not None]
    return median(known) if known else None


def pooled_median(measurements: Iterable[Measurement]) -> float:
    """The median of all blocks' medians that one process took under one key; a rerun cannot replace what was first."""
    return median(sample for measurement in measurements for sample in measurement.samples.block_medians)


def open_comparator(paths: Sequence[Path]) -> Comparator:
    """A comparator from run files or baseline files, by what is inside.

    Raises:
        BadFile: a file cannot be used, or runs and baselines are mixed.
    """
    runs = [path for path in paths if path.suffix != ".json"]
    baselines = [path for path in paths if path.suffix == ".json"]
    if runs and baselines:
        raise BadFile(f"{runs[0]} is a run and {baselines[0]} a baseline; expected all of one kind")
    if runs:
        return RunComparator([read_run(path) for path in runs])
    return BaselineComparator(Entries.merged(baselines))


def find_reference(comparator: Comparator, key: Key, work: Work) -> tuple[Reference | None, str]:
    """What to compare a measurement of `work` with, or why there is nothing."""
    known = comparator.work(key)
    if known is not None and not known.agrees(work):
        return None, f"the test's work changed from {_brief(known)} to {_brief(work)}, so the times are not comparable"
    reference = comparator.reference(key)
    return reference, "" if reference is not None else _explain_missing(comparator, key)


def _brief(work: Work) -> str:
    amounts = {field.name: getattr(work, field.name) for field in fields(work)}
    return ", ".join(f"{name}={amount}" for name, amount in amounts.items() if amount)


def _explain_missing(comparator: Comparator, key: Key) -> str:
    """Why a comparator has nothing for a key, naming the nearest hardware that it does know."""
    others = [hardware for hardware in comparator.elsewhere(key) if hardware != key.hardware]
    if not others:
        return f"{comparator.name} has no such measurement" if comparator.hardware() else "no baseline recorded"
    known = "; ".join(str(hardware) for hardware in nearest(key.hardware, others))
    return f"no entry for this hardware ({key.hardware}); nearest known: {known}"


def prior_of(references: Iterable[tuple[Key, Reference]], kind: str) -> Prior:
    """What to assume of a class of benchmarks: the starting values, or what the references of that class tell."""
    groups = [reference.groups for key, reference in references if class_of_key(key) == kind]
    return lend(priors()[kind], groups, kind)


def default_tolerance(key: Key) -> float:
    """The tolerance of a test for which nobody asked for one: that of its class."""
    return DEFAULT_TOLERANCES[class_of_key(key)]


def class_of_key(key: Key) -> str:
    """The class of a benchmark by its key. A CPU's partition names its cores; no accelerator's does."""
    return class_of("cpu" if "-cores" in (key.hardware.partition or "") else "device", key.metric)
