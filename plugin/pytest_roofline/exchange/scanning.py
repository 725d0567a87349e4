"""What readers of other tools' files share: lines as launchers and terminals leave them, numbers, and typed JSON.

A text format is a table of rules, a pattern and what to do with a line that matches; `scan` gives every line to the
first that fits. Lines that no rule knows are skipped, since logs stand inside the logs of jobs.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

import msgspec

from ..core.errors import BadFile
from ..core.storage import decode_json
from ..core.units import printable

State = TypeVar("State")
Struct = TypeVar("Struct", bound=msgspec.Struct)
# What to do with a line: given what was read so far, its number from 1, and the match.
Rule = tuple[re.Pattern[str], Callable[[State, int, re.Match[str]], None]]

# What launchers put before the line of a rank: `[1,0]<stdout>:` of Open MPI, `0: ` of srun --label.
_LABEL = re.compile(r"\[\d+,\d+\]<std(?:out|err)>:? ?|\d+: (?=[#\s\w]|$)")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
# Longer lines are shown up to here.
SHOWN = 160


class Refused(ValueError):
    """Why a line cannot be taken; `scan` says which it is."""


def decode(data: bytes, source: str) -> str:
    """The text of a file, without a byte order mark.

    Raises:
        BadFile: empty, or not UTF-8.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFile(
            f"{source}, line {line}: byte {error.start} is not UTF-8 text; expected what the tool printed, converted "
            "with iconv where a shell wrote UTF-16"
        ) from None
    if not text.strip():
        raise BadFile(f"{source} is empty; expected the output of a tool")
    return text


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Every line with its number from 1, without its ending, colours and the label of a launcher."""
    for number, raw in enumerate(text.split("\n"), 1):
        yield number, _LABEL.sub("", _CONTROL.sub("", _COLOUR.sub("", raw)), count=1)


def scan(text: str, source: str, rules: Sequence[Rule[State]], state: State) -> None:
    """Give every line to the first rule that it matches as a whole; skip what none knows.

    Raises:
        BadFile: a rule refused its line.
    """
    for number, line in lines(text):
        for pattern, take in rules:
            if match := pattern.fullmatch(line):
                try:
                    take(state, number, match)
                except Refused as error:
                    refuse(source, number, line, str(error))
                break


def refuse(source: str, number: int, line: str, why: str) -> NoReturn:
    """Raise BadFile: `log.txt, line 12: 7 columns; expected 9: '…'`."""
    shown = line if len(line) <= SHOWN else line[:SHOWN] + "…"
    raise BadFile(f"{source}, line {number}: {why}: '{printable(shown)}'")


def amount(text: str) -> float:
    """A finite number, zero or more, as programs print one: no sign, no other script's digits, no separators.

    Raises:
        Refused: the text is none.
    """
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    if not math.isfinite(value):
        raise Refused(f"{text!r} is not a number, zero or more")
    return value


def whole(text: str) -> int:
    """A whole number, zero or more, of at most 64 bits.

    Raises:
        Refused: the text is none.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise Refused(f"{text!r} is not a whole number, zero or more")
    return int(text)


def unlike(one: float, other: float, share: float) -> bool:
    """Whether two figures of the same thing differ by more than a share, so that one was read in another unit."""
    return abs(one - other) > share * max(one, other)


def looks_like_json(text: str) -> bool:
    """Whether a text begins as JSON does."""
    return text.lstrip()[:1] in ("{", "[")


def from_json(text: str, source: str, struct: type[Struct]) -> Struct:
    """The JSON of a file as a record; what the record does not name is left alone.

    Raises:
        BadFile: not JSON, a name twice, NaN, or another type than the record's, with the path of the value.
    """
    try:
        return msgspec.convert(decode_json(text, source), struct)
    except msgspec.ValidationError as error:
        raise BadFile(f"{source}: {error}") from None
