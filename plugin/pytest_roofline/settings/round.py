"""The round that this process is: what another run asks of it."""

import json
import os
import time
from pathlib import Path

import pytest

round_key: pytest.StashKey["Round"] = pytest.StashKey()


class Round:
    """A round as its parent describes it, read once.

    The variable is removed, so that nothing that the tests start sees it.
    """

    def __init__(self, path: Path) -> None:
        plain = json.loads(path.read_text(encoding="utf-8"))
        self.number: int = plain["round"]
        # The tests to run; None of all that the command line chooses.
        self.ids: list[str] | None = plain["ids"]
        self.folder = Path(plain["folder"])
        self.parent: int = plain["parent"]
        self.deadline: float | None = plain["deadline"]
        # Whether this process was started for the round, and may end for it.
        self.own_process: bool = plain.get("own_process", False)
        # Of a process of `roofline ab`: the checkout, and the folder whose code stands for it here; None of a round.
        self.side: dict[str, str] | None = plain.get("side")
        self._status = self.folder / "status"

    def say(self, event: str, test_id: str) -> None:
        """Tell the parent an event of a test, on disk before anything else."""
        with self._status.open("a", encoding="utf-8") as file:
            file.write(json.dumps({event: test_id}) + "\n")

    @property
    def over(self) -> str:
        """The reason to start no further test, else an empty text."""
        if os.getppid() != self.parent:
            return "the run that started this round has ended"
        return (
            "the time limit of the run is reached"
            if self.deadline is not None and time.monotonic() > self.deadline
            else ""
        )


def in_round(config: pytest.Config) -> Round | None:
    """Return the round that this process is, if any."""
    return config.stash.get(round_key, None)
