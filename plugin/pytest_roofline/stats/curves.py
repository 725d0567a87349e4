"""A sweep over sizes as one thing: its plateau, a latency + bandwidth model, and one verdict with its worst region."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
import numpy.typing as npt

from ..core.judgements import Judgement
from ..core.keys import Key
from ..core.records import CurveSummary, Measurement
from ..core.rows import Row
from .looks import FALSE_IMPROVED, FALSE_PASS
from .stats import CONFIDENCE, quantile
from .verdicts import Kind, kind_unless_red

Floats = npt.NDArray[np.float64]

FEWEST_POINTS = 4
SHARES = (0.5, 0.8, 0.9)


def summarise(measurements: Iterable[Measurement]) -> list[CurveSummary]:
    """One summary for each sweep of at least four sizes: tests alike but for the parameter `size_bytes`."""
    sweeps: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = {}
    for m in measurements:
        size = m.key.parameters.get("size_bytes")
        if isinstance(size, int) and m.rate is not None and not m.invalid:
            sweeps.setdefault((_sweep(m.key), m.key.metric), {}).setdefault(size, []).append((m.median_s, m.rate))
    return [
        _summary(*names, {size: points[size] for size in sorted(points)})
        for names, points in sweeps.items()
        if len(points) >= FEWEST_POINTS
    ]


def _sweep(key: Key) -> str:
    rest = [f"{value}" for name, value in key.parameters.items() if name != "size_bytes"]
    name = f".{key.name}" if key.name else ""
    return key.benchmark + (f"[{'-'.join(rest)}]" if rest else "") + name


def _summary(label: str, metric: str, points: dict[int, list[tuple[float, float]]]) -> CurveSummary:
    sizes = np.array(list(points), dtype=float)
    seconds, rates = (np.array([median(one[at] for one in of) for of in points.values()]) for at in (0, 1))
    plateau = float(np.median(rates[-max(2, len(rates) // 3) :]))
    latency_s, seconds_per_byte, misfit = fit_latency_bandwidth(sizes, seconds)
    # In the metric's own counting: a local copy's traffic is twice its size.
    counted = float(rates[-1] * seconds[-1] / sizes[-1])
    return CurveSummary(
        label=label,
        metric=metric,
        points=len(points),
        plateau=plateau,
        reached={f"{share:.0%}": _size_from(share * plateau, sizes, rates) for share in SHARES},
        latency_s=latency_s,
        bandwidth=counted / seconds_per_byte if seconds_per_byte > 0 else None,
        misfit=misfit,
    )


def _size_from(rate: float, sizes: Floats, rates: Floats) -> int | None:
    """The size from which on every one reaches a rate; None where the largest does not."""
    below = np.flatnonzero(rates < rate)
    first = int(below[-1]) + 1 if len(below) else 0
    return int(sizes[first]) if first < len(sizes) else None


def fit_latency_bandwidth(sizes: Floats, seconds: Floats) -> tuple[float, float, float]:
    """Latency in seconds and seconds per byte of t = latency + size / bandwidth, and how far off they are.

    The last is the root mean square of (t_fit − t) / t.

    Non-negative least squares on *relative* errors: absolute ones would leave the latency to the largest sizes.
    """
    from scipy.optimize import nnls

    weights = 1 / seconds
    design = np.column_stack([weights, sizes * weights])
    (latency_s, per_byte), residual = nnls(design, np.ones(len(weights)))
    return float(latency_s), float(per_byte), float(residual) / math.sqrt(len(weights))


@dataclass(frozen=True, slots=True)
class CurveVerdict:
    """One verdict on a sweep. Differences are in log seconds; the worst region is given by its sizes in bytes."""

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
    """A verdict for each sweep of at least four sizes that were compared."""
    sweeps: dict[tuple[str, str], list[tuple[int, Judgement]]] = {}
    for row in rows:
        size = row.parameters.get("size_bytes")
        if isinstance(size, int) and row.key is not None and row.judgement is not None:
            sweeps.setdefault((_sweep(row.key), row.key.metric), []).append((size, row.judgement))
    found = []
    for (label, metric), points in sweeps.items():
        compared = sorted((point for point in points if point[1].compared), key=lambda point: point[0])
        if len(compared) >= FEWEST_POINTS:
            # A size below a published limit is red too, though nothing tells by how much it changed.
            red = any(judged.verdict == Kind.REGRESSED for _, judged in points)
            found.append(_judge_curve(label, metric, compared, red=red))
    return found


def _judge_curve(label: str, metric: str, points: Sequence[tuple[int, Judgement]], *, red: bool) -> CurveVerdict:
    """Red where a size is red; green where the mean of its sizes is."""
    judged = [one for _, one in points]
    estimates = [one.estimate or 0.0 for one in judged]
    estimate, error = fmean(estimates), fmean(one.error or 0.0 for one in judged)
    freedom = min(math.inf if one.freedom is None else one.freedom for one in judged)
    tolerance = min(one.tolerance for one in judged)
    # The far bound is that of PASSED itself, as half of all is no demand.
    levels = FALSE_IMPROVED, FALSE_PASS, 0.5
    kind = kind_unless_red(estimate, lambda confidence: quantile(confidence, freedom) * error, tolerance, levels)
    half = quantile((1 + CONFIDENCE) / 2, freedom) * error
    sizes = [size for size, _ in points]
    first, last, worst_estimate = _worst_region(list(zip(sizes, estimates, strict=True)))
    return CurveVerdict(
        label=label,
        metric=metric,
        kind=Kind.REGRESSED if red else kind,
        tolerance=tolerance,
        estimate=estimate,
        interval=(estimate - half, estimate + half),
        points=len(points),
        passed=sum(one.verdict in (Kind.PASSED, Kind.IMPROVED) for one in judged),
        worst=(first, last),
        worst_estimate=worst_estimate,
        processes=(max(one.processes for one in judged), max(len(one.baseline_medians_s) for one in judged)),
    )


def _worst_region(points: Sequence[tuple[int, float]]) -> tuple[int, int, float]:
    """Of the windows of neighbouring sizes, a quarter of the sweep wide, the one whose mean difference is largest."""
    width = max(1, round(len(points) / 4))
    windows = [points[start : start + width] for start in range(len(points) - width + 1)]
    worst = max(windows, key=lambda window: fmean(estimate for _, estimate in window))
    return worst[0][0], worst[-1][0], fmean(estimate for _, estimate in worst)
