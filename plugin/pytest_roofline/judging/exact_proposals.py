"""Exact entries from whole runs: what compiled kernels ask for, where the runs say the same."""

from collections.abc import Sequence

from ..core.entries import ExactEntry
from ..core.units import printable
from .exact import entry_of, figure_changes
from .exact_known import provenance_of
from .runs import Run


def propose_exact(runs: Sequence[Run], *, accept_worse: bool = False) -> tuple[tuple[ExactEntry, ...], tuple[str, ...]]:
    """Exact entries, and what was left out with the reason.

    Args:
        runs: of any machines: a kernel belongs to its target.
        accept_worse: take kernels whose test failed only for a verdict, or that lack a figure which their baseline
            has: what they ask for now is accepted.
    """
    taken: dict[str, list[tuple[Run, ExactEntry]]] = {}
    unfit: dict[tuple[str, str], str] = {}
    for run in runs:
        for resources in run.resources:
            identity, why = resources.key.identity, run.unfit_resources(resources, accept_worse)
            why = why or ("" if accept_worse else run.unjudged(resources))
            if why:
                unfit[identity, run.header.run_id] = f"{resources.label} of {run.header.run_id}: {why}"
            else:
                taken.setdefault(identity, []).append((run, entry_of(resources, provenance_of(run))))
    left_out = [printable(line) for line in dict.fromkeys(unfit.values())]
    entries = []
    for found in taken.values():
        why = _disagreement(found)
        if why:
            left_out.append(printable(why))
        else:
            entries.append(max(found, key=lambda one: one[0].header.started)[1])
    return tuple(entries), tuple(left_out)


def _disagreement(found: Sequence[tuple[Run, ExactEntry]]) -> str:
    """Why runs cannot make one entry together: a compiler says the same every time, so something was changed."""
    first_run, first = found[0]
    for run, entry in found[1:]:
        if entry.figures != first.figures:
            differing = figure_changes(first.figures, entry.figures, {})
            told = ", ".join(f"{one.figure} {one.before} and {one.after}" for one in differing[:3])
            return (
                f"{entry.label}: {first_run.header.run_id} and {run.header.run_id} found {told}; propose the one that "
                "is meant"
            )
    return ""
