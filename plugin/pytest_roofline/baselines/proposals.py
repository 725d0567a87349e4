"""Proposals of baselines from whole runs. Results that may not be of unchanged code are left out or refused."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.entries import NO_TEST, RESOURCES, Baseline, CollectedTest, Entry, Session
from ..core.errors import BadInput, OtherHardware
from ..core.groups import group_by
from ..core.keys import Key, positional_names_note
from ..core.records import Measurement
from ..core.samples import SIBLINGS, for_neighbours
from ..core.units import printable
from ..hardware import family_of, identity_of
from ..stats.key_results import by_process, typical_peak
from ..stats.stats import growth
from .exact_proposals import propose_exact
from .files import key_of_entry
from .picking import Disagreement, Sessions, is_fake, runs_apart
from .plausible import absurd_entry
from .references import leave_out, odd_in, pooled_median, reference_of, typical_clock
from .runs import Run


@dataclass(frozen=True, slots=True)
class Proposal:
    """Entries built from runs, and a line on each result left out, with the reason."""

    baseline: Baseline
    left_out: tuple[str, ...]


class NothingFit(BadInput):
    """The error that no entry can be made.

    Attributes:
        reasons: why, for each measurement.
        busy: whether all of them were disturbed by other processes.
        left_out: the reasons that the message does not hold.
    """

    def __init__(self, where: str, left_out: Sequence[str]) -> None:
        """Make the message, with the only reason or one that all have in common.

        Args:
            where: the run or the number of runs.
            left_out: why each measurement is left out.
        """
        self.reasons = tuple(left_out) or ("no test measured anything",)
        self.busy = bool(left_out) and all(map(for_neighbours, left_out))
        self.left_out = () if self.busy or len(left_out) < 2 else tuple(left_out)
        common_reason = (
            "other processes kept the cores busy during the measurement"
            if self.busy
            else "all measurements were left out"
        )
        nothing = "nothing was measured"
        reason = common_reason if self.busy or self.left_out else next(iter(left_out), nothing)
        super().__init__(f"no measurement in {where} is fit for a baseline: {reason}")


# By key: the runs with their fit measurements of the key. A run is a session.
FitMeasurements = dict[str, list[tuple[Run, list[Measurement]]]]


def propose(
    runs: Sequence[Run], *, everything: bool = False, accept_slower: bool = False
) -> Proposal:
    """Return the entries that whole runs make: one for each measurement and compiled kernel.

    A session is a run, with the median of each process; the entries of compiled kernels are exact.

    Args:
        everything: whether tests count that are not marked `gate=True`, where others are.
        accept_slower: whether measurements count whose test failed only by its verdict.
    """
    family = _one_family(runs)
    _refuse_repeated(runs)
    # Measurements of siblings never become a baseline, so their marks must not leave out other tests.
    has_marked = any(
        measurement.gate and SIBLINGS not in measurement.samples.labels
        for run in runs
        for measurement in run.measurements
    )
    only_marked = has_marked and not everything
    fit_by_key, left_out = _fit_measurements(runs, only_marked, accept_slower)
    left_out += _unify(fit_by_key)
    entries, absurd_lines = _plausible_entries(fit_by_key)
    left_out += absurd_lines
    # A run that lies apart in its median test is refused. A session that is strange in a part of its tests only is left
    # out of these tests.
    odd = runs_apart([_sessions_of(entry) for entry in entries if not entry.is_canary])
    if odd:
        raise BadInput(_disagreement_text(odd, runs))
    entries, odd_lines = _leave_out_odd(entries, runs, accept_slower)
    left_out += odd_lines
    exact, exact_left_out = propose_exact(runs, accept_worse=accept_slower)
    left_out += exact_left_out
    if all(entry.is_canary for entry in entries):
        # Canaries only tell how the machine was while tests were measured. Without tests they are no baseline.
        entries = []
    if not entries and not exact:
        raise NothingFit(str(runs[0].path) if len(runs) == 1 else f"{len(runs)} runs", left_out)
    return Proposal(
        Baseline(family if entries else RESOURCES, tuple(entries), exact=exact), tuple(left_out)
    )


def _unify(fit_by_key: FitMeasurements) -> list[str]:
    """Keep only the more common mode of each key, in place.

    Return a line on each mode left out.

    Raises:
        BadInput: the sessions of a key differ in their work, or in mode otherwise.
    """
    left_out: list[str] = []
    for identity, sessions in fit_by_key.items():
        # Times of different work or of different modes cannot form one entry.
        _refuse_different(
            sessions,
            fault="did different work",
            same=lambda first, measurement: measurement.work == first.work,
        )
        _, measurements = sessions[0]
        if not measurements[0].key.is_canary:
            fit_by_key[identity], minority_lines = _common_mode(sessions)
            left_out += minority_lines
            _refuse_different(
                fit_by_key[identity],
                fault="",
                same=lambda first, measurement: (
                    measurement.samples.achieved == first.samples.achieved
                ),
            )
    return left_out


def _plausible_entries(fit_by_key: FitMeasurements) -> tuple[list[Entry], list[str]]:
    """Return the entry of each key, and a line on each entry whose times are impossible."""
    entries: list[Entry] = []
    left_out = []
    for entry in map(_entry, fit_by_key.values()):
        flaw = absurd_entry(entry)
        if flaw is None:
            entries.append(entry)
        else:
            reason = f"{flaw.observed}; expected {flaw.expected}; {flaw.remedy}"
            left_out.append(printable(f"{entry.label}: {reason}"))
    return entries, left_out


def _fit_measurements(
    runs: Sequence[Run], only_marked: bool, accept_slower: bool
) -> tuple[FitMeasurements, list[str]]:
    """Return the fit measurements of each run by key.

    They are followed by the reasons why other processes are left out. With `only_marked`, a test counts only if it has
    the mark `gate=True`.
    """
    fit_by_key: FitMeasurements = {}
    left_out: list[str] = []
    for run in runs:
        fit_of_run: list[Measurement] = []
        unfit: dict[tuple[str, str], str] = {}
        for measurement in run.measurements:
            key = measurement.key
            reason = run.unfit(measurement, accept_slower) or positional_names_note(key.parameters)
            if not reason and only_marked and not measurement.gate and not key.is_canary:
                reason = "the test is not marked gate=True; include the test with --all"
            if not reason:
                fit_of_run.append(measurement)
            elif not key.is_canary:
                # An unfit canary needs no reason: the tests beside it have the same one.
                unfit[_process(measurement)] = printable(
                    f"{measurement.label} of {run.header.run_id}: {reason}"
                )
        left_out += _distinct_reasons(unfit)
        # A process with one unfit attempt of a key is unfit: keeping only its good attempts would be selective.
        sound_processes = [
            measurement for measurement in fit_of_run if _process(measurement) not in unfit
        ]
        for identity, measurements in group_by(
            sound_processes, lambda measurement: measurement.key.identity
        ).items():
            fit_by_key.setdefault(identity, []).append((run, measurements))
    return fit_by_key, left_out


def _process(measurement: Measurement) -> tuple[str, str]:
    """Return the key and the process of a measurement."""
    return measurement.key.identity, measurement.process


def _distinct_reasons(unfit: Mapping[tuple[str, str], str]) -> list[str]:
    """Return why processes are unfit, once a key and kind of reason.

    The reasons of a key's processes differ only in their numbers, so the last of each kind is kept. `unfit` has them by
    the identity of the key and the process.
    """
    reasons = {
        (identity, re.sub(r"[\d.]+", "", reason)): reason for (identity, _), reason in unfit.items()
    }
    return list(reasons.values())


def _disagreement_text(odd: Sequence[Disagreement], runs: Sequence[Run]) -> str:
    """Return the sentence on runs that disagree with the others.

    It says by how much, over how many tests, and whether they are clear outliers.
    """
    paths = {run.header.run_id: str(run.path) for run in runs}
    worst = odd[0]
    other_paths = [path for run_id, path in paths.items() if run_id != worst.run_id]
    reference = other_paths[0] if len(runs) == 2 else "the others"
    texts = "; ".join(
        f"{paths[distance.run_id]} is {_distance_text(distance, reference)}" for distance in odd
    )
    if 2 * len(odd) >= len(runs):
        remedy = "choose runs of one kind (--driver, --before, --after), or record more runs and propose all of them"
        return f"{texts}; the {len(runs)} runs disagree, and none is a clear outlier; {remedy}"
    return f"{texts}; runs of unchanged code differ less; find out why, and propose only the other runs"


def _leave_out_odd(
    entries: Sequence[Entry], runs: Sequence[Run], accept_slower: bool
) -> tuple[list[Entry], list[str]]:
    """Return the entries without odd sessions, and a line on each session.

    The line says how to keep the session. With `accept_slower` slower sessions stay.
    """
    odd = {
        session: tests
        for session, tests in odd_in(entries).items()
        if not (accept_slower and session.change > 0)
    }
    paths = {(identity_of(run.header.environment), run.header.started): run.path for run in runs}
    lines = [
        f"{paths[session.device, session.started]}, {session.text}; "
        f"{'add --accept-slower to keep the run' if session.change > 0 else 'propose the run alone to keep it'}"
        for session in odd
    ]
    return [leave_out(entry, odd) for entry in entries], list(map(printable, lines))


def _distance_text(distance: Disagreement, reference: str) -> str:
    """Return `12.3 % slower than the others (8.1 standard errors, median of 14 tests)`."""
    change = growth(distance.estimate)
    over = f", median of {distance.tests} tests" if distance.tests > 1 else ""
    word = "slower" if change > 0 else "faster"
    return f"{abs(change) * 100:.1f} % {word} than {reference} ({abs(distance.errors):.1f} standard errors{over})"


def _one_family(runs: Sequence[Run]) -> str:
    """Return the hardware family of all runs.

    Raises:
        BadInput: there is no run, or the runs are of different hardware.
    """
    if not runs:
        raise BadInput("no run is given; expected at least one")
    # Compiled kernels do not depend on the machine that compiled them, so runs without measurements fit any family.
    runs = [run for run in runs if run.measurements]
    fake = {is_fake(run): run for run in runs}
    if len(fake) > 1:
        raise OtherHardware(
            f"{fake[True].path} was measured on a fake device and {fake[False].path} on a real one; "
            "propose these runs separately"
        )
    families = {family_of(run.header.environment.device): run for run in runs}
    keys = {
        str(measurement.key.hardware.alone): run for run in runs for measurement in run.measurements
    }
    if len(families) > 1 or len(keys) > 1:
        hardware = "; ".join(f"{run.path} is {key}" for key, run in keys.items())
        raise OtherHardware(
            f"the runs are of different hardware ({hardware}); expected one hardware; propose the runs "
            "of each hardware separately"
        )
    return next(iter(families), RESOURCES)


def _refuse_repeated(runs: Sequence[Run]) -> None:
    """Raise BadInput where a run is given twice."""
    paths: dict[str, Path] = {}
    for run in runs:
        if run.header.run_id in paths:
            raise BadInput(
                f"{run.path} and {paths[run.header.run_id]} are the same run ({run.header.run_id}); name this run once"
            )
        paths[run.header.run_id] = run.path


def _refuse_different(
    sessions: Sequence[tuple[Run, list[Measurement]]],
    fault: str,
    same: Callable[[Measurement, Measurement], bool],
) -> None:
    """Raise BadInput for runs whose measurements differ in kind.

    Args:
        fault: the difference, for the message; empty for a difference in mode.
        same: compares a measurement with the first one.
    """
    first_run, (first, *_) = sessions[0]
    for run, measurements in sessions:
        for measurement in measurements:
            if same(first, measurement):
                continue
            first_mode, mode = (
                ", ".join(record.samples.achieved) or "as asked" for record in (first, measurement)
            )
            fault_text = f"{fault} in {first_run.path} and {run.path}"
            mode_text = f"was timed {first_mode} in {first_run.path} and {mode} in {run.path}"
            raise BadInput(
                f"{first.label} {fault_text if fault else mode_text}, so these times cannot form one entry; "
                "find out why they differ, and propose only runs that agree"
            )


def _common_mode(
    sessions: list[tuple[Run, list[Measurement]]],
) -> tuple[list[tuple[Run, list[Measurement]]], list[str]]:
    """Return the sessions of one key with only the more common of two modes of timing.

    They are followed by a line on the other mode. The two modes are timing by a graph and timing
    call by call. Only short calls are timed by a graph, so a call near that limit is timed in either
    mode until a baseline decides.
    """
    measured = [measurement for _, measurements in sessions for measurement in measurements]
    by_graph = {
        _process(measurement) for measurement in measured if "graph" in measurement.samples.achieved
    }
    by_call = {_process(measurement) for measurement in measured} - by_graph
    # All processes were timed in one mode.
    if not by_graph or not by_call:
        return sessions, []
    majority = by_graph if len(by_graph) >= len(by_call) else by_call
    minority_count, majority_count = sorted((len(by_graph), len(by_call)))
    total = minority_count + majority_count
    rare, common = "call by call", "by replaying a graph"
    if majority is by_call:
        rare, common = common, rare
    line = (
        f"{measured[0].label}: {minority_count} of {total} processes timed the test {rare}, the others {common}; the "
        f"two modes are not comparable, so the baseline holds only the other {majority_count} processes"
    )
    of_majority = [
        (run, [measurement for measurement in measurements if _process(measurement) in majority])
        for run, measurements in sessions
    ]
    common_sessions = [(run, measurements) for run, measurements in of_majority if measurements]
    return common_sessions, [printable(line)]


def _entry(sessions: Sequence[tuple[Run, list[Measurement]]]) -> Entry:
    """Return the entry of a key; its test's marks are those of the newest run."""
    first_run, (first, *_) = sessions[0]
    key: Key = first.key
    _, newest = max(sessions, key=lambda session: session[0].header.started)
    test = newest[-1]
    return Entry(
        benchmark=key.benchmark,
        name=key.name,
        parameters=key.parameters,
        metric=key.metric,
        kind="measured",
        hardware=key.hardware,
        cache=key.cache,
        timing=key.timing,
        work=first.work,
        unit="s",
        provenance={
            "tool": sessions[-1][0].header.tool,
            "device": first_run.header.environment.device.product,
        },
        sessions=tuple(_session(run, measurements) for run, measurements in sessions),
        peak_bytes=_newest_peak(sessions),
        called=first.label if first.label != key.label else "",
        # What a program imported is no test that a run could select.
        test=CollectedTest(test.test_id, test.tier, test.marks) if test.tier else NO_TEST,
    )


def _sessions_of(entry: Entry) -> Sessions:
    """Return the processes of an entry by their run."""
    run_ids = (session.run_id for session in entry.sessions)
    groups = reference_of(entry, "").groups
    return key_of_entry(entry), dict(zip(run_ids, groups, strict=True))


def _newest_peak(sessions: Sequence[tuple[Run, list[Measurement]]]) -> int | None:
    """Return the peak of the newest run that has one.

    The peak of an older run may be that of other code.
    """
    newest_first = sorted(sessions, key=lambda session: session[0].header.started, reverse=True)
    peaks = (typical_peak(by_process(measurements).values()) for _, measurements in newest_first)
    return next((peak for peak in peaks if peak is not None), None)


def _session(run: Run, measurements: Sequence[Measurement]) -> Session:
    """Return the session of a run's measurements of one key.

    All of them were timed in one mode.
    """
    processes = by_process(measurements)
    return Session(
        run_id=run.header.run_id,
        started=run.header.started,
        process_medians=tuple(pooled_median(group) for group in processes.values()),
        device_uuid=identity_of(run.header.environment) or None,
        environment=run.header.environment.comparable() | measurements[0].comparable(),
        achieved=measurements[0].samples.achieved,
        clock_hz=typical_clock(measurement.samples.clock_hz for measurement in measurements),
    )
