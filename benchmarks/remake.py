"""Make the pages that programs make anew, or say which of them are stale.

    python benchmarks/remake.py --stale        # which pages are not of today's sources; nothing is made
    python benchmarks/remake.py ab-quality     # this page; without a name all of them

A page is stale when a source of its figures has changed since it was made: `docs/results/sources.json` holds the digest
of each source as it was then, with commit and day. One that cannot be made anew at once says so below its title:
`**Stale since DATE**: REASON.`
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from digests import digest
from result_pages import MAKINGS, ROOT, Making
from stamp import stamp

SOURCES = ROOT / "docs/results/sources.json"


@dataclass(frozen=True, slots=True)
class Record:
    """Of what a page was made.

    Args:
        made: commit and day, as a sentence.
        sources: the digest of each source.
    """

    made: str = "Never recorded."
    sources: dict[str, str] = field(default_factory=dict)


# By page and program.
Records = dict[str, dict[str, Record]]


@dataclass(frozen=True, slots=True)
class State:
    """A page, or the part of a program, beside its sources.

    Args:
        making: how it is made.
        made: commit and day of the page, as a sentence.
        changed: the sources that are not those of the page.
        mark: the sentence by which the page says since when it is stale; empty where it has none.
    """

    making: Making
    made: str
    changed: tuple[str, ...]
    mark: str

    @property
    def stale(self) -> bool:
        """Return whether a source changed, or the page itself says that it is stale."""
        return bool(self.changed or self.mark)

    @property
    def silent(self) -> bool:
        """Return whether the page is stale and does not say since when."""
        return self.stale and not self.mark

    def line(self) -> str:
        """Return a line on the page, with what to type where it is silent."""
        making = self.making
        name, changed = f"{making.page} by {making.program}", ", ".join(self.changed) or "none"
        facts = f"{self.made} Changed: {changed}."
        if self.mark:
            return f"{name}: {self.mark.replace('**', '')} {facts}"
        return (
            f"{name}: is stale and does not say since when. {facts} Make it anew with `python benchmarks/remake.py "
            f"{making.name}` ({_cost(making)}), or write below its title: **Stale since DATE**: REASON."
        )


def _cost(making: Making) -> str:
    """Return minutes and needs in words."""
    return f"{making.minutes:g} min" + (f", needs {making.needs}" if making.needs else "")


def states(makings: Sequence[Making] = MAKINGS) -> list[State]:
    """Return the state of every page whose sources are named."""
    recorded = read(SOURCES)
    return [
        state_of(making, recorded.get(making.page, {}).get(making.program, Record()))
        for making in makings
        if making.sources
    ]


def state_of(making: Making, recorded: Record) -> State:
    """Return the state of a page beside what was recorded when it was made."""
    before, now = recorded.sources, digests_of(making)
    changed = [
        path for path in sorted(before.keys() | now.keys()) if before.get(path) != now.get(path)
    ]
    mark = making.mark((ROOT / making.page).read_text(encoding="utf-8"))
    return State(making, recorded.made, tuple(changed), mark)


def digests_of(making: Making) -> dict[str, str]:
    """Return the digest of each source, as the sources are now."""
    return {source: digest(ROOT / source) for source in making.all_sources}


def read(path: Path) -> Records:
    """Return what was recorded of every page."""
    return msgspec.json.decode(path.read_bytes(), type=Records)


def record(making: Making, made: Record) -> None:
    """Write down of what a page was made."""
    recorded = read(SOURCES)
    recorded.setdefault(making.page, {})[making.program] = made
    text = msgspec.json.encode(recorded, order="sorted")
    SOURCES.write_bytes(msgspec.json.format(text, indent=1) + b"\n")


def remake(makings: Sequence[Making]) -> list[str]:
    """Run the programs of pages; return a line for each that failed."""
    failures = []
    for command in dict.fromkeys(shared(making) for making in makings):
        own = [making for making in makings if shared(making) == command]
        # As they are now: somebody may change them while they are recorded, or while the program runs.
        records = [
            (making, Record(stamp(), digests_of(making))) for making in own if making.sources
        ]
        if failure := prepare(own[0]):
            failures.append(failure)
            continue
        print(f"python {' '.join(command)} ({_cost(own[0])})", flush=True)
        status = subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode
        if status:
            failures.append(f"python {' '.join(command)}: ended with status {status}; expected 0")
            continue
        for making, made in records:
            record(making, made)
    return failures


def prepare(making: Making) -> str:
    """Run the commands before a program; return a line about the first that failed, empty where none did."""
    for text in making.before:
        print(text, flush=True)
        words = shlex.split(text.removeprefix("-"))
        if words[0] == "python":
            words[0] = sys.executable
        try:
            status = subprocess.run(words, cwd=ROOT, check=False).returncode
        except OSError as error:
            return f"{text}: {words[0]} could not start: {error.strerror}; install it, or put it on PATH"
        if status and not text.startswith("-"):
            return f"{text}: ended with status {status}; expected 0"
    return ""


def shared(making: Making) -> tuple[str, ...]:
    """Return the command of a page, which two pages may share."""
    return tuple(making.command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, or 1 where a page is stale without saying so or a program failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(making.name for making in MAKINGS))
    parser.add_argument(
        "pages", nargs="*", metavar="PAGE", help=f"default: all of {', '.join(names)}"
    )
    parser.add_argument("--stale", action="store_true", help="list stale pages, and make none")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.pages if name not in names]:
        parser.error(f"{unknown[0]} is no page; expected one of {', '.join(names)}")
    makings = [making for making in MAKINGS if making.name in (options.pages or names)]
    if not options.stale:
        failures = remake(makings)
        print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
        return int(bool(failures))
    stale = [state for state in states(makings=makings) if state.stale]
    print(*(state.line() for state in stale), sep="\n", end="\n" if stale else "")
    return int(any(state.silent for state in stale))


if __name__ == "__main__":
    sys.exit(main())
