"""Texts of the page beside its tables and plots: endings, red tests, circumstances."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..baselines.run_files import run_names
from ..baselines.run_rows import SHADOW, SKIPPED
from ..baselines.runs import Run
from ..core.groups import group_by
from ..core.memory import WORD as OUT_OF_MEMORY
from ..core.rows import DEGRADED, FAILED, FIGURE, KERNEL, TIME, Row, worst_first
from ..core.units import count, cut, listed, printable, slug
from ..core.verdicts import Kind
from .conditions import condition_lines, waiting_lines
from .explain import explanation, note_labels, note_lines
from .figures import first_call_lines, rank_lines
from .inside import circumstances
from .kernels import figures_text
from .messages import counts_line
from .plots.chart import Plot
from .plots.samples import sample_plot
from .published import figure_texts
from .sentences import MOST_ENDED
from .summary import remarks_of, run_tolerance, shadow_text
from .tables import roofline_note
from .words import difference_text

# Failed tests with details, and measurements of each; the others are in the table of results only.
MOST_DETAILED, MOST_OF_A_TEST = 40, 5
# Measurements of failed tests whose samples are drawn.
MOST_DRAWN = 10
# Lines of each kind, and calls with profiles, memory or figures; the run file has all.
MOST_LINES = 40
# The item that checks the device. It is no test of a file, so no command runs it.
DEVICE = "device health"
# Columns of an explanation.
WIDTH = 110
# The reason for unknown facts: a run file does not record why the device did not report them.
UNKNOWN_SINCE = "neither the driver nor a library reported the state of the device"
# The shape and the colour of each verdict. The shape is for readers who do not see colours.
_LOOKS = {
    FAILED: ("✖", "bad"),
    Kind.REGRESSED.value: ("▲", "bad"),
    Kind.SHIFTED.value: ("△", "bad"),
    DEGRADED: ("▲", "bad"),
    OUT_OF_MEMORY: ("■", "doubt"),
    Kind.INVALID.value: ("◆", "doubt"),
    Kind.INCONCLUSIVE.value: ("◐", "doubt"),
    Kind.NO_BASELINE.value: ("○", "plain"),
    Kind.IMPROVED.value: ("▼", "good"),
    Kind.PASSED.value: ("●", "good"),
    SKIPPED: ("–", "plain"),
}
MEANINGS = {
    Kind.REGRESSED.value: "slower than the tolerance, by more than noise explains, or more memory; the test fails",
    Kind.SHIFTED.value: "slower together with all tests; one failure stands for all these tests; the change "
    "includes the common part",
    Kind.IMPROVED.value: "clearly faster by more than the tolerance",
    Kind.PASSED.value: "shown not to be slower by more than the tolerance",
    Kind.INCONCLUSIVE.value: "undecided; the reason says what would decide it",
    Kind.INVALID.value: "the measurement is invalid; the reason says why",
    Kind.NO_BASELINE.value: "not compared, since there is no baseline or the number is from another tool",
    DEGRADED: "the device runs below its rated clocks, power or links; only the test “device health” has this verdict",
    OUT_OF_MEMORY: "the test ran out of memory, as expected",
    FAILED: "the test failed before its verdict: wrong data, an exception, a lost process",
    SHADOW: "a shadow gate would have failed, since the run compared too little",
    SKIPPED: "not measured: this machine lacks what the test needs, or the test skipped itself",
}


def shape(word: str) -> str:
    """Return the sign that the page shows before a verdict."""
    sign, _ = _LOOKS.get(word, ("·", ""))
    return sign


def family(word: str) -> str:
    """Return the colour of a verdict.

    It is `bad`, `doubt`, `good` or `plain`.
    """
    _, colour = _LOOKS.get(word, ("", "plain"))
    return colour


_ENDS = {"RED": "bad", "GREY": "doubt", "GREEN": "good"}


def sentence_family(sentence: str) -> str:
    """Return the colour of a run's closing sentence.

    The name of the run may precede the word that decides it: RED, GREY or GREEN.
    """
    words = (word.strip(":(") for word in sentence.split())
    return next((_ENDS[word] for word in words if word in _ENDS), "plain")


def chips(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    """Return each verdict with its count and slug, worst first.

    The page filters its tables by the slug.
    """
    counts = Counter(row.verdict for row in worst_first(rows))
    return [(word, number, slug(word)) for word, number in counts.items()]


def reason(row: Row) -> str:
    """Return the reason of a row's verdict, as a sentence.

    The sentence on a kernel has its figures and their changes; that on a test that ran out of
    memory tells how it did.
    """
    texts = [row.reason]
    if row.resources is not None:
        texts += [difference_text(row), f"{row.resources.target}: {figures_text(row.resources)}"]
    elif row.lost is not None:
        texts += [circumstances(row.lost), row.lost.allocation.message]
    return "; ".join(dict.fromkeys(filter(None, texts)))


@dataclass(frozen=True, slots=True)
class Red:
    """A failed test on the page.

    Args:
        row: its measurement.
        message: the lines of its failure.
        plot: its samples beside the baseline; None where they are not drawn.
        explained: the lines that explain its verdict.
        commands: the commands to type next.
    """

    row: Row
    message: tuple[str, ...]
    plot: Plot | None
    explained: tuple[str, ...]
    commands: tuple[str, ...]


def reds(rows: Sequence[Row]) -> list[Red]:
    """Return the failed tests with details, in the order of rows.

    Each measurement of a test has an element. The numbers of tests, of measurements of a test, and
    of plots are limited.
    """
    tests = _by_test(rows)[:MOST_DETAILED]
    detailed = [row for rows_of_test in tests for row in rows_of_test[:MOST_OF_A_TEST]]
    # Ids of the rows with samples to plot, since two rows may be equal.
    plotted_ids = [id(row) for row in detailed if row.measurements][:MOST_DRAWN]
    return [_red(row, plotted=id(row) in plotted_ids) for row in detailed]


def left_out_reds(rows: Sequence[Row]) -> str:
    """Return the sentence that counts failures without details.

    These are further tests, and further measurements of tests with details. It is empty where there
    are none.
    """
    tests = _by_test(rows)
    measurement_count = sum(
        len(rows_of_test[MOST_OF_A_TEST:]) for rows_of_test in tests[:MOST_DETAILED]
    )
    parts = []
    if len(tests) > MOST_DETAILED:
        parts.append(count(len(tests) - MOST_DETAILED, "more failed test"))
    if measurement_count:
        parts.append(f"{count(measurement_count, 'more measurement')} of the tests above")
    return f"… and {' and '.join(parts)}, in the table of all results." if parts else ""


def _by_test(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the red rows, a list for each test."""
    red = [row for row in rows if row.red]
    return list(group_by(red, lambda row: (row.run or "", row.test)).values())


def _red(row: Row, *, plotted: bool) -> Red:
    """Return one measurement of a failed test, with its samples if they are to be plotted."""
    failure = row.ended.reason if row.ended is not None else ""
    # The page shows the label above the message, so the message does not begin with it.
    message = failure.removeprefix("Failed: ").removeprefix(f"{row.label}: ") or reason(row)
    # The first line of an explanation is its heading.
    lines = explanation(row, WIDTH)[1:] if row.metric in (TIME, FIGURE, KERNEL) else []
    # The message has the difference and the verdict already.
    explained = [line for line in lines if not line.startswith(("difference ", row.verdict))]
    # The axis of a plot is a time.
    plot = sample_plot(row) if plotted and row.metric != FIGURE else None
    return Red(
        row=row,
        message=tuple(message.splitlines()),
        plot=plot,
        explained=tuple(explained),
        commands=_commands(row),
    )


def _commands(row: Row) -> tuple[str, ...]:
    """Return the commands to type next.

    There are none for the check of the device, which is no test of a file.
    """
    if row.test == DEVICE:
        return ()
    rounds = ["--roofline-rounds=auto"] if row.metric in (TIME, FIGURE) else []
    # `roofline explain` needs a time or a kernel, and a run file that was saved.
    can_explain = row.metric in (TIME, FIGURE, KERNEL) and row.path.is_file()
    commands = [["roofline", "explain", str(row.path), row.label]] if can_explain else []
    commands += [["python", "-m", "pytest", row.test, *rounds]]
    # The page escapes unprintable characters, so a command with such a name cannot be copied; it is left out.
    return tuple(
        shlex.join(words) for words in commands if all(word == printable(word) for word in words)
    )


def inside_of(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return the lines on the inside of calls, by label.

    They are profiles, the use of memory, and figures besides times.
    """
    names = run_names(runs)
    labels = [(run, label) for run in runs for label in note_labels(run)]
    notes = []
    for run, label in labels[:MOST_LINES]:
        heading = f"{label}, run {names[run.path]}" if len(runs) > 1 else label
        # The first line of the notes is a heading for the terminal.
        notes.append((heading, note_lines(run, label, WIDTH)[1:]))
    remaining = len(labels) - MOST_LINES
    return notes + ([(f"… and {remaining} more in the run file", [])] if remaining > 0 else [])


def changed_lines(rows: Sequence[Row]) -> list[str]:
    """Return the changes since the baselines.

    A change that not all results have tells how many have it.
    """
    texts, results = remarks_of(rows)
    lines = [
        text + (f" ({number} of {results} results)" if number < results else "")
        for text, number in texts.items()
    ]
    return cut(lines, MOST_LINES, "of this kind")


def circumstance_lines(rows: Sequence[Row]) -> list[str]:
    """Return the circumstances of the measurements.

    They are the roofline, ranks, calls that wait, conditions such as excluded blocks, and first
    calls.
    """
    lines = [
        *filter(None, [roofline_note(rows)]),
        *rank_lines(rows),
        *waiting_lines(rows, 5),
        *condition_lines(rows, 5, UNKNOWN_SINCE),
    ]
    return lines + [f"first calls of {line}" for line in first_call_lines(rows)]


def published_of(rows: Sequence[Row]) -> list[str]:
    """Return the published figures that never gate, by test."""
    figures = [(row.label, figure_texts(row)) for row in rows if row.time_verdict is not None]
    lines = [f"{label}: {'; '.join(texts)}" for label, texts in figures if texts]
    return cut(lines, MOST_LINES, "of this kind")


def run_lines(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Return a line for each run.

    It has the name, the start, the host, the number of tests, and the tolerance. It says whether
    the run was cut before its end.
    """
    names = run_names(runs)
    has_several_products = len({run.header.environment.device.product for run in runs}) > 1
    lines = [
        _run_line(run, names[run.path], has_several_products, run_tolerance(run, rows))
        for run in runs
    ]
    return cut(lines, MOST_ENDED, "runs")


def _run_line(run: Run, name: str, shows_product: bool, tolerance: str) -> str:
    """Return the line on one run; unknown facts are left out."""
    header, footer = run.header, run.footer
    facts = [
        f"run {name}",
        header.started.replace("T", " ").replace("Z", " UTC"),
        header.environment.host.name,
    ]
    facts += [header.environment.device.product] if shows_product else []
    if footer is not None:
        counts = counts_line({"measured": footer.measured, "compiled": footer.compiled}, {})
        # The rows of the tests give the reasons.
        not_measured_count = sum(footer.not_measured.values())
        if not_measured_count:
            counts += f", {not_measured_count} not measured"
        facts += [counts, shadow_text(run)]
    facts.append(tolerance)
    if footer is None or run.cut:
        facts.append("the run was cut before its end; the results until then follow")
    return " · ".join(filter(None, facts))


def drill_line(runs: Sequence[Run]) -> str:
    """Return the sentence that a run was a drill, or an empty text.

    It tells the slowdown if the command of the run has it.
    """
    is_drill = any(
        "replaced" in measurement.samples.labels for run in runs for measurement in run.measurements
    )
    if not is_drill:
        return ""
    shares = [run.drill for run in runs if run.drill]
    by_how_much = f", by {listed(list(dict.fromkeys(shares)), 3)}" if shares else ""
    return f"This was a drill: the measured functions were slowed down or replaced on purpose{by_how_much}."
