"""How tables are laid out: plain where the output is no terminal, nothing in them taken for markup."""

import io

from rich import box
from rich.console import Console
from rich.table import Table


def new_table(*columns: tuple[str, str]) -> Table:
    """An empty table of columns, each a heading and `left` or `right`."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name, justify in columns:
        # Numbers stay whole; only the test's name may fold, so nothing is lost at 80 columns.
        first = name in ("test", "entry")
        table.add_column(name, justify=justify, no_wrap=not first, overflow="fold")  # type: ignore[arg-type]
    return table


def render(table: Table, width: int, colour: bool) -> str:
    """A table as text of at most `width` columns; no line ends in spaces."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None, highlight=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
    )  # fmt: skip
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))
