"""Raw facts on disk as they come: JSON lines, of which a stage that is cut loses none."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.core.storage import decode_json, read_bytes

NAME = "facts.jsonl"
# The fact with which a stage ends.
STAGE = "stage"
Outcome = Literal["finished", "cut", "again"]


@dataclass(frozen=True, slots=True)
class Fact:
    """What was found of one thing.

    Args:
        stage: that asked.
        what: was asked: `event pair`, `memcpy 2: tests`.
        values: that were found; seconds, bytes and shares by their names.
        error: why it could not be found out; empty where it was.
        lacking: what this machine lacks, so that it was not asked; empty where it was.
    """

    stage: str
    what: str
    values: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    lacking: str = ""


class Facts:
    """The file, and what it holds. `header` says on what it was found; facts of another device do not join it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.all: list[Fact] = []

    def add(self, fact: Fact) -> Fact:
        """Write a fact down at once."""
        self.all.append(fact)
        self._append({"stage": fact.stage, "what": fact.what} | _told(fact))
        return fact

    def end(self, stage: str, outcome: Outcome, seconds: float) -> None:
        """Write down how a stage ended, and after how long."""
        self.add(Fact(stage, STAGE, {"outcome": outcome, "seconds": round(seconds, 1)}))

    def forget(self, stage: str) -> None:
        """Ask a stage anew; what it found before stays in the file and counts no longer."""
        self.end(stage, "again", 0.0)

    def latest(self) -> dict[tuple[str, str], Fact]:
        """The last fact of each thing, in the order in which the things were first asked."""
        found: dict[tuple[str, str], Fact] = {}
        for fact in self.all:
            if fact.what == STAGE and fact.values["outcome"] == "again":
                found = {key: one for key, one in found.items() if key[0] != fact.stage}
            else:
                found[fact.stage, fact.what] = fact
        return found

    def find(self, stage: str, pattern: str) -> Iterator[Fact]:
        """The last facts of everything whose name fits a pattern of the shell."""
        return (
            one
            for one in self.latest().values()
            if one.stage == stage and fnmatchcase(one.what, pattern)
        )

    def asked(self, stage: str) -> set[str]:
        """What a stage has asked by now."""
        return {
            fact.what
            for fact in self.latest().values()
            if fact.stage == stage and fact.what != STAGE
        }

    def outcome(self, stage: str) -> Outcome | None:
        """How a stage ended; None where it was never called."""
        ended = self.latest().get((stage, STAGE))
        return None if ended is None else ended.values["outcome"]

    def reload(self) -> None:
        """Read what a process of ours has added."""
        self.header, self.all = _read(self.path)

    def _append(self, plain: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain, ensure_ascii=False, default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _told(fact: Fact) -> dict[str, Any]:
    more = {name: value for name in ("error", "lacking") if (value := getattr(fact, name))}
    return ({"values": fact.values} if fact.values else {}) | more


def begin(folder: Path, header: dict[str, Any]) -> Facts:
    """The facts of a folder, to go on with, or a new file.

    Args:
        folder: that holds them.
        header: on what they are found; `device`, `product` and `minutes` must stay the same.

    Raises:
        BadInput: those that are there were found on another device.
        BadFile: they cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = Facts(folder / NAME)
    if not facts.path.exists():
        facts.header = header
        facts._append({"header": header})
        return facts
    facts.reload()
    unlike = [
        f"{name} {facts.header.get(name)}, here {header.get(name)}"
        for name in ("device", "product", "planted", "minutes")
        if facts.header.get(name) != header.get(name)
    ]
    if unlike:
        raise BadInput(
            f"{facts.path} was found on {'; '.join(unlike)}; expected the same, or another folder as --out"
        )
    return facts


def read(folder: Path) -> Facts:
    """The facts of a folder.

    Raises:
        BadFile: there are none, or they cannot be read.
    """
    facts = Facts(folder / NAME)
    facts.reload()
    return facts


def _read(path: Path) -> tuple[dict[str, Any], list[Fact]]:
    """A last line that was cut in the middle is taken off the file, so that the next one begins anew."""
    data = read_bytes(path, "facts")
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        path.write_bytes(whole)
    header: dict[str, Any] = {}
    found = []
    for number, text in enumerate(whole.splitlines(), 1):
        raw = decode_json(text, f"facts {path}, line {number}")
        if number == 1 and isinstance(raw, dict) and isinstance(raw.get("header"), dict):
            header = raw["header"]
        elif header and isinstance(raw, dict) and {"stage", "what"} <= raw.keys():
            known = {
                name: raw[name]
                for name in ("stage", "what", "values", "error", "lacking")
                if name in raw
            }
            found.append(Fact(**known))
        else:
            raise BadFile(
                f"facts {path}, line {number} is no fact; expected a header first, then stage and what"
            )
    if not header:
        raise BadFile(f"facts {path} are empty; expected a header in the first line")
    return header, found
