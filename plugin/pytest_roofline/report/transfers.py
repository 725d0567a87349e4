"""What only several transfers tell together: a fan beside the sum of its links, half a round trip, ways compared."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from ..core.keys import canonical
from ..core.rows import Row
from ..core.units import format_bytes, format_seconds, printable, three_digits
from ..hardware import link_peak, product_like
from .matrix import index_of, pair_of

# The parameter that says through which memory a message went, and the way that the others are compared with.
MEMORY, HOST = "memory", "host"


def transfer_lines(rows: Sequence[Row]) -> list[str]:
    """All of it: fans, latencies, ways compared."""
    sound = [row for row in rows if row.measurement is not None and not row.measurement.invalid]
    return fan_lines(sound) + latency_lines(sound) + memory_lines(sound)


def fan_lines(rows: Sequence[Row]) -> list[str]:
    """What one device reaches to or from all others at once, beside the sum of its links measured one by one.

    Args:
        rows: valid ones. A fan has only one of `source` and `target` among its parameters, and more than two
            devices; its links are the measurements of that size and metric that have both.
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
    """Half a round trip of the smallest message of every sweep that goes there and back.

    Args:
        rows: valid ones; those count whose parameter `pattern` is `round_trip`.
    """
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
    """How much faster or slower messages go from other memory than from the host's, at the largest size of all.

    Args:
        rows: valid ones; those count that differ in their parameter `memory` alone, of which one is `host`.
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
