"""The two stages of the tests in CI: on a machine without launchers and browser, and then with them what was skipped.

python .ci/stages.py skipped BARE EQUIPPED   writes what BARE skipped, as arguments of pytest, to EQUIPPED/*.txt
python .ci/stages.py check BARE EQUIPPED     fails unless every test of every file has passed in one of the two
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

RUNS = ("others", "serial")
BAD = ("failure", "error", "skipped")


def cases(folder: Path, run: str) -> Iterator[ElementTree.Element]:
    """The tests of one run; none where it had nothing to do."""
    path = folder / f"{run}.xml"
    if path.exists():
        yield from ElementTree.parse(path).getroot().iter("testcase")


def node_id(case: ElementTree.Element) -> str:
    """A test as pytest takes it as an argument; of a file that was skipped as a whole, the file."""
    parts = (case.get("classname") or "").split(".")
    if parts == [""]:
        # The name of a module that was skipped while it was collected.
        return f"{(case.get('name') or '').replace('.', '/')}.py"
    for count in range(len(parts), 0, -1):
        path = Path(*parts[:count]).with_suffix(".py")
        if path.is_file():
            return "::".join([str(path), *parts[count:], case.get("name") or ""])
    sys.exit(f"{case.get('classname')} is in no file of this checkout")


def write_skipped(bare: Path, equipped: Path) -> None:
    """Write what is to be run again."""
    for run in RUNS:
        skipped = [node_id(case) for case in cases(bare, run) if case.find("skipped") is not None]
        (equipped / f"{run}.txt").write_text("".join(f"{one}\n" for one in skipped), encoding="utf-8")
        print(f"{len(skipped)} tests of {run} were skipped without launchers and browser")


def check(bare: Path, equipped: Path) -> None:
    """Fail where a test did not pass in either stage, where a file ran none, or where a stage ran nothing."""
    first = [case for run in RUNS for case in cases(bare, run)]
    again = [case for run in RUNS for case in cases(equipped, run)]
    passed = {node_id(case) for case in (*first, *again) if all(case.find(kind) is None for kind in BAD)}
    seen = {node_id(case) for case in (*first, *again)}
    bad = sorted(one for one in seen - passed if not _whole_file_ran(one, passed))
    bad += [f"again: {node_id(case)}" for case in again if any(case.find(kind) is not None for kind in BAD)]
    ran = {one.partition("::")[0] for one in passed}
    missing = sorted(str(path) for path in Path("tests").rglob("test_*.py") if str(path) not in ran)
    if not all(any(cases(bare, run)) for run in RUNS) or missing or bad:
        counts = f"{len(first)} tests, {len(again)} of them again"
        sys.exit(f"{counts}; files of which none ran: {missing}; not passed: {bad}; expected all, CI has every tool")
    print(f"{len(passed)} tests passed, of {len(ran)} files, {len(again)} of them with launchers and browser")
    # The closing line of all stages, for whoever reads only that.
    print(f"{len(passed)} passed, 0 failed")


def _whole_file_ran(one: str, passed: set[str]) -> bool:
    """Whether this is a file that was skipped as a whole first, and whose tests passed then."""
    return "::" not in one and any(other.startswith(f"{one}::") for other in passed)


if __name__ == "__main__":
    {"skipped": write_skipped, "check": check}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
