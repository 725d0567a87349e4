"""The files that a test needs to run elsewhere: itself, its conftest.py files, and what they import of the checkout."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from ...core.units import moment

# Here by other ways: this package's own, or what it asks for.
PROVIDED = {"pytest_roofline", "roofline_kernels", "pytest", "_pytest", "torch"}
# A relative path with an ending, as people write it into a program.
_LIKE_A_FILE = re.compile(r"[\w.-][\w./ -]{0,200}\.\w{1,10}")


@dataclass(slots=True)
class Sources:
    """What a test is made of.

    Args:
        files: Python files by their path from the root of the checkout.
        needs: packages of others that they import.
        newer: files that were changed after the run had begun.
        data: files beside them that they name in a string, and that are no Python: not copied.
        missing: why there is nothing to copy; empty where there is.
    """

    files: dict[str, str] = field(default_factory=dict)
    needs: set[str] = field(default_factory=set)
    newer: list[str] = field(default_factory=list)
    data: set[str] = field(default_factory=set)
    missing: str = ""


def sources_of(test_id: str, root: Path, started: str, pythonpath: Sequence[str] = ()) -> Sources:
    """Everything of a checkout that a test needs.

    Args:
        test_id: as pytest calls it, from the root.
        root: pytest's root of the run.
        started: when the run began, in ISO 8601.
        pythonpath: folders that pytest imports from too, relative to the root.
    """
    name = PurePosixPath(test_id.partition("::")[0])
    if name.is_absolute() or ".." in name.parts or not (root / name).is_file():
        return Sources(missing=f"{name} is not below {root}")
    found, began = Sources(), moment(started)
    # Of what lies above the root there is no place for a copy.
    starts = [folder for folder in (root, *(root / one for one in pythonpath)) if folder.resolve().is_relative_to(root)]
    todo = [root / name, *_around(root, root / name)]
    while todo:
        path = todo.pop()
        relative = path.relative_to(root).as_posix()
        if relative in found.files:
            continue
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as error:
            return Sources(missing=f"{relative} cannot be read as Python: {error}")
        found.files[relative] = text
        if began is not None and datetime.fromtimestamp(path.stat().st_mtime, UTC) > began:
            found.newer.append(relative)
        for dotted in _imports(tree, PurePosixPath(relative)):
            files = _resolved(dotted, (*starts, path.parent))
            if files:
                todo += files
            else:
                found.needs |= _foreign(dotted)
        found.data |= _data(tree, root, path.parent)
    found.newer.sort()
    return found


def _around(root: Path, path: Path) -> Iterator[Path]:
    """The conftest.py and __init__.py files from the root down to a test."""
    folder = path.parent
    while True:
        yield from (folder / name for name in ("conftest.py", "__init__.py") if (folder / name).is_file())
        if folder == root:
            return
        folder = folder.parent


def _imports(tree: ast.AST, relative: PurePosixPath) -> Iterator[str]:
    """Dotted names that a file imports, relative ones from the root; `from a import b` gives a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = relative.parts[: len(relative.parts) - node.level] if node.level else ()
            base = ".".join([*around, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and _is_import(node.func):
            yield from _literals(node.args[0])
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "pytest_plugins" for target in targets):
                yield from _literals(node.value)


def _is_import(function: ast.expr) -> bool:
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return called in ("import_module", "importorskip")


def _literals(node: ast.expr) -> Iterator[str]:
    """Names of modules in one string, or in a list of them."""
    for inner in node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]:
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.strip("."):
            yield inner.value


def _data(tree: ast.AST, root: Path, beside: Path) -> set[str]:
    """Files of the checkout, no Python, that a string names from the root or from the file's folder."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _LIKE_A_FILE.fullmatch(node.value):
            files = [folder / node.value for folder in (beside, root)]
            found |= {file.resolve() for file in files if file.is_file()}
    return {file.relative_to(root).as_posix() for file in found if file.is_relative_to(root) and file.suffix != ".py"}


def _resolved(dotted: str, starts: Sequence[Path]) -> list[Path]:
    """The files of the checkout that a dotted name is loaded from, packages around it included."""
    parts = dotted.split(".")
    if parts[0] in PROVIDED or parts[0] in sys.stdlib_module_names:
        return []
    for start in dict.fromkeys(starts):
        found = []
        for length in range(1, len(parts) + 1):
            module = start.joinpath(*parts[:length])
            candidates = (module.with_suffix(".py"), module / "__init__.py")
            found += [candidate for candidate in candidates if candidate.is_file()]
        if found:
            return found
    return []


def _foreign(dotted: str) -> set[str]:
    name = dotted.partition(".")[0]
    return set() if name in PROVIDED or name in sys.stdlib_module_names else {name}
