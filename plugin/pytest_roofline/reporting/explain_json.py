"""`roofline explain --json`: everything that a run holds of some of its tests, under the names of its own records."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..core.records import Measurement
from ..judging.runs import Run


def explanation_as_json(run: Run, tests: Sequence[tuple[str, str]], ladder: Sequence[str]) -> dict[str, Any]:
    """The tests as a run has them. Times in seconds, differences and intervals in log seconds, as in the run file.

    Args:
        run: with its judgements.
        tests: label and test id of each.
        ladder: what is sick and what is fine, where one of them regressed.
    """
    return {
        "run": str(run.path),
        "run_id": run.header.run_id,
        "tests": [{"label": label, "test_id": test_id, **_test(run, label)} for label, test_id in tests],
        "ladder": list(ladder),
    }


def _test(run: Run, label: str) -> dict[str, Any]:
    judgement = next((one for one in run.judgements if one.label == label), None)
    kernel = next((one for one in run.resources if one.label == label), None)
    exact = next((one for one in run.exact if one.label == label), None)
    return {
        "judgement": asdict(judgement) if judgement else None,
        "processes": [_process(one) for one in run.measurements if one.label == label],
        "kernel": asdict(kernel) if kernel else None,
        "kernel_judgement": asdict(exact) if exact else None,
        "figures": [asdict(one) for one in run.figures if one.label == label],
        "memory_uses": [asdict(one) for one in run.memory_uses if one.label == label],
        "profiles": [asdict(one) for one in run.profiles if one.label == label],
    }


def _process(one: Measurement) -> dict[str, Any]:
    return {
        "process": one.process,
        "round": one.round,
        "median_s": one.median_s,
        "seconds": list(one.samples.seconds),
        "blocks": len(one.samples.block_medians),
        "blocks_left_out": one.samples.excluded,
        "labels": list(one.samples.labels),
        "first_calls_s": list(one.samples.first_calls_s),
        "compile_s": one.compile_s,
        "invalid": one.invalid,
    }
