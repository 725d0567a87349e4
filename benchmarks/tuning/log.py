"""What was found so far, on disk as it comes: JSON lines, of which an interrupted run loses none."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.core.storage import decode_json, read_bytes, to_plain, to_record
from roofline_kernels.attention.configurations import Configuration
from tuning.problems import Problem, Setting

Step = Literal["compile", "sweep", "final"]


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one candidate in one step.

    Args:
        step: `compile` says whether it is worth a launch, `sweep` times it once, `final` times the best in turn.
        turn: of the final.
        seconds: per launch; None where there is no time.
        trouble: why there is none, or why it must not be trusted; empty where all is well.
        labels: what the timing engine says of the time.
    """

    problem: Problem
    configuration: Configuration
    step: Step
    turn: int = 0
    seconds: float | None = None
    trouble: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Peer:
    """What came of another attention, or of ours as a whole, at one setting. As `Tried`, per pass."""

    setting: Setting
    passes: Literal["forward", "backward"]
    name: str
    seconds: float | None = None
    trouble: str = ""
    labels: tuple[str, ...] = ()


_TYPES: dict[str, type] = {"tried": Tried, "peer": Peer}
Line = Tried | Peer


class Log:
    """The file, and what it holds; `header` says on what it was made, and another one may not go on with it."""

    def __init__(self, path: Path, header: dict[str, str], lines: Sequence[Line] = ()) -> None:
        self.path, self.header = path, header
        self.tried: list[Tried] = []
        self.peers: list[Peer] = []
        self._found: dict[object, Line] = {}
        for line in lines:
            self._keep(line)

    def find(
        self, problem: Problem, configuration: Configuration, step: Step, turn: int = 0
    ) -> Tried | None:
        """What came of a candidate in a step; None where it had not its turn yet."""
        return self._found.get((problem, configuration, step, turn))

    def find_peer(self, setting: Setting, passes: str, name: str) -> Peer | None:
        """What came of another attention; None where it had not its turn yet."""
        return self._found.get((setting, passes, name))

    def add(self, line: Line) -> None:
        """Write a line down at once."""
        self._keep(line)
        self._append({"type": "tried" if isinstance(line, Tried) else "peer"} | to_plain(line))

    def _keep(self, line: Line) -> None:
        if isinstance(line, Tried):
            self.tried.append(line)
            self._found[line.problem, line.configuration, line.step, line.turn] = line
        else:
            self.peers.append(line)
            self._found[line.setting, line.passes, line.name] = line

    def _append(self, plain: dict[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain, ensure_ascii=False) + "\n")


def begin(path: Path, header: dict[str, str], *, resume: bool) -> Log:
    """A new log, or the old one to go on with.

    Raises:
        BadInput: there is one already and nobody said to go on; or it was made on something else.
        BadFile: the old one cannot be read.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        log = Log(path, header)
        log._append({"type": "header"} | header)
        return log
    if not resume:
        raise BadInput(
            f"{path} is there already; go on with it by --resume, or name another file with --log"
        )
    log = read(path)
    unlike = [f"{name} {log.header.get(name)}, here {value}" for name, value in header.items()
              if log.header.get(name) != value]  # fmt: skip
    if unlike:
        raise BadInput(
            f"{path} was made with {'; '.join(unlike)}; expected the same, or another file with --log"
        )
    return log


def read(path: Path) -> Log:
    """A log. A last line that was cut in the middle is taken off the file, so that the next one begins anew.

    Raises:
        BadFile: it is no log.
    """
    data = read_bytes(path, "log")
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        path.write_bytes(whole)
    header: dict[str, str] = {}
    lines: list[Line] = []
    for number, text in enumerate(whole.splitlines(), 1):
        where = f"log {path}, line {number}"
        raw = decode_json(text, where)
        kind = raw.pop("type", None) if isinstance(raw, dict) else None
        if number == 1 and kind == "header":
            header = raw
        elif kind in _TYPES:
            lines.append(to_record(raw, _TYPES[kind], where))
        else:
            raise BadFile(
                f"{where} is no line of a tuning log; expected a header first, then {' or '.join(_TYPES)}"
            )
    return Log(path, header, lines)
