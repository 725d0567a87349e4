"""The report as one HTML page that opens without a network.

Verdicts come first, then plots, tables and the machine.
"""

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..baselines.run_files import run_names
from ..baselines.run_rows import rows_of
from ..baselines.runs import Run
from ..core.facts import Code, DeviceFacts, HostFacts
from ..core.groups import group_by
from ..core.libraries import folders, versions
from ..core.rows import Row, badness, worst_first
from ..core.units import format_memory, listed, printable, slug
from .conditions import curve_line
from .kernels import changes_text
from .page_text import (
    MEANINGS,
    changed_lines,
    chips,
    circumstance_lines,
    drill_line,
    family,
    inside_of,
    left_out_reds,
    published_of,
    reason,
    reds,
    run_lines,
    sentence_family,
    shape,
)
from .plots import plots_of
from .sentences import sentences
from .tables import KERNEL_COLUMNS, kernel_cells
from .words import cells

# The library that draws the plots, the largest part of a page: `plotly.js-basic-dist-min` 4.1.1 of npm (scatter, bar,
# pie), unchanged. To renew it, `npm pack plotly.js-basic-dist-min@VERSION`; take its .js and its LICENSE, and write the
# version here.
PLOTLY = "plotly-basic.min.js"
# Rows that the page shows from the start. A click shows more, so that a page of ten thousand rows opens quickly.
SHOWN_ROWS = 200
# The meanings of columns whose headings do not tell them.
_MEANS = {
    "time": "seconds per call",
    "roof": "share of the roofline; * if the roofline was measured on this machine",
    "limit": "the rate or time that a result was compared with instead of a baseline",
    "baseline": "seconds per call of the baseline",
    "peak": "peak memory of one call, and its change from the baseline",
    "held": "memory that stays allocated with the result of a call",
    "compile": "extra time of the first call over a warm call",
    "diff %": "change of the time; + is slower",
    "99 %": "interval of the difference",
    "n": "processes of this run : processes of the baseline",
    "value": "a figure other than a time, with its metric",
    "registers": "registers of a thread",
    "shared": "shared memory of a block",
    "matrix": "instructions that multiply matrices",
    "changed": "exact change from the baseline",
}
# The first columns of numbers in the table of results.
_FIRST = ("time", "rate", "roof", "diff %", "99 %", "baseline")
# Columns of text; all other columns hold numbers.
_TEXTS = ("test", "run", "verdict", "kernel", "target", "changed")
# How to format a fact, by the unit at the end of its name.
_UNITS: dict[str, Callable[[float], str]] = {
    "bytes": format_memory,
    "mhz": lambda value: f"{value:g} MHz",
    "w": lambda value: f"{value:g} W",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    Args:
        text: shown in the cell.
        value: the number that the column is sorted by.
        why: a sentence that a click folds out.
        word: the verdict, of a cell that shows one.
        full: the whole of an abbreviated text, shown beside the pointer.
    """

    text: str
    value: float | None = None
    why: str = ""
    word: str = ""
    full: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, whether its cells are numbers, and its meaning where the heading alone does not tell it."""

    name: str
    is_number: bool = True
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a caption, which names it for readers who cannot see its place."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


def _table(caption: str, rows: Sequence[dict[str, Cell]]) -> Table:
    """Return a table of rows by heading, without empty columns."""
    filled = {name for row in rows for name, cell in row.items() if cell.text}
    # All rows have the same headings, in the order of the columns.
    names = [name for name in (rows[0] if rows else ()) if name in filled]
    columns = [Column(name, name not in _TEXTS, _MEANS.get(name, "")) for name in names]
    return Table(caption, columns, [[row[name] for name in names] for row in rows])


def results_table(rows: Sequence[Row], has_several_runs: bool) -> Table:
    """Return the table of all results, in the order of the rows.

    Where there are several runs it has a column for the run.
    """
    return _table("All results, worst first", [_result(row, has_several_runs) for row in rows])


def _result(row: Row, has_several_runs: bool) -> dict[str, Cell]:
    """Return the cells of a result by heading.

    A heading keeps the place of its first mention, so the columns of `_FIRST` come before others.
    """
    columns = {name: Cell(text, _finite(value)) for name, (text, value) in cells(row).items()}
    # The column is sorted by the rank of the verdict, the worst first.
    rank, _ = badness(row.verdict)
    return {
        "test": Cell(row.label, full=row.test),
        "verdict": Cell(row.verdict, rank, why=reason(row), word=row.verdict),
        # `_table` leaves out a column whose cells are all empty.
        "run": Cell(row.run or "" if has_several_runs else ""),
        **{name: columns[name] for name in _FIRST},
        **columns,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def kernels_table(rows: Iterable[Row]) -> Table | None:
    """Return the table of compiled kernels, or None without any.

    It has registers, shared memory, spills and matrix instructions, and the changes of any figure.
    """
    kernels = [_kernel(row) for row in rows if row.resources is not None]
    return _table("Compiled kernels", kernels) if kernels else None


def _kernel(row: Row) -> dict[str, Cell]:
    """Return the cells of a compiled kernel by heading."""
    assert row.resources is not None
    figures = kernel_cells(row.resources.figures)
    changes = row.exact.changes if row.exact is not None else ()
    return {
        "kernel": Cell(row.label.removesuffix(f"@{row.resources.target}")),
        "verdict": Cell(row.verdict, word=row.verdict),
        "target": Cell(row.resources.target),
        **dict(zip(KERNEL_COLUMNS, map(Cell, figures), strict=True)),
        "changed": Cell(changes_text(changes, at_most=None)),
    }


def machine_table(runs: Sequence[Run]) -> Table:
    """Return the facts of each run, a column for each.

    With several runs a last column marks the facts that differ.
    """
    facts, names = [_facts(run) for run in runs], run_names(runs)
    has_several_runs = len(runs) > 1
    columns = ["fact", *(names[run.path] for run in runs)]
    columns += ["between runs"] if has_several_runs else []
    rows = []
    # Every name that a run has, once, in the order of its first mention.
    for name in dict.fromkeys(chain(*facts)):
        values = [facts_of_run.get(name, "") for facts_of_run in facts]
        mark = "differs" if len(set(values)) > 1 else ""
        rows.append([name, *values, *([mark] if has_several_runs else [])])
    return Table(
        "Environment",
        [Column(name, is_number=False) for name in columns],
        [list(map(Cell, row)) for row in rows],
    )


def _facts(run: Run) -> dict[str, str]:
    """Return the facts of a run by name.

    They are its start, end and command, its device, host, software and code, and its environment.
    """
    environment = run.environment
    facts = _run_facts(run)
    facts |= _measured_facts("device", environment.device)
    facts |= _measured_facts("host", environment.host)
    libraries = versions(environment.libraries) | folders(environment.libraries)
    software = environment.software | libraries
    facts |= {f"software {name}": version for name, version in software.items()}
    for code in environment.code:
        facts |= _code_facts(code)
    facts |= {f"${name}": value for name, value in environment.variables.items()}
    facts |= {f"{name} cache": state for name, state in environment.caches.items()}
    return facts | {f"package {name}": version for name, version in environment.packages.items()}


def _run_facts(run: Run) -> dict[str, str]:
    """Return the start, the end and the command of a run by name."""
    header, footer = run.header, run.footer
    finished = (
        "was cut before its end"
        if footer is None
        else f"{footer.finished}, exit status {footer.exit_status}"
    )
    return {
        "run": header.run_id,
        "started": header.started,
        "finished": finished,
        "command": " ".join(header.command),
        "tool": header.tool,
    }


def _code_facts(code: Code) -> dict[str, str]:
    """Return the known facts of a repository by name.

    The names tell the repository, unless it is that of the run itself, whose name is `.`.
    """
    repository = "" if code.name == "." else f" of {code.name}"
    values = {
        "code": str(code),
        "branch": code.branch,
        "merge base": code.merge_base,
        "pull request": code.pull_request,
    }
    return {f"{name}{repository}": value for name, value in values.items() if value}


def _measured_facts(owner: str, record: DeviceFacts | HostFacts) -> dict[str, str]:
    """Return the known facts of a device or host.

    A name that ends in a unit, as `memory_bytes`, loses it; the value is shown with the unit.
    """
    facts = {}
    for name, value in asdict(record).items():
        stem, _, unit = name.rpartition("_")
        # A name without `_` has no stem, so its last word is no unit.
        format_value = _UNITS.get(unit) if stem else None
        if value is None:
            continue
        if format_value is not None:
            facts[f"{owner} {stem.replace('_', ' ')}"] = format_value(value)
        else:
            facts[f"{owner} {name.replace('_', ' ')}"] = f"{value}"
    return facts


# HTML escapes nothing inside a script element. JSON escapes replace the characters that could end the element or
# begin a comment.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(runs: Sequence[Run], rows: Sequence[Row] | None = None) -> str:
    """Return the whole page of one run or several.

    It is text to write in UTF-8.

    Args:
        runs: read or just ended.
        rows: the result of `rows_of(runs)`, from a caller that has it already.
    """
    worst = worst_first(rows_of(runs) if rows is None else rows)
    content = _content(runs, worst)
    has_plots = any(red.plot for red in content["reds"]) or content["sections"]
    scripts = [asset("page.js"), *([asset(PLOTLY)] if has_plots else [])]
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            policy=_policy(scripts),
            style=Markup(asset("page.css")),
            scripts=[Markup(script) for script in scripts],
            **content,
        )
    )


def _content(runs: Sequence[Run], rows: Sequence[Row]) -> dict[str, Any]:
    """Return everything that the template shows, by name."""
    products = dict.fromkeys(printable(run.header.environment.device.product) for run in runs)
    return {
        "title": f"Roofline report: {listed(list(products), 3)}" if products else "Roofline report",
        "sentences": [(line, sentence_family(line)) for line in sentences(runs, rows)],
        "drill": drill_line(runs),
        "runs": run_lines(runs, rows),
        "verdict_counts": chips(rows),
        "reds": reds(rows),
        "more_red": left_out_reds(rows),
        "results": results_table(rows, len(runs) > 1),
        "sweeps": [
            curve_line(curve)
            for run in runs
            if run.footer is not None
            for curve in run.footer.curves
        ],
        "published": published_of(rows),
        "sections": group_by(plots_of(rows, runs), lambda plot: plot.section),
        # Profiles, memory and first calls: what happened inside the calls.
        "inside": inside_of(runs),
        "kernels": kernels_table(rows),
        "changed": changed_lines(rows),
        "circumstances": circumstance_lines(rows),
        "machine": machine_table(runs),
        "words": MEANINGS,
        "tool": listed(list(dict.fromkeys(run.header.tool for run in runs)), 3),
    }


@cache
def _templates() -> Environment:
    """Return the templates of the page.

    They escape every text for HTML, and fail on an undefined name.
    """
    templates = Environment(
        loader=PackageLoader(__package__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable_text,
    )
    # `_printable_text` would write the end of a line as an escape; markup passes unchanged.
    templates.globals |= {"newline": Markup("\n"), "SHOWN_ROWS": SHOWN_ROWS}
    templates.filters |= {"shape": shape, "family": family, "slug": slug, "for_script": for_script}
    return templates


def _printable_text(value: Any) -> Any:
    """Return text for a page, without characters that deceive.

    Invisible characters, and those that change the reading direction, are escaped. Markup and
    values that are no text come back unchanged.
    """
    is_plain_text = isinstance(value, str) and not isinstance(value, Markup)
    # `printable` is slow, and changes only texts with unprintable characters or `##`.
    needs_escapes = is_plain_text and not (value.isprintable() and "##" not in value)
    return printable(value) if needs_escapes else value


@cache
def asset(name: str) -> str:
    """Return the text of a style sheet or script of this package."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy of a page.

    It lets these scripts run, each by its hash, and forbids to load anything else.
    """
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def for_script(value: Any) -> Markup:
    """Return a value as JSON for a script element.

    No text in it can end the element.

    Raises:
        ValueError: the value holds a number that JSON does not have.
    """
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT))
