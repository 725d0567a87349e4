"""Python files without names: the values of strings, and comments, are rewritten; code is not."""

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator

from .redacting import Redactor

_OPENING, _CLOSING = ("FSTRING_START", "TSTRING_START"), ("FSTRING_END", "TSTRING_END")
# Stands for the value before a part of a formatted string, behind which no path begins.
_VALUE = "}"

# Where in the file a text stands, and what it is: comment, string, formatted.
_Piece = tuple[int, int, str]


def redacted_source(redactor: Redactor, text: str) -> str | None:
    """A file with every name in its strings and comments replaced; None where that is not possible.

    Identifiers stay, or the program would be another; a file whose identifiers name somebody cannot be given away.
    What comes out differs from the file in its strings and comments only.
    """
    try:
        with warnings.catch_warnings():
            # Of escapes that Python does not know, which are the author's.
            warnings.simplefilter("ignore")
            return _redacted(redactor, text)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        # ValueError: a null byte, or a formatted string that cannot be written in another way.
        return None


def _redacted(redactor: Redactor, text: str) -> str | None:
    tree = ast.parse(text)
    if any(redactor.text(name) != name for name in _identifiers(tree)):
        return None
    parts, position = [], 0
    for start, end, kind in _pieces(text):
        parts += [text[position:start], _REWRITE[kind](redactor, text[start:end])]
        position = end
    redacted = "".join(parts) + text[position:]
    return redacted if _shape(ast.parse(redacted)) == _shape(tree) else None


def _identifiers(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node) if not isinstance(node, ast.Constant) else ():
            names = value if isinstance(value, list) else [value]
            found |= {part for name in names if isinstance(name, str) for part in name.split(".")}
    return found


def _pieces(text: str) -> Iterator[_Piece]:
    """Comments and strings in order; a formatted one is whole, whichever Python reads it."""
    starts = [0]
    for line in io.StringIO(text, newline=""):
        starts.append(starts[-1] + len(line))
    depth, begun = 0, 0
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        kind = tokenize.tok_name[token.type]
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        if kind in _OPENING:
            begun = begun if depth else start
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
            if not depth:
                yield begun, end, "formatted"
        elif not depth and kind == "COMMENT":
            yield start, end, "comment"
        elif not depth and kind == "STRING":
            prefix = token.string.partition(token.string[-1])[0].lower()
            yield start, end, "formatted" if "f" in prefix else "string"


def _string(redactor: Redactor, literal: str) -> str:
    value = ast.literal_eval(literal)
    redacted = _value(redactor, value)
    if redacted == value:
        return literal
    # As it was written, where that means the same.
    quote = literal[-1] * (3 if literal.endswith(literal[-1] * 3) and len(literal) > 5 else 1)
    prefix = literal.partition(quote)[0]
    shown = redacted.decode(errors="replace") if isinstance(redacted, bytes) else redacted
    written = f"{prefix}{quote}{shown}{quote}"
    try:
        return written if ast.literal_eval(written) == redacted else repr(redacted)
    except (SyntaxError, ValueError):
        return repr(redacted)


def _value(redactor: Redactor, value: str | bytes, behind: str = "") -> str | bytes:
    if isinstance(value, str):
        return redactor.text(behind + value).removeprefix(behind)
    return redactor.text(value.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _formatted(redactor: Redactor, literal: str) -> str:
    # In brackets, as some span lines.
    tree = ast.parse(f"({literal})", mode="eval")
    changed = False
    for node in ast.walk(tree):
        members = node.values if isinstance(node, ast.JoinedStr) else list(ast.iter_child_nodes(node))
        for before, member in zip([None, *members], members, strict=False):
            if isinstance(member, ast.Constant) and isinstance(member.value, str | bytes):
                behind = _VALUE if isinstance(node, ast.JoinedStr) and before is not None else ""
                value = _value(redactor, member.value, behind)
                changed |= value != member.value
                member.value = value
    return ast.unparse(tree) if changed else literal


def _comment(redactor: Redactor, comment: str) -> str:
    return redactor.text(comment)


_REWRITE = {"comment": _comment, "string": _string, "formatted": _formatted}


def _shape(tree: ast.AST) -> str:
    """A program without what its strings say."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            node.value, node.kind = type(node.value)(), None
    return ast.dump(tree)
