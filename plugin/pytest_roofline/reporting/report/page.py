"""The report as one HTML page that opens without a network: verdicts first, then plots, tables and the machine."""

from collections.abc import Sequence

from ...core.units import listed, printable
from ...judging.report_rows import report_rows, worst_first
from ...judging.runs import Run
from .page_assets import asset, environment, policy
from .page_results import results_table
from .page_summary import chips, sentence


def page(runs: Sequence[Run]) -> str:
    """The whole page of one run, or of several beside each other, as text to write in UTF-8."""
    from markupsafe import Markup

    rows = worst_first(row for run in runs for row in report_rows(run))
    scripts = [asset("page.js")]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            policy=policy(scripts),
            style=Markup(asset("page.css")),
            scripts=[Markup(script) for script in scripts],
            title=_title(runs),
            sentence=sentence(rows),
            chips=chips(rows),
            results=results_table(rows, len(runs) > 1),
        )
    )


def _title(runs: Sequence[Run]) -> str:
    """`Roofline report: NVIDIA H200`."""
    devices = dict.fromkeys(printable(run.header.environment.device.product) for run in runs)
    return f"Roofline report: {listed(list(devices), 3)}" if devices else "Roofline report"
