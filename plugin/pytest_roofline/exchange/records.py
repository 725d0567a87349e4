"""Parts that the readers of other tools' files share.

They hand on SI units; numbers and JSON are read here.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

import msgspec

from ..core.errors import BadFile
from ..core.facts import HardwareKey
from ..core.keys import Cache, Key, Scalar, Timing, label_of
from ..core.samples import Mode
from ..core.storage import decode_json
from ..core.units import printable
from ..core.work import Work
from ..figures.reading import FigurePath

Struct = TypeVar("Struct", bound=msgspec.Struct)
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
# How files of gzip, Zstandard, xz, bzip2 and zip begin.
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
# Characters of a line that a message shows at most.
MOST_SHOWN = 160


@dataclass(frozen=True, slots=True)
class UserFacts:
    """Facts that the user states because a file does not.

    `product` as the driver prints it, `link` as a class of links, `begun` in ISO 8601, `unit` of figures, `host` the
    node, `paths` of figures in the output of a program that is no known tool.
    """

    product: str | None = None
    devices: int | None = None
    link: str | None = None
    operation: str | None = None
    begun: str = ""
    unit: str = ""
    host: str = ""
    paths: tuple[FigurePath, ...] = ()


def key_of_reading(
    benchmark: str,
    parameters: dict[str, Scalar],
    metric: str,
    statistic: str,
    timing: Timing = "wall",
    cache: Cache = "warm",
) -> Key:
    """Return the key by which a reading is compared. Its hardware is added when all files are read.

    `statistic` is what the tool printed of its samples, such as `mean`.
    """
    return Key(benchmark, parameters, metric, HardwareKey(), cache, timing, statistic)


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of another tool, in SI units.

    `key` has no hardware yet, and its name is the statistic: mean, best, median. Its parameters number the GPUs: `gpu`,
    or the ends `source` and `target`. `seconds` are per call, one for each sample in the file; `where` is the place in
    the file. `invalid` is the reason why the number must not be used. `verified` is None where the tool did not check
    its data, or the file does not say so.
    """

    key: Key
    work: Work
    seconds: tuple[float, ...]
    where: str
    iterations: int = 1
    warmup_iterations: int = 0
    mode: Mode = "host"
    devices: int = 1
    verified: bool | None = None
    invalid: str = ""

    @property
    def test_id(self) -> str:
        """The label of the reading without its statistic."""
        return label_of(self.key.benchmark, self.key.parameters, "")

    @property
    def gpus(self) -> list[int]:
        """The numbers of its GPUs, as far as the file names them."""
        ends = {self.key.parameters.get(name) for name in ("source", "target", "gpu")}
        return sorted(end for end in ends if isinstance(end, int))

    @property
    def label(self) -> str:
        """The label: `nccl_tests.all_reduce[8GiB-fp32-sum-in_place].mean`."""
        return self.key.label


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The machine of a log, as the file states it. Unknown facts are None.

    `hosts` are the nodes of all ranks in their order; empty for a single node.
    """

    product: str | None = None
    device_type: str = "accelerator"
    host: str | None = None
    hosts: tuple[str, ...] = ()
    driver: str | None = None
    cpu_model: str | None = None
    cores: int | None = None
    kernel: str | None = None
    software: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool whose files are read. `convention` says how it counts and times."""

    name: str
    convention: str


@dataclass(frozen=True, slots=True)
class ImportedLog:
    """The output of one process of another tool.

    `left_out` has a line for each number that is not used; `failed` has each test without a number, and the reason.
    `started` is in ISO 8601, empty if unknown. `process` names the process by the identity of the file. `unread` holds
    lines of the head that are not part of the key, by name. `ended` is True for a whole log without a row.
    """

    source: str
    tool: Tool
    readings: tuple[Reading, ...]
    machine: MachineFacts = MachineFacts()
    started: str = ""
    left_out: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    process: str = ""
    unread: dict[str, str] = field(default_factory=dict)
    ended: bool = False


def pool_readings(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """Return the readings, those with the same key joined into one.

    Some tools measure all sizes several times: each pass is another sample. Readings of other work, or with another
    reason to be invalid, stay apart.
    """
    readings_by_key: dict[tuple[object, ...], Reading] = {}
    for reading in readings:
        key = (reading.label, reading.key.metric, reading.key.timing, reading.work, reading.invalid)
        earlier = readings_by_key.get(key)
        if earlier is None:
            readings_by_key[key] = reading
        else:
            verified = earlier.verified if earlier.verified == reading.verified else None
            readings_by_key[key] = replace(
                earlier, seconds=earlier.seconds + reading.seconds, verified=verified
            )
    return tuple(readings_by_key.values())


class _ContainerLine(msgspec.Struct):
    """A line of a container, as Docker's json-file driver keeps it."""

    log: str


class BadLine(ValueError):
    """A line that cannot be used. The reader of the lines adds its number."""


def decode(content: bytes, source: str) -> str:
    """Return the text of a file, without a byte order mark.

    For the log of a container it is the output in the log. Raise BadFile for a file that is not text, or empty.
    """
    if content.startswith(_PACKED):
        raise BadFile(f"{source} is compressed; unpack it first")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadFile(
            f"{source}, line {line}: byte {error.start} is not UTF-8 text; expected UTF-8; convert the "
            "file, which a shell may have written as UTF-16, with iconv"
        ) from None
    if not text.strip():
        raise BadFile(f"{source} is empty; expected the output of a tool")
    if not text.startswith('{"log":'):
        return text
    try:
        return "".join(line.log for line in msgspec.json.Decoder(_ContainerLine).decode_lines(text))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadFile(
            f'{source}: {error}; expected a line {{"log": …}} for each of the container'
        ) from None


def refuse(source: str, number: int, line: str, reason: str) -> NoReturn:
    """Raise BadFile: `log.txt, line 12: 7 columns; expected 9: '…'`."""
    excerpt = line if len(line) <= MOST_SHOWN else line[:MOST_SHOWN] + "…"
    raise BadFile(f"{source}, line {number}: {reason}: '{printable(excerpt)}'")


def amount(text: str) -> float:
    """Return the number in a text, finite and zero or more.

    Raise BadLine for anything else, also for signs, separators, and digits of other scripts.
    """
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    if not math.isfinite(value):
        raise BadLine(f"{text!r} is not a number, zero or more")
    return value


def whole_number(text: str) -> int:
    """Return the whole number in a text, zero or more, of at most 19 digits.

    Raise BadLine for anything else.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadLine(f"{text!r} is not a whole number, zero or more")
    return int(text)


def looks_like_json(text: str) -> bool:
    """Return True if a text begins as JSON does.

    A bracket alone is not enough, since the label of a rank begins with one.
    """
    return re.match(r"\s*(?:\{|\[\s*[\[{])", text) is not None


def json_with(*marks: str) -> Callable[[str], bool]:
    """Return a function that recognises JSON that contains these texts."""
    return lambda text: looks_like_json(text) and all(mark in text for mark in marks)


def from_json(text: str, source: str, struct: type[Struct]) -> Struct:
    """Return the JSON of a file as a record. Fields that the record lacks are ignored."""
    return as_record(decode_json(text, source), source, struct)


def as_record(document: object, source: str, struct: type[Struct]) -> Struct:
    """Return plain data as a record. Raise BadFile if they do not fit it."""
    try:
        return msgspec.convert(document, struct)
    except msgspec.ValidationError as error:
        raise BadFile(f"{source}: {error}") from None
