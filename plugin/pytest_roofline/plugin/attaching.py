"""A pytest that was launched as ranks: rank 0 runs the tests, the others start ranks for it.

`torchrun|mpirun|srun … -m pytest` starts this plugin in every process. Rank 0 is the only pytest that goes on; when it
has no test of ours, the others go on too, since the launch is then somebody else's.
"""

import os
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from ..core.errors import BadInput, RanksFailed
from ..core.features import FEATURES, require
from ..settings.command_line import option_value
from ..settings.options import FIXTURE, RANKS_FIXTURE

if TYPE_CHECKING:
    from ..ranks.attach import AttachedProcesses
    from ..ranks.identity import Identity

# With these, pytest tells something about itself and runs no test.
_INFORMING_OPTIONS = ("help", "version", "showfixtures", "show_fixtures_per_test", "markers")

# Launchers set these variables in the processes of ranks only.
_RANK_VARIABLES = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}

# The launch that this pytest is rank 0 of.
attached_key: pytest.StashKey["AttachedProcesses"] = pytest.StashKey()


def attach(config: pytest.Config) -> int | None:
    """Serve rank 0 as another rank, or lead the launch.

    Returns:
        The exit status of a process that served rank 0; None where pytest goes on here.

    Raises:
        pytest.UsageError: the launcher's variables cannot be used, or rank 0 was not joined by the others.
    """
    if any(config.getoption(name, False) for name in _INFORMING_OPTIONS):
        return None
    if "ranks" not in FEATURES and _RANK_VARIABLES.isdisjoint(os.environ):
        # Only SLURM_STEP_ID is set, as in any step of Slurm. Without the feature nobody can tell whether it has ranks.
        return None
    try:
        require("ranks")
        from ..ranks.identity import identify

        identity = identify(os.environ)
        if identity is None or identity.size == 1:
            return None
        if identity.rank != 0:
            return _follow(config, identity)
        leading = Leading(config, _lead(config, identity))
    except (BadInput, RanksFailed) as error:
        raise pytest.UsageError(
            f"{error}. To run separate tests on these ranks, give -p no:roofline"
        ) from None
    config.pluginmanager.register(leading)
    return None


def _follow(config: pytest.Config, identity: "Identity") -> int | None:
    """Serve rank 0 to its end, and return the exit status.

    It is None if rank 0 has no test that needs ranks or measures; this process then runs the tests for itself.
    """
    from ..ranks.attach import follow, supervise
    from ..ranks.rendezvous import rendezvous_of
    from ..settings.parsing import boot_timeout_of, run_folder

    rendezvous = rendezvous_of(identity, os.environ, run_folder(config))
    status = supervise(follow(identity, rendezvous, boot_timeout_of(config)))
    if status:
        print(
            f"roofline: rank {identity.rank} of {identity.size} ended, since rank 0 has ended",
            file=sys.stderr,
        )
    return status


def _lead(config: pytest.Config, identity: "Identity") -> "AttachedProcesses":
    """Return the other processes of the launch.

    A round inherits them from the pytest that started it.
    """
    from ..ranks.attach import gather, inherit_processes
    from ..ranks.rendezvous import rendezvous_of
    from ..settings.parsing import boot_timeout_of, run_folder

    attached = inherit_processes(identity)
    if attached is not None:
        return attached
    bind = option_value(config, "address") or (
        "127.0.0.1" if identity.local_size == identity.size else ""
    )
    rendezvous = rendezvous_of(identity, os.environ, run_folder(config))
    return gather(identity, rendezvous, boot_timeout_of(config), bind)


class Leading:
    """The hooks of rank 0: it tells the other ranks whether they are needed, and when to end."""

    def __init__(self, config: pytest.Config, attached: "AttachedProcesses") -> None:
        self._config = config
        self._attached = attached
        self._has_decided = False
        config.stash[attached_key] = attached

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Tell the other ranks whether to serve this one.

        They run the tests for themselves if every selected test only uses other plugins.
        """
        from ..ranks.attach import ALONE, JOIN

        result = yield
        uses_plugin = any(
            not {FIXTURE, RANKS_FIXTURE}.isdisjoint(getattr(item, "fixturenames", ()))
            for item in items
        )
        has_failed = session.testsfailed and not self._config.option.continue_on_collection_errors
        # Where no test will run, the report of rank 0 is enough, so the others do not run pytest either.
        are_needed = bool(uses_plugin or not items or has_failed)
        self._attached.tell(JOIN if are_needed else ALONE)
        self._has_decided = True
        if not are_needed:
            del self._config.stash[attached_key]
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Let the other ranks end after the report."""
        from ..ranks.attach import BYE, JOIN

        if not self._has_decided:
            # The run ended before its tests were known. The other ranks must not begin runs of their own.
            self._attached.tell(JOIN)
        self._attached.tell(BYE)
