"""Tables of the page before they are markup: cells with the value that they are sorted by, and headings."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..baselines.run_files import run_names
from ..baselines.runs import Run
from ..core.rows import Row, badness
from ..core.units import format_memory
from ..kernel_gate.text import changes_text, figures_text
from ..observe.text import circumstances
from .tables import kernel_cells
from .words import cells, difference_text

# So many rows stand in the page at once; more are drawn when somebody asks, so that ten thousand open quickly.
SHOWN_ROWS = 200
# What a column means where its heading does not tell.
_MEANS = {
    "time": "seconds per call",
    "roof": "share of the roofline; * where that was measured on this machine",
    "limit": "the rate or time that a result was held against in place of a baseline",
    "baseline": "seconds per call that it was compared with",
    "peak": "the most memory that one call held, and by how much more that is than the baseline's",
    "held": "what stays allocated with the result of a call",
    "compile": "what the first call took beyond a warm one",
    "diff %": "of the time: + is slower",
    "99 %": "interval of the difference",
    "n": "new processes : those behind the baseline",
    "registers": "of a thread",
    "shared": "memory of a block",
    "matrix": "instructions that multiply matrices",
    "changed": "against the baseline, exactly",
}
_TEXTS = ("test", "run", "verdict", "kernel", "target", "changed")
_UNITS: dict[str, Callable[[float], str]] = {
    "bytes": format_memory,
    "mhz": lambda value: f"{value:g} MHz",
    "w": lambda value: f"{value:g} W",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, what it is sorted by where that is not the text, and a sentence to fold out below it.

    Args:
        text: as people read it; shown as text, whatever is in it.
        value: a number to sort by, in SI units; None sorts by the text.
        why: a sentence behind the text; empty where there is none.
        word: the verdict that the text is, for its shape and colour; empty where it is none.
        full: what the text is short for, shown when pointed at and found by the filter; empty where it is for nothing.
    """

    text: str
    value: float | None = None
    why: str = ""
    word: str = ""
    full: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, whether its cells are numbers, and what it means where the heading alone does not tell."""

    name: str
    number: bool = True
    means: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a caption, which names it for who cannot see where it stands."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def first(self) -> Sequence[Sequence[Cell]]:
        """The rows that stand in the page from the start."""
        return self.rows[:SHOWN_ROWS]

    @property
    def rest(self) -> Sequence[Sequence[Cell]]:
        """Those that are drawn when somebody asks; without JavaScript the page has them at once."""
        return self.rows[SHOWN_ROWS:]


def _table(caption: str, rows: Sequence[dict[str, Cell]]) -> Table:
    """A table of rows by heading, without the columns in which nothing stands."""
    filled = {name for row in rows for name, cell in row.items() if cell.text}
    names = [name for name in (rows[0] if rows else ()) if name in filled]
    columns = [Column(name, name not in _TEXTS, _MEANS.get(name, "")) for name in names]
    return Table(caption, columns, [[row[name] for name in names] for row in rows])


def results_table(rows: Sequence[Row], several: bool) -> Table:
    """All rows in the order given; with a column for the run where there are several."""
    return _table("All results, worst first", [_result(row, several) for row in rows])


def _result(row: Row, several: bool) -> dict[str, Cell]:
    return {
        "test": Cell(row.label, full=row.test),
        "run": Cell((row.run or "") * several),
        **{name: Cell(text, _finite(value)) for name, (text, value) in cells(row).items()},
        "verdict": Cell(row.verdict, badness(row.verdict)[0], why=reason(row), word=row.verdict),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def reason(row: Row) -> str:
    """Why, in a sentence; of a kernel what it asks for, and what of that changed; of lost memory how it ran out."""
    told = [row.reason]
    if row.resources is not None:
        told += [difference_text(row), f"{row.resources.target}: {figures_text(row.resources)}"]
    elif row.lost is not None:
        told += [circumstances(row.lost), row.lost.message]
    return "; ".join(dict.fromkeys(filter(None, told)))


def kernels_table(rows: Iterable[Row]) -> Table | None:
    """Registers, shared memory, spills and matrix instructions, with what of all figures changed."""
    found = [_kernel(row) for row in rows if row.resources is not None]
    return _table("Compiled kernels", found) if found else None


def _kernel(row: Row) -> dict[str, Cell]:
    assert row.resources is not None
    asked = zip(("registers", "shared", "spills", "matrix"), kernel_cells(row.resources.figures), strict=True)
    return {
        "kernel": Cell(row.label.removesuffix(f"@{row.resources.target}")),
        "target": Cell(row.resources.target),
        **{name: Cell(text) for name, text in asked},
        "changed": Cell(changes_text(row.exact.changes if row.exact is not None else (), None)),
        "verdict": Cell(row.verdict, word=row.verdict),
    }


def machine_table(runs: Sequence[Run]) -> Table:
    """The facts of each run, a column for each; where they differ, the row says so in a word."""
    facts, called = [_facts(run) for run in runs], run_names(runs)
    columns = ["fact", *(called[run.path] for run in runs), *["between runs"] * (len(runs) > 1)]
    rows = []
    for name in dict.fromkeys(name for one in facts for name in one):
        values = [one.get(name, "") for one in facts]
        rows.append([name, *values, *["differs" * (len(Counter(values)) > 1)] * (len(runs) > 1)])
    return Table(
        "Environment", [Column(name, number=False) for name in columns], [list(map(Cell, row)) for row in rows]
    )


def _facts(run: Run) -> dict[str, str]:
    header, footer, environment = run.header, run.footer, run.header.environment
    ended = "was cut before its end" if footer is None else f"{footer.finished}, exit status {footer.exit_status}"
    facts = {"run": header.run_id, "started": header.started, "finished": ended, "command": " ".join(header.command)}
    facts["tool"] = header.tool
    for what, known in (("device", asdict(environment.device)), ("host", asdict(environment.host))):
        for name, value in known.items():
            if value is not None:
                words, text = _fact(name, value)
                facts[f"{what} {words}"] = text
    return facts | {f"software {name}": version for name, version in environment.software.items()}


def _fact(name: str, value: Any) -> tuple[str, str]:
    """A fact's name in words and its value with its unit, which is the end of its name."""
    words, _, unit = name.rpartition("_")
    form = _UNITS.get(unit)
    return (words.replace("_", " "), form(value)) if words and form else (name.replace("_", " "), f"{value}")
