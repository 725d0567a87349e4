"""The report as one HTML page that opens without a network: verdicts first, then plots, tables and the machine."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from ..baselines.rows import rows_of
from ..baselines.runs import Run
from ..core.rows import Row, worst_first
from ..core.units import listed, printable, slug
from .overview import ladder_lines, ladder_of
from .page_assets import asset, environment, plotly_script, policy
from .page_machine import changed_lines, ended_lines, figures_of, known_lines, machine_table, published_of, sweeps_of
from .page_plots import Drawn, drawn, sections
from .page_red import not_told, reds
from .page_results import exhausted_table, kernels_table, results_table
from .page_steps import memory_of, memory_table, profiles_of, steps_table
from .page_summary import MEANINGS, chips, sentence
from .plots import plots_of
from .plots.chart import Plot
from .plots.samples import SECTION as SAMPLES


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
    figures = drawn(plots)
    # Plotly is the largest part of the page by far, and nothing without plots.
    scripts = [asset("page.js"), *([plotly_script()] if figures else [])]
    told = _content(runs, rows, figures)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            policy=policy(scripts),
            style=Markup(asset("page.css")),
            scripts=[Markup(script) for script in scripts],
            contents=_contents(told),
            **told,
        )
    )


def _content(runs: Sequence[Run], rows: Sequence[Row], figures: Sequence[Drawn]) -> dict[str, Any]:
    """Everything that the template shows, by its name there."""
    red = reds(rows)
    return {
        "title": _title(runs),
        "sentence": sentence(rows),
        "ended": ended_lines(runs),
        "chips": chips(rows),
        "reds": red,
        "more_red": not_told(rows),
        "ladders": _ladders(runs, rows) if red else [],
        "samples": [one for one in figures if one.plot.section == SAMPLES],
        "results": results_table(rows, len(runs) > 1),
        "sweeps": sweeps_of(runs),
        "published": published_of(rows),
        "sections": [(f"plots-{slug(name)}", name, found) for name, found in sections(figures, apart=SAMPLES)],
        "steps": steps_table(rows),
        "profiles": profiles_of(runs),
        "memory": memory_table(runs),
        "uses": memory_of(runs),
        "figures": figures_of(runs),
        "kernels": kernels_table(rows),
        "exhausted": exhausted_table(rows),
        "changed": changed_lines(rows),
        "known": known_lines(rows),
        "machine": machine_table(runs),
        "words": MEANINGS,
        "tool": listed(list(dict.fromkeys(run.header.tool for run in runs)), 3),
    }


def _ladders(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Which part of the machine is sick, as far as what regressed tells."""
    own = ([row for row in rows if row.path == run.path] for run in runs)
    return [line for found in own for line in ladder_lines(ladder_of(found))]


def _title(runs: Sequence[Run]) -> str:
    """`Roofline report: NVIDIA H200`."""
    devices = dict.fromkeys(printable(run.header.environment.device.product) for run in runs)
    return f"Roofline report: {listed(list(devices), 3)}" if devices else "Roofline report"


def _contents(told: dict[str, Any]) -> list[tuple[str, str]]:
    """The sections that this page has, by anchor, in the order in which they stand."""
    known = [
        ("red", "What failed", told["reds"]),
        ("samples", SAMPLES, told["samples"]),
        ("results", "All results", True),
        *((anchor, name, True) for anchor, name, _ in told["sections"]),
        ("steps", "Steps", told["steps"]),
        ("inside", "Inside the calls", told["profiles"] or told["memory"] or told["figures"]),
        ("kernels", "Compiled kernels", told["kernels"]),
        ("exhausted", "Out of memory", told["exhausted"]),
        ("machine", "The machine", True),
        ("reading", "How to read", True),
    ]
    return [(anchor, name) for anchor, name, there in known if there]
