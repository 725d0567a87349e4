"""Texts that GitHub and other hosts show beside the code.

They are `summary.md` of a job, and annotations on a run.
"""

import re
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path

from ..baselines.remarks import remarks
from ..baselines.run_files import run_names
from ..baselines.run_rows import SKIPPED, rows_of
from ..baselines.runs import Run
from ..core.groups import group_by
from ..core.rows import FIGURE, KERNEL, TIME, Row, worst_first
from ..core.samples import PROFILED
from ..core.units import count, printable
from ..core.verdicts import Kind
from .sentences import sentences
from .words import (
    baseline_text,
    counts_text,
    difference_text,
    interval_text,
    now_text,
    sentence,
    tolerance_text,
)

# GitHub takes less than a mebibyte for each step of a job.
MOST_BYTES = 2**20 - 1
# Runs, changes, commands and reasons of skipped tests that are listed before the others are counted.
MOST_RUNS, MOST_CHANGES, MOST_COMMANDS, MOST_REASONS = 20, 10, 3, 10
# The characters of a command that a person would still type; longer commands are left out.
LONGEST_COMMAND = 500
# Lines that the summary has if a result has the label.
_LABELS = {
    "replaced": "**The measured functions were replaced through a hook, as in a drill.**",
    PROFILED: "Results measured under a profiler are never judged.",
}
_HEADING = ("verdict", "test", "now", "baseline", "difference", "99 % interval", "why")
# Columns that are aligned to the right.
_RIGHT = ("now", "baseline", "difference", "99 % interval")


def summary(
    runs: Sequence[Run], rows: Sequence[Row] | None = None, most_bytes: int = MOST_BYTES
) -> str:
    """Return the summary of runs as Markdown.

    It has verdicts, facts, changes, and a table worst first.

    Args:
        runs: the runs to summarise.
        rows: the result of `rows_of(runs)`, from a caller that has it already.
        most_bytes: the limit in bytes of UTF-8. Rows that do not fit are left out and counted. Nothing else is cut: if
            it does not fit, the summary is empty.
    """
    worst = worst_first(rows_of(runs) if rows is None else rows)
    skipped = [row for row in worst if _is_skipped(row)]
    results = [row for row in worst if not _is_skipped(row)]
    counts = ["", f"**{counts_text(worst)}**"] if worst else []
    head = _join(
        [
            *_heading(runs, worst),
            *counts,
            "",
            *_fact_lines(runs, worst),
            *_change_lines(worst),
        ]
    )
    tail = _join([*_skipped_lines(skipped), *_command_lines(worst)])
    table = _table(
        results,
        has_several_runs=len(runs) > 1,
        most_bytes=most_bytes - len((head + tail).encode()),
    )
    text = head + table + tail
    return text if len(text.encode()) <= most_bytes else ""


def _is_skipped(row: Row) -> bool:
    """Return True where a test was skipped before it had a result."""
    return row.metric is None and row.verdict == SKIPPED


def _heading(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Return the sentence of each run; that of a single run is the heading."""
    lines = [code(sentence) for sentence in sentences(runs, rows)]
    if len(lines) == 1:
        return [f"## roofline: {lines[0]}"]
    return [f"## roofline: {count(len(runs), 'run')}", "", *(f"* {sentence}" for sentence in lines)]


def _fact_lines(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Return a line for each run: hardware, driver, torch, and its end.

    Lines on results that cannot be judged, such as those under a profiler, follow.
    """
    names = run_names(runs)
    lines = [
        f"* {_run_line(run, names[run.path], run_tolerance(run, rows))}" for run in runs[:MOST_RUNS]
    ]
    lines += [f"* and {count(len(runs) - MOST_RUNS, 'more run')}"] if len(runs) > MOST_RUNS else []
    labels = {
        label
        for row in rows
        if row.measurement is not None
        for label in row.measurement.samples.labels
    }
    return lines + [f"* {text}" for label, text in _LABELS.items() if label in labels]


def run_tolerance(run: Run, rows: Sequence[Row]) -> str:
    """Return the tolerance by which a run's rows were judged."""
    return tolerance_text(row for row in rows if row.path == run.path)


def _run_line(run: Run, name: str, tolerance: str) -> str:
    """Return the line on one run; unknown facts are left out."""
    environment = run.header.environment
    device, host = environment.device, environment.host
    torch = environment.software.get("torch")
    facts = (
        code(device.product),
        f"driver {code(device.driver)}" if device.driver else "",
        f"torch {code(torch)}" if torch is not None else "",
        f"on {code(host.name)}",
        f"run {code(name)} of {code(run.header.started)}",
        tolerance,
        shadow_text(run),
        _end_text(run),
    )
    return ", ".join(filter(None, facts))


def shadow_text(run: Run) -> str:
    """Return the text that a shadow gate only watched, if one did."""
    shadow = run.footer.shadow if run.footer is not None else None
    return "" if shadow is None else f"{count(len(shadow), 'test')} would have failed (shadow gate)"


def _end_text(run: Run) -> str:
    """Return how a run ended; empty after exit status 0."""
    if run.footer is None or run.cut:
        return "**which did not finish**"
    return (
        "" if run.footer.exit_status == 0 else f"which ended with status {run.footer.exit_status}"
    )


def remarks_of(rows: Sequence[Row]) -> tuple[Counter[str], int]:
    """Return how many results have each remark, and the number of all results with a verdict.

    A remark is a difference from the baseline, such as another driver.
    """
    remarks_by_row = [_remarks_on(row) for row in rows]
    judged = [row_remarks for row_remarks in remarks_by_row if row_remarks is not None]
    # A result counts once, even if it has the same remark twice.
    counts = Counter(remark for row_remarks in judged for remark in dict.fromkeys(row_remarks))
    return counts, len(judged)


def _remarks_on(row: Row) -> tuple[str, ...] | None:
    """Return the remarks on a result; None without a verdict."""
    if row.time_verdict is not None:
        return remarks(row.time_verdict)
    return row.exact.remarks if row.exact is not None else None


def _change_lines(rows: Sequence[Row]) -> list[str]:
    """Return the changes since the baselines, the most common first."""
    numbers, total = remarks_of(rows)
    if not numbers:
        has_baseline = any(row.exact is not None or row.baseline_medians_s for row in rows)
        if not has_baseline:
            return []
        return ["", "No recorded fact of this machine changed since the baseline."]
    lines = ["", "Different from the baseline:", ""]
    for text, number in numbers.most_common(MOST_CHANGES):
        share_text = f" ({number} of {total} results)" if number < total else ""
        lines.append(f"* {code(text)}{share_text}")
    remaining = len(numbers) - MOST_CHANGES
    if remaining > 0:
        lines.append(f"* and {count(remaining, 'more remark')}")
    return lines


def _skipped_lines(skipped: Sequence[Row]) -> list[str]:
    """Return the skipped tests by their reasons.

    They have no rows in the table, which would hide the results.
    """
    reasons = Counter(row.reason for row in skipped)
    listed = reasons.most_common(MOST_REASONS)
    remaining = len(skipped) - sum(number for _, number in listed)
    lines = [f"* {number} skipped: {code(reason)}" for reason, number in listed]
    if remaining:
        lines.append(f"* and {remaining} more for other reasons")
    return ["", *lines] if lines else []


def _table(rows: Sequence[Row], *, has_several_runs: bool, most_bytes: int) -> str:
    """Return the table of the first rows that fit.

    A row is shown whole or not at all. A line below the table counts the rows that are left out.
    """
    if not rows:
        return ""
    names = [*_HEADING, *(["run"] if has_several_runs else [])]
    lines = [
        "",
        line(names),
        "|" + "|".join("---:" if name in _RIGHT else "---" for name in names) + "|",
    ]
    # The room for rows, beside the heading and the line on rows that are left out.
    free_bytes = most_bytes - len(_join([*lines, *_left_out_lines(len(rows))]).encode())
    for shown_count, row in enumerate(rows):
        text = line([*_cells(row), *([code(row.run or "")] if has_several_runs else [])])
        # The end of the line is one byte more.
        free_bytes -= len(text.encode()) + 1
        if free_bytes < 0:
            return _join([*lines, *_left_out_lines(len(rows) - shown_count)])
        lines.append(text)
    return _join(lines)


def _left_out_lines(number: int) -> list[str]:
    """Return the lines that count the rows without room in the table."""
    return [
        "",
        f"{count(number, 'more row')} are not shown here; all of them are in `results.csv`, `run.json` and "
        "`index.html`, which `roofline report` writes.",
    ]


def _join(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    """Return the cells of a result in the order of `_HEADING`."""
    word = f"**{row.verdict}**" if row.red else row.verdict
    texts = (
        row.label,
        now_text(row),
        baseline_text(row),
        difference_text(row),
        interval_text(row),
        row.reason,
    )
    return [word, *map(code, texts)]


def _command_lines(rows: Sequence[Row]) -> list[str]:
    """Return the commands that explain the worst results, the first of `rows`, as a block of Markdown."""
    worst = [row for row in rows if row.metric in (TIME, FIGURE, KERNEL)][:MOST_COMMANDS]
    saved = [row for row in worst if row.path.is_file()]
    if worst and not saved:
        return ["", "The run file could not be saved; `run.json` has the whole content."]
    lines = [
        f"roofline explain {shlex.quote(_run_argument(row.path))} {shlex.quote(printable(row.label))}"
        for row in saved
    ]
    # A command with a very long label would be no use to copy.
    commands = [text for text in lines if len(text) <= LONGEST_COMMAND]
    return (
        ["", "Why, with samples and every step:", "", "```sh", *commands, "```"] if commands else []
    )


def _run_argument(path: Path) -> str:
    """Return a run's name where `roofline` finds it, else its path."""
    folder = Path.cwd() / ".roofline" / "runs"
    has_name = path.absolute().parent == folder and path.suffix == ".jsonl"
    return path.stem if has_name else printable(str(path))


# A cell with more characters than this is cut.
LONGEST = 300


def code(text: str) -> str:
    """Return text as a code span; empty text stays empty.

    Nothing in it is markup, a link or a mention.
    """
    visible = printable(text)
    visible = visible if len(visible) <= LONGEST else visible[: LONGEST - 1] + "…"
    if not visible.strip():
        return ""
    # The fence is longer than any row of backticks in the text, so none of them ends the span.
    longest = max(map(len, re.findall(r"`+", visible)), default=0)
    fence = "`" * (longest + 1)
    # Markdown removes one space at both ends, and a backtick there would join the fence.
    padding = " " if visible[0] in "` " or visible[-1] in "` " else ""
    return f"{fence}{padding}{visible}{padding}{fence}"


def line(cells: Iterable[str]) -> str:
    """Return a row of a table, with bars escaped.

    A bar would end its cell, in code spans too.
    """
    # Some readers of Markdown pair the backslashes before a bar, others look at the last one only. An odd number of
    # them escapes the bar for both.
    texts = (re.sub(r"(\\*)\|", r"\1\1\\|", cell) for cell in cells)
    return f"| {' | '.join(texts)} |"


# GitHub shows at most ten annotations of a kind for each step; we write no more of all kinds together.
MOST = 10
# Bytes of a message and of a property, escapes included. GitHub cuts them at about four thousand.
LONGEST_MESSAGE, LONGEST_PROPERTY = 2000, 900
_WARNINGS = (Kind.INVALID.value, Kind.INCONCLUSIVE.value, Kind.NO_BASELINE.value)

# Characters that end a message, or begin an escape; a property ends at two more.
_SPECIAL = "%\r\n"

# A file relative to the repository's root, and a line counted from 1; None where it is not known.
Place = tuple[str, int | None]


def annotations(
    rows: Sequence[Row],
    place_of: Callable[[str], Place | None],
    *,
    errors: bool = True,
    most: int = MOST,
) -> list[str]:
    """Return workflow commands for red and doubtful tests.

    Red tests are errors, undecided tests are warnings. Each test has one command; the worst come
    first.

    Args:
        rows: of one run.
        place_of: returns the file and line of the test with an id; None where they are unknown.
        errors: whether to annotate failed tests; False where another plugin annotates them.
        most: the limit of commands. One more line counts the annotations that are left out.
    """
    # Rows are worst first, so the first row of a test is its worst.
    worst = [members[0] for members in group_by(worst_first(rows), lambda row: row.test).values()]
    # A red test needs an error; another plugin may write it. A test that is not red may need a warning.
    annotated = [row for row in worst if (errors if row.red else _is_doubtful(row))]
    lines = [_command(row, place_of(row.test)) for row in annotated[:most]]
    if len(annotated) > most:
        lines.append(
            f"roofline: {len(annotated) - most} more annotations left out, the worst {most} are shown"
        )
    return lines


def _is_doubtful(row: Row) -> bool:
    """Return True where a result needs a warning.

    The result could not be judged, or a shadow gate would have failed it.
    """
    return row.verdict in _WARNINGS or (row.ended is not None and row.ended.shadow)


def _command(row: Row, place: Place | None) -> str:
    """Return the workflow command that annotates a result."""
    file, number = place or ("", None)
    properties = {
        "file": file,
        "line": f"{number}" if number is not None else "",
        "title": f"{row.verdict} {row.label}",
    }
    pairs = (
        f"{name}={_escape(value, _SPECIAL + ':,', LONGEST_PROPERTY)}"
        for name, value in properties.items()
        if value
    )
    # The escapes keep the message from ending the command early, whatever its text holds.
    message = _escape(sentence(row), _SPECIAL, LONGEST_MESSAGE)
    return f"::{'error' if row.red else 'warning'} {','.join(pairs)}::{message}"


def _escape(text: str, special: str, most_bytes: int) -> str:
    """Return text with special characters as `%0A`, cut if long.

    The cut is between two characters; the limit is in bytes as written.
    """
    parts = [f"%{ord(char):02X}" if char in special else char for char in printable(text)]
    # The bytes of the text up to and with each part.
    sizes_so_far = list(accumulate(len(part.encode()) for part in parts))
    if not parts or sizes_so_far[-1] <= most_bytes:
        return "".join(parts)
    fitting_count = bisect_right(sizes_so_far, most_bytes - len("…".encode()))
    return "".join(parts[:fitting_count]) + "…"
