"""What stands in an archive beside the reproducer: verdicts, samples, environment, explanations."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...core.records import Measurement
from ...core.units import printable
from ...judging.report_rows import ReportRow
from ...judging.runs import Run
from ...judging.storage import to_plain
from ..explain import explanation
from ..ladder import ladder_lines, ladder_of_run
from ..notes import note_lines
from ..resources import explanation as kernel_explanation

# Columns of `explain.txt`.
WIDTH = 100
COLUMNS = ("test", "label", "process", "round", "block", "sample", "excluded", "clock_hz", "seconds")


def as_json(plain: object) -> str:
    """Plain data as text that a person can read too."""
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def verdicts(rows: Sequence[ReportRow], about: Sequence[int]) -> list[dict[str, Any]]:
    """Every row of the run; `about` are those that the archive is about."""
    chosen = set(about)
    return [_verdict(row) | {"chosen": index in chosen} for index, row in enumerate(rows)]


def _verdict(row: ReportRow) -> dict[str, Any]:
    judgement = row.judgement
    return {
        "test": row.test_id,
        "label": row.label,
        "what": row.what,
        "verdict": row.word,
        "reason": row.reason,
        "failed": row.red,
        "seconds": row.seconds,
        "metric": row.measurement.key.metric if row.measurement is not None else None,
        "rate": row.rate,
        "share_of_ceiling": row.share_of_ceiling,
        "reference_seconds": row.reference_s,
        "reference_rate": row.reference_rate,
        "source": judgement.source if judgement is not None else "",
        "change": row.change,
        "interval_99": row.interval,
        "tolerance": judgement.tolerance if judgement is not None else None,
        "processes": row.counted or 0,
        "remarks": list(judgement.remarks) if judgement is not None else [],
    }


def samples_csv(rows: Sequence[ReportRow]) -> str:
    """Every sample of every process of these rows, in seconds per call, and why it does not count, if it does not."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        for measurement in row.processes:
            writer.writerows(_sample_rows(measurement))
    return text.getvalue()


def _sample_rows(measurement: Measurement) -> Iterator[tuple[object, ...]]:
    samples, position = measurement.samples, 0
    head = (measurement.test_id, measurement.label, measurement.process, measurement.round)
    # A run from before blocks has one sample a block, and says nothing of it.
    lengths = [block.samples for block in samples.blocks] or [1] * len(samples.seconds)
    for number, length in enumerate(lengths, 1):
        block = samples.blocks[number - 1] if samples.blocks else None
        excluded = (block.excluded if block is not None else "") or measurement.invalid
        clock_hz = block.clock_hz if block is not None and block.clock_hz is not None else ""
        for index in range(position, position + length):
            yield (*head, number, index + 1, excluded, clock_hz, repr(samples.seconds[index]))
        position += length


def environment(run: Run) -> dict[str, Any]:
    """Device, host and software, what was typed, and what the clocks were found to be."""
    header = run.header
    return {
        "tool": header.tool,
        "run": header.run_id,
        "started": header.started,
        "command": list(header.command),
        "environment": to_plain(header.environment),
        "calibrations": [to_plain(calibration) for calibration in run.calibrations],
    }


def explain_text(run: Run, rows: Sequence[ReportRow]) -> str:
    """Why each verdict is what it is, as `roofline explain` shows it."""
    blocks = [_explained(run, row) for row in _once_a_label(rows)]
    if any(row.word == "REGRESSED" for row in rows):
        blocks.append(ladder_lines(ladder_of_run(run)))
    return "\n".join("\n".join(lines) + "\n" for lines in blocks if lines)


def _once_a_label(rows: Sequence[ReportRow]) -> list[ReportRow]:
    return list({(row.label, row.what): row for row in rows}.values())


def _explained(run: Run, row: ReportRow) -> list[str]:
    lines: list[str] = []
    if row.what == "time":
        lines = explanation(run, row.label, WIDTH)
    elif row.resources is not None:
        lines = kernel_explanation(str(run.path), row.resources, row.exact)
    lines += note_lines(run, row.label, WIDTH)
    ended = row.outcome.reason if row.outcome is not None else ""
    return lines or [printable(f"{row.label}: {row.word}"), *printable_lines(ended or row.reason)]


def printable_lines(text: str) -> list[str]:
    """A text of several lines, without what could steer a terminal."""
    return [printable(line) for line in text.splitlines()]
