"""Which measurements of runs may go out, and what is said of each: a number that must not be trusted leaves nobody.

All formats say the same of a measurement beside its samples, and so does the replay into pytest-benchmark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from ..baselines.picking import hardware_of, is_imported
from ..baselines.run_rows import rows_of_run
from ..baselines.runs import Run
from ..core.errors import BadInput, OtherHardware
from ..core.groups import grouped
from ..core.records import Header, Measurement
from ..core.rows import KERNEL, TIME, Row
from ..core.units import format_share, format_tolerance
from ..core.verdicts import Kind
from ..core.work import RATE_UNITS, rate_suffix
from ..stats.key_results import KeyResults


@dataclass(frozen=True, slots=True)
class Exportable:
    """One measurement that goes out; `row.measurements` are those of processes that may be trusted, in order.

    `name` is the node id of the test, with the name of the measurement behind it where that was not its first; of what
    another tool measured the label. `seconds` is the centre of the processes where several were judged.
    """

    row: Row
    name: str
    measurement: Measurement
    seconds: float
    imported: bool = False

    @property
    def processes(self) -> tuple[Measurement, ...]:
        """Of each process that may be trusted its slowest attempt."""
        return self.row.measurements

    @property
    def header(self) -> Header:
        """That of its run."""
        assert self.row.header is not None
        return self.row.header

    @property
    def bounds_s(self) -> tuple[float, float] | None:
        """The smallest and the largest median of a process, or of a single one's blocks; None where there is but one.

        The centre lies between them.
        """
        medians = (
            self.measurement.samples.block_medians
            if len(self.processes) == 1
            else [process.median_s for process in self.processes]
        )
        return (
            (min(*medians, self.seconds), max(*medians, self.seconds)) if len(medians) > 1 else None
        )

    @property
    def rounds_s(self) -> tuple[float, ...]:
        """Every sample behind it, in seconds per call: of all its processes, blocks that do not count left out."""
        return tuple(value for one in self.processes for value in one.samples.kept)

    @property
    def rate(self) -> tuple[float, str] | None:
        """GB/s or TFLOP/s, as the key's metric counts, and the unit; None where a time is all there is."""
        return _rate(self.row)

    def inverse(self, value: float) -> tuple[float, float] | None:
        """The bounds of a value that falls as the time rises: the fastest process has the highest rate."""
        if self.bounds_s is None:
            return None
        fastest, slowest = self.bounds_s
        return value * self.seconds / slowest, value * self.seconds / fastest


@dataclass(frozen=True, slots=True)
class Omission:
    """What stays at home, and why; `measured` where it has a number that somebody may look for."""

    label: str
    reason: str
    measured: bool


def select_exportable(runs: Sequence[Run]) -> tuple[list[Exportable], list[Omission]]:
    """What of these runs goes out, in the order measured, and what does not.

    A test that failed only because it is slower goes out: a dashboard without it would show that all is well.
    """
    _refuse_several(runs)
    fit: list[Exportable] = []
    left_out: list[Omission] = []
    for run in runs:
        names, imported = _names_by_test(run), is_imported(run)
        for row in rows_of_run(run):
            reason, measurement = _omission_reason(run, row), row.measurement
            if reason:
                left_out.append(Omission(row.label, reason, row.metric == TIME))
            elif measurement is not None and row.time_s is not None:
                place = names[row.test].index(measurement.key.name)
                name = f"{row.test}.{measurement.key.name or place + 1}" if place else row.test
                trusted = [
                    each for each in row.measurements if not run.unfit(each, accept_slower=True)
                ]
                sound = replace(row, measurements=tuple(KeyResults(trusted).sound(None)))
                fit.append(
                    Exportable(
                        sound, row.label if imported else name, measurement, row.time_s, imported
                    )
                )
    return fit, left_out


def _names_by_test(run: Run) -> dict[str, list[str]]:
    """Return the names of each test's measurements, in the order in which they were taken."""
    tests = grouped(run.measurements, key=lambda measurement: measurement.test_id)
    return {
        test_id: list(dict.fromkeys(measurement.key.name for measurement in measurements))
        for test_id, measurements in tests.items()
    }


def refuse_twice(names: Iterable[tuple[str, Exportable]]) -> None:
    """Raise where one name stands for two measurements: a reader would keep one of them."""
    known: dict[str, Exportable] = {}
    for name, one in names:
        first = known.setdefault(name, one)
        if first is not one:
            runs = " and ".join(dict.fromkeys(str(each.row.path) for each in (first, one)))
            raise BadInput(
                f"{name} stands twice in {runs}; expected each measurement once: export each run, and import each "
                "file of another tool, into one of its own"
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


def _omission_reason(run: Run, row: Row) -> str:
    """Why a row does not go out; empty where it does, and where a test measured nothing and need not have."""
    if row.measurement is not None:
        invalid = row.reason or row.verdict if row.verdict == Kind.INVALID else ""
        return run.unfit(row.measurement, accept_slower=True) or invalid
    if row.metric == KERNEL:
        return "a compiled kernel has no time"
    if row.lost is not None:
        return f"memory ran out: {row.lost.message}"
    if row.ended is None or row.ended.outcome == "passed":
        return ""
    return f"its test {'failed' if row.ended.outcome == 'failed' else 'was skipped'}: {row.reason}"


def facts(row: Row, behind: Sequence[Measurement]) -> dict[str, object]:
    """What was said of all processes that were judged, and of the samples `behind` it; nothing that is not known."""
    one, verdict = row.measurement, row.time_verdict
    assert one is not None
    rate, unit = _rate(row) or (None, None)
    return _without_unknown(
        {
            "label": row.label,
            "seconds": row.time_s,
            "processes": (verdict.processes if verdict is not None else 0) or len(behind),
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
            "work": {name: amount for name, amount in asdict(one.work).items() if amount},
            "calls_per_sample": behind[0].samples.iterations,
            "samples": sum(len(each.samples.kept) for each in behind),
            "samples_left_out": sum(
                len(each.samples.seconds) - len(each.samples.kept) for each in behind
            ),
            "cache": row.cache,
            "timing": row.timing,
            "labels": row.labels,
            "peak_bytes": one.peak_bytes,
            "held_bytes": row.held_bytes,
            "compile_s": row.compile_s,
            "hardware": row.hardware,
        }
    )


def origin(header: Header) -> dict[str, object]:
    """The run that a measurement is from, and its machine, in the same way."""
    device = header.environment.device
    return _without_unknown(
        {
            "device": device.product,
            "device_uuid": device.uuid,
            "driver": device.driver,
            "code": {one.name: str(one) for one in header.environment.code} or None,
            "host": header.environment.host.name,
            "run_id": header.run_id,
            "started": header.started,
            "tool": header.tool,
        }
    )


def sentence(one: Exportable) -> str:
    """What stands beside a number on a dashboard, a line each: verdict, roofline, hardware, driver, run."""
    row = one.row
    told = facts(row, one.processes) | origin(one.header)
    lines = [f"verdict: {row.verdict}"]
    if row.tolerance is not None:
        lines[0] += f" (tolerance {format_tolerance(row.tolerance)})"
    if row.roofline_share is not None:
        lines.append(f"roofline: {format_share(row.roofline_share)} ({told['roofline_source']})")
    changed = row.time_verdict.subject.changed if row.time_verdict is not None else ()
    lines += [f"changed: {change}" for change in changed]
    lines += [
        f"{name}: {told[name]}"
        for name in ("hardware", "driver", "processes", "run_id")
        if told.get(name)
    ]
    return "\n".join(lines)


def _rate(row: Row) -> tuple[float, str] | None:
    """The rate of a row's time, and its unit."""
    suffix, rate = rate_suffix(row.counting or ""), row.rate
    if suffix is None or rate is None:
        return None
    return rate / RATE_UNITS[suffix], "TFLOP/s" if suffix == "TFLOPS" else "GB/s"


def _without_unknown(told: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in told.items() if value is not None}
