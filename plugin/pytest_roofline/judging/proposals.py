"""Making and renewing baselines: runs become a proposal, a person approves it, and nothing else is touched."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.entries import Baseline, Entry, Session
from ..core.errors import BadInput, OtherHardware
from ..core.keys import Key
from ..core.records import Measurement
from ..core.units import printable
from .baselines import read_baseline, write_baseline
from .comparators import pooled_median
from .hardware import family_of
from .runs import Run


@dataclass(frozen=True, slots=True)
class Proposal:
    """Entries built from runs, and what was left out with the reason."""

    baseline: Baseline
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One entry that an approval adds or replaces; `before_s` is None for a new one."""

    entry: Entry
    before_s: float | None
    after_s: float | None
    processes_before: int = 0


def propose(runs: Sequence[Run], *, everything: bool = False, accept_slower: bool = False) -> Proposal:
    """Entries from whole runs: a session a run, the median of each process within.

    Args:
        runs: runs of one hardware; several sessions make a baseline that knows how much they differ.
        everything: take measurements without `gate=True` too, where some have it.
        accept_slower: take measurements whose test failed only because they were slower: the slowdown is accepted.

    Raises:
        OtherHardware: the runs are of different hardware.
        BadInput: the same run twice, or no measurement that is fit.
    """
    family = _one_family(runs)
    _refuse_repeated(runs)
    gated = not everything and any(m.gate for run in runs for m in run.measurements)
    taken: dict[str, list[tuple[Run, list[Measurement]]]] = {}
    left_out: list[str] = []
    for run in runs:
        fit: dict[str, list[Measurement]] = {}
        unfit: dict[str, str] = {}
        for measurement in run.measurements:
            why = run.unfit(measurement, accept_slower)
            if not why and gated and not measurement.gate:
                why = "not marked gate=True (take it with --all)"
            if why:
                unfit[measurement.key.identity] = printable(f"{measurement.label} of {run.header.run_id}: {why}")
            else:
                fit.setdefault(measurement.key.identity, []).append(measurement)
        # A process that has one unfit attempt under a key is unfit as a whole: keeping the good half would select.
        left_out += unfit.values()
        for identity, measurements in fit.items():
            if identity not in unfit:
                taken.setdefault(identity, []).append((run, measurements))
    for sessions in taken.values():
        _refuse_changed_work(sessions)
        _refuse_other_mode(sessions)
    if not taken:
        raise BadInput(f"no measurement in {_names(runs)} is fit for a baseline: {'; '.join(left_out) or 'none there'}")
    return Proposal(Baseline(family, tuple(_entry(sessions) for sessions in taken.values())), tuple(left_out))


def _names(runs: Sequence[Run]) -> str:
    return ", ".join(str(run.path) for run in runs)


def _one_family(runs: Sequence[Run]) -> str:
    families = {family_of(run.header.environment.device): run for run in runs}
    keys = {str(m.key.hardware): run for run in runs for m in run.measurements if m.key.hardware.devices == 1}
    if len(families) > 1 or len(keys) > 1:
        seen = "; ".join(f"{run.path} is {key}" for key, run in keys.items())
        raise OtherHardware(f"the runs are of different hardware ({seen}); expected one, propose each on its own")
    return next(iter(families))


def _refuse_repeated(runs: Sequence[Run]) -> None:
    seen: dict[str, Path] = {}
    for run in runs:
        if run.header.run_id in seen:
            raise BadInput(
                f"{run.path} and {seen[run.header.run_id]} are the same run ({run.header.run_id}); a run counts once"
            )
        seen[run.header.run_id] = run.path


def _refuse_changed_work(sessions: Sequence[tuple[Run, list[Measurement]]]) -> None:
    first_run, first = sessions[0][0], sessions[0][1][0]
    for run, measurements in sessions:
        if any(measurement.work != first.work for measurement in measurements):
            raise BadInput(
                f"{first.label} did different work in {first_run.path} and {run.path}, so its times cannot stand in "
                "one entry; propose the runs from before and after the change apart"
            )


def _refuse_other_mode(sessions: Sequence[tuple[Run, list[Measurement]]]) -> None:
    first_run, first = sessions[0][0], sessions[0][1][0]
    for run, measurements in sessions:
        for measurement in measurements:
            if measurement.samples.achieved != first.samples.achieved:
                seen = [", ".join(m.samples.achieved) or "as asked" for m in (first, measurement)]
                raise BadInput(
                    f"{first.label} was timed {seen[0]} in {first_run.path} and {seen[1]} in {run.path}, so its times "
                    "cannot stand in one entry; find out why, and propose runs of one kind"
                )


def _entry(sessions: Sequence[tuple[Run, list[Measurement]]]) -> Entry:
    first = sessions[0][1][0]
    key: Key = first.key
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
        provenance={"tool": sessions[-1][0].header.tool, "device": sessions[0][0].header.environment.device.product},
        sessions=tuple(_session(run, measurements) for run, measurements in sessions),
    )


def _session(run: Run, measurements: Sequence[Measurement]) -> Session:
    processes: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        processes.setdefault(measurement.process, []).append(measurement)
    return Session(
        run_id=run.header.run_id,
        started=run.header.started,
        process_medians=tuple(pooled_median(group) for group in processes.values()),
        device_uuid=run.header.environment.device.uuid,
        environment=run.header.environment.comparable() | measurements[0].samples.comparable(),
        achieved=measurements[0].samples.achieved,
    )


def changes(proposal: Baseline, folder: Path) -> list[Change]:
    """What approving `proposal` into `folder` would do, entry by entry."""
    path = folder / f"{proposal.family}.json"
    known = {entry.identity: entry for entry in read_baseline(path).entries} if path.exists() else {}
    return [
        Change(entry, _centre(known[entry.identity]), _centre(entry), len(known[entry.identity].medians))
        if entry.identity in known
        else Change(entry, None, _centre(entry))
        for entry in proposal.entries
        if known.get(entry.identity) != _keep_tolerance(entry, known.get(entry.identity))
    ]


def _centre(entry: Entry) -> float | None:
    if not entry.medians:
        return None
    return math.exp(math.fsum(map(math.log, entry.medians)) / len(entry.medians))


def approve(proposal: Baseline, folder: Path) -> Path:
    """Merge a proposal into the family's file in `folder`; entries that it does not name stay as they are.

    An entry's tolerance is a person's decision: a renewal without one keeps the old.

    Raises:
        BadFile: the file that is there cannot be read, so merging would lose it.
        CannotStore: the file cannot be written.
    """
    path = folder / f"{proposal.family}.json"
    known = {entry.identity: entry for entry in read_baseline(path).entries} if path.exists() else {}
    for entry in proposal.entries:
        known[entry.identity] = _keep_tolerance(entry, known.get(entry.identity))
    write_baseline(path, Baseline(proposal.family, tuple(known.values())))
    return path


def _keep_tolerance(entry: Entry, before: Entry | None) -> Entry:
    if before is None or entry.tolerance is not None:
        return entry
    return replace(entry, tolerance=before.tolerance)
