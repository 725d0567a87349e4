"""The verdict on a compiled kernel.

Does it need more registers, spills or instructions than its baseline? A compiler reports the same figures for the same
code every time. So there are no rounds, no intervals, and no chance of error to share among the tests of a run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.entries import NO_TEST, CollectedTest, ExactEntry
from ..core.errors import BadInput
from ..core.keys import Scalar, canonical
from ..core.resources import (
    JUDGED_FIGURES,
    REPORTED_FIGURES,
    ResourceKey,
    Resources,
    is_count,
    matrix_generation,
)
from ..core.rows import KERNEL, Row, badness
from ..core.verdicts import ExactVerdict, FigureChange, Kind
from .comparators import Comparator
from .files import Entries
from .rows import kernel_row
from .runs import Run


def entry_of(resources: Resources, provenance: Mapping[str, str]) -> ExactEntry:
    """Return the baseline entry of a run's kernel."""
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
        test=CollectedTest(resources.test_id, resources.tier, resources.marks)
        if resources.tier
        else NO_TEST,
    )


def check_slack(slack: Mapping[str, int] | None) -> dict[str, int]:
    """Return the slack that a test gives, by figure.

    Raises:
        BadInput: a figure is not judged, or an amount is no whole number.
    """
    for figure, amount in (slack or {}).items():
        if figure not in JUDGED_FIGURES:
            raise BadInput(
                f"slack names the figure {figure!r}; expected a judged figure: {', '.join(JUDGED_FIGURES)}"
            )
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            raise BadInput(
                f"slack of {figure} is {amount!r}; expected a whole number, zero or more"
            )
    return dict(slack or {})


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """The entry of a kernel, from a baseline or a run.

    Args:
        source: the path of the file.
        slack: by figure, how much worse is still no regression; that of `registers` serves for vgprs, too.
        unread: why some figures could not be read. Baselines have neither this nor slack.
    """

    entry: ExactEntry
    source: str
    slack: dict[str, int] = field(default_factory=dict)
    unread: str = ""


def without_comparison(key: ResourceKey, label: str, kind: Kind, reason: str) -> ExactVerdict:
    """Return the verdict on a kernel that is not compared. The test's id is still empty.

    Args:
        kind: the word; `reason` says why nothing is compared.
    """
    return ExactVerdict(
        test_id="",
        label=label,
        metric=KERNEL,
        verdict=kind.value,
        name=key.name,
        target=key.target,
        reason=reason,
    )


def judge_exact(
    kernel: KernelRecord, reference: KernelRecord | None, why_none: str
) -> ExactVerdict:
    """Return the verdict on a kernel. The test's id is still empty.

    `why_none` tells why there is no reference.
    """
    entry = kernel.entry
    verdict = without_comparison(entry.key, entry.label, Kind.NO_BASELINE, why_none)
    if reference is None:
        return verdict
    before = reference.entry
    changes = figure_changes(before.figures, entry.figures, kernel.slack)
    lost_figures = [
        name for name in JUDGED_FIGURES if name in before.figures and name not in entry.figures
    ]
    reason = ""
    if lost_figures:
        cause = kernel.unread or "not read"
        reason = f"{', '.join(lost_figures)} can no longer be compared: {cause}"
    return replace(
        verdict,
        verdict=_kind({change.verdict for change in changes}, lost_figures).value,
        reason=reason,
        changes=changes,
        remarks=_remarks(entry, before),
        source=reference.source,
    )


def _kind(verdicts: Collection[str], lost_figures: Sequence[str]) -> Kind:
    """Return the kind of verdict. A worse figure counts, whichever figures are lost."""
    if "worse" in verdicts:
        return Kind.REGRESSED
    if lost_figures:
        return Kind.INVALID
    return Kind.IMPROVED if "better" in verdicts and "slack" not in verdicts else Kind.PASSED


def figure_changes(
    before: Mapping[str, int], after: Mapping[str, int], slack: Mapping[str, int]
) -> tuple[FigureChange, ...]:
    """Return every figure of a compiled kernel that differs, worse figures first.

    `slack` is by figure how much worse it may be without counting as worse.
    """
    changes = []
    new_generation = _new_generation(before, after)
    for figure in _in_order({*before, *after}):
        old, new = (_figure_value(side, figure) for side in (before, after))
        if old != new:
            changes.append(_figure_change(figure, old, new, slack, new_generation))
    rank = {"worse": 0, "slack": 1, "better": 2, "": 3}
    return tuple(sorted(changes, key=lambda change: rank[change.verdict]))


def _figure_value(figures: Mapping[str, int], figure: str) -> int | None:
    """Return a figure, None where it was not read.

    A kind of instruction without a figure occurs 0 times, if instructions were counted.
    """
    absent = 0 if is_count(figure) and "instructions" in figures else None
    return figures.get(figure, absent)


def _in_order(figures: set[str]) -> list[str]:
    """Return figures in order: those judged, matrix instructions, all others by name."""

    def place(figure: str) -> tuple[bool, int, str]:
        """Return the sort key of a figure that is not judged; False comes first."""
        shown_at = REPORTED_FIGURES.index(figure) if figure in REPORTED_FIGURES else -1
        # Matrix instructions come first, then all others; reported figures in their order behind those by name.
        is_other = not matrix_generation(figure)
        return is_other, shown_at, figure

    judged_figures = [figure for figure in JUDGED_FIGURES if figure in figures]
    return judged_figures + sorted(figures - JUDGED_FIGURES.keys(), key=place)


def _new_generation(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Return the newest generation of matrix instructions after a change.

    It is 0 unless the kernel used an older generation before.
    """
    old, new = (
        max((matrix_generation(figure) for figure, number in side.items() if number), default=0)
        for side in (before, after)
    )
    return new if new > old > 0 else 0


def _figure_change(
    figure: str, old: int | None, new: int | None, slack: Mapping[str, int], new_generation: int
) -> FigureChange:
    """Return the change of a figure with its verdict.

    The verdict is worse, better, within the slack, or empty for a figure that is not judged.
    `new_generation` is the result of `_new_generation`.
    """
    generation = matrix_generation(figure)
    if old is None or new is None or (figure not in JUDGED_FIGURES and not generation):
        return FigureChange(figure, old, new)
    if generation:
        # Matrix instructions that give way to a newer generation are progress; to an older one or to none, a loss.
        if new == 0:
            return FigureChange(figure, old, new, "" if new_generation > generation else "worse")
        return FigureChange(
            figure, old, new, "better" if old == 0 and new_generation == generation else ""
        )
    if figure in ("matrix_instructions", "serialized_wgmma") and new_generation:
        # A newer instruction does the work of many older ones, and only the newer ones can be serialized.
        return FigureChange(figure, old, new)
    more_is_worse = JUDGED_FIGURES[figure] == "lower"
    worse_by = new - old if more_is_worse else old - new
    if worse_by < 0:
        return FigureChange(figure, old, new, "better")
    # AMD's vector registers have the slack of registers, unless they have their own.
    default_slack = slack.get("registers", 0) if figure == "vgprs" else 0
    figure_slack = slack.get(figure, default_slack)
    return FigureChange(figure, old, new, "slack" if worse_by <= figure_slack else "worse")


def _remarks(entry: ExactEntry, reference: ExactEntry) -> tuple[str, ...]:
    """Return remarks on the compiler, then on options and arguments that differ.

    Triton's version is named even if it is the same.
    """
    compiler_changes = _differences(reference.compiler, entry.compiler)
    same = [f"{name} {version}" for name, version in entry.compiler.items() if name == "triton"]
    is_triton_changed = any(text.startswith("triton ") for text in compiler_changes)
    return (
        *([] if is_triton_changed else same),
        *compiler_changes,
        *_differences(reference.options, entry.options),
        *_differences(reference.arguments, entry.arguments),
    )


def _differences(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> list[str]:
    """Return the settings that differ, as `num_warps 4 → 8`."""
    names = dict.fromkeys([*before, *after])
    return [
        f"{name} {before.get(name, 'unset')} → {after.get(name, 'unset')}"
        for name in names
        if before.get(name, "unset") != after.get(name, "unset")
    ]


@dataclass(frozen=True, slots=True)
class KernelRecords:
    """The records of compiled kernels, by identity.

    Args:
        name: the names of the files, for a message.
        unfit: newer results that cannot be used, with the reason; `kernels` may hold an older record of the kernel.
    """

    kernels: Mapping[str, KernelRecord]
    name: str
    unfit: Mapping[str, tuple[Resources, str]] = field(default_factory=dict)

    def find(self, key: ResourceKey) -> tuple[KernelRecord | None, str]:
        """Return the record of a key; or None, and the reason."""
        record = self.kernels.get(key.identity)
        return record, "" if record is not None else self._absence_reason(key)

    def of(self, benchmark: str, parameters: Mapping[str, object]) -> list[ResourceKey]:
        """Return the keys of all kernels of a test."""
        test = benchmark, canonical(parameters)
        keys = [record.entry.key for record in self.kernels.values()]
        return [key for key in keys if (key.benchmark, canonical(key.parameters)) == test]

    def _absence_reason(self, key: ResourceKey) -> str:
        """Return why there is no record of a key."""
        if not self.kernels:
            return "no baseline recorded"
        entries = [record.entry for record in self.kernels.values()]
        targets = {
            entry.target
            for entry in entries
            if (entry.benchmark, entry.name) == (key.benchmark, key.name)
        }
        if targets and key.target not in targets:
            return f"no entry for {key.target}; there are entries for {', '.join(sorted(targets))}"
        return f"{self.name} has no such kernel"


def records_in_baselines(entries: Entries) -> KernelRecords:
    """Return the records of the exact entries of baseline files."""
    records = {
        identity: KernelRecord(entry, str(path))
        for identity, (entry, path) in entries.exact.items()
    }
    return KernelRecords(
        records, ", ".join(dict.fromkeys(record.source for record in records.values()))
    )


def records_in_runs(runs: Sequence[Run]) -> KernelRecords:
    """Return each kernel's newest fit record in some runs, and newer unfit results.

    Within a run the last one counts. A fit record that comes later removes an unfit result from before it.
    """
    fit: dict[str, KernelRecord] = {}
    unfit: dict[str, tuple[Resources, str]] = {}
    for run in sorted(runs, key=lambda run: run.header.started):
        for resources in run.resources:
            identity = resources.key.identity
            reason = run.unfit_resources(resources, accept_worse=True)
            if reason:
                unfit[identity] = resources, reason
            else:
                entry = entry_of(resources, provenance_of(run))
                fit[identity] = KernelRecord(
                    entry, str(run.path), resources.slack, resources.unread
                )
                unfit.pop(identity, None)
    return KernelRecords(fit, ", ".join(str(run.path) for run in runs), unfit)


def provenance_of(run: Run) -> dict[str, str]:
    """Return the provenance of a run's entries."""
    return {"tool": run.header.tool, "run_id": run.header.run_id, "started": run.header.started}


def records_of(comparator: Comparator) -> KernelRecords:
    """Return the records of the kernels in a comparator's runs or baseline files."""
    return (
        records_in_runs(comparator.runs)
        if comparator.runs
        else records_in_baselines(comparator.entries)
    )


def compare_exact(
    before: KernelRecords, after: KernelRecords
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Compare every kernel of `after` with `before`.

    Return a row a kernel, worst first, and the labels that only `before` has.
    """
    rows = {}
    for identity, record in after.kernels.items():
        if identity in after.unfit:
            continue
        reference, why_none = before.find(record.entry.key)
        exact = judge_exact(record, reference, why_none)
        old = reference.entry.figures if reference is not None else None
        rows[identity] = kernel_row(
            record.entry.key, record.entry.figures, exact, baseline_figures=old
        )
    for identity, (resources, reason) in after.unfit.items():
        key, (reference, _) = resources.key, before.find(resources.key)
        old = reference.entry.figures if reference is not None else None
        # A kernel that was fit before and is invalid now is worse, whatever its figures are.
        kind = Kind.REGRESSED if resources.invalid and reference is not None else Kind.INVALID
        exact = without_comparison(key, resources.label, kind, reason)
        rows[identity] = kernel_row(key, resources.figures, exact, baseline_figures=old)
    labels_before_only = tuple(
        record.entry.label for identity, record in before.kernels.items() if identity not in rows
    )
    return tuple(sorted(rows.values(), key=lambda row: badness(row.verdict))), labels_before_only
