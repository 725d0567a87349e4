"""The report as one HTML page that opens without a network: verdicts first, then plots, tables and the machine."""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..baselines.run_rows import rows_of
from ..baselines.runs import Run
from ..core.rows import Row, worst_first
from ..core.units import listed, printable, slug
from .messages import curve_line
from .page_tables import kernels_table, machine_table, results_table
from .page_text import (
    MEANINGS,
    changed_lines,
    chips,
    ended_lines,
    family,
    inside_of,
    known_lines,
    ladders,
    not_told,
    published_of,
    reds,
    sentence,
    shape,
)
from .plots import plots_of
from .plots.chart import Plot
from .plots.samples import SECTION as SAMPLES

# Inside a script element nothing is escaped by HTML, so what could end it or begin a comment is written otherwise.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(runs: Sequence[Run], rows: Sequence[Row] | None = None) -> str:
    """The whole page of one run, or of several beside each other, as text to write in UTF-8.

    Args:
        runs: read or just ended.
        rows: what `rows_of` makes of them, where that is known already.
    """
    worst = worst_first(rows_of(runs) if rows is None else rows)
    return rendered(runs, worst, plots_of(worst, runs))


def rendered(runs: Sequence[Run], rows: Sequence[Row], plots: Sequence[Plot]) -> str:
    """The page of rows and plots that are made already.

    Args:
        runs: that the rows are from.
        rows: worst first.
        plots: in the order of their sections.
    """
    # Plotly is the largest part of the page by far, and nothing without plots.
    scripts = [asset("page.js"), *([plotly_script()] if plots else [])]
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            policy=_policy(scripts),
            style=Markup(asset("page.css")),
            scripts=[Markup(script) for script in scripts],
            **_content(runs, rows, plots),
        )
    )


def _content(runs: Sequence[Run], rows: Sequence[Row], plots: Sequence[Plot]) -> dict[str, Any]:
    """Everything that the template shows, by its name there."""
    products = dict.fromkeys(printable(run.header.environment.device.product) for run in runs)
    sections: dict[str, list[tuple[int, Plot]]] = {}
    for number, plot in enumerate(plots, 1):
        sections.setdefault(plot.section, []).append((number, plot))
    red = reds(rows)
    return {
        "title": f"Roofline report: {listed(list(products), 3)}" if products else "Roofline report",
        "sentence": sentence(runs, rows),
        "ended": ended_lines(runs),
        "chips": chips(rows),
        "reds": red,
        "more_red": not_told(rows),
        "ladders": ladders(runs, rows) if red else [],
        "samples": sections.pop(SAMPLES, []),
        "results": results_table(rows, len(runs) > 1),
        "sweeps": [curve_line(curve) for run in runs if run.footer is not None for curve in run.footer.curves],
        "published": published_of(rows),
        "sections": sections,
        "inside": inside_of(runs),
        "kernels": kernels_table(rows),
        "changed": changed_lines(rows),
        "known": known_lines(rows),
        "machine": machine_table(runs),
        "words": MEANINGS,
        "tool": listed(list(dict.fromkeys(run.header.tool for run in runs)), 3),
    }


@cache
def _templates() -> Environment:
    """Templates that escape all that they show, and refuse a name that nobody gave them."""
    made = Environment(
        loader=PackageLoader(__package__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"shape": shape, "family": family, "slug": slug, "for_script": for_script}
    return made


def _shown(value: Any) -> Any:
    """Text as it may stand in a page: without characters that are not seen, or that turn the reading round."""
    # What `isprintable` lets pass, `printable` leaves as it is; the first is the quick one of the two.
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return printable(value)


@cache
def asset(name: str) -> str:
    """The text of a style sheet or script of ours."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def plotly_script() -> str:
    """Plotly's own JavaScript, without the two marks that a script element cannot hold."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text.replace("</script", "<\\/script").replace("<!--", "\\u003c!--").replace("\r\n", "\n")


def _policy(scripts: Sequence[str]) -> str:
    """A Content-Security-Policy under which nothing is loaded, and only these scripts run."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def for_script(value: Any) -> Markup:
    """JSON that can stand in a script element, whatever its texts hold.

    Raises:
        ValueError: a number that JSON does not have.
    """
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT))
