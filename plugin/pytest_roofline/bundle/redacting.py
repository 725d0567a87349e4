"""Stable placeholders in place of names: `host-1` is the same host in every file of an archive."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..core.errors import BadInput
from .patterns import CATEGORIES, COMMON, PATTERNS, hosts_in, is_address, is_private, owners

# Shorter names are in too many words.
SHORTEST = 2
_WORD = re.compile(r"[A-Za-z0-9]+")
_ALONE = re.compile(r"(?![A-Za-z0-9])")
_DOMAIN = re.compile(r"(?:\.[A-Za-z][\w-]*)*(?![A-Za-z0-9])")
_PLACEHOLDER = re.compile(rf"\b(?:{'|'.join(CATEGORIES.values())})-\d+\b")


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of a text that is to be replaced, and as what."""

    start: int
    end: int
    rank: int


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
            raise BadInput(f"--keep names {', '.join(unknown)}; expected some of {', '.join(CATEGORIES)}")
        self._order = tuple(CATEGORIES)
        self._placeholders: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()
        self._known: dict[str, str] = {}
        # The known names by their first word.
        self._begin: dict[str, list[str]] = {}
        self._apart = False
        self._as_they_are: set[str] = set()
        self._common = set(COMMON)
        # A run of thousands of measurements says the same few hundred texts again and again.
        self._found: dict[str, list[_Span]] = {}
        self._learned_from: set[str] = set()

    def leave(self, texts: Iterable[str]) -> None:
        """Versions that look like addresses and are none."""
        self._as_they_are |= set(texts)
        self._found.clear()

    def leave_words(self, names: Iterable[str]) -> None:
        """Names whose words are not looked for, even where a machine is called so."""
        self._common |= {word.lower() for name in names for word in re.split(r"[^A-Za-z0-9]+", name)}

    def learn(self, category: str, name: str) -> None:
        """A name that is to be found wherever it stands alone, in any case; a host by its short name too."""
        if category == "hosts" and "." in name:
            self.learn(category, name.partition(".")[0])
        if len(name) < SHORTEST or name.isdecimal() or name.lower() in self._common or category in self.keep:
            return
        if name.lower() not in self._known:
            self._known[name.lower()] = category
            first = _WORD.search(name.lower())
            self._begin.setdefault(first[0] if first is not None else "", []).append(name.lower())
        self._found.clear()

    def learn_from(self, text: str) -> None:
        """Take note of the people that a text names in its paths, and of machines that are named as such."""
        if text in self._learned_from:
            return
        self._learned_from.add(text)
        for name in owners(text):
            self.learn("users", name)
        for name in hosts_in(text):
            self.learn("hosts", name)

    def whole(self, category: str, text: str) -> str:
        """The placeholder of a text that is nothing but a name."""
        category = self._known.get(text.lower(), category)
        if not text or category in self.keep:
            return text
        return self._placeholder(category, text)

    def text(self, text: str) -> str:
        """A text with every name in it replaced."""
        if text not in self._found:
            self._found[text] = _joined(self._spans(text))
        parts, position = [], 0
        for span in self._found[text]:
            placeholder = self._placeholder(self._order[span.rank], text[span.start : span.end])
            parts += [text[position : span.start], placeholder]
            position = span.end
        return "".join(parts) + text[position:]

    def tell_apart(self) -> None:
        """From now on two spellings of a name are two names, and what was replaced before is forgotten."""
        self._apart = True
        self._placeholders.clear()
        self._numbers.clear()

    def summary(self, texts: Iterable[str]) -> dict[str, tuple[int, int]]:
        """By category, how many values are replaced in these texts, and how often."""
        made = {placeholder: category for (category, _), placeholder in self._placeholders.items()}
        times = Counter(word for text in texts for word in _PLACEHOLDER.findall(text) if word in made)
        values = Counter(made[word] for word in times)
        return {
            category: (values[category], sum(count for word, count in times.items() if made[word] == category))
            for category in CATEGORIES
            if values[category]
        }

    def _spans(self, text: str) -> Iterable[_Span]:
        for rank, category in enumerate(self._order):
            if category in self.keep:
                continue
            for pattern in PATTERNS[category]:
                for match in pattern.finditer(text):
                    start, end = match.span("it" if "it" in pattern.groupindex else 0)
                    if self._counts(category, text[start:end]):
                        yield _Span(start, end, rank)
        for start, end, name in self._known_in(text):
            yield _Span(start, end, self._order.index(self._known[name]))

    def _known_in(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where the known names stand alone in a text, a host with the domain behind it."""
        for word in _WORD.finditer(text) if self._begin else ():
            for name in self._begin.get(word[0].lower(), ()):
                start = word.start() - name.index(word[0].lower())
                end = start + len(name)
                more = _DOMAIN if self._known[name] == "hosts" else _ALONE
                if start >= 0 and text[start:end].lower() == name and not _WORD.match(text[max(start - 1, 0) : start]):
                    behind = more.match(text, end)
                    if behind is not None:
                        yield start, behind.end(), name
        for name in self._begin.get("", ()):
            for match in re.finditer(re.escape(name), text, re.IGNORECASE):
                yield *match.span(), name

    def _counts(self, category: str, found: str) -> bool:
        if category == "addresses":
            return found not in self._as_they_are and is_address(found)
        if category in ("paths", "urls"):
            return is_private(found)
        return bool(found) and not (category in ("users", "hosts") and found.lower() in self._common)

    def _placeholder(self, category: str, text: str) -> str:
        key = category, self._same(category, text)
        if key not in self._placeholders:
            self._numbers[category] += 1
            self._placeholders[key] = f"{CATEGORIES[category]}-{self._numbers[category]}"
        return self._placeholders[key]

    def _same(self, category: str, text: str) -> str:
        """What two spellings of one name have in common: of a host that is known by its short name, that."""
        if self._apart:
            return text
        if category not in ("hosts", "users", "emails"):
            return text.strip("\"'")
        short = text.lower().partition(".")[0]
        return short if self._known.get(short) == category == "hosts" else text.lower()


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    """Spans in order; those that overlap are one, of the category that comes first, so that nothing stays of either."""
    joined: list[_Span] = []
    for span in sorted(spans, key=lambda one: (one.start, one.end)):
        last = joined[-1] if joined else None
        if last is not None and span.start < last.end:
            joined[-1] = _Span(last.start, max(last.end, span.end), min(last.rank, span.rank))
        else:
            joined.append(span)
    return joined


def summary_lines(summary: Mapping[str, tuple[int, int]], keep: Iterable[str]) -> list[str]:
    """What was replaced and what was kept, by category, without a value."""
    replaced = [f"{category}: {values} ({times} times)" for category, (values, times) in summary.items()]
    kept = sorted(keep)
    return [
        f"replaced by placeholders: {', '.join(replaced) or 'nothing'}",
        *([f"kept as they are: {', '.join(kept)}"] if kept else []),
    ]
