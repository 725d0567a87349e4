"""What the memory of a call goes into, in lines: the peak by category, the largest allocations, what was predicted."""

from collections.abc import Sequence
from pathlib import Path

from ..core.memory_use import Allocation, MemoryUse, OutputBytes
from ..core.units import format_memory, format_percent, printable

# So many are shown whole; a sweep has dozens, and the run file has them all.
MOST_SHOWN = 8


def memory_lines(uses: Sequence[MemoryUse], at_most: int = MOST_SHOWN) -> list[str]:
    """Each with its peak, its categories, its largest allocations, its outputs, and what the device counted."""
    # A rerun takes the place of the attempt before.
    latest = list({(use.test_id, use.name): use for use in uses}.values())
    lines = [printable(line) for use in latest[:at_most] for line in use_lines(use)]
    more = len(latest) - at_most
    return lines + ([f"… and the memory of {more} more calls in the run file"] if more > 0 else [])


def snapshot_lines(snapshots: Sequence[tuple[str, Path]], at_most: int = MOST_SHOWN) -> list[str]:
    """Where memory snapshots lie, each behind the label of what was called, and what for."""
    if not snapshots:
        return []
    lines = ["memory snapshots, to open at https://pytorch.org/memory_viz:"]
    lines += [printable(f"  {label}: {path}") for label, path in snapshots[:at_most]]
    more = len(snapshots) - at_most
    return lines + ([printable(f"  … and {more} more in {snapshots[0][1].parent}")] if more > 0 else [])


def use_lines(use: MemoryUse) -> list[str]:
    """One call: a line that sums it up, and the details below it."""
    lines = [f"memory of {use.label}: peak {format_memory(use.peak_bytes)} in {_PHASES[use.phase]}"]
    details = [categories_text(use)]
    details += [_by_phase(use)] * (len(use.phase_peaks) > 1)
    details += _largest_lines(use)
    details += [_output_text(output) for output in use.outputs]
    details += [_counted(use, use.device_peak_bytes)] if use.device_peak_bytes is not None else []
    details += [f"missing: {what}" for what in use.missing]
    return lines + [f"  {detail}" for detail in details]


_PHASES = {"forward": "forward", "backward": "backward", "optimizer": "the optimizer", "other": "none of the phases"}


def categories_text(use: MemoryUse) -> str:
    """`activations 3.10 GiB (66 %), parameters 461 MiB (10 %)`."""
    ordered = sorted(use.categories.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {format_memory(size)} ({_share(size, use.peak_bytes)})" for name, size in ordered)


def _share(size_bytes: int, total_bytes: int) -> str:
    share = size_bytes / total_bytes
    return f"{share * 100:.0f} %" if share >= 0.005 else "<1 %"


def _by_phase(use: MemoryUse) -> str:
    return "peaks: " + ", ".join(f"{_PHASES[name]} {format_memory(size)}" for name, size in use.phase_peaks.items())


def _largest_lines(use: MemoryUse) -> list[str]:
    """What the call made as a table, and in a line what is the largest of all, mostly weights that it found."""
    lines = _table(use.largest_made)
    lines = ["largest that the call made, at the peak:", *lines] if lines else []
    if use.largest in ((), use.largest_made):
        return lines
    told = (f"{format_memory(one.size_bytes)} {one.category} {one.place}".rstrip() for one in use.largest)
    return [*lines, f"largest of all at the peak: {', '.join(told)}"]


def _table(allocations: Sequence[Allocation]) -> list[str]:
    rows = [
        (
            format_memory(one.size_bytes),
            one.category,
            f"{one.dtype}[{', '.join(map(str, one.shape))}]",
            one.operator,
            where(one),
        )
        for one in allocations
    ]
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    size, *others = range(len(widths))
    lines = []
    for row in rows:
        cells = [row[size].rjust(widths[size])] + [row[index].ljust(widths[index]) for index in others]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def where(allocation: Allocation) -> str:
    """Its place in the model; where nobody knows that, what the call was doing."""
    if allocation.place:
        return allocation.place + " (backward)" * (allocation.made == "backward" and allocation.category != "gradients")
    return "" if allocation.made == "before" else _PHASES[allocation.made]


def _output_text(output: OutputBytes) -> str:
    name, predicted = output.module or "the model", format_memory(output.predicted_bytes)
    if output.measured_bytes is None:
        return f"output of {name}: predicted {predicted}, not called"
    text = f"output of {name}: {format_memory(output.measured_bytes)}, predicted {predicted}"
    if not output.predicted_bytes:
        return text
    return f"{text} ({format_percent(output.measured_bytes / output.predicted_bytes - 1)})"


def _counted(use: MemoryUse, peak_bytes: int) -> str:
    differences = {"not seen by operators": use.unseen_bytes, "there before and not used": use.outside_bytes}
    parts = [f"{_signed(size)} {what}" for what, size in differences.items() if size]
    text = f"by the device's own counter {format_memory(peak_bytes)}"
    return f"{text}, of which {', '.join(parts)}" if parts else f"{text}, the same"


def _signed(size_bytes: int) -> str:
    # Formatters choose a unit by size, so the sign is none of theirs.
    return "-" * (size_bytes < 0) + format_memory(abs(size_bytes))
