"""What compiled kernels ask of their targets, and what ran out of memory: the tables of the page."""

from collections.abc import Sequence

from ...core.resources import registers_of, spills_of
from ...core.rows import Row
from ...core.units import format_bytes, format_memory
from ...kernel_gate.text import changes_text
from ...observe.out_of_memory_text import circumstances
from .page_tables import Cell, Column, Table, number


def kernels_table(rows: Sequence[Row]) -> Table | None:
    """Registers, shared memory, spills and matrix instructions, with what of all figures changed."""
    columns = (
        Column("kernel", number=False),
        Column("target", number=False),
        Column("registers", means="of a thread"),
        Column("shared", means="memory of a block"),
        Column("spills"),
        Column("matrix", means="instructions that multiply matrices"),
        Column("changed", number=False, means="against the baseline, exactly"),
        Column("verdict", number=False),
    )
    cells = [_kernel(row) for row in rows if row.resources is not None]
    return Table("Compiled kernels", columns, cells) if cells else None


def _kernel(row: Row) -> list[Cell]:
    assert row.resources is not None
    figures = row.resources.figures
    shared = figures.get("shared_bytes")
    changes = row.exact.changes if row.exact is not None else ()
    return [
        Cell(row.label.removesuffix(f"@{row.resources.target}")),
        Cell(row.resources.target),
        _count(registers_of(figures)),
        Cell("not read") if shared is None else number(format_bytes(shared), shared),
        _count(spills_of(figures)),
        _count(figures.get("matrix_instructions")),
        Cell(changes_text(changes, None)),
        Cell(row.verdict, why=row.reason, word=row.verdict),
    ]


def _count(value: int | None) -> Cell:
    return Cell("not read") if value is None else number(f"{value}", value)


def exhausted_table(rows: Sequence[Row]) -> Table | None:
    """Tests that ran out of memory: what they asked for, and what was there."""
    columns = (
        Column("test", number=False),
        Column("asked for"),
        Column("free"),
        Column("allocated", means="by torch's allocator"),
        Column("says", number=False),
        Column("verdict", number=False),
    )
    cells = [_exhausted(row) for row in rows if row.lost is not None]
    return Table("Out of memory", columns, cells) if cells else None


def _exhausted(row: Row) -> list[Cell]:
    found = row.lost
    assert found is not None
    sizes = (found.asked_bytes, found.free_bytes, found.allocated_bytes)
    return [
        Cell(row.label),
        *(Cell("") if size is None else number(format_memory(size), size) for size in sizes),
        Cell(found.message, why=circumstances(found)),
        Cell(row.verdict, word=row.verdict),
    ]
