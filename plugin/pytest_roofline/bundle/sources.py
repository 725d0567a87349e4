"""The files that a test needs to run elsewhere: itself, its conftest.py files, and what they import of the checkout."""

import ast
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.machinery import PathFinder
from modulefinder import ModuleFinder
from pathlib import Path, PurePosixPath
from typing import Any

from ..core.units import moment

# Here by other ways: this package's own, or what it asks for.
PROVIDED = {"pytest_roofline", "roofline_kernels", "pytest", "_pytest", "torch", *sys.stdlib_module_names}
# Kinds of modules by the numbers of `modulefinder`: a folder of modules, and one that has no code to follow.
_FOLDER, _NO_CODE = 5, 3


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
    starting = [path for path in (root / name, *(folder / "conftest.py" for folder in folders)) if path.is_file()]
    starts = [root, *(root / one for one in pythonpath), *(_base(path, root) for path in starting)]
    # Of what lies above the root there is no place for a copy.
    within = [str(folder) for folder in starts if folder.resolve().is_relative_to(root)]
    try:
        finders = [_followed(within, root, path) for path in starting]
    except (SyntaxError, ValueError, OSError, ImportError, AttributeError) as error:
        return Sources(missing=f"{name}, or what it imports, cannot be read as Python: {error}")
    return _found(finders, root, started)


class _Finder(ModuleFinder):
    """Follows imports into folders without an `__init__.py` too, which the standard library's own stumbles over."""

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """What a module is loaded from, as the base class has it: an open file, the path, and what kind it is."""
        spec = PathFinder.find_spec(name, self.path if path is None else path)
        if spec is not None and spec.loader is None:
            return None, next(iter(spec.submodule_search_locations or [])), ("", "", _FOLDER)
        if spec is None and name == "__init__":
            return None, None, ("", "", _NO_CODE)
        return super().find_module(name, path, parent)


def _base(path: Path, root: Path) -> Path:
    """The folder that pytest imports a file from: the first one around it that is no package, at most the root."""
    return next(folder for folder in path.parents if folder == root or not (folder / "__init__.py").is_file())


def _followed(within: list[str], root: Path, path: Path) -> ModuleFinder:
    """A file as pytest imports it, within its packages or by itself, and what it imports of some folders."""
    base = _base(path, root)
    finder = _Finder([str(base), *within])
    if base != path.parent:
        finder.import_hook(".".join(path.relative_to(base).with_suffix("").parts))
    else:
        finder.load_file(str(path))
    for name in _plugins(path):
        with contextlib.suppress(ImportError):
            finder.import_hook(name)
    return finder


def _plugins(path: Path) -> Iterator[str]:
    """Modules that a file hands pytest as `pytest_plugins`, as far as it names them in strings."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "pytest_plugins":
            names = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
            yield from (name for name in names if isinstance(name, str) and name.replace(".", "_").isidentifier())


def _found(finders: Sequence[ModuleFinder], root: Path, started: str) -> Sources:
    found, began = Sources(), moment(started)
    modules = [
        (_top(name), getattr(module, "__file__", None) or "")
        for finder in finders
        for name, module in finder.modules.items()
    ]
    # A compiled module is no source.
    files = [(top, Path(file)) for top, file in modules if file.endswith(".py")]
    for path in sorted({path for _, path in files}):
        relative = path.relative_to(root).as_posix()
        found.files[relative] = path.read_text(encoding="utf-8")
        if began is not None and datetime.fromtimestamp(path.stat().st_mtime, UTC) > began:
            found.newer.append(relative)
    needed = {_top(name) for finder in finders for name in finder.badmodules} | {top for top, _ in modules}
    found.needs = needed - {top for top, _ in files} - PROVIDED
    return found


def _top(name: str) -> str:
    return name.partition(".")[0]
