"""What only several transfers tell together: a fan beside the sum of its links, half a round trip, ways compared."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from ..core.keys import Key, canonical
from ..core.units import format_bytes, format_seconds, printable, three_digits
from ..judging.hardware import link_peak, product_like
from .matrix import index_of, pair_of, rate_of
from .results import Result, new_s

# The parameter that says through which memory a message went, and the way that the others are compared with.
MEMORY, HOST = "memory", "host"


def transfer_lines(results: Sequence[Result]) -> list[str]:
    """All of it: fans, latencies, ways compared."""
    sound = [result for result in results if not result.measurement.invalid]
    return fan_lines(sound) + latency_lines(sound) + memory_lines(sound)


def fan_lines(results: Sequence[Result]) -> list[str]:
    """What one device reaches to or from all others at once, beside the sum of its links measured one by one.

    Args:
        results: valid ones. A fan has only one of `source` and `target` among its parameters, and more than two
            devices; its links are the measurements of that size and metric that have both.
    """
    return [line for result in results for line in _fan(result, results)]


def _fan(result: Result, results: Sequence[Result]) -> Iterator[str]:
    key, rate = result.measurement.key, rate_of(result)
    ends = [name for name in ("source", "target") if index_of(key, name) is not None]
    if len(ends) != 1 or (key.hardware.devices or 1) <= 2 or rate is None:
        return
    links = (key.hardware.devices or 1) - 1
    each = _links_of(results, key, ends[0])
    said = f"{printable(result.measurement.label)}: {_gbps(rate)} over {links} links at once"
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


def _links_of(results: Iterable[Result], fan: Key, end: str) -> list[float]:
    """The rates of the links at one end of a fan, measured one by one, in bytes per second."""
    found = {}
    for result in results:
        key, rate = result.measurement.key, rate_of(result)
        same = (key.metric, key.parameters.get("size_bytes")) == (fan.metric, fan.parameters.get("size_bytes"))
        if rate and same and pair_of(key) is not None and index_of(key, end) == index_of(fan, end):
            found[pair_of(key)] = rate
    return list(found.values())


def latency_lines(results: Sequence[Result]) -> list[str]:
    """Half a round trip of the smallest message of every sweep that goes there and back.

    Args:
        results: valid ones; those count whose parameter `pattern` is `round_trip`.
    """
    smallest: dict[str, Result] = {}
    for result in results:
        if result.measurement.key.parameters.get("pattern") == "round_trip":
            known = smallest.setdefault(_sweep(result.measurement.key), result)
            if _size(result) < _size(known):
                smallest[_sweep(result.measurement.key)] = result
    return [
        f"{printable(result.measurement.label)}: latency {format_seconds(_seconds(result) / 2)}, half a round trip of "
        f"{format_bytes(_size(result))}"
        for result in smallest.values()
    ]


def _sweep(key: Key) -> str:
    return canonical({"": key.benchmark, **{name: v for name, v in key.parameters.items() if name != "size_bytes"}})


def _size(result: Result) -> int:
    return index_of(result.measurement.key, "size_bytes") or 0


def _seconds(result: Result) -> float:
    return new_s(result) or result.measurement.median_s


def memory_lines(results: Sequence[Result]) -> list[str]:
    """How much faster or slower messages go from other memory than from the host's, at the largest size of all.

    Args:
        results: valid ones; those count that differ in their parameter `memory` alone, of which one is `host`.
    """
    groups: dict[str, dict[int, dict[str, Result]]] = {}
    for result in results:
        key = result.measurement.key
        memory = key.parameters.get(MEMORY)
        if isinstance(memory, str):
            rest = {name: value for name, value in key.parameters.items() if name not in (MEMORY, "size_bytes")}
            sizes = groups.setdefault(canonical({"": key.benchmark, "name": key.name, **rest}), {})
            sizes.setdefault(_size(result), {})[memory] = result
    lines = []
    for sizes in groups.values():
        shared = [size for size, ways in sizes.items() if HOST in ways and len(ways) > 1]
        if shared:
            lines.append(_compared(sizes[max(shared)]))
    return lines


def _compared(ways: dict[str, Result]) -> str:
    host = ways[HOST]
    said = [
        f"{memory} {three_digits(_seconds(host) / _seconds(result))} × as fast"
        for memory, result in ways.items()
        if memory != HOST
    ]
    return f"{printable(host.measurement.label)}: from other memory {', '.join(said)}, at {format_bytes(_size(host))}"


def _gbps(bytes_per_second: float) -> str:
    return f"{three_digits(bytes_per_second / 1e9)} GB/s"
