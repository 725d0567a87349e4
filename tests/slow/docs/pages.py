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
| `unused` | python | defines what no later block uses |
| `patch NAME` | diff | is applied to this file |
| `shape` | text | the numbers are another machine's |
| `record` | text | was printed by something that no test repeats, or is a formula |
| `elsewhere FILE` | sh, text | this test file runs the block; `test_blocks.py` counts those that it runs |
| `compared FILE` | sh | this test file holds the command against another that cannot be run either |
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Folders that may lie in a checkout.
# A golden summary is an output, which its own test compares.
NOT_OURS = {"build", "dist", "golden", "shared", "site-packages"}
LANGUAGES = ("sh", "python", "text", "json", "csv", "diff", "yaml")
ALLOWED = {
    "sh": {"parse", "exit", "elsewhere", "compared"},
    "python": {"file", "only", "unused"},
    "text": {"shape", "record", "elsewhere"},
    "json": {"file", "then", "record"},
    "csv": {"file", "then"},
    "diff": {"patch"},
    "yaml": {"file", "then"},
}
NEEDED = {"json": {"file", "record"}, "csv": {"file"}, "diff": {"patch"}, "yaml": {"file"}}
COMMENT = re.compile(r"<!-- docs-test: (.*) -->")


@dataclass(frozen=True)
class Word:
    """One word of a comment.

    Args:
        kind: `parse`, `file` …
        argument: what follows it.
        lines: of the block that it is about, counted from 1; none are all of them.
        why: its reason.
    """

    kind: str
    argument: str
    lines: frozenset[int]
    why: str


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        page: its file, from the root of the repository.
        line: of its opening fence.
        language: behind the fence.
        text: inside, with the end of its last line.
        words: of the comment above.
    """

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
        found = [word for word in self.words if word.kind == kind and (not word.lines or line in word.lines)]
        return found[0] if found else None

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
        assert not waiting, f"{self.place}: the last line ends in a backslash"
        return found


def pages() -> list[str]:
    """Every page that may have blocks, from the root of the repository."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("[!.]*/**/*.md")]
    inside = [path.relative_to(ROOT) for path in found]
    return sorted(path.as_posix() for path in inside if not NOT_OURS & set(path.parts))


def stories(folder: str = "") -> list[str]:
    """The pages of a folder that have blocks for a test to execute."""
    inside = [page for page in pages() if page.startswith(folder)]
    return [page for page in inside if read_page(page)]


def read_page(page: str) -> list[Block]:
    """The blocks of a page, in order. A fence that is never closed is an error."""
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
    assert not start, f"{page}:{start}: this block is never closed"
    return found


def _words(comment: str, place: str) -> tuple[Word, ...]:
    if not comment.startswith("<!-- docs-test"):
        return ()
    told = COMMENT.fullmatch(comment)
    assert told, f"{place}: {comment!r} above the block; expected `<!-- docs-test: WORD, why -->`"
    return tuple(_word(part.strip(), place) for part in told[1].split(";"))


def _word(text: str, place: str) -> Word:
    asked, _, why = text.partition(", ")
    kind, *rest = asked.split(" ", 1)
    argument = rest[0] if rest else ""
    if kind == "then":
        return Word(kind, f"{argument}{', ' * bool(why)}{why}", frozenset(), why or argument)
    lines = re.fullmatch(r"(\d+)(?:-(\d+))?", argument) if kind == "parse" else None
    span = range(int(lines[1]), int(lines[2] or lines[1]) + 1) if lines else ()
    assert why.strip(), f"{place}: {text!r} has no reason; expected `WORD, why`"
    return Word(kind, "" if lines else argument, frozenset(span), why)
