"""The files of an archive: a test, its conftest.py files and what they import, without names; and this package."""

import ast
import base64
import configparser
import hashlib
import importlib.util
import io
import re
import sys
import tokenize
import tomllib
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import distribution
from itertools import accumulate
from pathlib import Path, PurePosixPath

from ..core.units import moment
from .redacting import Redactor

# Here by other ways: this package's own, or what it asks for.
PROVIDED = {
    "pytest_roofline",
    "roofline_kernels",
    "pytest",
    "_pytest",
    "torch",
    *sys.stdlib_module_names,
}
# As pytest looks for its settings: the file, and the part of it that is pytest's.
_FILES = (("pytest.ini", "pytest"), (".pytest.ini", "pytest"), ("pyproject.toml", ""), ("tox.ini", "pytest"),
          ("setup.cfg", "tool:pytest"))  # fmt: skip
# What changes how a measurement is taken, wherever it is taken.
MEASURING = (
    "roofline_budget",
    "roofline_launcher",
    "roofline_rank_timeout",
    "roofline_boot_timeout",
)
_KEPT = ("pythonpath", "python_files", "python_classes", "python_functions", "markers", *MEASURING)
TOP, PACKAGE = "roofline-bundle", "pytest-roofline"
_WHEEL = (
    "Wheel-Version: 1.0\nGenerator: roofline bundle\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
)


# A string of Python: what stands before its value, and the quotes behind it.
_QUOTED = re.compile(r"(\w*(\"\"\"|'''|\"|'))(.*)\2", re.DOTALL)


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
    """Everything below a resolved root that a test of it imports, and the conftest.py files around it."""
    name = PurePosixPath(test_id.partition("::")[0])
    if name.is_absolute() or ".." in name.parts or not (root / name).is_file():
        return Sources(missing=f"{name} is not below {root}")
    around = [root.joinpath(*name.parts[:depth], "conftest.py") for depth in range(len(name.parts))]
    starting = [root / name, *(path for path in around if path.is_file())]
    folders = [
        *(_base(path, root) for path in starting),
        root,
        *((root / one).resolve() for one in pythonpath),
    ]
    found = Sources()
    try:
        _follow(
            starting, [folder for folder in folders if folder.is_relative_to(root)], root, found
        )
    except (SyntaxError, ValueError, OSError) as error:
        return Sources(missing=f"{name}, or what it imports, cannot be read as Python: {error}")
    began = moment(started)
    changed = {
        name: datetime.fromtimestamp((root / name).stat().st_mtime, UTC) for name in found.files
    }
    found.newer = [
        name for name, when in sorted(changed.items()) if began is not None and when > began
    ]
    return found


def _base(path: Path, root: Path) -> Path:
    """The folder that pytest imports a file from: the first one around it that is no package, at most the root."""
    return next(
        folder
        for folder in path.parents
        if folder == root or not (folder / "__init__.py").is_file()
    )


def _follow(paths: Sequence[Path], folders: Sequence[Path], root: Path, found: Sources) -> None:
    """Take files and, from there on, what they import of some folders."""
    for path in paths:
        name = path.relative_to(root).as_posix()
        if name in found.files:
            continue
        found.files[name] = path.read_text(encoding="utf-8")
        for module in _imported(
            ast.parse(found.files[name]), path.relative_to(_base(path, root)).parent.parts
        ):
            files, known = _modules(module, folders)
            found.needs |= {module[0]} - PROVIDED if not known else set()
            _follow(files, folders, root, found)


def _imported(tree: ast.Module, package: Sequence[str]) -> Iterator[list[str]]:
    """The parts of every name that a file of a package imports, or hands pytest as `pytest_plugins`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *(node.module.split(".") if node.module else [])]
            # What is imported from a package may be a module as well as a name in it.
            yield from ([*base, alias.name] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if (
                isinstance(target, ast.Name)
                and target.id == "pytest_plugins"
                and node.value is not None
            ):
                names = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
                modules = (
                    name
                    for name in names
                    if isinstance(name, str) and name.replace(".", "_").isidentifier()
                )
                yield from (name.split(".") for name in modules)


def _modules(parts: Sequence[str], folders: Sequence[Path]) -> tuple[list[Path], bool]:
    """The files of a module and of the packages around it, in the first folder that has any; and whether one has."""
    for folder in folders:
        steps = [folder.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
        candidates = [
            path for step in steps for path in (step / "__init__.py", step.with_suffix(".py"))
        ]
        files = [path for path in candidates if path.is_file()]
        if files:
            return files, True
    return [], False


def pytest_settings(root: Path) -> dict[str, str]:
    """The settings of the first file that pytest would read in a folder, lists line by line; empty without one."""
    for name, section in _FILES:
        try:
            found = _section((root / name).read_text(encoding="utf-8"), section)
        except (OSError, ValueError, configparser.Error):
            continue
        if found is not None or name.endswith("pytest.ini"):
            return found or {}
    return {}


def _section(text: str, section: str) -> dict[str, str] | None:
    """The part of an ini file, or pytest's of a pyproject.toml where `section` is empty; None where it is not there."""
    if section:
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(text)
        return dict(parser[section]) if parser.has_section(section) else None
    told = tomllib.loads(text).get("tool", {}).get("pytest", {}).get("ini_options")
    lists = {
        name: value if isinstance(value, list) else [value] for name, value in (told or {}).items()
    }
    return (
        None
        if told is None
        else {name: "\n".join(map(str, value)) for name, value in lists.items()}
    )


def kept_settings(settings: dict[str, str]) -> str:
    """A `pytest.ini` for the copied tests: it makes their folder pytest's root, and has what they need of it."""
    kept = {
        name: settings[name].strip().replace("\n", "\n    ") for name in _KEPT if name in settings
    }
    return "\n".join(["[pytest]", *(f"{name} = {value}" for name, value in kept.items())]) + "\n"


def redacted_source(redactor: Redactor, text: str) -> str | None:
    """A Python file with the names in its strings and comments replaced; None where the program would be another.

    A file whose identifiers name somebody cannot be given away.
    """
    parts, position = [], 0
    try:
        with warnings.catch_warnings():
            # Of escapes that Python does not know, which are the author's.
            warnings.simplefilter("ignore")
            for start, end, names in _pieces(text):
                piece = text[start:end]
                redacted = _redacted_piece(
                    redactor, piece, text[text.rfind("\n", 0, start) + 1 : start]
                )
                if names and redacted != piece:
                    return None
                parts += [text[position:start], redacted]
                position = end
            whole = "".join(parts) + text[position:]
            return whole if _shape(whole) == _shape(text) else None
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        return None


def _redacted_piece(redactor: Redactor, piece: str, before: str) -> str:
    """A comment, a name, or a string, of which what is assigned to a password is a secret."""
    quoted = _QUOTED.fullmatch(piece)
    if quoted is None:
        return redactor.text(piece)
    redacted = quoted[1] + redactor.text(quoted[3], before + quoted[1], quoted[2]) + quoted[2]
    return _without_escapes(redactor, redacted) if "\\" in redacted else redacted


def _without_escapes(redactor: Redactor, piece: str) -> str:
    """A string written anew where an escape hides a name, so that its text does not show it."""
    # In brackets, as some span lines.
    tree = ast.parse(f"({piece})", mode="eval")
    hidden = False
    for node in ast.walk(tree):
        members = (
            node.values if isinstance(node, ast.JoinedStr) else list(ast.iter_child_nodes(node))
        )
        for before, member in zip([None, *members], members, strict=False):
            if isinstance(member, ast.Constant) and isinstance(member.value, str | bytes):
                value = (
                    member.value.decode("latin-1")
                    if isinstance(member.value, bytes)
                    else member.value
                )
                # What stands behind a value of a formatted string is no beginning of a path.
                behind = "}" * isinstance(before, ast.FormattedValue)
                clean = redactor.text(behind + value).removeprefix(behind)
                hidden |= clean != value
                member.value = clean.encode("latin-1") if isinstance(member.value, bytes) else clean
    return ast.unparse(tree) if hidden else piece


def _pieces(text: str) -> Iterator[tuple[int, int, bool]]:
    """Where comments, strings and names stand, and whether it is a name; a formatted string is one piece."""
    starts = list(accumulate((len(line) for line in io.StringIO(text, newline="")), initial=0))
    depth, begun = 0, 0
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        kind = tokenize.tok_name[token.type]
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        if kind.endswith("STRING_START"):
            begun, depth = begun if depth else start, depth + 1
        ends = kind.endswith("STRING_END")
        depth -= ends
        if not depth and (ends or kind in ("COMMENT", "STRING", "NAME")):
            yield begun if ends else start, end, kind == "NAME"


def _shape(text: str) -> str:
    """A program without what its strings say."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            node.value, node.kind = type(node.value)(), None
    return ast.dump(tree)


def wheel() -> tuple[str, bytes]:
    """This very package as a wheel again (PEP 427), from its files as installed: its file name, and what is in it."""
    installed = distribution(PACKAGE)
    stem = f"{PACKAGE.replace('-', '_')}-{installed.version}"
    files = {
        name: data
        for package in ("pytest_roofline", "roofline_kernels")
        for name, data in _files(package)
    }
    for name in ("METADATA", "entry_points.txt"):
        files[f"{stem}.dist-info/{name}"] = (installed.read_text(name) or "").encode()
    files[f"{stem}.dist-info/WHEEL"] = _WHEEL.encode()
    record = f"{stem}.dist-info/RECORD"
    lines = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in sorted(files.items())]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    return f"{stem}-py3-none-any.whl", zipped(files, top="")


def _files(package: str) -> list[tuple[str, bytes]]:
    spec = importlib.util.find_spec(package)
    return [
        (f"{package}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        for folder in map(Path, (spec.submodule_search_locations or ()) if spec is not None else ())
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def zipped(files: Mapping[str, bytes], top: str = f"{TOP}/") -> bytes:
    """The archive of files by their path within its one folder `top`; equal contents give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            # Without a time and an owner.
            archive.writestr(zipfile.ZipInfo(f"{top}{name}"), files[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
