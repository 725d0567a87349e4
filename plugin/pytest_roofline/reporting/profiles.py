"""Profiles in words: a few lines a test for the terminal, and a page with everything beside the trace."""

import re
from collections.abc import Iterable, Sequence

from ..core.profiles import AttentionTime, KernelTime, Profile, Timers
from ..core.units import format_flop_count, format_seconds, format_share, printable, three_digits
from .layout import new_table, render

# The terminal shows so many kernels; the page has more of them, and the trace all.
MOST_KERNELS = 8
# What stands behind a name, with the width from which on there is room for it, in columns of text.
COLUMNS = {
    "time": 0, "share": 0, "calls": 0, "mean": 100, "median": 0, "min": 0, "max": 0, "dev": 120, "CPU": 120,
    "grid": 150, "block": 150,
}  # fmt: skip
# Of each column with what keeps it apart; grids and blocks are as wide as three.
COLUMN_WIDTH = 8
SHORTEST_NAME, LONGEST_NAME = 24, 60
TIMERS_NOTE = (
    "  host: the host's clock, from the call until the device is done. device: between two stamps on it. span: in the "
    "trace, from the begin of a call to the end of its last {piece}. busy: of that, with any {piece} at work."
)


def profile_lines(profiles: Sequence[Profile], width: int, colour: bool) -> list[str]:
    """For each the clocks, the classes, the kernels that took most, attention, and what could not be had."""
    lines: list[str] = []
    for profile in profiles:
        lines += _lines(profile, width, colour)
    shown = [profile for profile in profiles if profile.timers is not None]
    if shown:
        piece = "kernel" if any(profile.on_device for profile in shown) else "operator"
        lines.append(TIMERS_NOTE.format(piece=piece).strip())
    return lines


def _lines(profile: Profile, width: int, colour: bool) -> list[str]:
    lines = [f"profile of {profile.label} on {profile.device}, {_calls(profile.calls)}; never judged, in no baseline"]
    if profile.timers is not None:
        lines.append(f"  a call: {timers_text(profile.timers)}")
    if profile.classes:
        lines.append(f"  {classes_text(profile)}")
    lines = [printable(line) for line in lines]
    if profile.kernels:
        lines += ["  " + line for line in kernel_table(profile, width - 2, colour).split("\n")]
    rest = [f"  attention, {attention_text(found, profile.calls)}" for found in profile.attention]
    rest += [f"  not told: {sentence}" for sentence in profile.missing]
    rest += [f"  trace: {profile.trace}"] * bool(profile.trace)
    return lines + [printable(line) for line in rest]


def _calls(count: int) -> str:
    return f"{count} call{'s' * (count > 1)}"


def timers_text(timers: Timers) -> str:
    """`host 12.1 ms, device 12.0 ms; profiled: host 13.0 ms, span 12.8 ms, busy 11.0 ms`."""
    plain = [f"host {format_seconds(timers.host_s)}"]
    plain += [f"device {format_seconds(timers.device_s)}"] if timers.device_s is not None else []
    known = {"host": timers.profiled_host_s, "span": timers.span_s, "busy": timers.busy_s}
    profiled = [f"{name} {format_seconds(value)}" for name, value in known.items() if value is not None]
    return ", ".join(plain) + (f"; profiled: {', '.join(profiled)}" if profiled else "")


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


def kernel_table(profile: Profile, width: int, colour: bool) -> str:
    """The kernels that took most, of a call."""
    rows = [_cells(kernel, profile.calls) for kernel in profile.kernels[:MOST_KERNELS]]
    # A column with nothing in it only takes room from the names.
    names = [name for name, least in COLUMNS.items() if width >= least and any(cells[name] for cells in rows)]
    room = width - COLUMN_WIDTH * sum(3 if name in ("grid", "block") else 1 for name in names)
    heading = "kernel" if profile.on_device else "operator"
    table = new_table((heading, "left"), *((name, "right") for name in names))
    for kernel, cells in zip(profile.kernels, rows, strict=False):
        name = short_name(kernel.name, max(SHORTEST_NAME, min(room, LONGEST_NAME)))
        table.add_row(name, *(cells[column] for column in names))
    return render(table, width, colour)


def _cells(kernel: KernelTime, calls: int) -> dict[str, str]:
    """The columns of a kernel; time, calls and CPU time are those of one call of the measured function."""
    return {
        "time": format_seconds(kernel.total_s / calls),
        "share": format_share(kernel.share),
        "calls": f"{kernel.count / calls:g}" if kernel.count % calls == 0 else f"{kernel.count / calls:.1f}",
        "mean": format_seconds(kernel.mean_s),
        "median": format_seconds(kernel.median_s),
        "min": format_seconds(kernel.min_s),
        "max": format_seconds(kernel.max_s),
        "dev": format_seconds(kernel.deviation_s),
        "CPU": "" if kernel.cpu_s is None else format_seconds(kernel.cpu_s / calls),
        "grid": _extent(kernel.grid, kernel.grids),
        "block": _extent(kernel.block, kernel.blocks),
    }


def _extent(extent: tuple[int, ...], different: int) -> str:
    """`20×40×1`, as most launches had it."""
    return "×".join(map(str, extent)) + (", several" if different > 1 else "")


_NOISE = re.compile(
    r"^void |at::native::|\(anonymous namespace\)::|<unnamed>::|at::detail::|std::|cutlass::|at::cuda::"
)


def short_name(name: str, at_most: int) -> str:
    """A kernel's name without what all of them have: return type, name spaces, argument list."""
    short = _NOISE.sub("", name)
    short = short.split("(")[0] if "(" in short and not short.startswith(("Memcpy", "Memset")) else short
    short = printable(short.strip() or name)
    return short if len(short) <= at_most else short[: at_most - 1] + "…"


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


def markdown(profile: Profile) -> str:
    """Everything that a profile says, as a page."""
    what = "kernels, copies and fills of the device" if profile.on_device else "operators on the host"
    lines = [f"# Profile of {_text(profile.label)}", ""]
    lines += [f"{_calls(profile.calls).capitalize()} on {profile.device}, {what}. Times are of one call. A profiler's "
              "times are never judged and enter no baseline.", ""]  # fmt: skip
    if profile.timers is not None:
        lines += ["## The same call by three clocks", "", *_timer_rows(profile.timers), ""]
    if profile.classes:
        lines += ["## Shares of the span", "", *_class_rows(profile), ""]
    if profile.kernels:
        lines += [f"## {'Kernels' if profile.on_device else 'Operators'}", "", *_kernel_rows(profile), ""]
    if profile.attention:
        lines += ["## Inside attention", "", *_attention_rows(profile), ""]
    if profile.parts:
        lines += ["## Parts of the model", "", *_part_rows(profile), ""]
    if profile.missing:
        lines += ["## Not told", "", *(f"* {_text(sentence)}" for sentence in profile.missing), ""]
    return "\n".join(lines)


def _text(value: str) -> str:
    """Text that stays one cell of one row."""
    return printable(value).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)]


def _timer_rows(timers: Timers) -> list[str]:
    rows = (
        ("host, unprofiled", timers.host_s, "the host's clock, from the call until the device is done; median"),
        ("device, unprofiled", timers.device_s, "between two stamps of the device around the call; median"),
        ("host, profiled", timers.profiled_host_s, "as the first, under the profiler; median"),
        ("span, profiled", timers.span_s, "in the trace: from the begin of a call to the end of its last piece; mean"),
        ("busy, profiled", timers.busy_s, "in the trace: of the span, with at least one piece at work; mean"),
    )
    shown = [(name, format_seconds(value), meaning) for name, value, meaning in rows if value is not None]
    return _table(("clock", "a call", "meaning"), shown)


def _class_rows(profile: Profile) -> list[str]:
    rows = [
        (
            found.name,
            format_seconds(found.total_s / profile.calls),
            format_share(found.share),
            f"{found.count / profile.calls:.4g}" if found.count else "",
            "" if found.flops is None else format_flop_count(found.flops / profile.calls),
            ", ".join(_text(short_name(name, LONGEST_NAME)) for name in found.largest),
        )
        for found in profile.classes
    ]
    lines = _table(("class", "time", "share", "calls", "work", "mostly"), rows)
    over = sum(found.share for found in profile.classes) - 1
    note = "Shares are of the span, and add up to it."
    if profile.overlap_s:
        note = (
            f"{profile.streams} streams overlap: busy and idle are the union of all, each class has its full time, and "
            f"together they hold {format_share(over)} more than the span."
        )
    return [*lines, "", note]


def _kernel_rows(profile: Profile) -> list[str]:
    rows = []
    for kernel in profile.kernels:
        cells = _cells(kernel, profile.calls)
        rows.append((_text(short_name(kernel.name, 120)), kernel.kind, *cells.values()))
    more = profile.distinct - len(profile.kernels)
    return [*_table(("name", "class", *COLUMNS), rows), *(["", f"And {more} more."] * (more > 0))]


def _attention_rows(profile: Profile) -> list[str]:
    rows = []
    for found in profile.attention:
        pieces = (
            ("softmax", found.softmax_s, found.softmax_flops),
            ("products of scores and values", found.products_s, found.products_flops),
            ("products with weights", found.projections_s, found.projections_flops),
            ("fused", found.fused_s, None),
            ("else", found.other_s, None),
        )
        for name, seconds, flops in pieces:
            if not seconds:
                continue
            work = "" if flops is None else format_flop_count(flops / profile.calls)
            rows.append((found.phase, name, format_seconds(seconds / profile.calls), work))
    note = (
        "FLOPs by convention: 2·b·m·n·k of a product of [b, m, k] with [b, k, n]; of a softmax 5 a score forward "
        "(maximum, subtraction, exponential, sum, division), 4 backward (product, sum, subtraction, product)."
    )
    return [*_table(("pass", "what", "time", "work"), rows), "", note]


def _part_rows(profile: Profile) -> list[str]:
    rows = [
        (
            _text(part.part) or "(in no part)",
            format_seconds(part.forward_s / profile.calls),
            format_seconds(part.backward_s / profile.calls),
        )
        for part in profile.parts
    ]
    note = "Without the parts inside it; a star stands for the numbers of layers, which are added up."
    return [*_table(("part", "forward", "backward"), rows), "", note]
