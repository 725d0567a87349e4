"""Tables about compiled kernels: of a run, of a baseline, of an approval and of a comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.entries import ExactEntry
from ..core.resources import registers_of, spills_of
from ..core.rows import Row, badness
from ..core.units import format_bytes, printable
from ..kernel_gate.recording import ExactChange
from ..kernel_gate.text import changes_text
from .layout import new_table, render
from .tables import styled

_FIGURES = (("registers", "right"), ("shared", "right"), ("spills", "right"), ("matrix", "right"))


def kernels_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """What a run compiled, or of a comparison its new side, with the verdicts, worst first."""
    table = new_table(("test", "left"), ("target", "left"), *_FIGURES, ("verdict", "left"))
    for row in sorted(rows, key=lambda row: badness(row.verdict)):
        target = row.target or ""
        table.add_row(*_names(row.label, target), *_cells(row.figures or {}), styled(row.verdict))
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


def exact_reason_lines(rows: Sequence[Row]) -> list[str]:
    """What differs, a line for each kernel that does not ask for the very same."""
    lines = []
    for row in rows:
        assert row.exact is not None
        told = [row.exact.reason]
        told += [changes_text(row.exact.changes), ", ".join(row.exact.remarks)] if row.exact.changes else []
        if any(told):
            lines.append(printable(f"{row.verdict} {row.label}: {'; '.join(filter(None, told))}"))
    return lines


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
