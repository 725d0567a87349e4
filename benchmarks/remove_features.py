"""Can each feature be taken out? Its folder, its line of registration and its tests go in a copy, and the others run.

    python benchmarks/remove_features.py                        # every feature of core/features.py, at night
    python benchmarks/remove_features.py many ab --collect-only # are the others found? a minute
    python benchmarks/remove_features.py ab --tests tests/cli tests/report

A copy is made of each checkout anew. Collecting comes first, since a test that cannot be imported needs no run of the
others. Without `--tests` these are the fast tests, as `tests/run.py` runs them. Exit status: 0 all pass, 1 some do not.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
REGISTRATION = Path("plugin/pytest_roofline/core/features.py")
# The failed tests of a feature that are named.
MOST_NAMED = 20
OK, NO_TESTS = 0, 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """The tests that remained without a feature."""

    passed: int = 0
    failures: tuple[str, ...] = ()
    # A reason beside failures, such as a process that ended early.
    trouble: str = ""

    @property
    def is_green(self) -> bool:
        """Whether all that remained passed."""
        return not self.failures and not self.trouble


def features_in(root: Path) -> list[str]:
    """Return the features of a checkout, in the order of the table of registration."""
    tree = ast.parse((root / REGISTRATION).read_text(encoding="utf-8"))
    tables = (node.value for node in tree.body if isinstance(node, ast.AnnAssign))
    (table,) = (table for table in tables if isinstance(table, ast.Dict))
    return [ast.literal_eval(key) for key in table.keys if key is not None]


def copy_checkout(root: Path, folder: Path) -> Path:
    """Copy the files of a checkout that git keeps or would keep, and return the copy."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def take_out(feature: str, root: Path) -> list[Path]:
    """Delete a feature from a checkout: folder, line of registration, tests, and the features that build on it.

    Return the deleted paths of tests.
    """
    package = root / "plugin/pytest_roofline"
    modules = {f"pytest_roofline.{feature}", *_loaded_with(feature, package)}
    shutil.rmtree(package / feature)
    built_on_it = [
        name
        for name in features_in(root)
        if any(feature in _folders_beside(path) for path in (package / name).rglob("*.py"))
    ]
    deleted = [path for name in built_on_it for path in take_out(name, root)]
    table = root / REGISTRATION
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    remaining = [line for line in lines if not line.startswith(f'    "{feature}":')]
    assert len(lines) - 1 == len(remaining), "a feature has one line of registration"
    table.write_text("".join(remaining), encoding="utf-8")
    folders = [
        path for path in (root / "tests" / feature, root / "tests/slow" / feature) if path.is_dir()
    ]
    for folder in folders:
        shutil.rmtree(folder)
    files = [
        path
        for path in sorted((root / "tests").rglob("test_*.py"))
        if any(_is_in(name, modules) for name in _imported_by(path))
    ]
    for path in files:
        path.unlink()
    return [*deleted, *folders, *files]


def _loaded_with(feature: str, package: Path) -> set[str]:
    """Return the modules of the plugin that import a feature when they are loaded."""
    return {
        f"pytest_roofline.plugin.{path.stem}"
        for path in (package / "plugin").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        and node.level == 2
        and node.module is not None
        and node.module.partition(".")[0] == feature
    }


def _imported_by(path: Path) -> list[str]:
    """Return the names that a file imports when it is loaded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [name for node in tree.body for name in _names_of(node)]


def _is_in(name: str, modules: set[str]) -> bool:
    """Return whether a dotted name is one of these modules, or lies in one."""
    return any(f"{name}.".startswith(f"{module}.") for module in modules)


def _folders_beside(path: Path) -> set[str]:
    """Return the folders beside its own that a file of the package imports from when it is loaded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        (node.module or "").partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level == 2
    }


def _names_of(node: ast.stmt) -> Iterator[str]:
    """Yield the dotted names of an import."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def try_without(
    feature: str, root: Path, tests: Sequence[str] = (), *, collect_only: bool = False
) -> Outcome:
    """Return the outcome of the tests that remain in a copy without a feature.

    Raises:
        OSError: the copy cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix=f"without-{feature}-") as name:
        copy = copy_checkout(root, Path(name) / "checkout")
        take_out(feature, copy)
        reports = Path(name) / "reports"
        reports.mkdir()
        chosen = [test for test in tests if (copy / test.partition("::")[0]).exists()]
        where = chosen or ["tests", "--ignore=tests/slow"]
        found = _run(copy, ["-m", "pytest", "--collect-only", "-q", *where])
        if found.returncode not in (OK, NO_TESTS):
            return Outcome(trouble=_last_lines(found.stdout + found.stderr))
        if collect_only:
            return Outcome()
        command = (
            ["-m", "pytest", "-q", f"--junitxml={reports / 'some.xml'}", *chosen]
            if chosen
            else ["tests/run.py", str(reports)]
        )
        ended = _run(copy, command)
        outcome = read_reports(reports)
        if ended.returncode == OK or outcome.failures:
            return outcome
        return Outcome(outcome.passed, trouble=_last_lines(ended.stdout + ended.stderr))


def _run(copy: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    # Ahead of the installed package, which is that of the whole checkout.
    paths = os.pathsep.join((str(copy / "plugin"), str(copy / "kernels")))
    environment = os.environ | {"PYTHONPATH": paths}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _last_lines(text: str, count: int = 12) -> str:
    return "\n".join(text.strip().splitlines()[-count:])


def read_reports(folder: Path) -> Outcome:
    """Return the outcome of the tests in a folder of JUnit reports."""
    passed, failures = 0, []
    for path in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failures.append(f"{case.get('classname')}::{case.get('name')}")
            elif case.find("skipped") is None:
                passed += 1
    return Outcome(passed, tuple(failures))


def lines_of(feature: str, outcome: Outcome) -> list[str]:
    """Return the row of a feature, and below it the first failures."""
    word = "green" if outcome.is_green else "RED"
    row = f"{feature:<12} {word:<6} {outcome.passed:>6} {len(outcome.failures):>6}"
    hidden = len(outcome.failures) - MOST_NAMED
    names = [*outcome.failures[:MOST_NAMED], *[f"… and {hidden} more"] * (hidden > 0)]
    return [row, *(f"    {line}" for line in [*names, *outcome.trouble.splitlines()])]


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = features_in(root)
    parser.add_argument("features", nargs="*", metavar="FEATURE", help=f"of {', '.join(names)}")
    parser.add_argument("--collect-only", action="store_true", help="run no test")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="only these tests")
    arguments = parser.parse_args(words)
    if unknown := sorted(set(arguments.features) - set(names)):
        parser.error(f"no feature {unknown[0]!r}; expected one of {', '.join(names)}")
    print(f"{'without':<12} {'':<6} {'passed':>6} {'failed':>6}")
    status = 0
    for feature in arguments.features or names:
        outcome = try_without(feature, root, arguments.tests, collect_only=arguments.collect_only)
        print("\n".join(lines_of(feature, outcome)), flush=True)
        status |= not outcome.is_green
    return status


if __name__ == "__main__":
    sys.exit(main())
