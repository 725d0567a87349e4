"""The machine and how it was used: environments of runs beside each other, what changed, what must be known."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..baselines.run_files import run_names
from ..baselines.runs import Run
from ..core.facts import Environment
from ..core.rows import Row
from ..core.units import count, format_memory
from .figures import figure_lines, first_call_lines, rank_lines
from .messages import condition_lines, counts_line, curve_line
from .page_tables import Cell, Column, Table
from .tables import roofline_note

# Of each kind of remark; the run file has all.
MOST_TOLD = 40
# Of the lines on how runs ended, which stand ahead of everything.
MOST_ENDED = 8
# What a fact is measured in, by the end of its name.
_UNITS = {"bytes": format_memory, "mhz": lambda value: f"{value:g} MHz", "w": lambda value: f"{value:g} W"}


def machine_table(runs: Sequence[Run]) -> Table:
    """The facts of each run, a column for each; where they differ, the row says so in a word."""
    facts, called = [_facts(run) for run in runs], run_names(runs)
    names = dict.fromkeys(name for one in facts for name in one)
    several = len(runs) > 1
    columns = [Column("fact", number=False), *(Column(called[run.path], number=False) for run in runs)]
    columns += [Column("between runs", number=False)] * several
    rows = []
    for name in names:
        values = [one.get(name, "") for one in facts]
        rows.append([Cell(text) for text in (name, *values, *(["differs" * (len(set(values)) > 1)] * several))])
    return Table("Environment", columns, rows)


def _facts(run: Run) -> dict[str, str]:
    header, footer = run.header, run.footer
    ended = "was cut before its end" if footer is None else f"{footer.finished}, exit status {footer.exit_status}"
    return {
        "run": header.run_id,
        "started": header.started,
        "finished": ended,
        "command": " ".join(header.command),
        "tool": header.tool,
        **_of_environment(header.environment),
    }


def _of_environment(environment: Environment) -> dict[str, str]:
    found = {}
    for what, facts in (("device", asdict(environment.device)), ("host", asdict(environment.host))):
        for name, value in facts.items():
            if value is not None:
                words, text = _fact(name, value)
                found[f"{what} {words}"] = text
    return found | {f"software {name}": version for name, version in environment.software.items()}


def _fact(name: str, value: Any) -> tuple[str, str]:
    """A fact's name in words and its value with its unit."""
    words, _, unit = name.rpartition("_")
    form: Callable[[float], str] | None = _UNITS.get(unit)
    return (words.replace("_", " "), form(value)) if words and form else (name.replace("_", " "), f"{value}")


def changed_lines(rows: Sequence[Row]) -> list[str]:
    """What is not as it was behind the baselines, with how many results say so."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(dict.fromkeys(row.judgement.remarks if row.judgement is not None else (), 1))
        found.update(dict.fromkeys(row.exact.remarks if row.exact is not None and row.exact.changes else (), 1))
    compared = sum(row.change is not None or row.exact is not None for row in rows)
    lines = [text + (f" ({times} of {compared} results)" if times < compared else "") for text, times in found.items()]
    more = [f"… and {len(lines) - MOST_TOLD} more"] if len(lines) > MOST_TOLD else []
    return lines[:MOST_TOLD] + more


# A run file holds what the device told, and not why it told no more.
UNTOLD_SINCE = "neither the driver nor a library told of it"


def known_lines(rows: Sequence[Row]) -> list[str]:
    """How the numbers were taken: the roofline, ranks, pace, excluded blocks, first calls."""
    lines = [*filter(None, [roofline_note(rows)]), *rank_lines(rows), *condition_lines(rows, 5, UNTOLD_SINCE)]
    return lines + [f"first calls of {line}" for line in first_call_lines(rows)]


def figures_of(runs: Sequence[Run]) -> list[str]:
    """What tests found besides times."""
    return [line for run in runs for line in figure_lines(run.figures, MOST_TOLD)]


def sweeps_of(runs: Sequence[Run]) -> list[str]:
    """Each sweep over sizes in a line."""
    return [curve_line(curve) for run in runs if run.footer is not None for curve in run.footer.curves]


def published_of(rows: Sequence[Row]) -> list[str]:
    """Figures from elsewhere beside the results, which never gate."""
    lines = [f"{row.label}: {'; '.join(row.judgement.published)}" for row in rows if row.judgement is not None
             and row.judgement.published]  # fmt: skip
    more = [f"… and beside {count(len(lines) - MOST_TOLD, 'more result')}"] if len(lines) > MOST_TOLD else []
    return lines[:MOST_TOLD] + more


def ended_lines(runs: Sequence[Run]) -> list[str]:
    """How many were measured in each run, what was not and why, and that a run was cut."""
    lines, called = [], run_names(runs)
    for run in runs:
        name = f"{called[run.path]}: " * (len(runs) > 1)
        if run.footer is None or run.cut:
            lines.append(f"{name}the run was cut before its end, so that what follows is what it had until then")
        if run.footer is not None:
            lines.append(name + counts_line(run.footer.measured, run.footer.not_measured, run.footer.compiled))
    more = [f"… and {count(len(lines) - MOST_ENDED, 'more line')} of this kind"] if len(lines) > MOST_ENDED else []
    return lines[:MOST_ENDED] + more
