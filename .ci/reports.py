"""Readings of the JUnit files of `.ci/run`: of the fast tests with the tools hidden, and of the slow ones with them.

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
    """Return every test of a report, with `passed`, `failure`, `error` or `skipped`.

    A test that also fails in its teardown is there twice.
    """
    rows = []
    for node in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = [kind for kind in ("failure", "error", "skipped") if node.find(kind) is not None]
        rows.append(((node.get("classname", ""), node.get("name", "")), (kinds or ["passed"])[0]))
    return rows


def dotted_files() -> dict[str, Path]:
    """Return the files of tests, by their names in a report."""
    return {".".join(path.with_suffix("").parts): path for path in sorted(TESTS.rglob("test_*.py"))}


def address(case: Case) -> str:
    """Return the words that name a test to pytest.

    A file that was skipped whole has its name in place of a test's.
    """
    owner, name = case if case[0] else (case[1], "")
    for dotted, path in dotted_files().items():
        if f"{owner}.".startswith(f"{dotted}."):
            return "::".join(
                filter(None, [path.as_posix(), *owner.removeprefix(dotted).split("."), name])
            )
    return "::".join(filter(None, case))


def flaws(fast: list[tuple[Case, str]], slow: list[tuple[Case, str]]) -> list[str]:
    """Return a sentence for each flaw; none where every test has passed once."""
    skipped = {case for case, outcome in fast if outcome == "skipped"}
    passed = {case for case, outcome in [*fast, *slow] if outcome == "passed"}
    sentences = []
    if not skipped:
        sentences.append(
            "no test was skipped while the tools were hidden; expected those that start one"
        )
    sentences += [
        f"no test of {path} passed"
        for dotted, path in dotted_files().items()
        if not any_of(dotted, passed)
    ]
    bad = [(case, outcome) for case, outcome in fast if outcome not in ("passed", "skipped")]
    bad += [(case, outcome) for case, outcome in slow if outcome != "passed"]
    sentences += [f"{outcome}: {address(case)}" for case, outcome in bad]
    sentences += [
        f"skipped, and not run again: {address(case)}"
        for case in sorted(skipped - {case for case, _ in slow})
    ]
    return sentences


def any_of(dotted: str, cases: set[Case]) -> bool:
    """Return whether one of the tests is of a file."""
    return any(f"{name}.".startswith(f"{dotted}.") for name, _ in cases)


def main(task: str, *reports: Path) -> str | None:
    """Do a task on reports, and return the flaws, if there are any."""
    fast, *later = map(outcomes, reports)
    if task == "skipped":
        for case, outcome in fast:
            if outcome == "skipped":
                print(address(case))
        return None
    (slow,) = later
    if sentences := flaws(fast, slow):
        return "\n".join(
            ["not every test has passed, though CI has every tool that a test needs:", *sentences]
        )
    before = [outcome for _, outcome in fast].count("passed")
    print(
        f"{before} tests passed without the tools, {len(slow)} with them, of {len(dotted_files())} files"
    )
    return None


if __name__ == "__main__":
    task, *paths = sys.argv[1:]
    sys.exit(main(task, *map(Path, paths)))
