"""What the memory of a call goes into, in lines, and where memory snapshots lie."""

from collections.abc import Sequence
from pathlib import Path

from ..core.memory_use import MemoryUse
from ..core.units import format_memory, printable

# So many are shown whole; a sweep has dozens, and the run file has them all.
MOST_SHOWN = 8
_PHASES = {"forward": "forward", "backward": "backward", "optimizer": "the optimizer", "other": "none of the phases"}


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
