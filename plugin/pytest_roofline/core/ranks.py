"""What a measurement over several ranks has beside its samples: who took part, each rank's own times, who was late."""

from dataclasses import dataclass

from .checks import require_amounts, require_positive
from .errors import BadInput


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks behind a measurement, whose samples are the largest of all ranks', iteration by iteration.

    Args:
        size: ranks of the world.
        launcher: what started them: `local`, `torchrun`, `mpirun`, `srun`, `attach`.
        backend: of the measured group: `gloo`, `nccl` …
        hosts: name of the host of every rank.
        seconds: [rank][sample], seconds per call on each rank alone.
        straggler: the rank that the others waited for; None where nobody was late by more than noise.
        lag_s: [rank], seconds that each needs more than the fastest for its own part of a call, outside of collectives.
        threads: that each rank computes with.
        algorithm: of the collective, in run files of version 0.1 only; as `protocol`.
        protocol: likewise.
        generation: of the processes; a new one follows every failure.
        fresh: whether they were started for this measurement, so that its first call loaded and allocated what a new
            process has not yet; the device's context and the ranks' groups came before it.
    """

    size: int
    launcher: str
    backend: str
    hosts: tuple[str, ...] = ()
    seconds: tuple[tuple[float, ...], ...] = ()
    straggler: int | None = None
    lag_s: tuple[float, ...] = ()
    threads: int | None = None
    algorithm: str = ""
    protocol: str = ""
    generation: int = 1
    fresh: bool = False

    def __post_init__(self) -> None:
        require_amounts(self, above_zero=("generation",), from_zero=("lag_s", "threads"))
        if self.size < 1:
            raise BadInput(f"size is {self.size}; expected one rank or more")
        for name in ("hosts", "seconds", "lag_s"):
            held = len(getattr(self, name))
            if held not in (0, self.size):
                raise BadInput(f"{name} holds {held} ranks; expected {self.size}")
        if len({len(own) for own in self.seconds}) > 1:
            raise BadInput("seconds holds rows of different length; expected as many samples of every rank")
        for own in self.seconds:
            require_positive(own, "seconds")
        if self.straggler is not None and not 0 <= self.straggler < self.size:
            raise BadInput(f"straggler is {self.straggler}; expected a rank from 0 to {self.size - 1}")

    @property
    def nodes(self) -> int:
        """Hosts that took part; 1 where nobody noted them."""
        return len(set(self.hosts)) or 1

    def comparable(self) -> dict[str, str]:
        """What of the ranks is worth naming when it changed."""
        facts = {
            "launcher": self.launcher,
            "back end": self.backend,
            "nodes": str(self.nodes),
            "threads a rank": "" if self.threads is None else str(self.threads),
        }
        return {name: text for name, text in facts.items() if text}
