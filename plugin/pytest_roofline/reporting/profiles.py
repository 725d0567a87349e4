"""Profiles in words: a few lines a test for the terminal."""

import os
from collections.abc import Sequence

from ..core.profiles import AttentionTime, Profile, Timers
from ..core.units import format_flop_count, format_seconds, format_share, printable, three_digits
from .profile_table import kernel_table

# The terminal shows so many; the run file has all.
MOST_PROFILES = 8
# Above this the profiler changed what it looked at, and idle time is partly its own.
SLOWED = 1.1
TIMERS_NOTE = (
    "  host: the host's clock, from the call until the device is done. device: between two stamps on it. span: in the "
    "trace, from the begin of a call to the end of its last {piece}. busy: of that, with any {piece} at work."
)


def profile_lines(profiles: Sequence[Profile], width: int, colour: bool) -> list[str]:
    """For each the clocks, the classes, the kernels that took most, attention, and what could not be had.

    Of a measurement that was repeated the last one stands, and behind the first eight there is only a path.
    """
    latest = list({(profile.test_id, profile.name): profile for profile in profiles}.values())
    shown, rest = latest[:MOST_PROFILES], latest[MOST_PROFILES:]
    lines: list[str] = []
    for profile in shown:
        lines += _lines(profile, width, colour)
    if rest:
        folders = dict.fromkeys(os.path.dirname(profile.trace) for profile in rest if profile.trace)  # noqa: PTH120
        where = ["the run file", *folders]
        lines.append(printable(f"and {len(rest)} more profile{'s' * (len(rest) > 1)}, in {' and '.join(where)}"))
    timed = [profile for profile in shown if profile.timers is not None]
    if timed:
        piece = "kernel" if any(profile.on_device for profile in timed) else "operator"
        lines.append(TIMERS_NOTE.format(piece=piece).strip())
    return lines


def _lines(profile: Profile, width: int, colour: bool) -> list[str]:
    lines = [
        f"profile of {profile.label} on {profile.device}, {calls_text(profile.calls)}; never judged, in no baseline"
    ]
    if profile.timers is not None:
        lines.append(f"  a call: {timers_text(profile.timers)}")
    slowed = slowed_text(profile.timers) if profile.timers is not None else ""
    lines += [f"  {slowed}"] * bool(slowed)
    if profile.classes:
        lines.append(f"  {classes_text(profile)}")
    lines = [printable(line) for line in lines]
    if profile.kernels:
        lines += ["  " + line for line in kernel_table(profile, width - 2, colour).split("\n")]
    rest = [f"  attention, {attention_text(found, profile.calls)}" for found in profile.attention]
    rest += [f"  not told: {sentence}" for sentence in profile.missing]
    rest += [f"  trace: {profile.trace}"] * bool(profile.trace)
    return lines + [printable(line) for line in rest]


def calls_text(count: int) -> str:
    return f"{count} call{'s' * (count > 1)}"


def timers_text(timers: Timers) -> str:
    """`host 12.1 ms, device 12.0 ms; profiled: host 13.0 ms, span 12.8 ms, busy 11.0 ms`."""
    plain = [f"host {format_seconds(timers.host_s)}"]
    plain += [f"device {format_seconds(timers.device_s)}"] if timers.device_s is not None else []
    known = {"host": timers.profiled_host_s, "span": timers.span_s, "busy": timers.busy_s}
    profiled = [f"{name} {format_seconds(value)}" for name, value in known.items() if value is not None]
    return ", ".join(plain) + (f"; profiled: {', '.join(profiled)}" if profiled else "")


def slowed_text(timers: Timers) -> str:
    """How much longer the host took under the profiler, where that makes idle more than it is; else empty."""
    if timers.profiled_host_s is None or timers.profiled_host_s <= SLOWED * timers.host_s:
        return ""
    factor = f"{timers.profiled_host_s / timers.host_s:.2f} times " if timers.host_s else ""
    return (
        f"the profiler slowed the host down: {format_seconds(timers.profiled_host_s)} a call, {factor}the "
        f"{format_seconds(timers.host_s)} without it, and part of idle is that, as part of operators' times on a host"
    )


def classes_text(profile: Profile) -> str:
    """`matrix product 61.2 %, elementwise 18.0 %, idle 8.1 %`, with how overlapping streams are counted."""
    text = ", ".join(f"{found.name} {format_share(found.share)}" for found in profile.classes)
    if not profile.overlap_s:
        return f"{text} of the span"
    over = format_share(profile.overlap_s / profile.span_s if profile.span_s else 0.0)
    return (
        f"{text} of the span; {profile.streams} streams overlap, so that classes hold {over} more than the span, "
        "and idle is where none was at work"
    )


def attention_text(found: AttentionTime, calls: int) -> str:
    """`forward: softmax 1.98 ms (75.5 MFLOP), scores and values 10.7 ms (4.8 GFLOP), …`, of a call."""
    pieces = []
    if found.softmax_s or found.products_s:
        pieces.append(f"softmax {_amount(found.softmax_s, found.softmax_flops, calls)}")
        pieces.append(f"products of scores and values {_amount(found.products_s, found.products_flops, calls)}")
        ratio = _ratio(found)
        pieces += [ratio] if ratio else []
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
    if not (found.softmax_s and found.products_s):
        return ""
    text = f"1 : {three_digits(found.products_s / found.softmax_s)} in time"
    if found.softmax_flops and found.products_flops:
        text += f" and 1 : {three_digits(found.products_flops / found.softmax_flops)} in FLOPs"
    return text
