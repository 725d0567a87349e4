"""Tests that ran out of memory: the word behind them, their row, their lines, and the message of a red one."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.entries import Entry
from ..core.memory import OutOfMemory
from ..core.units import format_memory, format_seconds, printable
from ..judging.exhausted import Lost
from ..judging.verdicts import Kind

WORD = "OUT OF MEMORY"
_PHASES = {
    "arguments": "while its arguments were made",
    "calls": "in its calls",
    "peak_bytes": "after timing, while its peak was taken",
    "held_bytes": "after timing, while what it holds was taken",
    "verify": "after timing, while it was verified",
    "memory": "while its memory was followed",
}


@dataclass(frozen=True, slots=True)
class RanOut:
    """A test that ran out of memory, with what else is known of it.

    `lost` are the baseline's times, by the name of a measurement, that there is none of now, `lost_kernels` the labels
    of its compiled kernels; with any of either, it is red. `published` are figures from elsewhere that say the same.
    """

    record: OutOfMemory
    lost: tuple[tuple[str, float], ...] = ()
    published: tuple[Entry, ...] = ()
    lost_kernels: tuple[str, ...] = ()

    @property
    def red(self) -> bool:
        """Whether it fails its test by verdict."""
        return self.record.recorded and bool(self.lost or self.lost_kernels)

    @property
    def words(self) -> tuple[str, ...]:
        """As verdicts: what happened, and what that means."""
        return (WORD, *((Kind.REGRESSED.value,) if self.red else ()))

    @property
    def word(self) -> str:
        """In a table: how the test ended."""
        return "FAILED" if not self.record.recorded else Kind.REGRESSED.value if self.red else WORD


def asked_text(record: OutOfMemory) -> str:
    """`asked for 2.00 GiB`; empty where nobody knows."""
    return "" if record.asked_bytes is None else f"asked for {format_memory(record.asked_bytes)}"


def figures(record: OutOfMemory) -> str:
    """`asked for 2.00 GiB, 1.10 GiB free`, as far as it is known."""
    free = [] if record.free_bytes is None else [f"{format_memory(record.free_bytes)} free"]
    return ", ".join([text for text in (asked_text(record), *free) if text])


def status_word(ran_out: RanOut) -> str:
    """What stands behind PASSED in a verbose run: `OUT OF MEMORY asked for 2.00 GiB`."""
    return " ".join(filter(None, (WORD, asked_text(ran_out.record))))


def failure_message(ran_out: RanOut, where: str) -> str:
    """Why a test is red that ran out of memory, where the baseline has a time or a compiled kernel.

    Args:
        ran_out: with what was lost.
        where: the run file.
    """
    record, told = ran_out.record, figures(ran_out.record)
    times = [
        format_seconds(seconds) + (f" for {printable(name)}" if name and name != record.name else "")
        for name, seconds in ran_out.lost
    ]
    kernels = [f"the kernel {printable(label)}" for label in ran_out.lost_kernels]
    details = f"Details: {where}" if where else "The run could not be saved"
    return (
        f"{printable(record.label)}: ran out of memory{f' ({told})' if told else ''}, where the baseline has "
        f"{', '.join(times + kernels)} "
        f"{Kind.REGRESSED.value}\n  {printable(record.message)}\n  {details}; if that is how it should be, take its "
        "entry out of the baseline."
    )


def lost_line(lost: Lost) -> str:
    """Of two runs that are compared: what the newer one ran out of memory for, and how long it took in the older."""
    return printable(f"{Kind.REGRESSED.value} {lost.label}: {lost_reason(lost)}")


def lost_reason(lost: Lost) -> str:
    """`ran out of memory (asked for 2 GiB), where it took 1.2 ms before`."""
    told = figures(lost.record)
    before = "was compiled" if lost.old_s is None else f"took {format_seconds(lost.old_s)}"
    return f"ran out of memory{f' ({told})' if told else ''}, where it {before} before"


def exhausted_lines(found: Sequence[RanOut], at_most: int = 12) -> list[str]:
    """Each with its figures, where it happened, and where else it does."""
    lines = [_line(one) for one in found]
    more = [f"… and {len(lines) - at_most} more that ran out of memory"] if len(lines) > at_most else []
    return lines[:at_most] + more


def _line(ran_out: RanOut) -> str:
    record = ran_out.record
    where = "outside of measure" if record.phase is None else _PHASES[record.phase]
    parts = [figures(record) or "sizes unknown", where]
    if record.allocated_bytes is not None:
        parts.append(f"{format_memory(record.allocated_bytes)} allocated by torch")
    if record.round > 1:
        parts.append(f"in round {record.round}")
    elsewhere = "; ".join(f"{entry.source} ({entry.convention})" for entry in ran_out.published)
    also = f"; also out of memory in {elsewhere}" if elsewhere else ""
    return printable(f"out of memory: {record.label}: {', '.join(parts)}{also}")


def exhausted_properties(found: Sequence[RanOut]) -> list[tuple[str, str]]:
    """The figures of a test as name and text, for JUnit XML and other reports."""
    pairs = []
    for one in found:
        name = one.record.name
        prefix = f"roofline.{name}." if name else "roofline."
        sizes = {"asked_bytes": one.record.asked_bytes, "free_bytes": one.record.free_bytes}
        known = {name: str(size) for name, size in sizes.items() if size is not None}
        pairs += [(printable(prefix + name), value) for name, value in {"verdict": one.word, **known}.items()]
    return pairs
