"""A profile as a page: every table that it has, beside the trace."""

from collections.abc import Iterable, Sequence

from ..core.profiles import Profile, Timers
from ..core.units import format_flop_count, format_seconds, format_share, printable
from .profile_table import COLUMNS, LONGEST_NAME, cells_of, short_name
from .profiles import calls_text, slowed_text


def markdown(profile: Profile) -> str:
    """Everything that a profile says, as a page."""
    what = "kernels, copies and fills of the device" if profile.on_device else "operators on the host"
    lines = [f"# Profile of {_text(profile.label)}", ""]
    calls = calls_text(profile.calls).capitalize()
    lines += [f"{calls} on {profile.device}, {what}. Times are of one call. A profiler's times are never judged and "
              "enter no baseline.", ""]  # fmt: skip
    if profile.timers is not None:
        lines += ["## The same call by three clocks", "", *_timer_rows(profile.timers), ""]
        slowed = slowed_text(profile.timers)
        lines += [f"{slowed[0].upper()}{slowed[1:]}.", ""] if slowed else []
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
        ("span, profiled", timers.span_s, "in the trace: from the begin of a call to the end of its last; mean"),
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
        cells = cells_of(kernel, profile.calls)
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
