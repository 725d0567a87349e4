"""A sweep over sizes as one thing: its plateau, a latency + bandwidth model, and one verdict with its worst region."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
import numpy.typing as npt

from ..core.keys import JOB_METRIC, Key
from ..core.records import CurveSummary, Fit, Measurement
from ..core.rows import Row
from ..core.verdicts import Kind, Verdict
from .analyses import FIRST_LEVELS
from .stats import CONFIDENCE, quantile
from .verdicts import kind_unless_red

Floats = npt.NDArray[np.float64]
# One measurement of a size: seconds, rate, and the rate as a share of the ceiling, NaN where that is unknown.
Point = tuple[float, float, float]

FEWEST_POINTS = 4
# A summary gives the sizes from which a rate reaches these shares of the plateau or the ceiling.
SHARES = (0.5, 0.8, 0.9)
# A smaller residual is the rounding of the arithmetic, which differs between machines.
LEAST_RESIDUAL = 1e-9


def summarise(measurements: Iterable[Measurement]) -> list[CurveSummary]:
    """Return a summary of each sweep of four sizes or more.

    A sweep is the tests that differ only in the parameter `size_bytes`. Of a whole program, which
    has no rate, the size over its time stands in for one.
    """
    sweeps: dict[tuple[str, str], dict[int, list[Point]]] = {}
    for measurement in measurements:
        key, median_s = measurement.key, measurement.median_s
        size = key.parameters.get("size_bytes")
        if not isinstance(size, int) or measurement.invalid:
            continue
        # `JOB_METRIC` is the time of a whole program.
        rate = size / median_s if key.metric == JOB_METRIC else measurement.rate
        if rate is not None:
            share = measurement.share_of_ceiling
            # NaN is a share that is unknown: `_summary` then leaves out the roofline.
            point = median_s, rate, math.nan if share is None else share
            points = sweeps.setdefault((_sweep_label(key), key.metric), {})
            points.setdefault(size, []).append(point)
    return [
        _summary(label, metric, {size: points[size] for size in sorted(points)})
        for (label, metric), points in sweeps.items()
        if len(points) >= FEWEST_POINTS
    ]


def _sweep_label(key: Key) -> str:
    """Return the benchmark with all parameters but the size."""
    values = [f"{value}" for name, value in key.parameters.items() if name != "size_bytes"]
    name = f".{key.name}" if key.name else ""
    return key.benchmark + (f"[{'-'.join(values)}]" if values else "") + name


def _summary(label: str, metric: str, points: dict[int, list[Point]]) -> CurveSummary:
    """Return the summary of a sweep.

    `points` holds the measurements of each size, in ascending order of size; their median counts.
    """
    sizes = np.array(list(points), dtype=float)
    # Each is [sizes], in the order of the fields of a point.
    seconds, rates, of_roof = (
        np.array([median(point[column] for point in at_size) for at_size in points.values()])
        for column in range(3)
    )
    # The plateau is the rate of the largest third of the sizes.
    largest_count = max(2, len(rates) // 3)
    plateau = float(np.median(rates[-largest_count:]))
    # The bytes that the metric counts for each byte of size, which is rate times time over size: for instance, the
    # traffic of a local copy is twice its size. With these bytes the fit gives a bandwidth in the metric's counting.
    largest_rate, largest_s, largest_size = rates[-1], seconds[-1], sizes[-1]
    counted = float(largest_rate * largest_s / largest_size)
    return CurveSummary(
        label=label,
        metric=metric,
        points=len(points),
        plateau=plateau,
        reached={f"{share:.0%}": _size_from(share * plateau, sizes, rates) for share in SHARES},
        # The first share, one half, is a question about the plateau only.
        of_roof={}
        if np.isnan(of_roof).any()
        else {f"{share:.0%}": _size_from(share, sizes, of_roof) for share in SHARES[1:]},
        fit=fit_latency_bandwidth(counted * sizes, seconds),
    )


def _size_from(rate: float, sizes: Floats, rates: Floats) -> int | None:
    """Return the smallest size from which this and all larger sizes reach a rate, or None.

    `rates` are those of the sizes, which ascend. None where the largest size does not reach it.
    """
    below = np.flatnonzero(rates < rate)
    first = int(below[-1]) + 1 if len(below) else 0
    return int(sizes[first]) if first < len(sizes) else None


def fit_latency_bandwidth(sizes: Floats, seconds: Floats) -> Fit:
    """Return the fit of `seconds = latency + bytes / bandwidth` to a sweep.

    It is a non-negative least squares fit of *relative* errors. Absolute errors would leave the latency to the
    largest sizes. Standard errors are those of ordinary least squares with as many parameters as are not zero.
    """
    from scipy.optimize import nnls

    # Each equation is divided by its seconds: the right side is 1, and residuals are relative errors.
    weights = 1 / seconds
    design = np.column_stack([weights, sizes * weights])
    values, residual = nnls(design, np.ones(len(weights)))
    # The parameters that are not held at zero: only these have a standard error.
    free = np.flatnonzero(values > 0)
    # Seconds and bytes differ by many powers of ten: the columns are scaled so that the inverse is exact.
    scale = np.linalg.norm(design[:, free], axis=0)
    columns = design[:, free] / scale
    deviation = residual / math.sqrt(len(weights) - len(free)) if residual > LEAST_RESIDUAL else 0.0
    deviations = deviation * np.sqrt(np.diag(np.linalg.inv(columns.T @ columns))) / scale
    errors = dict(zip(free.tolist(), deviations.tolist(), strict=True))
    # The first parameter is the latency, the second the seconds per byte.
    latency_s, per_byte_s = values.tolist()
    latency_error_s, per_byte_error_s = errors.get(0), errors.get(1)
    return Fit(
        latency_s=latency_s,
        bandwidth=1 / per_byte_s if per_byte_s > 0 else None,
        misfit=float(residual) / math.sqrt(len(weights)),
        latency_error_s=latency_error_s,
        # Of a small relative error of a value its reciprocal has the same.
        bandwidth_error=None if per_byte_error_s is None else per_byte_error_s / per_byte_s**2,
    )


@dataclass(frozen=True, slots=True)
class CurveVerdict:
    """One verdict on a sweep. Differences are in log seconds.

    Args:
        points: how many sizes were compared; `passed` is the number of those that passed or improved.
        worst: the first and the last size of the worst region, in bytes.
        processes: the most of any size, new ones and those of the baseline.
    """

    label: str
    metric: str
    kind: Kind
    tolerance: float
    estimate: float
    interval: tuple[float, float]
    points: int
    passed: int
    worst: tuple[int, int]
    worst_estimate: float
    processes: tuple[int, int]


def judge_curves(rows: Iterable[Row]) -> list[CurveVerdict]:
    """Return a verdict on each sweep of four or more sizes.

    Only sizes that were compared with a baseline count, but any size can make the sweep red.
    """
    sweeps: dict[tuple[str, str], list[tuple[int, Verdict]]] = {}
    for row in rows:
        size = row.parameters.get("size_bytes")
        if isinstance(size, int) and row.key is not None and row.time_verdict is not None:
            sweeps.setdefault((_sweep_label(row.key), row.key.metric), []).append(
                (size, row.time_verdict)
            )
    curves = []
    for (label, metric), points in sweeps.items():
        compared = sorted(
            ((size, verdict) for size, verdict in points if verdict.compared),
            key=lambda size_and_verdict: size_and_verdict[0],
        )
        if len(compared) >= FEWEST_POINTS:
            # A size without a baseline is red where it misses a published limit.
            red = any(verdict.kind is Kind.REGRESSED for _, verdict in points)
            curves.append(_judge_curve(label, metric, compared, red=red))
    return curves


def _judge_curve(
    label: str, metric: str, points: Sequence[tuple[int, Verdict]], *, red: bool
) -> CurveVerdict:
    """Return the verdict on a sweep from the verdicts on its sizes.

    It is REGRESSED where a size is (`red`), or SHIFTED where a size is; otherwise the mean difference decides.
    `points` are the sizes that were compared with a baseline, in ascending order, each with its verdict.
    """
    verdicts = [verdict for _, verdict in points]
    estimates = [verdict.estimate or 0.0 for verdict in verdicts]
    differences = [verdict.difference for verdict in verdicts if verdict.difference is not None]
    # The sizes of a sweep run in the same processes, so their errors do not average out as independent ones would.
    estimate, error = fmean(estimates), fmean(difference.error for difference in differences)
    freedom = min(difference.degrees for difference in differences)
    tolerance = min(verdict.tolerance for verdict in verdicts)
    if red:
        kind = Kind.REGRESSED
    elif any(verdict.kind is Kind.SHIFTED for verdict in verdicts):
        kind = Kind.SHIFTED
    else:
        kind = _kind_of_mean(estimate, error, freedom, tolerance)
    half = quantile((1 + CONFIDENCE) / 2, freedom) * error
    sizes = [size for size, _ in points]
    first, last, worst_estimate = _worst_region(list(zip(sizes, estimates, strict=True)))
    return CurveVerdict(
        label=label,
        metric=metric,
        kind=kind,
        tolerance=tolerance,
        estimate=estimate,
        interval=(estimate - half, estimate + half),
        points=len(points),
        passed=sum(verdict.kind in (Kind.PASSED, Kind.IMPROVED) for verdict in verdicts),
        worst=(first, last),
        worst_estimate=worst_estimate,
        processes=(
            max(verdict.processes for verdict in verdicts),
            max(len(verdict.baseline_medians_s) for verdict in verdicts),
        ),
    )


def _kind_of_mean(estimate: float, error: float, freedom: float, tolerance: float) -> Kind:
    """Return IMPROVED, PASSED or INCONCLUSIVE for the mean difference of a sweep, in log seconds.

    `error` is its standard error, and `freedom` the degrees of freedom of that.
    """
    false_improved, passed_at_tolerance, _ = FIRST_LEVELS
    # The third level is that of a sweep twice as slow as the tolerance: one half demands nothing.
    levels = (false_improved, passed_at_tolerance, 0.5)
    return kind_unless_red(
        estimate, lambda confidence: quantile(confidence, freedom) * error, tolerance, levels
    )


def _worst_region(points: Sequence[tuple[int, float]]) -> tuple[int, int, float]:
    """Return the first size, last size and mean of the worst region.

    It is the window of neighbouring sizes, a quarter of the sweep wide, with the largest mean
    difference.
    """
    width = max(1, round(len(points) / 4))
    windows = [points[start : start + width] for start in range(len(points) - width + 1)]
    worst = max(windows, key=lambda window: fmean(estimate for _, estimate in window))
    sizes = [size for size, _ in worst]
    return sizes[0], sizes[-1], fmean(estimate for _, estimate in worst)
