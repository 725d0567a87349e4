"""What pytest-benchmark is told of a measurement beside its times, under the names that an exported file has."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .core.work import RATE_UNITS, rate_suffix

if TYPE_CHECKING:
    from .core.records import Measurement
    from .reporting.results import Result
    from .session import RooflineSession


def facts(state: "RooflineSession", measurement: "Measurement", results: "Sequence[Result]") -> dict[str, Any]:
    """By name, units in the names; what is not known is not there.

    Args:
        state: the run.
        measurement: the one that is replayed.
        results: all that was said of its test in the end, of this measurement first.
    """
    device = state.ground.environment.device
    run = {
        "hardware": str(measurement.key.hardware),
        "device": device.product,
        "device_uuid": device.uuid,
        "driver": device.driver,
        "run_id": state.run_name,
        "others": [_known(_figures(other.measurement) | _judged(other)) for other in results[1:]],
    }
    return _known(_figures(measurement) | _judged(results[0]) | run)


def _figures(measurement: "Measurement") -> dict[str, Any]:
    samples, rate, suffix = measurement.samples, measurement.rate, rate_suffix(measurement.key.metric)
    has_rate = rate is not None and suffix is not None
    return {
        "label": measurement.label,
        "seconds": measurement.median_s,
        "metric": measurement.key.metric,
        "rate": rate / RATE_UNITS[suffix] if rate is not None and suffix is not None else None,
        "rate_unit": ("TFLOP/s" if suffix == "TFLOPS" else "GB/s") if has_rate else None,
        "share_of_roofline": measurement.share_of_ceiling,
        "roofline_source": measurement.ceiling.source if measurement.ceiling is not None else None,
        "work": {name: amount for name, amount in asdict(measurement.work).items() if amount},
        "calls_per_sample": samples.iterations,
        "samples": len(samples.kept),
        "samples_left_out": len(samples.seconds) - len(samples.kept),
        "cache": measurement.key.cache,
        "timing": measurement.key.timing,
        "labels": list(samples.labels),
        "peak_bytes": measurement.peak_bytes,
        "held_bytes": measurement.held_bytes,
        "compile_s": measurement.compile_s,
    }


def _judged(result: "Result") -> dict[str, Any]:
    verdict = result.verdict
    if verdict is None:
        return {"verdict": result.word}
    return {
        "verdict": result.word,
        "processes": verdict.processes,
        "tolerance": verdict.tolerance,
        "change": verdict.change,
        "baseline_s": verdict.reference.median_s if verdict.reference is not None else None,
        "limit_s": verdict.limit.seconds if verdict.limit is not None else None,
    }


def _known(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None and value != []}
