"""The verdict on a compiled kernel: does it ask for more than its baseline? Nothing is random here, so more is more.

The compiler says the same of the same code every time, so there are no rounds, no intervals, and no false alarms to
divide among the tests of a run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.entries import ExactEntry
from ..core.errors import BadInput
from ..core.keys import Scalar, canonical
from ..core.resources import JUDGED, SHOWN, ResourceKey, Resources, is_count, matrix_generation
from ..core.rows import KERNEL, Row, badness
from ..core.verdicts import ExactVerdict, FigureChange, Kind
from .comparators import Comparator
from .files import Entries
from .rows import kernel_row
from .runs import Run


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
        called=resources.label if resources.label != key.label else "",
        test_id=resources.test_id if resources.tier else "",
        tier=resources.tier,
        marks=resources.marks,
    )


def check_slack(slack: Mapping[str, int] | None) -> dict[str, int]:
    """The slack that a test gives, by figure."""
    for figure, amount in (slack or {}).items():
        if figure not in JUDGED:
            raise BadInput(
                f"slack names {figure!r}; expected one of {', '.join(JUDGED)}, which are judged"
            )
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            raise BadInput(
                f"slack of {figure} is {amount!r}; expected a whole number, zero or more"
            )
    return dict(slack or {})


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """An entry with the file that it is from; `slack` and `unread` are what a run says of it beside its figures.

    `slack` says by figure how much worse is still no regression; `registers` means vgprs where a target calls them so.
    """

    entry: ExactEntry
    source: str
    slack: dict[str, int] = field(default_factory=dict)
    unread: str = ""


def judge_exact(kernel: KnownKernel, reference: KnownKernel | None, why_none: str) -> ExactVerdict:
    """Return the verdict on what a kernel asks for, of no test so far; `why_none` says why there is no reference."""
    entry = kernel.entry
    verdict = ExactVerdict(
        test_id="",
        label=entry.label,
        metric=KERNEL,
        verdict=Kind.NO_BASELINE.value,
        name=entry.name,
        target=entry.target,
        reason=why_none,
    )
    if reference is None:
        return verdict
    before = reference.entry
    changes = figure_changes(before.figures, entry.figures, kernel.slack)
    lost = [name for name in JUDGED if name in before.figures and name not in entry.figures]
    why = f"{', '.join(lost)} cannot be compared any more: {kernel.unread or 'not read'}"
    return replace(
        verdict,
        verdict=_kind({change.verdict for change in changes}, lost).value,
        reason=why if lost else "",
        changes=changes,
        remarks=_remarks(entry, before),
        source=reference.source,
    )


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
    """The judged ones in their order, then matrix instructions, then all others by name."""

    def place(figure: str) -> tuple[bool, int, str]:
        shown_at = SHOWN.index(figure) if figure in SHOWN else -1
        return not matrix_generation(figure), shown_at, figure

    judged = [figure for figure in JUDGED if figure in figures]
    return judged + sorted(figures - JUDGED.keys(), key=place)


def _rises(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """The generation of a kind of matrix instruction that is new and above all that were there; 0 where none is."""
    old, new = (
        max((matrix_generation(figure) for figure, number in side.items() if number), default=0)
        for side in (before, after)
    )
    return new if new > old > 0 else 0


def _change(
    figure: str, old: int | None, new: int | None, slack: Mapping[str, int], rises: int
) -> FigureChange:
    generation = matrix_generation(figure)
    if old is None or new is None or (figure not in JUDGED and not generation):
        return FigureChange(figure, old, new)
    if generation:
        # One kind given up for a newer one is progress; given up for an older one, or for none, it is not.
        if new == 0:
            return FigureChange(figure, old, new, "" if rises > generation else "worse")
        return FigureChange(figure, old, new, "better" if old == 0 and rises == generation else "")
    if figure in ("matrix_instructions", "serialized_wgmma") and rises:
        # A newer one does the work of many older ones, and the older ones never waited for each other.
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


@dataclass(frozen=True, slots=True)
class ExactKnown:
    """What is known of compiled kernels, by identity; `name` is of the files, for a person.

    `unfit` is what runs found last and cannot vouch for, with the reason; `kernels` may hold an older word on it.
    """

    kernels: Mapping[str, KnownKernel]
    name: str
    unfit: Mapping[str, tuple[Resources, str]] = field(default_factory=dict)

    def find(self, key: ResourceKey) -> tuple[KnownKernel | None, str]:
        """What stands under a key; or None, and why there is none."""
        known = self.kernels.get(key.identity)
        return known, "" if known is not None else self._why_none(key)

    def of(self, benchmark: str, parameters: Mapping[str, object]) -> list[ResourceKey]:
        """All kernels of a test."""
        wanted = benchmark, canonical(parameters)
        keys = [known.entry.key for known in self.kernels.values()]
        return [key for key in keys if (key.benchmark, canonical(key.parameters)) == wanted]

    def _why_none(self, key: ResourceKey) -> str:
        if not self.kernels:
            return "no baseline recorded"
        entries = [known.entry for known in self.kernels.values()]
        others = {e.target for e in entries if (e.benchmark, e.name) == (key.benchmark, key.name)}
        if others and key.target not in others:
            return f"no entry for {key.target}; known for {', '.join(sorted(others))}"
        return f"{self.name} has no such kernel"


def known_in_baselines(entries: Entries) -> ExactKnown:
    """The exact entries of baseline files."""
    found = {
        identity: KnownKernel(entry, str(path)) for identity, (entry, path) in entries.exact.items()
    }
    return ExactKnown(found, ", ".join(dict.fromkeys(known.source for known in found.values())))


def known_in_runs(runs: Sequence[Run]) -> ExactKnown:
    """What runs found: of each kernel the newest fit word, within a run the last; and newer ones that are not."""
    fit: dict[str, KnownKernel] = {}
    unfit: dict[str, tuple[Resources, str]] = {}
    for run in sorted(runs, key=lambda run: run.header.started):
        for resources in run.resources:
            identity = resources.key.identity
            why = run.unfit_resources(resources, accept_worse=True)
            if why:
                unfit[identity] = resources, why
            else:
                entry = entry_of(resources, provenance_of(run))
                fit[identity] = KnownKernel(entry, str(run.path), resources.slack, resources.unread)
                unfit.pop(identity, None)
    return ExactKnown(fit, ", ".join(str(run.path) for run in runs), unfit)


def provenance_of(run: Run) -> dict[str, str]:
    """Where an entry of a run comes from."""
    return {"tool": run.header.tool, "run_id": run.header.run_id, "started": run.header.started}


def known_by(comparator: Comparator) -> ExactKnown:
    """The exact side of what times are compared with."""
    return (
        known_in_runs(comparator.runs)
        if comparator.runs
        else known_in_baselines(comparator.entries)
    )


def compare_exact(before: ExactKnown, after: ExactKnown) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Every kernel of `after` against `before`, worst first; and the labels that only `before` has."""
    rows = {}
    for identity, known in after.kernels.items():
        if identity in after.unfit:
            continue
        reference, why_none = before.find(known.entry.key)
        exact = judge_exact(known, reference, why_none)
        old = reference.entry.figures if reference is not None else None
        rows[identity] = kernel_row(
            known.entry.key, known.entry.figures, exact, baseline_figures=old
        )
    for identity, (resources, why) in after.unfit.items():
        key, (reference, _) = resources.key, before.find(resources.key)
        old = reference.entry.figures if reference is not None else None
        # What ran before and cannot run any more is worse, whatever its figures say.
        kind = Kind.REGRESSED if resources.invalid and reference is not None else Kind.INVALID
        exact = ExactVerdict(
            test_id="",
            label=resources.label,
            metric=KERNEL,
            verdict=kind.value,
            name=key.name,
            target=key.target,
            reason=why,
        )
        rows[identity] = kernel_row(key, resources.figures, exact, baseline_figures=old)
    only_old = tuple(
        known.entry.label for identity, known in before.kernels.items() if identity not in rows
    )
    return tuple(sorted(rows.values(), key=lambda row: badness(row.verdict))), only_old
