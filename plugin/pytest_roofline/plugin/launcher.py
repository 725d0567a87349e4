"""The pools of ranks of a run: their tests and sizes, their launchers, and their end."""

import importlib.util
import math
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence

import pytest

from ..core.errors import DeviceError, RanksSkipped
from ..core.facts import Environment
from ..engine.devices import Device
from ..engine.host import usable_cores
from ..ranks import facts
from ..ranks.attach import NO_MPI, AttachedProcesses, AttachPlacement
from ..ranks.command_lines import Launch, parse_arguments
from ..ranks.identity import without_launch
from ..ranks.launching import LauncherPlacement, command_of_launch
from ..ranks.local import Local
from ..ranks.placement import Placement
from ..ranks.pool import Pool
from ..settings.options import attached_key, ranks_key
from ..settings.parsing import Options
from .planned import read_marks, uses_ranks, world_size_of

# On processors, so many ranks are started ahead of their test even where there are fewer cores.
MOST_ON_CORES = 6


class Launcher:
    """The pools of a run: one for ranks, and where that cannot do MPI another for those that need it."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        """Prepare to start ranks for the tests of a run."""
        self.config = config
        self.options = options
        self._process = os.getpid()
        # The largest planned world, and the pool, by whether the tests need MPI; and the smallest world, 0 without one.
        self._largest: dict[bool, int] = {False: 1, True: 1}
        self._smallest = 0
        self._pools: dict[bool, Pool] = {}
        # The class of the link, by the pool's `id`, its generation and the size of the world.
        self.links: dict[tuple[int, int, int], str] = {}

    def plan(self, items: Iterable[pytest.Item]) -> None:
        """Note the sizes of the worlds that the tests need.

        These are the smallest, and the largest with and without MPI.
        """
        for item in filter(uses_ranks, items):
            marks = read_marks(item)
            size = world_size_of(item, marks)
            if (
                # Ranks that cannot be had are not counted: their tests are skipped.
                size is not None
                and size <= self._worth_starting
                and not self.unavailable(size, marks.mpi)
            ):
                self._largest[marks.mpi] = max(self._largest[marks.mpi], size)
                self._smallest = min(self._smallest or size, size)

    @property
    def _worth_starting(self) -> float:
        """The most ranks that a pool starts for later tests.

        On processors, ranks share the cores, and idle ones would disturb the others.
        """
        return max(MOST_ON_CORES, usable_cores()) if self.kind == "cpu" else math.inf

    @property
    def name(self) -> str:
        """The launcher of ranks: `attach`, or the value of `--roofline-launcher`."""
        return "attach" if self.attached is not None else self.options.launcher

    @property
    def attached(self) -> AttachedProcesses | None:
        """The launch that this pytest is rank 0 of, if any."""
        attached: AttachedProcesses | None = self.config.stash.get(attached_key, None)
        return attached

    @property
    def kind(self) -> str:
        """The kind of device that ranks own: `cpu`, `cuda` or `xpu`."""
        device_kind = (self.options.device or "").partition(":")[0]
        if device_kind in ("cpu", "cuda", "xpu"):
            return device_kind
        return facts.best_kind()

    def unavailable(self, size: int, mpi: bool = False) -> str:
        """Return why so many ranks are impossible, else an empty text.

        With `mpi` the ranks use MPI. `attached` is the launch that pytest itself is a rank of, if it is one.
        """
        if self.attached is not None and size > self.attached.size:
            return f"needs {size} ranks, this launch has {self.attached.size}"
        if mpi and (reason := self._no_mpi()):
            return reason
        task_limit = os.environ.get("SLURM_NTASKS", "")
        if self.name == "srun" and task_limit.isdecimal() and size > int(task_limit):
            return f"needs {size} tasks, this allocation has {task_limit}"
        # torchrun stays on this host unless an allocation has several.
        one_host = self.name == "torchrun" and os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1"
        if self.kind != "cpu" and (self.name == "local" or one_host):
            device_total = facts.device_count(self.kind)
            if size > device_total:
                return f"needs {size} GPUs, found {device_total}"
        return ""

    def _no_mpi(self) -> str:
        """Return why ranks cannot use MPI, else an empty text."""
        if self.attached is not None:
            return NO_MPI
        if importlib.util.find_spec("mpi4py") is None:
            return "needs mpi4py (the extra `mpi`), found none"
        command = "srun" if self.options.launcher == "srun" else "mpirun"
        return "" if shutil.which(command) else f"needs {command}, found none in PATH"

    def launch_program(
        self, size: int, words: Sequence[str], environ: Mapping[str, str]
    ) -> tuple[str, list[str], dict[str, str]]:
        """Return how a launcher starts a program on ranks.

        It is the launcher's name, the command, and its variables. The launcher is that of `--roofline-launcher`, if it
        starts programs; else the one that is here.

        Raises:
            BadInput: it is not in PATH, or not known.
        """
        environ = without_launch(environ)
        name, arguments = self.options.launcher, self.options.launcher_args
        if name not in ("mpirun", "srun"):
            has_only_srun = shutil.which("srun") and not shutil.which("mpirun")
            name, arguments = "srun" if has_only_srun else "mpirun", ()
        launch = Launch(
            size,
            parse_arguments(name, shlex.join(arguments)),
            environ=environ,
            program=tuple(words),
        )
        return name, command_of_launch(name, launch, mpi=True), dict(launch.environ)

    def pool(self, size: int, mpi: bool = False) -> Pool:
        """Return the pool for a world, and stop the other.

        Its ranks may not be started yet. Those of a pool that is too small are stopped too.
        """
        # mpirun and srun start ranks that can use MPI, so one pool serves all tests there.
        for_mpi = mpi and self.name not in ("mpirun", "srun")
        # There are two pools at most: one for tests with MPI, and one for the other tests.
        for is_for_mpi, other_pool in self._pools.items():
            if is_for_mpi != for_mpi:
                # Two sets of ranks on one device would disturb each other, if only by their memory.
                other_pool.stop()
        pool = self._pools.get(for_mpi)
        if pool is None:
            pool = Pool(
                self._placement(for_mpi),
                self._start_size(size, mpi),
                self.kind,
                address=self.options.address,
                boot_s=self.options.boot_timeout_s,
                explicit=self.options.device is not None
                or (self.name == "local" and not self.options.requires_hardware),
            )
            self._pools[for_mpi] = pool
        elif pool.size < size or (mpi and pool.size != size):
            # A test with MPI needs a pool of just its size, since MPI's own world is all ranks that were started.
            pool.stop()
            pool.size = size
        return pool

    def _start_size(self, size: int, mpi: bool) -> int:
        """Return the number of ranks that a new pool starts.

        A local pool starts as many at once as the largest world will need.
        """
        if self.attached is not None:
            return self.attached.size
        # Other launchers may fail to start the largest world, which must not cost the tests with smaller ones.
        return max(size, self._largest[False]) if self.name == "local" and not mpi else size

    def _placement(self, for_mpi: bool) -> Placement:
        """Return how the ranks of a pool are started.

        Those of a pool `for_mpi`, beside that of another launcher, are started by mpirun.
        """
        if self.attached is not None:
            return AttachPlacement(self.attached)
        name = "mpirun" if for_mpi else self.options.launcher
        if name == "local":
            return Local(forks=self.kind == "cpu")
        return LauncherPlacement(
            name,
            () if for_mpi else parse_arguments(name, shlex.join(self.options.launcher_args)),
            mpi=self._largest[True] > 1,
            # The separate pool runs on this host alone.
            address=self.options.address or ("127.0.0.1" if for_mpi else ""),
        )

    def end_ranks(self) -> None:
        """End all ranks in order. The next test starts new ones."""
        for pool in self._pools.values():
            pool.stop()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """End the ranks after the last test."""
        self.pytest_unconfigure()

    def pytest_unconfigure(self) -> None:
        """End the ranks, also of an aborted session.

        A process that was forked from this one must not end them.
        """
        if os.getpid() == self._process:
            self.end_ranks()
            self._pools.clear()

    def device(self) -> Device:
        """Return the device of rank 0 without opening it."""
        return facts.SeenDevice(self.environment())

    def environment(self) -> Environment:
        """Return the environment of rank 0: its device, host and software.

        It is for a process that does not open the device itself.

        Raises:
            DeviceError: not even the smallest world of the run can be had.
        """
        try:
            environment = self.pool(self._smallest or 1).members[0].environment
        except RanksSkipped as skipped:
            raise DeviceError(f"{skipped}; no test of this run gets by with fewer ranks") from None
        assert environment is not None
        return environment


def launcher_of(config: pytest.Config, options: Options) -> Launcher:
    """Return the launcher of this run, which the first call makes."""
    launcher: Launcher | None = config.stash.get(ranks_key, None)
    if launcher is None:
        launcher = config.stash[ranks_key] = Launcher(config, options)
        config.pluginmanager.register(launcher)
    return launcher
