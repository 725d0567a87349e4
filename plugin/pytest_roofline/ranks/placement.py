"""The interface of a placement, which starts ranks as processes somewhere and tells of their ends."""

from typing import Protocol

# What each of them runs.
MODULE = "pytest_roofline.ranks.worker"


class Placement(Protocol):
    """Starts ranks, tells of their ends, and ends them."""

    name: str
    """`local`, `torchrun`, `mpirun`, `srun`, `attach`."""

    bind: str
    """The address that ranks can reach the controller on; empty where that may be any."""

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start `size` ranks with these environment variables."""

    def trouble(self) -> str:
        """Return why ranks will not come; empty while all is well."""

    def fate(self, rank: int) -> str:
        """Return the end of a lost rank; empty if nobody knows. In words: `killed by SIGKILL`,
        `exit code 3`.
        """

    def stacks_of(self, rank: int, descriptor: int) -> str:
        """Return the stacks that a blocked rank writes at a signal. Empty if there are none to be
        had.
        """

    def tail(self, rank: int) -> str:
        """Return the last words of a rank's log."""

    def kill(self) -> None:
        """End everything at once."""

    def wait(self, seconds: float) -> bool:
        """Return whether all ends by itself within so many seconds. It is called after an orderly
        stop.
        """
