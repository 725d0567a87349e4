"""Values in JSON by a path, `results.*.throughput`.

A part is a name in an object, or in a list of objects the name of one of them; `*` stands for all.
"""

import json
import re
from collections.abc import Iterator, Sequence

from ..core.errors import BadFile
from .place import Place, is_number

# The fields by which an object in a list is named: by the first that tells all apart, or by another that a user names.
_NAMING = ("name", "tag", "id", "label", "command", "benchmark", "test", "case", "key")
_BEGINNING = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
ALL = "*"


def values_at(text: str, path: str) -> list[Place]:
    """Return the values at every place that a path leads to."""
    return [
        place
        for place in nodes_at(document_of(text), path)
        if _is_samples(place.value) or not isinstance(place.value, dict | list)
    ]


def places(text: str) -> list[str]:
    """Return the paths of all numbers in a text.

    Each is there once, with `*` for the objects of a list.
    """
    return list(dict.fromkeys(_leaf_paths(document_of(text), ())))


def document_of(text: str) -> object:
    """Return the JSON document among the other lines of a program's output. Several documents are a list of them.

    Raises:
        BadFile: there is none.
    """
    decoder, documents, end = json.JSONDecoder(), list[object](), 0
    for beginning in _BEGINNING.finditer(text):
        # A bracket within the document before belongs to that document.
        if beginning.end() >= end:
            try:
                document, end = decoder.raw_decode(text, beginning.end())
            except (ValueError, RecursionError):
                continue
            documents.append(document)
    # A line of a log may begin with a number in brackets, which is a list of numbers in JSON and counts only alone.
    documents = [document for document in documents if not _is_samples(document)] or documents
    if not documents:
        raise BadFile("the program printed no JSON; expected a line that begins with { or [")
    return documents[0] if len(documents) == 1 else documents


def nodes_at(document: object, path: str) -> Iterator[Place]:
    """Yield the parts at every place that a path leads to."""
    return _walk(document, path.split("."), "", {})


def children(node: object) -> dict[str, object]:
    """Return the parts of an object or a list, by name; empty of a value."""
    if isinstance(node, dict):
        return node
    if not isinstance(node, list):
        return {}
    return dict(zip(_element_names(node), node, strict=True))


def _is_samples(node: object) -> bool:
    """Return True for a list of plain values, which are samples of one figure."""
    return isinstance(node, list) and not any(isinstance(child, dict | list) for child in node)


def _children_by_any_name(node: object) -> dict[str, object]:
    """Return the parts of an object or a list by name.

    A part of a list has several names: the value of each field that tells all parts apart, and its number.
    """
    if not isinstance(node, list):
        return children(node)
    # Where two fields have the same value, the last one written stays, so the preferred field comes last.
    namings = reversed(list(_namings(node)))
    return {name: child for names in namings for name, child in zip(names, node, strict=True)}


def _element_names(elements: Sequence[object]) -> list[str]:
    """Return the names of a list's elements.

    They are a field that tells all apart, or their numbers.
    """
    return next(_namings(elements))


def _namings(elements: Sequence[object]) -> Iterator[list[str]]:
    """Yield the names of a list's elements by each field.

    Such a field tells all apart. Their numbers come last.
    """
    for field in _NAMING:
        names = [
            str(element[field])
            for element in elements
            if isinstance(element, dict) and isinstance(element.get(field), str | int | float)
        ]
        if len(set(names)) == len(elements):
            yield names
    yield [str(number) for number in range(len(elements))]


def _walk(node: object, parts: Sequence[str], name: str, cases: dict[str, str]) -> Iterator[Place]:
    """Yield the places that the remaining parts of a path lead to.

    Args:
        node: the part of the document that the path has reached.
        parts: the remaining parts of the path, each a name or `*`.
        name: the last name of the path so far; empty at its beginning.
        cases: the names that each `*` so far stands for, by the name before that `*`.
    """
    if not parts:
        yield Place(name, cases, node)
        return
    part, *further_parts = parts
    if part == ALL:
        # The names before two `*` of one path may be the same, and the first `*` may have none before it.
        case = name if name and name not in cases else f"part {len(cases) + 1}"
        for key, child in children(node).items():
            yield from _walk(child, further_parts, name, cases | {case: key})
        return
    children_by_name = _children_by_any_name(node)
    # A name may hold dots, at which the path was split, so the longest name is tried first.
    for size in range(len(parts), 0, -1):
        key = ".".join(parts[:size])
        if key in children_by_name:
            yield from _walk(children_by_name[key], parts[size:], key, cases)
            return


def _leaf_paths(node: object, parts: tuple[str, ...]) -> Iterator[str]:
    """Yield the path of each number in a part of a document. `parts` lead to that part."""
    if _is_samples(node) or not isinstance(node, dict | list):
        values = node if isinstance(node, list) else [node]
        if values and all(is_number(value) for value in values):
            yield ".".join(parts)
        return
    for key, child in children(node).items():
        yield from _leaf_paths(child, (*parts, ALL if isinstance(node, list) else key))
