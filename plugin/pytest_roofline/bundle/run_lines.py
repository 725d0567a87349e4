"""A run without names: first it is learned who and what its fields name, then every text of it is rewritten."""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..baselines.runs import LINE_TYPES, Line, Run, assemble, encode_line
from ..core.storage import decode_json, read_bytes, to_record
from ..hardware.lookup import products
from .patterns import SECRET_OPTION
from .redacting import Redactor

# What the run file is called in the archive.
RUN_FILE = Path("run.jsonl")
# Fields that hold a name and nothing else, by themselves and the one around them.
_NAMED = {
    ("host", "name"): "hosts",
    ("ranks", "hosts"): "hosts",
    ("device", "uuid"): "devices",
    ("reference", "device"): "devices",
}
# Words that the names of processors are made of.
_PROCESSORS = (
    "Intel Xeon Platinum Gold Silver Bronze Max Core Ultra AMD EPYC Ryzen Threadripper Processor Neoverse Grace NVIDIA "
    "ARM Ampere Altra Graviton Aarch64 x86 Virtual QEMU Common KVM",
)
_VERSION = re.compile(r"\d+(?:\.\d+)+")
# An argument that is a path to its end, whatever is in it.
_PATH_ARGUMENT = re.compile(r"(--?[\w-]+=)?((?:/|~|[A-Za-z]:[\\/]).+)", re.DOTALL)

Plain = dict[str, Any]


def plain_lines(run: Run) -> list[Plain]:
    """The lines of a run file that was read already, as plain data; one that was cut is left out.

    Raises:
        BadFile: it cannot be read any more.
    """
    lines = [line for line in read_bytes(run.path, "run file").split(b"\n") if line.strip()]
    whole = lines[:-1] if run.cut else lines
    return [decode_json(line, f"run file {run.path}, line {number}") for number, line in enumerate(whole, 1)]


def learn(redactor: Redactor, run: Run, lines: list[Plain]) -> None:
    """Take note of every host, person and device that the run names in a field or a path."""
    environment = run.header.environment
    device = environment.device
    # A machine may be called like its processor, and the processor is what must stay; a name within its name must not.
    redactor.leave_words([*products(), device.architecture or "", *_PROCESSORS, *_schema_words()])
    versions = (device.driver, device.firmware, *environment.software.values())
    redactor.leave(text for text in versions if text is not None and _VERSION.fullmatch(text))
    for line in lines:
        for around, name, text in _texts(line):
            category = _NAMED.get((around, name))
            if category is not None:
                redactor.learn(category, text)
            redactor.learn_from(text)


@functools.cache
def _schema_words() -> frozenset[str]:
    """Names of fields and the words that a field may hold: a machine that is called so must not undo the file."""
    words: set[str] = set()
    todo: list[Any] = list(LINE_TYPES.values())
    seen: set[Any] = set()
    while todo:
        hint = todo.pop()
        if typing.get_origin(hint) is typing.Literal:
            words |= {str(word) for word in typing.get_args(hint)}
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            hints = typing.get_type_hints(hint) if hint not in seen else {}
            seen.add(hint)
            words |= set(hints)
            todo += hints.values()
        elif not isinstance(hint, types.NoneType):
            todo += typing.get_args(hint)
    return frozenset(words | set(LINE_TYPES))


def redacted_run(redactor: Redactor, run: Run, lines: list[Plain]) -> tuple[Run, str]:
    """The run without names, and its file's text.

    Raises:
        BadFile: a line cannot be understood; what was read with `read_run` can.
    """
    records = [_record(_line(redactor, line)) for line in lines]
    return assemble(RUN_FILE, records, run.cut), "".join(map(encode_line, records))


def _record(line: Plain) -> Line:
    kind = line.pop("type")
    line.pop("derived", None)
    return to_record(line, LINE_TYPES[kind], f"the {kind} of {RUN_FILE}")


def _line(redactor: Redactor, line: Plain) -> Plain:
    redacted: Plain = {
        name: value if name in ("type", "derived", "command") else _value(redactor, "", name, value)
        for name, value in line.items()
    }
    if "command" in line:
        redacted["command"] = command(redactor, line["command"])
    return redacted


def command(redactor: Redactor, words: list[str]) -> list[str]:
    """A command line, whose words may be a path or the value of the option before."""
    redacted = []
    for before, word in zip(["", *words], words, strict=False):
        path = _PATH_ARGUMENT.fullmatch(word)
        if SECRET_OPTION.fullmatch(before) and not word.startswith("-"):
            redacted.append(redactor.whole("secrets", word))
        elif path is not None and "paths" not in redactor.keep:
            redacted.append((path[1] or "") + redactor.whole("paths", path[2]))
        else:
            redacted.append(redactor.text(word))
    return redacted


def _value(redactor: Redactor, around: str, name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {redactor.text(key): _value(redactor, name, key, inner) for key, inner in value.items()}
    if isinstance(value, list):
        # A list's members belong to what the list belongs to, and are called like it.
        return [_value(redactor, around, name, inner) for inner in value]
    if not isinstance(value, str):
        return value
    category = _NAMED.get((around, name))
    return redactor.text(value) if category is None else redactor.whole(category, value)


def _texts(value: Any, around: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text with the name of its field and of the one around it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield around, name, key
            yield from _texts(inner, name, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, around, name)
    elif isinstance(value, str):
        yield around, name, value
