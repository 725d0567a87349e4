"""README.txt: what happened, how to measure it again, what was left out, in the order in which support asks."""

from collections.abc import Callable, Collection, Mapping, Sequence

from ...core.cases import machine_text
from ...core.units import format_flops, format_percent, format_rate, format_seconds, format_tolerance, printable
from ...core.work import rate_suffix
from ...judging.report_rows import FAILED, ReportRow
from ...judging.runs import Run
from ...version import __version__
from .redacting import summary_lines
from .reproducer import Reproducer

_FILES = """README.txt        this page
verdicts.json     every test of the run with its verdict; those that this archive is about are marked
explain.txt       why their verdicts are what they are, samples by process, step by step
samples.csv       every sample of every process of them, in seconds per call
environment.json  device, host, software, the command line, the clocks
run.jsonl         the whole run, for `roofline explain run.jsonl` and `roofline compare`"""


def readme(
    run: Run,
    rows: Sequence[ReportRow],
    made: Reproducer,
    summary: Mapping[str, tuple[int, int]],
    keep: Collection[str],
) -> str:
    """The page, of a run without names."""
    parts = [
        f"A bundle of `roofline bundle` (pytest-roofline {__version__}) of the run {run.header.run_id}, "
        f"{run.header.started}.",
        *("\n".join(what_happened(run, row)) for row in rows),
        "\n".join(_how_to_reproduce(rows, made)),
        "\n".join(["What was redacted", *(f"  {line}" for line in summary_lines(summary, keep))]),
        "\n".join(["What is in it", *(f"  {line}" for line in _files(made))]),
    ]
    return "\n\n".join(printed(part) for part in parts) + "\n"


def printed(text: str) -> str:
    """A text of lines without what could steer a terminal."""
    return "\n".join(map(printable, text.split("\n")))


def _files(made: Reproducer) -> list[str]:
    lines = _FILES.splitlines()
    return [*lines, "reproduce/        the failing test with all that it needs"] if made.works else lines


def what_happened(run: Run, row: ReportRow) -> list[str]:
    """One row in a title and five lines: test, measured, expected, difference, hardware; and the reason."""
    told = {
        "test": row.test_id,
        "measured": _shown(row, row.seconds) + _processes(row),
        "expected": _expected(row),
        "difference": _difference(row),
        "hardware": machine_text(run.header.environment),
        "reason": (row.reason.strip().splitlines() or [""])[0],
    }
    return [f"{row.word} {row.label}", *(f"  {name:<10}  {text}" for name, text in told.items() if text)]


def _shown(row: ReportRow, seconds: float | None) -> str:
    if seconds is None:
        return "no time"
    speed, metric = row.rate_of(seconds), row.measurement.key.metric if row.measurement is not None else ""
    shown: Callable[[float], str] = format_flops if rate_suffix(metric) == "TFLOPS" else format_rate
    return format_seconds(seconds) + (f", {shown(speed)}" if speed is not None else "")


def _processes(row: ReportRow) -> str:
    return f", {row.counted} process{'es' * (row.counted != 1)}" if row.counted else ""


def _expected(row: ReportRow) -> str:
    source = row.judgement.source if row.judgement is not None else ""
    if row.reference_s is None:
        limit_s = row.judgement.limit_s if row.judgement is not None else None
        if limit_s is not None:
            return f"at most {_shown(row, limit_s)}" + (f" ({source})" if source else "")
        # In files from before the limit was kept there is a difference, and no time behind it.
        return f"a published limit ({source})" if row.change is not None else "nothing was known to compare with"
    medians = row.reference_medians_s
    behind = f", {len(medians)} process{'es' * (len(medians) != 1)}" if medians else ""
    return _shown(row, row.reference_s) + behind + (f" ({source})" if source else "")


def _difference(row: ReportRow) -> str:
    if row.change is None or row.judgement is None:
        return ""
    low, high = row.interval or (None, None)
    between = ""
    if low is not None and high is not None:
        between = f", 99 % interval {format_percent(low).removesuffix(' %')} … {format_percent(high)}"
    return f"{format_percent(row.change)} time{between}, tolerance {format_tolerance(row.judgement.tolerance)}"


def _how_to_reproduce(rows: Sequence[ReportRow], made: Reproducer) -> list[str]:
    lines = ["How to measure it again"]
    if made.works:
        lines += [
            "  cd reproduce && python reproduce.py",
            "  It needs Python 3.11 or newer, torch and pytest (and triton where the test uses it), and nothing else.",
            "  Other plugins of pytest are not loaded. What it compares with stands in reproduce/case.json.",
            "  Exit status: 0 as fast as it should be, 1 it is slow there too, 2 that cannot be told.",
            *_of_failures(rows),
            *(f"  Note: {note}." for note in made.notes),
        ]
    if made.left_out:
        lines += [
            "  These are not in the reproducer:" if made.works else "  There is no reproducer:",
            *(f"    {why}" for why in made.left_out),
            f"  With pytest-roofline {__version__} installed, in a checkout of the tests:",
            *(f"    python -m pytest {_quoted(test_id)}" for test_id in dict.fromkeys(row.test_id for row in rows)),
        ]
    return lines


def _of_failures(rows: Sequence[ReportRow]) -> list[str]:
    if all(row.word != FAILED for row in rows):
        return []
    return ["  Of a test that FAILED for itself: 0 it does not fail, 1 it fails with the same exception, 2 otherwise."]


def _quoted(text: str) -> str:
    """As a shell reads it."""
    return "'" + text.replace("'", "'\"'\"'") + "'"
