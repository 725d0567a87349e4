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
from ..core.rows import DEGRADED, FAILED, KERNEL, TIME, Row, worst_first
from ..core.units import count, listed, printable, slug
from ..core.verdicts import Kind
from .explain import explanation, note_labels, note_lines
from .figures import first_call_lines, rank_lines
from .inside import circumstances
from .kernels import figures_text
from .messages import condition_lines, counts_line, waiting_lines
from .plots.chart import Plot
from .plots.samples import sample_plot
from .published import figure_texts
from .sentences import MOST_ENDED
from .summary import remarks_of, run_tolerance, shadow_text
from .tables import roofline_note
from .words import cut, difference_text

# Of so many failed tests, and of so many measurements of each, everything is told; the others stand in the table.
MOST_DETAILED, MOST_OF_A_TEST = 40, 5
# Of so many the samples are drawn.
MOST_DRAWN = 10
# Of each kind of line, and of calls that were looked into; the run file has all.
MOST_LINES = 40
# The item that looks at the device, which has no file to run it from.
DEVICE = "device health"
# Columns of an explanation.
WIDTH = 110
# A run file holds what the device told, and not why it told no more.
UNKNOWN_SINCE = "neither the driver nor a library reported it"
# A verdict is told by its word and by a shape, so that nobody has to see colours; and by one of four colours.
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
    Kind.SHIFTED.value: "slower together with all tests; one failure stands for all of them; the change "
    "includes the common part",
    Kind.IMPROVED.value: "clearly faster by more than the tolerance",
    Kind.PASSED.value: "shown not to be slower by more than the tolerance",
    Kind.INCONCLUSIVE.value: "undecided; the reason says what would decide it",
    Kind.INVALID.value: "the measurement is invalid; the reason says why",
    Kind.NO_BASELINE.value: "not compared, since there is no baseline or the number is from another tool",
    DEGRADED: "the device runs below its rated clocks, power or links; only of the test “device health”",
    OUT_OF_MEMORY: "the test ran out of memory, as expected",
    FAILED: "the test failed before its verdict: wrong data, an exception, a lost process",
    SHADOW: "a shadow gate would have failed, since it compared too little",
    SKIPPED: "not measured: this machine lacks what the test needs, or the test skipped itself",
}


def shape(word: str) -> str:
    """Return the sign in front of a verdict."""
    return _LOOKS.get(word, ("·", ""))[0]


def family(word: str) -> str:
    """Return the colour of a verdict.

    It is `bad`, `doubt`, `good` or `plain`.
    """
    return _LOOKS.get(word, ("", "plain"))[1]


_ENDS = {"RED": "bad", "GREY": "doubt", "GREEN": "good"}


def sentence_family(sentence: str) -> str:
    """Return the colour of a sentence on a run's end.

    A name may stand in front of its word.
    """
    words = (word.strip(":(") for word in sentence.split())
    return next((_ENDS[word] for word in words if word in _ENDS), "plain")


def chips(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    """Return each verdict with its number, worst first.

    The third is the name under which the page filters by it.
    """
    counts = Counter(row.verdict for row in worst_first(rows))
    return [(word, number, slug(word)) for word, number in counts.items()]


def reason(row: Row) -> str:
    """Return why a row is what it is, in a sentence.

    Of a kernel it tells the figures and what of them changed, of lost memory how it ran out.
    """
    texts = [row.reason]
    if row.resources is not None:
        texts += [difference_text(row), f"{row.resources.target}: {figures_text(row.resources)}"]
    elif row.lost is not None:
        texts += [circumstances(row.lost), row.lost.allocation.message]
    return "; ".join(dict.fromkeys(filter(None, texts)))


@dataclass(frozen=True, slots=True)
class Red:
    """A failed test as the page tells it: why, its samples, how that came about, and what to type next."""

    row: Row
    message: tuple[str, ...]
    plot: Plot | None
    explained: tuple[str, ...]
    commands: tuple[str, ...]


def reds(rows: Sequence[Row]) -> list[Red]:
    """Return the measurements of failed tests, in order.

    They end at the number that anybody reads.
    """
    detailed = [row for test in _by_test(rows)[:MOST_DETAILED] for row in test[:MOST_OF_A_TEST]]
    plotted = [id(row) for row in detailed if row.measurements][:MOST_DRAWN]
    return [_red(row, plotted=id(row) in plotted) for row in detailed]


def left_out_reds(rows: Sequence[Row]) -> str:
    """Return how many failed tests have no details.

    They, and further measurements of the others, stand in the table of all results alone.
    """
    tests = _by_test(rows)
    measurements = sum(len(test[MOST_OF_A_TEST:]) for test in tests[:MOST_DETAILED])
    parts = (
        [count(len(tests) - MOST_DETAILED, "more failed test")]
        if len(tests) > MOST_DETAILED
        else []
    )
    parts += (
        [f"{count(measurements, 'more measurement')} of the tests above"] if measurements else []
    )
    return f"… and {' and '.join(parts)}, in the table of all results." if parts else ""


def _by_test(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the red rows, a list for each test."""
    red = [row for row in rows if row.red]
    return list(group_by(red, lambda row: (row.run or "", row.test)).values())


def _red(row: Row, *, plotted: bool) -> Red:
    ended = row.ended.reason if row.ended is not None else ""
    # The message of a verdict begins with the name, which stands above it already.
    message = (
        ended.removeprefix("Failed: ").removeprefix(f"{row.label}: ") or reason(row)
    ).splitlines()
    lines = explanation(row, WIDTH)[1:] if row.metric in (TIME, KERNEL) else []
    # Nor does what explains a verdict say it once more.
    explained = [line for line in lines if not line.startswith(("difference ", row.verdict))]
    return Red(
        row, tuple(message), sample_plot(row) if plotted else None, tuple(explained), _commands(row)
    )


def _commands(row: Row) -> tuple[str, ...]:
    """Return the commands to type next.

    There are none for what looks at the device, which is no test.
    """
    if row.test == DEVICE:
        return ()
    rounds = ["--roofline-rounds=auto"] if row.metric == TIME else []
    # What holds no number explains nothing, and a run that could not be saved is told of by its report alone.
    explained = row.metric in (TIME, KERNEL) and row.path.is_file()
    commands = [["roofline", "explain", str(row.path), row.label]] * explained
    commands += [["python", "-m", "pytest", row.test, *rounds]]
    # Nobody can type what is written otherwise: a name is another one then.
    return tuple(
        shlex.join(words) for words in commands if all(word == printable(word) for word in words)
    )


def inside_of(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return the findings inside of calls, as lines by label.

    They are where time and memory go, and figures.
    """
    names = run_names(runs)
    labels = [(run, label) for run in runs for label in note_labels(run)]
    notes = [
        (label + f", run {names[run.path]}" * (len(runs) > 1), note_lines(run, label, WIDTH)[1:])
        for run, label in labels[:MOST_LINES]
    ]
    remaining = len(labels) - MOST_LINES
    return notes + ([(f"… and {remaining} more in the run file", [])] if remaining > 0 else [])


def changed_lines(rows: Sequence[Row]) -> list[str]:
    """Return the changes since the baselines.

    Each tells how many results say so.
    """
    texts, results = remarks_of(rows)
    lines = [
        text + (f" ({number} of {results} results)" if number < results else "")
        for text, number in texts.items()
    ]
    return cut(lines, MOST_LINES, "of this kind")


def circumstance_lines(rows: Sequence[Row]) -> list[str]:
    """Return how the numbers were taken.

    These are the roofline, ranks, pace, excluded blocks, first calls.
    """
    lines = [
        *filter(None, [roofline_note(rows)]),
        *rank_lines(rows),
        *waiting_lines(rows, 5),
        *condition_lines(rows, 5, UNKNOWN_SINCE),
    ]
    return lines + [f"first calls of {line}" for line in first_call_lines(rows)]


def published_of(rows: Sequence[Row]) -> list[str]:
    """Return figures from elsewhere, which never gate."""
    figures = [(row.label, figure_texts(row)) for row in rows if row.time_verdict is not None]
    lines = [f"{label}: {'; '.join(texts)}" for label, texts in figures if texts]
    return cut(lines, MOST_LINES, "of this kind")


def run_lines(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Return a line for each run.

    It has the name, when and where it was, how many were measured, the tolerance, and that it was
    cut.
    """
    names = run_names(runs)
    several = len({run.header.environment.device.product for run in runs}) > 1
    lines = [_run_line(run, names[run.path], several, run_tolerance(run, rows)) for run in runs]
    return cut(lines, MOST_ENDED, "runs")


def _run_line(run: Run, name: str, several: bool, tolerance: str) -> str:
    header, footer = run.header, run.footer
    facts = [
        f"run {name}",
        header.started.replace("T", " ").replace("Z", " UTC"),
        header.environment.host.name,
    ]
    facts += [header.environment.device.product] * several
    if footer is not None:
        # Why, the rows of the tests say.
        not_measured = sum(footer.not_measured.values())
        facts.append(
            counts_line({"measured": footer.measured, "compiled": footer.compiled}, {})
            + f", {not_measured} not measured" * bool(not_measured)
        )
        facts.append(shadow_text(run))
    facts.append(tolerance)
    if footer is None or run.cut:
        facts.append("cut before its end; the results until then follow")
    return " · ".join(filter(None, facts))


def drill_line(runs: Sequence[Run]) -> str:
    """Return that the run was a drill, or an empty text.

    It tells the slowdown where the command says so.
    """
    if not any(
        "replaced" in measurement.samples.labels for run in runs for measurement in run.measurements
    ):
        return ""
    shares = [run.drill for run in runs if run.drill]
    by_how_much = f", by {listed(list(dict.fromkeys(shares)), 3)}" if shares else ""
    return f"This was a drill: the measured functions were slowed down or replaced on purpose{by_how_much}."
