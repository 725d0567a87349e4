"""Sentences about measurements and verdicts: the failure message, the status word, the closing lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.entries import Entry
from ..core.records import CurveSummary, Measurement
from ..core.units import (
    MIB,
    format_bytes,
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    format_tolerance,
    printable,
    three_digits,
)
from ..core.work import rate_suffix
from ..judging.verdicts import CONFIDENCE, Kind, Verdict, changed_environment, describe, interval_text

# Below this a link's rate says more about its latency; the time is shown instead.
RATE_FROM_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Result:
    """A measurement with what was said of it; no verdict where its test failed for itself.

    `published` holds figures from elsewhere that are shown beside it and never gate.
    """

    measurement: Measurement
    verdict: Verdict | None
    environment: Mapping[str, str]
    published: tuple[Entry, ...] = ()
    ended: str = "FAILED"

    @property
    def word(self) -> str:
        """The verdict in a word, or how the test ended that has none."""
        return self.verdict.kind.value if self.verdict else self.ended


def rate_text(measurement: Measurement, seconds: float | None = None) -> str:
    """The rate, in the metric's unit; of another time than the measurement's own where `seconds` is given."""
    amount = measurement.work.amount(measurement.key.metric)
    if amount is None or measurement.rate is None:
        return format_seconds(seconds or measurement.median_s)
    per_second = amount / (seconds or measurement.median_s)
    return format_flops(per_second) if rate_suffix(measurement.key.metric) == "TFLOPS" else format_rate(per_second)


def figure(measurement: Measurement, seconds: float | None = None) -> str:
    """The number that stands for a measurement: its rate, or its time where a link's message is small."""
    small = measurement.work.wire_bytes and measurement.work.payload_bytes < RATE_FROM_BYTES
    return format_seconds(seconds or measurement.median_s) if small else rate_text(measurement, seconds)


def status_word(result: Result) -> str:
    """What stands behind PASSED in a verbose run: `1511 GB/s +0.2 %`."""
    verdict = result.verdict
    text = figure(result.measurement)
    if verdict is not None and verdict.change is not None:
        text += f" {format_percent(verdict.change)}"
    if verdict is not None and verdict.kind is not Kind.PASSED:
        text += f" {verdict.kind.value}"
    return text


def _interval(verdict: Verdict) -> str:
    return f"{CONFIDENCE * 100:.0f} % interval {interval_text(verdict)}"


def failure_message(result: Result, where: str) -> str:
    """Why a test is red, the difference first, since short summaries truncate; a second line says what changed.

    Args:
        result: a measurement with a failing verdict.
        where: the run file that holds the samples.
    """
    measurement, verdict = result.measurement, result.verdict
    assert verdict is not None
    label = printable(measurement.label)
    details = f"Details: {where}" if where else "The run could not be saved"
    if verdict.kind is Kind.NO_BASELINE:
        return (
            f"{label}: NO BASELINE ({printable(verdict.reason)}), and --roofline-require-baseline is set\n"
            f"  measured {figure(measurement)}. {details}; record one with `roofline baseline propose`."
        )
    if verdict.threshold is not None:
        assert verdict.change is not None
        return (
            f"{label}: {format_percent(verdict.change)} time beyond its limit ({figure(measurement)}) "
            f"{verdict.kind.value}, {printable(verdict.reason)}, {_interval(verdict)} (spread assumed)\n"
            f"  {details}."
        )
    assert verdict.change is not None
    assert verdict.reference is not None
    count = len(verdict.reference.medians_s)
    agree = (
        f"{verdict.slower_processes} of {count} processes behind the baseline were faster"
        if count > 1
        else "one process behind the baseline, spread assumed"
    )
    changed = changed_environment(dict(result.environment), verdict.reference.environments)
    return (
        f"{label}: {format_percent(verdict.change)} time ({figure(measurement)}, baseline "
        f"{figure(measurement, verdict.reference.median_s)}) {verdict.kind.value}, "
        f"tolerance {format_tolerance(verdict.tolerance)}, {_interval(verdict)}\n"
        f"  {printable('; '.join([*changed, agree]))}. {details}; accept with "
        "`roofline baseline propose --accept-slower`."
    )


def properties(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The figures of a test as name and text, for JUnit XML and other reports."""
    pairs = []
    for result in results:
        measurement, verdict = result.measurement, result.verdict
        prefix = f"roofline.{measurement.key.name}." if measurement.key.name else "roofline."
        figures = {name: f"{value:.6g}" for name, value in measurement.derived().items()}
        if verdict is not None:
            figures["verdict"] = verdict.kind.value
            figures["tolerance"] = f"{verdict.tolerance:.6g}"
            if verdict.change is not None:
                figures["change"] = f"{verdict.change:.6g}"
            if verdict.reference is not None:
                figures["baseline_s"] = f"{verdict.reference.median_s:.6g}"
        pairs += [(printable(prefix + name), value) for name, value in figures.items()]
    return pairs


def curve_line(curve: CurveSummary) -> str:
    """A sweep in a line: plateau, where it is reached, latency and bandwidth."""
    unit = 1e12 if rate_suffix(curve.metric) == "TFLOPS" else 1e9
    name = "TFLOP/s" if unit == 1e12 else "GB/s"
    reached = ", ".join(
        f"{share} from {format_bytes(size)}" for share, size in curve.reached.items() if size is not None
    )
    bandwidth = f" + size at {three_digits(curve.bandwidth / unit)} {name}" if curve.bandwidth is not None else ""
    return (
        f"{printable(curve.label)}: plateau {three_digits(curve.plateau / unit)} {name} ({curve.metric}), {reached}; "
        f"fits {format_seconds(curve.latency_s)}{bandwidth}"
    )


def published_lines(results: Sequence[Result], at_most: int = 12) -> list[str]:
    """Published figures beside what was measured; for a reader, never a gate."""
    lines = [
        printable(f"{result.measurement.label}: measured {figure(result.measurement)}, {describe(entry)}")
        for result in results
        for entry in result.published
    ]
    more = [f"… and {len(lines) - at_most} more published figures"] if len(lines) > at_most else []
    return lines[:at_most] + more


def reason_lines(results: Sequence[Result], at_most: int = 3) -> list[str]:
    """Why a number could not be judged, and what would change that."""
    lines = [
        printable(f"{result.word} {result.measurement.label}: {result.verdict.reason}")
        for result in results
        if result.verdict is not None and result.verdict.kind in (Kind.INCONCLUSIVE, Kind.INVALID)
    ]
    more = [f"… and {len(lines) - at_most} more of these"] if len(lines) > at_most else []
    return lines[:at_most] + more


def condition_lines(results: Sequence[Result], at_most: int = 3) -> list[str]:
    """What must be known of how the numbers were taken: the host's pace, excluded blocks, drift, the power cap."""
    lines: list[str] = []
    samples = [(printable(result.measurement.label), result.measurement.samples) for result in results]
    for label, meaning in _PACES.items():
        both = [
            f"{name} ({format_seconds(s.median_s)} on the device's clock, {format_seconds(s.wall_s)} on the host's)"
            for name, s in samples
            if label in s.labels and s.wall_s is not None
        ]
        lines += _listed(meaning, both, at_most)
    for label, meaning in _LABELS.items():
        lines += _listed(meaning, [name for name, s in samples if label in s.labels], at_most)
    spoiled = [
        f"{label} ({', '.join(f'{count} of {len(s.blocks)} by {cause}' for cause, count in s.excluded.items())})"
        for label, s in samples
        if s.excluded
    ]
    lines += _listed("blocks left out by cause", spoiled, at_most)
    capped = [
        f"{label} (in {s.power_capped_share:.0%} of its blocks"
        + (f", at {s.clock_hz / 1e6:.0f} MHz)" if s.clock_hz else ")")
        for label, s in samples
        if s.power_capped_share
    ]
    lines += _listed("at the software power cap, as a busy card is", capped, at_most)
    withheld = [name for name, s in samples if s.mode in ("events", "graph") and s.neighbours == "unknown"]
    lines += _listed("not known whether others used the device, since the driver does not tell", withheld, at_most)
    untold = [name for name, s in samples if s.mode in ("events", "graph") and not s.throttle_known]
    lines += _listed("not known whether the device was throttled, since the driver does not tell", untold, at_most)
    lines += _listed(
        "another process uses the device", [label for label, s in samples if s.neighbours == "seen"], at_most
    )
    return lines


_PACES = {
    "host_bound": "host-bound, so the host and not the device is measured",
    "waits_inside": "a call waits for the device, so the host's part of it is in the time",
}
_LABELS = {
    "replaced": "replaced by a hook, as a drill does; never a baseline",
    "noisy": "noisy: the budget ended before the median was known well enough",
    "drifting": "drifting: still getting slower or faster when the budget was spent (raise --roofline-budget)",
    "wall_clock": "timed by the host's clock, since the device's events could not be read",
}


def _listed(meaning: str, names: Sequence[str], at_most: int) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return [f"{meaning}: {', '.join(names[:at_most])}{more}"]


def counts_line(measured: int, not_measured: Mapping[str, int]) -> str:
    """`12 measured, 3 not measured (needs 2 GPUs, found 1)`."""
    line = f"{measured} measured"
    if not_measured:
        reasons = "; ".join(
            printable(reason) + (f" ({count}×)" if len(not_measured) > 1 else "")
            for reason, count in not_measured.items()
        )
        line += f", {sum(not_measured.values())} not measured ({reasons})"
    return line


def verdicts_line(results: Sequence[Result]) -> str:
    """How many of each verdict, the worst first: `1 REGRESSED, 6 PASSED`."""
    counts = {kind: sum(r.verdict is not None and r.verdict.kind is kind for r in results) for kind in Kind}
    order = (Kind.REGRESSED, Kind.INVALID, Kind.INCONCLUSIVE, Kind.IMPROVED, Kind.PASSED, Kind.NO_BASELINE)
    return ", ".join(f"{counts[kind]} {kind.value}" for kind in order if counts[kind])


def gate_lines(results: Sequence[Result], planned: int, run: str, family: str) -> list[str]:
    """The closing sentence on what was compared, and the command that changes it where nothing was.

    Args:
        results: what was measured.
        planned: how many tests were to measure.
        run: the run's name or path, for the command; empty where it could not be saved.
        family: the hardware family.
    """
    judged = [result for result in results if result.verdict is not None]
    compared = sum(r.verdict is not None and r.verdict.kind not in (Kind.NO_BASELINE, Kind.INVALID) for r in judged)
    if not results:
        return [f"THIS RUN GATES NOTHING: 0 of {planned} compared, since nothing was measured"]
    if compared == 0:
        reasons = {r.verdict.reason for r in judged if r.verdict and r.verdict.kind is Kind.NO_BASELINE}
        why = f" ({printable('; '.join(sorted(reasons)))})" if reasons else ""
        line = f"THIS RUN GATES NOTHING: 0 of {len(results)} compared{why}."
        if not run or not reasons:
            return [line]
        return [
            f"{line} Record a baseline with",
            f"  roofline baseline propose {run} -o {family}-proposal.json",
            f"  roofline baseline approve {family}-proposal.json",
        ]
    missing = [r for r in judged if r.verdict and r.verdict.kind is Kind.NO_BASELINE]
    line = f"{compared} of {len(results)} compared: {verdicts_line(results)}"
    if missing:
        names = ", ".join(printable(r.measurement.label) for r in missing[:3]) + (", …" if len(missing) > 3 else "")
        line += f". NO BASELINE for {names}: {printable(missing[0].verdict.reason if missing[0].verdict else '')}"
    return [line]
