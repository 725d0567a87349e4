"""JSON whose values know where they stand, so that what is wrong with one can be refused with its line."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from ..core.errors import BadFile
from ..judging.storage import decode_json
from .refusing import refuse

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_CULPRIT = re.compile(r"\bNaN\b|-?\bInfinity\b|\d{20,}|\d+[eE]\+?\d{3,}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value in a JSON file, with the names and indices that lead to it."""

    source: str
    text: str
    value: Any
    path: tuple[str | int, ...] = ()

    @property
    def line(self) -> int:
        """The line on which the value stands, from 1."""
        return self.text.count("\n", 0, _position(self.text, self.path)) + 1

    def refuse(self, why: str) -> NoReturn:
        """Raise BadFile with the line of this value."""
        number = self.line
        where = ".".join(str(part) for part in self.path) or "the file"
        refuse(self.source, number, self.text.split("\n")[number - 1].strip(), f"{where} {why}")

    def object(self, known: frozenset[str] | None = None) -> "Node":
        """This node, where it is an object; one with other names than the known ones is refused."""
        if not isinstance(self.value, dict):
            self.refuse(f"is {_kind(self.value)}; expected an object")
        if known is not None:
            for name in self.value:
                if name not in known:
                    self[name].refuse("is not a name that this importer understands")
        return self

    def items(self) -> Iterator["Node"]:
        """The nodes of a list."""
        if not isinstance(self.value, list):
            self.refuse(f"is {_kind(self.value)}; expected a list")
        for index, value in enumerate(self.value):
            yield Node(self.source, self.text, value, (*self.path, index))

    def __getitem__(self, name: str) -> "Node":
        if name not in self.value:
            self.refuse(f"has no {name!r}")
        return Node(self.source, self.text, self.value[name], (*self.path, name))

    def get(self, name: str) -> "Node | None":
        """The node of a name; None where there is none, or it is null."""
        return self[name] if self.value.get(name) is not None else None

    def string(self) -> str:
        """A text."""
        if not isinstance(self.value, str):
            self.refuse(f"is {_kind(self.value)}; expected text")
        return str(self.value)

    def number(self, least: float = 0.0) -> float:
        """A finite number, `least` or more."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            self.refuse(f"is {_kind(self.value)}; expected a number")
        if self.value < least:
            self.refuse(f"is {self.value!r}; expected {least:g} or more")
        return float(self.value)

    def whole(self, least: int = 0) -> int:
        """A whole number, `least` or more."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.refuse(f"is {_kind(self.value)}; expected a whole number")
        if self.value < least:
            self.refuse(f"is {self.value}; expected {least} or more")
        return int(self.value)


def looks_like_json(text: str) -> bool:
    """Whether a text begins as JSON does."""
    return text.lstrip()[:1] in ("{", "[")


def root(text: str, source: str) -> Node:
    """The top of a JSON file.

    Raises:
        BadFile: not JSON, a name twice, or a number that is none; with the line where it is known.
    """
    try:
        return Node(source, text, decode_json(text, source))
    except BadFile as error:
        lines = text.split("\n")
        number = _broken_line(text)
        why = str(error).removeprefix(f"{source} ")
        refuse(source, number, lines[number - 1].strip() or "the end of the file", why)


def _broken_line(text: str) -> int:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.lineno
    except (RecursionError, ValueError):
        return 1
    found = _CULPRIT.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _position(text: str, path: tuple[str | int, ...]) -> int:
    """Where the value begins to which the path leads, in a text that is known to be JSON."""
    at = _after_space(text, 0)
    for part in path:
        at = _member(text, at, part)
    return at


def _member(text: str, at: int, wanted: str | int) -> int:
    """Where a member of the object or list at `at` begins."""
    index, at = 0, _after_space(text, at + 1)
    while True:
        name: str | int = index
        if isinstance(wanted, str):
            name, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
        if name == wanted:
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _after_space(text, _after_space(text, at) + 1)
        index += 1


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: f"the text {value!r}", bool: repr(value), type(None): "null"}
    return names.get(type(value), f"the number {value!r}")
