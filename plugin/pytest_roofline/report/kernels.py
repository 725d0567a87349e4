"""Compiled kernels in words.

They are the table of a run, the sentences behind it, and the message of a red test.
"""

from collections.abc import Sequence

from ..core.errors import ACCEPT, RECORD
from ..core.resources import Resources
from ..core.rows import Row
from ..core.units import cut, format_bytes, listed, printable
from ..core.verdicts import ExactVerdict, FigureChange, Kind

# The meaning of a figure that is worse, and a remedy.
ADVICE = {
    "serialized_wgmma": "each of these matrix instructions waits for the previous matrix instruction. Let only matrix "
    "products write an accumulator, keep calls and prints out of the loop, or use more warps",
    "exposed_exponentials": "no matrix instruction runs during these exponentials. Issue the next matrix product "
    "before the exponentials, and wait for its result after the exponentials",
    "narrow_lds": "these accesses of shared memory move 8 or 16 bits, but cost as much as 32 bits. Try another "
    "num_warps, or load the operand with a contiguous inner dimension",
}
# Changed figures that a line lists before it counts the others.
MOST_CHANGES = 6


def figures_text(resources: Resources) -> str:
    """Return `198 registers, 112 KiB shared, 0 spills, 24 matrix instructions`."""
    text = f"{resources.registers} registers, {format_bytes(resources.shared_bytes)} shared"
    if resources.unread:
        return text
    return f"{text}, {resources.spills} spills, {resources.matrix_instructions} matrix instructions"


def change_text(change: FigureChange) -> str:
    """Return `registers 198 → 255`."""
    before, after = (
        "not read" if value is None else f"{value}" for value in (change.before, change.after)
    )
    return f"{change.figure} {before} → {after}"


def changes_text(changes: Sequence[FigureChange], at_most: int | None = MOST_CHANGES) -> str:
    """Return the first changes as one line, and how many more there are."""
    return listed(
        [change_text(change) for change in changes], len(changes) if at_most is None else at_most
    )


def advice_lines(changes: Sequence[FigureChange], warning: str = "") -> list[str]:
    """Return the meaning and a remedy of each figure that is worse.

    `warning` is the assembler's reason for serialized matrix instructions.
    """
    worse = [change.figure for change in changes if change.verdict == "worse"]
    lines = [f"{figure}: {ADVICE[figure]}" for figure in worse if figure in ADVICE]
    if warning and "serialized_wgmma" in worse:
        lines.append(f"ptxas: {warning}")
    return lines


def difference_lines(rows: Sequence[Row], at_most: int = 12) -> list[str]:
    """Return lines on the differences of compiled kernels that fail no test.

    They also tell why figures could not be read or judged.
    """
    lines = [
        printable(f"{row.verdict} {row.label}: {text}")
        for row in rows
        if (text := _difference(row.exact))
    ]
    kernels = [row.resources for row in rows if row.resources is not None]
    unread = dict.fromkeys(
        f"{kernel.target}: {kernel.unread}" for kernel in kernels if kernel.unread
    )
    return [*cut(lines, at_most, "of these"), *map(printable, unread)]


def _difference(exact: ExactVerdict | None) -> str:
    """Return the changes of a kernel that is not red, or why it is INVALID.

    The text is empty without changes, and for a kernel that is red or has no verdict or baseline.
    """
    if exact is None or exact.verdict in (Kind.NO_BASELINE, Kind.REGRESSED):
        return ""
    if exact.verdict == Kind.INVALID:
        return exact.reason
    if not exact.changes:
        return ""
    text = f"{changes_text(exact.changes)}; {', '.join(exact.remarks)}"
    if any(change.verdict == "slack" for change in exact.changes):
        text += "; within its slack"
    return text + ("; renew the baseline" if exact.verdict == Kind.IMPROVED else "")


def status_word(row: Row) -> str:
    """Return the text after PASSED in a verbose run: `sm_90 198 registers, …`."""
    assert row.resources is not None
    text = f"{row.target} {figures_text(row.resources)}"
    return text if row.exact is not None and row.verdict == Kind.PASSED else f"{text} {row.verdict}"


def failure_message(row: Row, where: str) -> str:
    """Return why a test is red, the worse figures first.

    A second line has all other differences, and the command that accepts them. `where` is the run
    file with the details; it is empty where the run could not be saved.
    """
    resources, exact = row.resources, row.exact
    assert resources is not None
    assert exact is not None
    label = printable(row.label)
    details = f"Details: {where}" if where else "The run could not be saved"
    if row.verdict == Kind.NO_BASELINE:
        return (
            f"{label}: NO BASELINE ({printable(exact.reason)}), and a baseline is required\n"
            f"  compiled: {figures_text(resources)}. {details}; {RECORD}."
        )
    if row.verdict == Kind.INVALID:
        return f"{label}: INVALID ({printable(exact.reason)})\n  compiled: {figures_text(resources)}. {details}."
    worse = [change for change in exact.changes if change.verdict == "worse"]
    other_changes = [change for change in exact.changes if change.verdict != "worse"]
    first_line = f"{label}: {changes_text(worse)} {row.verdict}; exact; {', '.join(exact.remarks)}"
    sentences = [exact.reason] if exact.reason else []
    sentences += [f"also {changes_text(other_changes)}"] if other_changes else []
    sentences += advice_lines(worse, resources.warning)
    sentences.append(f"{details}; {ACCEPT}.")
    return printable(first_line) + "\n  " + printable(". ".join(sentences))


def properties(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the figures of a test as name and text: `roofline.sm_90.registers`."""
    pairs = []
    for row in rows:
        prefix = "roofline." + (f"{row.name}." if row.name else "") + f"{row.target}."
        figures = {name: f"{value}" for name, value in (row.figures or {}).items()}
        if row.exact is not None:
            figures["verdict"] = row.verdict
            figures |= {
                f"baseline_{change.figure}": f"{change.before}"
                for change in row.exact.changes
                if change.before is not None
            }
        pairs += [(printable(prefix + name), value) for name, value in figures.items()]
    return pairs


def explanation(run_path: str, resources: Resources, judgement: ExactVerdict | None) -> list[str]:
    """Return all facts on a compiled kernel of a run, as lines.

    `judgement` is its verdict, with the changes from the baseline; None where it was not judged.
    """
    lines = [
        f"{resources.label} in {run_path}",
        f"compiled for {resources.target} by {_pairs(resources.compiler)}",
        f"options: {_pairs(resources.options)}",
        f"arguments: {_pairs(resources.arguments)}",
        f"figures: {_pairs(resources.figures)}",
    ]
    if resources.shared_limit_bytes is not None:
        lines.append(
            f"shared memory: {resources.shared_bytes:,} of {resources.shared_limit_bytes:,} bytes"
        )
    if resources.unread:
        lines.append(f"not read: {resources.unread}")
    if resources.slack:
        lines.append(f"slack: {_pairs(resources.slack)}")
    if judgement is None:
        reason = (
            resources.invalid
            or "the test failed before its verdict, or the run was cut before its end"
        )
        return [printable(line) for line in [*lines, f"no verdict: {reason}"]]
    if judgement.source:
        lines.append(f"baseline: {judgement.source}")
    lines += [
        f"  {change_text(change)} ({_MEANING[change.verdict]})" for change in judgement.changes
    ]
    lines += [f"note: {remark}" for remark in judgement.remarks]
    lines += [f"note: {advice}" for advice in advice_lines(judgement.changes, resources.warning)]
    lines.append(judgement.verdict + (f": {judgement.reason}" if judgement.reason else ""))
    return [printable(line) for line in lines]


# The verdicts on one figure, as an explanation shows them.
_MEANING = {
    "worse": "worse",
    "slack": "worse, within its slack",
    "better": "better",
    "": "not judged",
}


def _pairs(
    values: "dict[str, str] | dict[str, int] | dict[str, str | int | float | bool | None]",
) -> str:
    """Return `num_warps 4, num_stages 3`, or `none`."""
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "none"
