"""The code blocks of the documentation, as the tests take them.

A comment directly above a block says what a test does with it where that is not the usual:
`<!-- docs-test: WORD, why -->`. Several words are parted by `;`, and none but `then` goes without a reason behind its
comma. `parse` may be of some lines only (`parse 3-4`). Usual is:

* `sh`: each command line is run with bash and exits with 0;
* `python`: a program is run, all of a page in one namespace; tests are run by pytest, on this machine's CPU;
* `text`: what the last block above it printed: all of it for a program, these lines in this order for a command;
* `json`, `csv`, `diff`: only with a word.

| word | of | meaning |
|---|---|---|
| `parse` | sh | the commands cannot be run in a test: options and selections are checked |
| `exit N` | sh | the commands exit with this status |
| `file NAME` | python, json, csv | is written there before the rest of the page is run |
| `then COMMAND` | json, csv | after `file`: this command then exits with 0; `then exit N COMMAND` with another status |
| `only EXPRESSION` | python | of its tests these are run: the others take too long |
| `patch NAME` | diff | is applied to this file |
| `shape` | text | the numbers are another machine's |
| `record` | text | was printed by something that no test repeats, or is a formula |
| `elsewhere FILE` | sh, text | this test file runs the block; `test_blocks.py` counts those that it runs |
| `compared FILE` | sh | this test file compares the command with another that cannot be run either |
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Folders that may lie in a checkout; a golden summary is an output, which its own test compares.
NOT_OURS = {"build", "dist", "golden", "shared", "site-packages"}
# The words of each language; the others of these stand above every block of theirs.
ALLOWED = {
    "sh": {"parse", "exit", "elsewhere", "compared"},
    "python": {"file", "only"},
    "text": {"shape", "record", "elsewhere"},
    "json": {"file", "then", "record"},
    "csv": {"file", "then"},
    "diff": {"patch"},
}
NEEDED = {"json": {"file", "record"}, "csv": {"file"}, "diff": {"patch"}}


@dataclass(frozen=True)
class Word:
    """One word of a comment; `lines` of the block that it is about, counted from 1, are all if there are none."""

    kind: str
    argument: str
    lines: frozenset[int]
    why: str


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the line of its opening fence and the words of the comment above it."""

    page: str
    line: int
    language: str
    text: str
    words: tuple[Word, ...]

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.page}:{self.line}"

    @property
    def apart(self) -> bool:
        """Whether another test looks after it."""
        return bool(self.word("elsewhere") or self.word("compared"))

    def word(self, kind: str, line: int | None = None) -> Word | None:
        """The word of a kind that is about the block, or about a line of it."""
        return next(
            (
                one
                for one in self.words
                if one.kind == kind and (not one.lines or line in one.lines)
            ),
            None,
        )

    def commands(self) -> list[tuple[int, str]]:
        """The commands of an `sh` block with the number of their first line: continued lines joined."""
        found: list[tuple[int, str]] = []
        start, waiting = 0, ""
        for number, line in enumerate(self.text.splitlines(), 1):
            start = start or number
            waiting += line.removesuffix("\\")
            if line.endswith("\\"):
                continue
            if waiting.strip() and not waiting.lstrip().startswith("#"):
                found.append((start, waiting))
            start, waiting = 0, ""
        return found


def pages() -> list[str]:
    """Every page that may have blocks, from the root of the repository."""
    inside = [path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("[!.]*/**/*.md")]]
    return sorted(path.as_posix() for path in inside if not NOT_OURS & set(path.parts))


def read_page(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    start, comment = 0, ""
    for number, line in enumerate(lines, 1):
        if not start and line.lstrip().startswith("```"):
            start = number
        elif start and line.strip() == "```":
            inside = "".join(f"{each}\n" for each in lines[start : number - 1])
            language = lines[start - 1].strip().removeprefix("```")
            found.append(Block(page, start, language, inside, _words(comment, f"{page}:{start}")))
            start, comment = 0, ""
        elif not start and line.strip():
            comment = line.strip()
    return found


def _words(comment: str, place: str) -> tuple[Word, ...]:
    if not comment.startswith("<!-- docs-test"):
        return ()
    told = re.fullmatch(r"<!-- docs-test: (.*) -->", comment)
    assert told, f"{place}: {comment!r} above the block; expected `<!-- docs-test: WORD, why -->`"
    return tuple(_word(part.strip(), place) for part in told[1].split(";"))


def _word(text: str, place: str) -> Word:
    kind, _, rest = text.partition(" ")
    if kind == "then":
        return Word(kind, rest, frozenset(), rest)
    asked, _, why = text.partition(", ")
    argument = asked.partition(" ")[2]
    assert why.strip(), f"{place}: {text!r} has no reason; expected `WORD, why`"
    if lines := re.fullmatch(r"(\d+)(?:-(\d+))?", argument) if asked.startswith("parse") else None:
        return Word(
            "parse", "", frozenset(range(int(lines[1]), int(lines[2] or lines[1]) + 1)), why
        )
    return Word(asked.partition(" ")[0], argument, frozenset(), why)
