"""Baseline files: how they are read, searched, written, and compared with the tests that exist.

One file a hardware family, one entry a measurement and exact variant.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.directions import is_of_tool
from ..core.entries import Baseline, Entry, ExactEntry
from ..core.errors import BadFile, BadInput
from ..core.facts import HardwareKey
from ..core.groups import group_by
from ..core.keys import Key, canonical
from ..core.storage import check_name, read_record, to_plain
from ..core.writing import json_text, write_atomically, write_new


def read_baseline(path: Path) -> Baseline:
    """Return a baseline file.

    Raises:
        BadFile: the file is no baseline, or cannot be read; the message ends with a remedy.
    """
    try:
        return _read(path)
    except BadFile as error:
        raise BadFile(f"{error}; {_remedy(path)}") from None


def _remedy(path: Path) -> str:
    """Return what to do about a file that is no baseline, by the suffix of its name."""
    if path.suffix == ".jsonl":
        return f"this file is a run; make a proposal from the run: `roofline baseline propose {path} -o FILE`"
    if path.suffix != ".json":
        return (
            "expected a baseline or a proposal, whose name ends in .json; make a proposal with "
            "`roofline baseline propose RUN -o FILE.json`"
        )
    return "restore the file from version control, or remove it and record again (`pytest … --roofline-record`)"


def _read(path: Path) -> Baseline:
    """Return a baseline file; the message of a BadFile has no remedy yet."""
    where = f"baseline {path}"
    baseline = read_record(path, Baseline, "baseline")
    try:
        check_name(baseline.family, "family")
    except BadInput as error:
        raise BadFile(f"{where}: {error}") from None
    _refuse_duplicates(baseline.entries, where)
    _refuse_duplicates(baseline.exact, f"{where}, exact")
    return baseline


def baseline_of(family: str, folder: Path) -> Baseline:
    """Return the baseline of a family in a folder.

    It is empty where the file does not exist yet.
    """
    path = folder / f"{family}.json"
    return read_baseline(path) if path.exists() else Baseline(family, ())


def _refuse_duplicates(entries: Sequence[Entry | ExactEntry], where: str) -> None:
    """Raise BadFile where two entries have one identity; `where` names the file."""
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        # The place of the first entry with this identity, or of this one.
        first = seen.setdefault(entry.identity, index)
        if first != index:
            difference = (
                f"{entry.metric}, {entry.kind}" if isinstance(entry, Entry) else entry.target
            )
            raise BadFile(
                f"{where}: entries {first} and {index} are the same ({entry.benchmark} {entry.parameters}, "
                f"{difference}); expected every entry once"
            )


def write_baseline(path: Path, baseline: Baseline, *, new: bool = False) -> None:
    """Write a baseline so that a renewal is a reviewable diff.

    Entries and keys are sorted, with two spaces and a final newline.
    """
    ordered = Baseline(
        baseline.family,
        tuple(sorted(baseline.entries, key=_order)),
        exact=tuple(sorted(baseline.exact, key=_order)),
    )
    text = json_text(to_plain(ordered), sort_keys=True)
    # With `new`, a file that exists is not replaced.
    write = write_new if new else write_atomically
    write(path, text)


def _order(
    entry: Entry | ExactEntry,
) -> tuple[str, str, tuple[tuple[str, bool, float, str], ...], str]:
    """Return the sort key of an entry.

    It sorts by benchmark and name, then by parameters, with numbers in numeric order.
    """
    # Each parameter: texts after numbers, numbers by value, texts by their letters.
    parameters = tuple(
        (name, isinstance(value, str), value if isinstance(value, int | float) else 0, str(value))
        for name, value in sorted(entry.parameters.items())
    )
    return (entry.benchmark, entry.name, parameters, entry.identity)


def entries_of(family: str, folders: Iterable[Path]) -> "Entries":
    """Return the entries of a family.

    Those of an earlier folder hide the same of a later one.
    """
    paths = [path for folder in folders if (path := folder / f"{family}.json").exists()]
    return Entries.from_files(paths)


def all_entries(folders: Iterable[Path]) -> "Entries":
    """Return the entries of all families, as `entries_of`.

    Files that are no baselines are passed over.
    """
    return Entries.from_files(
        [path for folder in folders for path in sorted(folder.glob("*.json")) if _is_baseline(path)]
    )


def _is_baseline(path: Path) -> bool:
    """Return True where a file can be read as a baseline."""
    try:
        read_baseline(path)
    except BadFile:
        return False
    return True


class Entries:
    """Entries with the files that they came from. Of several with one identity the first counts."""

    def __init__(
        self,
        entries: dict[str, tuple[Entry, Path]],
        paths: Sequence[Path],
        exact: dict[str, tuple[ExactEntry, Path]] | None = None,
    ) -> None:
        """Keep entries by their identity, each with its file; `paths` are all files."""
        self._entries = entries
        self.paths = tuple(paths)
        self.exact = exact or {}
        self._by_benchmark = group_by(self, lambda entry: (entry.benchmark, entry.name))

    @classmethod
    def from_files(cls, paths: Sequence[Path]) -> "Entries":
        """Return the entries of several files; of those with one identity the first."""
        entries: dict[str, tuple[Entry, Path]] = {}
        exact: dict[str, tuple[ExactEntry, Path]] = {}
        for path in paths:
            baseline = read_baseline(path)
            for entry in baseline.entries:
                entries.setdefault(entry.identity, (entry, path))
            for exact_entry in baseline.exact:
                exact.setdefault(exact_entry.identity, (exact_entry, path))
        return cls(entries, paths, exact)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry, _ in self._entries.values())

    def of(self, benchmark: str, name: str = "") -> list[Entry]:
        """Return the entries of a benchmark and measurement name, on any hardware."""
        return self._by_benchmark.get((benchmark, name), [])

    def names(self, benchmark: str) -> set[str]:
        """Return the measurement names of a benchmark's entries."""
        return {
            name for entry_benchmark, name in self._by_benchmark if entry_benchmark == benchmark
        }

    def with_changes(self, change: Callable[[Entry], Entry]) -> "Entries":
        """Return the entries after a change that keeps their identities."""
        entries = {name: (change(entry), path) for name, (entry, path) in self._entries.items()}
        return Entries(entries, self.paths, self.exact)

    def path_of(self, entry: Entry) -> Path:
        """Return the file that an entry came from."""
        return self._entries[entry.identity][1]


def nearest(
    hardware: HardwareKey, candidates: Iterable[HardwareKey], at_most: int = 3
) -> list[HardwareKey]:
    """Return the keys that agree with `hardware` in most facts, best first.

    Messages name them as a hint.
    """
    facts = asdict(hardware)

    def agreement(key: HardwareKey) -> int:
        """Return the number of facts that a key has in common with `hardware`."""
        return sum(fact == facts[name] for name, fact in asdict(key).items())

    unique = {str(key): key for key in candidates}
    return sorted(unique.values(), key=lambda key: (-agreement(key), str(key)))[:at_most]


def key_of_entry(entry: Entry) -> Key:
    """Return the key of a measured entry."""
    assert entry.cache is not None
    assert entry.timing is not None
    return Key(
        entry.benchmark,
        entry.parameters,
        entry.metric,
        entry.hardware,
        entry.cache,
        entry.timing,
        entry.name,
    )


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """A test that will measure: its benchmark, the parameters of its key, and its id."""

    benchmark: str
    parameters: dict[str, Any]
    id: str = ""


# An entry that no planned test uses, and the reason.
Unused = tuple[Entry | ExactEntry, str]


def unused_entries(
    entries: Iterable[Entry | ExactEntry], planned: Sequence[PlannedTest]
) -> list[Unused]:
    """Return the entries that no planned test uses, in their order."""
    tests: dict[str, dict[str, dict[str, Any]]] = {}
    for test in planned:
        tests.setdefault(test.benchmark, {})[canonical(test.parameters)] = test.parameters
    test_ids = {test.id for test in planned}
    return [
        (
            entry,
            "the test has other parameters now"
            if entry.benchmark in tests
            else "there is no such test",
        )
        for entry in entries
        if not _is_used(entry, tests.get(entry.benchmark, {}))
        # The benchmark of a tool's figure is the tool's own.
        and not (is_of_tool(entry.benchmark) and entry.test.id in test_ids)
    ]


def _is_used(entry: Entry | ExactEntry, tests: dict[str, dict[str, Any]]) -> bool:
    """Return True where an entry is of one of the tests.

    `tests` are those of the entry's benchmark, by canonical parameters. Canaries, which belong to
    no test, count as used.
    """
    if isinstance(entry, Entry) and entry.is_canary:
        return True
    if isinstance(entry, ExactEntry) or entry.kind == "measured":
        return canonical(entry.parameters) in tests
    # A published entry may name only some of the parameters. One that a program made is never unused.
    published_for = map(entry.agrees_with, tests.values())
    return "made_by" in entry.provenance or any(published_for)
