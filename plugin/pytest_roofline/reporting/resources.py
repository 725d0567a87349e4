"""Compiled kernels in words: the table of a run, the sentences behind it, the message of a red test."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.resources import ExactJudgement, FigureChange, Resources
from ..core.units import format_bytes, printable
from ..judging.exact import ExactVerdict
from ..judging.verdicts import Kind

# In place of a verdict, where a test expected that.
DOES_NOT_FIT = "DOES NOT FIT"
# So many changed figures fit in a line that a person still reads.
MOST_CHANGES = 6


@dataclass(frozen=True, slots=True)
class ExactResult:
    """What a kernel asks for with what was said of it.

    There is no verdict where its test failed for itself, and on a kernel that cannot run at all.
    """

    resources: Resources
    verdict: ExactVerdict | None
    ended: str = "FAILED"

    @property
    def label(self) -> str:
        """The kernel as people call it."""
        return self.resources.label

    @property
    def word(self) -> str:
        """The verdict in a word, or how the test ended that has none."""
        return self.verdict.kind.value if self.verdict else self.ended


def figures_text(found: Resources) -> str:
    """`198 registers, 112 KiB shared, 0 spills, 24 matrix instructions`."""
    text = f"{found.registers} registers, {format_bytes(found.shared_bytes)} shared"
    if found.unread:
        return text
    return f"{text}, {found.spills} spills, {found.matrix_instructions} matrix instructions"


def change_text(change: FigureChange) -> str:
    """`registers 198 → 255`."""
    before, after = ("not read" if value is None else f"{value}" for value in (change.before, change.after))
    return f"{change.figure} {before} → {after}"


def changes_text(changes: Sequence[FigureChange], at_most: int | None = MOST_CHANGES) -> str:
    """Several of them; of very many the first."""
    shown = changes[:at_most]
    more = len(changes) - len(shown)
    return ", ".join(map(change_text, shown)) + (f" and {more} more" if more else "")


def difference_lines(results: Sequence[ExactResult], at_most: int = 12) -> list[str]:
    """What differs from the baseline although no test fails for it, and what could not be read or judged."""
    lines = []
    for result in results:
        text = _difference(result)
        if text:
            lines.append(printable(f"{result.word} {result.resources.label}: {text}"))
    unread = dict.fromkeys(f"{r.resources.target}: {r.resources.unread}" for r in results if r.resources.unread)
    more = [f"… and {len(lines) - at_most} more of these"] if len(lines) > at_most else []
    return [*lines[:at_most], *more, *map(printable, unread)]


def _difference(result: ExactResult) -> str:
    verdict = result.verdict
    if verdict is None or verdict.kind in (Kind.NO_BASELINE, Kind.REGRESSED):
        return ""
    if verdict.kind is Kind.INVALID:
        return verdict.reason
    if not verdict.changes:
        return ""
    text = f"{changes_text(verdict.changes)}; {', '.join(verdict.remarks)}"
    if any(change.verdict == "slack" for change in verdict.changes):
        text += "; within its slack"
    return text + ("; the baseline wants renewing" if verdict.kind is Kind.IMPROVED else "")


def status_word(result: ExactResult) -> str:
    """What stands behind PASSED in a verbose run."""
    verdict = result.verdict
    text = f"{result.resources.target} {figures_text(result.resources)}"
    return text + (f" {result.word}" if verdict is None or verdict.kind is not Kind.PASSED else "")


def failure_message(result: ExactResult, where: str) -> str:
    """Why a test is red, what got worse first; a second line says what else differs and how to accept it.

    Args:
        result: with a failing verdict.
        where: the run file.
    """
    found, verdict = result.resources, result.verdict
    assert verdict is not None
    label, details = printable(found.label), f"Details: {where}" if where else "The run could not be saved"
    if verdict.kind is Kind.NO_BASELINE:
        return (
            f"{label}: NO BASELINE ({printable(verdict.reason)}), and a baseline is required\n"
            f"  compiled: {figures_text(found)}. {details}; record one with `roofline baseline propose`."
        )
    if verdict.kind is Kind.INVALID:
        return f"{label}: INVALID ({printable(verdict.reason)})\n  compiled: {figures_text(found)}. {details}."
    worse = [change for change in verdict.changes if change.verdict == "worse"]
    others = [change for change in verdict.changes if change.verdict != "worse"]
    first = f"{label}: {changes_text(worse)} {verdict.kind.value}; exact; {', '.join(verdict.remarks)}"
    second = [verdict.reason] if verdict.reason else []
    second += [f"also {changes_text(others)}"] if others else []
    second.append(f"{details}; accept with `roofline baseline propose --accept-slower`.")
    return printable(first) + "\n  " + printable(". ".join(second))


def judgement_of(result: ExactResult) -> ExactJudgement:
    """The verdict as a run file keeps it."""
    found, verdict = result.resources, result.verdict
    assert verdict is not None
    return ExactJudgement(
        test_id=found.test_id,
        label=found.label,
        target=found.target,
        verdict=verdict.kind.value,
        name=found.key.name,
        reason=verdict.reason,
        source=verdict.source,
        changes=verdict.changes,
        remarks=verdict.remarks,
    )


def properties(results: Sequence[ExactResult]) -> list[tuple[str, str]]:
    """The figures of a test as name and text: `roofline.sm_90.registers`, for JUnit XML and other reports."""
    pairs = []
    for result in results:
        key = result.resources.key
        prefix = "roofline." + (f"{key.name}." if key.name else "") + f"{key.target}."
        figures = {name: f"{value}" for name, value in result.resources.figures.items()}
        if result.verdict is not None:
            figures["verdict"] = result.verdict.kind.value
            figures |= {f"baseline_{c.figure}": f"{c.before}" for c in result.verdict.changes if c.before is not None}
        pairs += [(printable(prefix + name), value) for name, value in figures.items()]
    return pairs


def explanation(run_path: str, found: Resources, judgement: ExactJudgement | None) -> list[str]:
    """Everything that is known of one compiled kernel of a run, as lines."""
    lines = [
        f"{found.label} in {run_path}",
        f"compiled for {found.target} by {_pairs(found.compiler)}",
        f"options: {_pairs(found.options)}",
        f"arguments: {_pairs(found.arguments)}",
        f"figures: {_pairs(found.figures)}",
    ]
    if found.shared_limit_bytes is not None:
        lines.append(f"shared memory: {found.shared_bytes:,} of {found.shared_limit_bytes:,} bytes")
    lines += [f"not read: {found.unread}"] * bool(found.unread)
    lines += [f"slack: {_pairs(found.slack)}"] * bool(found.slack)
    if judgement is None:
        why = found.invalid or "the test failed for itself, or the run was cut before its end"
        return [printable(line) for line in [*lines, f"no verdict: {why}"]]
    lines += [f"baseline: {judgement.source}"] * bool(judgement.source)
    lines += [f"  {change_text(change)}" + f" ({_MEANING[change.verdict]})" for change in judgement.changes]
    lines += [f"note: {remark}" for remark in judgement.remarks]
    lines.append(judgement.verdict + (f": {judgement.reason}" if judgement.reason else ""))
    return [printable(line) for line in lines]


_MEANING = {"worse": "worse", "slack": "worse, within its slack", "better": "better", "": "not judged"}


def _pairs(named: "dict[str, str] | dict[str, int] | dict[str, str | int | float | bool | None]") -> str:
    return ", ".join(f"{name} {value}" for name, value in named.items()) or "none"
