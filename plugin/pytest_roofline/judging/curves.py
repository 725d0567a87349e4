"""A sweep over sizes as one thing: its plateau, where it is reached, and a latency + bandwidth model."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import nnls

from ..core.records import CurveSummary, Measurement

Floats = npt.NDArray[np.float64]

FEWEST_POINTS = 4
SHARES = (0.5, 0.8, 0.9)


def summarise(measurements: Iterable[Measurement]) -> list[CurveSummary]:
    """One summary for each sweep of at least four sizes: tests alike but for the parameter `size_bytes`."""
    rows = [
        {"sweep": _sweep(m), "metric": m.key.metric, "size": m.key.parameters["size_bytes"], "seconds": m.median_s,
         "rate": m.rate}
        for m in measurements
        if isinstance(m.key.parameters.get("size_bytes"), int) and m.rate is not None and not m.invalid
    ]  # fmt: skip
    if not rows:
        return []
    table = pd.DataFrame(rows).groupby(["sweep", "metric", "size"], sort=False, as_index=False).median()
    return [
        _summary(str(sweep), str(metric), points.sort_values("size"))
        for (sweep, metric), points in table.groupby(["sweep", "metric"], sort=False)
        if len(points) >= FEWEST_POINTS
    ]


def _sweep(measurement: Measurement) -> str:
    rest = [f"{value}" for name, value in measurement.key.parameters.items() if name != "size_bytes"]
    name = f".{measurement.key.name}" if measurement.key.name else ""
    return measurement.key.benchmark + (f"[{'-'.join(rest)}]" if rest else "") + name


def _summary(label: str, metric: str, points: pd.DataFrame) -> CurveSummary:
    sizes, seconds, rates = (points[name].to_numpy(dtype=float) for name in ("size", "seconds", "rate"))
    plateau = float(np.median(rates[-max(2, len(rates) // 3) :]))
    latency_s, seconds_per_byte = fit_latency_bandwidth(sizes, seconds)
    # In the metric's own counting: a local copy's traffic is twice its size.
    counted = float(rates[-1] * seconds[-1] / sizes[-1])
    return CurveSummary(
        label=label,
        metric=metric,
        points=len(points),
        plateau=plateau,
        reached={f"{share:.0%}": _first_size_above(share * plateau, sizes, rates) for share in SHARES},
        latency_s=latency_s,
        bandwidth=counted / seconds_per_byte if seconds_per_byte > 0 else None,
    )


def _first_size_above(rate: float, sizes: Floats, rates: Floats) -> int | None:
    return next((int(size) for size, reached in zip(sizes, rates, strict=True) if reached >= rate), None)


def fit_latency_bandwidth(sizes: Floats, seconds: Floats) -> tuple[float, float]:
    """Latency in seconds and seconds per byte of t = latency + size / bandwidth.

    Non-negative least squares on *relative* errors: absolute ones would leave the latency to the largest sizes.
    """
    weights = 1 / seconds
    design = np.column_stack([weights, sizes * weights])
    (latency_s, per_byte), _ = nnls(design, np.ones(len(weights)))
    return float(latency_s), float(per_byte)
