"""The lines that a page shows, held against what was printed."""

import re

RUN_ID = re.compile(r"\b\d{8}T\d{6}\.\d{6}-\d+\b")
NUMBER = re.compile(r"[+\-−]?\d[\d,.]*(?: ?(?:s|ms|µs|ns|[KMGT]iB|%|x)\b|%)?")


def first_that_was_not_printed(shown: str, printed: str, *, numbers: bool) -> str | None:
    """The first line that is missing, or stands in another order; `numbers` is whether they have to be the same."""
    plain = _named if numbers else _shape
    lines = iter([plain(line) for line in printed.splitlines()])
    for line in shown.splitlines():
        if line not in ("", "…"):
            pattern = re.escape(plain(line)).replace("…", ".*")
            if not any(re.fullmatch(pattern, each) for each in lines):
                return line
    return None


def _named(line: str) -> str:
    """A line with the names of runs that were given none left open."""
    return RUN_ID.sub("RUN", line).rstrip()


def _shape(line: str) -> str:
    """A line whose numbers, and the room they take, are another machine's; neighbours may spoil a measurement."""
    plain = re.sub(r"[▁-█]+", "▁", NUMBER.sub("N", _named(line)))
    return re.sub(r"[\s─=]+", " ", plain).strip().replace("INVALID", "NO BASELINE")
