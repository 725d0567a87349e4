"""Measurements that may be exported, and their description.

A number that must not be trusted is not written.

All formats say the same of a measurement beside its samples, and so does the replay into pytest-benchmark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from ..baselines.picking import hardware_of, is_imported
from ..baselines.run_rows import rows_of_run
from ..baselines.runs import Run
from ..core.errors import BadInput, OtherHardware
from ..core.groups import group_by
from ..core.records import Header, Measurement
from ..core.rows import FIGURE, KERNEL, TIME, Row
from ..core.units import format_share, format_tolerance
from ..core.verdicts import Kind
from ..core.work import RATE_UNITS, rate_suffix
from ..stats.key_results import KeyResults


@dataclass(frozen=True, slots=True)
class Exportable:
    """One measurement for export.

    `row.measurements` are those of processes that may be trusted, in order. `name` is the node id of the test. The name
    of the measurement follows unless it was the first of the test. An imported measurement has its label as name.
    `seconds` is the centre of the processes where several were judged.
    """

    row: Row
    name: str
    measurement: Measurement
    seconds: float
    imported: bool = False

    @property
    def processes(self) -> tuple[Measurement, ...]:
        """The slowest attempt of each process that may be trusted."""
        return self.row.measurements

    @property
    def header(self) -> Header:
        """The header of its run."""
        assert self.row.header is not None
        return self.row.header

    @property
    def bounds_s(self) -> tuple[float, float] | None:
        """The smallest and the largest median of its processes, in seconds.

        For a single process the medians of its blocks count. None where there is only one median. The bounds always
        include the centre.
        """
        medians = (
            self.measurement.samples.block_medians
            if len(self.processes) == 1
            else [process.median_s for process in self.processes]
        )
        if len(medians) < 2:
            return None
        return min(*medians, self.seconds), max(*medians, self.seconds)

    @property
    def rounds_s(self) -> tuple[float, ...]:
        """The samples of all its processes, in seconds per call.

        Samples of excluded blocks are left out.
        """
        return tuple(value for measurement in self.processes for value in measurement.samples.kept)

    @property
    def rate(self) -> tuple[float, str] | None:
        """The rate in GB/s or TFLOP/s, and the unit; None without one."""
        return _rate(self.row)

    def inverse_bounds(self, value: float) -> tuple[float, float] | None:
        """Return the bounds of a value that falls as the time rises.

        Example: a rate, whose upper bound belongs to the fastest process.
        """
        if self.bounds_s is None:
            return None
        fastest, slowest = self.bounds_s
        return value * self.seconds / slowest, value * self.seconds / fastest


@dataclass(frozen=True, slots=True)
class Omission:
    """A result that is not exported, and the reason.

    `measured` is true if it has a number, which somebody may miss in the export.
    """

    label: str
    reason: str
    measured: bool


def select_exportable(runs: Sequence[Run]) -> tuple[list[Exportable], list[Omission]]:
    """Return the measurements to export, in order, and the omissions.

    A test that failed only because it is slower is exported: a dashboard without it would show that all is well.
    """
    _refuse_several(runs)
    exportables: list[Exportable] = []
    left_out: list[Omission] = []
    for run in runs:
        # The names of a test's measurements, in order: the position of one of them is a part of its full name.
        names, imported = _names_by_test(run), is_imported(run)
        for row in rows_of_run(run):
            reason, measurement = _omission_reason(run, row), row.measurement
            if reason:
                left_out.append(Omission(row.label, reason, row.metric in (TIME, FIGURE)))
            elif measurement is not None and row.time_s is not None:
                position = names[row.test].index(measurement.key.name)
                name = row.label if imported else _full_name(row.test, measurement, position)
                exportables.append(
                    Exportable(_trusted_row(run, row), name, measurement, row.time_s, imported)
                )
    return exportables, left_out


def _full_name(test_id: str, measurement: Measurement, position: int) -> str:
    """Return the name of a measurement.

    It is the id of its test, and behind it what tells it from the first of the test. `position` is that among the
    measurements of the test, from 0.
    """
    if position == 0:
        return test_id
    return f"{test_id}.{measurement.key.name or position + 1}"


def _trusted_row(run: Run, row: Row) -> Row:
    """Return a row with only the measurements of processes that may be trusted."""
    trusted_processes = [
        process for process in row.measurements if not run.unfit(process, accept_slower=True)
    ]
    return replace(row, measurements=tuple(KeyResults(trusted_processes).sound(None)))


def _names_by_test(run: Run) -> dict[str, list[str]]:
    """Return the names of each test's measurements, in order."""
    tests = group_by(run.measurements, key=lambda measurement: measurement.test_id)
    return {
        test_id: list(dict.fromkeys(measurement.key.name for measurement in measurements))
        for test_id, measurements in tests.items()
    }


def refuse_duplicates(names: Iterable[tuple[str, Exportable]]) -> None:
    """Raise BadInput if one name is of two measurements.

    The other tool would keep only one of them.
    """
    first_by_name: dict[str, Exportable] = {}
    for name, entry in names:
        first_entry = first_by_name.setdefault(name, entry)
        if first_entry is not entry:
            runs = " and ".join(
                dict.fromkeys(str(duplicate.row.path) for duplicate in (first_entry, entry))
            )
            raise BadInput(
                f"{name} is twice in {runs}; expected each measurement once; export every run separately, and import "
                "every file separately"
            )


def _refuse_several(runs: Sequence[Run]) -> None:
    """Raise OtherHardware for runs of several kinds of hardware."""
    run_by_hardware: dict[str, Run] = {}
    for run in runs:
        run_by_hardware.setdefault(str(hardware_of(run)), run)
    if len(run_by_hardware) > 1:
        sources = "; ".join(
            f"{run.path} of {hardware}" for hardware, run in run_by_hardware.items()
        )
        raise OtherHardware(
            f"these runs are of different hardware: {sources}; export each hardware into a separate file"
        )


def _omission_reason(run: Run, row: Row) -> str:
    """Return why a row of a run is not exported.

    A row is a test's measurement, or a test without one. Empty where it is exported, and where the test passed without
    a measurement.
    """
    if row.measurement is not None:
        invalid = row.reason or row.verdict if row.verdict == Kind.INVALID else ""
        figure = "the measurement is a figure, not a time" if row.metric == FIGURE else ""
        return run.unfit(row.measurement, accept_slower=True) or invalid or figure
    # From here on the row has no time: it is a compiled kernel, or a test that did not get as far.
    if row.metric == KERNEL:
        return "a compiled kernel has no time"
    if row.lost is not None:
        return f"the test ran out of memory: {row.lost.allocation.message}"
    if row.ended is None or row.ended.outcome == "passed":
        return ""
    return f"the test {'failed' if row.ended.outcome == 'failed' else 'was skipped'}: {row.reason}"


def facts(row: Row, measurements: Sequence[Measurement]) -> dict[str, object]:
    """Return the known facts of a row, by name.

    `measurements` are those of the exported samples. The time, the rate and the verdict are of all judged processes.
    """
    measurement, verdict = row.measurement, row.time_verdict
    assert measurement is not None
    rate, unit = _rate(row) or (None, None)
    return _without_unknown(
        {
            "label": row.label,
            "seconds": row.time_s,
            "processes": (verdict.processes if verdict is not None else 0) or len(measurements),
            "metric": row.counting,
            "rate": rate,
            "rate_unit": unit,
            "share_of_roofline": row.roofline_share,
            "roofline_source": row.roofline_source,
            "verdict": row.verdict,
            "change": row.change,
            "changed": list(verdict.subject.changed) or None if verdict is not None else None,
            "tolerance": row.tolerance,
            "baseline_s": row.baseline_time_s,
            "work": {name: amount for name, amount in asdict(measurement.work).items() if amount},
            "calls_per_sample": measurements[0].samples.iterations,
            "samples": sum(len(process.samples.kept) for process in measurements),
            "samples_left_out": sum(
                len(process.samples.seconds) - len(process.samples.kept) for process in measurements
            ),
            "cache": row.cache,
            "timing": row.timing,
            "labels": row.labels,
            "peak_bytes": measurement.peak_bytes,
            "held_bytes": row.held_bytes,
            "compile_s": row.compile_s,
            "hardware": row.hardware,
        }
    )


def origin(header: Header) -> dict[str, object]:
    """Return the known facts of a measurement's run and machine."""
    device = header.environment.device
    return _without_unknown(
        {
            "device": device.product,
            "device_uuid": device.uuid,
            "driver": device.driver,
            "code": {state.name: str(state) for state in header.environment.code} or None,
            "host": header.environment.host.name,
            "run_id": header.run_id,
            "started": header.started,
            "tool": header.tool,
        }
    )


def sentence(entry: Exportable) -> str:
    """Return the text beside a number on a dashboard.

    Its lines are verdict, roofline, hardware, driver and run.
    """
    row = entry.row
    known_facts = facts(row, entry.processes) | origin(entry.header)
    tolerance = ""
    if row.tolerance is not None:
        tolerance = f" (tolerance {format_tolerance(row.tolerance)})"
    lines = [f"verdict: {row.verdict}{tolerance}"]
    if row.roofline_share is not None:
        lines.append(
            f"roofline: {format_share(row.roofline_share)} ({known_facts['roofline_source']})"
        )
    changed = row.time_verdict.subject.changed if row.time_verdict is not None else ()
    lines += [f"changed: {change}" for change in changed]
    lines += [
        f"{name}: {known_facts[name]}"
        for name in ("hardware", "driver", "processes", "run_id")
        if known_facts.get(name)
    ]
    return "\n".join(lines)


def _rate(row: Row) -> tuple[float, str] | None:
    """Return the rate of a row in GB/s or TFLOP/s, and the unit.

    None where the row has only a time.
    """
    suffix, rate = rate_suffix(row.counting or ""), row.rate
    if suffix is None or rate is None:
        return None
    return rate / RATE_UNITS[suffix], "TFLOP/s" if suffix == "TFLOPS" else "GB/s"


def _without_unknown(values: dict[str, object]) -> dict[str, object]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}
