"""One change to a file, by its structure, and whether the file has to be refused for it.

A change is plain data, so that a case that failed can be kept as JSON; `apply` makes it, and knows nothing of chance.
"""

import dataclasses
import functools
import json
import random
import re
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from .seeds import Seed

Path = tuple[str | int, ...]
Change = dict[str, Any]
_MARK = "\ue000fuzz\ue000"

# What no number of ours can be.
NO_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999")
# A value of each kind that JSON has.
OF_KIND = {
    "text": '"5 %"',
    "whole": "7",
    "real": "0.5",
    "switch": "true",
    "null": "null",
    "list": "[]",
    "object": "{}",
}
# What fits the type, and may be more than anybody thought of.
EXTREMES = {
    "text": (
        '""',
        '"\\u0000"',
        '"\\u202e\\u001b[31m"',
        f'"{"x" * 3000}"',
        '"NaN"',
        '"9999-12-31T23:59:59Z"',
        '"../x"',
    ),
    "whole": ("0", "-1", "1", "2147483648", "9223372036854775807", "-9223372036854775808"),
    "real": ("0.0", "-1.0", "1e-300", "1e300", "5e-324", "1e-18", "1e18", "0.1", "1.0"),
    "switch": ("true", "false"),
    "null": ("null",),
    "list": ("[]",),
    "object": ("{}",),
}
WORDS = ("0", "0.00", "-1", "nan", "inf", "1e999", "9" * 30, "x", "N/A", "٣", "1,5", "0x10", "")
SPLICES = (
    "",
    "\x00",
    "\xff",
    "\xc3\x28",
    "\n",
    "\r\n",
    '"',
    "}",
    "]",
    ",",
    "{",
    "[",
    " ",
    "9",
    "-",
    ".",
    "\x1b[0m",
)
NO_TEXTS = ("\xff", "\xc3\x28")
DEEP = 100_000

# Fields of which a number must be above zero, of any record, or of the one that is named before the dot.
ABOVE_ZERO = frozenset((
    "process_medians", "medians_s",
    "Samples.seconds", "Recorded.seconds", "Ranks.seconds", "Ceiling.value", "Ceiling.limit",
    "iterations", "argument_sets", "Block.samples", "clock_hz", "spin_hz", "wall_s", "new_s", "reference_s",
    "TimeLimit.seconds", "Entry.tolerance", "Measurement.tolerance", "Recorded.tolerance",
    "freedom", "Peak.value", "KernelTime.count", "Ranks.size", "Found.median_s", "Profile.calls", "round",
    "ExpectedGpus.memory_bytes", "Resources.shared_limit_bytes", "Entry.from_amount", "HardwareKey.devices",
    "generation",
))  # fmt: skip
# A share of what there can be at most.
AT_MOST_ONE = frozenset(("p", "p_spent", "p_adjusted"))
# Lists of which something is made that an empty one has none of.
NOT_EMPTY = frozenset(
    (
        "process_medians",
        "Samples.seconds",
        "Recorded.seconds",
        "ExactEntry.figures",
        "Verdict.interval",
        "medians_s",
    )
)
# Of tools' files: the times.
TIMES = frozenset(("time", "median", "data"))


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A value in a document, with what may stand there.

    Args:
        path: names and indices that lead to it.
        value: what stands there.
        hint: the type that its record gives it; None where nobody says.
        owner: the record, and the field, that it is of.
        needed: whether its object must have it; None where it is no field of a record.
    """

    path: Path
    value: Any
    hint: Any = None
    owner: str = ""
    field: str = ""
    needed: bool | None = None

    def among(self, names: frozenset[str]) -> bool:
        return self.field in names or f"{self.owner}.{self.field}" in names


def places(
    value: Any, hint: Any, path: Path = (), owner: str = "", field: str = ""
) -> Iterator[Place]:
    """Every value below one, that itself included."""
    yield Place(path, value, hint, owner, field)
    if isinstance(value, dict):
        record = next((one for one in _members(hint) if dataclasses.is_dataclass(one)), None)
        hints = _fields(record) if record else {}
        inner = next(
            (typing.get_args(one)[1] for one in _members(hint) if typing.get_origin(one) is dict),
            None,
        )
        for name, item in value.items():
            told = hints.get(name, (inner, None))
            names = (record.__name__, name) if record else (owner, field or name)
            below = iter(places(item, told[0], (*path, name), *names))
            yield dataclasses.replace(next(below), needed=told[1])
            yield from below
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, _of_list(hint, index), (*path, index), owner, field)


def _members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a type."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if union else (hint,)


def _of_list(hint: Any, index: int) -> Any:
    for one in _members(hint):
        inner = typing.get_args(one)
        if typing.get_origin(one) in (tuple, list) and inner:
            return (
                inner[0]
                if inner[-1] is Ellipsis or len(inner) == 1
                else inner[min(index, len(inner) - 1)]
            )
    return None


@functools.cache
def _fields(record: type) -> dict[str, tuple[Any, bool]]:
    """By field its type, and whether it is needed."""
    hints = typing.get_type_hints(record)
    nothing = dataclasses.MISSING
    return {
        one.name: (hints[one.name], one.default is nothing and one.default_factory is nothing)
        for one in dataclasses.fields(record)
    }


def kinds_of(hint: Any) -> frozenset[str]:
    """The kinds of JSON that a type takes; a whole number is a real one too."""
    found: set[str] = set()
    for one in _members(hint):
        origin = typing.get_origin(one) or one
        if origin is Literal:
            found |= {"null" for value in typing.get_args(one) if value is None}
        elif dataclasses.is_dataclass(one) or origin is dict:
            found.add("object")
        elif origin in (list, tuple):
            found.add("list")
        else:
            found |= {
                str: {"text"}, int: {"whole"}, float: {"whole", "real"}, bool: {"switch"}, types.NoneType: {"null"},
            }.get(origin, set(OF_KIND))  # fmt: skip
    return frozenset(found)


def kind_of(value: Any) -> str:
    """The kind of JSON that a value is."""
    names = {
        str: "text",
        int: "whole",
        float: "real",
        bool: "switch",
        type(None): "null",
        list: "list",
        dict: "object",
    }
    return names[type(value)]


def mutate(seed: Seed, chance: random.Random) -> tuple[list[Change], str]:
    """Changes to a seed, mostly one, and why the result must be refused; empty where it need not be."""
    if chance.random() < 0.2:
        return [_change(seed, chance)[0] for _ in range(chance.randint(2, 3))], ""
    change, why = _change(seed, chance)
    return [change], why


def _change(seed: Seed, chance: random.Random) -> tuple[Change, str]:
    roll = chance.random()
    if roll < 0.08:
        return _bytes_change(seed, chance)
    if seed.lines and roll < 0.16:
        return _line_change(seed, chance)
    if seed.is_json:
        return _json_change(seed, chance)
    return _text_change(seed, chance) if roll < 0.9 else _bytes_change(seed, chance)


def _bytes_change(seed: Seed, chance: random.Random) -> tuple[Change, str]:
    at = chance.randrange(len(seed.data))
    if chance.random() < 0.3:
        return {"do": "cut", "at": at}, ""
    # No end of a line goes, since what stands behind the last one of a run was cut, and is left out.
    length, text = chance.choice((0, 1, 1, 3)), chance.choice(SPLICES)
    length = 0 if b"\n" in seed.data[at : at + length] else length
    refused = text in NO_TEXTS
    return {
        "do": "splice",
        "at": at,
        "length": length,
        "text": text,
    }, "bytes that are no UTF-8" if refused else ""


def _line_change(seed: Seed, chance: random.Random) -> tuple[Change, str]:
    count = len(_lines(seed))
    what, line = chance.choice(("drop line", "repeat line", "swap")), chance.randrange(count)
    if what == "swap":
        return {"do": "swap", "line": line, "with": chance.randrange(count)}, ""
    header = seed.record({"type": "header"}) is not None and line == 0 and count > 1
    return {"do": what, "line": line}, f"{what}: its header" if header else ""


@functools.lru_cache(256)
def _documents(name: str, data: bytes, lines: bool) -> list[Any]:
    del name
    return [json.loads(text) for text in (data.split(b"\n")[:-1] if lines else [data])]


def _lines(seed: Seed) -> list[Any]:
    return _documents(seed.name, seed.data, seed.lines)


@functools.lru_cache(4096)
def _places(seed: Seed, line: int) -> list[Place]:
    raw = _lines(seed)[line]
    hint = seed.record(raw)
    inner = (
        {key: value for key, value in raw.items() if key not in ("type", "derived")}
        if seed.lines and hint
        else raw
    )
    return list(places(inner, hint))


def _json_change(seed: Seed, chance: random.Random) -> tuple[Change, str]:
    line = chance.randrange(len(_lines(seed)))
    place = chance.choice(_places(seed, line))
    change = {"line": line, "path": list(place.path)}
    makers = [_extreme, _extreme, _retyped, _no_number, _out_of_range]
    makers += [_dropped, _twice] if place.path and isinstance(place.path[-1], str) else []
    makers += [_added] if isinstance(place.value, dict) else []
    makers += [_emptied, _deep] if isinstance(place.value, list | dict) else []
    maker = chance.choice(makers)
    told, why = maker(place, chance)
    if maker is _no_number and _holds_any_number(seed, place):
        why = ""
    return change | told, why and f"{why} at {'.'.join(map(str, place.path)) or 'the top'}"


def _holds_any_number(seed: Seed, place: Place) -> bool:
    """Return whether NaN may stand there: Google Benchmark writes it, and of its fields the time alone is needed."""
    last = place.path[-1] if place.path else None
    of_tool = seed.name == "google-benchmark.json" and isinstance(last, str)
    return of_tool and last != "real_time"


def _put(text: str) -> Change:
    return {"do": "put", "text": text}


def _extreme(place: Place, chance: random.Random) -> tuple[Change, str]:
    return _put(chance.choice(EXTREMES[kind_of(place.value)])), ""


def _retyped(place: Place, chance: random.Random) -> tuple[Change, str]:
    kind = chance.choice([kind for kind in OF_KIND if kind != kind_of(place.value)])
    refused = place.hint is not None and kind not in kinds_of(place.hint)
    return _put(
        OF_KIND[kind]
    ), f"a {kind} in place of {'/'.join(sorted(kinds_of(place.hint)))}" if refused else ""


def _no_number(place: Place, chance: random.Random) -> tuple[Change, str]:
    text = chance.choice(NO_NUMBERS)
    return _put(text), f"{text} in place of a value"


def _out_of_range(place: Place, chance: random.Random) -> tuple[Change, str]:
    if kind_of(place.value) not in ("whole", "real"):
        return _extreme(place, chance)
    real = "real" in kinds_of(place.hint)
    if place.among(AT_MOST_ONE) and chance.random() < 0.5:
        return _put("1.5"), "more than one of one"
    if place.hint is None:
        refused = isinstance(place.value, float) and not TIMES.isdisjoint(place.path[-2:])
        return _put("-1"), "a time below zero" if refused else ""
    if place.field == "schema":
        return _put(chance.choice(("0", "2"))), "another schema"
    if place.among(ABOVE_ZERO):
        text = chance.choice(("0", "-1", "0.0", "-0.5") if real else ("0", "-1"))
        return _put(text), "a number not above zero"
    return _extreme(place, chance)


def _dropped(place: Place, chance: random.Random) -> tuple[Change, str]:
    del chance
    return {"do": "drop"}, "nothing in place of a field that is needed" if place.needed else ""


def _twice(place: Place, chance: random.Random) -> tuple[Change, str]:
    del chance
    return {"do": "twice"}, ""


def _added(place: Place, chance: random.Random) -> tuple[Change, str]:
    del chance
    record = any(dataclasses.is_dataclass(one) for one in _members(place.hint))
    return {"do": "add"}, "an unknown field" if record else ""


def _emptied(place: Place, chance: random.Random) -> tuple[Change, str]:
    del chance
    text = "[]" if isinstance(place.value, list) else "{}"
    return _put(text), "nothing in place of one or more" if place.among(
        NOT_EMPTY
    ) and place.value else ""


def _deep(place: Place, chance: random.Random) -> tuple[Change, str]:
    del place, chance
    return {"do": "deep"}, "lists in lists without end"


def _text_change(seed: Seed, chance: random.Random) -> tuple[Change, str]:
    """A word of a line by another, or a line less, more, or elsewhere."""
    lines = seed.data.decode().split("\n")
    line = chance.choice([number for number, text in enumerate(lines) if text.strip()])
    if chance.random() < 0.15:
        return {"do": chance.choice(("drop line", "repeat line")), "line": line}, ""
    words = lines[line].replace(",", " ").split()
    column, text = chance.randrange(len(words)), chance.choice(WORDS)
    return {"do": "word", "line": line, "column": column, "text": text}, _wrong_time(
        seed, lines, line, column, text
    )


def _wrong_time(seed: Seed, lines: Sequence[str], line: int, column: int, text: str) -> str:
    """Why a word of a log cannot be a time: it stands where one is, and is none above zero."""
    header = next((one for one in lines if one[1:].split()[:2] == ["size", "count"]), "")
    names, words = header[1:].split(), lines[line].split()
    behind = len(words) - len(names) if names and words[0].isdigit() else 0
    at = column - behind
    if not (names and words[0].isdigit() and 0 <= at < len(names) and names[at] == "time"):
        return ""
    # Of nothing, any time is as good as none; a time of zero may have been rounded, and the row is left out by name.
    return f"{text!r} in place of a time" if int(words[0]) and text not in ("0", "0.00") else ""


def apply(seed: Seed, changes: Sequence[Change]) -> bytes:
    """The content of a seed with these changes, one after the other.

    Raises:
        LookupError: a change is of a place that the seed does not have.
    """
    data = seed.data
    for change in changes:
        data = _applied(data, seed.lines, change)
    return data


def _applied(data: bytes, lines: bool, change: Change) -> bytes:
    what = change["do"]
    if what == "cut":
        return data[: change["at"]]
    if what == "splice":
        at = change["at"]
        return data[:at] + change["text"].encode("latin-1") + data[at + change["length"] :]
    if "path" in change and not lines:
        return _document_changed(data, change)
    rows, line = data.split(b"\n"), change["line"]
    if isinstance(line, str):
        # In cases that are kept, since lines move: the first record of a type.
        line = next(
            number
            for number, row in enumerate(rows)
            if row.startswith(f'{{"type": "{line}"'.encode())
        )
    if line >= len(rows):
        # An earlier change took it away.
        return data
    if "path" in change:
        rows[line] = _document_changed(rows[line], change)
    elif what == "drop line":
        del rows[line]
    elif what == "repeat line":
        rows.insert(line, rows[line])
    elif what == "swap":
        other = min(change["with"], len(rows) - 1)
        rows[line], rows[other] = rows[other], rows[line]
    else:
        rows[line] = _word_changed(rows[line].decode(errors="surrogateescape"), change).encode(
            errors="surrogateescape"
        )
    return b"\n".join(rows)


def _word_changed(text: str, change: Change) -> str:
    words = list(re.finditer(r"[^ ,]+", text))
    if change["column"] >= len(words):
        # An earlier change took it away.
        return text
    start, end = words[change["column"]].span()
    return text[:start] + change["text"] + text[end:]


def _document_changed(data: bytes, change: Change) -> bytes:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        # An earlier change left no JSON; there is nothing more to change by structure.
        return data
    holder: Any = {"": raw}
    path, text = ["", *change["path"]], change.get("text", "")
    try:
        for step in path[:-1]:
            holder = holder[step]
        old = holder[path[-1]]
        if change["do"] == "drop":
            del holder[path[-1]]
        elif change["do"] == "add":
            old["surprise"] = 1
        elif change["do"] == "twice":
            holder[_MARK], text = old, json.dumps(path[-1])
        else:
            holder[path[-1]] = _MARK
            text = "[" * DEEP + "]" * DEEP if change["do"] == "deep" else text
    except (LookupError, TypeError):
        if change.get("strict"):
            raise
        return data
    dumped = json.dumps(
        raw if path[1:] or change["do"] == "add" else holder[""], ensure_ascii=False
    )
    return dumped.replace(json.dumps(_MARK, ensure_ascii=False), text).encode(
        errors="surrogatepass"
    )
