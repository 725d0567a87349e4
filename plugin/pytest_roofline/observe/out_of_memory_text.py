"""Tests that ran out of memory: the word behind them, their lines, and the message of a red one."""

from collections.abc import Sequence

from ..core.memory import WORD, OutOfMemory
from ..core.units import format_memory, format_seconds, printable

_PHASES = {
    "arguments": "while its arguments were made",
    "calls": "in its calls",
    "peak_bytes": "after timing, while its peak was taken",
    "held_bytes": "after timing, while what it holds was taken",
    "verify": "after timing, while it was verified",
    "memory": "while its memory was followed",
}


def asked_text(record: OutOfMemory) -> str:
    """`asked for 2.00 GiB`; empty where nobody knows."""
    return "" if record.asked_bytes is None else f"asked for {format_memory(record.asked_bytes)}"


def status_word(record: OutOfMemory) -> str:
    """What stands behind PASSED in a verbose run: `OUT OF MEMORY asked for 2.00 GiB`."""
    return " ".join(filter(None, (WORD, asked_text(record))))


def failure_message(record: OutOfMemory, where: str) -> str:
    """Why a test is red that ran out of memory, where the baseline has a time or a compiled kernel.

    Args:
        record: with what was lost.
        where: the run file.
    """
    told = record.sizes
    lost = [
        format_seconds(seconds) + (f" for {printable(name)}" if name and name != record.name else "")
        for name, seconds in record.lost.items()
    ]
    lost += [f"the kernel {printable(label)}" for label in record.lost_kernels]
    details = f"Details: {where}" if where else "The run could not be saved"
    return (
        f"{printable(record.label)}: ran out of memory{f' ({told})' if told else ''}, where the baseline has "
        f"{', '.join(lost)} REGRESSED\n  {printable(record.message)}\n  {details}; if that is how it should be, take "
        "its entry out of the baseline."
    )


def out_of_memory_lines(found: Sequence[OutOfMemory], at_most: int = 12) -> list[str]:
    """Each with its figures, where it happened, and where else it does."""
    lines = [printable(f"out of memory: {record.label}: {circumstances(record)}") for record in found]
    more = [f"… and {len(lines) - at_most} more that ran out of memory"] if len(lines) > at_most else []
    return lines[:at_most] + more


def circumstances(record: OutOfMemory) -> str:
    """`asked for 2.00 GiB, 1.10 GiB free, in its calls, 77.0 GiB allocated by torch`."""
    where = "outside of measure" if record.phase is None else _PHASES[record.phase]
    parts = [record.sizes or "sizes unknown", where]
    if record.allocated_bytes is not None:
        parts.append(f"{format_memory(record.allocated_bytes)} allocated by torch")
    if record.round > 1:
        parts.append(f"in round {record.round}")
    also = f"; also out of memory in {'; '.join(record.published)}" if record.published else ""
    return printable(", ".join(parts) + also)


def out_of_memory_properties(found: Sequence[OutOfMemory]) -> list[tuple[str, str]]:
    """The figures of a test as name and text, for JUnit XML and other reports."""
    pairs = []
    for record in found:
        prefix = f"roofline.{record.name}." if record.name else "roofline."
        sizes = {"asked_bytes": record.asked_bytes, "free_bytes": record.free_bytes}
        known = {name: str(size) for name, size in sizes.items() if size is not None}
        pairs += [(printable(prefix + name), value) for name, value in {"verdict": record.word, **known}.items()]
    return pairs
