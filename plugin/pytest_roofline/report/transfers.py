"""Copies between devices: matrices, and what only several transfers tell together."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from ..core.keys import canonical, label_of
from ..core.rows import Row
from ..core.units import format_bytes, format_seconds, printable, three_digits
from ..core.work import RATE_UNITS, rate_suffix
from ..hardware import link_peak, product_like
from .tables import new_table, render

# Fewer pairs than this are read as well in the table of all rows.
FEWEST_PAIRS = 3
# What a column takes at least: four digits and the space beside them.
_COLUMN = 6
# In place of a rate that must not be believed, or that the clock cannot tell.
INVALID, UNRESOLVED = "invalid", "?"


def matrix_lines(rows: Sequence[Row], width: int) -> list[str]:
    """A matrix for every benchmark and size that was measured between three pairs of devices or more.

    Those rows count whose parameters have `source` and `target`, both whole numbers. What is too wide goes on below.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.counting is not None and pair_of(row) is not None and rate_suffix(row.counting) is not None:
            groups.setdefault((title_of(row), row.counting), []).append(row)
    lines = []
    for (title, metric), members in groups.items():
        if len({pair_of(row) for row in members}) >= FEWEST_PAIRS:
            lines.append(f"{title}: {_unit(metric)} ({metric}), {_links(members)}; rows are sources, columns targets")
            lines += _matrix(members, width)
    return lines


def pair_of(row: Row) -> tuple[int, int] | None:
    """The indexes of source and target of a copy between two devices; None of anything else."""
    source, target = index_of(row, "source"), index_of(row, "target")
    return None if source is None or target is None else (source, target)


def index_of(row: Row, name: str) -> int | None:
    """A parameter that is a whole number; None where it is none."""
    value = row.parameters.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def title_of(row: Row) -> str:
    """The benchmark with its parameters other than the pair."""
    rest = {name: value for name, value in row.parameters.items() if name not in ("source", "target")}
    return printable(label_of(row.benchmark, rest, row.name))


def _unit(metric: str) -> str:
    return "TFLOP/s" if rate_suffix(metric) == "TFLOPS" else "GB/s"


def _links(rows: Iterable[Row]) -> str:
    """The classes of the links: one of all, or which pairs have which; the most common class is not spelled out."""
    by_kind: dict[str, list[str]] = {}
    for row in rows:
        pair = "→".join(str(index) for index in pair_of(row) or ())
        link = row.key.hardware.link if row.key is not None else None
        pairs = by_kind.setdefault(link or "unknown", [])
        if pair not in pairs:
            pairs.append(pair)
    most, *others = sorted(by_kind, key=lambda kind: -len(by_kind[kind]))
    return "link " + ", ".join([most, *(f"{kind} for {_listed(by_kind[kind])}" for kind in others)])


def _listed(pairs: Sequence[str], at_most: int = 4) -> str:
    return ", ".join(pairs[:at_most]) + " …" * (len(pairs) > at_most)


def _matrix(rows: Sequence[Row], width: int) -> list[str]:
    cells = {pair_of(row): _cell(row) for row in rows}
    sources = sorted({pair[0] for pair in cells if pair})
    targets = sorted({pair[1] for pair in cells if pair})
    at_once = max(1, (width - _COLUMN) // max(_COLUMN, *(len(cell) + 1 for cell in cells.values())))
    lines: list[str] = []
    for start in range(0, len(targets), at_once):
        shown = targets[start : start + at_once]
        table = new_table(("", "right"), *((f"{target}", "right") for target in shown))
        for source in sources:
            table.add_row(f"{source}", *(cells.get((source, target), "") for target in shown))
        lines += render(table, width, colour=False).split("\n")
    return lines


def _cell(row: Row) -> str:
    if row.measurement is not None and row.measurement.invalid:
        return INVALID
    rate, suffix = row.rate, rate_suffix(row.counting or "")
    return UNRESOLVED if rate is None or suffix is None else three_digits(rate / RATE_UNITS[suffix])


# The parameter that says through which memory a message went, and the way that the others are compared with.
MEMORY, HOST = "memory", "host"


def transfer_lines(rows: Sequence[Row]) -> list[str]:
    """All of it: fans, latencies, ways compared."""
    sound = [row for row in rows if row.measurement is not None and not row.measurement.invalid]
    return fan_lines(sound) + latency_lines(sound) + memory_lines(sound)


def fan_lines(rows: Sequence[Row]) -> list[str]:
    """What one device reaches to or from all others at once, beside the sum of its links measured one by one.

    A fan has only one of `source` and `target` among its parameters, and more than two devices; its links are the
    valid measurements of that size and metric that have both.
    """
    return [line for row in rows for line in _fan(row, rows)]


def _fan(row: Row, rows: Sequence[Row]) -> Iterator[str]:
    key, rate = row.key, row.rate
    ends = [name for name in ("source", "target") if index_of(row, name) is not None]
    if key is None or len(ends) != 1 or (key.hardware.devices or 1) <= 2 or rate is None:
        return
    links = (key.hardware.devices or 1) - 1
    each = _links_of(rows, row, ends[0])
    said = f"{printable(row.label)}: {_gbps(rate)} over {links} links at once"
    if len(each) == links:
        total = sum(each)
        said += f", {rate / total:.0%} of their sum, {_gbps(total)} ({links} × {_gbps(median(each))} one by one)"
    else:
        said += f"; {len(each)} of them were measured one by one, so their sum is not known"
    rated = link_peak(product_like(key.hardware.product, key.hardware.memory), key.hardware.link)
    # Through a switch or over PCIe all of them share what the one device has.
    if rated is not None and key.hardware.link == "xgmi":
        said += f"; rated {links} × {three_digits(rated.value)} GB/s"
    yield said


def _links_of(rows: Iterable[Row], fan: Row, end: str) -> list[float]:
    """The rates of the links at one end of a fan, measured one by one, in bytes per second."""
    found = {}
    for row in rows:
        same = (row.counting, index_of(row, "size_bytes")) == (fan.counting, index_of(fan, "size_bytes"))
        if row.rate and same and pair_of(row) is not None and index_of(row, end) == index_of(fan, end):
            found[pair_of(row)] = row.rate
    return list(found.values())


def latency_lines(rows: Sequence[Row]) -> list[str]:
    """Half a round trip of the smallest message of every sweep whose parameter `pattern` is `round_trip`."""
    smallest: dict[str, Row] = {}
    for row in rows:
        if row.parameters.get("pattern") == "round_trip":
            known = smallest.setdefault(_sweep(row), row)
            if _size(row) < _size(known):
                smallest[_sweep(row)] = row
    return [
        f"{printable(row.label)}: latency {format_seconds(_seconds(row) / 2)}, half a round trip of "
        f"{format_bytes(_size(row))}"
        for row in smallest.values()
    ]


def _sweep(row: Row) -> str:
    return canonical({"": row.benchmark, **{name: v for name, v in row.parameters.items() if name != "size_bytes"}})


def _size(row: Row) -> int:
    return index_of(row, "size_bytes") or 0


def _seconds(row: Row) -> float:
    return row.time_s or 0.0


def memory_lines(rows: Sequence[Row]) -> list[str]:
    """How much faster messages go from other memory than from the `host`'s, at the largest size that both have.

    Those rows count that differ in their parameter `memory` alone.
    """
    groups: dict[str, dict[int, dict[str, Row]]] = {}
    for row in rows:
        memory = row.parameters.get(MEMORY)
        if isinstance(memory, str):
            rest = {name: value for name, value in row.parameters.items() if name not in (MEMORY, "size_bytes")}
            sizes = groups.setdefault(canonical({"": row.benchmark, "name": row.name, **rest}), {})
            sizes.setdefault(_size(row), {})[memory] = row
    lines = []
    for sizes in groups.values():
        shared = [size for size, ways in sizes.items() if HOST in ways and len(ways) > 1]
        if shared:
            lines.append(_compared(sizes[max(shared)]))
    return lines


def _compared(ways: dict[str, Row]) -> str:
    host = ways[HOST]
    said = [
        f"{memory} {three_digits(_seconds(host) / _seconds(row))} × as fast"
        for memory, row in ways.items()
        if memory != HOST
    ]
    return f"{printable(host.label)}: from other memory {', '.join(said)}, at {format_bytes(_size(host))}"


def _gbps(bytes_per_second: float) -> str:
    return f"{three_digits(bytes_per_second / 1e9)} GB/s"
