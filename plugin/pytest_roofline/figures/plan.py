"""The form of a text and the figures to read from it, as a user names them by options or in a test."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.directions import TOOLS, Direction
from ..core.errors import BadInput, short_repr
from ..core.features import require
from .reading import READERS, FigurePath, named_path, parse_path

# What a user may say of the output of a tool, by the names of options of `roofline import`.
FACTS = ("product", "devices", "link", "operation", "unit")
# Python reads digits of other scripts as well, and refuses thousands of them with a traceback.
_NUMBER = re.compile(r"\d{1,7}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The form of a text, and the figures to read from it.

    Args:
        reader: `json`, `csv`, `regex`, or the name of a tool; empty where the user names none.
        paths: of the figures; none of a tool, which has its own.
        facts: what the user says of a tool's output that it does not say itself, by name.
    """

    reader: str = ""
    paths: tuple[FigurePath, ...] = ()
    facts: dict[str, str | int] = field(default_factory=dict)


# The form of a text is recognised by its content.
RECOGNISED = ReadPlan()


def plan_of_options(read: str | None, higher: Sequence[str], lower: Sequence[str]) -> ReadPlan:
    """Return the plan of the options `--read`, `--higher` and `--lower`.

    Args:
        read: a reader; behind the name of a tool facts may follow: `osu,devices=8`.
        higher: `PATH` or `NAME=PATH` of each figure of which more is better.
        lower: the same of figures of which less is better.

    Raises:
        BadInput: the reader is unknown, figures are missing or not allowed, or a fact or a path cannot be used.
    """
    reader, facts = _reader_and_facts(read, bool(higher or lower), "--")
    return ReadPlan(
        reader,
        (
            *(parse_path(reader, "higher", text) for text in higher),
            *(parse_path(reader, "lower", text) for text in lower),
        ),
        facts,
    )


def plan_of_arguments(
    read: str | None, higher: Mapping[str, str] | None, lower: Mapping[str, str] | None
) -> ReadPlan:
    """Return the plan of the arguments `read`, `higher` and `lower` of a test.

    Args:
        read: as of `plan_of_options`.
        higher: by name the path of each figure of which more is better.
        lower: the same of figures of which less is better.

    Raises:
        BadInput: as of `plan_of_options`.
    """
    named_paths = [*_named_paths("higher", higher or {}), *_named_paths("lower", lower or {})]
    reader, facts = _reader_and_facts(read, bool(named_paths), "")
    paths = (named_path(reader, direction, name, path) for direction, name, path in named_paths)
    return ReadPlan(reader, tuple(paths), facts)


def _named_paths(direction: Direction, paths: object) -> Iterator[tuple[Direction, str, str]]:
    """Yield the direction, the name and the path of each figure. Raise BadInput if `paths` is no such mapping."""
    if not isinstance(paths, Mapping) or not all(
        isinstance(text, str) and text for pair in paths.items() for text in pair
    ):
        raise BadInput(f'{direction} is {short_repr(paths)}; expected {{"NAME": "PATH"}}')
    for name, path in paths.items():
        yield direction, name, path


def _reader_and_facts(
    read: str | None, has_paths: bool, dashes: str
) -> tuple[str, dict[str, str | int]]:
    """Return the name of a reader, and the facts behind it.

    Args:
        read: as the user names the reader; with a path `json` is the default.
        has_paths: True if the user names the path of a figure.
        dashes: before the names of options in a message; none before those of arguments.

    Raises:
        BadInput: the reader is unknown, or figures are missing or not allowed.
    """
    reader, *settings = (read or ("json" if has_paths else "")).split(",")
    if reader in TOOLS and has_paths:
        raise BadInput(
            f"{dashes}read={reader} takes the tool's own figures; leave {dashes}higher and {dashes}lower out"
        )
    if reader in READERS and not has_paths:
        raise BadInput(
            f"{dashes}read={reader} was given without a figure; add {dashes}higher or {dashes}lower"
        )
    if reader not in ("", *READERS, *TOOLS):
        expected = ", ".join((*READERS, *TOOLS))
        raise BadInput(f"{dashes}read is {reader!r}; expected one of {expected}")
    facts = dict(_facts(reader, settings, dashes))
    if reader in TOOLS:
        require("exchange")
    return reader, facts


def _facts(reader: str, settings: Sequence[str], dashes: str) -> Iterator[tuple[str, str | int]]:
    """Yield each fact behind the name of a tool.

    It has a name and a value, as `devices=8`.
    """
    for setting in settings:
        name, _, value = setting.partition("=")
        if reader not in TOOLS or name not in FACTS or not value:
            expected = ", ".join(f"{fact}=…" for fact in FACTS)
            raise BadInput(
                f"{dashes}read has {setting!r} after {reader!r}; expected the name of a tool, then {expected}"
            )
        if name == "devices" and not _NUMBER.fullmatch(value):
            raise BadInput(
                f"{dashes}read has devices={short_repr(value)}; expected a whole number, of at most 7 digits"
            )
        yield name, int(value) if name == "devices" else value
