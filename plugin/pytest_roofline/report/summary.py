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
from ..core.groups import grouped
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
    "replaced": "**What was measured had been replaced through a hook, as a drill does.**",
    PROFILED: "Results that were taken under a profiler are never judged.",
}
_HEADING = ("verdict", "test", "now", "baseline", "difference", "99 % interval", "why")
_RIGHT = ("now", "baseline", "difference", "99 % interval")


def summary(
    runs: Sequence[Run], rows: Sequence[Row] | None = None, most_bytes: int = MOST_BYTES
) -> str:
    """Verdicts, facts, what changed, and a table worst first, as Markdown.

    Args:
        runs: that it is of.
        rows: what `rows_of` makes of them, where that is known already.
        most_bytes: as UTF-8; rows that have no room are left out, and their number told. The rest of the text is
            never cut, so where even that has no room, nothing comes back.
    """
    worst = worst_first(rows_of(runs) if rows is None else rows)
    skipped, listed = (
        [row for row in worst if (row.metric is None and row.verdict == SKIPPED) == wanted]
        for wanted in (True, False)
    )
    counts = ["", f"**{counts_text(worst)}**"] if worst else []
    head = _join(
        [
            *_heading(runs, worst),
            *counts,
            "",
            *_facts(runs, worst),
            *_changes(worst),
        ]
    )
    tail = _join([*_not_measured(skipped), *_commands(worst)])
    table = _table(
        listed, several=len(runs) > 1, most_bytes=most_bytes - len((head + tail).encode())
    )
    text = head + table + tail
    return text if len(text.encode()) <= most_bytes else ""


def _heading(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Return how each run ended; of a single one as the heading itself."""
    told = [code(sentence) for sentence in sentences(runs, rows)]
    if len(told) == 1:
        return [f"## roofline: {told[0]}"]
    return [f"## roofline: {count(len(runs), 'run')}", "", *(f"* {sentence}" for sentence in told)]


def _facts(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """A line a run: hardware, driver, torch, and how it ended."""
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
    """Return the tolerance by which the rows of a run were judged."""
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
        watched_text(run),
        _ended(run),
    )
    return ", ".join(filter(None, facts))


def watched_text(run: Run) -> str:
    """Return that the gate of a run only watched; else empty."""
    shadow = run.footer.shadow if run.footer is not None else None
    return "" if shadow is None else f"the gate only watched, {len(shadow)} would have failed"


def _ended(run: Run) -> str:
    if run.footer is None or run.cut:
        return "**which did not come to its end**"
    return (
        "" if run.footer.exit_status == 0 else f"which ended with status {run.footer.exit_status}"
    )


def remarks_of(rows: Sequence[Row]) -> tuple[Counter[str], int]:
    """Return the changes since the baselines, by how many results remark on them, and how many have a verdict."""
    texts = [each for row in rows if (each := _remarks_on(row)) is not None]
    return Counter(text for each in texts for text in dict.fromkeys(each)), len(texts)


def _remarks_on(row: Row) -> tuple[str, ...] | None:
    """Return what may explain the verdict on a result; None where it has none."""
    if row.time_verdict is not None:
        return remarks(row.time_verdict)
    return row.exact.remarks if row.exact is not None else None


def _changes(rows: Sequence[Row]) -> list[str]:
    """Return the changes since the baselines, as the results remark on them."""
    counted, total = remarks_of(rows)
    if not counted:
        has_baseline = any(row.exact is not None or row.baseline_medians_s for row in rows)
        return [
            "",
            "Nothing that is known of this machine changed since the baseline.",
        ] * has_baseline
    lines = ["", "Not as behind the baseline:", ""]
    for text, number in counted.most_common(MOST_CHANGES):
        lines.append(f"* {code(text)}{f' ({number} of {total} results)' * (number < total)}")
    left = len(counted) - MOST_CHANGES
    return lines + [f"* and {count(left, 'more remark')}"] * (left > 0)


def _not_measured(skipped: Sequence[Row]) -> list[str]:
    """Tests that were skipped without a number, by their reasons, since rows of them would hide the others."""
    reasons = Counter(row.reason for row in skipped)
    shown = reasons.most_common(MOST_REASONS)
    left = len(skipped) - sum(number for _, number in shown)
    lines = [f"* {number} skipped: {code(reason)}" for reason, number in shown]
    lines += [f"* and {left} more for other reasons"] * bool(left)
    return ["", *lines] if lines else []


def _table(rows: Sequence[Row], *, several: bool, most_bytes: int) -> str:
    """The table worst first, as many whole rows as there is room for."""
    names = [*_HEADING, *(["run"] if several else [])]
    lines = [
        "",
        line(names),
        "|" + "|".join("---:" if name in _RIGHT else "---" for name in names) + "|",
    ]
    if not rows:
        return ""
    left_bytes = most_bytes - len(_join([*lines, *_left_out(len(rows))]).encode())
    for shown, row in enumerate(rows):
        text = line([*_cells(row), *([code(row.run or "")] if several else [])])
        left_bytes -= len(text.encode()) + 1
        if left_bytes < 0:
            return _join([*lines, *_left_out(len(rows) - shown)])
        lines.append(text)
    return _join(lines)


def _left_out(number: int) -> list[str]:
    return [
        "",
        f"{count(number, 'more row')} found no room here; all of them are in `results.csv`, `run.json` and "
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


def _commands(rows: Sequence[Row]) -> list[str]:
    """Return the commands that explain the worst results."""
    worst = [row for row in rows if row.metric in (TIME, KERNEL)][:MOST_COMMANDS]
    saved = [row for row in worst if row.path.is_file()]
    if worst and not saved:
        return ["", "The run file could not be saved; `run.json` has all that it would hold."]
    lines = [
        f"roofline explain {shlex.quote(_run_argument(row.path))} {shlex.quote(printable(row.label))}"
        for row in saved
    ]
    commands = [text for text in lines if len(text) <= LONGEST_COMMAND]
    return (
        ["", "Why, with samples and every step:", "", "```sh", *commands, "```"] if commands else []
    )


def _run_argument(path: Path) -> str:
    """The name of its run where `roofline` will find it from here, else its path."""
    here = path.absolute().parent == Path.cwd() / ".roofline" / "runs" and path.suffix == ".jsonl"
    return path.stem if here else printable(str(path))


# A cell with more characters than this is cut.
LONGEST = 300


def code(text: str) -> str:
    """Text as it is, in which nothing is markup, a link or a mention; empty text stays empty."""
    shown = printable(text)
    shown = shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
    if not shown.strip():
        return ""
    longest = max(map(len, re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    room = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{room}{shown}{room}{fence}"


def line(cells: Iterable[str]) -> str:
    """Return a row of a table. A bar would end its cell, in code spans too."""
    # Some readers pair backslashes ahead of a bar, others look at the last one only; an odd number satisfies both.
    texts = (re.sub(r"(\\*)\|", r"\1\1\\|", cell) for cell in cells)
    return f"| {' | '.join(texts)} |"


# GitHub shows so many of one kind for a step, and we show no more of both together.
MOST = 10
# GitHub cuts what is longer than some four thousand bytes: a message, and each property, as they are written.
LONGEST_MESSAGE, LONGEST_PROPERTY = 2000, 900
_WARNED = (Kind.INVALID.value, Kind.INCONCLUSIVE.value, Kind.NO_BASELINE.value)

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
    """Workflow commands for what failed, and warnings for what could not be judged; one a test, worst first.

    Args:
        rows: of one run.
        place_of: where the test of an id stands; None where that is not known.
        errors: whether failed tests are told; without, another plugin tells of them.
        most: so many commands; how many were left out is said in a line of its own.
    """
    worst = [members[0] for members in grouped(worst_first(rows), lambda row: row.test).values()]
    shown = [row for row in worst if (errors if row.red else _doubtful(row))]
    lines = [_command(row, place_of(row.test)) for row in shown[:most]]
    if len(shown) > most:
        lines.append(
            f"roofline: {len(shown) - most} more annotations left out, the worst {most} are shown"
        )
    return lines


def _doubtful(row: Row) -> bool:
    """Return whether a result could not be judged, or would have failed, had the gate not only watched."""
    return row.verdict in _WARNED or (row.ended is not None and row.ended.shadow)


def _command(row: Row, place: Place | None) -> str:
    file, number = place or ("", None)
    properties = {
        "file": file,
        "line": f"{number}" if number is not None else "",
        "title": f"{row.verdict} {row.label}",
    }
    pairs = (
        f"{name}={_escaped(value, _SPECIAL + ':,', LONGEST_PROPERTY)}"
        for name, value in properties.items()
        if value
    )
    # What is printable has no line ends, but only what is escaped here may be relied upon.
    message = _escaped(sentence(row), _SPECIAL, LONGEST_MESSAGE)
    return f"::{'error' if row.red else 'warning'} {','.join(pairs)}::{message}"


def _escaped(text: str, special: str, most_bytes: int) -> str:
    """Text with special characters as `%0A`, cut between two characters where it is too long as it is written."""
    parts = [f"%{ord(char):02X}" if char in special else char for char in printable(text)]
    ends = list(accumulate(len(part.encode()) for part in parts))
    if not ends or ends[-1] <= most_bytes:
        return "".join(parts)
    return "".join(parts[: bisect_right(ends, most_bytes - len("…".encode()))]) + "…"
