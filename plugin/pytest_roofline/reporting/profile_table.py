"""The table of the kernels (on a CPU: operators) of a profile, in as many columns as there is room for."""

import re
from collections.abc import Mapping, Sequence

from ..core.profiles import KernelTime, Profile
from ..core.units import format_seconds, format_share, printable
from .layout import new_table, render

# The terminal shows so many kernels; the page has more of them, and the trace all.
MOST_KERNELS = 8
# What stands behind a name; where there is no room, the last of the second list goes first.
COLUMNS = ("time", "share", "calls", "mean", "median", "min", "max", "dev", "CPU", "grid", "block")
BY_WORTH = ("time", "share", "calls", "median", "max", "min", "mean", "dev", "CPU", "grid", "block")
# What keeps columns apart.
GAP = 2
SHORTEST_NAME, LONGEST_NAME = 24, 60


def kernel_table(profile: Profile, width: int, colour: bool) -> str:
    """The kernels that took most, of a call."""
    rows = [cells_of(kernel, profile.calls) for kernel in profile.kernels[:MOST_KERNELS]]
    names, room = _fitting(rows, width)
    heading = "kernel" if profile.on_device else "operator"
    table = new_table((heading, "left"), *((name, "right") for name in names))
    for kernel, cells in zip(profile.kernels, rows, strict=False):
        name = short_name(kernel.name, max(len(heading), min(room, LONGEST_NAME)))
        table.add_row(name, *(cells[column] for column in names))
    return render(table, width, colour)


def _fitting(rows: Sequence[Mapping[str, str]], width: int) -> tuple[list[str], int]:
    """The columns that there is room for without cutting a number, in order, and what is left for names."""
    chosen: list[str] = []
    room = width
    for name in BY_WORTH:
        wide = max((len(cells[name]) for cells in rows), default=0)
        # A column with nothing in it only takes room from the names.
        if wide and room - GAP - max(wide, len(name)) >= SHORTEST_NAME:
            chosen.append(name)
            room -= GAP + max(wide, len(name))
    return [name for name in COLUMNS if name in chosen], room


def cells_of(kernel: KernelTime, calls: int) -> dict[str, str]:
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
