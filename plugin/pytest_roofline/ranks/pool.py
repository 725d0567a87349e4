"""The controller's side: ranks that are kept from test to test. After a failure they are started
anew.
"""

import atexit
import contextlib
import signal
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..core.errors import BadInput, RanksFailed, RanksSkipped
from ..core.groups import group_by
from ..core.units import printable_lines
from ..processes.system import signal_to
from .blame import report
from .driving import Boot, Member, Progress, Tell, drive, ends
from .listener import store_server
from .placement import Placement
from .tasks import Answer, FunctionRef, Task, World, decode, encode

# Until every rank of a world has come.
BOOT_S = 90.0
STOP_S = 5.0
# So many boots that failed in a row are not followed by another.
MOST_FAILED_BOOTS = 2
# torch gives up a collective after so many times the task's own time-out, and not before these ten minutes.
GROUP_FACTOR, GROUP_S = 4.0, 600.0


class Pool:
    """The ranks of one launcher. A task takes the first few of them."""

    def __init__(
        self,
        placement: Placement,
        size: int,
        kind: str,
        *,
        address: str | None = None,
        boot_s: float = BOOT_S,
        explicit: bool = True,
    ) -> None:
        self.placement = placement
        self.size = size
        self.kind = kind
        self.generation = 0
        self._address = placement.bind if address is None else address
        self._boot_s, self._explicit = boot_s, explicit
        self._members: dict[int, Member] = {}
        self._store: Any = None
        self._world: World | None = None
        self._worlds = 0
        self._tasks = 0
        self._inside = 0
        # By number of ranks, how boots in a row have failed: what cannot be is not tried again and again.
        self._boot_failures: dict[int, list[RanksFailed | RanksSkipped]] = defaultdict(list)
        # However pytest ends, its ranks do not outlive it.
        atexit.register(self.kill)

    @property
    def members(self) -> list[Member]:
        """Its ranks, started where they are not there yet."""
        self._ensure(self.size)
        return [self._members[rank] for rank in sorted(self._members)]

    @property
    def present(self) -> list[Member]:
        """Those of its ranks that are there."""
        return [self._members[rank] for rank in sorted(self._members)]

    def run(
        self,
        function: FunctionRef,
        arguments: Sequence[object],
        size: int,
        *,
        timeout_s: float,
        backend: str | None = None,
        plan: object = None,
        tell: Tell | None = None,
    ) -> list[Any]:
        """Have the first ranks do a task."""
        # For pytest, which takes this as a wish; whoever reads a failure wants the test's own line.
        encoded_arguments = encode(tuple(arguments), "an argument")
        if not 1 <= size <= self.size:
            raise BadInput(
                f"a world of {size} ranks was requested; expected 1 to {self.size}, the size of this pool"
            )
        try:
            self._ensure(size)
            self._tasks += 1
            task = Task(
                self._tasks,
                self._world_of(size, backend, timeout_s),
                function,
                encoded_arguments,
                plan,
            )
            self._let_go(size)
            progress = drive(task, [self._members[rank] for rank in range(size)], timeout_s, tell)
        except BaseException:
            # Ctrl-C, a time-out of the test framework's: never leave ranks behind.
            self.kill()
            raise
        if progress.failed or progress.waiting:
            self._fail(progress, size, timeout_s)
        return [
            decode(progress.answers[rank].value, f"the result of rank {rank}")
            for rank in range(size)
        ]

    def kill(self) -> None:
        """End every rank at once; the next task starts new ones."""
        members = self._forget()
        if not self.generation:
            return
        # Each also ends by itself now, wherever it is.
        for member in members.values():
            member.channel.close()
            if member.here and self.placement.name != "local":
                signal_to(member.process, signal.SIGKILL)
        self.placement.kill()

    def stop(self) -> None:
        """Let every rank end in order; what does not is killed."""
        members = self._forget()
        if not members:
            return
        for member in members.values():
            with contextlib.suppress(OSError):
                member.channel.send({"kind": "stop"})
        in_order = self.placement.wait(STOP_S)
        for member in members.values():
            member.channel.close()
        if not in_order:
            self.placement.kill()

    def _world_of(self, size: int, backend: str | None, timeout_s: float) -> World:
        """Return the last world if it fits a task, else a new one."""
        from .worlds import backend_of

        backend_name, world = backend_of(self.kind, backend), self._world
        group_s = max(GROUP_S, GROUP_FACTOR * timeout_s)
        if (
            world is None
            or (world.size, world.backend) != (size, backend_name)
            or world.timeout_s < group_s
        ):
            self._worlds += 1
            world = self._world = World(
                f"{self.generation}.{self._worlds}", size, backend_name, group_s
            )
        return world

    def _let_go(self, size: int) -> None:
        """Have ranks outside of the next world leave the last one. Letting go of a group may take
        all its members.
        """
        for rank in range(size, self._inside):
            with contextlib.suppress(OSError):
                self._members[rank].channel.send({"kind": "leave"})
        self._inside = size

    def _forget(self) -> dict[int, Member]:
        """Its ranks, which it does not count on from now on."""
        members, self._members, self._world, self._inside = self._members, {}, None, 0
        return members

    def _ensure(self, least: int) -> None:
        """Have all ranks there. A rank that was lost between two tasks costs a new generation, not
        a test.

        Where there are not devices for all, as many as are needed now must do.
        """
        if self._members and all(member.connected for member in self._members.values()):
            return
        if self._members:
            self.kill()
        try:
            self._boot()
        except RanksSkipped:
            if least == self.size:
                raise
            self.size = least
            self._boot()

    def _boot(self) -> None:
        failures = self._boot_failures[self.size]
        if failures and isinstance(failures[-1], RanksSkipped):
            raise RanksSkipped(str(failures[-1]))
        if len(failures) >= MOST_FAILED_BOOTS:
            raise RanksFailed(
                f"{failures[-1]}\n(not tried again after {MOST_FAILED_BOOTS} failed boots)"
            )
        self.generation += 1
        boot = Boot(
            self.placement,
            self.size,
            self.kind,
            self._address,
            self._boot_s,
            explicit=self._explicit,
        )
        try:
            boot.run(self.store_port())
        except BaseException as error:
            self._members = boot.members
            self.kill()
            if not isinstance(error, RanksFailed | RanksSkipped):
                raise
            # Without its traceback, which would hold on to the channels of those that came.
            failures.append(type(error)(printable_lines(str(error))))
            raise type(error)(*failures[-1].args) from None
        self._members = boot.members
        failures.clear()

    def store_port(self) -> int:
        """Return the port of the store that worlds meet in. The store is made once and kept as long
        as the pool.
        """
        if self._store is None:
            self._store = store_server(self._address)
        return int(self._store.port)

    def _fail(self, progress: Progress, size: int, timeout_s: float) -> None:
        """Raise a report of the first bad rank. The next task begins with ranks that know nothing
        of this one.
        """
        members = [self._members[rank] for rank in range(size)]
        if skipped := progress.skipped:
            if len(skipped) == size:
                # Nobody is stuck, so the processes are sound; what they may have left unfinished is not met again.
                self._world = None
            else:
                self.kill()
            raise RanksSkipped(printable_lines(_skip_text(skipped, members)))
        task_ends = ends(progress, members, self.placement)
        tails = {
            end.rank: self.placement.tail(end.rank)
            for end in task_ends
            if end.how in ("lost", "stuck")
        }
        self.kill()
        raise RanksFailed(printable_lines(report(task_ends, timeout_s, tails)))


def _skip_text(skipped: dict[int, Answer], members: Sequence[Member]) -> str:
    parts = []
    for reason, ranks in group_by(sorted(skipped), key=lambda rank: skipped[rank].error).items():
        names = ", ".join(f"{rank} on {members[rank].host}" for rank in ranks)
        parts.append(
            reason
            if len(ranks) == len(members)
            else f"{reason} (rank{'s' * (len(ranks) > 1)} {names})"
        )
    return "; ".join(parts)
