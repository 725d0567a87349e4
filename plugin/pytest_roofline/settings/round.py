"""The round that this process runs for another run."""

import json
import os
import time
from pathlib import Path

import pytest

round_key: pytest.StashKey["Round"] = pytest.StashKey()


class Round:
    """A round as its parent describes it in a file.

    Args:
        path: the file of the parent's order.
    """

    def __init__(self, path: Path) -> None:
        """Read the task of a round from its file.

        Its parent wrote the file.
        """
        order = json.loads(path.read_text(encoding="utf-8"))
        self.number: int = order["round"]
        # The ids of the tests to run; None runs all that the command line selects.
        self.ids: list[str] | None = order["ids"]
        self.folder = Path(order["folder"])
        # The id of the process that started the round.
        self.parent: int = order["parent"]
        # A time of the monotonic clock, after which no test starts; None without a limit.
        self.deadline: float | None = order["deadline"]
        # Whether this process was started for the round, so that it may end with its parent.
        self.own_process: bool = order.get("own_process", False)
        # For a process of `roofline ab`: the checkout, and the folder with the code of its side. None in a round.
        self.side: dict[str, str] | None = order.get("side")
        self._status = self.folder / "status"

    def say(self, event: str, test_id: str) -> None:
        """Report an event of a test to the parent.

        It is written to disk at once, so that the parent has it if this process dies.
        """
        with self._status.open("a", encoding="utf-8") as file:
            file.write(json.dumps({event: test_id}) + "\n")

    @property
    def over(self) -> str:
        """The reason to start no further test, else an empty text."""
        if os.getppid() != self.parent:
            return "the run that started this round has ended"
        is_late = self.deadline is not None and time.monotonic() > self.deadline
        return "the time limit of the run is reached" if is_late else ""


def in_round(config: pytest.Config) -> Round | None:
    """Return the round that this process is, if any."""
    return config.stash.get(round_key, None)
