"""What the page says beside its tables and plots: how it went, what is red, how the numbers were taken."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..baselines.run_files import run_names
from ..baselines.run_rows import SHADOW, SKIPPED
from ..baselines.runs import Run
from ..core.groups import grouped
from ..core.memory import WORD as OUT_OF_MEMORY
from ..core.rows import DEGRADED, FAILED, KERNEL, TIME, Row, worst_first
from ..core.units import count, listed, printable, slug
from ..core.verdicts import Kind
from ..kernel_gate.text import figures_text
from ..observe.text import circumstances
from .explain import explanation, note_labels, note_lines
from .figures import first_call_lines, rank_lines
from .messages import condition_lines, counts_line, waiting_lines
from .plots.chart import Plot
from .plots.samples import sample_plot
from .published import figure_texts
from .sentences import MOST_ENDED
from .summary import remarks_of, run_tolerance, watched_text
from .tables import roofline_note
from .words import cut, difference_text

# Of so many failed tests, and of so many measurements of each, everything is told; the others stand in the table.
MOST_DETAILED, MOST_OF_A_TEST = 40, 5
# Of so many the samples are drawn.
MOST_DRAWN = 10
# Of each kind of line, and of calls that were looked into; the run file has all.
MOST_TOLD = 40
# The item that looks at the device, which has no file to run it from.
DEVICE = "device health"
# Columns of an explanation.
WIDTH = 110
# A run file holds what the device told, and not why it told no more.
UNTOLD_SINCE = "neither the driver nor a library told of it"
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
    Kind.SHIFTED.value: "slower together with all tests, which fail once for all of them; the change is the whole one",
    Kind.IMPROVED.value: "surely faster by more than the tolerance",
    Kind.PASSED.value: "shown not to be slower by more than the tolerance",
    Kind.INCONCLUSIVE.value: "none of these; the reason says what would decide it",
    Kind.INVALID.value: "the number cannot be trusted; the reason says why",
    Kind.NO_BASELINE.value: "compared with nothing, for want of a baseline or as numbers of other tools are",
    DEGRADED: "the device itself runs below its rated facts; of the test “device health”",
    OUT_OF_MEMORY: "memory ran out, which the test expected",
    FAILED: "the test failed for itself: wrong data, an exception, a lost process; no verdict",
    SHADOW: "what a gate that only watches would have failed, as it compared too little",
    SKIPPED: "not measured: this machine lacks what the test needs, or the test skipped itself",
}


def shape(word: str) -> str:
    """The sign in front of a verdict."""
    return _LOOKS.get(word, ("·", ""))[0]


def family(word: str) -> str:
    """`bad`, `doubt`, `good` or `plain`: the colour of a verdict."""
    return _LOOKS.get(word, ("", "plain"))[1]


_ENDS = {"RED": "bad", "GREY": "doubt", "GREEN": "good"}


def sentence_family(sentence: str) -> str:
    """Return the colour of a sentence that says how a run ended; a name may stand in front of its word."""
    words = (word.strip(":(") for word in sentence.split())
    return next((_ENDS[word] for word in words if word in _ENDS), "plain")


def chips(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    """Each verdict with how often it was given, worst first, and the name under which the page filters by it."""
    counts = Counter(row.verdict for row in worst_first(rows))
    return [(word, number, slug(word)) for word, number in counts.items()]


def reason(row: Row) -> str:
    """Why, in a sentence; of a kernel what it asks for, and what of that changed; of lost memory how it ran out."""
    told = [row.reason]
    if row.resources is not None:
        told += [difference_text(row), f"{row.resources.target}: {figures_text(row.resources)}"]
    elif row.lost is not None:
        told += [circumstances(row.lost), row.lost.message]
    return "; ".join(dict.fromkeys(filter(None, told)))


@dataclass(frozen=True, slots=True)
class Red:
    """A failed test as the page tells it: why, its samples, how that came about, and what to type next."""

    row: Row
    message: tuple[str, ...]
    plot: Plot | None
    explained: tuple[str, ...]
    commands: tuple[str, ...]


def reds(rows: Sequence[Row]) -> list[Red]:
    """The measurements of failed tests, in the order given, up to the number that anybody reads."""
    told = [row for test in _by_test(rows)[:MOST_DETAILED] for row in test[:MOST_OF_A_TEST]]
    drawn = [id(row) for row in told if row.measurements][:MOST_DRAWN]
    return [_red(row, plotted=id(row) in drawn) for row in told]


def not_told(rows: Sequence[Row]) -> str:
    """How many failed tests, and measurements of those that are told, stand in the table of all results alone."""
    tests = _by_test(rows)
    measured = sum(len(test[MOST_OF_A_TEST:]) for test in tests[:MOST_DETAILED])
    parts = (
        [count(len(tests) - MOST_DETAILED, "more failed test")]
        if len(tests) > MOST_DETAILED
        else []
    )
    parts += [f"{count(measured, 'more measurement')} of the tests above"] if measured else []
    return f"… and {' and '.join(parts)}, in the table of all results." if parts else ""


def _by_test(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows that are red, a list for each test of a run."""
    red = [row for row in rows if row.red]
    return list(grouped(red, lambda row: (row.run or "", row.test)).values())


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
    """What to type next; nothing for what looks at the device, which is no test."""
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
    """What was found inside of calls besides times: where time and memory go, and figures; lines by label."""
    names = run_names(runs)
    labels = [(run, label) for run in runs for label in note_labels(run)]
    found = [
        (label + f", run {names[run.path]}" * (len(runs) > 1), note_lines(run, label, WIDTH)[1:])
        for run, label in labels[:MOST_TOLD]
    ]
    left = len(labels) - MOST_TOLD
    return found + ([(f"… and {left} more in the run file", [])] if left > 0 else [])


def changed_lines(rows: Sequence[Row]) -> list[str]:
    """What is not as it was behind the baselines, with how many results say so."""
    told, of = remarks_of(rows)
    lines = [
        text + (f" ({number} of {of} results)" if number < of else "")
        for text, number in told.items()
    ]
    return cut(lines, MOST_TOLD, "of this kind")


def known_lines(rows: Sequence[Row]) -> list[str]:
    """How the numbers were taken: the roofline, ranks, pace, excluded blocks, first calls."""
    lines = [
        *filter(None, [roofline_note(rows)]),
        *rank_lines(rows),
        *waiting_lines(rows, 5),
        *condition_lines(rows, 5, UNTOLD_SINCE),
    ]
    return lines + [f"first calls of {line}" for line in first_call_lines(rows)]


def published_of(rows: Sequence[Row]) -> list[str]:
    """Figures from elsewhere beside the results, which never gate."""
    known = [(row.label, figure_texts(row)) for row in rows if row.time_verdict is not None]
    lines = [f"{label}: {'; '.join(texts)}" for label, texts in known if texts]
    return cut(lines, MOST_TOLD, "of this kind")


def run_lines(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """For each run its name, when and where it was, how many were measured, the tolerance, and that it was cut."""
    called = run_names(runs)
    several = len({run.header.environment.device.product for run in runs}) > 1
    lines = [_run_line(run, called[run.path], several, run_tolerance(run, rows)) for run in runs]
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
        left = sum(footer.not_measured.values())
        facts.append(
            counts_line({"measured": footer.measured, "compiled": footer.compiled}, {})
            + f", {left} not measured" * bool(left)
        )
        facts.append(watched_text(run))
    facts.append(tolerance)
    if footer is None or run.cut:
        facts.append("cut before its end: what follows is what it had until then")
    return " · ".join(filter(None, facts))


def drill_line(runs: Sequence[Run]) -> str:
    """That what was measured had been slowed down on purpose, and by how much where the command says so."""
    if not any("replaced" in one.samples.labels for run in runs for one in run.measurements):
        return ""
    shares = [run.drill for run in runs if run.drill]
    by = f", by {listed(list(dict.fromkeys(shares)), 3)}" if shares else ""
    return f"This was a drill: what was measured had been slowed down or replaced on purpose{by}."
