"""Runs of several devices beside each other: a column for each run, a line for each test."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from ..core.groups import group_by
from ..core.rows import FAILED, MEMORY, TIME, Row, finite
from ..core.units import GIB, MIB, printable, three_digits
from ..core.verdicts import Kind
from .tables import TextTable, render

Quantity = Literal["time", "rate", "peak"]

# What stands for a test without a number of its own.
NO_MEMORY, INVALID = "OOM", "inv."
# By the SI unit of a value, what it is shown in: the largest that is not above the middle of all values.
_UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B/s": ((1e9, "GB/s"),),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s")),
    "B": ((GIB, "GiB"), (MIB, "MiB")),
}
# Of a heading, so that several devices stand beside each other in 80 columns.
_HEADING = 14


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """One benchmark on several devices.

    Args:
        si: the unit of `value`; cells are in `unit`, of which one is `scale`.
        lines: by label, a row for each device; None where it has none.
    """

    benchmark: str
    quantity: Quantity
    si: str
    unit: str
    scale: float
    devices: tuple[str, ...]
    lines: dict[str, tuple[Row | None, ...]]

    @property
    def title(self) -> str:
        """Return `transformer: time in ms`."""
        return printable(f"{self.benchmark}: {self.quantity} in {self.unit}")

    def value(self, row: Row | None) -> float | None:
        """Return the number of a cell in SI units, or None.

        None where there is none, or it is not to be trusted.
        """
        return None if row is None or row.verdict == Kind.INVALID else _value(row, self.quantity)

    def cell(self, row: Row | None) -> str:
        """Return the number in the table's unit, or a word for it."""
        value = self.value(row)
        if value is not None:
            return three_digits(value / self.scale)
        if row is not None and row.lost is not None:
            return NO_MEMORY
        words = {Kind.INVALID.value: INVALID, FAILED: FAILED}
        return words.get(row.verdict, "") if row is not None else ""


def device_tables(rows: Sequence[Row], quantity: Quantity | None = None) -> list[DeviceTable]:
    """Return a table for each benchmark and unit.

    Tests are in the order in which they were measured. Without `quantity` it is the rate of what
    moves bytes, and the time of everything else.
    """
    devices = _devices(rows)
    # By label, since node ids of imported tests begin with the name of their file.
    tests = group_by((row for row in rows if row.metric == TIME), lambda row: row.label)
    # What failed, was skipped or ran out of memory ahead of any number.
    rows_without_number = {(row.test, row.run): row for row in rows if row.metric in (None, MEMORY)}
    groups: dict[tuple[str, Quantity, str], dict[str, tuple[Row | None, ...]]] = {}
    for members in tests.values():
        by_run = {row.run: row for row in members}
        first = by_run[members[0].run]
        table_quantity: Quantity = quantity or ("rate" if first.rate_unit == "B/s" else "time")
        if any(_value(row, table_quantity) is not None for row in by_run.values()):
            si = {"time": "s", "peak": "B"}.get(table_quantity) or first.rate_unit or ""
            line = tuple(
                by_run.get(run) or rows_without_number.get((first.test, run)) for run in devices
            )
            groups.setdefault((first.benchmark, table_quantity, si), {})[first.label] = line
    return [_table(*group, tuple(devices.values()), lines) for group, lines in groups.items()]


def _devices(rows: Sequence[Row]) -> dict[str | None, str]:
    """Return the heading of each run's column.

    It is the device, and the run too where several have the same.
    """
    products = {row.run: row.device or "" for row in rows}
    names = list(products.values())
    return {
        run: printable(product if names.count(product) == 1 else f"{product}, run {run}")
        for run, product in products.items()
    }


def _table(
    benchmark: str,
    quantity: Quantity,
    si: str,
    devices: tuple[str, ...],
    lines: dict[str, tuple[Row | None, ...]],
) -> DeviceTable:
    values = (_value(row, quantity) for line in lines.values() for row in line)
    middle = median(value for value in values if value is not None)
    scale, unit = next((pair for pair in _UNITS[si] if middle >= pair[0]), _UNITS[si][-1])
    return DeviceTable(benchmark, quantity, si, unit, scale, devices, lines)


def _value(row: Row | None, quantity: Quantity) -> float | None:
    if row is None or row.measurement is None:
        return None
    return finite(
        {"time": row.time_s, "rate": row.rate, "peak": row.measurement.peak_bytes}[quantity]
    )


def devices_text(tables: Sequence[DeviceTable], width: int, colour: bool) -> str:
    """Return the tables below each other."""
    blocks = []
    for table in tables:
        names = ("\n".join(textwrap.wrap(name, _HEADING)) for name in table.devices)
        text_table = TextTable(("test", "left"), *((name, "right") for name in names))
        for label, line in table.lines.items():
            text_table.add_row(printable(label), *map(table.cell, line))
        blocks.append(
            f"{table.title}\n{render(text_table, max(width, _HEADING * (2 + len(table.devices))), colour)}"
        )
    return "\n\n".join(blocks)


def devices_as_json(tables: Sequence[DeviceTable]) -> list[dict[str, object]]:
    """Return the tables as JSON, in SI units.

    Each device has a value and a verdict, both null where it has none.
    """
    return [
        {
            "label": label,
            "test": next(row.test for row in line if row is not None),
            "benchmark": table.benchmark,
            "quantity": table.quantity,
            "unit": table.si,
            "devices": list(table.devices),
            "values": [table.value(row) for row in line],
            "verdicts": [row.verdict if row is not None else None for row in line],
        }
        for table in tables
        for label, line in table.lines.items()
    ]
