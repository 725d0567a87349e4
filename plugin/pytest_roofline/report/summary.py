"""Texts that GitHub and other hosts show beside the code: `summary.md` of a job, and annotations on a run."""

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
from ..core.rows import KERNEL, TIME, Row, worst_first
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
# So many runs, changes and commands are told one by one.
MOST_RUNS, MOST_CHANGES, MOST_COMMANDS, MOST_REASONS = 20, 10, 3, 10
# Nobody types a command of more characters.
LONGEST_COMMAND = 500
# A line on results with such a label.
_LABELS = {
    "replaced": "**The measured functions were replaced through a hook, as in a drill.**",
    PROFILED: "Results measured under a profiler are never judged.",
}
_HEADING = ("verdict", "test", "now", "baseline", "difference", "99 % interval", "why")
_RIGHT = ("now", "baseline", "difference", "99 % interval")


def summary(
    runs: Sequence[Run], rows: Sequence[Row] | None = None, most_bytes: int = MOST_BYTES
) -> str:
    """Return the summary of runs as Markdown.

    It has verdicts, facts, changes, and a table worst first.

    Args:
        runs: that it is of.
        rows: what `rows_of` makes of them, where that is known already.
        most_bytes: as UTF-8; rows that have no room are left out, and their number told. The rest of the text is
            never cut, so where even that has no room, nothing comes back.
    """
    worst = worst_first(rows_of(runs) if rows is None else rows)
    skipped, results = (
        [row for row in worst if (row.metric is None and row.verdict == SKIPPED) == is_skipped]
        for is_skipped in (True, False)
    )
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
        results, several=len(runs) > 1, most_bytes=most_bytes - len((head + tail).encode())
    )
    text = head + table + tail
    return text if len(text.encode()) <= most_bytes else ""


def _heading(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Return how each run ended, a single one as heading."""
    lines = [code(sentence) for sentence in sentences(runs, rows)]
    if len(lines) == 1:
        return [f"## roofline: {lines[0]}"]
    return [f"## roofline: {count(len(runs), 'run')}", "", *(f"* {sentence}" for sentence in lines)]


def _fact_lines(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Return a line a run: hardware, driver, torch, and its end."""
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
    """Return that the gate only watched, or an empty text."""
    shadow = run.footer.shadow if run.footer is not None else None
    return "" if shadow is None else f"the gate only watched, {len(shadow)} would have failed"


def _end_text(run: Run) -> str:
    if run.footer is None or run.cut:
        return "**which did not finish**"
    return (
        "" if run.footer.exit_status == 0 else f"which ended with status {run.footer.exit_status}"
    )


def remarks_of(rows: Sequence[Row]) -> tuple[Counter[str], int]:
    """Return the remarks of results with their numbers.

    The total of results with a verdict follows.
    """
    texts = [row_texts for row in rows if (row_texts := _remarks_on(row)) is not None]
    return Counter(text for row_texts in texts for text in dict.fromkeys(row_texts)), len(texts)


def _remarks_on(row: Row) -> tuple[str, ...] | None:
    """Return the remarks on a result; None without a verdict."""
    if row.time_verdict is not None:
        return remarks(row.time_verdict)
    return row.exact.remarks if row.exact is not None else None


def _change_lines(rows: Sequence[Row]) -> list[str]:
    """Return the changes since the baselines, as results remark."""
    numbers, total = remarks_of(rows)
    if not numbers:
        has_baseline = any(row.exact is not None or row.baseline_medians_s for row in rows)
        return [
            "",
            "No recorded fact of this machine changed since the baseline.",
        ] * has_baseline
    lines = ["", "Different from the baseline:", ""]
    for text, number in numbers.most_common(MOST_CHANGES):
        lines.append(f"* {code(text)}{f' ({number} of {total} results)' * (number < total)}")
    remaining = len(numbers) - MOST_CHANGES
    return lines + [f"* and {count(remaining, 'more remark')}"] * (remaining > 0)


def _skipped_lines(skipped: Sequence[Row]) -> list[str]:
    """Return the skipped tests by their reasons.

    Rows of them would hide the others.
    """
    reasons = Counter(row.reason for row in skipped)
    listed = reasons.most_common(MOST_REASONS)
    remaining = len(skipped) - sum(number for _, number in listed)
    lines = [f"* {number} skipped: {code(reason)}" for reason, number in listed]
    lines += [f"* and {remaining} more for other reasons"] * bool(remaining)
    return ["", *lines] if lines else []


def _table(rows: Sequence[Row], *, several: bool, most_bytes: int) -> str:
    """Return the table, worst first, as far as it fits.

    No row is cut.
    """
    names = [*_HEADING, *(["run"] if several else [])]
    lines = [
        "",
        line(names),
        "|" + "|".join("---:" if name in _RIGHT else "---" for name in names) + "|",
    ]
    if not rows:
        return ""
    free_bytes = most_bytes - len(_join([*lines, *_left_out_lines(len(rows))]).encode())
    for number, row in enumerate(rows):
        text = line([*_cells(row), *([code(row.run or "")] if several else [])])
        free_bytes -= len(text.encode()) + 1
        if free_bytes < 0:
            return _join([*lines, *_left_out_lines(len(rows) - number)])
        lines.append(text)
    return _join(lines)


def _left_out_lines(number: int) -> list[str]:
    return [
        "",
        f"{count(number, 'more row')} are not shown here; all of them are in `results.csv`, `run.json` and "
        "`index.html`, which `roofline report` writes.",
    ]


def _join(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
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
    """Return the commands that explain the worst results."""
    worst = [row for row in rows if row.metric in (TIME, KERNEL)][:MOST_COMMANDS]
    saved = [row for row in worst if row.path.is_file()]
    if worst and not saved:
        return ["", "The run file could not be saved; `run.json` has the whole content."]
    lines = [
        f"roofline explain {shlex.quote(_run_argument(row.path))} {shlex.quote(printable(row.label))}"
        for row in saved
    ]
    commands = [text for text in lines if len(text) <= LONGEST_COMMAND]
    return (
        ["", "Why, with samples and every step:", "", "```sh", *commands, "```"] if commands else []
    )


def _run_argument(path: Path) -> str:
    """Return a run's name where `roofline` finds it, else its path."""
    here = path.absolute().parent == Path.cwd() / ".roofline" / "runs" and path.suffix == ".jsonl"
    return path.stem if here else printable(str(path))


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
    longest = max(map(len, re.findall(r"`+", visible)), default=0)
    fence = "`" * (longest + 1)
    room = " " if visible[0] in "` " or visible[-1] in "` " else ""
    return f"{fence}{room}{visible}{room}{fence}"


def line(cells: Iterable[str]) -> str:
    """Return a row of a table, with bars escaped.

    A bar would end its cell, in code spans too.
    """
    # Some readers pair backslashes ahead of a bar, others look at the last one only; an odd number satisfies both.
    texts = (re.sub(r"(\\*)\|", r"\1\1\\|", cell) for cell in cells)
    return f"| {' | '.join(texts)} |"


# GitHub shows so many of one kind for a step, and we show no more of both together.
MOST = 10
# GitHub cuts what is longer than some four thousand bytes: a message, and each property, as they are written.
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

    Red tests are errors, what could not be judged is a warning; there is one a test, worst first.

    Args:
        rows: of one run.
        place_of: where the test of an id stands; None where that is not known.
        errors: whether failed tests are told; without, another plugin tells of them.
        most: so many commands; how many were left out is said in a line of its own.
    """
    worst = [members[0] for members in group_by(worst_first(rows), lambda row: row.test).values()]
    annotated = [row for row in worst if (errors if row.red else _is_doubtful(row))]
    lines = [_command(row, place_of(row.test)) for row in annotated[:most]]
    if len(annotated) > most:
        lines.append(
            f"roofline: {len(annotated) - most} more annotations left out, the worst {most} are shown"
        )
    return lines


def _is_doubtful(row: Row) -> bool:
    """Return True where a result needs a warning.

    It could not be judged, or would have failed, had the gate not only watched.
    """
    return row.verdict in _WARNINGS or (row.ended is not None and row.ended.shadow)


def _command(row: Row, place: Place | None) -> str:
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
    # What is printable has no line ends, but only what is escaped here may be relied upon.
    message = _escape(sentence(row), _SPECIAL, LONGEST_MESSAGE)
    return f"::{'error' if row.red else 'warning'} {','.join(pairs)}::{message}"


def _escape(text: str, special: str, most_bytes: int) -> str:
    """Return text with special characters as `%0A`, cut if long.

    The cut is between two characters; the limit is in bytes as written.
    """
    parts = [f"%{ord(char):02X}" if char in special else char for char in printable(text)]
    ends = list(accumulate(len(part.encode()) for part in parts))
    if not ends or ends[-1] <= most_bytes:
        return "".join(parts)
    return "".join(parts[: bisect_right(ends, most_bytes - len("…".encode()))]) + "…"
