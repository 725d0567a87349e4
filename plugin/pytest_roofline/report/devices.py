"""Runs of several devices beside each other.

There is a column for each run, and a line for each test.
"""

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

# Cells of tests without a number.
NO_MEMORY, INVALID = "OOM", "inv."
# The units that values of an SI unit are shown in. A table takes the largest that its median value reaches.
_UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B/s": ((1e9, "GB/s"),),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s")),
    "B": ((GIB, "GiB"), (MIB, "MiB")),
}
# Columns of a device's heading, which is wrapped, so that several devices fit into 80 columns.
_HEADING = 14


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """One benchmark on several devices.

    Args:
        si: the SI unit of what `value` returns.
        unit: the unit of the cells.
        scale: one `unit` in the SI unit.
        devices: the headings of the columns.
        lines: by the label of a test, its row on each device; None where the device has none.
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

        It is None where no number was measured, and where the measurement is INVALID.
        """
        return None if row is None or row.verdict == Kind.INVALID else _value(row, self.quantity)

    def cell(self, row: Row | None) -> str:
        """Return the number in the table's unit, or why there is none."""
        value = self.value(row)
        if value is not None:
            return three_digits(value / self.scale)
        if row is not None and row.lost is not None:
            return NO_MEMORY
        words = {Kind.INVALID.value: INVALID, FAILED: FAILED}
        return words.get(row.verdict, "") if row is not None else ""


def device_tables(rows: Sequence[Row], quantity: Quantity | None = None) -> list[DeviceTable]:
    """Return a table for each benchmark and unit.

    Tests are in the order in which they were measured. Without `quantity`, tests that move bytes
    show their rate and all others their time.
    """
    devices = _devices(rows)
    # Rows of the same test in several runs have the same label. Their test ids may differ, since the id of an imported
    # test begins with the name of its file.
    tests = group_by((row for row in rows if row.metric == TIME), lambda row: row.label)
    # Rows of tests that failed, were skipped or ran out of memory before they had a number.
    rows_without_number = {(row.test, row.run): row for row in rows if row.metric in (None, MEMORY)}
    # By benchmark, quantity and SI unit of a table: by the label of a test, its row on each device.
    groups: dict[tuple[str, Quantity, str], dict[str, tuple[Row | None, ...]]] = {}
    for members in tests.values():
        row_by_run = {row.run: row for row in members}
        # A run may have measured the test again; its last row counts.
        first = row_by_run[members[0].run]
        table_quantity: Quantity = quantity or ("rate" if first.rate_unit == "B/s" else "time")
        if any(_value(row, table_quantity) is not None for row in row_by_run.values()):
            si = {"time": "s", "peak": "B"}.get(table_quantity) or first.rate_unit or ""
            line = tuple(
                row_by_run.get(run) or rows_without_number.get((first.test, run)) for run in devices
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
    """Return a table in the unit that suits its median value."""
    values = (_value(row, quantity) for line in lines.values() for row in line)
    middle = median(value for value in values if value is not None)
    # The units of `_UNITS` are the largest first; a median below all of them has the smallest.
    *_, smallest_unit = _UNITS[si]
    fitting_units = ((scale, unit) for scale, unit in _UNITS[si] if middle >= scale)
    scale, unit = next(fitting_units, smallest_unit)
    return DeviceTable(benchmark, quantity, si, unit, scale, devices, lines)


def _value(row: Row | None, quantity: Quantity) -> float | None:
    """Return the finite value of a quantity in SI units, or None."""
    if row is None or row.measurement is None:
        return None
    return finite(
        {"time": row.time_s, "rate": row.rate, "peak": row.measurement.peak_bytes}[quantity]
    )


def devices_text(tables: Sequence[DeviceTable], width: int, colour: bool) -> str:
    """Return the tables below each other.

    A table with many devices is wider than `width`, so that its columns stay readable.
    """
    blocks = []
    for table in tables:
        headings = ("\n".join(textwrap.wrap(name, _HEADING)) for name in table.devices)
        text_table = TextTable(("test", "left"), *((heading, "right") for heading in headings))
        for label, line in table.lines.items():
            text_table.add_row(printable(label), *map(table.cell, line))
        # The id of the test has the room of two columns of devices.
        least_width = _HEADING * (2 + len(table.devices))
        blocks.append(f"{table.title}\n{render(text_table, max(width, least_width), colour)}")
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
