"""All published figures as entries of baselines, and the list of those that are not, each with its reason."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import figures
import flags
import limits
import seeds
from conventions import meanings
from figures import Figure, Told
from meaning import Meaning
from seed_lines import Line
from variants import Variant, variant_of

from pytest_roofline.core.entries import Entry

# Marks what this program made; everything else in a baseline file is left alone.
MADE_BY = "baselines/published"


@dataclass(frozen=True, slots=True)
class Shipped:
    """An entry with the family of its file and the record that it is from.

    Args:
        figure: of a published figure, with its meaning; None of a document's.
    """

    record: str
    family: str
    entry: Entry
    variant: Variant
    figure: Figure | None = None
    meaning: Meaning | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record that is no entry, and why."""

    record: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Account:
    """Every record, accounted for: as one or more entries, or as left out."""

    records: tuple[str, ...]
    shipped: tuple[Shipped, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def lost(self) -> list[str]:
        """Records that are neither; nothing may be."""
        known = {one.record for one in (*self.shipped, *self.left_out)}
        return [record for record in self.records if record not in known]


def account(
    published: Sequence[Figure] | None = None, told: Sequence[Told] | None = None, titles: dict[str, str] | None = None
) -> Account:
    """Every record of the data files as entries, or with the reason why not."""
    published = figures.published() if published is None else published
    told = figures.told() if told is None else told
    titles = figures.documents() if titles is None else titles
    series = flags.Series(told)
    shipped: list[Shipped] = []
    left_out: list[LeftOut] = []
    for figure in published:
        _take_figure(figure, shipped, left_out)
    for one in told:
        _take_told(one, titles[one.document], series, shipped, left_out)
    return Account(tuple(record.id for record in (*published, *told)), tuple(shipped), tuple(left_out))


def _take_figure(figure: Figure, shipped: list[Shipped], left_out: list[LeftOut]) -> None:
    what = f"{figure.hardware} ({figure.variant}), {figure.metric} {figure.value:g} {figure.unit}"
    variant, found = variant_of(figure.hardware, figure.variant), meanings(figure)
    if variant is None:
        left_out.append(LeftOut(figure.id, what, f"no rule for the variant {figure.variant!r} of {figure.hardware}"))
    elif isinstance(found, str):
        left_out.append(LeftOut(figure.id, what, found))
    else:
        for meaning in found:
            entry = _entry_of(figure, meaning, variant)
            shipped.append(Shipped(figure.id, variant.family, entry, variant, figure, meaning))


def _entry_of(figure: Figure, meaning: Meaning, variant: Variant) -> Entry:
    entry = Entry(
        benchmark=meaning.benchmark,
        metric=meaning.metric,
        kind="threshold" if limits.gates(figure, meaning, variant) else "reference",
        hardware=variant.pattern(meaning.devices, meaning.link),
        parameters=meaning.parameters,
        provenance={"made_by": MADE_BY, "record": figure.id},
        value=float(f"{figure.value * meaning.factor:.10g}"),
        unit=meaning.unit,
        convention=meaning.convention,
        source=figure.source,
        confidence=figure.confidence,  # type: ignore[arg-type]
        statistic=meaning.statistic,
        note=_note(figure, meaning, variant),
    )
    return replace(entry, implausible=flags.said_by_source(figure) or flags.why_implausible(variant.family, entry))


def _note(figure: Figure, meaning: Meaning, variant: Variant) -> str:
    told = {"measured": "", "threshold": "a limit", "derived": "derived by the survey"}[figure.kind]
    if limits.gates(figure, meaning, variant):
        told = ""
    elif figure.kind == "threshold":
        told = "a limit that does not gate here"
    parts = [told, *limits.why_not(figure, meaning, variant), figure.variant if variant.product is None else ""]
    return "; ".join(part for part in dict.fromkeys(parts) if part)


def _take_told(one: Told, title: str, series: flags.Series, shipped: list[Shipped], left_out: list[LeftOut]) -> None:
    table = seeds.table_of(one)
    lines = table.lines(one)
    if isinstance(lines, str):
        left_out.append(LeftOut(one.id, f"{title}: {table.title}, {one.metric}", lines))
        return
    variant = variant_of(one.hardware or "")
    if variant is None:
        raise ValueError(f"{one.id}: hardware is {one.hardware!r}; expected one that variants.py knows")
    for line in lines:
        entry = _entry_told(one, line, f"{title}, {table.title}", variant)
        why = series.why_implausible(one, line) or flags.why_implausible(variant.family, entry)
        shipped.append(Shipped(one.id, variant.family, replace(entry, implausible=why), variant))


def _entry_told(one: Told, line: Line, source: str, variant: Variant) -> Entry:
    notes = [note for note in (*line.notes, variant.doubt) if note]
    return Entry(
        benchmark=line.benchmark,
        metric=line.metric,
        kind="reference",
        hardware=variant.pattern(line.devices, line.link),
        name=line.name,
        parameters=line.parameters,
        provenance={"made_by": MADE_BY, "record": one.id},
        value=line.value,  # type: ignore[arg-type]
        unit=line.unit,
        convention=line.convention,
        source=source,
        # Single reports of single people, most of them read off a plot or a table.
        confidence="medium",
        statistic=line.statistic,
        note="; ".join(dict.fromkeys(notes)),
    )
