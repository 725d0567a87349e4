"""Tables about compiled kernels: of a run, of a baseline, of an approval and of a comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ..core.entries import ExactEntry
from ..core.resources import registers_of, spills_of
from ..core.rows import badness
from ..core.units import format_bytes, printable
from ..judging.exact_comparing import ExactRow
from ..judging.exact_renewal import ExactChange
from .layout import new_table, render
from .resources import ExactResult, changes_text
from .tables import STYLES

_FIGURES = (("registers", "right"), ("shared", "right"), ("spills", "right"), ("matrix", "right"))


def resources_table(results: Sequence[ExactResult], width: int, colour: bool) -> str:
    """What a run compiled, with its verdicts, worst first."""
    table = new_table(("test", "left"), ("target", "left"), *_FIGURES, ("verdict", "left"))
    for result in sorted(results, key=lambda result: badness(result.word)):
        found = result.resources
        table.add_row(*_names(found.label, found.target), *_cells(found.figures), _styled(result.word))
    return render(table, width, colour)


def exact_table(entries: Sequence[ExactEntry], width: int, colour: bool) -> str:
    """What exact entries hold, a row each, with the compiler that said so."""
    table = new_table(("entry", "left"), ("target", "left"), *_FIGURES, ("triton", "left"))
    for entry in entries:
        triton = printable(entry.compiler.get("triton", ""))
        table.add_row(*_names(entry.label, entry.target), *_cells(entry.figures), triton)
    return render(table, width, colour)


def exact_change_lines(changes: Sequence[ExactChange]) -> list[str]:
    """What an approval would do to each entry that is there already: `gemm[sm_90]: replaced, registers 108 → 120`."""
    lines = []
    for change in changes:
        if change.action == "replaced":
            told = changes_text(change.changes, at_most=None) or "the same figures, compiled otherwise"
            lines.append(printable(f"{change.entry.label}: replaced, {told}"))
    return lines


def exact_comparison_table(rows: Sequence[ExactRow], width: int, colour: bool) -> str:
    """The offline comparison of compiled kernels, in the order given; figures are those of the new side."""
    table = new_table(("test", "left"), ("target", "left"), *_FIGURES, ("verdict", "left"))
    for row in rows:
        names = _names(row.key.label, row.key.target)
        table.add_row(*names, *_cells(row.new), _styled(row.verdict.kind.value))
    return render(table, width, colour)


def exact_reason_lines(rows: Sequence[ExactRow]) -> list[str]:
    """What differs, a line for each kernel that does not ask for the very same."""
    lines = []
    for row in rows:
        verdict = row.verdict
        told = [verdict.reason] if verdict.reason else []
        if verdict.changes:
            told += [changes_text(verdict.changes), ", ".join(verdict.remarks)]
        if told:
            lines.append(printable(f"{verdict.kind.value} {row.label}: {'; '.join(filter(None, told))}"))
    return lines


def changes_as_json(row: ExactRow) -> dict[str, Any]:
    """What a comparison knows of a compiled kernel beside its figures."""
    verdict = row.verdict
    return {
        "baseline_figures": row.old,
        "worse": [change.figure for change in verdict.changes if change.verdict == "worse"],
        "better": [change.figure for change in verdict.changes if change.verdict == "better"],
        "remarks": list(verdict.remarks),
    }


def exact_as_json(entry: ExactEntry) -> dict[str, Any]:
    """An exact entry for a machine."""
    return {
        "label": entry.label,
        "benchmark": entry.benchmark,
        "name": entry.name,
        "parameters": entry.parameters,
        "kind": "exact",
        "target": entry.target,
        "figures": entry.figures,
        "options": entry.options,
        "compiler": entry.compiler,
    }


def _names(label: str, target: str) -> tuple[str, str]:
    """Test and target, which stands in its own column alone."""
    return printable(label.removesuffix(f"@{target}")), printable(target)


def _styled(word: str) -> Text:
    return Text(word, style=STYLES.get(word, ""))


def _cells(figures: Mapping[str, int]) -> list[str]:
    spills, matrix = spills_of(figures), figures.get("matrix_instructions")
    shared = figures.get("shared_bytes")
    return [
        _number(registers_of(figures)),
        "?" if shared is None else format_bytes(shared),
        _number(spills),
        _number(matrix),
    ]


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value}"
