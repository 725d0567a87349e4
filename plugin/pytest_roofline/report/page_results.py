"""The tables of results: what every row says, worst first; what compiled kernels ask for; what ran out of memory."""

from collections.abc import Sequence

from ..core.resources import registers_of, spills_of
from ..core.rows import Row, badness
from ..core.units import format_bytes, format_memory, format_percent, format_seconds
from ..hardware import is_arithmetic
from ..kernel_gate.text import changes_text, figures_text
from ..observe.text import circumstances
from ..stats.verdicts import span_text
from .page_tables import Cell, Column, Table, number
from .words import difference_text, now_text, rate_text

_COLUMNS = (
    Column("test", number=False),
    Column("size"),
    Column("time", means="seconds per call"),
    Column("rate"),
    Column("roofline", means="share of the roofline; * where that was measured on this machine"),
    Column("baseline", means="seconds per call that it was compared with"),
    Column("difference", means="of the time: + is slower"),
    Column("99 % interval", means="of the difference"),
    Column("processes", means="new ones : those behind the baseline"),
    Column("verdict", number=False),
)
_PEAK = Column("peak", means="the most memory that one call held, and by how much more that is than the baseline's")
# A share beyond this means that the roofline is none for this work.
_MOST_SHARE = 9.995


def results_table(rows: Sequence[Row], several: bool) -> Table:
    """All rows in the order given; with a column for the run where there are several."""
    run = [Column("run", number=False)] * several
    peaks = any(row.measurement is not None and row.measurement.peak_bytes is not None for row in rows)
    columns = [_COLUMNS[0], *run, *_COLUMNS[1:-1], *[_PEAK] * peaks, _COLUMNS[-1]]
    return Table("All results, worst first", columns, [_cells(row, several, peaks) for row in rows])


def _cells(row: Row, several: bool, peaks: bool) -> list[Cell]:
    return [
        Cell(row.label, full=row.test),
        *([Cell(row.run or "")] if several else []),
        _size(row),
        _seconds(row.time_s),
        _rate(row),
        _share(row),
        _seconds(row.baseline_time_s),
        Cell("") if row.change is None else number(format_percent(row.change), row.change),
        _interval(row),
        _processes(row),
        *[_peak(row)] * peaks,
        Cell(row.verdict, badness(row.verdict)[0], why=reason(row), word=row.verdict),
    ]


def reason(row: Row) -> str:
    """Why, in a sentence; of a kernel what it asks for, and what of that changed."""
    told = [row.reason]
    if row.resources is not None:
        told += [difference_text(row), f"{row.resources.target}: {figures_text(row.resources)}"]
    elif row.lost is not None:
        told.insert(0, now_text(row))
    return "; ".join(filter(None, told))


def _peak(row: Row) -> Cell:
    size = row.measurement.peak_bytes if row.measurement is not None else None
    if size is None:
        return Cell("")
    change = row.peak.change if row.peak is not None else None
    return number(format_memory(size) + (f" {format_percent(change)}" if change is not None else ""), size)


def _size(row: Row) -> Cell:
    size = row.measurement.work.size_bytes if row.measurement is not None else 0
    return number(format_bytes(size), size) if size else Cell("")


def _seconds(seconds: float | None) -> Cell:
    return Cell("") if seconds is None else number(format_seconds(seconds), seconds)


def _rate(row: Row) -> Cell:
    if row.rate is None or row.measurement is None:
        return Cell("")
    return number(rate_text(row), row.rate)


def _share(row: Row) -> Cell:
    share, one = row.roofline_share, row.measurement
    if share is None or one is None or one.ceiling is None:
        return Cell("")
    if "cache_resident" in one.samples.labels and not is_arithmetic(one.ceiling):
        # A rate of bytes that came from a cache is no share of the memory's.
        return Cell("cache")
    text = ">999 %" if share > _MOST_SHARE else f"{share * 100:.0f} %"
    return number(text + "*" * (one.ceiling.source == "measured"), share)


def _interval(row: Row) -> Cell:
    if row.judgement is None or row.judgement.interval is None or row.interval is None:
        return Cell("")
    return number(span_text(row.judgement.interval), row.interval[0])


def _processes(row: Row) -> Cell:
    if row.processes is None:
        return Cell("")
    behind = len(row.baseline_medians_s)
    return number(f"{row.processes} : {behind}" if behind else f"{row.processes}", row.processes)


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
