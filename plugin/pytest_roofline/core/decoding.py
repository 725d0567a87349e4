"""Plain data and records from JSON text, strictly, with the standard library alone: a reproducer has nothing else.

Run and baseline files, of which there are thousands, take the second step in `judging.storage`, by the same rules.
"""

import dataclasses
import json
import math
import types
import typing
from typing import Any

from .errors import BadFile, BadInput


def decode_json(data: bytes | str, where: str) -> Any:
    """Plain data from JSON text.

    Raises:
        BadFile: not UTF-8, not JSON, a name twice in one object, half a surrogate pair, or a number that is none: NaN,
            infinities, and what is beyond every range.
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        raw = json.loads(
            text, parse_constant=_refuse_number, parse_float=_finite, parse_int=_whole, object_pairs_hook=_unique_names
        )
        if "\\ud" in text.lower():
            json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise BadFile(f"{where} is not UTF-8 text (byte {error.start}); expected JSON") from None
    except UnicodeEncodeError:
        raise BadFile(f"{where} holds half a character (a lone surrogate); expected whole ones") from None
    except json.JSONDecodeError as error:
        raise BadFile(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise BadFile(f"{where} is nested too deeply to be one of ours") from None
    except _Refused as error:
        raise BadFile(f"{where} {error}") from None
    return raw


class _Refused(ValueError):
    """JSON that the standard library would take and we do not."""


def _refuse_number(name: str) -> float:
    raise _Refused(f"holds {name}, which is no number; expected finite values")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse_number(digits)


def _whole(digits: str) -> int:
    count = len(digits.lstrip("-"))
    if count > 19:
        raise _Refused(f"holds a whole number of {count} digits; expected at most 64 bits")
    return int(digits)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        seen = [name for name, _ in pairs]
        twice = next(name for name in seen if seen.count(name) > 1)
        raise _Refused(f"gives {twice!r} twice in one object; expected it once")
    return names


def to_value(raw: object, hint: Any, where: str, path: str = "$") -> Any:
    """`raw` as the type `hint`: a dataclass, or what one is made of; unknown and missing fields are refused.

    Args:
        raw: plain data of JSON.
        hint: a dataclass, `tuple[X, ...]`, `X | None`, `str`, `int`, `float` or `bool`.
        where: the file, for the message.
        path: of the value in it, in JSONPath.

    Raises:
        BadFile: it is something else, or a value that its record refuses; with the path.
    """
    if isinstance(hint, types.UnionType):
        return None if raw is None else to_value(raw, typing.get_args(hint)[0], where, path)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _to_dataclass(_of(dict, raw, "an object", where, path), hint, where, path)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        listed = _of(list, raw, "a list", where, path)
        return tuple(to_value(item, inner, where, f"{path}[{index}]") for index, item in enumerate(listed))
    if hint is float:
        return float(_of((int, float), raw, "a number", where, path))
    return _of(hint, raw, {str: "text", int: "a whole number", bool: "true or false"}[hint], where, path)


def _of(kind: Any, raw: object, expected: str, where: str, path: str) -> Any:
    if not isinstance(raw, kind) or (isinstance(raw, bool) and kind is not bool):
        raise BadFile(f"{where}: {path} is a {type(raw).__name__}; expected {expected}")
    return raw


def _to_dataclass(raw: dict[str, Any], record: type, where: str, path: str) -> Any:
    hints = typing.get_type_hints(record)
    for name in raw:
        if name not in hints:
            raise BadFile(f"{where}: {path} has an unknown field {name!r}")
    nothing = dataclasses.MISSING
    for field in dataclasses.fields(record):
        if field.name not in raw and field.default is nothing and field.default_factory is nothing:
            raise BadFile(f"{where}: {path} lacks {field.name!r}")
    values = {name: to_value(value, hints[name], where, f"{path}.{name}") for name, value in raw.items()}
    try:
        return record(**values)
    except BadInput as error:
        raise BadFile(f"{where}: {error} - at {path}") from None
