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
from variants import Variant, all_variants_of, variant_of

from pytest_roofline.core.entries import Entry
from pytest_roofline.core.errors import BadFile, BadInput

# Marks what this program made; everything else in a baseline file is left alone.
MADE_BY = "baselines/published"


@dataclass(frozen=True, slots=True)
class PublishedEntry:
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
    entries: tuple[PublishedEntry, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def lost(self) -> list[str]:
        """Records that are neither; nothing may be."""
        known = {one.record for one in (*self.entries, *self.left_out)}
        return [record for record in self.records if record not in known]


def account(
    published: Sequence[Figure] | None = None,
    told: Sequence[Told] | None = None,
    titles: dict[str, str] | None = None,
) -> Account:
    """Every record of the data files as entries, or with the reason why not.

    Raises:
        BadFile: a record that cannot be read, or that no rule knows.
    """
    published = figures.published() if published is None else published
    told = figures.told() if told is None else told
    titles = figures.documents() if titles is None else titles
    series = flags.Series(told)
    made: list[PublishedEntry] = []
    left_out: list[LeftOut] = []
    for figure in published:
        _take_figure(figure, made, left_out)
    for one in told:
        _take_told(one, titles, series, made, left_out)
    return Account(tuple(record.id for record in (*published, *told)), tuple(made), tuple(left_out))


def _take_figure(figure: Figure, made: list[PublishedEntry], left_out: list[LeftOut]) -> None:
    what = f"{figure.hardware} ({figure.variant}), {figure.metric} {figure.value:g} {figure.unit}"
    variants = all_variants_of(figure.hardware, figure.variant)
    if not variants:
        text = f"hardware is {figure.hardware!r} of hardware_variant {figure.variant!r}, which no rule knows"
        raise BadFile(f"{figure.id}: {text}; expected one of variants.py, or a new rule")
    try:
        found = meanings(figure)
        told = () if isinstance(found, str) else found
        entries = [
            (_entry_of(figure, one, variant), variant, one) for variant in variants for one in told
        ]
    except BadInput as error:
        raise BadFile(f"{figure.id}: {error}") from None
    if isinstance(found, str):
        left_out.append(LeftOut(figure.id, what, found))
    made += [
        PublishedEntry(figure.id, one.family, entry, one, figure, meaning)
        for entry, one, meaning in entries
    ]


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
    return replace(
        entry,
        implausible=flags.said_by_source(figure) or flags.why_implausible(variant.family, entry),
    )


def _note(figure: Figure, meaning: Meaning, variant: Variant) -> str:
    told = {"measured": "", "threshold": "a limit", "derived": "derived by the survey"}[figure.kind]
    if limits.gates(figure, meaning, variant):
        told = ""
    elif figure.kind == "threshold":
        told = "a limit that does not gate here"
    parts = [
        told,
        *limits.why_not(figure, meaning, variant),
        figure.variant if variant.product is None else "",
    ]
    return "; ".join(part for part in dict.fromkeys(parts) if part)


def _take_told(
    one: Told,
    titles: dict[str, str],
    series: flags.Series,
    made: list[PublishedEntry],
    left_out: list[LeftOut],
) -> None:
    if one.document not in titles:
        raise BadFile(
            f"{one.id}: document is {one.document!r}; expected one of {', '.join(titles)}"
        )
    try:
        table = seeds.table_of(one)
        lines = table.lines(one)
        source = f"{titles[one.document]}, {table.title}"
        if isinstance(lines, str):
            left_out.append(
                LeftOut(one.id, f"{source}, {one.metric} {one.value} {one.unit}", lines)
            )
            return
        variant = variant_of(one.hardware or "")
        if variant is None:
            raise BadInput(
                f"hardware is {one.hardware!r}, which no rule knows; expected one of variants.py"
            )
        for line in lines:
            entry = _entry_told(one, line, source, variant)
            why = series.why_implausible(one, line) or flags.why_implausible(variant.family, entry)
            made.append(
                PublishedEntry(one.id, variant.family, replace(entry, implausible=why), variant)
            )
    except KeyError as error:
        raise BadFile(
            f"{one.id}: parameters lack {error}; expected what others of its table have"
        ) from None
    except (TypeError, ValueError) as error:
        text = f"value {one.value!r} of {one.metric} cannot be taken as others of its table are ({error})"
        raise BadFile(f"{one.id}: {error if isinstance(error, BadInput) else text}") from None


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
