"""The tables of docs/results/published.md: limits that gate, how much they notice, and limits that do not gate."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from crosscheck import comparable, may_be_the_same, pairs
from entries import Account, PublishedEntry
from flags import peak_of
from shipping import shipped

from pytest_roofline.core.errors import BadFile

NOTHING = "–"


def filled(text: str, found: Account) -> str:
    """The page with its tables made anew between their markers.

    Raises:
        BadFile: a marker is missing.
    """
    return between(
        text,
        {
            "conclusion": iter([conclusion(found)]),
            "gating": gating_table(found),
            "not-gating": idle_table(found),
            "implausible": implausible_table(found),
            "counts": count_lines(found),
            "figures": figure_table(found),
            "left-out": left_out_table(found),
        },
    )


def conclusion(account: Account) -> str:
    """Return the sentence that the page begins with."""
    entries = shipped(account)
    gating = sum(published.entry.gates for published in entries)
    return (
        f"Of {len(account.records)} published figures and limits {len(entries)} entries ship, of which {gating} limits "
        "can turn a test red; the others are shown beside a measurement."
    )


def between(text: str, tables: Mapping[str, Iterable[str]]) -> str:
    """A page with the lines of each table between its markers.

    Raises:
        BadFile: a marker is missing.
    """
    for name, lines in tables.items():
        begin, end = (
            f"<!-- {name}: made by baselines/published/build.py -->",
            f"<!-- end of {name} -->",
        )
        if text.count(begin) != 1 or text.count(end) != 1:
            raise BadFile(f"the page lacks its markers {begin} and {end}; expected each once")
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{chr(10).join(lines)}\n{end}{rest.split(end)[1]}"
    return text


def typical(limit: PublishedEntry, found: Account) -> PublishedEntry | None:
    """The measured figure of the same product to hold beside a limit."""
    figures = [
        one
        for one in found.entries
        if comparable(limit, one)
        and one.family == limit.family
        and may_be_the_same(limit.entry.hardware, one.entry.hardware)
    ]
    return max(figures, key=_certainty, default=None)


def _certainty(one: PublishedEntry) -> tuple[bool, bool, int, float]:
    assert isinstance(one.entry.value, int | float)
    assert one.meaning is not None
    # The exact variant first, then what differs least from ours; among equals the slowest, which flatters no limit.
    exact = one.entry.hardware.product is not None and one.entry.hardware.memory is not None
    return one.entry.confidence == "high", exact, -len(one.meaning.apart), -float(one.entry.value)


def gating(found: Account) -> list[PublishedEntry]:
    """The entries that gate, by product."""
    entries = [one for one in found.entries if one.entry.gates]
    return sorted(
        entries, key=lambda one: (str(one.entry.hardware), one.entry.benchmark, _case(one))
    )


def gating_table(found: Account) -> Iterator[str]:
    """One line a limit: what it asks, what is typical, and from where on it notices."""
    yield "| product | measurement | limit | of the peak | typical, as published | notices from | limit's source |"
    yield "|---|---|---:|---:|---|---:|---|"
    for one in gating(found):
        beside, share = typical(one, found), share_of_peak(one)
        yield row(
            f"{one.entry.hardware.product}, {one.entry.hardware.memory}",
            f"`{one.entry.label}`, {_STATISTICS[one.entry.statistic or 'median']}",
            f"{one.entry.value:g} GB/s",
            NOTHING if share is None else f"{share:.0%}",
            "none found" if beside is None else f"{beside.entry.value:g} GB/s ({_source(beside)})",
            NOTHING if beside is None else f"{missing(one, beside):.0%} below that",
            _source(one),
        )
    held = {pair.limit.record + pair.limit.entry.label for pair in pairs(found)}
    yield ""
    yield (
        f"Of these {len(gating(found))} limits, {len(held)} have a figure of high confidence beside them that was "
        "measured on their own product and is of the same thing; the program checks that it passes. The others are "
        "held against the peak alone."
    )


def share_of_peak(limit: PublishedEntry) -> float | None:
    """A limit as a share of the datasheet's peak; None where no trusted one is known."""
    peak = peak_of(limit.family, limit.entry.hardware, "memory_GBps")
    assert isinstance(limit.entry.value, int | float)
    return None if peak is None else limit.entry.value / peak


_STATISTICS = {"median": "median", "mean": "mean", "best": "fastest call"}


def missing(limit: PublishedEntry, beside: PublishedEntry) -> float:
    """By which share a machine must be below a typical figure before the limit notices."""
    assert isinstance(limit.entry.value, int | float)
    assert isinstance(beside.entry.value, int | float)
    return 1 - limit.entry.value / beside.entry.value


def idle_table(found: Account) -> Iterator[str]:
    """Every published limit that does not gate, and why: one line a record."""
    yield "| hardware | limit, as published | our measurement | why it does not gate |"
    yield "|---|---|---|---|"
    seen = set()
    for one in found.entries:
        if (
            one.figure is None
            or one.figure.kind != "threshold"
            or one.entry.gates
            or one.record in seen
        ):
            continue
        seen.add(one.record)
        why = one.entry.note.removeprefix("a limit that does not gate here").removeprefix("; ")
        yield row(_hardware(one), _limit(one), f"`{one.entry.benchmark}`", why)
    for left in found.left_out:
        if "_min " in left.what:
            yield row(left.what.split(", ")[0], left.what.rpartition("), ")[2], NOTHING, left.why)


def _hardware(one: PublishedEntry) -> str:
    assert one.figure is not None
    return f"{one.figure.hardware} ({one.figure.variant})"


def _limit(one: PublishedEntry) -> str:
    assert one.figure is not None
    return f"{one.figure.metric.removesuffix('_min')} {one.figure.value:g} {one.figure.unit}"


def implausible_table(found: Account) -> Iterator[str]:
    """Every figure that cannot be what it is said to be: entries of one reason and table in one line."""
    yield "| hardware | measurement | published | why it cannot be |"
    yield "|---|---|---|---|"
    rows: dict[tuple[str, str, str], list[PublishedEntry]] = {}
    for one in found.entries:
        if one.entry.implausible:
            hardware = one.entry.hardware.product or f"{one.family}, {one.variant.doubt}"
            rows.setdefault((hardware, one.entry.benchmark, one.entry.implausible), []).append(one)
    for (hardware, benchmark, why), entries in rows.items():
        yield row(hardware, f"`{benchmark}`", _values(entries), why)


def _values(entries: Sequence[PublishedEntry]) -> str:
    texts = list(dict.fromkeys(_value(one) for one in entries))
    return texts[0] if len(texts) == 1 else f"{texts[0]} and {len(texts) - 1} more"


def _value(one: PublishedEntry) -> str:
    value, unit = one.entry.value, one.entry.unit
    if isinstance(value, tuple):
        return f"{value[0]:g} to {value[1]:g} {unit}"
    return f"{value:g} {unit}" if isinstance(value, int | float) else str(value)


def count_lines(found: Account) -> Iterator[str]:
    """How many entries each file has from here, and how many of them gate."""
    yield "| file | published limits that gate | references |"
    yield "|---|---:|---:|"
    files = shipped(found)
    for family in sorted({one.family for one in files}):
        own = [one.entry for one in files if one.family == family]
        gates = sum(entry.gates for entry in own)
        yield row(f"`{family}.json`", str(gates), str(len(own) - gates))


def figure_table(found: Account) -> Iterator[str]:
    """Every entry: those that differ in their case alone in one line, with those that ship in bold."""
    yield "| hardware | measurement | published, by case | how it is counted, and what differs | source |"
    yield "|---|---|---|---|---|"
    in_files = {id(one) for one in shipped(found)}
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in found.entries:
        entry, cell = one.entry, _cell(one)
        name = f".{entry.name}" if entry.name else ""
        product = entry.hardware.product or f"{one.family}: {one.variant.doubt}"
        memory = f", {entry.hardware.memory}" if entry.hardware.memory else ""
        devices = f", {entry.hardware.devices} devices" if (entry.hardware.devices or 1) > 1 else ""
        how = "; ".join(dict.fromkeys(part for part in (entry.convention, entry.note) if part))
        key = (
            f"{product}{memory}{devices}",
            f"`{entry.benchmark}{name}`, {entry.metric}",
            how,
            entry.source or "",
        )
        rows.setdefault(key, []).append(f"**{cell}**" if id(one) in in_files else cell)
    for (hardware, measurement, how, source), cells in rows.items():
        yield row(hardware, measurement, ", ".join(cells), how, source)


def left_out_table(found: Account) -> Iterator[str]:
    """Every record that is no entry, and why."""
    yield "| figure | why it is no figure of a measurement of ours |"
    yield "|---|---|"
    yield from (row(one.what, one.why) for one in found.left_out)


def _cell(one: PublishedEntry) -> str:
    """A figure with its case: `64MiB: 480 GB/s`."""
    inside = re.search(r"\[(.*)\]", one.entry.label)
    return f"{inside[1]}: {_value(one)}" if inside else _value(one)


def _case(one: PublishedEntry) -> str:
    return one.entry.label


def _source(one: PublishedEntry) -> str:
    """A source in a few words: the repository or the host, and the last part of its path."""
    text = one.entry.source or ""
    parts = re.split(r"[/:]", text.removeprefix("https://").removeprefix("http://"))
    return "/".join(part for part in (*parts[:2], parts[-1]) if part)


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
