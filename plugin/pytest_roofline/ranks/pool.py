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

# Seconds until every rank has connected.
BOOT_S = 90.0
# Seconds for ranks to end in order, before they are killed.
STOP_S = 5.0
# After so many failed boots in a row, no other is tried.
MOST_FAILED_BOOTS = 2
# torch gives up a collective after this multiple of the task's own time-out, but not before these ten minutes.
GROUP_FACTOR, GROUP_S = 4.0, 600.0


class Pool:
    """The ranks of one launcher. A task takes the first few of them.

    Args:
        placement: starts and ends the ranks.
        size: the number of ranks.
        kind: of their devices.
        address: that the controller listens on; None is the placement's.
        boot_s: the limit for a start, in seconds.
        explicit: whether the user chose the kind of device.
    """

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
        """Prepare to start ranks at the first task. The class describes the arguments."""
        self.placement = placement
        self.size = size
        self.kind = kind
        # How often the ranks were started.
        self.generation = 0
        self._address = placement.bind if address is None else address
        self._boot_s, self._explicit = boot_s, explicit
        self._members: dict[int, Member] = {}
        self._store: Any = None
        self._world: World | None = None
        self._task_count = 0
        # The number of ranks in the present world.
        self._world_size = 0
        # The failures of boots in a row, by number of ranks, so that a hopeless boot is not repeated for every test.
        self._boot_failures: dict[int, list[RanksFailed | RanksSkipped]] = defaultdict(list)
        # However pytest ends, its ranks do not outlive it.
        atexit.register(self.kill)

    @property
    def members(self) -> list[Member]:
        """Return all ranks; start them if needed."""
        self._ensure(self.size)
        return [self._members[rank] for rank in sorted(self._members)]

    @property
    def present(self) -> list[Member]:
        """Return the ranks that have been started; start none."""
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
        """Have the first ranks do a task, and return their results.

        Args:
            function: to call on each rank.
            arguments: of the function.
            size: the number of ranks that take part.
            timeout_s: the limit for the task, in seconds.
            backend: of the process group; None is the default of the devices.
            plan: see `Task`.
            tell: takes the latest block of each rank while it measures.

        Raises:
            RanksFailed: a rank failed, was lost, or did not answer in time.
            RanksSkipped: ranks cannot run the test here.
        """
        encoded_arguments = encode(tuple(arguments), "an argument")
        if not 1 <= size <= self.size:
            raise BadInput(
                f"a world of {size} ranks was requested; expected 1 to {self.size}, the size of this pool"
            )
        try:
            self._ensure(size)
            self._task_count += 1
            task = Task(
                number=self._task_count,
                world=self._world_of(size, backend, timeout_s),
                function=function,
                arguments=encoded_arguments,
                plan=plan,
            )
            self._let_go(size)
            progress = drive(task, [self._members[rank] for rank in range(size)], timeout_s, tell)
        except BaseException:
            # This may be Ctrl-C or the test framework's time-out; no rank may be left behind.
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
        # A rank ends by itself when its channel is closed; ranks within reach are killed at once.
        for member in members.values():
            member.channel.close()
            if member.is_here and self.placement.name != "local":
                signal_to(member.process, signal.SIGKILL)
        self.placement.kill()

    def stop(self) -> None:
        """Let every rank end in order; kill all if one does not."""
        members = self._forget()
        if not members:
            return
        for member in members.values():
            with contextlib.suppress(OSError):
                member.channel.send({"kind": "stop"})
        has_ended = self.placement.wait(STOP_S)
        for member in members.values():
            member.channel.close()
        if not has_ended:
            self.placement.kill()

    def _world_of(self, size: int, backend: str | None, timeout_s: float) -> World:
        """Return the world of a task, its process group.

        It is the last one if it fits the task, else a new one.
        """
        from .worlds import backend_of

        backend_name, world = backend_of(self.kind, backend), self._world
        group_s = max(GROUP_S, GROUP_FACTOR * timeout_s)
        # A world with a longer time-out than the task needs fits too.
        if (
            world is None
            or (world.size, world.backend) != (size, backend_name)
            or world.timeout_s < group_s
        ):
            # No two worlds begin with the same task.
            world = self._world = World(
                f"{self.generation}.{self._task_count}", size, backend_name, group_s
            )
        return world

    def _let_go(self, size: int) -> None:
        """Have ranks leave the last world.

        Those leave that are beyond the first `size` ranks, which make the next one. A process group may end only after
        all its members have left it.
        """
        for rank in range(size, self._world_size):
            with contextlib.suppress(OSError):
                self._members[rank].channel.send({"kind": "leave"})
        self._world_size = size

    def _forget(self) -> dict[int, Member]:
        """Return the ranks, and keep none of them."""
        members, self._members, self._world, self._world_size = self._members, {}, None, 0
        return members

    def _ensure(self, needed_size: int) -> None:
        """Start all ranks of the pool, unless they run and are connected to this controller.

        If a rank was lost between two tasks, all are started anew, and no test fails. If there are too
        few devices for all ranks, the pool shrinks to the number that is needed now.
        """
        if self._members and all(member.connected for member in self._members.values()):
            return
        if self._members:
            self.kill()
        try:
            self._boot()
        except RanksSkipped:
            if needed_size == self.size:
                raise
            self.size = needed_size
            self._boot()

    def _boot(self) -> None:
        """Start the ranks, unless earlier starts have failed for good.

        A start without enough devices is not tried again, another failure only a few times.
        """
        failures = self._boot_failures[self.size]
        if failures and isinstance(failures[-1], RanksSkipped):
            raise RanksSkipped(str(failures[-1]))
        if len(failures) >= MOST_FAILED_BOOTS:
            raise RanksFailed(
                f"{failures[-1]}\n(the ranks are not started again after {MOST_FAILED_BOOTS} failed starts)"
            )
        # Worlds of this start have other names than those of earlier ones.
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
            # Copies without the traceback, which would keep the channels of the ranks that came. The copy that is
            # raised gets a traceback, so another one is kept.
            message = printable_lines(str(error))
            failures.append(type(error)(message))
            raise type(error)(message) from None
        self._members = boot.members
        failures.clear()

    def store_port(self) -> int:
        """Return the port of the store that worlds meet in.

        The store is made at the first call, and kept as long as the pool.
        """
        if self._store is None:
            self._store = store_server(self._address)
        return int(self._store.port)

    def _fail(self, progress: Progress, size: int, timeout_s: float) -> None:
        """Raise the report on a task that failed, or the reason of its skip.

        The ranks are killed, so that the next task begins with new ones, unless all of them skipped.
        """
        members = [self._members[rank] for rank in range(size)]
        if skipped := progress.skipped:
            if len(skipped) == size:
                # No rank is stuck, so the processes are kept. A new world has none of the operations that they may have
                # left unfinished.
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
    """Return why ranks skipped the test. A reason that not all ranks gave is followed by the ranks that gave it."""
    parts = []
    for reason, ranks in group_by(sorted(skipped), key=lambda rank: skipped[rank].error).items():
        if len(ranks) == len(members):
            parts.append(reason)
            continue
        noun = "ranks" if len(ranks) > 1 else "rank"
        names = ", ".join(f"{rank} on {members[rank].host}" for rank in ranks)
        parts.append(f"{reason} ({noun} {names})")
    return "; ".join(parts)
