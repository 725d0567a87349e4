"""Ranks in a run: which tests need how many, the pools that serve them, and the fixture `distributed`."""

import contextlib
import importlib.util
import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from .core.errors import BadInput, DeviceError, RanksSkipped
from .options import RANKS_FIXTURE
from .settings import Marks, Options, parse_options, read_marks

if TYPE_CHECKING:
    from .attaching import Launch
    from .core.facts import Environment
    from .distributed.facts import RankFacts
    from .distributed.functions import FunctionRef
    from .distributed.members import Member
    from .distributed.placement import Placement
    from .distributed.pool import Pool

# Seconds for one call of ranks, beside so many budgets of a measurement.
TIMEOUT_S, TIMEOUT_BUDGETS = 120.0, 20.0

# Ranks on few cores that are started ahead of the test that asks for them.
MOST_ON_CORES = 6

ranks_key: pytest.StashKey["Launcher"] = pytest.StashKey()


def uses_ranks(item: pytest.Item) -> bool:
    """Whether a test uses the fixture."""
    return RANKS_FIXTURE in getattr(item, "fixturenames", ())


def world_size_of(item: pytest.Item, marks: Marks | None = None) -> int | None:
    """How many ranks a test says that it needs: its marker, or its parameter `world_size`; None where neither does."""
    marks = marks or read_marks(item)
    if marks.ranks is not None:
        return marks.ranks
    spec = getattr(item, "callspec", None)
    size = spec.params.get("world_size") if spec is not None else None
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def by_world(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Tests without ranks first, then those of each kind of world together, so that a world is made once.

    Within a world the order stays the user's, and so does that of the worlds.
    """
    groups: dict[tuple[bool, int | None] | None, list[pytest.Item]] = {None: []}
    for item in items:
        group = (read_marks(item).mpi, world_size_of(item)) if uses_ranks(item) else None
        groups.setdefault(group, []).append(item)
    # All with MPI behind all without, since the two are served by different launchers.
    ordered = sorted(groups.items(), key=lambda pair: pair[0] is not None and pair[0][0])
    return [item for _, members in ordered for item in members]


class Launcher:
    """The pools of a run: one for ranks, and where that cannot do MPI another for those that need it.

    Args:
        config: pytest's configuration.
        options: of the run.
    """

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self._largest: dict[bool, int] = {False: 1, True: 1}
        self._smallest = 0
        self._pools: dict[bool, Pool] = {}
        # By pool, generation and size of the world.
        self.links: dict[tuple[int, int, int], str] = {}

    def plan(self, items: Iterable[pytest.Item]) -> None:
        """Take note of the largest world of each kind that the selected tests need."""
        for item in filter(uses_ranks, items):
            marks = read_marks(item)
            size = world_size_of(item, marks)
            if size is not None and size <= self._worth_starting and not self.unavailable(size, marks.mpi):
                self._largest[marks.mpi] = max(self._largest[marks.mpi], size)
                self._smallest = min(self._smallest or size, size)

    @property
    def _worth_starting(self) -> float:
        """Ranks to start at once, before a test asks: on processors that many would have to share, it may not."""
        from .measuring.host import usable_cores

        return max(MOST_ON_CORES, usable_cores()) if self.kind == "cpu" else math.inf

    @property
    def name(self) -> str:
        """What starts ranks here: `attach`, or what `--roofline-launcher` says."""
        return "attach" if self.attached is not None else self.options.launcher

    @property
    def attached(self) -> "Launch | None":
        """The launch that this pytest is rank 0 of; None where it starts ranks itself."""
        from .attaching import attached_key

        return self.config.stash.get(attached_key, None)

    @property
    def kind(self) -> str:
        """The kind of device that ranks own: `cpu`, `cuda` or `xpu`."""
        asked = (self.options.device or "").partition(":")[0]
        if asked in ("cpu", "cuda", "xpu"):
            return asked
        from .distributed.facts import best_kind

        return best_kind()

    def unavailable(self, size: int, mpi: bool = False) -> str:
        """Why there cannot be a world of so many ranks; empty where there can."""
        if self.attached is not None and size > self.attached.size:
            return f"needs {size} ranks, this launch has {self.attached.size}"
        if mpi:
            why = self._no_mpi()
            if why:
                return why
        granted = os.environ.get("SLURM_NTASKS", "")
        if self.name == "srun" and granted.isdecimal() and size > int(granted):
            return f"needs {size} tasks, this allocation has {granted}"
        # torchrun stays on this host unless an allocation has several.
        one_host = self.name == "torchrun" and os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1"
        if self.kind != "cpu" and (self.name == "local" or one_host):
            from .distributed.facts import device_count

            there = device_count(self.kind)
            if size > there:
                return f"needs {size} GPUs, found {there}"
        return ""

    def _no_mpi(self) -> str:
        if self.attached is not None:
            from .distributed.attach import NO_MPI

            return NO_MPI
        if importlib.util.find_spec("mpi4py") is None:
            return "needs mpi4py (the extra `mpi`), found none"
        command = "srun" if self.options.launcher == "srun" else "mpirun"
        return "" if shutil.which(command) else f"needs {command}, found none in PATH"

    def pool(self, size: int, mpi: bool = False) -> "Pool":
        """The pool for a world of so many ranks, not started yet or with its ranks as they are."""
        from .distributed.pool import Pool

        apart = mpi and self.name not in ("mpirun", "srun")
        for key, other in self._pools.items():
            if key != apart:
                # Two sets of ranks on one device would disturb each other, if only by their memory.
                other.stop()
        known = self._pools.get(apart)
        if known is None:
            wanted = self._to_start(size, mpi)
            known = Pool(
                self._placement(apart),
                wanted,
                self.kind,
                address=self.options.address,
                boot_s=self.options.boot_timeout_s,
                asked=self.options.device is not None or (self.name == "local" and not self.options.require_hardware),
            )
            self._pools[apart] = known
        elif known.size < size or (mpi and known.size != size):
            # MPI's own world is all that was started, and its start waits for every one of them.
            known.stop()
            known.size = size
        return known

    def _to_start(self, size: int, mpi: bool) -> int:
        """How many ranks a new pool begins with: at once as many as the largest world will need."""
        if self.attached is not None:
            return self.attached.size
        # What another launcher can start nobody knows beforehand: a world too large must not take the others along.
        return max(size, self._largest[False]) if self.name == "local" and not mpi else size

    def _placement(self, apart: bool) -> "Placement":
        """What starts ranks; `apart` for those that need MPI, where the others do without."""
        if self.attached is not None:
            return self.attached.placement()
        name = "mpirun" if apart else self.options.launcher
        if name == "local":
            from .distributed.placement import Local

            return Local()
        from .distributed.engines import parse_arguments
        from .distributed.launching import Launched

        arguments = () if apart else parse_arguments(name, shlex.join(self.options.launcher_args))
        # Of ranks on this host alone nobody else needs to know the address.
        address = self.options.address or ("127.0.0.1" if apart else "")
        return Launched(name, arguments, mpi=self._mpi_planned, address=address)

    @property
    def _mpi_planned(self) -> bool:
        return self._largest[True] > 1

    def rest(self) -> None:
        """End all ranks in order; the next test that needs some gets new ones."""
        for pool in self._pools.values():
            pool.stop()

    def end(self) -> None:
        """The run is over."""
        self.rest()
        self._pools.clear()

    def environment(self) -> "Environment":
        """The environment of rank 0, for a run whose controller must hold no context on the device.

        Raises:
            DeviceError: not even the smallest world of the run can be had.
        """
        try:
            environment = self.pool(self._smallest or 1).members[0].environment
        except RanksSkipped as skipped:
            raise DeviceError(f"{skipped}, for the smallest world of this run") from None
        assert environment is not None
        return environment


class Distributed:
    """Runs functions on ranks for one test. Comes as the fixture `distributed`."""

    def __init__(self, launcher: Launcher, item: pytest.Item, marks: Marks) -> None:
        self._launcher = launcher
        self._item = item
        self._marks = marks

    @property
    def world_size(self) -> int | None:
        """The ranks that this test says that it needs, by marker or parameter; None where it does not."""
        return world_size_of(self._item, self._marks)

    @property
    def launcher(self) -> str:
        """What starts ranks: `local`, `torchrun`, `mpirun`, `srun`, or `attach` where pytest itself was launched."""
        apart = self._marks.mpi and self._launcher.name in ("local", "torchrun")
        return "mpirun" if apart else self._launcher.name

    @property
    def kind(self) -> str:
        """The kind of device that ranks own: `cpu`, `cuda` or `xpu`."""
        return self._launcher.kind

    @property
    def backends(self) -> tuple[str, ...]:
        """Back ends of torch.distributed that can serve these devices, the default first."""
        from .distributed.worlds import backends

        # torch's own MPI back end needs ranks that MPI has started, as tests with the marker `mpi` get.
        return tuple(name for name in backends(self.kind) if name != "mpi" or self._marks.mpi)

    @property
    def facts(self) -> "tuple[RankFacts, ...]":
        """What every rank said of itself at boot: host, process, devices, versions, cores."""
        members = self.members(self._size(self.world_size or 1))
        return tuple(member.facts for member in members if member.facts is not None)

    def available(self, world_size: int) -> str:
        """Why there cannot be a world of so many ranks; empty where there can."""
        return self._launcher.unavailable(world_size, self._marks.mpi)

    def free_bytes(self, world_size: int | None = None) -> int:
        """Memory that an allocation on every rank's device can still get: the least of them.

        Ranks of one host share its memory, where their device is the CPU.
        """
        from .distributed import tasks

        return int(min(self.run(tasks.free_bytes, world_size=world_size)))

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
                `distributed.context.Rank`: the rank's number, with `size`, `device`, `group` …
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
        __tracebackhide__ = True
        from .distributed.functions import reference
        from .distributed.worlds import check_backend
        from .requests import positive

        function, timeout_s = reference(fn), positive("timeout", timeout)
        return self.call(function, args, self._size(world_size), timeout=timeout_s, backend=check_backend(backend))

    def call(
        self,
        function: "FunctionRef",
        args: tuple[object, ...],
        size: int,
        *,
        timeout: float | None = None,
        backend: str | None = None,
        **more: Any,
    ) -> list[Any]:
        """As `run`, for a function that was looked up already."""
        __tracebackhide__ = True
        with self._skipping():
            return self._pool(size).run(
                function, args, size, timeout_s=timeout or self._timeout_s, backend=backend, **more
            )
        raise AssertionError("unreachable: what is not returned was raised")

    def members(self, size: int) -> "list[Member]":
        """The ranks of a world, started where they are not there yet."""
        __tracebackhide__ = True
        with self._skipping():
            return self._pool(size).members[:size]
        raise AssertionError("unreachable: what is not returned was raised")

    def link(self, size: int) -> str:
        """The class of the link between ranks of one host: `memory` on processors."""
        if self.kind == "cpu":
            return "memory"
        members, pool = self.members(size), self._pool(size)
        known = self._launcher.links.get((id(pool), pool.generation, size))
        if known is None:
            from .distributed import tasks

            uuids = [member.environment.device.uuid if member.environment is not None else None for member in members]
            kinds = set(self.run(tasks.link_kind, [member.host for member in members], uuids, world_size=size))
            known = kinds.pop() if len(kinds) == 1 else "mixed"
            self._launcher.links[id(pool), pool.generation, size] = known
        return known

    @contextlib.contextmanager
    def _skipping(self) -> Iterator[None]:
        """What ranks find that they lack skips the test; under `--roofline-require-hardware` it fails it."""
        __tracebackhide__ = True
        try:
            yield
        except RanksSkipped as skipped:
            self._lack(str(skipped))

    def _lack(self, why: str) -> NoReturn:
        if self._launcher.options.require_hardware:
            pytest.fail(f"{why}, and --roofline-require-hardware is set", pytrace=False)
        pytest.skip(why)

    def size_of(self, world_size: int | None) -> int:
        """The ranks that a call asks for; the test is skipped where there cannot be so many.

        Raises:
            BadInput: nobody says how many, or it is no number of ranks.
        """
        return self._size(world_size)

    def pool(self, size: int) -> "Pool":
        """The pool behind this test, for what is more than a call."""
        return self._pool(size)

    @property
    def _timeout_s(self) -> float:
        budget_s = self._marks.budget or self._launcher.options.budget_s
        return self._launcher.options.rank_timeout_s or TIMEOUT_S + TIMEOUT_BUDGETS * budget_s

    def _size(self, asked: int | None) -> int:
        size = self.world_size if asked is None else asked
        if size is None:
            raise BadInput(
                f"{self._item.nodeid} does not say how many ranks it needs; expected @pytest.mark.roofline(ranks=N), a "
                "parameter world_size, or the argument world_size"
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise BadInput(f"world_size is {size!r}; expected a number of ranks, 1 or more")
        index = (self._launcher.options.device or "").partition(":")[2]
        if index:
            raise BadInput(
                f"--roofline-device names device {index}, and each rank owns one of its own; give the kind alone, and "
                "narrow what is visible (CUDA_VISIBLE_DEVICES) where not all are to take part"
            )
        why = self.available(size)
        if why:
            self._lack(why)
        return size

    def _pool(self, size: int) -> "Pool":
        return self._launcher.pool(size, self._marks.mpi)


def launcher_of(config: pytest.Config) -> Launcher:
    """The launcher of this run."""
    known = config.stash.get(ranks_key, None)
    if known is None:
        known = config.stash[ranks_key] = Launcher(config, parse_options(config))
        config.pluginmanager.register(_Ending(known), "roofline-ranks")
    return known


def make_distributed(request: pytest.FixtureRequest) -> Distributed:
    """The fixture's value for a test; skips one that needs another kind of device than ranks have."""
    launcher, marks = launcher_of(request.config), read_marks(request.node)
    reason = unmet(marks.needs, launcher.kind) if marks.needs is not None else None
    if reason is not None and marks.needs == "accelerator" and launcher.options.require_hardware:
        pytest.fail(f"{reason}, and --roofline-require-hardware is set", pytrace=False)
    if reason is not None:
        pytest.skip(reason)
    return Distributed(launcher, request.node, marks)


def unmet(needs: str | None, kind: str) -> str | None:
    """Why a test that needs a kind of device is not for this one; None where it is."""
    if needs == "accelerator" and kind == "cpu":
        return "needs an accelerator, found the CPU only"
    if needs == "cpu" and kind != "cpu":
        return f"needs --roofline-device=cpu, found {kind}"
    return None


class _Ending:
    """Ends the ranks with the run, whatever ends it."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._process = os.getpid()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """After the last test."""
        self._end()

    def pytest_unconfigure(self) -> None:
        """Also where the session did not come to its end."""
        self._end()

    def _end(self) -> None:
        if os.getpid() == self._process:
            self._launcher.end()
