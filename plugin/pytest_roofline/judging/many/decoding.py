"""Run files read several times as fast as one by one, under the same strict rules, for commands that read thousands.

Each line goes from bytes to a record in one step, and what repeats from file to file, keys and work, is made once.
Whatever is out of the ordinary goes to `read_run`, whose word stands.
"""

import dataclasses
import functools
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...core.errors import BadFile, BadInput
from ...core.keys import Key
from ...core.ranks import Ranks
from ...core.records import SCHEMA, Ceiling, Header, Measurement
from ...core.samples import Samples
from ...core.work import Work
from ..runs import LINE_TYPES, Line, Run, assemble, read_run
from ..storage import decode_json, read_bytes, strict_twin, to_record

# Of a measurement, what is the same in thousands of files: kept as text, and made into a record once.
_REPEATED: dict[str, type] = {"key": Key, "work": Work, "ceiling": Ceiling}
_CHECKED: dict[str, type] = {"samples": Samples, "ranks": Ranks}
# A whole number of more than 64 bits, where every digit is a zero, and every beginning of a number a space.
_DIGITS, _TOO_LONG = bytes.maketrans(b"123456789:,[-", b"000000000    "), b" " + b"0" * 20
_DECODE, _ENCODE = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
_PLAIN = [member.name for member in dataclasses.fields(Measurement) if member.name not in {*_REPEATED, *_CHECKED}]


@dataclass(frozen=True, slots=True)
class KnownKey(Key):
    """A key that knows its identity, which is slow to write down and asked for again and again."""

    told: str = ""

    @property
    def identity(self) -> str:
        """The key as one canonical string."""
        return self.told


class RunDecoder:
    """Reads run files one after the other; it remembers the keys and work of those before."""

    def __init__(self) -> None:
        self._decoder = _lines()
        self._made: dict[tuple[str, bytes], Any] = {}

    def read(self, path: Path) -> Run:
        """A run file, as `read_run` reads it.

        Raises:
            BadFile: as `read_run` does.
        """
        data = read_bytes(path, "run file")
        # A line that was cut, and whatever cannot be understood, is the careful reader's to tell of.
        if not data.endswith(b"\n") or _TOO_LONG in data.translate(_DIGITS):
            return read_run(path)
        try:
            records = [self._line(line) for line in data.split(b"\n") if line.strip()]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BadFile, BadInput):
            return read_run(path)
        header = records[0]
        if not isinstance(header, Header) or header.schema != SCHEMA:
            return read_run(path)
        return assemble(path, records, cut=False)

    def _line(self, line: bytes) -> Line:
        # A name twice is lost on the way to plain data and back.
        if _ENCODE(_DECODE(line)).count(b'":') != line.count(b'":'):
            raise BadFile("a name may be there twice")
        kind, raw = self._decoder.decode(line).told()
        if kind is Measurement:
            return self._measurement(raw)
        record: Line = msgspec.convert(raw, kind, from_attributes=True)
        return record

    def _measurement(self, raw: Any) -> Measurement:
        facts = {name: getattr(raw, name) for name in _PLAIN}
        for name in _REPEATED:
            text = getattr(raw, name)
            facts[name] = self._once(name, bytes(text))
        for name, kind in _CHECKED.items():
            value = getattr(raw, name)
            facts[name] = None if value is None else msgspec.convert(value, kind, from_attributes=True)
        return Measurement(**facts)

    def _once(self, name: str, text: bytes) -> Any:
        if (name, text) not in self._made:
            raw = decode_json(text, name)
            made = None if raw is None and name == "ceiling" else to_record(raw, _REPEATED[name], name)
            if isinstance(made, Key):
                facts = {member.name: getattr(made, member.name) for member in dataclasses.fields(Key)}
                made = KnownKey(**facts, told=made.identity)
            self._made[name, text] = made
        return self._made[name, text]


@functools.cache
def _lines() -> "msgspec.json.Decoder[Any]":
    """Any line of a run file; each knows the record that it is."""
    kinds = [_tagged(name, kind) for name, kind in LINE_TYPES.items()]
    return msgspec.json.Decoder(functools.reduce(operator.or_, kinds))


def _tagged(name: str, kind: type) -> Any:
    members: list[Any] = []
    if kind is Measurement:
        # Rates are derived anew, never read.
        members = [("derived", msgspec.Raw, msgspec.Raw(b"{}"))]
        members += [("key", msgspec.Raw), ("work", msgspec.Raw), ("ceiling", msgspec.Raw, msgspec.Raw(b"null"))]
    return msgspec.defstruct(
        kind.__name__,
        members,
        bases=(strict_twin(kind),),
        namespace={"told": lambda self: (kind, self)},
        tag_field="type",
        tag=name,
        forbid_unknown_fields=True,
        kw_only=True,
    )
