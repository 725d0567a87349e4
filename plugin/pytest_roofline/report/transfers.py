"""Copies between devices: matrices, and lines that take several transfers together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import median

from ..baselines.comparators import class_of_key
from ..core.groups import group_by
from ..core.keys import Scalar, canonical, label_of
from ..core.rows import Row
from ..core.units import format_bytes, format_rate, format_seconds, printable, three_digits
from ..core.work import RATE_UNITS, rate_suffix
from ..hardware import link_peak, product_like
from ..stats.curves import SHARES, summarise
from ..stats.spread import priors
from ..stats.stats import times_as_fast
from .tables import TextTable, render
from .words import cut

# Fewer pairs than this are read as well in the table of all rows.
FEWEST_PAIRS = 3
# Of the pairs of one class of links, so many are named.
MOST_NAMED = 4
# What a column takes at least: four digits and the space beside them.
_COLUMN = 6
# In place of a rate that must not be believed, or that the clock cannot tell.
INVALID, UNRESOLVED = "invalid", "?"


def matrix_lines(rows: Sequence[Row], width: int) -> list[str]:
    """Return a matrix for every benchmark and size.

    It needs three pairs of devices or more. Those rows count whose parameters have `source` and
    `target`, both whole numbers. What is too wide goes on below.
    """
    copies = [
        row
        for row in rows
        if pair_of(row) is not None and rate_suffix(row.counting or "") is not None
    ]
    groups = group_by(copies, lambda row: (title_of(row), row.counting or ""))
    lines = []
    for (title, metric), members in groups.items():
        if len({pair_of(row) for row in members}) >= FEWEST_PAIRS:
            unit = "TFLOP/s" if rate_suffix(metric) == "TFLOPS" else "GB/s"
            lines.append(
                f"{title}: {unit} ({metric}), {_links(members)}; rows are sources, columns targets"
            )
            lines += _matrix(members, width)
    return lines


def pair_of(row: Row) -> tuple[int, int] | None:
    """Return the indexes of source and target, or None.

    None of anything but a copy between two devices.
    """
    source, target = index_of(row, "source"), index_of(row, "target")
    return None if source is None or target is None else (source, target)


def index_of(row: Row, name: str) -> int | None:
    """Return a parameter that is a whole number, or None."""
    value = row.parameters.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def title_of(row: Row) -> str:
    """Return the benchmark with its parameters other than the pair."""
    return printable(label_of(row.benchmark, _without(row, "source", "target"), row.name))


def _without(row: Row, *names: str) -> dict[str, Scalar]:
    """Return the parameters of a row but for some."""
    return {name: value for name, value in row.parameters.items() if name not in names}


def _links(rows: Iterable[Row]) -> str:
    """Return the classes of the links, with their pairs.

    The most common class comes without.
    """
    groups = group_by(rows, _link)
    pairs_of = {
        link: list(dict.fromkeys("→".join(map(str, pair_of(row) or ())) for row in members))
        for link, members in groups.items()
    }
    first, *other_links = sorted(pairs_of, key=lambda link: -len(pairs_of[link]))
    return "link " + ", ".join(
        [first, *(f"{link} for {_list_pairs(pairs_of[link])}" for link in other_links)]
    )


def _link(row: Row) -> str:
    return (row.key.hardware.link if row.key is not None else None) or "unknown"


def _list_pairs(pairs: Sequence[str]) -> str:
    return ", ".join(pairs[:MOST_NAMED]) + " …" * (len(pairs) > MOST_NAMED)


def _matrix(rows: Sequence[Row], width: int) -> list[str]:
    cells = {pair: _cell(row) for row in rows if (pair := pair_of(row)) is not None}
    sources, targets = (sorted({pair[end] for pair in cells}) for end in (0, 1))
    at_once = max(1, (width - _COLUMN) // max(_COLUMN, *(len(cell) + 1 for cell in cells.values())))
    lines: list[str] = []
    for start in range(0, len(targets), at_once):
        columns = targets[start : start + at_once]
        table = TextTable(("", "right"), *((f"{target}", "right") for target in columns))
        for source in sources:
            table.add_row(f"{source}", *(cells.get((source, target), "") for target in columns))
        lines += render(table, width, colour=False).split("\n")
    return lines


def _cell(row: Row) -> str:
    if row.measurement is not None and row.measurement.invalid:
        return INVALID
    rate, suffix = row.rate, rate_suffix(row.counting or "")
    return UNRESOLVED if rate is None or suffix is None else three_digits(rate / RATE_UNITS[suffix])


# The parameter that says through which memory a message went, and the memory that each other is compared with.
MEMORY, HOST = "memory", "host"
# How a benchmark is called that copies by a kernel, beside the one that leaves it to the driver.
BY_KERNEL = "_triton"
# Of pairs of devices, so many have a line.
MOST_ENGINES = 4


def engine_lines(rows: Sequence[Row]) -> list[str]:
    """Return copies by a kernel beside the driver's.

    A line reads `memcpy_h2d[512MiB-pinned]: 55.1 GB/s as the driver chooses, 24.0 GB/s by
    multiprocessors (0.44 ×)`. It is at the largest size that a benchmark and the one called so with
    `_triton` behind it share.
    """
    lines = []
    for name in dict.fromkeys(row.benchmark for row in rows if row.benchmark.endswith(BY_KERNEL)):
        pairs = [
            (twin, row)
            for row in rows
            if row.benchmark == name and (twin := _twin(row, rows)) is not None
        ]
        largest = max((_size(row) for _, row in pairs), default=0)
        texts = [
            f"{printable(twin.label)}: {format_rate(twin.rate)} as the driver chooses, {format_rate(row.rate)} by "
            f"multiprocessors ({three_digits(row.rate / twin.rate)} ×)"
            for twin, row in pairs
            if _size(row) == largest and twin.rate and row.rate
        ]
        lines += cut(texts, MOST_ENGINES, "pairs")
    return lines


def _twin(row: Row, rows: Sequence[Row]) -> Row | None:
    """Return the same copy as the driver does it.

    It is of pinned memory where that is a choice.
    """
    name, parameters = row.benchmark.removesuffix(BY_KERNEL), {MEMORY: "pinned"} | row.parameters
    copies = (copy for copy in rows if copy.benchmark == name and copy.run == row.run)
    return next((copy for copy in copies if copy.parameters.items() <= parameters.items()), None)


def transfer_lines(rows: Sequence[Row]) -> list[str]:
    """Return the lines on engines, fans, latencies and memories.

    They are of valid measurements.
    """
    sound = [row for row in rows if row.measurement is not None and not row.measurement.invalid]
    return engine_lines(sound) + fan_lines(sound) + latency_lines(sound) + memory_lines(sound)


def fan_lines(rows: Sequence[Row]) -> list[str]:
    """Return the rate between one device and all others.

    Beside it stands the sum of its links measured singly. A fan has only one of `source` and
    `target` among its parameters, and more than two devices; its links are the valid measurements
    of that size and metric that have both.
    """
    return [line for row in rows for line in _fan(row, rows)]


def _fan(row: Row, rows: Sequence[Row]) -> Iterator[str]:
    key, rate = row.key, row.rate
    ends = [name for name in ("source", "target") if index_of(row, name) is not None]
    if key is None or len(ends) != 1 or (key.hardware.devices or 1) <= 2 or rate is None:
        return
    links = (key.hardware.devices or 1) - 1
    rates = _rates_of_links(rows, row, ends[0])
    text = f"{printable(row.label)}: {format_rate(rate)} over {links} links at once"
    if len(rates) == links:
        total = sum(rates)
        text += f", {rate / total:.0%} of their sum, {format_rate(total)} "
        text += f"({links} × {format_rate(median(rates))} one by one)"
    else:
        text += f"; {len(rates)} of them were measured one by one, so their sum is unknown"
    peak = link_peak(product_like(key.hardware.product, key.hardware.memory), key.hardware.link)
    # Through a switch or over PCIe all of them share what the one device has.
    if peak is not None and key.hardware.link == "xgmi":
        text += f"; rated {links} × {three_digits(peak.value)} GB/s"
    yield text


def _rates_of_links(rows: Iterable[Row], fan: Row, end: str) -> list[float]:
    """Return the rates of the links at one end of a fan.

    They were measured one by one, in bytes per second.
    """

    def shared(row: Row) -> tuple[str | None, int | None, int | None]:
        return row.counting, index_of(row, "size_bytes"), index_of(row, end)

    rates = {
        pair: row.rate
        for row in rows
        if row.rate and (pair := pair_of(row)) is not None and shared(row) == shared(fan)
    }
    return list(rates.values())


def latency_lines(rows: Sequence[Row]) -> list[str]:
    """Return half a round trip of the smallest message.

    There is one of every sweep whose parameter `pattern` is `round_trip`.
    """
    trips = [row for row in rows if row.parameters.get("pattern") == "round_trip"]
    sweeps = group_by(trips, lambda row: _identity_without(row, "size_bytes")).values()
    return [
        f"{printable(row.label)}: latency {format_seconds(_seconds(row) / 2)}, half a round trip of "
        f"{format_bytes(_size(row))}"
        for row in (min(sweep, key=_size) for sweep in sweeps)
    ]


def _identity_without(row: Row, *names: str) -> str:
    """Return the identity of rows that differ in some parameters."""
    return canonical({"": row.benchmark, **_without(row, *names)})


def _size(row: Row) -> int:
    return index_of(row, "size_bytes") or 0


def _seconds(row: Row) -> float:
    return row.time_s or 0.0


def memory_lines(rows: Sequence[Row]) -> list[str]:
    """Return the speed-up of messages from other memory.

    It is against the `host`'s, at the largest size of both. Those rows count that differ in their
    parameter `memory` alone.
    """
    messages = [row for row in rows if isinstance(row.parameters.get(MEMORY), str)]
    groups = group_by(
        messages, lambda row: (row.name, _identity_without(row, MEMORY, "size_bytes"))
    )
    lines = []
    for members in groups.values():
        sizes = [
            {f"{row.parameters[MEMORY]}": row for row in rows_of_size}
            for _, rows_of_size in sorted(group_by(members, _size).items())
        ]
        comparable = [memories for memories in sizes if HOST in memories and len(memories) > 1]
        lines += [_memory_text(memories) for memories in comparable[-1:]]
    return lines


def _memory_text(memories: Mapping[str, Row]) -> str:
    host = memories[HOST]
    texts = [
        f"{memory} {three_digits(_seconds(host) / _seconds(row))} × as fast"
        for memory, row in memories.items()
        if memory != HOST
    ]
    return f"{printable(host.label)}: from other memory {', '.join(texts)}, at {format_bytes(_size(host))}"


MPI_METRIC = "mpi_payload_GBps"
# The metric of PyTorch's messages, by the memory that MPI sends from.
PYTORCH_METRICS = {HOST: "gloo_payload_GBps", "device": "auto_payload_GBps"}


def path_lines(rows: Sequence[Row], width: int) -> list[str]:
    """Return MPI against PyTorch, one way between two ranks.

    It is at equal sizes, and from which size on each is fast. MPI's rows have the parameters
    `pattern` and `memory`; PyTorch's a `pattern` too where ranks copy, else a pair.
    """
    one_way = [
        row
        for row in rows
        if row.measurement is not None
        and not row.measurement.invalid
        and (row.parameters.get("pattern") == "one_way" or pair_of(row) == (0, 1))
    ]
    lines = []
    for memory, metric in PYTORCH_METRICS.items():
        pytorch = {_size(row): row for row in one_way if row.counting == metric}
        mpi = {
            _size(row): row
            for row in one_way
            if row.counting == MPI_METRIC and row.parameters.get(MEMORY) == memory
        }
        sizes = sorted(pytorch.keys() & mpi.keys())
        if sizes:
            lines.append(
                f"MPI against PyTorch from the memory of the {memory}, with a 99 % interval:"
            )
            lines += _ratios([(pytorch[size], mpi[size]) for size in sizes], width)
            lines += _shifts(pytorch, mpi)
    return lines


def _ratios(pairs: Sequence[tuple[Row, Row]], width: int) -> list[str]:
    """Return the table of sizes with the rates of PyTorch and MPI, and how many times as fast MPI is."""
    table = TextTable(
        *((name, "right") for name in ("size", "PyTorch", "MPI", "times as fast", ""))
    )
    for pytorch, mpi in pairs:
        assert mpi.key is not None
        ratio, low, high = times_as_fast(
            _medians_s(mpi), _medians_s(pytorch), priors()[class_of_key(mpi.key)]
        )
        rates = (
            format_rate(row.rate) if row.rate is not None else UNRESOLVED for row in (pytorch, mpi)
        )
        interval = f"({three_digits(low)} … {three_digits(high)})"
        table.add_row(format_bytes(_size(mpi)), *rates, three_digits(ratio), interval)
    return render(table, width, colour=False).split("\n")


def _medians_s(row: Row) -> list[float]:
    """Return the median of every process that counts, in seconds."""
    return [process.median_s for process in row.measurements if not process.invalid]


def _shifts(pytorch: Mapping[int, Row], mpi: Mapping[int, Row]) -> Iterator[str]:
    """Yield the sizes that reach 80 and 90 % of a rate.

    It is that of the link, else of the slower plateau.
    """
    processes = [
        [process for row in rows.values() for process in row.measurements]
        for rows in (pytorch, mpi)
    ]
    curves = [summarise(measurements) for measurements in processes]
    if not all(curves):
        return
    ceilings = [process.ceiling for process in chain(*processes) if process.ceiling]
    links = [ceiling.value for ceiling in ceilings if ceiling.source == "datasheet"]
    rate, name = (
        (max(links), "the link")
        if links
        else (min(curve.plateau for (curve,) in curves), "the slower plateau")
    )
    for share in SHARES[1:]:
        pytorch_size, mpi_size = (_reached_from(share * rate, rows) for rows in (pytorch, mpi))
        texts = (f"{side} {f'from {format_bytes(size)}' if size else 'at no size'}"
                 for side, size in (("PyTorch", pytorch_size), ("MPI", mpi_size)))  # fmt: skip
        yield f"{share:.0%} of {name} ({format_rate(share * rate)}): {', '.join(texts)}{_shift(pytorch_size, mpi_size)}"


def _shift(first: int | None, second: int | None) -> str:
    if not first or not second or first == second:
        return ""
    times = max(first, second) / min(first, second)
    return f", {three_digits(times)} times {'smaller' if first > second else 'larger'}"


def _reached_from(rate: float, rows: Mapping[int, Row]) -> int | None:
    """Return the size from which all reach a rate, or None."""
    below = max((size for size, row in rows.items() if (row.rate or 0.0) < rate), default=0)
    return min((size for size in rows if size > below), default=None)
