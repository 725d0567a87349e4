"""The files that a test needs to run elsewhere: itself, its conftest.py files, and what they import of the checkout."""

import ast
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from modulefinder import ModuleFinder
from pathlib import Path, PurePosixPath

from ...core.units import moment

# Here by other ways: this package's own, or what it asks for.
PROVIDED = {"pytest_roofline", "roofline_kernels", "pytest", "_pytest", "torch", *sys.stdlib_module_names}


@dataclass(slots=True)
class Sources:
    """What a test is made of.

    Args:
        files: Python files by their path from the root of the checkout.
        needs: packages of others that they import.
        newer: files that were changed after the run had begun.
        missing: why there is nothing to copy; empty where there is.
    """

    files: dict[str, str] = field(default_factory=dict)
    needs: set[str] = field(default_factory=set)
    newer: list[str] = field(default_factory=list)
    missing: str = ""


def sources_of(test_id: str, root: Path, started: str, pythonpath: Sequence[str] = ()) -> Sources:
    """Everything of a checkout that a test imports, and the conftest.py files around it.

    Args:
        test_id: as pytest calls it, from the root.
        root: pytest's root of the run, resolved.
        started: when the run began, in ISO 8601.
        pythonpath: folders that pytest imports from too, relative to the root.
    """
    name = PurePosixPath(test_id.partition("::")[0])
    if name.is_absolute() or ".." in name.parts or not (root / name).is_file():
        return Sources(missing=f"{name} is not below {root}")
    folders = [root.joinpath(*name.parts[:depth]) for depth in range(len(name.parts))]
    starts = [root, *(root / one for one in pythonpath), folders[-1]]
    # Of what lies above the root there is no place for a copy.
    within = [str(folder) for folder in starts if folder.resolve().is_relative_to(root)]
    starting = [root / name, *(folder / "conftest.py" for folder in folders)]
    try:
        finders = [_followed(within, root, path) for path in starting if path.is_file()]
    except (SyntaxError, ValueError, OSError) as error:
        return Sources(missing=f"{name}, or what it imports, cannot be read as Python: {error}")
    return _found(finders, root, started)


def _followed(within: list[str], root: Path, path: Path) -> ModuleFinder:
    """A file as pytest imports it, within its packages or by itself, and what it imports of some folders."""
    finder = ModuleFinder(within)
    if (path.parent / "__init__.py").is_file() and path.parent != root:
        finder.import_hook(".".join(path.relative_to(root).with_suffix("").parts))
    else:
        finder.load_file(str(path))
    for name in _plugins(path):
        with contextlib.suppress(ImportError):
            finder.import_hook(name)
    return finder


def _plugins(path: Path) -> Iterator[str]:
    """Modules that a file hands pytest as `pytest_plugins`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytest_plugins":
            told = ast.literal_eval(node.value)
            yield from [told] if isinstance(told, str) else told


def _found(finders: Sequence[ModuleFinder], root: Path, started: str) -> Sources:
    found, began = Sources(), moment(started)
    files = {getattr(module, "__file__", None) for finder in finders for module in finder.modules.values()}
    for path in sorted(map(Path, filter(None, files))):
        relative = path.relative_to(root).as_posix()
        found.files[relative] = path.read_text(encoding="utf-8")
        if began is not None and datetime.fromtimestamp(path.stat().st_mtime, UTC) > began:
            found.newer.append(relative)
    found.needs = {name.partition(".")[0] for finder in finders for name in finder.badmodules} - PROVIDED
    return found
