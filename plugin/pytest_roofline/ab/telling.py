"""What both sides came to: a row a test, worst first, and a sentence; for a terminal, a machine and a pull request."""

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
from ..core.reasons import Reason, ReasonCode, of_processes, text_reasons
from ..core.records import Measurement
from ..core.rows import FAILED, KERNEL, Row, plain, worst_first
from ..core.statuses import WORSE, Status, is_green, status_of
from ..core.units import count, format_percent, format_seconds, listed, printable
from ..core.verdicts import Group, Kind, Reference, Subject
from ..report.comparison import kernel_as_json
from ..report.messages import closing_lines
from ..report.summary import code, line
from ..report.tables import TextTable, render, styled
from ..report.words import tolerance_text
from ..stats.paired import Paired
from ..stats.stats import growth
from ..stats.verdicts import changed_environment, span_text
from .kernel_words import figures_markdown, figures_table, kernel_notes
from .kernels import compare_kernels
from .results import SidesResults, run_name
from .sides import SIDES, PreparedSide

# Of changes, tests without a twin and the like, so many are named.
MOST_NAMED = 5
# GitHub takes comments of 65,536 characters.
MOST_ROWS = 100
_COLOURS = {"GREEN": "green", "GREY": "yellow", "RED": "bold red"}
# What a document holds as it stands here.
_PLAIN = (
    "name",
    "sides",
    "sentence",
    "seed",
    "processes",
    "seconds",
    "changed",
    "notes",
    "interrupted",
)
# By which a later comment finds the one that it replaces.
MARK = "<!-- roofline ab -->"


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that a run came to.

    Args:
        rows: a test or a kernel each, worst first; its base's time or figures stand for a baseline's.
        controls: by label, what the second A showed against A, as a share of time.
        open: labels of tests that more processes could decide.
        changed: what differs between the sides' environments.
        notes: tests without a twin, code that changed meanwhile, too few processes for any red.
    """

    name: str
    sides: dict[str, str]
    rows: tuple[Row, ...]
    controls: dict[str, float] = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seed: int = 0
    processes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    saved: dict[str, Path] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def kernels(self) -> tuple[Row, ...]:
        """The rows of kernels; all others are of tests."""
        return tuple(row for row in self.rows if row.metric == KERNEL)

    @property
    def timed(self) -> tuple[Row, ...]:
        """The rows of tests."""
        return tuple(row for row in self.rows if row.metric != KERNEL)

    @property
    def reds(self) -> dict[str, tuple[str, str]]:
        """By test, what is worse on B: a word, and a sentence."""
        return {row.test: (row.verdict, row.reason) for row in self.rows if row.verdict in WORSE}

    @property
    def sentence(self) -> str:
        """How it ended, in one of three colours."""
        tests = [row.test for row in self.rows]
        return closing_lines(self.rows, self.reds, tests, status=2 if self.interrupted else 0)[-1]

    @property
    def status(self) -> Status:
        """The exit status."""
        return status_of(self.rows, complete=not self.interrupted)


def tell(
    results: SidesResults,
    judged: Mapping[str, Paired],
    sides: Mapping[str, PreparedSide],
    *,
    interrupted: bool,
) -> Told:
    """What there is to tell of a run, whose sides are saved with it."""
    rows, controls, still = [], {}, set()
    for twin, found in judged.items():
        row = _row(results, twin, found)
        rows.append(row)
        if found.control is not None:
            controls[row.label] = growth(found.control)
        if found.open:
            still.add(row.label)
    kernels = compare_kernels(results)
    rows += kernels.rows
    failed, notes = _failed(results, {row.test for row in rows})
    taken = results.state.taken
    return Told(
        name=results.state.name,
        sides={side: str(made) for side, made in sides.items()},
        rows=tuple(worst_first([*rows, *failed])),
        controls=controls,
        open=frozenset(still),
        changed=tuple(_changed(results)),
        notes=(
            *notes,
            *_alone(results),
            *kernels.notes,
            *_moved(results),
            *_sleeps(judged, results.state.processes),
        ),
        seed=results.state.seed,
        processes=dict(Counter(one.arm for one in taken)),
        seconds={
            arm: sum(one.seconds for one in taken if one.arm == arm)
            for arm in ("A", "B", "control")
        }
        | {f"warming {side}": survey.seconds for side, survey in results.surveys.items()}
        | {"all": results.state.seconds},
        saved=results.save(
            [verdict for row in rows if (verdict := row.time_verdict or row.exact) is not None]
        ),
        interrupted=interrupted,
    )


def _row(results: SidesResults, twin: str, found: Paired) -> Row:
    """A test of both sides; one that fails on B alone is FAILED, whatever its times were."""
    before, after = ([one for _, one in results.taken_of(twin, arm)] for arm in ("A", "B"))
    tests = {side: results.surveys[side].tests[twin] for side in SIDES}
    kind, label, reasons = found.verdict.kind, tests["B"].label, found.verdict.reasons
    if before and after:
        # Of two values of a parameter the name without either.
        label = Twins(Variant("A", before), Variant("B", after)).label + (
            f".{tests['B'].key.name}" * bool(tests["B"].key.name)
        )
        modes = [{one.samples.achieved for one in side} for side in (before, after)]
        if modes[0] != modes[1]:
            labels = [";".join(sorted(",".join(mode) for mode in side)) for side in modes]
            texts = dict(zip(SIDES, labels, strict=True))
            reasons = *reasons, Reason(ReasonCode.SIDES_TIMED, texts=texts)
        if results.parameters["A"] is None and after[-1].work != before[-1].work:
            kind, reasons = Kind.INVALID, (Reason(ReasonCode.OTHER_WORK),)
    else:
        spoiled, taken, why_not = results.unsound(twin)
        kind, reasons = Kind.INVALID, (Reason(ReasonCode.UNTIMED),)
        if spoiled:
            reasons = tuple(of_processes(each, spoiled, taken) for each in text_reasons(why_not))
    why = {side: text for side in SIDES if (text := results.trouble(side).get(tests[side].test_id))}
    if why:
        kind = Kind.INVALID
        reasons = tuple(
            Reason(ReasonCode.SIDE_ENDED, texts={"side": side, "text": text})
            for side, text in why.items()
        )
    verdict = replace(
        found.verdict,
        kind=kind,
        reasons=reasons,
        subject=Subject(
            tests["B"].test_id, label, tests["B"].key.name, changed=tuple(_changed(results))
        ),
        reference=_reference(results, before),
        new_medians_s=tuple(one.median_s for one in after),
    )
    base_s = geometric_mean([one.median_s for one in before]) if before else None
    row = replace(
        compared_row(
            tests["B"].key,
            None,
            verdict,
            geometric_mean([one.median_s for one in after]) if after else None,
        ),
        baseline_value=base_s,
        baseline_time_s=base_s,
        processes=len(after) or None,
    )
    # A test that was skipped, for lack of memory, say, is not worse.
    failed = [*why] == ["B"] and not why["B"].startswith("skipped in ")
    return replace(row, verdict=FAILED, red=True) if failed else row


def _reference(results: SidesResults, before: Sequence[Measurement]) -> Reference | None:
    """Return the processes of A as what B is compared with; None where there are none."""
    if not before:
        return None
    started = results.runs_of("A")[0].header.started
    group = Group(tuple(measurement.median_s for measurement in before), started=started)
    return Reference((group,), run_name(results.state.name, "A"))


def _failed(results: SidesResults, known: set[str]) -> tuple[list[Row], list[str]]:
    """Rows of tests that fail on B and not on A, where both have them; and notes on the others that fail."""
    why = {side: {**results.surveys[side].trouble} for side in SIDES}
    on_a = {test_id for test_id, _ in _results_of(results, "A").values()}
    paired = results.parameters["A"] is not None
    rows, notes = [], []
    for test_id in {**why["A"], **why["B"]}:
        worse = test_id in why["B"] and test_id not in why["A"] and (paired or test_id in on_a)
        if worse and test_id not in known:
            rows.append(
                Row(
                    test=test_id,
                    label=short_name(test_id),
                    parameters={},
                    verdict=FAILED,
                    red=True,
                    reason=f"B: {why['B'][test_id]}",
                )
            )
        elif not worse:
            on = [side for side in SIDES if test_id in why[side]]
            notes.append(
                f"fails on {' and '.join(on)}: {short_name(test_id)}: {why[on[0]][test_id]}"
            )
    return rows, notes


def _results_of(results: SidesResults, side: str) -> dict[str, tuple[str, str]]:
    """Return the node id and the label of all that a side timed or compiled, by what tells twins apart."""
    tests = results.surveys[side].tests.items()
    timed = {twin: (each.test_id, each.label) for twin, each in tests}
    kernels = results.kernels(side).items()
    return timed | {identity: (each.test_id, each.label) for identity, each in kernels}


def _alone(results: SidesResults) -> list[str]:
    """Tests that one side alone has."""
    notes = []
    for side, other in (("A", "B"), ("B", "A")):
        known = results.surveys[other].trouble.keys() | results.surveys[other].skipped.keys()
        mine, twins = _results_of(results, side), _results_of(results, other)
        alone = [
            label
            for twin, (test_id, label) in mine.items()
            if twin not in twins and test_id not in known
        ]
        notes += [f"on {side} only: {listed(alone, MOST_NAMED)}"] if alone else []
        ids = {test_id for test_id, _ in mine.values()}
        skipped = [test_id for test_id in results.surveys[other].skipped if test_id in ids]
        notes += (
            [f"skipped on {other} only: {listed(list(map(short_name, skipped)), MOST_NAMED)}"]
            if skipped
            else []
        )
    return notes


def _moved(results: SidesResults) -> list[str]:
    """Sides whose code did not stay what it was."""
    notes = []
    for side in SIDES:
        codes = list(
            dict.fromkeys(
                "; ".join(map(str, run.header.environment.code)) for run in results.runs_of(side)
            )
        )
        if len(codes) > 1:
            notes.append(
                f"the code of {side} changed while it was measured: {codes[0]} → {codes[-1]}; measure anew"
            )
    return notes


def _sleeps(judged: Mapping[str, Paired], most: int) -> list[str]:
    """That nothing could turn red, where so few processes were asked for."""
    needed = max((found.verdict.fewest for found in judged.values()), default=0)
    told = f"nothing turns red by {most} processes a side: use --processes {needed}, or 25 tests of one spread"
    return [told] * (needed > most)


def _changed(results: SidesResults) -> list[str]:
    """What differs between the environments of the sides."""
    before, after = (results.environment(side) for side in SIDES)
    return (
        changed_environment(after.everything(), [before.everything()]) if before and after else []
    )


def told_text(told: Told, width: int, colour: bool) -> str:
    """Sides, what differs, a row a test, why some are open, what is without a twin, and the sentence."""
    head = [f"A {told.sides['A']}, B {told.sides['B']}: {_taken(told)}, seed {told.seed}"]
    head += [f"changed: {listed(told.changed, MOST_NAMED, '; ')}"] if told.changed else []
    table = TextTable(("test", "left"), ("A", "right"), ("B", "right"), ("B against A", "right"), ("A/A", "right"),
                      ("verdict", "left"))  # fmt: skip
    for row in told.timed:
        table.add_row(printable(row.label), *_cells(told, row), styled(row.verdict))
    tables = [render(table, width, colour)] if told.timed else []
    tables += filter(None, [figures_table(told.kernels, width, colour)])
    tail = [*_reasons(told), *kernel_notes(told.kernels), *told.notes]
    if told.saved:
        tail.append(
            f"saved: {', '.join(f'{side} as {path.stem}' for side, path in told.saved.items())}"
        )
    word = told.sentence.partition(":")[0]
    last = render(Text(printable(told.sentence), style=_COLOURS[word]), width, colour)
    return "\n".join([*map(printable, head), *tables, *map(printable, tail), last])


def _taken(told: Told) -> str:
    """Return `8 A + 8 B + 1 A', tolerance 5 %`."""
    counts = {"A": "A", "B": "B", "control": "A'"}
    processes = " + ".join(
        f"{told.processes[arm]} {word}" for arm, word in counts.items() if arm in told.processes
    )
    kernels = f"{count(len(told.kernels), 'kernel')} of 1 A + 1 B + 1 A'" if told.kernels else ""
    return ", ".join(filter(None, (processes, kernels, tolerance_text(told.timed))))


def _cells(told: Told, row: Row) -> list[str]:
    """Both times, the difference with its interval, and that of the second A."""
    times = [
        "" if time_s is None else format_seconds(time_s)
        for time_s in (row.baseline_time_s, row.time_s)
    ]
    judged, control = row.time_verdict, told.controls.get(row.label)
    change = "" if row.change is None else format_percent(row.change)
    if change and judged is not None and judged.interval is not None:
        change += f" ({span_text(judged.interval)})"
    return [*times, change, "" if control is None else format_percent(control)]


def _reasons(told: Told) -> list[str]:
    """Why tests are open or nothing can be said of them, each reason once; tests differ in its numbers only."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in told.rows:
        if row.reason and not is_green(row):
            groups.setdefault((row.verdict, re.sub(r"[\d.]+", "", row.reason)), []).append(row)
    return [
        f"{word} {listed([row.label for row in rows], MOST_NAMED)}: {rows[0].reason}"
        for (word, _), rows in groups.items()
    ]


def told_as_json(told: Told) -> dict[str, object]:
    """Everything, and of each test a row as every document has it with the second A's difference."""
    return {name: getattr(told, name) for name in _PLAIN} | {
        "saved": {side: str(path) for side, path in told.saved.items()},
        "tests": [
            plain(row)
            | {
                "control_change": told.controls.get(row.label),
                "open": row.label in told.open,
                "p": row.time_verdict.p_adjusted if row.time_verdict is not None else None,
            }
            | (kernel_as_json(row) if row.metric == KERNEL else {})
            for row in told.rows
        ],
    }


def told_markdown(told: Told) -> str:
    """A comment on a pull request, which a later one can find and replace."""
    names = ("test", "A", "B", "B against A", "A/A", "verdict")
    lines = [MARK, f"**{code(told.sentence)}**", ""]
    lines += [f"A {code(told.sides['A'])}, B {code(told.sides['B'])}: {_taken(told)}", ""]
    if told.timed:
        lines += [line(names), "|---|---:|---:|---:|---:|---|"]
        lines += [
            line([code(row.label), *_cells(told, row), row.verdict])
            for row in told.timed[:MOST_ROWS]
        ]
        left = len(told.timed) - MOST_ROWS
        lines += [f"\n… and {left} more"] if left > 0 else []
    lines += figures_markdown(told.kernels, MOST_ROWS)
    texts = [
        *_reasons(told),
        *kernel_notes(told.kernels),
        *(f"changed: {text}" for text in told.changed),
        *told.notes,
    ]
    if texts:
        lines += ["", *(f"* {code(text)}" for text in texts[:MOST_ROWS])]
    return "\n".join([*lines, ""])
