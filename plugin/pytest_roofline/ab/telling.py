"""The report of both sides, for a terminal, as JSON, and for a pull request.

It has a row for each test, worst first, and a closing sentence.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean

from rich.text import Text

from ..baselines.pairs import Twins, Variant
from ..baselines.rows import compared_row
from ..baselines.run_rows import short_name
from ..core.directions import has_own_terms, more_is_better
from ..core.reasons import Reason, ReasonCode, of_processes, text_reasons
from ..core.records import Measurement
from ..core.rows import FAILED, FIGURE, KERNEL, Row, plain, worst_first
from ..core.statuses import WORSE, Status, is_green, status_of
from ..core.units import count, format_percent, listed, printable
from ..core.verdicts import Group, Kind, Reference, Subject, Verdict
from ..report.comparison import kernel_as_json
from ..report.messages import closing_lines
from ..report.summary import code, line
from ..report.tables import TextTable, render, styled
from ..report.words import (
    baseline_text,
    difference_text,
    now_text,
    span_text,
    tolerance_text,
)
from ..stats.paired import Paired
from ..stats.stats import growth
from ..stats.verdicts import changed_environment
from .kernel_words import figures_markdown, figures_table, kernel_notes
from .kernels import compare_kernels
from .results import SidesResults, State, run_name
from .sides import SIDES, PreparedSide

# The largest number of names in a line: of changes, of tests on one side only.
MOST_NAMED = 5
# The largest number of rows in a comment: GitHub accepts 65,536 characters.
MOST_ROWS = 100
_COLOURS = {"GREEN": "green", "GREY": "yellow", "RED": "bold red"}
# Fields and properties of a report that its document holds unchanged.
_PLAIN = (
    "sides",
    "sentence",
    "processes",
    "seconds",
    "changed",
    "notes",
    "interrupted",
)
# The first line of a comment, by which CI finds the earlier comment to replace.
MARK = "<!-- roofline ab -->"


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run.

    Args:
        state: the settings of the run, and all of its processes.
        sides: the texts of the sides, by side.
        rows: a test or a kernel each, worst first. The time or the figures of A are in the fields of a baseline.
        controls: by label, the change of the second A against A, as a share of time.
        open: labels of tests that more processes could decide.
        changed: the differences between the sides' environments.
        notes: on tests of one side only, on code that changed during the run, on too few processes.
        seconds: by arm, of each warm-up, and of the whole run (`all`).
        saved: the paths of the run files, by side.
        interrupted: True if a user or a signal ended the run.
    """

    state: State
    sides: dict[str, str]
    rows: tuple[Row, ...]
    controls: dict[str, float] = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    saved: dict[str, Path] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def processes(self) -> dict[str, int]:
        """The number of processes by arm."""
        return dict(Counter(process.arm for process in self.state.taken))

    @property
    def kernel_rows(self) -> tuple[Row, ...]:
        """The rows of kernels."""
        return tuple(row for row in self.rows if row.metric == KERNEL)

    @property
    def test_rows(self) -> tuple[Row, ...]:
        """The rows of tests."""
        return tuple(row for row in self.rows if row.metric != KERNEL)

    @property
    def reds(self) -> dict[str, tuple[str, str]]:
        """The verdict and reason of each test that is worse on B."""
        return {row.test: (row.verdict, row.reason) for row in self.rows if row.verdict in WORSE}

    @property
    def sentence(self) -> str:
        """The closing sentence, which begins with GREEN, GREY or RED."""
        tests = [row.test for row in self.rows]
        return closing_lines(self.rows, self.reds, tests, status=2 if self.interrupted else 0)[-1]

    @property
    def status(self) -> Status:
        """The exit status."""
        return status_of(self.rows, complete=not self.interrupted)


def make_report(
    results: SidesResults,
    paired_by_twin: Mapping[str, Paired],
    sides: Mapping[str, PreparedSide],
    *,
    interrupted: bool,
) -> Report:
    """Return the report of a run. Write the run files of both sides."""
    rows, controls, open_labels = [], {}, set()
    for twin, paired in paired_by_twin.items():
        row = twin_row(results, twin, paired)
        rows.append(row)
        if paired.control is not None:
            controls[row.label] = growth(_in_terms_of(row, paired.control))
        if paired.open:
            open_labels.add(row.label)
    kernel_rows, kernel_remarks = compare_kernels(results)
    rows += kernel_rows
    failed_rows, notes = _failed_tests(results, {row.test for row in rows})
    processes = results.state.taken
    return Report(
        state=results.state,
        sides={side: str(setup) for side, setup in sides.items()},
        rows=tuple(worst_first([*rows, *failed_rows])),
        controls=controls,
        open=frozenset(open_labels),
        changed=tuple(_environment_changes(results)),
        notes=(
            *notes,
            *_unmatched_notes(results),
            *kernel_remarks,
            *_changed_code_notes(results),
            *_too_few_notes(paired_by_twin, results.state.processes),
        ),
        seconds={
            arm: sum(process.seconds for process in processes if process.arm == arm)
            for arm in ("A", "B", "control")
        }
        | {f"warming {side}": survey.seconds for side, survey in results.surveys.items()}
        | {"all": results.state.seconds},
        saved=results.save(
            [verdict for row in rows if (verdict := row.time_verdict or row.exact) is not None]
        ),
        interrupted=interrupted,
    )


def twin_row(results: SidesResults, twin: str, paired: Paired) -> Row:
    """Return the row of a test that both sides have.

    It is INVALID if a side has no sound time, if the sides do different work, or if a side did not pass the test. It is
    FAILED if the test failed on B only.
    """
    before, after = (
        [measurement for _, measurement in results.slowest_attempts(twin, arm)]
        for arm in ("A", "B")
    )
    tests = {side: results.surveys[side].tests[twin] for side in SIDES}
    troubles = {
        side: text for side in SIDES if (text := results.trouble(side).get(tests[side].test_id))
    }
    kind, reasons = _kind_and_reasons(results, twin, paired.verdict, before, after)
    if troubles:
        kind = Kind.INVALID
        reasons = tuple(
            Reason(ReasonCode.SIDE_ENDED, texts={"side": side, "text": text})
            for side, text in troubles.items()
        )
    key, label = tests["B"].key, tests["B"].label
    if before and after:
        # If the sides are two values of a parameter, the label has neither value.
        label = Twins(Variant("A", before), Variant("B", after)).label
        label += f".{key.name}" if key.name else ""
    medians_s = tuple(measurement.median_s for measurement in after)
    # A figure of a program is shown in its own unit and direction, as tokens a second; a time of a test as a time.
    is_figure = results.state.program is not None and has_own_terms(key.metric)
    verdict = replace(
        paired.verdict,
        kind=kind,
        reasons=reasons,
        subject=Subject(
            tests["B"].test_id,
            label,
            key.name,
            changed=tuple(_environment_changes(results)),
            metric=key.metric if is_figure else "",
        ),
        reference=_reference(results, before),
        new_medians_s=medians_s,
    )
    row = compared_row(
        key,
        after[-1].work if is_figure and after else None,
        verdict,
        geometric_mean(medians_s) if after else None,
        geometric_mean([measurement.median_s for measurement in before]) if before else None,
    )
    row = replace(row, processes=len(after) or None)
    # A test that was skipped on B, for example for lack of memory, is not worse.
    is_failed = [*troubles] == ["B"] and not troubles["B"].startswith("skipped in ")
    return replace(row, verdict=FAILED, red=True) if is_failed else row


def _kind_and_reasons(
    results: SidesResults,
    twin: str,
    verdict: Verdict,
    before: Sequence[Measurement],
    after: Sequence[Measurement],
) -> tuple[Kind, tuple[Reason, ...]]:
    """Return the verdict on a test with its reasons.

    It is INVALID without a sound time, or for sides of different work. `before` are the sound measurements of A,
    `after` those of B.
    """
    if not (before and after):
        unsound_count, process_count, reason_text = results.unsound(twin)
        if not unsound_count:
            return Kind.INVALID, (Reason(ReasonCode.UNTIMED),)
        reasons = text_reasons(reason_text)
        return Kind.INVALID, tuple(
            of_processes(reason, unsound_count, process_count) for reason in reasons
        )
    # Two values of a parameter may do different work.
    if results.parameters["A"] is None and after[-1].work != before[-1].work:
        return Kind.INVALID, (Reason(ReasonCode.OTHER_WORK),)
    modes_before, modes_after = (
        {measurement.samples.achieved for measurement in measurements}
        for measurements in (before, after)
    )
    if modes_before == modes_after:
        return verdict.kind, verdict.reasons
    # Sides that were timed in different modes are judged all the same, with a reason that says so.
    labels = [";".join(sorted(map(",".join, modes))) for modes in (modes_before, modes_after)]
    texts = dict(zip(SIDES, labels, strict=True))
    return verdict.kind, (*verdict.reasons, Reason(ReasonCode.SIDES_TIMED, texts=texts))


def _in_terms_of(row: Row, difference: float) -> float:
    """Return a difference in log seconds, or of a rate in logs of the rate."""
    is_rate = row.metric == FIGURE and row.key is not None and more_is_better(row.key.metric)
    return -difference if is_rate else difference


def _reference(results: SidesResults, before: Sequence[Measurement]) -> Reference | None:
    """Return the processes of A as the reference of B.

    None if A has none.
    """
    if not before:
        return None
    first_run = results.runs_of("A")[0]
    medians_s = tuple(measurement.median_s for measurement in before)
    group = Group(medians_s, started=first_run.header.started)
    return Reference((group,), run_name(results.state.name, "A"))


def _failed_tests(results: SidesResults, row_ids: set[str]) -> tuple[list[Row], list[str]]:
    """Return rows of tests that fail on B only, and notes.

    The rows are FAILED. The notes are on other failures. A test that has a row already (`row_ids`) gets no second one.
    """
    troubles = {side: {**results.surveys[side].trouble} for side in SIDES}
    ids_on_a = {test_id for test_id, _ in _tests_by_twin(results, "A").values()}
    has_parameter = results.parameters["A"] is not None
    rows, notes = [], []
    for test_id in {**troubles["A"], **troubles["B"]}:
        # If the sides are values of a parameter, A has the test under another id.
        fails_on_b_only = (
            test_id in troubles["B"]
            and test_id not in troubles["A"]
            and (has_parameter or test_id in ids_on_a)
        )
        if fails_on_b_only and test_id not in row_ids:
            rows.append(
                Row(
                    test=test_id,
                    label=short_name(test_id),
                    parameters={},
                    verdict=FAILED,
                    red=True,
                    reason=f"B: {troubles['B'][test_id]}",
                )
            )
        elif not fails_on_b_only:
            reasons = {side: troubles[side][test_id] for side in SIDES if test_id in troubles[side]}
            first_reason = next(iter(reasons.values()))
            notes.append(f"{short_name(test_id)} fails on {' and '.join(reasons)}: {first_reason}")
    return rows, notes


def _tests_by_twin(results: SidesResults, side: str) -> dict[str, tuple[str, str]]:
    """Return the node ids and labels of a side's tests and kernels.

    They are by the identity that both sides share.
    """
    tests = results.surveys[side].tests.items()
    tests_by_twin = {twin: (test.test_id, test.label) for twin, test in tests}
    kernels = results.kernels(side).items()
    return tests_by_twin | {identity: (test.test_id, test.label) for identity, test in kernels}


def _unmatched_notes(results: SidesResults) -> list[str]:
    """Return notes on tests that only one side has, or only one side skipped.

    A test that failed on the other side is left out.
    """
    notes = []
    for side, other_side in (("A", "B"), ("B", "A")):
        # Failed and skipped tests have notes of their own.
        named_elsewhere = (
            results.surveys[other_side].trouble.keys() | results.surveys[other_side].skipped.keys()
        )
        results_here, results_there = (
            _tests_by_twin(results, side),
            _tests_by_twin(results, other_side),
        )
        labels = [
            label
            for twin, (test_id, label) in results_here.items()
            if twin not in results_there and test_id not in named_elsewhere
        ]
        notes += [f"tests on {side} only: {listed(labels, MOST_NAMED)}"] if labels else []
        ids = {test_id for test_id, _ in results_here.values()}
        skipped = [test_id for test_id in results.surveys[other_side].skipped if test_id in ids]
        notes += (
            [f"skipped on {other_side} only: {listed(list(map(short_name, skipped)), MOST_NAMED)}"]
            if skipped
            else []
        )
    return notes


def _changed_code_notes(results: SidesResults) -> list[str]:
    """Return notes on sides whose code changed during the run."""
    notes = []
    for side in SIDES:
        codes = list(
            dict.fromkeys(
                "; ".join(map(str, run.header.environment.code)) for run in results.runs_of(side)
            )
        )
        if len(codes) > 1:
            first, *_, last = codes
            notes.append(
                f"the code of side {side} changed during the run: {first} → {last}; measure again"
            )
    return notes


def _too_few_notes(paired_by_twin: Mapping[str, Paired], processes: int) -> list[str]:
    """Return a note if no test could turn red with so few processes.

    `processes` is the largest number for a side.
    """
    enough = max(
        (paired.verdict.processes_for_red for paired in paired_by_twin.values()), default=0
    )
    note = (
        f"{processes} processes a side are too few to turn any test red; use --processes {enough}, or select at least "
        "25 tests of similar spread"
    )
    return [note] if enough > processes else []


def _environment_changes(results: SidesResults) -> list[str]:
    """Return the differences between the environments of the sides; none unless both sides have run."""
    before, after = (results.environment(side) for side in SIDES)
    return (
        changed_environment(after.everything(), [before.everything()]) if before and after else []
    )


def report_text(report: Report, width: int, colour: bool) -> str:
    """Return a report for a terminal.

    It has the sides, a table with a row for each test, notes, and the sentence.
    """
    processes = ", ".join(filter(None, (_processes_text(report), f"seed {report.state.seed}")))
    head = [f"A {report.sides['A']}, B {report.sides['B']}: {processes}"]
    head += [f"changed: {listed(report.changed, MOST_NAMED, '; ')}"] if report.changed else []
    table = TextTable(("test", "left"), ("A", "right"), ("B", "right"), ("B against A", "right"), ("A/A", "right"),
                      ("verdict", "left"))  # fmt: skip
    for row in report.test_rows:
        table.add_row(printable(row.label), *_cells(report, row), styled(row.verdict))
    tables = [render(table, width, colour)] if report.test_rows else []
    tables += filter(None, [figures_table(report.kernel_rows, width, colour)])
    tail = [*_reason_lines(report), *kernel_notes(report.kernel_rows), *report.notes]
    if report.saved:
        tail.append(
            f"saved: {', '.join(f'{side} as {path.stem}' for side, path in report.saved.items())}"
        )
    word = report.sentence.partition(":")[0]
    last = render(Text(printable(report.sentence), style=_COLOURS[word]), width, colour)
    return "\n".join([*map(printable, head), *tables, *map(printable, tail), last])


def _processes_text(report: Report) -> str:
    """Return a text such as `8 A + 8 B + 1 A', tolerance 5 %`.

    It has the numbers of processes, of kernels, and the tolerance.
    """
    counts = {"A": "A", "B": "B", "control": "A'"}
    processes = " + ".join(
        f"{report.processes[arm]} {word}" for arm, word in counts.items() if arm in report.processes
    )
    kernels = (
        f"{count(len(report.kernel_rows), 'kernel')} in one process each of A, B and A'"
        if report.kernel_rows
        else ""
    )
    return ", ".join(filter(None, (processes, kernels, tolerance_text(report.test_rows))))


def _cells(report: Report, row: Row) -> list[str]:
    """Return the cells of a row behind its name.

    They are both times or figures, their difference, and that of the second A from the first.
    """
    control, change, span = report.controls.get(row.label), difference_text(row), span_text(row)
    change += f" ({span})" if change and span else ""
    return [
        baseline_text(row),
        now_text(row),
        change,
        "" if control is None else format_percent(control),
    ]


def _reason_lines(report: Report) -> list[str]:
    """Return a line for each reason of tests that are not green.

    It begins with the names of the tests. Reasons that differ only in their numbers share a line, which has the numbers
    of the first.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in report.rows:
        if row.reason and not is_green(row):
            groups.setdefault((row.verdict, re.sub(r"[\d.]+", "", row.reason)), []).append(row)
    lines = []
    for (verdict, _), rows in groups.items():
        labels, first = [row.label for row in rows], rows[0]
        lines.append(f"{verdict} {listed(labels, MOST_NAMED)}: {first.reason}")
    return lines


def report_as_json(report: Report) -> dict[str, object]:
    """Return a report as a JSON document."""
    return {name: getattr(report, name) for name in _PLAIN} | {
        "name": report.state.name,
        "seed": report.state.seed,
        "saved": {side: str(path) for side, path in report.saved.items()},
        "tests": [
            plain(row)
            | {
                "control_change": report.controls.get(row.label),
                "open": row.label in report.open,
                "p": row.time_verdict.p_adjusted if row.time_verdict is not None else None,
            }
            | (kernel_as_json(row) if row.metric == KERNEL else {})
            for row in report.rows
        ],
    }


def report_markdown(report: Report) -> str:
    """Return a report as a Markdown comment on a pull request."""
    names = ("test", "A", "B", "B against A", "A/A", "verdict")
    lines = [MARK, f"**{code(report.sentence)}**", ""]
    lines += [
        f"A {code(report.sides['A'])}, B {code(report.sides['B'])}: {_processes_text(report)}",
        "",
    ]
    if report.test_rows:
        lines += [line(names), "|---|---:|---:|---:|---:|---|"]
        lines += [
            line([code(row.label), *_cells(report, row), row.verdict])
            for row in report.test_rows[:MOST_ROWS]
        ]
        hidden_count = len(report.test_rows) - MOST_ROWS
        lines += [f"\n… and {hidden_count} more tests"] if hidden_count > 0 else []
    lines += figures_markdown(report.kernel_rows, MOST_ROWS)
    texts = [
        *_reason_lines(report),
        *kernel_notes(report.kernel_rows),
        *(f"changed: {text}" for text in report.changed),
        *report.notes,
    ]
    if texts:
        lines += ["", *(f"* {code(text)}" for text in texts[:MOST_ROWS])]
    return "\n".join([*lines, ""])
