"""The verdict on a compiled kernel: does it ask for more than its baseline? Nothing is random here, so more is more.

The compiler says the same of the same code every time, so there are no rounds, no intervals, and no false alarms to
divide among the tests of a run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..core.entries import ExactEntry
from ..core.errors import BadInput
from ..core.keys import Scalar
from ..core.resources import JUDGED, SHOWN, ExactJudgement, FigureChange, Resources, is_count, matrix_generation
from .verdicts import Kind


def entry_of(resources: Resources, provenance: Mapping[str, str]) -> ExactEntry:
    """What a run found of a kernel, as a baseline holds it."""
    key = resources.key
    return ExactEntry(
        benchmark=key.benchmark,
        target=key.target,
        figures=resources.figures,
        name=key.name,
        parameters=key.parameters,
        options=resources.options,
        arguments=resources.arguments,
        compiler=resources.compiler,
        provenance=dict(provenance),
    )


def check_slack(slack: Mapping[str, int] | None) -> dict[str, int]:
    """The slack that a test gives, by figure.

    Raises:
        BadInput: a figure that is never judged, or an amount that is none.
    """
    for figure, amount in (slack or {}).items():
        if figure not in JUDGED:
            raise BadInput(f"slack names {figure!r}; expected one of {', '.join(JUDGED)}, which are judged")
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            raise BadInput(f"slack of {figure} is {amount!r}; expected a whole number, zero or more")
    return dict(slack or {})


def judge_exact(
    found: ExactEntry,
    reference: ExactEntry | None,
    *,
    slack: Mapping[str, int] | None = None,
    source: str = "",
    why_none: str = "",
    unread: str = "",
) -> ExactJudgement:
    """The verdict on what a kernel asks for, of no test so far.

    Args:
        found: now.
        reference: before; None where there is nothing to compare with.
        slack: by figure, how much worse is still no regression; `registers` means vgprs where a target calls them so.
        source: the file of the reference.
        why_none: why there is none.
        unread: why some figures could not be read now.
    """
    said = ExactJudgement("", found.label, found.target, Kind.NO_BASELINE.value, found.name, reason=why_none)
    if reference is None:
        return said
    changes = figure_changes(reference.figures, found.figures, slack or {})
    lost = [name for name in JUDGED if name in reference.figures and name not in found.figures]
    why = f"{', '.join(lost)} cannot be compared any more: {unread or 'not read'}" if lost else ""
    kind = _kind({change.verdict for change in changes}, lost)
    told = _remarks(found, reference)
    return replace(said, verdict=kind.value, reason=why, changes=changes, remarks=told, source=source)


def _kind(seen: Collection[str], lost: Sequence[str]) -> Kind:
    """What is worse is so whatever else cannot be told."""
    if "worse" in seen:
        return Kind.REGRESSED
    if lost:
        return Kind.INVALID
    return Kind.IMPROVED if "better" in seen and "slack" not in seen else Kind.PASSED


def figure_changes(
    before: Mapping[str, int], after: Mapping[str, int], slack: Mapping[str, int]
) -> tuple[FigureChange, ...]:
    """Every figure that differs, the worse ones first; an instruction that is not named is not there."""
    changes = []
    rises = _rises(before, after)
    for figure in _ordered({*before, *after}):
        old, new = (_value(side, figure) for side in (before, after))
        if old != new:
            changes.append(_change(figure, old, new, slack, rises))
    rank = {"worse": 0, "slack": 1, "better": 2, "": 3}
    return tuple(sorted(changes, key=lambda change: rank[change.verdict]))


def _value(figures: Mapping[str, int], figure: str) -> int | None:
    absent = 0 if is_count(figure) and "instructions" in figures else None
    return figures.get(figure, absent)


def _ordered(figures: set[str]) -> list[str]:
    """The judged ones in their order, then matrix instructions, then the rest by name."""
    judged = list(JUDGED)

    def place(figure: str) -> tuple[int, int, str]:
        if figure in JUDGED:
            return 0, judged.index(figure), ""
        return (1 if matrix_generation(figure) else 2), SHOWN.index(figure) if figure in SHOWN else -1, figure

    return sorted(figures, key=place)


def _rises(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """The generation of a kind of matrix instruction that is new and above all that were there; 0 where none is."""
    most = max((matrix_generation(figure) for figure, number in before.items() if number), default=0)
    new = max((matrix_generation(figure) for figure, number in after.items() if number), default=0)
    return new if new > most > 0 else 0


def _change(figure: str, old: int | None, new: int | None, slack: Mapping[str, int], rises: int) -> FigureChange:
    generation = matrix_generation(figure)
    if old is None or new is None or (figure not in JUDGED and not generation):
        return FigureChange(figure, old, new)
    if generation:
        # One kind given up for a newer one is progress; given up for an older one, or for none, it is not.
        if new == 0:
            return FigureChange(figure, old, new, "" if rises > generation else "worse")
        return FigureChange(figure, old, new, "better" if old == 0 and rises == generation else "")
    if figure == "matrix_instructions" and rises:
        # A newer one does the work of many older ones.
        return FigureChange(figure, old, new)
    more_is_worse = JUDGED[figure] == "lower"
    worse_by = new - old if more_is_worse else old - new
    if worse_by < 0:
        return FigureChange(figure, old, new, "better")
    allowed = slack.get(figure, slack.get("registers", 0) if figure == "vgprs" else 0)
    return FigureChange(figure, old, new, "slack" if worse_by <= allowed else "worse")


def _remarks(found: ExactEntry, reference: ExactEntry) -> tuple[str, ...]:
    """The compiler first, with its version also where that is the same; then options and arguments that differ."""
    compiler = _differences(reference.compiler, found.compiler)
    same = [f"{name} {version}" for name, version in found.compiler.items() if name == "triton"]
    triton_changed = any(text.startswith("triton ") for text in compiler)
    return (
        *([] if triton_changed else same),
        *compiler,
        *_differences(reference.options, found.options),
        *_differences(reference.arguments, found.arguments),
    )


def _differences(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> list[str]:
    names = dict.fromkeys([*before, *after])
    return [
        f"{name} {before.get(name, 'unset')} → {after.get(name, 'unset')}"
        for name in names
        if before.get(name, "unset") != after.get(name, "unset")
    ]
