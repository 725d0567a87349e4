"""One pytest invocation: its device, what it compares with, its run file and its results."""

import os
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from .core.entries import Entry
from .core.errors import DeviceError, OtherHardware, RooflineError
from .core.facts import Environment, HardwareKey
from .core.keys import canonical
from .core.records import Ceiling, Footer, Header, Measurement, Outcome
from .core.samples import Calibration
from .core.work import Work, rate_suffix
from .judging import stats
from .judging.baselines import Entries, Shelf, nearest
from .judging.comparators import BaselineComparator, Comparator, find_reference, open_comparator
from .judging.curves import summarise
from .judging.hardware import datasheet_ceiling, family_of, key_of
from .judging.runs import RunWriter, new_run_id, now
from .judging.verdicts import DEFAULT_TOLERANCE, Kind, Policy, Reference, Verdict, gating_limits, judge, other_mode
from .reporting.messages import Result
from .settings import Marks, Options
from .version import __version__

if TYPE_CHECKING:
    from .measuring.devices import Device


@dataclass(frozen=True, slots=True)
class Planned:
    """A selected test that will measure."""

    item: pytest.Item
    benchmark: str
    parameters: dict[str, object]
    marks: Marks


@dataclass(slots=True)
class Ground:
    """What is known once the device is open: the device, its surroundings, what to compare with."""

    device: "Device"
    environment: Environment
    hardware: HardwareKey
    comparator: Comparator
    entries: Entries
    comparisons: int
    ceilings: dict[str, Ceiling | None] = field(default_factory=dict)


class RooflineSession:
    """The state of a run, from collection to the last line."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self.planned: dict[str, Planned] = {}
        self.results: list[Result] = []
        self.not_measured: Counter[str] = Counter()
        self.run_name = options.save or new_run_id()
        self.writer = RunWriter(options.folder, self.run_name)
        self.process = uuid.uuid4().hex
        self.warning = ""
        self._ground: Ground | None = None
        self._attempts: dict[str, list[Measurement]] = {}
        self._pending: dict[str, list[Measurement]] = {}
        self._closed = False
        self._calibrated = False
        self._ended: set[str] = set()

    @property
    def ground(self) -> Ground:
        """The open device and what belongs to it.

        Raises:
            pytest.UsageError: the device is not there, a baseline is unusable, or the comparison is across hardware.
        """
        if self._ground is None:
            try:
                self._ground = self._open()
            except RooflineError as error:
                raise pytest.UsageError(str(error)) from None
            except OSError as error:
                raise pytest.UsageError(f"{error.filename}: {error.strerror}") from None
        return self._ground

    @property
    def opened(self) -> bool:
        """Whether the device is open."""
        return self._ground is not None

    def _open(self) -> Ground:
        from .measuring.devices import open_device
        from .measuring.environment import gather, unused_accelerator

        asked = self.options.device
        device = self.config.hook.pytest_roofline_device(config=self.config, name=asked) or open_device(asked)
        self.warning = "" if asked == "cpu" else unused_accelerator(device)
        if self.warning and self.options.require_hardware:
            raise DeviceError(self.warning)
        environment = gather(device)
        hardware = key_of(environment)
        entries = Shelf(self.options.baselines).family(family_of(environment.device))
        comparator = open_comparator(self.options.against) if self.options.against else BaselineComparator(entries)
        if self.options.against:
            self._refuse_other_hardware(comparator, hardware)
        comparisons = sum(comparator.count(p.benchmark, p.parameters, hardware) for p in self.planned.values())
        return Ground(device, environment, hardware, comparator, entries, max(1, comparisons))

    def _refuse_other_hardware(self, comparator: Comparator, hardware: HardwareKey) -> None:
        known = comparator.hardware()
        if known and not any(key == hardware for key in known):
            names = "; ".join(str(key) for key in nearest(hardware, known))
            raise OtherHardware(
                f"--roofline-against={comparator.name} was measured on other hardware: this is {hardware}, nearest "
                f"known there: {names}; a comparison across hardware would mean nothing"
            )

    def ceiling(self, work: Work, metric: str) -> Ceiling | None:
        """The roofline of a metric: the datasheet's, or for a CPU's traffic a triad measured once."""
        ground = self.ground
        found = datasheet_ceiling(ground.environment.device, work, metric)
        if found is not None or ground.environment.device.type != "cpu" or rate_suffix(metric) != "traffic_GBps":
            return found
        if "triad" not in ground.ceilings:
            from .measuring.ceiling import measure_triad

            cache_bytes = ground.environment.device.last_level_cache_bytes or 0
            ground.ceilings["triad"] = measure_triad(ground.device, "cpu", cache_bytes)
        return ground.ceilings["triad"]

    def record(self, measurement: Measurement, calibration: Calibration | None = None) -> None:
        """Write a measurement down at once, whatever becomes of its test; before the first, what stamps cost here."""
        if self.writer.path is None and not self.writer.trouble:
            self._write_header()
        if calibration is not None and not self._calibrated:
            self._calibrated = True
            self.writer.write(replace(calibration, process=self.process))
        self.writer.write(measurement)
        self._pending.setdefault(measurement.test_id, []).append(measurement)

    def _write_header(self) -> None:
        self.writer.write(
            Header(
                run_id=self.run_name,
                started=now(),
                command=(os.path.basename(sys.argv[0]), *self.options.command),  # noqa: PTH119
                tool=f"pytest-roofline {__version__}",
                environment=self.ground.environment,
            )
        )

    def judge(self, item: pytest.Item) -> list[Result]:
        """The verdicts on everything that a test measured, once its body has ended well."""
        return [self._judge(measurement) for measurement in self._take_pending(encodable(item.nodeid))]

    def abandon(self, item: pytest.Item) -> None:
        """Keep the measurements of a test that failed for itself in the table, without a verdict."""
        self._keep_unjudged(encodable(item.nodeid))

    def call_it(self, test_id: str, word: str) -> None:
        """Name how a test without verdicts ended, once that is known: SKIPPED, XFAIL."""
        self.results = [
            replace(result, ended=word) if result.measurement.test_id == test_id else result for result in self.results
        ]

    def _keep_unjudged(self, test_id: str) -> None:
        for measurement in self._take_pending(test_id):
            ended = "INTERRUPTED" if measurement.invalid == "interrupted" else "FAILED"
            self._show(Result(measurement, None, self._facts(measurement), ended=ended))

    def _facts(self, measurement: Measurement) -> dict[str, str]:
        return self.ground.environment.comparable() | measurement.samples.comparable()

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself after all, as unittest's do behind pytest's back."""
        self.results = [
            replace(result, verdict=None) if result.measurement.test_id == test_id else result
            for result in self.results
        ]

    def _show(self, result: Result) -> None:
        """One row a measurement: a rerun's takes the place of the attempt before."""
        identity = result.measurement.key.identity
        self.results = [known for known in self.results if known.measurement.key.identity != identity]
        self.results.append(result)

    def _take_pending(self, test_id: str) -> list[Measurement]:
        return self._pending.pop(test_id, [])

    def _judge(self, measurement: Measurement) -> Result:
        ground = self.ground
        reference, why_none = find_reference(ground.comparator, measurement.key, measurement.work)
        measurement, invalid = self._standing(measurement, reference)
        policy = Policy(
            tolerance=self._tolerance(measurement, reference.tolerance if reference else None),
            comparisons=ground.comparisons,
            prior=stats.prior_for(ground.environment.device.type, measurement.key.metric),
        )
        entries = self._entries_for(measurement)
        verdict = judge(
            (measurement.median_s,),
            reference,
            policy,
            invalid=invalid,
            thresholds=gating_limits(entries, measurement.work),
            why_none=why_none,
        )
        published = tuple(entry for entry in entries if entry.kind != "measured" and not entry.gates)
        result = Result(measurement, verdict, self._facts(measurement), published)
        self._show(result)
        return result

    def _standing(self, measurement: Measurement, reference: Reference | None) -> tuple[Measurement, str]:
        """The attempt that stands for its test, and why it is invalid.

        A rerun does not replace what came before: of the attempts that can be judged the slowest stands, so luck cannot
        be retried into green, nor a regression into INVALID.
        """
        attempts = self._attempts.setdefault(measurement.key.identity, [])
        attempts.append(measurement)
        troubles = [attempt.invalid or other_mode(attempt.samples.achieved, reference) for attempt in attempts]
        sound = [attempt for attempt, trouble in zip(attempts, troubles, strict=True) if not trouble]
        if sound:
            return max(sound, key=lambda attempt: attempt.median_s), ""
        return measurement, troubles[-1]

    def _tolerance(self, measurement: Measurement, entry: float | None) -> float:
        """Marker or argument, then the baseline's entry, then command line and ini, then the default."""
        return measurement.tolerance or entry or self.options.tolerance or DEFAULT_TOLERANCE

    def _entries_for(self, measurement: Measurement) -> list[Entry]:
        key, comparator = measurement.key, self.ground.comparator
        shelves = [self.ground.entries]
        if isinstance(comparator, BaselineComparator) and comparator.entries is not self.ground.entries:
            shelves.append(comparator.entries)
        found = (entry for shelf in shelves for entry in shelf.of(key.benchmark, key.name) if entry.matches(key))
        return list({entry.identity: entry for entry in found}.values())

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict turns its test red."""
        return verdict.kind is Kind.REGRESSED or (verdict.kind is Kind.NO_BASELINE and self.options.require_baseline)

    def end_measuring(self, item: pytest.Item) -> None:
        """From here on the test measures no more: its verdicts are out."""
        self._ended.add(item.nodeid)

    def start_measuring(self, item: pytest.Item) -> None:
        """A test, or a rerun of it, begins."""
        self._ended.discard(item.nodeid)

    def may_measure(self, item: pytest.Item) -> bool:
        """Whether a verdict will still be given on what the test measures."""
        return item.nodeid not in self._ended

    def note_outcome(self, outcome: Outcome) -> None:
        """Write down how a test that measured, or would have, ended."""
        if self.writer.path is not None or self.writer.trouble:
            self.writer.write(outcome)

    def close(self, exit_status: int) -> None:
        """End the run file."""
        if self._closed:
            return
        self._closed = True
        for test_id in list(self._pending):
            self._keep_unjudged(test_id)
        if self.options.save and self.writer.path is None and not self.writer.trouble:
            # The name that was asked for exists even if every test was skipped.
            self._write_header()
        if self.writer.path is not None or self.writer.trouble:
            curves = tuple(summarise(result.measurement for result in self.results))
            self.writer.write(
                Footer(
                    finished=now(),
                    exit_status=exit_status,
                    measured=len(self.results),
                    not_measured=dict(self.not_measured),
                    curves=curves,
                )
            )
        self.writer.close()


def benchmark_name(item: pytest.Item) -> str:
    """The benchmark that a test is: its function's name without `test_`, with the class in front if it has one."""
    function = getattr(item, "originalname", None) or item.name
    name = str(function).removeprefix("test_")
    owner = getattr(item, "cls", None)
    return f"{owner.__qualname__}.{name}" if owner is not None else name


def parameters_of(item: pytest.Item) -> dict[str, object]:
    """The scalars of a test's parameters; the id text for those that are none."""
    spec = getattr(item, "callspec", None)
    if spec is None:
        return {}
    parameters: dict[str, object] = {}
    by_id = False
    for name, value in spec.params.items():
        if type(value) is int and abs(value) >= 2**63:
            parameters[name] = str(value)
        elif type(value) in (int, bool, type(None)) or (type(value) is float and value - value == 0):
            parameters[name] = value
        elif type(value) is str:
            parameters[name] = encodable(value)
        else:
            by_id = True
    if by_id:
        # Beside a parameter that is called so itself, the id text takes the next free name.
        parameters["id" if "id" not in spec.params else "id text"] = encodable(spec.id)
    return parameters


def encodable(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def refuse_collisions(planned: Sequence[Planned]) -> None:
    """Two tests must not share a benchmark name and parameters, or their baselines would mix.

    Raises:
        pytest.UsageError: naming both.
    """
    seen: dict[tuple[str, str], Planned] = {}
    for plan in planned:
        other = seen.setdefault((plan.benchmark, canonical(plan.parameters)), plan)
        if other is not plan and other.item.nodeid != plan.item.nodeid:
            raise pytest.UsageError(
                f"{other.item.nodeid} and {plan.item.nodeid} are both the benchmark {plan.benchmark!r} with parameters "
                f"{plan.parameters}; files are no part of the name, so that they can move: rename one of the tests"
            )
