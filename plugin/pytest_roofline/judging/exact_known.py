"""What compiled kernels are compared with: the exact entries of baseline files, or those that saved runs would make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core.entries import ExactEntry
from ..core.keys import canonical
from ..core.resources import ResourceKey, Resources
from .baselines import Entries
from .comparators import BaselineComparator, Comparator, RunComparator
from .exact import entry_of
from .runs import Run


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """An entry with the file that it is from; `slack` and `unread` are what a run says of it beside its figures."""

    entry: ExactEntry
    source: str
    slack: dict[str, int] = field(default_factory=dict)
    unread: str = ""


class ExactKnown:
    """What is known of compiled kernels.

    Args:
        kernels: by identity.
        name: the files, for a person; empty where there is none.
        unfit: what runs found last and cannot vouch for, by identity, with the reason; an older word on the same
            kernel may stand in `kernels`.
    """

    def __init__(
        self,
        kernels: Mapping[str, KnownKernel],
        name: str,
        unfit: Mapping[str, tuple[Resources, str]] | None = None,
    ) -> None:
        self.kernels = kernels
        self.name = name
        self.unfit = unfit or {}

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
    found = {identity: KnownKernel(entry, str(path)) for identity, (entry, path) in entries.exact.items()}
    return ExactKnown(found, ", ".join(dict.fromkeys(known.source for known in found.values())))


def known_in_runs(runs: Sequence[Run]) -> ExactKnown:
    """What runs found: of each kernel the newest fit word, within a run the last; and newer ones that are not."""
    found: dict[str, KnownKernel] = {}
    unfit: dict[str, tuple[Resources, str]] = {}
    for run in sorted(runs, key=lambda run: run.header.started):
        for resources in run.resources:
            why = run.unfit_resources(resources, accept_worse=True)
            if why:
                unfit[resources.key.identity] = resources, why
            else:
                entry = entry_of(resources, provenance_of(run))
                known = KnownKernel(entry, str(run.path), resources.slack, resources.unread)
                found[resources.key.identity] = known
                unfit.pop(resources.key.identity, None)
    return ExactKnown(found, ", ".join(str(run.path) for run in runs), unfit)


def provenance_of(run: Run) -> dict[str, str]:
    """Where an entry of a run comes from."""
    return {"tool": run.header.tool, "run_id": run.header.run_id, "started": run.header.started}


def known_by(comparator: Comparator) -> ExactKnown:
    """The exact side of what times are compared with."""
    if isinstance(comparator, RunComparator):
        return known_in_runs(comparator.runs)
    assert isinstance(comparator, BaselineComparator)
    return known_in_baselines(comparator.entries)
