"""A result as one row, which every table, page, file and sentence shows.

Its columns are the vocabulary of every JSON document, table file and property. They are in SI units of one call. A
share is of the value that it belongs to, never a logarithm.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from .directions import more_is_better
from .entries import Entry
from .keys import Key, Scalar
from .memory import WORD as OUT_OF_MEMORY
from .memory import OutOfMemory
from .records import Header, Measurement, Outcome, rate
from .resources import Resources
from .verdicts import ExactVerdict, Idle, Kind, Verdict
from .work import Work

# The word of a test that failed by an error of its own, not by its verdict.
FAILED = "FAILED"
# The word of the test `device health` for a device below its rated facts.
DEGRADED = "DEGRADED"
# The kinds of result, by their names among the columns; a test without a result has none.
TIME, PEAK, KERNEL, MEMORY = "time", "peak_bytes", "kernel", "memory"
# Of a program, in its own terms: of a rate less is worse.
FIGURE = "figure"
# The order of all tables and lists; words that are not listed (`SKIPPED`, `XFAIL`, …) come last.
WORST_FIRST = (
    FAILED,
    Kind.REGRESSED,
    OUT_OF_MEMORY,
    DEGRADED,
    Kind.INVALID,
    Kind.SHIFTED,
    Kind.INCONCLUSIVE,
    Kind.NO_BASELINE,
    Kind.IMPROVED,
    Kind.PASSED,
)


def badness(verdict: str, change: float | None = None) -> tuple[int, float]:
    """Return a key that sorts results worst first: by verdict, then by slowdown."""
    rank = WORST_FIRST.index(verdict) if verdict in WORST_FIRST else len(WORST_FIRST)
    return rank, -(change or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One result as plain values. See docs/reference/formats.md; None is an unknown or missing value."""

    run: str | None = None
    run_id: str | None = None
    started: str | None = None
    test: str
    label: str
    benchmark: str = ""
    name: str = ""
    parameters: dict[str, Scalar]
    metric: str | None = None
    value: float | None = None
    unit: str | None = None
    time_s: float | None = None
    std_s: float | None = None
    iterations: int | None = None
    rate: float | None = None
    rate_unit: str | None = None
    counting: str | None = None
    flops_per_s: float | None = None
    operational_intensity: float | None = None
    tokens_per_second: float | None = None
    baseline_value: float | None = None
    baseline_time_s: float | None = None
    baseline_rate: float | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    confidence: float | None = None
    tolerance: float | None = None
    detectable: float | None = None
    processes: int | None = None
    baseline_processes: int | None = None
    baseline_sessions: int | None = None
    roofline_share: float | None = None
    roofline_source: str | None = None
    verdict: str
    reason: str = ""
    outcome: Literal["passed", "failed", "skipped", "xfailed"] | None = None
    size_bytes: int | None = None
    held_bytes: int | None = None
    compile_s: float | None = None
    asked_bytes: int | None = None
    free_bytes: int | None = None
    target: str | None = None
    figures: dict[str, int] | None = None
    cache: str | None = None
    timing: str | None = None
    labels: list[str] | None = None
    ranks: int | None = None
    hardware: str | None = None
    device: str | None = None
    driver: str | None = None
    torch: str | None = None
    host: str | None = None


COLUMNS = tuple(member.name for member in fields(Columns))
# What a row of a measurement's memory shares with that of its time.
_OF_BOTH = ("run", "run_id", "started", "test", "label", "benchmark", "name", "parameters", "outcome", "size_bytes",
            "held_bytes", "compile_s", "cache", "timing", "labels", "ranks", "hardware", "device", "driver", "torch",
            "host")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Columns):
    """One result with the records behind its columns.

    Args:
        red: whether its test failed in the end; one that passed when it was run again did not.
        measurement: the one that stands for all processes.
        measurements: of every process, also those that do not count, in the order taken.
        time_verdict: what was said of their times; None where the test failed for itself.
        time_reason: why, as a sentence; `reason` is another where the memory is worse or the test failed for itself.
        ended: how the test ended; None where the run was cut before, or is not at its end.
        baseline_figures: what it was compared with, where a comparison of two sides made it.
        published: figures from elsewhere beside it, which never gate.
        idle: published limits that could gate and do not here, each with the reason.
    """

    red: bool = False
    key: Key | None = None
    work: Work | None = None
    measurement: Measurement | None = None
    measurements: tuple[Measurement, ...] = ()
    time_verdict: Verdict | None = None
    time_reason: str = ""
    ended: Outcome | None = None
    resources: Resources | None = None
    exact: ExactVerdict | None = None
    baseline_figures: dict[str, int] | None = None
    lost: OutOfMemory | None = None
    published: tuple[Entry, ...] = ()
    idle: tuple[Idle, ...] = ()
    header: Header | None = None
    path: Path = Path()

    @property
    def peak(self) -> ExactVerdict | None:
        """The verdict on its memory; None where there is none."""
        return self.time_verdict.peak if self.time_verdict is not None else None

    @property
    def by_peak(self) -> bool:
        """True if the row's verdict is that on its memory, and its time has another verdict."""
        time_verdict = self.time_verdict
        if time_verdict is None or time_verdict.bad_peak is None:
            return False
        memory_word = time_verdict.bad_peak.verdict
        return self.verdict == memory_word and memory_word != time_verdict.kind

    @property
    def slowdown(self) -> float | None:
        """The change for the worse, as a share: of a figure of which more is better its inverse's."""
        return inverse_change(self.change) if self._more_is_better else self.change

    @property
    def slowdown_interval(self) -> tuple[float | None, float | None]:
        """The interval of `slowdown`, with `confidence`; unknown ends are None."""
        low, high = self.change_low, self.change_high
        return (inverse_change(high), inverse_change(low)) if self._more_is_better else (low, high)

    @property
    def _more_is_better(self) -> bool:
        """The direction: True of a figure of which more is better."""
        return self.metric == FIGURE and self.key is not None and more_is_better(self.key.metric)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of `change`, with `confidence`."""
        return (
            None
            if self.change_low is None or self.change_high is None
            else (self.change_low, self.change_high)
        )

    @property
    def baseline_medians_s(self) -> tuple[float, ...]:
        """The median of every process behind the baseline, in seconds."""
        return self.time_verdict.baseline_medians_s if self.time_verdict is not None else ()

    def rate_of(self, seconds: float | None, metric: str | None = None) -> float | None:
        """Return bytes or FLOP per second of this row's work.

        None if the rate is not a finite number above zero. `metric` says how to count; None is the row's own.
        """
        has_rate = self.measurement is None or self.measurement.has_rate
        if self.key is None or self.work is None or not seconds or not has_rate:
            return None
        return finite(rate(self.work, metric or self.key.metric, seconds))

    def columns(self) -> Iterator[Columns]:
        """Yield the columns of the result, then those of its memory if that is known.

        Each has a verdict of its own.
        """
        time_verdict = self.time_verdict
        if time_verdict is not None and self.by_peak:
            # The row has the verdict on its memory. The time gets its own verdict here, and the memory follows.
            yield replace(self, verdict=time_verdict.kind.value, reason=self.time_reason)
        else:
            yield self
        if self.peak is not None or (
            self.measurement is not None and self.measurement.peak_bytes is not None
        ):
            yield self._memory()

    def _memory(self) -> Columns:
        """Return the columns of the memory, with the verdict on it if there is one.

        `_OF_BOTH` names the columns that it has in common with the time.
        """
        shared_columns: dict[str, Any] = {name: getattr(self, name) for name in _OF_BOTH} | {
            "metric": PEAK,
            "unit": "B",
        }
        if self.peak is not None:
            peak = self.peak
            return Columns(
                **shared_columns,
                value=peak.value,
                baseline_value=peak.baseline_value,
                change=peak.change,
                tolerance=peak.tolerance,
                verdict=peak.verdict,
                reason=peak.reason,
            )
        peak_bytes = self.measurement.peak_bytes if self.measurement is not None else None
        # Memory without a verdict has no baseline. If the test is invalid or was not timed, so is its memory.
        has_time_verdict = self.time_verdict is not None and self.verdict != Kind.INVALID
        word = Kind.NO_BASELINE.value if has_time_verdict else self.verdict
        return Columns(**shared_columns, value=peak_bytes, verdict=word)


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """Return rows in order: failed tests, then by verdict and slowdown."""
    return sorted(rows, key=lambda row: (not row.red, badness(row.verdict, row.slowdown)))


def inverse_change(change: float | None) -> float | None:
    """Return the change of an inverse, as a share."""
    return None if change is None else 1 / (1 + change) - 1


def compared_verdicts(rows: Iterable[Row]) -> list[Verdict]:
    """Return the verdicts on times that have a baseline."""
    verdicts = (row.time_verdict for row in rows)
    return [verdict for verdict in verdicts if verdict is not None and verdict.compared]


def plain(columns: Columns) -> dict[str, object]:
    """Return the columns by name."""
    return {name: getattr(columns, name) for name in COLUMNS}


def finite(value: float | None) -> float | None:
    """Return a rate; None if it is unknown, infinite or zero.

    The time in a file that was made by hand may be so short that its rate overflows.
    """
    return value if value is not None and 0 < value < math.inf else None
