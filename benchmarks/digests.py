"""The digest of a source, which no comment, docstring, annotation, message or name of a local variable changes.

A page of results is stale once a source of its figures has another digest. English alone must not make it stale, since
hours of a quiet machine may be needed to make it anew.
"""

import ast
import hashlib
import textwrap
from collections.abc import Iterator
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Of no effect on what is computed, or not there in every release of Python.
_LEFT_OUT = frozenset({"ctx", "kind", "returns", "type_comment", "type_params"})
# Functions and keyword arguments whose texts are for people. What an exception says is so too.
_PRINTERS = frozenset({"_tell", "error", "print", "say", "tell"})
_KEYWORDS = frozenset({"description", "help"})
_DIGITS = 12


def digest(path: Path) -> str:
    """Return 12 hexadecimal digits for a file, or for all files below a folder.

    Raises:
        FileNotFoundError: there is no such file or folder.
    """
    folder = path if path.is_dir() else path.parent
    sha = hashlib.sha256()
    for file in _files(path):
        text = (
            plain(file.read_text(encoding="utf-8")) if file.suffix == ".py" else file.read_bytes()
        )
        sha.update(f"{file.relative_to(folder).as_posix()}\n".encode())
        sha.update(text.encode() if isinstance(text, str) else text)
    return sha.hexdigest()[:_DIGITS]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(
        file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    )


def plain(code: str) -> str:
    """Return Python code without all that does not change what it computes.

    Raises:
        SyntaxError: it is no Python.
    """
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and _has_docstring(node):
            del node.body[0]
    _drop_english(tree)
    for function in _outermost(tree):
        _number_locals(function)
    return repr(_form(tree))


def _has_docstring(node: ast.Module | ast.ClassDef | Function) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _outermost(node: ast.AST) -> Iterator[Function]:
    """Yield the functions that are in no other function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child
        else:
            yield from _outermost(child)


def _number_locals(function: Function) -> None:
    """Replace the names that a function assigns.

    A name stays that is also of a parameter, which callers may write, or of a function, a class, a module or an error
    in it. Otherwise two variables of a name could not be told apart from two of different names.
    """
    numbers: dict[str, str] = {}
    identifiers = {text for node in ast.walk(function) for text in _identifiers(node)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    for name in names:
        if isinstance(name.ctx, ast.Store) and name.id not in identifiers:
            numbers.setdefault(name.id, f"local {len(numbers)}")
    for name in names:
        name.id = numbers.get(name.id, name.id)


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node gives by itself, as a parameter or an import does."""
    if isinstance(node, ast.Name | ast.Attribute | ast.keyword | ast.Constant):
        return
    for _, value in ast.iter_fields(node):
        yield from (
            text
            for text in (value if isinstance(value, list) else [value])
            if isinstance(text, str)
        )


def _drop_english(tree: ast.AST) -> None:
    """Replace the sentences in texts for people and in parts of f-strings by empty texts.

    A text that stands elsewhere, such as a selection of tests or a separator, is part of what is computed.
    """
    for node in ast.walk(tree):
        for text in _texts_for_people(node):
            if _is_sentence(text.value):
                text.value = ""


def _texts_for_people(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the texts in a node that are messages, help, or parts of an f-string."""
    if isinstance(node, ast.JoinedStr):
        yield from (part for part in node.values if isinstance(part, ast.Constant))
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        for argument in (*node.exc.args, *(keyword.value for keyword in node.exc.keywords)):
            yield from _alternatives(argument)
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for argument in node.args if name in _PRINTERS else ():
            yield from _alternatives(argument)
        for keyword in node.keywords:
            if keyword.arg in _KEYWORDS:
                yield from _alternatives(keyword.value)


def _alternatives(value: ast.expr) -> Iterator[ast.Constant]:
    """Yield the texts that an expression may be, or is joined of. The arguments of a call are none of them."""
    if isinstance(value, ast.Constant):
        yield value
    elif isinstance(value, ast.IfExp):
        yield from _alternatives(value.body)
        yield from _alternatives(value.orelse)
    elif isinstance(value, ast.BinOp):
        yield from _alternatives(value.left)
        yield from _alternatives(value.right)


def _is_sentence(value: object) -> bool:
    """Return True for a text of one line with letters and a space."""
    if not isinstance(value, str) or "\n" in value.strip():
        return False
    return any(map(str.isspace, value)) and any(map(str.isalpha, value))


def _form(value: object) -> object:
    """Return a syntax tree as tuples, alike in every release of Python."""
    if isinstance(value, list):
        return tuple(_form(item) for item in value)
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return _text(value.value)
    if not isinstance(value, ast.AST):
        return value
    fields = [
        (name, _form(item))
        for name, item in ast.iter_fields(value)
        if name not in _LEFT_OUT and item is not None and item != []
        if not (name == "annotation" and isinstance(value, ast.arg))
    ]
    return type(value).__name__, *fields


def _text(text: str) -> str:
    """Return a suite of Python in its plain form, and another text as it stands."""
    if "\n" in text.strip():
        try:
            return plain(textwrap.dedent(text))
        except (SyntaxError, ValueError):
            pass
    return text
