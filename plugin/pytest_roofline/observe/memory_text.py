"""Memory in words: what a call's goes into, where snapshots lie, and what is said of a test that ran out of it."""

from collections.abc import Sequence
from pathlib import Path

from ..core.memory import WORD, MemoryUse, OutOfMemory
from ..core.units import format_memory, format_seconds, printable

# So many are shown whole; a sweep has dozens, and the run file has them all.
MOST_SHOWN = 8
_PHASES = {"forward": "forward", "backward": "backward", "optimizer": "the optimizer", "other": "none of the phases"}
_DOING = {
    "arguments": "while its arguments were made",
    "calls": "in its calls",
    "peak_bytes": "after timing, while its peak was taken",
    "held_bytes": "after timing, while what it holds was taken",
    "verify": "after timing, while it was verified",
    "memory": "while its memory was followed",
}


def memory_lines(uses: Sequence[MemoryUse], at_most: int = MOST_SHOWN) -> list[str]:
    """Each with its peak, its categories, and what the device counted."""
    # A rerun takes the place of the attempt before.
    latest = list({(use.test_id, use.name): use for use in uses}.values())
    lines = [line for use in latest[:at_most] for line in use_lines(use)]
    more = len(latest) - at_most
    return lines + ([f"… and the memory of {more} more calls in the run file"] if more > 0 else [])


def use_lines(use: MemoryUse) -> list[str]:
    """One call: a line that sums it up, and the details below it."""
    lines = [f"memory of {use.label}: peak {format_memory(use.peak_bytes)} in {_PHASES[use.phase]}"]
    lines += [f"  {categories_text(use)}"]
    if len(use.phase_peaks) > 1:
        peaks = (f"{_PHASES[name]} {format_memory(size)}" for name, size in use.phase_peaks.items())
        lines += [f"  peaks: {', '.join(peaks)}"]
    if use.device_peak_bytes is not None:
        unseen = f", {_signed(use.unseen_bytes)} not seen by operators" if use.unseen_bytes else ", the same"
        lines += [f"  by the device's own counter {format_memory(use.device_peak_bytes)}{unseen}"]
    return [printable(line) for line in [*lines, *(f"  missing: {what}" for what in use.missing)]]


def categories_text(use: MemoryUse) -> str:
    """`activations 3.10 GiB (66 %), parameters 461 MiB (10 %)`."""
    ordered = sorted(use.categories.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {format_memory(size)} ({_share(size / use.peak_bytes)})" for name, size in ordered)


def _share(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.005 else "<1 %"


def _signed(size_bytes: int) -> str:
    # Formatters choose a unit by size, so the sign is none of theirs.
    return "-" * (size_bytes < 0) + format_memory(abs(size_bytes))


def snapshot_lines(snapshots: Sequence[tuple[str, Path]], at_most: int = MOST_SHOWN) -> list[str]:
    """Where memory snapshots lie, each behind the label of what was called, and what for."""
    if not snapshots:
        return []
    lines = ["memory snapshots, to open at https://pytorch.org/memory_viz:"]
    lines += [printable(f"  {label}: {path}") for label, path in snapshots[:at_most]]
    more = len(snapshots) - at_most
    return lines + ([printable(f"  … and {more} more in {snapshots[0][1].parent}")] if more > 0 else [])


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
    where = "outside of measure" if record.phase is None else _DOING[record.phase]
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
