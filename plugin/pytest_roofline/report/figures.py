"""What tests found besides times, in a line for each test."""

from collections.abc import Sequence

from ..core.profiles import Figure
from ..core.units import (
    format_factor,
    format_flop_count,
    format_memory,
    format_seconds,
    format_share,
    printable,
    three_digits,
)

# A sweep may give figures in every test; the run file has them all.
MOST_LISTED = 30


def figure_lines(figures: Sequence[Figure], at_most: int = MOST_LISTED) -> list[str]:
    """`transformer_ranks[ddp-2]: efficiency 87.3 %, communicating 12.1 %`, in the order of the run.

    Of a test that was run again the last figure of a name stands.
    """
    tests: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        tests.setdefault(figure.test_id, {})[figure.name] = figure
    lines = [
        printable(f"{next(iter(found.values())).label}: {', '.join(map(figure_text, found.values()))}")
        for found in tests.values()
    ]
    more = [f"… and {len(lines) - at_most} more tests with figures"] if len(lines) > at_most else []
    return lines[:at_most] + more


def figure_text(figure: Figure) -> str:
    """`efficiency 87.3 %`."""
    # Formatters choose a unit by size, so the sign is none of theirs.
    return f"{figure.name} {'-' * (figure.value < 0)}{_amount(abs(figure.value), figure.unit)}"


def _amount(value: float, unit: str) -> str:
    match unit:
        case "B":
            return format_memory(value)
        case "s":
            return format_seconds(value)
        case "share":
            return format_share(value)
        case "FLOP":
            return format_flop_count(value)
        case "tokens/s":
            return f"{three_digits(value)} tokens/s"
        case "x":
            return format_factor(value)
    return f"{value:,.0f}" if value.is_integer() else three_digits(value)
