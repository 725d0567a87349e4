"""Which measurements of runs may go out, and of which processes: a number that must not be trusted leaves nobody."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...core.errors import BadInput, OtherHardware
from ...core.records import Measurement
from ...judging.picking import hardware_of, is_imported
from ...judging.report_rows import ReportRow, report_rows
from ...judging.runs import Run
from ...judging.trials import Trial
from ...judging.verdicts import Kind


@dataclass(frozen=True, slots=True)
class Standing:
    """One measurement that goes out.

    Args:
        row: what its run says of it.
        test_id: the node id of the test, with the name of the measurement behind it where that was not its first. Of
            what another tool measured there is none, and the name of its file is another one tomorrow: the label.
        measurement: the one that stands for all processes.
        processes: of each process that may be trusted its slowest attempt, in the order taken.
        seconds: per call; the centre of the processes where several were judged.
    """

    row: ReportRow
    test_id: str
    measurement: Measurement
    processes: tuple[Measurement, ...]
    seconds: float

    @property
    def label(self) -> str:
        """As people call it, without the file that the test lives in: `memcpy_d2d[64MiB]`."""
        return self.row.label

    @property
    def bounds_s(self) -> tuple[float, float] | None:
        """The smallest and the largest median of a process, in seconds per call; of a single process those of a block.

        The centre lies between them. None where there is but one median, which tells nothing of its spread.
        """
        alone = len(self.processes) == 1
        medians = self.measurement.samples.block_medians if alone else [one.median_s for one in self.processes]
        return (min(*medians, self.seconds), max(*medians, self.seconds)) if len(medians) > 1 else None

    @property
    def rounds_s(self) -> tuple[float, ...]:
        """Every sample behind it, in seconds per call: of all its processes, blocks that do not count left out."""
        return tuple(value for one in self.processes for value in one.samples.kept)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What stays at home, and why; `measured` where it has a number that somebody may look for."""

    label: str
    reason: str
    measured: bool


def standing(runs: Sequence[Run]) -> tuple[list[Standing], list[LeftOut]]:
    """What of these runs goes out, in the order measured, and what does not.

    A test that failed only because it is slower goes out: a dashboard without it would show that all is well.

    Raises:
        OtherHardware: they are of several.
    """
    _refuse_several(runs)
    fit: list[Standing] = []
    left_out: list[LeftOut] = []
    for run in runs:
        places = _places(run)
        for row in _joined(run):
            why = _why_not(row)
            if why:
                left_out.append(LeftOut(row.label, why, row.what == "time"))
            elif row.measurement is not None and row.seconds is not None:
                place = places[row.test_id].index(row.measurement.key.name)
                fit.append(Standing(row, _test_id(row, place), row.measurement, _trusted(row), row.seconds))
    return fit, left_out


def _places(run: Run) -> dict[str, list[str]]:
    """The names of each test's measurements, in the order taken."""
    known: dict[str, list[str]] = {}
    for one in run.measurements:
        names = known.setdefault(one.test_id, [])
        if one.key.name not in names:
            names.append(one.key.name)
    return known


def _test_id(row: ReportRow, place: int) -> str:
    if is_imported(row.run):
        return row.label
    name = row.measurement.key.name if row.measurement is not None else ""
    return f"{row.test_id}.{name or place + 1}" if place else row.test_id


def _joined(run: Run) -> list[ReportRow]:
    """The rows of a run. Several files of another tool that hold one measurement are several processes of it."""
    rows = report_rows(run)
    if not is_imported(run):
        return rows
    alone = [row for row in rows if row.measurement is None or _why_not(row)]
    known: dict[str, list[ReportRow]] = {}
    for row in rows:
        if row.measurement is not None and not _why_not(row):
            known.setdefault(row.measurement.key.identity, []).append(row)
    return [*(_as_one(same) for same in known.values()), *alone]


def _as_one(rows: Sequence[ReportRow]) -> ReportRow:
    processes = tuple(one for row in rows for one in row.processes)
    return replace(rows[0], processes=processes, measurement=Trial(list(processes)).standing(None))


def refuse_twice(names: Iterable[tuple[str, Standing]]) -> None:
    """Raise where one name stands for two measurements: a reader would keep one of them.

    Raises:
        BadInput: with the name and the runs.
    """
    known: dict[str, Standing] = {}
    for name, one in names:
        first = known.setdefault(name, one)
        if first is not one:
            runs = " and ".join(dict.fromkeys(str(each.row.run.path) for each in (first, one)))
            raise BadInput(
                f"{name} stands twice in {runs}; expected each measurement once, so export each run into a file of its "
                "own"
            )


def _refuse_several(runs: Sequence[Run]) -> None:
    known: dict[str, Run] = {}
    for run in runs:
        known.setdefault(str(hardware_of(run)), run)
    if len(known) > 1:
        told = "; ".join(f"{run.path} of {hardware}" for hardware, run in known.items())
        raise OtherHardware(
            f"these runs are of several hardware: {told}; expected one, so export each into its own file"
        )


def _why_not(row: ReportRow) -> str:
    """Why a row does not go out; empty where it does, and where a test measured nothing and need not have."""
    if row.measurement is not None:
        unfit = row.run.unfit(row.measurement, accept_slower=True)
        return unfit or (row.reason or row.word if row.word == Kind.INVALID.value else "")
    if row.what == "kernel":
        return "a compiled kernel has no time"
    if row.what == "memory":
        return f"memory ran out: {row.reason}"
    if row.outcome is None or row.outcome.outcome == "passed":
        return ""
    return f"its test {'failed' if row.outcome.outcome == 'failed' else 'was skipped'}: {row.reason}"


def _trusted(row: ReportRow) -> tuple[Measurement, ...]:
    """Of each process that may be trusted its slowest attempt."""
    fit = [one for one in row.processes if not row.run.unfit(one, accept_slower=True)]
    return tuple(Trial(fit).sound(None))
