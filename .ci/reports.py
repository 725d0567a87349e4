"""What the JUnit files of `.ci/run` say: of the fast tests with the tools hidden, and of the slow ones with them.

* `python .ci/reports.py skipped FAST` prints the tests that were skipped, a line each, as pytest takes them;
* `python .ci/reports.py check FAST SLOW` fails unless every test passed, in FAST or, where that skipped it, in SLOW.
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


def flaws(fast: list[tuple[Case, str]], slow: list[tuple[Case, str]]) -> list[str]:
    """What is wrong, a sentence each; nothing where every test has passed once."""
    skipped = {case for case, outcome in fast if outcome == "skipped"}
    passed = {case for case, outcome in [*fast, *slow] if outcome == "passed"}
    found = []
    if not skipped:
        found.append(
            "no test was skipped while the tools were hidden; expected those that start one"
        )
    found += [
        f"no test of {path} passed"
        for dotted, path in dotted_files().items()
        if not any_of(dotted, passed)
    ]
    bad = [(case, outcome) for case, outcome in fast if outcome not in ("passed", "skipped")]
    bad += [(case, outcome) for case, outcome in slow if outcome != "passed"]
    found += [f"{outcome}: {address(case)}" for case, outcome in bad]
    found += [
        f"skipped, and not run again: {address(case)}"
        for case in sorted(skipped - {case for case, _ in slow})
    ]
    return found


def any_of(dotted: str, cases: set[Case]) -> bool:
    """Whether one of the tests is of a file."""
    return any(f"{name}.".startswith(f"{dotted}.") for name, _ in cases)


def main(task: str, *reports: Path) -> str | None:
    """Do what is asked; what is wrong, if anything."""
    fast, *others = map(outcomes, reports)
    if task == "skipped":
        for case, outcome in fast:
            if outcome == "skipped":
                print(address(case))
        return None
    (slow,) = others
    if found := flaws(fast, slow):
        return "\n".join(
            ["not every test has passed, though CI has every tool that a test needs:", *found]
        )
    before = [outcome for _, outcome in fast].count("passed")
    print(
        f"{before} tests passed without the tools, {len(slow)} with them, of {len(dotted_files())} files"
    )
    return None


if __name__ == "__main__":
    task, *paths = sys.argv[1:]
    sys.exit(main(task, *map(Path, paths)))
