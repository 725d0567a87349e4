"""Copies between devices: matrices, and what only several transfers tell together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from ..baselines.comparators import class_of_key
from ..core.keys import canonical, label_of
from ..core.rows import Row
from ..core.units import format_bytes, format_seconds, printable, three_digits
from ..core.work import RATE_UNITS, rate_suffix
from ..hardware import link_peak, product_like
from ..stats.curves import SHARES, summarise
from ..stats.spread import priors
from ..stats.stats import times_as_fast
from .tables import TextTable, render
from .words import cut

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
        if (
            row.counting is not None
            and pair_of(row) is not None
            and rate_suffix(row.counting) is not None
        ):
            groups.setdefault((title_of(row), row.counting), []).append(row)
    lines = []
    for (title, metric), members in groups.items():
        if len({pair_of(row) for row in members}) >= FEWEST_PAIRS:
            lines.append(
                f"{title}: {_unit(metric)} ({metric}), {_links(members)}; rows are sources, columns targets"
            )
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
    rest = {
        name: value for name, value in row.parameters.items() if name not in ("source", "target")
    }
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
        table = TextTable(("", "right"), *((f"{target}", "right") for target in shown))
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


# How a benchmark is called that copies by a kernel, beside the one that leaves it to the driver.
BY_KERNEL = "_triton"
# Of pairs of devices, so many are told.
MOST_ENGINES = 4


def engine_lines(rows: Sequence[Row]) -> list[str]:
    """`memcpy_h2d[512MiB-pinned]: 55.1 GB/s as the driver chooses, 24.0 GB/s by multiprocessors (0.44 ×)`.

    At the largest size that a benchmark and the one called so with `_triton` behind it share.
    """
    lines = []
    for name in dict.fromkeys(row.benchmark for row in rows if row.benchmark.endswith(BY_KERNEL)):
        pairs = [
            (twin, row)
            for row in rows
            if row.benchmark == name and (twin := _twin(row, rows)) is not None
        ]
        largest = max((_size(row) for _, row in pairs), default=0)
        told = [
            f"{printable(twin.label)}: {_gbps(twin.rate)} as the driver chooses, {_gbps(row.rate)} by multiprocessors "
            f"({three_digits(row.rate / twin.rate)} ×)"
            for twin, row in pairs
            if _size(row) == largest and twin.rate and row.rate
        ]
        lines += cut(told, MOST_ENGINES, "pairs")
    return lines


def _twin(row: Row, rows: Sequence[Row]) -> Row | None:
    """The same copy as the driver does it, of pinned memory where that is a choice."""
    name, known = row.benchmark.removesuffix(BY_KERNEL), {MEMORY: "pinned"} | row.parameters
    same = (one for one in rows if one.benchmark == name and one.run == row.run)
    return next((one for one in same if one.parameters.items() <= known.items()), None)


def transfer_lines(rows: Sequence[Row]) -> list[str]:
    """All of it: fans, latencies, ways compared."""
    sound = [row for row in rows if row.measurement is not None and not row.measurement.invalid]
    return engine_lines(sound) + fan_lines(sound) + latency_lines(sound) + memory_lines(sound)


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
        same = (row.counting, index_of(row, "size_bytes")) == (
            fan.counting,
            index_of(fan, "size_bytes"),
        )
        if (
            row.rate
            and same
            and pair_of(row) is not None
            and index_of(row, end) == index_of(fan, end)
        ):
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
    return canonical(
        {
            "": row.benchmark,
            **{name: v for name, v in row.parameters.items() if name != "size_bytes"},
        }
    )


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
            rest = {
                name: value
                for name, value in row.parameters.items()
                if name not in (MEMORY, "size_bytes")
            }
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


MPI_METRIC = "mpi_payload_GBps"
# What PyTorch's way is measured as, by the memory that MPI sends from.
PYTORCH_METRICS = {HOST: "gloo_payload_GBps", "device": "auto_payload_GBps"}


def path_lines(rows: Sequence[Row], width: int) -> list[str]:
    """MPI against PyTorch, one way between the first two: at equal sizes, and from which size on each is fast.

    MPI's rows have the parameters `pattern` and `memory`; PyTorch's a `pattern` too where ranks copy, else a pair.
    """
    sound = [row for row in rows if row.measurement is not None and not row.measurement.invalid]
    lines = []
    for memory, metric in PYTORCH_METRICS.items():
        pytorch = {_size(row): row for row in sound if row.counting == metric and _is_one_way(row)}
        mpi = {
            _size(row): row
            for row in sound
            if row.counting == MPI_METRIC
            and _is_one_way(row)
            and row.parameters.get(MEMORY) == memory
        }
        shared = sorted(pytorch.keys() & mpi.keys())
        if shared:
            lines.append(
                f"MPI against PyTorch from the memory of the {memory}, with a 99 % interval:"
            )
            lines += _ratios([(pytorch[size], mpi[size]) for size in shared], width)
            lines += _shifts(pytorch, mpi)
    return lines


def _is_one_way(row: Row) -> bool:
    return row.parameters.get("pattern") == "one_way" or pair_of(row) == (0, 1)


def _ratios(pairs: Sequence[tuple[Row, Row]], width: int) -> list[str]:
    table = TextTable(
        *((name, "right") for name in ("size", "PyTorch", "MPI", "times as fast", ""))
    )
    for pytorch, mpi in pairs:
        assert mpi.key is not None
        ratio, low, high = times_as_fast(
            _medians_s(mpi), _medians_s(pytorch), priors()[class_of_key(mpi.key)]
        )
        rates = (_gbps(row.rate) if row.rate is not None else UNRESOLVED for row in (pytorch, mpi))
        interval = f"({three_digits(low)} … {three_digits(high)})"
        table.add_row(format_bytes(_size(mpi)), *rates, three_digits(ratio), interval)
    return render(table, width, colour=False).split("\n")


def _medians_s(row: Row) -> list[float]:
    """The median of every process that counts, in seconds."""
    return [one.median_s for one in row.measurements if not one.invalid]


def _shifts(pytorch: Mapping[int, Row], mpi: Mapping[int, Row]) -> Iterator[str]:
    """From which size on each reaches 80 and 90 % of one rate: that of the link, else of the slower plateau."""
    curves = [
        summarise(one for row in way.values() for one in row.measurements) for way in (pytorch, mpi)
    ]
    if not all(curves):
        return
    roofs = [
        one.ceiling
        for row in (*pytorch.values(), *mpi.values())
        for one in row.measurements
        if one.ceiling
    ]
    links = [roof.value for roof in roofs if roof.source == "datasheet"]
    rate, name = (
        (max(links), "the link")
        if links
        else (min(one.plateau for (one,) in curves), "the slower plateau")
    )
    for share in SHARES[1:]:
        first, other = (_reached_from(share * rate, way) for way in (pytorch, mpi))
        ways = (f"{way} {f'from {format_bytes(size)}' if size else 'at no size'}"
                for way, size in (("PyTorch", first), ("MPI", other)))  # fmt: skip
        yield f"{share:.0%} of {name} ({_gbps(share * rate)}): {', '.join(ways)}{_shift(first, other)}"


def _shift(first: int | None, other: int | None) -> str:
    if not first or not other or first == other:
        return ""
    times, word = (first / other, "smaller") if first > other else (other / first, "larger")
    return f", {three_digits(times)} times {word}"


def _reached_from(rate: float, way: Mapping[int, Row]) -> int | None:
    """The size from which on every one reaches a rate; None where the largest does not."""
    below = max((size for size, row in way.items() if (row.rate or 0.0) < rate), default=0)
    return min((size for size in way if size > below), default=None)


def _gbps(bytes_per_second: float) -> str:
    return f"{three_digits(bytes_per_second / 1e9)} GB/s"
