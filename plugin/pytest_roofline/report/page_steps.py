"""Steps of language models, where time and memory go, and what tests found besides: the tables of the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..baselines.runs import Run
from ..core.memory import CATEGORIES, MemoryUse
from ..core.profiles import Profile
from ..core.records import Measurement
from ..core.rows import Row
from ..core.units import count, format_memory, format_seconds, format_share, three_digits
from ..observe.text import (
    COLUMNS,
    LONGEST_NAME,
    attention_text,
    calls_text,
    classes_text,
    clock_sentences,
    kernel_cells,
    parts_text,
    short_name,
    use_lines,
)
from .figures import first_call_text, steady_from
from .page_tables import Cell, Column, Table, number, plain_table, without_empty

# A sweep has dozens; the run file has all.
MOST_TOLD = 40


@dataclass(frozen=True, slots=True)
class Folded:
    """Something with a heading that is folded away: sentences, lines that keep their columns, and tables."""

    title: str
    says: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


def steps_table(rows: Sequence[Row]) -> Table | None:
    """Everything that counts tokens: rates, warm-up against steady state, compiling and memory."""
    columns = (
        Column("step", number=False),
        Column("time", means="seconds per call"),
        Column("tokens/s"),
        Column("MFU", means="model FLOPs as a share of the dense peak; * of a product measured on this machine"),
        Column("first call", means="the very first, by the host's clock"),
        Column("steady from", means="the first call as fast as the steady ones"),
        Column("compiling", means="what the first call took beyond a warm one"),
        Column("peak", means="the most memory that one call held"),
        Column("held", means="what stays allocated with its result"),
        Column("verdict", number=False),
    )
    cells = [_step(row, row.measurement) for row in rows if row.measurement is not None and row.measurement.work.tokens]
    return without_empty(Table("Steps of language models", columns, cells)) if cells else None


def _step(row: Row, one: Measurement) -> list[Cell]:
    seconds = row.time_s or one.median_s
    tokens = row.tokens_per_second
    return [
        Cell(row.label),
        number(format_seconds(seconds), seconds),
        Cell("") if tokens is None else number(three_digits(tokens), tokens),
        _mfu(row, one),
        *_warm_up(one),
        *(Cell("") if s is None else number(format_seconds(s), s) for s in (one.compile_s,)),
        *(Cell("") if size is None else number(format_memory(size), size) for size in (one.peak_bytes, one.held_bytes)),
        Cell(row.verdict, word=row.verdict),
    ]


def _mfu(row: Row, one: Measurement) -> Cell:
    share = row.roofline_share
    if one.mfu is None or one.ceiling is None or share is None:
        return Cell("")
    return number(format_share(share) + "*" * (one.ceiling.source == "measured"), share)


def _warm_up(one: Measurement) -> tuple[Cell, Cell]:
    calls = one.samples.first_calls_s
    if not calls:
        return Cell(""), Cell("")
    began = steady_from(one)
    steady = Cell("not yet", why=first_call_text(one)) if began is None else Cell(f"call {began}", began)
    return Cell(format_seconds(calls[0]), calls[0], why=first_call_text(one)), steady


def profiles_of(runs: Sequence[Run]) -> list[Folded]:
    """Where the time of a call goes, of every test that was profiled; of one that was repeated the last stands."""
    latest = {(run.path, one.test_id, one.name): one for run in runs for one in run.profiles}
    return [_profile(one) for one in list(latest.values())[:MOST_TOLD]] + _not_told(len(latest), "profile")


def _not_told(found: int, noun: str) -> list[Folded]:
    """A line in place of those that have no room, which is not folded since there is nothing in it."""
    return [Folded(f"… and {count(found - MOST_TOLD, f'more {noun}')}", "in the run file")] if found > MOST_TOLD else []


def _profile(one: Profile) -> Folded:
    lines = [f"{calls_text(one.calls)} on {one.device}; a profiler's times are never judged and in no baseline"]
    lines += clock_sentences(one)
    lines += [f"parts: {parts_text(one, at_most=MOST_TOLD)}"] * bool(one.parts)
    lines += [f"attention, {attention_text(found, one.calls)}" for found in one.attention]
    lines += [f"not told: {sentence}" for sentence in one.missing]
    tables = [_classes(one)] * bool(one.classes) + [_kernels(one)] * bool(one.kernels)
    says = classes_text(one) if one.classes else ""
    return Folded(one.label, says, tuple(lines), tuple(tables))


def _classes(one: Profile) -> Table:
    columns = (Column("class", number=False), Column("time"), Column("share of the span"))
    rows = [
        [
            Cell(found.name),
            number(format_seconds(found.total_s / one.calls), found.total_s),
            number(format_share(found.share), found.share),
        ]
        for found in one.classes
    ]
    return Table(f"Time of a call of {one.label} by class", columns, rows)


def _kernels(one: Profile) -> Table:
    what = "kernel" if one.on_device else "operator"
    rows = [[short_name(kernel.name, LONGEST_NAME), *kernel_cells(kernel, one.calls)] for kernel in one.kernels]
    return without_empty(plain_table(f"The longest {what}s of {one.label}", (what, *COLUMNS), rows))


def memory_table(runs: Sequence[Run]) -> Table | None:
    """What the peak of each call goes into, by category."""
    uses = _latest_uses(runs)
    columns = [Column("call", number=False), Column("peak"), Column("in", number=False), *map(Column, CATEGORIES)]
    rows = [
        [
            Cell(use.label),
            number(format_memory(use.peak_bytes), use.peak_bytes),
            Cell(use.phase),
            *(_size(use.categories.get(name, 0)) for name in CATEGORIES),
        ]
        for use in uses
    ]
    return without_empty(Table("Memory at the peak of a call, by category", columns, rows)) if rows else None


def memory_of(runs: Sequence[Run]) -> list[Folded]:
    """The same in full: the peak of each phase, and what the device counted."""
    told, found = [], _latest_uses(runs)
    for use in found[:MOST_TOLD]:
        first, *rest = use_lines(use)
        told.append(Folded(use.label, first.removeprefix(f"memory of {use.label}: "), tuple(rest)))
    return told + _not_told(len(found), "call")


def _latest_uses(runs: Sequence[Run]) -> list[MemoryUse]:
    # A rerun takes the place of the attempt before.
    return list({(run.path, use.test_id, use.name): use for run in runs for use in run.memory_uses}.values())


def _size(size_bytes: int) -> Cell:
    return number(format_memory(size_bytes), size_bytes) if size_bytes else Cell("")
