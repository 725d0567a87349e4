"""The offline comparison of compiled kernels, by the same verdicts as a live run."""

from dataclasses import dataclass

from ..core.resources import ResourceKey
from ..core.rows import badness
from .exact import ExactVerdict, judge_exact
from .exact_known import ExactKnown
from .verdicts import Kind


@dataclass(frozen=True, slots=True)
class ExactRow:
    """One compiled kernel on both sides; the old figures are None where the old side does not know it."""

    key: ResourceKey
    label: str
    old: dict[str, int] | None
    new: dict[str, int]
    verdict: ExactVerdict


def compare_exact(before: ExactKnown, after: ExactKnown) -> tuple[tuple[ExactRow, ...], tuple[str, ...]]:
    """Every kernel of `after` against `before`, worst first; and the labels that only `before` has."""
    rows = {}
    for identity, known in after.kernels.items():
        if identity in after.unfit:
            continue
        reference, why_none = before.find(known.entry.key)
        verdict = judge_exact(
            known.entry,
            reference.entry if reference is not None else None,
            slack=known.slack,
            source=reference.source if reference is not None else "",
            why_none=why_none,
            unread=known.unread,
        )
        old = reference.entry.figures if reference is not None else None
        rows[identity] = ExactRow(known.entry.key, known.entry.label, old, known.entry.figures, verdict)
    for identity, (resources, why) in after.unfit.items():
        reference, _ = before.find(resources.key)
        old = reference.entry.figures if reference is not None else None
        # What ran before and cannot run any more is worse, whatever its figures say.
        kind = Kind.REGRESSED if resources.invalid and reference is not None else Kind.INVALID
        rows[identity] = ExactRow(resources.key, resources.key.label, old, resources.figures, ExactVerdict(kind, why))
    only_old = tuple(known.entry.label for identity, known in before.kernels.items() if identity not in rows)
    return tuple(sorted(rows.values(), key=lambda row: badness(row.verdict.kind.value))), only_old
