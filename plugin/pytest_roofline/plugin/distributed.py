"""The fixture `distributed`, by which a test runs functions on ranks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from ..core.errors import BadInput, RanksSkipped
from ..engine.request import positive
from ..ranks.driving import Member, Tell
from ..ranks.facts import RankFacts
from ..ranks.pool import Pool
from ..ranks.tasks import FunctionRef, encode, reference
from ..ranks.worlds import backends, check_backend, free_bytes, link_kind
from .planned import Marks, read_marks, unmet, world_size_of
from .results import lack, require

if TYPE_CHECKING:
    from .launcher import Launcher

# The default time limit of a call of ranks is the sum of so many seconds and so many budgets of a measurement.
TIMEOUT_S, TIMEOUT_BUDGETS = 120.0, 20.0


class Distributed:
    """The ranks of one test. Comes as the fixture `distributed`."""

    def __init__(self, launcher: "Launcher", item: pytest.Item, marks: Marks) -> None:
        self._launcher = launcher
        self._item = item
        self._marks = marks

    @property
    def world_size(self) -> int | None:
        """The number of ranks that this test needs.

        It is the marker's or the parameter's; None without either.
        """
        return world_size_of(self._item, self._marks)

    @property
    def launcher(self) -> str:
        """The launcher of ranks: `local`, `torchrun`, `mpirun`, `srun` or `attach`.

        `attach` stands for the launch that pytest itself is a rank of.
        """
        needs_mpirun = self._marks.mpi and self._launcher.name in ("local", "torchrun")
        return "mpirun" if needs_mpirun else self._launcher.name

    @property
    def kind(self) -> str:
        """The kind of device that ranks own: `cpu`, `cuda` or `xpu`."""
        return self._launcher.kind

    @property
    def backends(self) -> tuple[str, ...]:
        """Back ends of torch.distributed that can serve these devices, the default first."""
        # torch's own MPI back end needs ranks that MPI has started, as tests with the marker `mpi` get.
        return tuple(name for name in backends(self.kind) if name != "mpi" or self._marks.mpi)

    @property
    def facts(self) -> tuple[RankFacts, ...]:
        """The facts of every rank at boot: host, process, devices, versions, cores."""
        size = self.size_of(self.world_size or 1)
        return tuple(member.facts for member in self.members(size) if member.facts is not None)

    def available(self, world_size: int) -> str:
        """Return why so many ranks are impossible, else an empty text."""
        return self._launcher.unavailable(world_size, self._marks.mpi)

    def free_bytes(self, world_size: int | None = None) -> int:
        """Return the least free memory among the ranks' devices, in bytes.

        Ranks of one host share its memory, where their device is the CPU.
        """
        return int(min(self.run(free_bytes, world_size=world_size)))

    def run(
        self,
        fn: Callable[..., object],
        *args: object,
        world_size: int | None = None,
        timeout: float | None = None,
        backend: str | None = None,
    ) -> list[Any]:
        """Call `fn(rank, *args)` once on every rank of a world.

        Args:
            fn: a function at the top of a module; ranks load it by file and name. Its first argument is a
                `pytest_roofline.Rank`: the rank's number, with `size`, `device`, `group` …
            args: plain data and tensors.
            world_size: ranks; the test's own number by default.
            timeout: seconds until every rank must have answered.
            backend: of the default group; the device's own by default.

        Returns:
            The results by rank: plain data and tensors.

        Raises:
            BadInput: a function that ranks cannot load, or arguments that are no plain data; no rank is contacted.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        function = checked_call(fn, args)
        timeout_s, backend = positive("timeout", timeout), check_backend(backend)
        return self.call(
            function, args, self.size_of(world_size), timeout=timeout_s, backend=backend
        )

    def call(
        self,
        function: FunctionRef,
        args: tuple[object, ...],
        size: int,
        *,
        timeout: float | None = None,
        backend: str | None = None,
        plan: object = None,
        tell: Tell | None = None,
    ) -> list[Any]:
        """Call as `run` does, with a checked function and number of ranks.

        Args:
            function: to call on each rank.
            args: of the function.
            size: the number of ranks.
            timeout: seconds until every rank must have answered; None takes the option, or a multiple of the budget.
            backend: of the default group.
            plan: the request to measure, or `JOB`; without it the function is called once.
            tell: takes the latest block of each rank while it measures.
        """
        options = self._launcher.options
        budgets_s = TIMEOUT_BUDGETS * (self._marks.budget or options.budget_s)
        timeout_s = timeout or options.rank_timeout_s or TIMEOUT_S + budgets_s
        try:
            return self.pool(size).run(
                function,
                args,
                size,
                timeout_s=timeout_s,
                backend=backend,
                plan=plan,
                tell=tell,
            )
        except RanksSkipped as skipped:
            lack(self._item, options, str(skipped))

    def members(self, size: int) -> list[Member]:
        """Return the ranks of a world, started if need be."""
        try:
            return self.pool(size).members[:size]
        except RanksSkipped as skipped:
            lack(self._item, self._launcher.options, str(skipped))

    def link(self, size: int) -> str:
        """Return the class of the link between ranks, such as `nvlink`.

        It is `memory` on processors, and `mixed` where the links differ. The ranks are asked once after each start.
        """
        if self.kind == "cpu":
            return "memory"
        members, pool = self.members(size), self.pool(size)
        link = self._launcher.links.get((id(pool), pool.generation, size))
        if link is None:
            uuids = [
                member.environment.device.uuid if member.environment is not None else None
                for member in members
            ]
            kinds = set(
                self.run(link_kind, [member.host for member in members], uuids, world_size=size)
            )
            link = kinds.pop() if len(kinds) == 1 else "mixed"
            self._launcher.links[id(pool), pool.generation, size] = link
        return link

    def size_of(self, world_size: int | None) -> int:
        """Return the number of ranks of a call.

        The test is skipped, or fails where hardware is required, if they cannot be had.

        Raises:
            BadInput: nobody says how many, or it is no number of ranks.
        """
        size = self.world_size if world_size is None else world_size
        if size is None:
            raise BadInput(
                f"{self._item.nodeid} does not say how many ranks it needs; expected @pytest.mark.roofline(ranks=N), a "
                "parameter world_size, or the argument world_size"
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise BadInput(f"world_size is {size!r}; expected a number of ranks, 1 or more")
        options = self._launcher.options
        if index := (options.device or "").partition(":")[2]:
            raise BadInput(
                f"--roofline-device names device {index}, but each rank needs a separate device. Give only the "
                "kind, as in --roofline-device=cuda, and limit the visible devices with CUDA_VISIBLE_DEVICES"
            )
        if reason := self.available(size):
            lack(self._item, options, reason)
        return size

    def pool(self, size: int) -> Pool:
        """Return the pool of ranks behind this test."""
        return self._launcher.pool(size, self._marks.mpi)


def checked_call(fn: Callable[..., object], args: tuple[object, ...]) -> FunctionRef:
    """Return the file and name by which ranks load a function.

    Wrong arguments are refused before a lack of ranks skips the test.

    Raises:
        BadInput: ranks cannot load the function, or its arguments are no plain data.
    """
    function = reference(fn)
    encode(args, "an argument")
    return function


def distributed_of(item: pytest.Item, launcher: "Launcher") -> Distributed:
    """Return the ranks of a test.

    Skip a test that needs another kind of device than ranks have.
    """
    marks = read_marks(item)
    if marks.needs is not None and (reason := unmet(marks.needs, launcher.kind)):
        if marks.needs == "accelerator":
            require(item, launcher.options, reason)
        pytest.skip(reason)
    return Distributed(launcher, item, marks)
