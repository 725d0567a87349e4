"""Copies between devices: matrices, and lines that take several transfers together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from ..baselines.references import class_of_key
from ..core.groups import group_by
from ..core.keys import Scalar, canonical, label_of
from ..core.rows import Row
from ..core.units import cut, format_bytes, format_rate, format_seconds, printable, three_digits
from ..core.work import RATE_UNITS, rate_suffix
from ..hardware import link_peak, product_like
from ..stats.curves import SHARES, summarise
from ..stats.spread import priors
from ..stats.stats import times_as_fast
from .conditions import rate_unit
from .tables import TextTable, render

# The pairs that a matrix needs; fewer are as easy to read in the table of all rows.
FEWEST_PAIRS = 3
# Pairs of one class of links that are listed.
MOST_NAMED = 4
# The least width of a column: four digits and the space beside them.
_COLUMN = 6
# The cells of a measurement that is invalid, and of one without a rate.
INVALID, UNRESOLVED = "invalid", "?"


def matrix_lines(rows: Sequence[Row], width: int) -> list[str]:
    """Return a matrix of the rates between devices for every benchmark and size.

    A matrix needs three pairs of devices or more. A row counts if its parameters have `source` and
    `target`, both whole numbers. Columns that do not fit into `width` go on below.
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
            _, unit = rate_unit(metric)
            lines.append(
                f"{title}: {unit} ({metric}), {_links(members)}; rows are sources, columns targets"
            )
            lines += _matrix(members, width)
    return lines


def pair_of(row: Row) -> tuple[int, int] | None:
    """Return the indexes of source and target, or None.

    It is None for everything but a copy between two devices.
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
    """Return the parameters of a row, without those named."""
    return {name: value for name, value in row.parameters.items() if name not in names}


def _links(rows: Iterable[Row]) -> str:
    """Return the classes of the links between devices, such as `nvlink`, with their pairs of devices.

    The most common class comes first, without its pairs.
    """
    groups = group_by(rows, _link)
    pairs_by_link = {
        link: list(dict.fromkeys("→".join(map(str, pair_of(row) or ())) for row in members))
        for link, members in groups.items()
    }
    first, *other_links = sorted(pairs_by_link, key=lambda link: -len(pairs_by_link[link]))
    return "link " + ", ".join(
        [first, *(f"{link} for {_list_pairs(pairs_by_link[link])}" for link in other_links)]
    )


def _link(row: Row) -> str:
    """Return the class of the link that a row measured, else `unknown`."""
    return (row.key.hardware.link if row.key is not None else None) or "unknown"


def _list_pairs(pairs: Sequence[str]) -> str:
    """Return the first pairs as a list: `0→1, 0→2 …`."""
    return ", ".join(pairs[:MOST_NAMED]) + (" …" if len(pairs) > MOST_NAMED else "")


def _matrix(rows: Sequence[Row], width: int) -> list[str]:
    """Return the rates of pairs as lines of a matrix.

    It is split into several tables where not all targets fit into `width` columns.
    """
    cells = {pair: _cell(row) for row in rows if (pair := pair_of(row)) is not None}
    sources = sorted({source for source, _ in cells})
    targets = sorted({target for _, target in cells})
    column_width = max(_COLUMN, *(len(cell) + 1 for cell in cells.values()))
    column_count = max(1, (width - _COLUMN) // column_width)
    lines: list[str] = []
    for start in range(0, len(targets), column_count):
        columns = targets[start : start + column_count]
        table = TextTable(("", "right"), *((f"{target}", "right") for target in columns))
        for source in sources:
            table.add_row(f"{source}", *(cells.get((source, target), "") for target in columns))
        lines += render(table, width, colour=False).split("\n")
    return lines


def _cell(row: Row) -> str:
    """Return the text of a cell: the rate of a copy, or why there is none."""
    if row.measurement is not None and row.measurement.invalid:
        return INVALID
    rate, suffix = row.rate, rate_suffix(row.counting or "")
    return UNRESOLVED if rate is None or suffix is None else three_digits(rate / RATE_UNITS[suffix])


# The parameter for the memory that a message is sent from, and the value that others are compared with.
MEMORY, HOST = "memory", "host"
# The end of the name of a benchmark that copies by a kernel. Without it, it is the name of the one that lets the driver
# copy.
BY_KERNEL = "_triton"
# Pairs of copies, by a kernel and by the driver, that have a line.
MOST_ENGINES = 4


def engine_lines(rows: Sequence[Row]) -> list[str]:
    """Return lines on the rates of copies by a kernel beside copies by the driver.

    A line reads `memcpy_h2d[512MiB-pinned]: 55.1 GB/s as the driver chooses, 24.0 GB/s by
    multiprocessors (0.44 ×)`. It compares `memcpy_h2d` with `memcpy_h2d_triton`, at the largest size
    that both measured.
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
            f"{printable(twin.label)}: {format_rate(twin.rate)} by the engine that the driver chooses, "
            f"{format_rate(row.rate)} by multiprocessors ({three_digits(row.rate / twin.rate)} ×)"
            for twin, row in pairs
            if _size(row) == largest and twin.rate and row.rate
        ]
        lines += cut(texts, MOST_ENGINES, "pairs")
    return lines


def _twin(row: Row, rows: Sequence[Row]) -> Row | None:
    """Return the row of the same copy by the driver, or None.

    If the driver's benchmark has several kinds of memory, it is the row of pinned memory.
    """
    name, parameters = row.benchmark.removesuffix(BY_KERNEL), {MEMORY: "pinned"} | row.parameters
    copies = (copy for copy in rows if copy.benchmark == name and copy.run == row.run)
    # The same copy has no parameter that the row does not have with the same value.
    return next((copy for copy in copies if copy.parameters.items() <= parameters.items()), None)


def transfer_lines(rows: Sequence[Row]) -> list[str]:
    """Return the lines on engines, fans, latencies and memories.

    Invalid measurements are left out.
    """
    valid_rows = [
        row for row in rows if row.measurement is not None and not row.measurement.invalid
    ]
    return (
        engine_lines(valid_rows)
        + fan_lines(valid_rows)
        + latency_lines(valid_rows)
        + memory_lines(valid_rows)
    )


def fan_lines(rows: Sequence[Row]) -> list[str]:
    """Return the rate between one device and all others (a fan).

    It is compared with the sum of the rates of its links, measured one by one. A fan has only one of
    `source` and `target` among its parameters, and more than two devices. Its links are the valid
    measurements of the same size and metric that have both parameters.
    """
    return [line for row in rows for line in _fan(row, rows)]


def _fan(row: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the line on a row if it is a fan.

    A fan is a copy between one device and all others at once.
    """
    key, rate = row.key, row.rate
    ends = [name for name in ("source", "target") if index_of(row, name) is not None]
    if key is None or len(ends) != 1 or (key.hardware.devices or 1) <= 2 or rate is None:
        return
    (only_end,) = ends
    link_count = (key.hardware.devices or 1) - 1
    rates = _rates_of_links(rows, row, only_end)
    text = f"{printable(row.label)}: {format_rate(rate)} over {link_count} links at once"
    if len(rates) == link_count:
        total = sum(rates)
        text += f", {rate / total:.0%} of their sum, {format_rate(total)} "
        text += f"({link_count} × {format_rate(median(rates))} one by one)"
    else:
        text += f"; {len(rates)} of these links were measured one by one, so the sum is unknown"
    peak = link_peak(product_like(key.hardware.product, key.hardware.memory), key.hardware.link)
    # Only xGMI has a link of its own to each device. Over a switch or PCIe all copies share one link.
    if peak is not None and key.hardware.link == "xgmi":
        text += f"; rated {link_count} × {three_digits(peak.value)} GB/s"
    yield text


def _rates_of_links(rows: Iterable[Row], fan: Row, end: str) -> list[float]:
    """Return the rates of the links at one end of a fan.

    They were measured one by one, and are in bytes per second.
    """

    def common_parameters(row: Row) -> tuple[str | None, int | None, int | None]:
        """Return the metric, the size and the device at this end."""
        return row.counting, index_of(row, "size_bytes"), index_of(row, end)

    rates = {
        pair: row.rate
        for row in rows
        if row.rate
        and (pair := pair_of(row)) is not None
        and common_parameters(row) == common_parameters(fan)
    }
    return list(rates.values())


def latency_lines(rows: Sequence[Row]) -> list[str]:
    """Return half a round trip of the smallest message.

    There is a line for every sweep whose parameter `pattern` is `round_trip`.
    """
    trips = [row for row in rows if row.parameters.get("pattern") == "round_trip"]
    sweeps = group_by(trips, lambda row: _identity_without(row, "size_bytes")).values()
    return [
        f"{printable(row.label)}: latency {format_seconds(_seconds(row) / 2)}, half a round trip of "
        f"{format_bytes(_size(row))}"
        for row in (min(sweep, key=_size) for sweep in sweeps)
    ]


def _identity_without(row: Row, *names: str) -> str:
    """Return a key that is equal for rows that differ in `names` only."""
    return canonical({"": row.benchmark, **_without(row, *names)})


def _size(row: Row) -> int:
    return index_of(row, "size_bytes") or 0


def _seconds(row: Row) -> float:
    return row.time_s or 0.0


def memory_lines(rows: Sequence[Row]) -> list[str]:
    """Return lines on the speed-up of messages from other memory than the host's.

    The speed-up is against messages from the memory `host`, at the largest size that both have. The
    compared rows differ in their parameter `memory` only.
    """
    messages = [row for row in rows if isinstance(row.parameters.get(MEMORY), str)]
    groups = group_by(
        messages, lambda row: (row.name, _identity_without(row, MEMORY, "size_bytes"))
    )
    lines = []
    for members in groups.values():
        rows_by_memory_of_sizes = [
            {f"{row.parameters[MEMORY]}": row for row in rows_of_size}
            for _, rows_of_size in sorted(group_by(members, _size).items())
        ]
        comparable = [
            rows_by_memory
            for rows_by_memory in rows_by_memory_of_sizes
            if HOST in rows_by_memory and len(rows_by_memory) > 1
        ]
        # The last one, if any, has the largest size.
        lines += [_memory_text(rows_by_memory) for rows_by_memory in comparable[-1:]]
    return lines


def _memory_text(rows_by_memory: Mapping[str, Row]) -> str:
    """Return how many times as fast other memories are as the host's."""
    host = rows_by_memory[HOST]
    texts = [
        f"{memory} {three_digits(_seconds(host) / _seconds(row))} × as fast"
        for memory, row in rows_by_memory.items()
        if memory != HOST
    ]
    return f"{printable(host.label)}: from other memory {', '.join(texts)}, at {format_bytes(_size(host))}"


MPI_METRIC = "mpi_payload_GBps"
# The metric of PyTorch's messages, by the memory that MPI sends from.
PYTORCH_METRICS = {HOST: "gloo_payload_GBps", "device": "auto_payload_GBps"}


def path_lines(rows: Sequence[Row], width: int) -> list[str]:
    """Return lines that compare messages by MPI with those by PyTorch, one way between two ranks.

    The lines compare rates at equal sizes, and the sizes from which each is fast. MPI's rows have
    the parameters `pattern` and `memory`. PyTorch's rows have a `pattern` where ranks copy, else the
    pair of devices 0 and 1.
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
    """Return a table of the rates of PyTorch and MPI by size.

    It also has how many times as fast MPI is, with an interval.
    """
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
    """Yield lines on the sizes from which rates are high.

    They are the message sizes from which PyTorch and MPI reach 80 and 90 % of a rate. The rate is that of the link,
    else that of the slower plateau. Nothing is yielded where PyTorch or MPI has too few sizes for a curve.
    """
    pytorch_processes = [process for row in pytorch.values() for process in row.measurements]
    mpi_processes = [process for row in mpi.values() for process in row.measurements]
    # Each list has the one curve of its side, or none.
    pytorch_curves, mpi_curves = summarise(pytorch_processes), summarise(mpi_processes)
    if not pytorch_curves or not mpi_curves:
        return
    ceilings = [process.ceiling for process in pytorch_processes + mpi_processes if process.ceiling]
    link_rates = [ceiling.value for ceiling in ceilings if ceiling.source == "datasheet"]
    if link_rates:
        rate, name = max(link_rates), "the link"
    else:
        (pytorch_curve,), (mpi_curve,) = pytorch_curves, mpi_curves
        rate, name = min(pytorch_curve.plateau, mpi_curve.plateau), "the slower plateau"
    # The first share, of 50 %, is left out.
    for share in SHARES[1:]:
        pytorch_size = _reached_from(share * rate, pytorch)
        mpi_size = _reached_from(share * rate, mpi)
        texts = (f"{side} {f'from {format_bytes(size)}' if size else 'at no size'}"
                 for side, size in (("PyTorch", pytorch_size), ("MPI", mpi_size)))  # fmt: skip
        yield f"{share:.0%} of {name} ({format_rate(share * rate)}): {', '.join(texts)}{_shift(pytorch_size, mpi_size)}"


def _shift(first: int | None, second: int | None) -> str:
    """Return how many times as large the second size is.

    It is empty where the sizes are equal, or one is unknown.
    """
    if not first or not second or first == second:
        return ""
    times = max(first, second) / min(first, second)
    return f", {three_digits(times)} times {'smaller' if first > second else 'larger'}"


def _reached_from(rate: float, rows: Mapping[int, Row]) -> int | None:
    """Return the size from which on all sizes reach a rate, or None."""
    slow_sizes = (size for size, row in rows.items() if (row.rate or 0.0) < rate)
    largest_slow_size = max(slow_sizes, default=0)
    return min((size for size in rows if size > largest_slow_size), default=None)
