"""Records from JSON, strictly, and back. Data only, never code.

msgspec checks the schema: one C extension without dependencies that reads standard-library dataclasses, so that the
records of `core` need no second definition. Pydantic was the other candidate; it costs ten times the import.
"""

import contextlib
import dataclasses
import functools
import itertools
import re
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar, cast

import msgspec

from .amounts import ABOVE_ZERO, Magnitude
from .errors import BadFile, BadInput, short_repr
from .records import SCHEMA

Record = TypeVar("Record")

# The most bytes of one JSON text; reading it takes several times as much memory. Ten minutes of samples on a noisy CPU
# take about so many.
MOST_BYTES = 64 * 2**20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}")


def check_name(name: str, subject: str) -> str:
    """Return a name. Raise BadInput if it cannot be a file name. `subject` is for the message."""
    if not NAME.fullmatch(name):
        raise BadInput(
            f"{subject} is {name!r}; expected up to 120 letters, digits and ._+- and no leading dot"
        )
    return name


def read_bytes(path: Path, kind: str, form: str = "JSON") -> bytes:
    """Return the content of a file that is one JSON text. `form` names another form."""
    with _open_file(path, kind) as file:
        content = file.read(MOST_BYTES + 1)
    if not content.strip():
        raise BadFile(f"{kind} {path} is empty; expected {form}")
    return _refuse_long(content, f"{kind} {path}")


def read_lines(path: Path, kind: str) -> Iterator[bytes]:
    """Yield the lines of a file, each with its end.

    Each is a JSON text, or blank; it is read only when it is needed.
    """
    with _open_file(path, kind) as file:
        is_blank = True
        for number in itertools.count(1):
            line = _refuse_long(file.readline(MOST_BYTES + 1), f"{kind} {path}, line {number}")
            is_blank = is_blank and not line.strip()
            if not line:
                break
            yield line
    if is_blank:
        raise BadFile(f"{kind} {path} is empty; expected JSON")


@contextlib.contextmanager
def _open_file(path: Path, kind: str) -> Iterator[BinaryIO]:
    """Open a file to read. A failure becomes a sentence."""
    try:
        if path.is_dir():
            raise BadFile(f"{kind} {path} is a directory; expected a file")
        if path.exists() and not path.is_file():
            raise BadFile(f"{kind} {path} is a device or a pipe; expected a file")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise BadFile(f"{kind} {path} does not exist") from None
    except (OSError, ValueError) as error:
        raise BadFile(
            f"{kind} {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def _refuse_long(content: bytes, where: str) -> bytes:
    """Return a content. Raise BadFile if it is longer than `MOST_BYTES`."""
    if len(content) > MOST_BYTES:
        raise BadFile(
            f"{where} is longer than {MOST_BYTES // 2**20} MiB; the file is "
            "damaged, or another program wrote it"
        )
    return content


def check_schema(raw: object, where: str) -> None:
    """Raise BadFile for data of another schema version, before their fields are checked."""
    if not isinstance(raw, dict):
        raise BadFile(f"{where} is a {type(raw).__name__}; expected an object")
    version = raw.get("schema")
    if version != SCHEMA or isinstance(version, bool):
        version_text = "no schema version" if version is None else f"schema version {version!r}"
        raise BadFile(f"{where} has {version_text}; this pytest-roofline reads version {SCHEMA}")


def read_record(path: Path, record: type[Record], kind: str) -> Record:
    """Return a file that is one JSON text of this schema, as the dataclass `record`.

    Args:
        path: the file.
        record: its form.
        kind: of the file, for messages.

    Raises:
        BadFile: the file cannot be read, or is no such record.
    """
    where = f"{kind} {path}"
    raw = decode_json(read_bytes(path, kind), where)
    check_schema(raw, where)
    return to_record(raw, record, where)


def to_record(raw: object, record: type[Record], where: str) -> Record:
    """Return `raw` as the dataclass `record`.

    Unknown fields, wrong types and impossible values are refused.

    Raises:
        BadFile: with the path of the field, in JSONPath (`$.entries[3].tolerance`).
    """
    try:
        # The twin refuses unknown fields, which the dataclass itself would not.
        strict: object = msgspec.convert(raw, strict_twin(record))  # type: ignore[arg-type]
        return msgspec.convert(strict, record, from_attributes=True)
    except msgspec.ValidationError as error:
        raise BadFile(f"{where}: {_sentence(str(error), raw, record)}") from None


_OUTSIDE = re.compile(
    r"(?P<words>Expected `\w+`(?: of length)? [<>]=? \S+) - at `\$\."
    r"(?P<place>(?:(?P<owner>.+)\.)?\w+(?:\[[\d.]+\])*)`"
)


def _sentence(words: str, raw: object, record: type) -> str:
    """Return a sentence about a value outside its range. Other mistakes are in msgspec's words.

    Args:
        words: msgspec's message, which gives the limit and the path of the field, but not the value.
        raw: the plain data with that value.
        record: the dataclass that the data should become.
    """
    match = _OUTSIDE.fullmatch(words)
    if match is None:
        return words
    # The names in the path lead to the type of the field; with the indices of lists they lead to its value.
    field_names = re.sub(r"\[[\d.]+\]", "", match["place"]).split(".")
    steps = re.findall(r"\w+|\.{3}", match["place"])
    ranges = _ranges_at(record, field_names)
    for name, value in _values_at(raw, steps, ""):
        for limited_type in ranges:
            # The value that msgspec refuses with the same words is the one at fault.
            if _refusal(value, limited_type) == match["words"]:
                owner = f" - at `$.{match['owner']}`" if match["owner"] else ""
                return _observed(name, value, limited_type) + owner
    return words


def _ranges_at(record: Any, names: Sequence[str]) -> list[Any]:
    """Return the types with a range in the annotation of a field: `Count` of `Count | None`.

    `names` are the fields that lead from `record` to it, through records inside of records.
    """
    hint = record
    for name in names:
        owner = next(kind for kind in _inside(hint) if dataclasses.is_dataclass(kind))
        hint = typing.get_type_hints(owner, include_extras=True)[name]
    return [kind for kind in _inside(hint) if typing.get_origin(kind) is Annotated]


def _inside(hint: Any) -> Iterator[Any]:
    """Yield a type, and every type inside it."""
    yield hint
    for argument in typing.get_args(hint):
        yield from _inside(argument)


def _values_at(value: Any, steps: Sequence[str], name: str) -> Iterator[tuple[str, Any]]:
    """Yield every value that a path may mean, with its name.

    In place of the key of a mapping, msgspec's path has `...`, so each of its values may be meant.

    Args:
        value: where the path begins.
        steps: the path: names of fields, indices of lists, and `...`.
        name: of `value`, such as `tolerance` or `marks['slow']`.
    """
    if not steps:
        yield name, value
        return
    step, further_steps = steps[0], steps[1:]
    if step == "...":
        for key, member in value.items():
            yield from _values_at(member, further_steps, f"{name}[{key!r}]")
    elif isinstance(value, list):
        yield from _values_at(value[int(step)], further_steps, f"{name}[{step}]")
    elif isinstance(value, dict) and step in value:
        yield from _values_at(value[step], further_steps, step)


def _refusal(value: object, limited_type: Any) -> str:
    """Return msgspec's words against a value alone. Empty where it is allowed."""
    try:
        msgspec.convert(value, limited_type)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _observed(name: str, value: Any, limited_type: Any) -> str:
    """Return the sentence on a value outside its range.

    It reads `p is 2; expected a chance from 0 to 1`.
    """
    (limits,) = limited_type.__metadata__
    if isinstance(value, list | dict):
        return f"{name} is empty; expected {limits.description}"
    # If a time is negative or zero, the limits of a magnitude would only confuse the reader.
    is_magnitude = limited_type == Magnitude and value <= 0
    expected = ABOVE_ZERO if is_magnitude else limits.description
    return f"{name} is {short_repr(value)}; expected {expected}"


@functools.cache
def strict_twin(record: type) -> type:
    """Return a struct with the fields, types and defaults of a dataclass.

    msgspec refuses unknown fields for such a struct. It is made once for each class.
    """
    hints = typing.get_type_hints(record, include_extras=True)
    members: list[Any] = []
    for member in dataclasses.fields(record):
        kind = _strict_type(hints[member.name])
        if member.default is not dataclasses.MISSING:
            members.append((member.name, kind, member.default))
        elif member.default_factory is not dataclasses.MISSING:
            members.append(
                (member.name, kind, msgspec.field(default_factory=member.default_factory))
            )
        else:
            members.append((member.name, kind))
    return msgspec.defstruct(record.__name__, members, forbid_unknown_fields=True, kw_only=True)


def _strict_type(hint: Any) -> Any:
    """Return a type with strict twins in place of all dataclasses inside it."""
    if dataclasses.is_dataclass(hint):
        return strict_twin(cast(type, hint))
    arguments = typing.get_args(hint)
    if not arguments or typing.get_origin(hint) is typing.Literal:
        return hint
    inner = tuple(_strict_type(argument) for argument in arguments)
    # A union is no generic type with arguments in brackets: it is made again as `A | B | …`.
    if isinstance(hint, types.UnionType):
        return functools.reduce(lambda first, second: first | second, inner)
    return typing.get_origin(hint)[inner]


def to_plain(record: object) -> dict[str, Any]:
    """Return a record as plain data.

    Fields at their default stay out, so that files hold only what matters.
    """
    assert dataclasses.is_dataclass(record)
    plain = {}
    for member in dataclasses.fields(record):
        value = getattr(record, member.name)
        if not _is_default(member, value):
            plain[member.name] = _plain_value(value)
    return plain


def _is_default(member: "dataclasses.Field[Any]", value: object) -> bool:
    """Return True if a field holds its default. A schema version never counts as one."""
    if member.name == "schema":
        return False
    if member.default_factory is not dataclasses.MISSING:
        return bool(value == member.default_factory())
    return member.default is not dataclasses.MISSING and bool(value == member.default)


def _plain_value(value: Any) -> Any:
    """Return a value as plain data, with everything inside it."""
    if dataclasses.is_dataclass(value):
        return to_plain(value)
    if isinstance(value, tuple | list):
        return [_plain_value(member) for member in value]
    if isinstance(value, dict):
        return {name: _plain_value(member) for name, member in value.items()}
    return value


def decode_json(text: bytes | str, where: str) -> Any:
    """Return plain data from JSON text.

    All numbers are finite; BadFile names the line of a mistake.
    """
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise BadFile(f"{where} is nested too deeply; expected a file of pytest-roofline") from None
    except msgspec.ValidationError:
        raise BadFile(
            f"{where} holds a number that is too large; expected finite numbers"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{where} {_why_not_json(raw, str(error))}") from None


def _why_not_json(raw: bytes, complaint: str) -> str:
    """Return why a text is not JSON, as the end of a sentence.

    NaN and Infinity have a sentence of their own, since Python's json writes them.
    """
    if "utf-8" in complaint.lower():
        # Since 0.23 msgspec raises its own error for such bytes, without the reason.
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return f"is not UTF-8 text ({error.reason}); expected JSON"
    position = re.search(r"byte (\d+)", complaint)
    offset = int(position[1]) if position else len(raw)
    lines = raw[:offset].count(b"\n")
    place = f" in line {lines + 1}" if lines else ""
    if number := re.match(rb"NaN|Infinity", raw[offset:]):
        return f"holds {number[0].decode()} (byte {offset}){place}, which is not a JSON number; expected finite numbers"
    return f"is not JSON: {complaint}{place}"
