"""The inside of a call, in words: some lines a test for the terminal. The page shows pieces of them."""

import math
import os
import re
from collections.abc import Sequence
from itertools import pairwise

from ..core.memory import WORD, MemoryUse, OutOfMemory
from ..core.profiles import LAUNCH, AttentionTime, KernelTime, OperatorTime, Profile
from ..core.units import (
    count,
    cut,
    format_flop_count,
    format_memory,
    format_seconds,
    format_share,
    printable,
    three_digits,
)

# Profiles, kernels, operators and parts that the terminal shows; the run file has all.
MOST_SHOWN, MOST_KERNELS, MOST_OPERATORS, MOST_PARTS = 8, 8, 12, 8
# How many times as long a call may take under the profiler. Beyond that, part of the idle time is the profiler's.
MOST_OVERHEAD = 1.1
COLUMNS = ("time", "share", "calls", "mean")
# Columns of operators, and the number of them that a CPU has.
OPERATOR_COLUMNS, HOST_COLUMNS = (
    ("self CPU", "share", "CPU total", "calls", "self GPU", "GPU total"),
    4,
)
SHORTEST_NAME, LONGEST_NAME = 24, 60


def profile_lines(profiles: Sequence[Profile], width: int) -> list[str]:
    """Return the lines of all profiles for the terminal.

    Each of the first eight is shown in full; the others are only counted, with the folders of their
    traces. If a measurement was profiled several times, the last profile counts.
    """
    latest = list({(profile.test_id, profile.name): profile for profile in profiles}.values())
    first_profiles, other_profiles = latest[:MOST_SHOWN], latest[MOST_SHOWN:]
    lines = [line for profile in first_profiles for line in one_profile_lines(profile, width)]
    if other_profiles:
        traces = [profile.trace for profile in other_profiles if profile.trace]
        folders = dict.fromkeys(os.path.dirname(trace) for trace in traces)  # noqa: PTH120
        where = " and ".join(["the run file", *folders])
        lines.append(printable(f"and {count(len(other_profiles), 'more profile')}, in {where}"))
    return lines


def one_profile_lines(profile: Profile, width: int) -> list[str]:
    """Return one profile in full, below a heading."""
    calls = count(profile.calls, "call")
    lines = [
        f"profile of {profile.label} on {profile.device}, {calls}; never judged, in no baseline"
    ]
    lines += [f"  {sentence}" for sentence in clock_sentences(profile)]
    if profile.classes:
        lines.append(f"  {classes_text(profile)}")
    # Without a device the kernels are operators, which the table of operators shows.
    if profile.on_device or not profile.operators:
        lines += [f"  {line}" for line in _kernel_table(profile, width - 2)]
    lines += [f"  {line}" for line in _operator_table(profile, width - 2)]
    if launches := launches_text(profile):
        lines.append(f"  launches: {launches}")
    if profile.parts:
        lines.append(f"  parts: {parts_text(profile)}")
    lines += [
        f"  attention, {attention_text(attention, profile.calls)}"
        for attention in profile.attention
    ]
    lines += [f"  not in this profile: {sentence}" for sentence in profile.missing]
    if profile.trace:
        lines.append(f"  trace: {profile.trace} (open it at https://ui.perfetto.dev)")
    return [printable(line) for line in lines]


def clock_sentences(profile: Profile) -> list[str]:
    """Return the times of a call, and a warning if they differ much.

    They read `a call: 12.1 ms measured, 13.0 ms under the profiler`.
    """
    seconds_by_clock = {"measured": profile.measured_s, "under the profiler": profile.profiled_s}
    times = [
        f"{format_seconds(seconds)} {name}"
        for name, seconds in seconds_by_clock.items()
        if seconds is not None
    ]
    if profile.on_device and profile.span_s:
        times.append(
            f"operators at work on the host for {format_share(profile.host_s / profile.span_s)} of the span"
        )
    sentences = [f"a call: {', '.join(times)}"] if times else []
    measured_s, profiled_s = profile.measured_s, profile.profiled_s
    if measured_s and profiled_s is not None and profiled_s > MOST_OVERHEAD * measured_s:
        sentences.append(
            f"the profiler made a call {profiled_s / measured_s:.2f} times as long, so the profiler causes a part of "
            "the idle time and of the operators' times on the host"
        )
    return sentences


def classes_text(profile: Profile) -> str:
    """Return `matrix product 61.2 %, elementwise 18.0 %, idle 8.1 % of the span`."""
    text = ", ".join(
        f"{class_time.name} {format_share(class_time.share)}" for class_time in profile.classes
    )
    # Rounding alone may take the sum a little above 1.
    if sum(class_time.share for class_time in profile.classes) > 1.01:
        return f"{text} of the span; streams overlap, so the classes add up to more than the span"
    return f"{text} of the span"


def _kernel_table(profile: Profile, width: int) -> list[str]:
    """Return the kernels with the longest times as a table.

    On a CPU they are operators.
    """
    rows = [
        (kernel.name, kernel_cells(kernel, profile.calls))
        for kernel in profile.kernels[:MOST_KERNELS]
    ]
    return _table("kernel" if profile.on_device else "operator", COLUMNS, rows, width)


def _operator_table(profile: Profile, width: int) -> list[str]:
    """Return the operators of the host as a table, with times of one call.

    With a device, the time of their kernels is beside it.
    """
    # The columns after the first `HOST_COLUMNS` are of the device, so a profile without one leaves them out.
    column_count = len(OPERATOR_COLUMNS) if profile.on_device else HOST_COLUMNS
    rows = [
        (operator.name, operator_cells(operator, profile.calls)[:column_count])
        for operator in profile.operators[:MOST_OPERATORS]
    ]
    return _table("operator", OPERATOR_COLUMNS[:column_count], rows, width)


def _table(
    heading: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], width: int
) -> list[str]:
    """Return lines of names and cells.

    Names are shortened where the numbers need the room.
    """
    if not rows:
        return []
    cells = [columns, *(row_cells for _, row_cells in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    # Two blanks are before each column.
    free_width = width - sum(widths) - 2 * len(widths)
    name_width = max(SHORTEST_NAME, min(LONGEST_NAME, free_width))
    names = [heading, *(short_name(name, name_width) for name, _ in rows)]
    longest = max(map(len, names))
    return [
        name.ljust(longest)
        + "".join(
            f"  {cell.rjust(column_width)}"
            for cell, column_width in zip(row_cells, widths, strict=True)
        )
        for name, row_cells in zip(names, cells, strict=True)
    ]


def operator_cells(operator: OperatorTime, calls: int) -> list[str]:
    """Return the cells of `OPERATOR_COLUMNS`, for one call of the function.

    The self time of an operator leaves out the operators that it called.
    """
    return [
        format_seconds(operator.self_cpu_s / calls),
        format_share(operator.share),
        format_seconds(operator.cpu_s / calls),
        _number(operator.count, calls),
        *(
            format_seconds(seconds / calls) if seconds else "0"
            for seconds in (operator.self_device_s, operator.device_s)
        ),
    ]


def launches_text(profile: Profile) -> str:
    """Return `cudaLaunchKernel 2060 a call, 7.1 % of the host's time`.

    It is empty if nothing is launched.
    """
    return ", ".join(
        f"{launch.name} {_number(launch.count, profile.calls)} a call, {format_share(launch.share)} of the host's time"
        for launch in profile.operators
        if LAUNCH.fullmatch(launch.name)
    )


def _number(total: int, calls: int) -> str:
    """Return a total divided by the number of calls."""
    return f"{total / calls:g}" if total % calls == 0 else f"{total / calls:.1f}"


def kernel_cells(kernel: KernelTime, calls: int) -> tuple[str, ...]:
    """Return the cells of `COLUMNS` for a kernel.

    They are the time in one call of the function with its share, the launches in one call, and the
    mean time of a launch.
    """
    return (
        format_seconds(kernel.total_s / calls),
        format_share(kernel.share),
        _number(kernel.count, calls),
        format_seconds(kernel.total_s / kernel.count),
    )


# Parts of kernels' names that tell nothing: return type and name spaces.
_NOISE = re.compile(
    r"^void |at::native::|\(anonymous namespace\)::|<unnamed>::|at::detail::|std::|cutlass::|at::cuda::"
)


def short_name(name: str, at_most: int) -> str:
    """Return a kernel's name without its common parts.

    These are its return type, name spaces and argument list.
    """
    short = _NOISE.sub("", name)
    # The parentheses of a copy hold its direction, as in `Memcpy DtoH (Device -> Pinned)`.
    if not short.startswith(("Memcpy", "Memset")):
        short = short.partition("(")[0]
    short = printable(short.strip() or name)
    return short if len(short) <= at_most else short[: at_most - 1] + "…"


def parts_text(profile: Profile, at_most: int = MOST_PARTS) -> str:
    """Return `blocks.*.attention 3.00 ms forward 4.00 ms backward`, for one call.

    The time of a part does not include the parts inside it.
    """
    texts = []
    for part in profile.parts[:at_most]:
        name = part.part or "(in no part)"
        text = f"{name} {format_seconds(part.forward_s / profile.calls)} forward"
        if part.backward_s:
            text += f" {format_seconds(part.backward_s / profile.calls)} backward"
        texts.append(text)
    remaining = len(profile.parts) - at_most
    return ", ".join(texts) + (f", and {remaining} more in the run file" if remaining > 0 else "")


def attention_text(attention: AttentionTime, calls: int) -> str:
    """Return the times of attention in one phase, forward or backward, for one call.

    It reads `forward: softmax 1.98 ms (75.5 MFLOP), products of scores and values 10.7 ms (4.8 GFLOP), …`.
    """
    pieces = []
    if attention.softmax_s or attention.products_s:
        pieces.append(f"softmax {_amount(attention.softmax_s, attention.softmax_flops, calls)}")
        pieces.append(
            f"products of scores and values {_amount(attention.products_s, attention.products_flops, calls)}"
        )
    if attention.softmax_s and attention.products_s:
        pieces.append(_ratio(attention))
    if attention.fused_s:
        pieces.append(
            f"fused {format_seconds(attention.fused_s / calls)} (softmax and products cannot be separated)"
        )
    if attention.projections_s:
        pieces.append(
            f"products with weights {_amount(attention.projections_s, attention.projections_flops, calls)}"
        )
    pieces.append(f"else {format_seconds(attention.other_s / calls)}")
    return f"{attention.phase}: {', '.join(pieces)}"


def _amount(seconds: float, flops: int | None, calls: int) -> str:
    """Return the time and the FLOPs of one call."""
    return format_seconds(seconds / calls) + (
        f" ({format_flop_count(flops / calls)})" if flops is not None else ""
    )


def _ratio(attention: AttentionTime) -> str:
    """Return the ratio of softmax to products, in time and in FLOPs."""
    text = f"1 : {three_digits(attention.products_s / attention.softmax_s)} in time"
    if attention.softmax_flops and attention.products_flops:
        text += (
            f" and 1 : {three_digits(attention.products_flops / attention.softmax_flops)} in FLOPs"
        )
    return text


# Memory.

_PHASES = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "the optimizer",
}
# Bars of memory over time, in eighths of its rise, and the most of them in a line.
_BARS, _WIDEST = "▁▂▃▄▅▆▇█", 48
# What a test did when it ran out of memory, by phase.
_DOING = {
    "arguments": "while the arguments were made",
    "calls": "during the calls",
    "peak_bytes": "after timing, while the peak memory was measured",
    "held_bytes": "after timing, while the memory of the result was measured",
    "verify": "after timing, while the result was verified",
    "memory": "while the memory of a call was recorded",
}


def memory_lines(uses: Sequence[MemoryUse], at_most: int = MOST_SHOWN) -> list[str]:
    """Return each use of memory: peak, categories, and the device's count."""
    # The last record of a test that ran again replaces the earlier ones.
    latest = list({(use.test_id, use.name): use for use in uses}.values())
    lines = [line for use in latest[:at_most] for line in use_lines(use)]
    remaining = len(latest) - at_most
    return lines + (
        [f"… and the memory of {remaining} more calls in the run file"] if remaining > 0 else []
    )


def use_lines(use: MemoryUse) -> list[str]:
    """Return the memory of one call: a line with the peak, then details."""
    lines = [
        f"memory of {use.label}: peak {format_memory(use.peak_bytes)} in {_PHASES[use.phase]}",
        f"  {categories_text(use)}",
    ]
    if len(use.phase_peaks) > 1:
        peaks = (f"{_PHASES[name]} {format_memory(size)}" for name, size in use.phase_peaks.items())
        lines += [f"  peaks: {', '.join(peaks)}"]
    if use.over_time:
        lines.append(f"  over time: {over_time_text(use)}")
    if use.allocator:
        allocated_bytes = max(point.allocated_bytes for point in use.allocator)
        reserved_bytes = max(point.reserved_bytes for point in use.allocator)
        lines.append(
            f"  by torch's allocator: at most {format_memory(allocated_bytes)} allocated, "
            f"{format_memory(reserved_bytes)} reserved"
        )
    if use.device_peak_bytes is not None:
        unseen_text = (
            f", {_signed_text(use.unseen_bytes)} beyond the allocations of operators"
            if use.unseen_bytes
            else ", the same"
        )
        lines += [
            f"  by the device's own counter {format_memory(use.device_peak_bytes)}{unseen_text}"
        ]
    return [
        printable(line)
        for line in [*lines, *(f"  missing: {sentence}" for sentence in use.missing)]
    ]


def over_time_text(use: MemoryUse) -> str:
    """Return `304 MiB ▁▂▃█▆▅ 310 MiB` for a call.

    The numbers are the memory at its beginning and end. Each bar is the largest memory in an equal
    number of points, on a scale from the least memory to the peak.
    """
    sizes = [point.total_bytes for point in use.over_time]
    bar_count, least = min(len(sizes), _WIDEST), min(sizes)
    # Bar number `n` shows the points from bound `n` to bound `n + 1`.
    bounds = [number * len(sizes) // bar_count for number in range(bar_count + 1)]
    bar_sizes = (max(sizes[start:end]) for start, end in pairwise(bounds))
    # The rise is 1 where all sizes are equal, so that nothing is divided by 0.
    rise = (max(sizes) - least) or 1
    heights = (math.ceil(len(_BARS) * (size - least) / rise) for size in bar_sizes)
    bars = "".join(_BARS[max(0, height - 1)] for height in heights)
    first_size, last_size = sizes[0], sizes[-1]
    return f"{format_memory(first_size)} {bars} {format_memory(last_size)}"


def categories_text(use: MemoryUse) -> str:
    """Return `activations 3.10 GiB (66 %), parameters 461 MiB (10 %)`."""
    largest_first = sorted(use.categories, key=lambda name: -use.categories[name])
    return ", ".join(
        f"{name} {format_memory(use.categories[name])} ({_share(use.categories[name] / use.peak_bytes)})"
        for name in largest_first
    )


def _share(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.005 else "<1 %"


def _signed_text(size_bytes: int) -> str:
    # Formatters choose a unit by the size of a positive number, so the sign is written here.
    return ("-" if size_bytes < 0 else "") + format_memory(abs(size_bytes))


def status_word(record: OutOfMemory) -> str:
    """Return the text behind PASSED in a verbose run. It is `OUT OF MEMORY asked for 2.00 GiB`."""
    asked_bytes = record.allocation.asked_bytes
    return WORD if asked_bytes is None else f"{WORD} asked for {format_memory(asked_bytes)}"


def failure_message(record: OutOfMemory, where: str) -> str:
    """Return why a test that ran out of memory is red.

    The message names the times and the kernels that the baseline has for it. `where` is the run file
    with the details; it is empty where the run could not be saved.
    """
    allocation = record.allocation
    sizes = f" ({allocation.sizes})" if allocation.sizes else ""
    # The entries of the baseline that this test could not measure again.
    losses = [
        format_seconds(seconds)
        + (f" for {printable(name)}" if name and name != record.name else "")
        for name, seconds in record.lost.times.items()
    ]
    losses += [f"the kernel {printable(label)}" for label in record.lost.kernels]
    details = f"Details: {where}" if where else "The run could not be saved"
    return (
        f"{printable(record.label)}: ran out of memory{sizes}, where the baseline has "
        f"{', '.join(losses)} REGRESSED\n  {printable(allocation.message)}\n  {details}; if the test may run out of "
        "memory, remove its entry from the baseline."
    )


def out_of_memory_lines(records: Sequence[OutOfMemory], at_most: int = 12) -> list[str]:
    """Return a line for each record: figures and place."""
    lines = [
        printable(f"out of memory: {record.label}: {circumstances(record)}") for record in records
    ]
    return cut(lines, at_most, "tests that ran out of memory")


def circumstances(record: OutOfMemory) -> str:
    """Return how a test ran out of memory.

    It reads `asked for 2.00 GiB, 1.10 GiB free, during the calls, 77.0 GiB allocated by torch`.
    """
    where = "outside of measure" if record.phase is None else _DOING[record.phase]
    allocation = record.allocation
    parts = [allocation.sizes or "sizes unknown", where]
    if allocation.allocated_bytes is not None:
        parts.append(f"{format_memory(allocation.allocated_bytes)} allocated by torch")
    if record.round > 1:
        parts.append(f"in round {record.round}")
    return printable(", ".join(parts))


def out_of_memory_properties(records: Sequence[OutOfMemory]) -> list[tuple[str, str]]:
    """Return the figures of a test as names and texts.

    They are for JUnit XML and other reports.
    """
    pairs = []
    for record in records:
        prefix = printable(f"roofline.{record.name}." if record.name else "roofline.")
        pairs.append((f"{prefix}verdict", record.word))
        allocation = record.allocation
        sizes = {"asked_bytes": allocation.asked_bytes, "free_bytes": allocation.free_bytes}
        pairs += [(prefix + name, str(size)) for name, size in sizes.items() if size is not None]
    return pairs
