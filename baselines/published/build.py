"""Make the baselines of published figures: what vendors and operators ask for, and what others measured.

    python baselines/published/build.py            # writes baselines/*.json and the tables of two pages of docs/
    python baselines/published/build.py --check    # exit status 1 where a file in the repository differs

Entries that this program made are replaced; everything else in a file, such as what users recorded and approved there,
stays. The same data give the same files, byte for byte.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import floor_pages
import floors
import pages
from crosscheck import impossible, missed
from entries import MADE_BY, Account, account
from shipping import shipped

from pytest_roofline.baselines.files import read_baseline, write_baseline
from pytest_roofline.core.entries import Baseline, Entry
from pytest_roofline.core.errors import BadFile, RooflineError
from pytest_roofline.core.writing import write_atomically

ROOT = Path(__file__).resolve().parents[2]
PAGE, FLOORS_PAGE = Path("docs/results/published.md"), Path("docs/results/floors.md")
REMEDY = "run `python baselines/published/build.py` and look at the difference before you commit it"


@dataclass(frozen=True, slots=True)
class Outdated:
    """A file whose text is not what the data give; None where it should not be there, or is not."""

    path: Path
    is_text: str | None
    should_text: str | None


def made_here(entry: Entry) -> bool:
    """Whether this program made an entry; a measured one it never makes."""
    return entry.kind != "measured" and entry.provenance.get("made_by") == MADE_BY


def texts(found: Account, root: Path) -> dict[Path, str | None]:
    """What every file should hold; None for one that should not be there any more.

    Args:
        found: every record, accounted for.
        root: of the repository, with the files as they are.
    """
    families: dict[str, list[Entry]] = {}
    for one in shipped(found):
        families.setdefault(one.family, []).append(one.entry)
    for family, entry in floors.entries():
        families.setdefault(family, []).append(entry)
    folder = root / "baselines"
    should: dict[Path, str | None] = {}
    for family in sorted(
        {*families, *(path.stem for path in folder.glob("*.json") if _ours(path))}
    ):
        path = folder / f"{family}.json"
        before = read_baseline(path) if path.exists() else Baseline(family, ())
        own = [entry for entry in before.entries if not made_here(entry)]
        after = Baseline(family, (*own, *families.get(family, ())), exact=before.exact)
        should[path] = _text(after) if after.entries or after.exact else None
    page = root / PAGE
    should[page] = pages.filled(page.read_text(encoding="utf-8"), found)
    page = root / FLOORS_PAGE
    should[page] = floor_pages.filled(page.read_text(encoding="utf-8"), found)
    return should


def _ours(path: Path) -> bool:
    """Whether a file holds something that this program made once; others, baselines or not, it does not touch."""
    try:
        return any(made_here(entry) for entry in read_baseline(path).entries)
    except BadFile:
        return False


def _text(baseline: Baseline) -> str:
    """A baseline file as `roofline baseline approve` would write it; duplicates are refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{baseline.family}.json"
        write_baseline(path, baseline)
        read_baseline(path)
        return path.read_text(encoding="utf-8")


def outdated(root: Path = ROOT, found: Account | None = None) -> list[Outdated]:
    """The files of a repository that are not what the data give."""
    should = texts(account() if found is None else found, root)
    now = {path: path.read_text(encoding="utf-8") if path.exists() else None for path in should}
    return [Outdated(path, now[path], text) for path, text in should.items() if now[path] != text]


def summary(found: Account) -> list[str]:
    """How many records there are, where they went, and why some are no entries."""
    entered = {one.record for one in found.entries}
    why = Counter(one.why for one in found.left_out)
    files = shipped(found)
    return [
        f"{len(found.records)} records: {len(entered)} in {len(found.entries)} entries, "
        f"{len(found.left_out)} left out, {len(found.lost)} lost",
        f"{len(files)} entries ship in files of {len({one.family for one in files})} families, of which "
        f"{sum(one.entry.gates for one in files)} gate; all others stand in {PAGE}",
        f"{len(floors.entries())} floors of {sum(cell.share is not None for cell in floors.cells())} cells",
        *(f"left out: {count} × {reason}" for reason, count in sorted(why.items())),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with `--check` only tell: exit status 0, 1 where one differs, 2 where one cannot be read."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit status 1 where a file differs"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository to write to")
    options = parser.parse_args(arguments)
    try:
        found = account()
        different = outdated(options.root, found)
    except RooflineError as error:
        print(f"build: {error}", file=sys.stderr)
        return 2
    print("\n".join(summary(found)))
    wrong = [f"{record} is neither an entry nor left out" for record in found.lost]
    wrong += [str(one) for one in (*missed(found), *impossible(found))]
    wrong += [
        f"floors: {one}; expected every healthy figure to pass"
        for one in floors.left_out_one_by_one()
    ]
    if wrong:
        print("\n".join(f"build: {text}" for text in wrong), file=sys.stderr)
        return 2
    for one in different:
        print(f"{'differs' if options.check else 'written'}: {one.path.relative_to(options.root)}")
        if not options.check:
            _write(one)
    if options.check and different:
        print(f"{len(different)} files differ from what the data give; {REMEDY}")
    return 1 if options.check and different else 0


def _write(one: Outdated) -> None:
    if one.should_text is None:
        one.path.unlink()
    else:
        write_atomically(one.path, one.should_text)


if __name__ == "__main__":
    sys.exit(main())
