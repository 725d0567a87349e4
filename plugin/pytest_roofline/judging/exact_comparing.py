"""The offline comparison of compiled kernels, by the same verdicts as a live run."""

from ..core.resources import ExactJudgement
from ..core.rows import Row, badness
from .exact import judge_exact
from .exact_known import ExactKnown
from .rows import kernel_row
from .verdicts import Kind


def compare_exact(before: ExactKnown, after: ExactKnown) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Every kernel of `after` against `before`, worst first; and the labels that only `before` has."""
    rows = {}
    for identity, known in after.kernels.items():
        if identity in after.unfit:
            continue
        reference, why_none = before.find(known.entry.key)
        exact = judge_exact(
            known.entry,
            reference.entry if reference is not None else None,
            slack=known.slack,
            source=reference.source if reference is not None else "",
            why_none=why_none,
            unread=known.unread,
        )
        old = reference.entry.figures if reference is not None else None
        rows[identity] = kernel_row(known.entry.key, known.entry.figures, exact, baseline_figures=old)
    for identity, (resources, why) in after.unfit.items():
        key, (reference, _) = resources.key, before.find(resources.key)
        old = reference.entry.figures if reference is not None else None
        # What ran before and cannot run any more is worse, whatever its figures say.
        kind = Kind.REGRESSED if resources.invalid and reference is not None else Kind.INVALID
        exact = ExactJudgement("", key.label, key.target, kind.value, key.name, reason=why)
        rows[identity] = kernel_row(key, resources.figures, exact, baseline_figures=old)
    only_old = tuple(known.entry.label for identity, known in before.kernels.items() if identity not in rows)
    return tuple(sorted(rows.values(), key=lambda row: badness(row.verdict))), only_old
