"""Readings in the JSON or CSV of a tool, at the places that its `Layout` names, or that a user names."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ..core.errors import BadFile, short_repr
from ..core.keys import Scalar
from ..core.units import count
from ..core.work import Work
from ..figures.figure_units import SOME_UNITS, Unit, unit_of
from ..figures.json_paths import children, nodes_at
from ..figures.reading import number_of, read_figures
from .layout import Layout
from .records import (
    ImportedLog,
    MachineFacts,
    Reading,
    Tool,
    UserFacts,
    key_of_reading,
    pool_readings,
)

# The statistics of runs that are read where a file has no runs.
STAND_INS = ("mean", "median")
# Any program, whose figures the user names.
PROGRAM = Tool("a program", "figures as it printed them, at the paths of --higher and --lower")
# Larger whole numbers are not exact where they are written with a fraction.
_WHOLE = re.compile(r"-?\d{1,15}(?:\.0+)?", re.ASCII)
# A whole number as Python prints it, so that two texts are never one number: 01 and 1.0 stay texts.
_AS_PRINTED = re.compile(r"0|-?[1-9]\d{0,14}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row, with its name, that of its benchmark, and its statistic where it summarises others."""

    node: object
    name: str
    benchmark: str
    statistic: str

    @property
    def title(self) -> str:
        """The row in messages."""
        return " ".join(dict.fromkeys([self.benchmark, self.name]))


def read(layout: Layout, text: str, source: str, user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the log of a file, which holds one process.

    Raises:
        BadFile: it holds no such rows, several products, or a figure that is no number above zero.
    """
    try:
        return (_log(layout, layout.document_of(text), source, user_facts),)
    except RecursionError:
        raise BadFile(f"{source} is nested too deeply; expected the {layout.title}") from None
    except BadFile as error:
        raise BadFile(f"{source}: {error}") from None


def read_paths(
    reader: str, text: str, source: str, user_facts: UserFacts
) -> tuple[ImportedLog, ...]:
    """Return the log of a program's output.

    It is of one process, and has the figures whose paths the user names.

    Args:
        reader: `json`, `csv` or `regex`, the form of the paths.

    Raises:
        BadFile: a path leads nowhere, or to no number above zero.
    """
    try:
        figures = read_figures(text, reader, user_facts.paths)
    except BadFile as error:
        raise BadFile(f"{source}: {error}") from None
    readings = tuple(
        Reading(
            key=key_of_reading(
                "command",
                {name: _case_value(case) for name, case in figure.cases.items()},
                figure.direction,
                figure.name,
            ),
            work=Work(calls=1),
            seconds=figure.seconds,
            where=figure.name,
            devices=user_facts.devices or 1,
        )
        for figure in figures
    )
    return (ImportedLog(source, PROGRAM, readings, MachineFacts()),)


def _case_value(case: str) -> Scalar:
    """Return what tells a program's figure apart.

    It is a whole number where it is printed as one.
    """
    return int(case) if _AS_PRINTED.fullmatch(case) else case


def _log(layout: Layout, document: object, source: str, user_facts: UserFacts) -> ImportedLog:
    """Return the log in a document.

    It is read at the places that the layout of its tool names. The figures of single runs count. Where a benchmark has
    only summaries of its runs, one of these stands in for them.
    """
    rows = _rows(layout, document, _file_name(source) or layout.nameless)
    product, rows = _of_one_product(layout, document, rows, user_facts.product)
    runs = [row for row in rows if not row.statistic]
    benchmarks = {row.benchmark for row in runs}
    summaries = [
        row for row in rows if row.statistic in STAND_INS and row.benchmark not in benchmarks
    ]
    readings, left_out, failed = list[Reading](), list[str](), list[tuple[str, str]]()
    for row in [*runs, *summaries]:
        if _at(row.node, layout.failed) is not None:
            reason = _text_at(row.node, layout.failed) or "it failed"
            failed.append((f"{_prefix(layout)}.{row.name}", reason))
        elif _at(row.node, layout.skipped) is not None:
            left_out.append(f"{row.title}: {_text_at(row.node, layout.skipped) or 'skipped'}")
        else:
            readings += _readings(layout, row, user_facts.unit, left_out)
    if unused_count := len(rows) - len(runs) - len(summaries):
        left_out.append(f"{count(unused_count, 'aggregate')} of runs")
    return ImportedLog(
        source,
        layout.tool,
        pool_readings(readings),
        _machine(layout, document, product),
        started=_text_at(document, layout.started),
        left_out=tuple(left_out),
        failed=tuple(failed),
    )


def _file_name(source: str) -> str:
    """Return the name of a CSV without its folder and ending.

    Empty for any other source.
    """
    path = PurePath(source)
    return path.stem if path.suffix == ".csv" and " " not in path.name else ""


def _rows(layout: Layout, document: object, file_name: str) -> list[_Row]:
    """Return the rows of a document: its objects at the path `layout.rows`.

    A row without a name has that of its place. `file_name` is the benchmark of rows that name none.
    """
    rows = []
    for place in nodes_at(document, layout.rows):
        # The path of the rows ends in `*`, so the last name in `cases` is that of the row's place.
        place_name = next(reversed(place.cases.values()), "")
        name = _text_at(place.value, "name") or place_name
        if not isinstance(place.value, dict):
            raise BadFile(
                f"{name} of {layout.rows} is {short_repr(place.value)}; expected an object"
            )
        texts = (place.cases.get(path) or _text_at(place.value, path) for path in layout.benchmark)
        benchmark = next(filter(None, texts), file_name or name)
        rows.append(_Row(place.value, name, benchmark, _text_at(place.value, layout.summary)))
    return rows


def _of_one_product(
    layout: Layout, document: object, rows: Sequence[_Row], user_product: str | None
) -> tuple[str | None, list[_Row]]:
    """Return the product that was measured, and its rows. Where a file has several, the user names one."""
    # A row has the name of its device, and the document the product of each device at a path with that name.
    name_path, product_path = layout.product
    products = [
        _text_at(document, product_path.format(_text_at(row.node, name_path))) for row in rows
    ]
    names = sorted({*products} - {""})
    if len(names) > 1 and user_product not in names:
        option = shlex.quote(f"--read={layout.name},product={names[0]}")
        raise BadFile(
            f"it was measured on {' and '.join(names)}; choose one product behind the tool: {option}"
        )
    product = user_product if user_product in names else next(iter(names), "")
    return product or None, [
        row for row, name in zip(rows, products, strict=True) if name == product
    ]


def _readings(layout: Layout, row: _Row, user_unit: str, left_out: list[str]) -> Iterator[Reading]:
    """Yield the figures of a row as readings. A figure that it lacks is left out.

    Remarks on what is left out are added to `left_out`. `user_unit` counts where the row has no unit.
    """
    work = _work(layout, row, left_out)
    values = [(place, _at(row.node, place.path)) for place in layout.figures]
    if all(value is None for _, value in values):
        left_out.append(f"{row.title}: it has no figure")
    for place, value in values:
        if value is None:
            continue
        unit = _unit(layout, row, user_unit)
        calls = _at(row.node, place.calls)
        yield Reading(
            key=key_of_reading(
                f"{_prefix(layout)}.{row.benchmark}",
                _parameters(layout, row.node) | place.parameters,
                (work or unit.work).metric,
                row.statistic or layout.statistic,
                place.timing,
                place.cache,
            ),
            work=work or unit.work,
            seconds=(unit.seconds_of(number_of(value, f"{place.path} of {row.title}")),),
            where=row.name,
            iterations=1 if calls is None else max(1, round(number_of(calls, f"{place.calls} of {row.title}"))),
            mode=layout.mode,
        )  # fmt: skip


def _unit(layout: Layout, row: _Row, user_unit: str) -> Unit:
    """Return the unit of a row's figures."""
    label = layout.unit or _text_at(row.node, layout.unit_path) or user_unit
    if not label:
        raise BadFile(
            f"{row.title} has no unit; expected one of {SOME_UNITS}; "
            f"give the unit behind the tool: --read={layout.name},unit=GB/s"
        )
    unit = unit_of(label)
    if unit is None:
        raise BadFile(f"{row.title} has unit {label!r}; expected one of {SOME_UNITS}")
    return unit


def _work(layout: Layout, row: _Row, left_out: list[str]) -> Work | None:
    """Return the bytes of a row, calculated from its rate and its time.

    None where it has no rate or no time. A rate that is no number is added to `left_out`.
    """
    rate = layout.rate
    value = _at(row.node, rate.path) if rate else None
    if rate is None or value is None:
        return None
    times = (
        _at(row.node, path) for pattern, path in rate.times if re.search(pattern, row.benchmark)
    )
    time = next(filter(None, times), None)
    if time is None:
        return None
    try:
        bytes_per_second = number_of(value, rate.path)
    except BadFile:
        left_out.append(f"{row.title}: {rate.path} is no number above zero")
        return None
    time_value = number_of(time, f"the time of {row.title}")
    moved_bytes = round(bytes_per_second * _unit(layout, row, "").seconds_of(time_value))
    return Work(**{rate.counts: moved_bytes}) if moved_bytes else None


def _parameters(layout: Layout, node: object) -> dict[str, Scalar]:
    """Return the parameters of a row. Those of an object are its values, by their own names."""
    parameters: dict[str, Scalar] = {}
    for name, path in layout.parameters.items():
        value = _at(node, path)
        values = children(value) if isinstance(value, dict | list) else {name: value}
        parameters |= {key: _scalar(child) for key, child in values.items() if child is not None}
    return parameters


def _scalar(value: object) -> Scalar:
    """Return a parameter, as a whole number where it is one.

    An object is its value.
    """
    text = str(value.get("value") if isinstance(value, dict) else value)
    return int(float(text)) if _WHOLE.fullmatch(text) else text


def _machine(layout: Layout, document: object, product: str | None) -> MachineFacts:
    """Return the facts of the machine, as far as a document states them."""
    cores = _scalar(_at(document, layout.cores))
    software = {name: _text_at(document, path) for name, path in layout.software.items()}
    return MachineFacts(
        product,
        layout.device_type,
        host=_text_at(document, layout.host) or None,
        cores=cores if isinstance(cores, int) and cores > 0 else None,
        software={name: version for name, version in software.items() if version},
    )


def _prefix(layout: Layout) -> str:
    """Return the name of the tool as benchmarks begin with it."""
    return layout.name.replace("-", "_")


def _at(node: object, path: str) -> object:
    """Return the first part that a path leads to. None where it leads nowhere."""
    return next((place.value for place in nodes_at(node, path)), None) if path else None


def _text_at(node: object, path: str) -> str:
    """Return the value that a path leads to as text.

    Empty where it leads to none.
    """
    value = _at(node, path)
    return "" if value is None or isinstance(value, dict | list) else str(value)
