"""What the JUnit files of `.ci/run` say, of tests that ran with the tools hidden (first) and with them (slow).

* `python .ci/reports.py skipped FOLDER` prints the tests that were skipped in FOLDER's first-*.xml, a line each, as
  pytest takes them;
* `python .ci/reports.py check FOLDER` fails unless every test passed in FOLDER's first-*.xml or slow-*.xml.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

Case = tuple[str, str]
"""The dotted path of a file and class, and the name of a test in it."""
TESTS = Path("tests")


def outcomes(report: Path) -> list[tuple[Case, str]]:
    """Every test of a report, with `passed`, `failure`, `error` or `skipped`; a test that also fails in its teardown is
    there twice.
    """
    found = []
    for node in ElementTree.parse(report).getroot().iter("testcase"):
        told = [kind for kind in ("failure", "error", "skipped") if node.find(kind) is not None]
        found.append(((node.get("classname", ""), node.get("name", "")), (told or ["passed"])[0]))
    return found


def dotted_files() -> dict[str, Path]:
    """The files of tests, by their names in a report."""
    return {".".join(path.with_suffix("").parts): path for path in sorted(TESTS.rglob("test_*.py"))}


def address(case: Case) -> str:
    """What pytest takes for a test; a file that was skipped whole has its name in place of a test's."""
    owner, name = case if case[0] else (case[1], "")
    for dotted, path in dotted_files().items():
        if f"{owner}.".startswith(f"{dotted}."):
            return "::".join(
                filter(None, [path.as_posix(), *owner.removeprefix(dotted).split("."), name])
            )
    return "::".join(filter(None, case))


def flaws(first: dict[str, list[tuple[Case, str]]], again: list[tuple[Case, str]]) -> list[str]:
    """What is wrong, a sentence each; nothing where every test has passed once."""
    cases = [pair for pairs in first.values() for pair in pairs]
    skipped = {case for case, outcome in cases if outcome == "skipped"}
    passed = {case for case, outcome in [*cases, *again] if outcome == "passed"}
    found = [f"{name} holds no test" for name, pairs in first.items() if not pairs]
    if not skipped:
        found.append(
            "no test was skipped while the tools were hidden; expected those that start one"
        )
    found += [
        f"no test of {path} passed"
        for dotted, path in dotted_files().items()
        if not any_of(dotted, passed)
    ]
    bad = [(case, outcome) for case, outcome in cases if outcome not in ("passed", "skipped")]
    bad += [(case, outcome) for case, outcome in again if outcome != "passed"]
    found += [f"{outcome}: {address(case)}" for case, outcome in bad]
    found += [
        f"skipped, and not run again: {address(case)}"
        for case in sorted(skipped - {case for case, _ in again})
    ]
    return found


def any_of(dotted: str, cases: set[Case]) -> bool:
    """Whether one of the tests is of a file."""
    return any(f"{name}.".startswith(f"{dotted}.") for name, _ in cases)


def main(task: str, folder: Path) -> str | None:
    """Do what is asked; what is wrong, if anything."""
    first = {path.name: outcomes(path) for path in sorted(folder.glob("first-*.xml"))}
    if task == "skipped":
        for pairs in first.values():
            for case, outcome in pairs:
                if outcome == "skipped":
                    print(address(case))
        return None
    again = [pair for path in sorted(folder.glob("slow-*.xml")) for pair in outcomes(path)]
    if found := flaws(first, again):
        return "\n".join(
            ["not every test has passed, though CI has every tool that a test needs:", *found]
        )
    before = [outcome for pairs in first.values() for _, outcome in pairs].count("passed")
    print(
        f"{before} tests passed without the tools, {len(again)} with them, of {len(dotted_files())} files"
    )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
