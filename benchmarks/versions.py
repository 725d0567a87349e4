"""What the tests said with the versions that are promised: a page of the files for JUnit that their runs wrote.

    tox run -e oldest,image
    python benchmarks/versions.py .tox/oldest/tmp .tox/image/tmp -o docs/results/versions.md
    python benchmarks/versions.py --tritons wheels -o docs/results/versions.md

The last of these writes a part of the page: what two releases of Triton make of the same kernels, by `roofline ab`, of
a folder with both wheels (`pip download triton==3.6.0 --no-deps -d wheels`) and with uv. It asks twice, without a GPU.

The name of an environment is that of tox's folder (`.tox/oldest/tmp`), or is given before the folder (`oldest=FOLDER`).
A test that stands in several files of a folder counts as in the one that was begun last.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parts import comments, part_of, with_part

from pytest_roofline.baselines.exact import figure_changes
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.rows import KERNEL

ROOT = Path(__file__).resolve().parents[1]
WORST_FIRST = ("error", "failure", "skipped", "passed")
# What stands in the first table; all others are named below it.
SHOWN = ("python", "torch", "triton", "numpy")
TITLE = """# The versions that are promised, tried

{conclusion}

`oldest` has the lowest version of every package that `pyproject.toml` names, `image` what a GPU image holds.
`tox run -e oldest,image` runs the tests with them, and `benchmarks/versions.py` made this page of the files for JUnit
that came out. A test that stands in several of these files counts as in the one that was begun last.

**Why torch 2.10.** It is the newest that PyPI has for a V100: `torch._C._cuda_getArchFlags()` of its wheel (2.10.0,
CUDA 12.8) names `sm_70`, that of 2.11.0 (CUDA 13.0) begins with `sm_75`. PyTorch decided so for 2.11
([172352](https://github.com/pytorch/pytorch/issues/172352), [172663](https://github.com/pytorch/pytorch/issues/172663)).
Its builds for CUDA 12.6, which are not on PyPI, keep Volta up to 2.14
([190355](https://github.com/pytorch/pytorch/issues/190355)) and end with 2.15
([190385](https://github.com/pytorch/pytorch/issues/190385)). torch 2.10 asks for Triton 3.6, which still compiles for
`sm_70`, without the matrix instructions that Triton gave up in 3.2
([5066](https://github.com/triton-lang/triton/pull/5066)): it copies memory by Triton, and attention is refused."""


# By which the page knows the part on compilers.
PART = "benchmarks/versions.py --tritons"
# Two targets, forward and backward: half a minute a side on a quiet machine of two cores.
KERNELS = "flash_resources and (sm_90 or gfx942) and bf16-d64-causal"
MOST_S = 300.0


@dataclass(frozen=True, slots=True)
class Test:
    """What one test said: `passed`, `skipped`, `failure` or `error`, with the first line of its reason."""

    file: str
    name: str
    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """The tests of one environment: which versions it had, from which day to which they ran, and what they said."""

    name: str
    versions: dict[str, str]
    days: tuple[str, str]
    tests: list[Test]


def read_environment(name: str, folder: Path) -> Tried:
    """All files for JUnit in a folder.

    Raises:
        SystemExit: there is none, one does not say its versions, or two ran with different ones.
    """
    suites = [
        (path, suite)
        for path in folder.glob("*.xml")
        for suite in ElementTree.parse(path).iter("testsuite")
    ]
    suites.sort(key=lambda pair: pair[1].get("timestamp", ""))
    if not suites:
        sys.exit(
            f"{name}: found no file for JUnit in {folder}; expected those of `tox run -e {name}`"
        )
    versions: dict[str, str] = {}
    latest: dict[tuple[str, str], Test] = {}
    for path, suite in suites:
        told = {node.get("name", ""): node.get("value", "") for node in suite.iter("property")}
        if missing := [package for package in SHOWN if package not in told]:
            sys.exit(
                f"{path}: says no version of {', '.join(missing)}; expected a run of tests/, which says them"
            )
        if versions and told != versions:
            other = sorted({key for key, _ in told.items() ^ versions.items()})
            told_apart = [
                f"{key} {told.get(key, 'none')}, not {versions.get(key, 'none')}" for key in other
            ]
            sys.exit(
                f"{path}: ran with other versions than the files before it: {'; '.join(told_apart)}"
            )
        versions = told
        latest |= tests_of(suite)
    days = [suite.get("timestamp", "")[:10] for _, suite in suites]
    return Tried(name, versions, (days[0], days[-1]), list(latest.values()))


def tests_of(suite: ElementTree.Element) -> dict[tuple[str, str], Test]:
    """The tests of a file by their address; one that also fails in its teardown stands there twice."""
    found: dict[tuple[str, str], Test] = {}
    for node in suite.iter("testcase"):
        told = {kind: node.find(kind) for kind in WORST_FIRST}
        outcome = next((kind for kind, child in told.items() if child is not None), "passed")
        child = told.get(outcome)
        lines = (child.get("message") or "").splitlines() if child is not None else []
        # A file that was skipped whole has its name in place of a test's.
        owner, name = node.get("classname") or node.get("name", ""), node.get("name", "")
        test = Test(file_of(owner), name, outcome, lines[0] if lines else "")
        before = found.get((owner, name), test)
        found[owner, name] = min(before, test, key=lambda one: WORST_FIRST.index(one.outcome))
    return found


def file_of(owner: str) -> str:
    """`tests.core.test_units.TestNames` → `tests/core/test_units.py`."""
    parts = owner.split(".")
    depth = next(
        (place for place, part in enumerate(parts, 1) if part.startswith("test_")), len(parts)
    )
    return "/".join(parts[:depth]) + ".py"


def page(environments: list[Tried], files: set[str]) -> str:
    """The whole page; `files` are those of all tests that there are, to name those that did not run."""
    rows = [
        "| | Python | torch | Triton | numpy | run | passed | failed | skipped |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for tried in environments:
        counts = counted(tried.tests)
        when = " to ".join(dict.fromkeys(tried.days))
        rows.append(
            table_row(f"`{tried.name}`", *(tried.versions[name] for name in SHOWN), when, *counts)
        )
    sections = (section(tried, files) for tried in environments)
    place = "\n\n".join(comments(PART))
    counts = {tried.name: counted(tried.tests) for tried in environments}
    title = TITLE.format(conclusion=conclusion(counts))
    return "\n\n".join([title, "\n".join(rows), *sections, place]) + "\n"


def conclusion(counts: dict[str, tuple[int, int, int]]) -> str:
    """Return the sentence that the page begins with, of tests that passed, failed and were skipped by environment."""
    parts = [
        f"{failed} of {passed + failed:,} with `{name}`"
        for name, (passed, failed, _) in counts.items()
    ]
    return f"Of the tests that ran, {' and '.join(parts)} failed."


def section(tried: Tried, files: set[str]) -> str:
    """One environment: its other packages, its tests by folder, what failed, what was skipped and what did not run."""
    others = [f"{name} {version}" for name, version in tried.versions.items() if name not in SHOWN]
    folders = sorted({folder_of(test.file) for test in tried.tests})
    table = ["| tests | passed | failed | skipped |", "|---|---|---|---|"]
    table += [
        table_row(
            f"`{folder}`", *counted([one for one in tried.tests if folder_of(one.file) == folder])
        )
        for folder in folders
    ]
    parts = [f"## {tried.name}", f"Beside these: {', '.join(others)}.", "\n".join(table)]
    if failed := [one for one in tried.tests if one.outcome in ("failure", "error")]:
        lines = [f"* `{one.file}::{one.name}`: {one.reason}" for one in failed]
        parts += ["Failed:", "\n".join(lines)]
    reasons = Counter(one.reason for one in tried.tests if one.outcome == "skipped")
    if reasons:
        lines = [f"* {count} × {reason}" for reason, count in reasons.most_common()]
        parts += ["Skipped:", "\n".join(lines)]
    ran = {one.file for one in tried.tests}
    missing = Counter(folder_of(file) for file in files - ran)
    told = [f"{count} of `{folder}`" for folder, count in sorted(missing.items())]
    parts.append(f"Files of tests that did not run: {', '.join(told) or 'none'}.")
    return "\n\n".join(parts)


def counted(tests: list[Test]) -> tuple[int, int, int]:
    """How many passed, failed (errors of fixtures included) and were skipped."""
    by = Counter(test.outcome for test in tests)
    return by["passed"], by["failure"] + by["error"], by["skipped"]


def folder_of(file: str) -> str:
    """`tests/core/test_units.py` → `tests/core`; what lies deeper belongs there too."""
    return "/".join(file.split("/")[:-1][:2])


def table_row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


@dataclass(frozen=True, slots=True)
class Answer:
    """What `roofline ab` told of two compilers, as a program reads it, and how long that took."""

    facts: dict[str, Any]
    seconds: float

    @property
    def figures(self) -> list[tuple[str, ...]]:
        """Every figure that differs: kernel, target, figure, both values, and how it is judged."""
        return [
            (
                row["label"],
                row["target"],
                change.figure,
                f"{change.before}",
                f"{change.after}",
                change.verdict,
            )
            for row in self.facts["tests"]
            if row["metric"] == KERNEL
            for change in figure_changes(row["baseline_figures"], row["figures"], {})
        ]


def versions_in(wheels: Path) -> tuple[str, str]:
    """Return the versions of the two Tritons whose wheels a folder holds, the older first.

    Raises:
        SystemExit: it holds more or fewer.
    """
    names = sorted({path.name.split("-")[1] for path in wheels.glob("triton-*.whl")}, key=_number)
    if len(names) != 2:
        sys.exit(
            f"{wheels}: has wheels of Triton {', '.join(names) or 'none'}; expected two versions"
        )
    return names[0], names[1]


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def compare(wheels: Path, older: str, newer: str) -> Answer:
    """Compile the kernels with both Tritons of a folder of wheels.

    Raises:
        SystemExit: the command cannot tell.
    """
    environ = os.environ | {"UV_FIND_LINKS": str(wheels.resolve()), "UV_NO_INDEX": "1"}
    command = [str(Path(sys.executable).parent / "roofline"), "ab", "--json"]
    sides = [f"with:triton=={older}", f"with:triton=={newer}"]
    tests = ["--", "perf_tests", "-p", "no:cacheprovider", "-k", KERNELS]
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        done = subprocess.run(
            [*command, f"--dir={folder}", *sides, *tests],
            cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - began_s
    if done.returncode not in (0, 1):
        sys.exit(f"roofline ab ended with status {done.returncode}; expected 0 or 1")
    return Answer(json.loads(done.stdout), seconds)


def tritons_part(older: str, newer: str, first: Answer, second: Answer) -> str:
    """Return the part of the page on two compilers, which says whether both answers are the same."""
    same = "the same answer" if first.figures == second.figures else "**another answer**"
    times = " and ".join(f"{each.seconds:.0f} s" for each in (first, second))
    kept = "" if max(first.seconds, second.seconds) <= MOST_S else f", **over {MOST_S:.0f} s**"
    lines = [
        "## Two releases of Triton",
        "",
        f"`roofline ab with:triton=={older} with:triton=={newer} -- perf_tests -k '{KERNELS}'`, asked twice on",
        f"{os.cpu_count()} cores without a GPU, gave {same} after {times}{kept}: {first.facts['sentence']}.",
        f"A is Triton {older}, B Triton {newer}. What no word stands behind is shown and never judged.",
        "",
        table_row("kernel", "target", "figure", "A", "B", "B is"),
        "|---|---|---|---:|---:|---|",
        *(table_row(f"`{label}`", *cells) for label, *cells in first.figures),
    ]
    return "\n".join([*lines, *(f"\n* {note}" for note in first.facts["notes"])])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="*", metavar="[NAME=]FOLDER", help="the files for JUnit of an environment"
    )
    parser.add_argument(
        "--tritons",
        type=Path,
        metavar="WHEELS",
        help="a folder with wheels of two Tritons to compare",
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    options = parser.parse_args()
    if bool(options.folders) == bool(options.tritons):
        parser.error("expected folders of environments, or --tritons")
    try:
        text, whole = _made(options)
    except BadFile as error:
        sys.exit(f"{options.output}: {error}")
    print(text)
    if options.output:
        options.output.write_text(whole, encoding="utf-8")


def _made(options: argparse.Namespace) -> tuple[str, str]:
    """Return what is new of the page, and all of the page with what another call has made of it."""
    path: Path | None = options.output
    before = path.read_text(encoding="utf-8") if path is not None and path.exists() else ""
    if options.tritons:
        if path is not None:
            # Nobody waits for a part that has no place.
            part_of(before, PART)
        older, newer = versions_in(options.tritons)
        text = tritons_part(
            older, newer, *(compare(options.tritons, older, newer) for _ in range(2))
        )
        return text, with_part(before, PART, text) if before else ""
    environments = []
    for given in options.folders:
        name, _, folder = given.rpartition("=")
        environments.append(
            read_environment(name or Path(folder).resolve().parent.name, Path(folder))
        )
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    text = page(environments, files)
    return text, with_part(text, PART, part_of(before, PART)) if before else text


if __name__ == "__main__":
    main()
