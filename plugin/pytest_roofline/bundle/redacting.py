"""Stable placeholders in place of names: `host-1` is the same host in every text, run and source of an archive."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..baselines.runs import Line, Run, assemble, encode_line
from ..core.errors import BadInput
from ..core.storage import to_plain, to_record
from ..hardware.lookup import products
from .credentials import FORMS, SECRET_NAME, scanned
from .patterns import (
    CATEGORIES,
    COMMON,
    PATTERNS,
    PLACEHOLDER,
    hosts_in,
    is_address,
    is_private,
    owners,
)

# What the run file is called in the archive.
RUN_FILE = Path("run.jsonl")
# Shorter names are in too many words.
SHORTEST = 2
# Fields that hold a name and nothing else, by themselves and the one around them.
_NAMED = {
    ("host", "name"): "hosts",
    ("ranks", "hosts"): "hosts",
    ("device", "uuid"): "devices",
    ("reference", "device"): "devices",
}
# Objects whose names are no fields of ours.
_FREE = (
    *("parameters", "software", "packages", "libraries", "variables", "caches"),
    *("options", "arguments", "compiler", "not_measured"),
)
# Words that the names of processors are made of: a machine may be called so, and the processor must stay.
_PROCESSORS = (
    "Intel Xeon Platinum Gold Silver Bronze Max Core Ultra AMD EPYC Ryzen Threadripper Processor Neoverse Grace NVIDIA "
    "ARM Ampere Altra Graviton Aarch64 x86 Virtual QEMU Common KVM"
)
# An argument that is a path to its end, whatever is in it.
_PATH_ARGUMENT = re.compile(r"(--?[\w-]+=)?((?:/|~|[A-Za-z]:[\\/]).+)", re.DOTALL)

Plain = dict[str, Any]
# Start and end of a part of a text that is to be replaced, and the place of its category in `CATEGORIES`.
Span = tuple[int, int, int]


class Redactor:
    """Replaces what gives away where a run was made.

    Args:
        keep: categories that stay as they are.

    Raises:
        BadInput: there is no such category.
    """

    def __init__(self, keep: Iterable[str] = ()) -> None:
        self.keep = frozenset(keep)
        unknown = sorted(self.keep - set(CATEGORIES))
        if unknown:
            raise BadInput(
                f"--keep names {', '.join(unknown)}; expected some of {', '.join(CATEGORIES)}"
            )
        self._placeholders: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()
        # Category by name, in lower case, and the pattern that finds them all; None where it is to be made anew.
        self._known: dict[str, str] = {}
        self._names: re.Pattern[str] | None = None
        self._stay = set(COMMON)
        # A run of thousands of measurements says the same few hundred texts again and again.
        self._redacted: dict[tuple[str, str, str], str] = {}
        self._learned_from: set[str] = set()

    def leave(self, texts: Iterable[str]) -> None:
        """Words that are not looked for, even where a machine is called so, and versions that look like addresses."""
        self._stay |= {text.lower() for text in texts}
        self._redacted.clear()

    def learn(self, category: str, name: str) -> None:
        """A name that is to be found wherever it stands alone, in any case; a host by its short name too."""
        if category == "hosts" and "." in name:
            self.learn(category, name.partition(".")[0])
        if (
            len(name) < SHORTEST
            or name.isdecimal()
            or name.lower() in self._stay
            or category in self.keep
        ):
            return
        self._known.setdefault(name.lower(), category)
        self._names = None
        self._redacted.clear()

    def learn_from(self, text: str) -> None:
        """Take note of the people that a text names in its paths, and of machines that are named as such."""
        if text not in self._learned_from:
            self._learned_from.add(text)
            for category, names in (("users", owners(text)), ("hosts", hosts_in(text))):
                for name in sorted(names):
                    self.learn(category, name)

    def whole(self, category: str, text: str) -> str:
        """The placeholder of a text that is nothing but a name."""
        category = self._known.get(text.lower(), category)
        return text if not text or category in self.keep else self._placeholder(category, text)

    def text(self, text: str, before: str = "", after: str = "") -> str:
        """A text with every name in it replaced; what stands around it may tell that it is a secret."""
        key = before, text, after
        if key not in self._redacted:
            parts, position = [], 0
            for start, end, rank in _joined(self._spans(*key)):
                parts += [
                    text[position:start],
                    self._placeholder(list(CATEGORIES)[rank], text[start:end]),
                ]
                position = end
            self._redacted[key] = "".join(parts) + text[position:]
        return self._redacted[key]

    def left(self, text: str) -> list[int]:
        """The lines of a redacted text that still hold what is a secret wherever it stands."""
        forms = (match.span() for pattern in FORMS for match in pattern.finditer(text))
        found = [] if "secrets" in self.keep else [*forms, *scanned(text)]
        return sorted({text.count("\n", 0, start) + 1 for start, _ in found})

    def summary(self) -> dict[str, int]:
        """By category, how many values were replaced."""
        return {
            category: self._numbers[category] for category in CATEGORIES if self._numbers[category]
        }

    def _spans(self, before: str, text: str, after: str) -> Iterator[Span]:
        if "secrets" not in self.keep:
            whole = f"{before}{text}{after}"
            spans = (
                (start - len(before), end - len(before))
                for start, end in [*self._found("secrets", whole), *scanned(whole)]
            )
            yield from (
                (max(start, 0), min(end, len(text)), 0)
                for start, end in spans
                if start < len(text) and end > 0
            )
        for rank, category in list(enumerate(CATEGORIES))[1:]:
            if category not in self.keep:
                yield from ((start, end, rank) for start, end in self._found(category, text))
        if self._known:
            ranks = {category: rank for rank, category in enumerate(CATEGORIES)}
            for match in self._pattern().finditer(text):
                yield *match.span(), ranks[self._known[(match["host"] or match["other"]).lower()]]

    def _found(self, category: str, text: str) -> Iterator[tuple[int, int]]:
        for pattern in PATTERNS[category]:
            for match in pattern.finditer(text):
                start, end = match.span("it" if "it" in pattern.groupindex else 0)
                if self._counts(category, text[start:end]):
                    yield start, end

    def _pattern(self) -> re.Pattern[str]:
        """Finds the known names where they stand alone, a host with the domain behind it."""
        if self._names is None:
            longest_first = sorted(self._known, key=len, reverse=True)
            hosts = "|".join(
                re.escape(name) for name in longest_first if self._known[name] == "hosts"
            )
            others = "|".join(
                re.escape(name) for name in longest_first if self._known[name] != "hosts"
            )
            either = (
                rf"(?P<host>{hosts or '(?!)'})(?:\.[A-Za-z][\w-]*)*|(?P<other>{others or '(?!)'})"
            )
            self._names = re.compile(rf"(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])", re.IGNORECASE)
        return self._names

    def _counts(self, category: str, found: str) -> bool:
        if category in ("paths", "urls"):
            return is_private(found)
        if PLACEHOLDER.fullmatch(found):
            return False
        stays = category in ("addresses", "users", "hosts") and found.lower() in self._stay
        return bool(found) and not stays and (category != "addresses" or is_address(found))

    def _placeholder(self, category: str, text: str) -> str:
        key = category, self._same(category, text)
        if key not in self._placeholders:
            self._numbers[category] += 1
            self._placeholders[key] = f"{CATEGORIES[category]}-{self._numbers[category]}"
        return self._placeholders[key]

    def _same(self, category: str, text: str) -> str:
        """What two spellings of one name have in common: of a host that is known by its short name, that."""
        if category not in ("hosts", "users", "emails"):
            return text.strip("\"'")
        short = text.lower().partition(".")[0]
        return short if self._known.get(short) == category == "hosts" else text.lower()


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order; those that overlap are one, of the category that comes first, so that nothing stays of either."""
    joined: list[Span] = []
    for start, end, rank in sorted(spans):
        if joined and start < joined[-1][1]:
            first, last, other = joined.pop()
            joined.append((first, max(last, end), min(other, rank)))
        else:
            joined.append((start, end, rank))
    return joined


def summary_lines(summary: Mapping[str, int], keep: Iterable[str]) -> list[str]:
    """What was replaced and what was kept, by category, without a value."""
    replaced = ", ".join(f"{category}: {values}" for category, values in summary.items())
    kept = f"kept as they are: {', '.join(sorted(keep))}"
    return [f"replaced by placeholders: {replaced or 'nothing'}", *[kept] * bool(keep)]


def redacted_run(redactor: Redactor, run: Run) -> tuple[Run, str]:
    """The run without names, and its file's text; every host, person and device that it names is learned first."""
    records: list[Line] = [
        run.header, *run.calibrations, *run.measurements, *run.figures, *run.memory_uses, *run.profiles,
        *run.resources, *run.out_of_memory, *run.outcomes, *run.judgements, *run.exact,
    ]  # fmt: skip
    records += [run.footer] if run.footer is not None else []
    lines = [to_plain(record) for record in records]
    _learn(redactor, run, lines)
    clean = [
        to_record(
            _value(redactor, "", "", line),
            type(record),
            f"the {type(record).__name__} of {RUN_FILE}",
        )
        for line, record in zip(lines, records, strict=True)
    ]
    return assemble(RUN_FILE, clean, run.cut), "".join(map(encode_line, clean))


def _learn(redactor: Redactor, run: Run, lines: Iterable[Plain]) -> None:
    environment = run.header.environment
    device = environment.device
    names = " ".join([*products(), device.architecture or "", _PROCESSORS])
    versions = [
        text for text in (device.driver, device.firmware, *environment.software.values()) if text
    ]
    redactor.leave(re.split(r"[^A-Za-z0-9]+", names))
    redactor.leave(text for text in versions if re.fullmatch(r"\d+(?:\.\d+)+", text))
    for around, name, text in (found for line in lines for found in _texts(line)):
        if (around, name) in _NAMED:
            redactor.learn(_NAMED[around, name], text)
        redactor.learn_from(text)


def _texts(value: Any, around: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text with the name of its field and of the one around it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield around, name, key
            yield from _texts(inner, name, key)
    elif isinstance(value, list):
        # A list's members belong to what the list belongs to, and are called like it.
        for inner in value:
            yield from _texts(inner, around, name)
    elif isinstance(value, str):
        yield around, name, value


def _value(redactor: Redactor, around: str, name: str, value: Any) -> Any:
    """A part of a record; a text by the names of its field and of the one around it."""
    if isinstance(value, dict):
        named = redactor.text if name in _FREE else str
        return {named(key): _value(redactor, name, key, inner) for key, inner in value.items()}
    if name == "command" and isinstance(value, list):
        return command(redactor, value)
    if isinstance(value, list):
        return [_value(redactor, around, name, inner) for inner in value]
    if not isinstance(value, str):
        return value
    category = _NAMED.get((around, name))
    if category is None and SECRET_NAME.fullmatch(name) and not value.isdecimal():
        category = "secrets"
    return redactor.text(value) if category is None else redactor.whole(category, value)


def command(redactor: Redactor, words: list[str]) -> list[str]:
    """A command line, whose words may be a path or the value of the option before."""
    redacted = []
    for before, word in zip(["", *words], words, strict=False):
        path = _PATH_ARGUMENT.fullmatch(word)
        if SECRET_NAME.fullmatch(before) and before.startswith("-") and not word.startswith("-"):
            redacted.append(redactor.whole("secrets", word))
        elif path is not None and "paths" not in redactor.keep:
            redacted.append((path[1] or "") + redactor.whole("paths", path[2]))
        else:
            redacted.append(redactor.text(word, f"{before} "))
    return redacted
