"""References of a measurement: entries of baseline files, or saved runs, behind one interface."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import fields, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType

from ..core.directions import is_of_tool
from ..core.entries import Entry, Statistic
from ..core.errors import BadFile
from ..core.facts import HardwareKey
from ..core.groups import group_by
from ..core.keys import Key, canonical, positional_names_note
from ..core.records import Measurement
from ..core.verdicts import Group, OddSession, Reference
from ..core.work import Work
from ..hardware import identity_of
from ..stats.key_results import typical_peak
from ..stats.limits import MEDIANS_ONLY, Summary, exact, process_s
from .files import Entries, key_of_entry, nearest
from .references import (
    Odd,
    commit_of,
    leave_out,
    odd_among,
    odd_days,
    pooled_median,
    reference_of,
    typical_clock,
    unique_modes,
)
from .runs import Run, read_run


class Comparator(ABC):
    """Something that may know how long a measurement used to take: entries of baseline files, or runs."""

    entries = Entries({}, ())
    runs: Sequence[Run] = ()
    # Measurements of runs that cannot be compared, each with the reason.
    unfit: Sequence[tuple[Measurement, str]] = ()
    # The odd sessions that were left out, each with the names of the tests in which it is strange.
    odd: Odd = MappingProxyType({})

    @property
    @abstractmethod
    def name(self) -> str:
        """Return its name in a header: file names."""

    @abstractmethod
    def reference(self, key: Key) -> Reference | None:
        """Return the reference under exactly this key, or None."""

    @abstractmethod
    def environments(self, key: Key) -> tuple[dict[str, str], ...]:
        """Return the facts of every session or process, as text by name."""

    @abstractmethod
    def _record(self, key: Key) -> Entry | Measurement | None:
        """Return a record of this key: its entry, or one of its measurements."""

    def work(self, key: Key) -> Work | None:
        """Return the work that was timed under this key.

        Times of different work must not be compared.
        """
        record = self._record(key)
        return None if record is None else record.work

    def label(self, key: Key) -> str:
        """Return its label of this key."""
        record = self._record(key)
        return key.label if record is None else record.label

    @abstractmethod
    def achieved(self, key: Key) -> tuple[tuple[str, ...], ...]:
        """Return the modes of the processes, as `Reference.achieved`.

        It is empty where none are recorded. A measurement asks for it before it starts, when nothing else may be read.
        """

    @abstractmethod
    def keys(self) -> list[Key]:
        """Return all of its keys."""

    def measured(self, key: Key) -> list[Measurement]:
        """Return all measurements of a key; baseline files hold none."""
        del key
        return []

    def measurement(self, key: Key) -> Measurement | None:
        """Return the first measurement of a key; baseline files hold none.

        It serves for the work and the roofline, in which all measurements of a key agree.
        """
        return next(iter(self.measured(key)), None)

    def test_of(self, key: Key) -> str:
        """Return the id of the test that measured a key; empty where it is unknown."""
        measurement = self.measurement(key)
        return "" if measurement is None else measurement.test_id

    def tolerance(self, key: Key) -> float | None:
        """Return the tolerance that the test's marker or call gave.

        Baseline files do not hold it.
        """
        tolerances = (measurement.tolerance for measurement in self.measured(key))
        return next(filter(None, tolerances), None)

    def judged(self, key: Key) -> tuple[Group, ...]:
        """Return the processes of a key as the new side of a comparison."""
        reference = self.reference(key)
        return reference.groups if reference is not None else ()

    def summary(self, key: Key, statistic: Statistic) -> Summary | str:
        """Return the processes of a key, each summed up by a statistic, or why that is impossible.

        `statistic` is that of a published figure: the median, mean or fastest call. Baseline files hold medians only.
        """
        groups = self.judged(key)
        return Summary(groups) if groups and statistic == "median" else MEDIANS_ONLY

    def references(self) -> list[tuple[Key, Reference]]:
        """Return every key with its reference."""
        return [
            (key, reference)
            for key in self.keys()
            if (reference := self.reference(key)) is not None
        ]

    def without_odd_sessions(self) -> "Comparator":
        """Return the comparator without its odd sessions."""
        odd = odd_among(self.references())
        return self._set_aside(odd) if odd else self

    @abstractmethod
    def _set_aside(self, odd: Odd) -> "Comparator":
        """Return the comparator without these sessions in their strange tests."""

    def _odd_in(self, key: Key) -> tuple[OddSession, ...]:
        """Return the odd sessions that were left out of a test."""
        return tuple(session for session, tests in self.odd.items() if key.identity in tests)

    def hardware(self) -> list[HardwareKey]:
        """Return the hardware of every key."""
        return [key.hardware for key in self.keys()]

    def count(
        self,
        tests: Iterable[tuple[str, dict[str, object]]],
        test_ids: Collection[str],
        hardware: HardwareKey,
    ) -> int:
        """Return the number of measurements on a hardware, with any number of its devices.

        Args:
            tests: the benchmark and parameters of each test.
            test_ids: of tests whose figures of tools count; these have the benchmarks and parameters of their tools.
        """
        keys = [key for key in self.keys() if key.hardware.alone == hardware.alone]
        counts = Counter((key.benchmark, canonical(key.parameters)) for key in keys)
        of_tests = sum(counts[benchmark, canonical(parameters)] for benchmark, parameters in tests)
        return of_tests + sum(
            is_of_tool(key.benchmark) and self.test_of(key) in test_ids for key in keys
        )


class BaselineComparator(Comparator):
    """Compares with the `measured` entries of baseline files."""

    def __init__(self, entries: Entries, odd: Odd = MappingProxyType({})) -> None:
        self.entries = entries
        self.odd = odd

    @property
    def name(self) -> str:
        """Return the paths of the files."""
        return ", ".join(str(path) for path in self.entries.paths) or "no baseline"

    def reference(self, key: Key) -> Reference | None:
        """Return the processes of the entry for `key`."""
        entry = self._record(key)
        if entry is None:
            return None
        reference = reference_of(entry, str(self.entries.path_of(entry)))
        return replace(reference, odd=self._odd_in(key_of_entry(entry)))

    def environments(self, key: Key) -> tuple[dict[str, str], ...]:
        """Return the environments of the entry's sessions."""
        entry = self._record(key)
        return () if entry is None else tuple(session.environment for session in entry.sessions)

    def achieved(self, key: Key) -> tuple[tuple[str, ...], ...]:
        """Return the modes of the entry's sessions."""
        entry = self._record(key)
        return unique_modes(session.achieved for session in entry.sessions) if entry else ()

    def test_of(self, key: Key) -> str:
        """Return the id of the test that recorded the entry for `key`."""
        entry = self._record(key)
        return "" if entry is None else entry.test.id

    def keys(self) -> list[Key]:
        """Return the keys of the measured entries."""
        return [key_of_entry(entry) for entry in self.entries if entry.kind == "measured"]

    def _set_aside(self, odd: Odd) -> "BaselineComparator":
        return BaselineComparator(
            self.entries.with_changes(lambda entry: leave_out(entry, odd)), odd
        )

    def _record(self, key: Key) -> Entry | None:
        """Return the measured entry of a key; None where the baselines have none."""
        for entry in self.entries.of(key.benchmark, key.name):
            if entry.kind == "measured" and entry.matches(key):
                return entry
        return None


# A run's name, when it began, and its device: a name alone may be the same each night, or on each node.
Session = tuple[str, str, str]
Process = tuple[Session, str]


class RunComparator(Comparator):
    """Compares with the fit measurements of saved runs; several runs stand side by side as processes."""

    def __init__(self, runs: Sequence[Run]) -> None:
        """Sort the measurements of runs by key and process, and set unfit ones apart."""
        self.runs = runs
        # The measurements that are not compared, each with the reason.
        self.unfit = unfit = []
        # The attempts by key, and then by process.
        self._processes: dict[str, dict[Process, list[Measurement]]] = {}
        # The key of each identity, and the run of each session.
        self._keys: dict[str, Key] = {}
        self._runs: dict[Session, Run] = {}
        for run in runs:
            session = run.header.run_id, run.header.started, identity_of(run.header.environment)
            for measurement in run.measurements:
                # A test that failed because it is slower counts: that is what a comparison looks for.
                if reason := run.unfit(measurement, accept_slower=True) or positional_names_note(
                    measurement.key.parameters
                ):
                    unfit.append((measurement, reason))
                else:
                    self._add(run, session, measurement)

    def _add(self, run: Run, session: Session, measurement: Measurement) -> None:
        """Add an attempt, unless it did other work than the first process of its key."""
        processes = self._processes.setdefault(measurement.key.identity, {})
        # All processes of a key do the work of its first one: times of different work are not comparable.
        first_attempts = next(iter(processes.values()), [])
        if not first_attempts or measurement.work == first_attempts[0].work:
            processes.setdefault((session, measurement.process), []).append(measurement)
            self._keys[measurement.key.identity] = measurement.key
            self._runs[session] = run

    @property
    def name(self) -> str:
        """Return the paths of the runs."""
        return ", ".join(str(run.path) for run in self.runs)

    def reference(self, key: Key) -> Reference | None:
        """Return the processes that measured `key`; a run is a session.

        The number of a process is the median over all of its attempts.
        """
        processes = self._processes.get(key.identity)
        if not processes:
            return None
        measurements = self.measured(key)
        # Commit and versions are those of the newest run, as a reader looks for what changed since then.
        newest = self._newest(processes).environment.comparable()
        return Reference(
            groups=_by_session(
                {process: pooled_median(attempts) for process, attempts in processes.items()}
            ),
            source=self.name,
            achieved=unique_modes(measurement.samples.achieved for measurement in measurements),
            clock_hz=typical_clock(measurement.samples.clock_hz for measurement in measurements),
            peak_bytes=typical_peak(processes.values()),
            odd=self._odd_in(key),
            commit=commit_of(newest),
            driver=newest.get("driver", ""),
            torch=newest.get("torch", ""),
        )

    def _newest(self, processes: Iterable[tuple[Session, str]]) -> Run:
        """Return the run of the newest session of some processes."""
        return self._runs[max((session for session, _ in processes), key=itemgetter(1))]

    def environments(self, key: Key) -> tuple[dict[str, str], ...]:
        """Return the environment and mode of every process under `key`."""
        return tuple(
            self._runs[session].environment.everything() | attempts[0].comparable()
            for (session, _), attempts in self._processes.get(key.identity, {}).items()
        )

    def judged(self, key: Key, statistic: Statistic = "median") -> tuple[Group, ...]:
        """Return the processes of a key, each by its slowest attempt.

        A reference uses the median of all attempts instead: the slowest would only make it looser.
        """
        processes = self._processes.get(key.identity, {}).items()
        return _by_session(
            {
                process: max(process_s(attempt.samples, statistic) for attempt in attempts)
                for process, attempts in processes
            }
        )

    def summary(self, key: Key, statistic: Statistic) -> Summary:
        """Return the processes of a key, each summed up by a statistic: its median, mean or fastest call.

        The summary tells whether every attempt gives the statistic itself, and not only a bound on it.
        """
        all_exact = all(exact(measurement.samples, statistic) for measurement in self.measured(key))
        return Summary(self.judged(key, statistic), all_exact)

    def measured(self, key: Key) -> list[Measurement]:
        """Return every attempt of every process, in the order of runs."""
        return list(chain.from_iterable(self._processes.get(key.identity, {}).values()))

    def _record(self, key: Key) -> Measurement | None:
        return self.measurement(key)

    def achieved(self, key: Key) -> tuple[tuple[str, ...], ...]:
        """Return the modes in which the runs timed it."""
        return unique_modes(measurement.samples.achieved for measurement in self.measured(key))

    def keys(self) -> list[Key]:
        """Return every key of the runs, in their order."""
        return list(self._keys.values())

    def _set_aside(self, odd: Odd) -> "RunComparator":
        """Return a copy without the processes of odd sessions in their strange tests.

        `odd` gives for each odd session the tests in which it is strange; in all others its processes stay.
        """
        remaining = copy(self)
        remaining.odd = odd
        remaining._processes = {
            identity: {
                process: attempts
                for process, attempts in processes.items()
                if not _is_odd(odd, identity, process)
            }
            for identity, processes in self._processes.items()
        }
        return remaining


def _is_odd(odd: Odd, identity: str, process: Process) -> bool:
    """Return True where a process is of an odd session of a test."""
    (_, started, device), _ = process
    return (device, started) in odd_days(odd, identity)


def _by_session(seconds_by_process: dict[Process, float]) -> tuple[Group, ...]:
    """Return the times of processes as sessions."""
    return tuple(
        Group(tuple(seconds_by_process[process] for process in members), device, began)
        for (_, began, device), members in group_by(seconds_by_process, itemgetter(0)).items()
    )


def open_comparator(paths: Sequence[Path]) -> Comparator:
    """Return a comparator from run files or baseline files."""
    runs = [path for path in paths if path.suffix != ".json"]
    baselines = [path for path in paths if path.suffix == ".json"]
    if runs and baselines:
        raise BadFile(
            f"{runs[0]} is a run and {baselines[0]} is a baseline; expected only runs or only baselines"
        )
    return (
        RunComparator([read_run(path) for path in runs])
        if runs
        else BaselineComparator(Entries.from_files(baselines))
    )


def find_reference(comparator: Comparator, key: Key, work: Work) -> tuple[Reference | None, str]:
    """Return the reference for a measurement of `work`, or None and the reason why there is none."""
    reference_work = comparator.work(key)
    if reference_work is not None and reference_work != work:
        before, now = _amounts_text(reference_work), _amounts_text(work)
        reason = f"the test's work changed from {before} to {now}, so the times are not comparable"
        return None, reason
    reference = comparator.reference(key)
    if reference is not None:
        return reference, ""
    other_hardware = [
        candidate.hardware
        for candidate in comparator.keys()  # noqa: SIM118
        if (candidate.benchmark, candidate.name) == (key.benchmark, key.name)
        and candidate.hardware != key.hardware
    ]
    if other_hardware:
        names = "; ".join(map(str, nearest(key.hardware, other_hardware)))
        return None, f"no entry for this hardware ({key.hardware}); nearest entries: {names}"
    if not comparator.hardware():
        return None, "no baseline recorded"
    return None, f"{comparator.name} has no measurement of this test"


def _amounts_text(work: Work) -> str:
    """Return the amounts of work that are not zero, as `traffic_bytes=1024, flops=8`."""
    amounts = {amount_field.name: getattr(work, amount_field.name) for amount_field in fields(work)}
    return ", ".join(f"{name}={amount}" for name, amount in amounts.items() if amount)
