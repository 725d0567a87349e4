"""A profile in words: a few lines a test for the terminal, and the pieces of them that the page shows."""

import os
import re
from collections.abc import Sequence

from ..core.profiles import AttentionTime, KernelTime, Profile
from ..core.units import format_flop_count, format_seconds, format_share, printable, three_digits

# The terminal shows so many of each; the run file has all.
MOST_PROFILES, MOST_KERNELS, MOST_PARTS = 8, 8, 8
# Above this the profiler changed what it looked at, and idle time is partly its own.
SLOWED = 1.1
COLUMNS = ("time", "share", "calls", "mean")
SHORTEST_NAME, LONGEST_NAME = 24, 60


def profile_lines(profiles: Sequence[Profile], width: int) -> list[str]:
    """For each the clocks, the classes, the kernels that took most, attention, and what could not be had.

    Of a measurement that was repeated the last one stands, and behind the first eight there is only a path.
    """
    latest = list({(profile.test_id, profile.name): profile for profile in profiles}.values())
    shown, rest = latest[:MOST_PROFILES], latest[MOST_PROFILES:]
    lines = [line for profile in shown for line in one_profile_lines(profile, width)]
    if rest:
        folders = dict.fromkeys(os.path.dirname(profile.trace) for profile in rest if profile.trace)  # noqa: PTH120
        where = " and ".join(["the run file", *folders])
        lines.append(printable(f"and {len(rest)} more profile{'s' * (len(rest) > 1)}, in {where}"))
    return lines


def one_profile_lines(profile: Profile, width: int) -> list[str]:
    """One of them in full, below a heading."""
    calls = calls_text(profile.calls)
    lines = [f"profile of {profile.label} on {profile.device}, {calls}; never judged, in no baseline"]
    lines += [f"  {sentence}" for sentence in clock_sentences(profile)]
    lines += [f"  {classes_text(profile)}"] * bool(profile.classes)
    lines += ["  " + line for line in _kernel_table(profile, width - 2)]
    lines += [f"  parts: {parts_text(profile)}"] * bool(profile.parts)
    lines += [f"  attention, {attention_text(found, profile.calls)}" for found in profile.attention]
    lines += [f"  not told: {sentence}" for sentence in profile.missing]
    lines += [f"  trace: {profile.trace} (open it at https://ui.perfetto.dev)"] * bool(profile.trace)
    return [printable(line) for line in lines]


def calls_text(count: int) -> str:
    """`3 calls`."""
    return f"{count} call{'s' * (count > 1)}"


def clock_sentences(profile: Profile) -> list[str]:
    """`a call: 12.1 ms measured, 13.0 ms under the profiler`, and whether that is much longer."""
    known = {"measured": profile.measured_s, "under the profiler": profile.profiled_s}
    times = [f"{format_seconds(value)} {name}" for name, value in known.items() if value is not None]
    if profile.on_device and profile.span_s:
        times.append(f"operators at work on the host for {format_share(profile.host_s / profile.span_s)} of it")
    sentences = [f"a call: {', '.join(times)}"] * bool(times)
    plain, under = profile.measured_s, profile.profiled_s
    if plain and under is not None and under > SLOWED * plain:
        sentences.append(
            f"the profiler made a call {under / plain:.2f} times as long: a part of idle, and of operators' times on a "
            "host, is its own"
        )
    return sentences


def classes_text(profile: Profile) -> str:
    """`matrix product 61.2 %, elementwise 18.0 %, idle 8.1 % of the span`."""
    text = ", ".join(f"{found.name} {format_share(found.share)}" for found in profile.classes)
    if sum(found.share for found in profile.classes) > 1.01:
        return f"{text} of the span; streams overlap, so that classes hold more than the span"
    return f"{text} of the span"


def _kernel_table(profile: Profile, width: int) -> list[str]:
    """The kernels (on a CPU: operators) that took most, of a call; names give way to numbers."""
    kernels = profile.kernels[:MOST_KERNELS]
    if not kernels:
        return []
    cells = [COLUMNS, *(kernel_cells(kernel, profile.calls) for kernel in kernels)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = max(SHORTEST_NAME, min(LONGEST_NAME, width - sum(widths) - 2 * len(widths)))
    names = ["kernel" if profile.on_device else "operator", *(short_name(kernel.name, room) for kernel in kernels)]
    longest = max(map(len, names))
    return [
        name.ljust(longest) + "".join(f"  {cell.rjust(wide)}" for cell, wide in zip(row, widths, strict=True))
        for name, row in zip(names, cells, strict=True)
    ]


def kernel_cells(kernel: KernelTime, calls: int) -> tuple[str, ...]:
    """What stands in `COLUMNS`: time and number of one call of the measured function, and the mean of one launch."""
    count = f"{kernel.count / calls:g}" if kernel.count % calls == 0 else f"{kernel.count / calls:.1f}"
    mean = format_seconds(kernel.total_s / kernel.count)
    return format_seconds(kernel.total_s / calls), format_share(kernel.share), count, mean


_NOISE = re.compile(
    r"^void |at::native::|\(anonymous namespace\)::|<unnamed>::|at::detail::|std::|cutlass::|at::cuda::"
)


def short_name(name: str, at_most: int) -> str:
    """A kernel's name without what all of them have: return type, name spaces, argument list."""
    short = _NOISE.sub("", name)
    short = short.split("(")[0] if "(" in short and not short.startswith(("Memcpy", "Memset")) else short
    short = printable(short.strip() or name)
    return short if len(short) <= at_most else short[: at_most - 1] + "…"


def parts_text(profile: Profile, at_most: int = MOST_PARTS) -> str:
    """`blocks.*.attention 3.00 ms forward, 4.00 ms backward`, of a call, each without the parts inside it."""
    told = [
        f"{part.part or '(in no part)'} {format_seconds(part.forward_s / profile.calls)} forward"
        + (f" {format_seconds(part.backward_s / profile.calls)} backward" if part.backward_s else "")
        for part in profile.parts[:at_most]
    ]
    more = len(profile.parts) - at_most
    return ", ".join(told) + (f", and {more} more in the run file" if more > 0 else "")


def attention_text(found: AttentionTime, calls: int) -> str:
    """`forward: softmax 1.98 ms (75.5 MFLOP), scores and values 10.7 ms (4.8 GFLOP), …`, of a call."""
    pieces = []
    if found.softmax_s or found.products_s:
        pieces.append(f"softmax {_amount(found.softmax_s, found.softmax_flops, calls)}")
        pieces.append(f"products of scores and values {_amount(found.products_s, found.products_flops, calls)}")
    if found.softmax_s and found.products_s:
        pieces.append(_ratio(found))
    if found.fused_s:
        pieces.append(f"fused {format_seconds(found.fused_s / calls)} (softmax and products cannot be told apart)")
    if found.projections_s:
        pieces.append(f"products with weights {_amount(found.projections_s, found.projections_flops, calls)}")
    pieces.append(f"else {format_seconds(found.other_s / calls)}")
    return f"{found.phase}: {', '.join(pieces)}"


def _amount(seconds: float, flops: int | None, calls: int) -> str:
    return format_seconds(seconds / calls) + (f" ({format_flop_count(flops / calls)})" if flops is not None else "")


def _ratio(found: AttentionTime) -> str:
    """How the softmax compares with the products, as people ask."""
    text = f"1 : {three_digits(found.products_s / found.softmax_s)} in time"
    if found.softmax_flops and found.products_flops:
        text += f" and 1 : {three_digits(found.products_flops / found.softmax_flops)} in FLOPs"
    return text
