"""The report as one HTML page that opens without a network: verdicts first, then plots, tables and the machine."""

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
from ..core.facts import DeviceFacts, HostFacts
from ..core.groups import group_by
from ..core.libraries import folders, versions
from ..core.rows import Row, badness, worst_first
from ..core.units import format_memory, listed, printable, slug
from .kernels import changes_text
from .messages import curve_line
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

# What draws, the largest part of a page: `plotly.js-basic-dist-min` 4.1.1 of npm (scatter, bar, pie), as it came. To
# renew it, `npm pack plotly.js-basic-dist-min@VERSION`; take its .js and its LICENSE, and say the version here.
PLOTLY = "plotly-basic.min.js"
# So many rows stand in the page at once; more are drawn when somebody asks, so that ten thousand open quickly.
SHOWN_ROWS = 200
# What a column means where its heading does not tell.
_MEANS = {
    "time": "seconds per call",
    "roof": "share of the roofline; * if the roofline was measured on this machine",
    "limit": "the rate or time that a result was compared with instead of a baseline",
    "baseline": "seconds per call of the baseline",
    "peak": "peak memory of one call, and its change from the baseline",
    "held": "memory that stays allocated with the result of a call",
    "compile": "extra time of the first call over a warm one",
    "diff %": "change of the time; + is slower",
    "99 %": "interval of the difference",
    "n": "processes of this run : processes of the baseline",
    "value": "a figure other than a time, with its metric",
    "registers": "of a thread",
    "shared": "memory of a block",
    "matrix": "instructions that multiply matrices",
    "changed": "exact change from the baseline",
}
# What stands in front of all other columns of the results.
_FIRST = ("time", "rate", "roof", "diff %", "99 %", "baseline")
_TEXTS = ("test", "run", "verdict", "kernel", "target", "changed")
_UNITS: dict[str, Callable[[float], str]] = {
    "bytes": format_memory,
    "mhz": lambda value: f"{value:g} MHz",
    "w": lambda value: f"{value:g} W",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, the number it is sorted by, a sentence to fold out, its verdict, and what it is short for."""

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
        """Return the rows that stand in the page from the start."""
        return self.rows[:SHOWN_ROWS]

    @property
    def rest(self) -> Sequence[Sequence[Cell]]:
        """Return the rows that are drawn when somebody asks.

        Without JavaScript the page has them at once.
        """
        return self.rows[SHOWN_ROWS:]


def _table(caption: str, rows: Sequence[dict[str, Cell]]) -> Table:
    """Return a table of rows by heading, without empty columns."""
    filled = {name for row in rows for name, cell in row.items() if cell.text}
    names = [name for name in (rows[0] if rows else ()) if name in filled]
    columns = [Column(name, name not in _TEXTS, _MEANS.get(name, "")) for name in names]
    return Table(caption, columns, [[row[name] for name in names] for row in rows])


def results_table(rows: Sequence[Row], several: bool) -> Table:
    """Return all rows in the order given.

    Where there are several runs it has a column for the run.
    """
    return _table("All results, worst first", [_result(row, several) for row in rows])


def _result(row: Row, several: bool) -> dict[str, Cell]:
    columns = {name: Cell(text, _finite(value)) for name, (text, value) in cells(row).items()}
    return {
        "test": Cell(row.label, full=row.test),
        "verdict": Cell(row.verdict, badness(row.verdict)[0], why=reason(row), word=row.verdict),
        "run": Cell((row.run or "") * several),
        **{name: columns[name] for name in _FIRST},
        **columns,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def kernels_table(rows: Iterable[Row]) -> Table | None:
    """Return the figures of compiled kernels, or None.

    They are registers, shared memory, spills and matrix instructions, with what of all figures
    changed.
    """
    kernels = [_kernel(row) for row in rows if row.resources is not None]
    return _table("Compiled kernels", kernels) if kernels else None


def _kernel(row: Row) -> dict[str, Cell]:
    assert row.resources is not None
    figures = kernel_cells(row.resources.figures)
    return {
        "kernel": Cell(row.label.removesuffix(f"@{row.resources.target}")),
        "verdict": Cell(row.verdict, word=row.verdict),
        "target": Cell(row.resources.target),
        **dict(zip(KERNEL_COLUMNS, map(Cell, figures), strict=True)),
        "changed": Cell(changes_text(row.exact.changes if row.exact is not None else (), None)),
    }


def machine_table(runs: Sequence[Run]) -> Table:
    """Return the facts of each run, a column for each.

    Where they differ, the row says so in a word.
    """
    facts, names = [_facts(run) for run in runs], run_names(runs)
    several = len(runs) > 1
    columns = ["fact", *(names[run.path] for run in runs), *["between runs"] * several]
    rows = []
    for name in dict.fromkeys(chain(*facts)):
        values = [by_name.get(name, "") for by_name in facts]
        rows.append([name, *values, *["differs" * (len(set(values)) > 1)] * several])
    return Table(
        "Environment",
        [Column(name, number=False) for name in columns],
        [list(map(Cell, row)) for row in rows],
    )


def _facts(run: Run) -> dict[str, str]:
    header, footer, environment = run.header, run.footer, run.environment
    ended = (
        "was cut before its end"
        if footer is None
        else f"{footer.finished}, exit status {footer.exit_status}"
    )
    facts = {
        "run": header.run_id,
        "started": header.started,
        "finished": ended,
        "command": " ".join(header.command),
        "tool": header.tool,
    }
    facts |= _measured_facts("device", environment.device)
    facts |= _measured_facts("host", environment.host)
    libraries = versions(environment.libraries) | folders(environment.libraries)
    software = environment.software | libraries
    facts |= {f"software {name}": version for name, version in software.items()}
    for code in environment.code:
        repository = "" if code.name == "." else f" of {code.name}"
        values = {
            "code": str(code),
            "branch": code.branch,
            "merge base": code.merge_base,
            "pull request": code.pull_request,
        }
        facts |= {f"{name}{repository}": value for name, value in values.items() if value}
    facts |= {f"${name}": value for name, value in environment.variables.items()}
    facts |= {f"{name} cache": state for name, state in environment.caches.items()}
    return facts | {f"package {name}": version for name, version in environment.packages.items()}


def _measured_facts(owner: str, record: DeviceFacts | HostFacts) -> dict[str, str]:
    """Return the known facts of a device or host.

    Each has its unit, which is the end of its name.
    """
    facts = {}
    for name, value in asdict(record).items():
        words, _, unit = name.rpartition("_")
        form = _UNITS.get(unit) if words else None
        if value is not None:
            label = (words if form else name).replace("_", " ")
            facts[f"{owner} {label}"] = form(value) if form else f"{value}"
    return facts


# Inside a script element nothing is escaped by HTML, so what could end it or begin a comment is written otherwise.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(runs: Sequence[Run], rows: Sequence[Row] | None = None) -> str:
    """Return the whole page of one run or several.

    It is text to write in UTF-8.

    Args:
        runs: read or just ended.
        rows: what `rows_of` makes of them, where that is known already.
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
        "chips": chips(rows),
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
        "inside": inside_of(runs),
        "kernels": kernels_table(rows),
        "changed": changed_lines(rows),
        "known": circumstance_lines(rows),
        "machine": machine_table(runs),
        "words": MEANINGS,
        "tool": listed(list(dict.fromkeys(run.header.tool for run in runs)), 3),
    }


@cache
def _templates() -> Environment:
    """Return templates that escape all that they show.

    They refuse a name that nobody gave them.
    """
    templates = Environment(
        loader=PackageLoader(__package__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable_text,
    )
    # In text that is shown, the end of a line would be written as an escape.
    templates.globals["newline"] = Markup("\n")
    templates.filters |= {"shape": shape, "family": family, "slug": slug, "for_script": for_script}
    return templates


def _printable_text(value: Any) -> Any:
    """Return text as it may stand in a page.

    It has no characters that are not seen, or that turn the reading round.
    """
    # What `isprintable` lets pass, `printable` leaves as it is; the first is the quick one of the two.
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if plain and not (value.isprintable() and "##" not in value) else value


@cache
def asset(name: str) -> str:
    """Return the text of a style sheet or script of ours."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy of a page.

    Under it nothing is loaded, and only these scripts run.
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
    """Return JSON that can stand in a script element.

    It does not matter what its texts hold.

    Raises:
        ValueError: a number that JSON does not have.
    """
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT))
