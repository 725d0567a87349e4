"""A pytest that was itself launched as ranks: the first one runs the tests, the others start ranks for it.

`torchrun|mpirun|srun … -m pytest` starts this plugin in every process. Rank 0 is the only pytest that goes on; when it
has no test of ours, the others go on too, since the launch is then somebody else's.
"""

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .core.errors import BadInput, RanksFailed
from .options import FIXTURE, RANKS_FIXTURE, option_value

if TYPE_CHECKING:
    from .distributed.attach import Attached
    from .distributed.gathering import Lender
    from .distributed.identity import Identity
    from .distributed.placement import Placement

# With these, pytest tells something about itself and runs no test.
_ONLY_TELLING = ("help", "version", "showfixtures", "show_fixtures_per_test", "markers")

attached_key: pytest.StashKey["Launch"] = pytest.StashKey()


class Launch:
    """The launch that this pytest is rank 0 of.

    Args:
        identity: of rank 0.
        attached: the others; None in a round, which borrows them from the pytest that started it when it needs them.
        lent: where a round says that it wants them.
    """

    def __init__(self, identity: "Identity", attached: "Attached | None", lent: Path | None = None) -> None:
        self.identity = identity
        self._attached = attached
        self._lent = lent

    @property
    def size(self) -> int:
        """Ranks of the launch."""
        return self.identity.size

    @property
    def attached(self) -> "Attached":
        """The other processes.

        Raises:
            RanksFailed: they could not be borrowed.
        """
        if self._attached is None:
            from .distributed.gathering import borrow

            assert self._lent is not None
            self._attached = borrow(self._lent, self.identity)
        return self._attached

    def placement(self) -> "Placement":
        """Ranks under the processes of this launch."""
        return self.attached.placement()

    def lender(self, folder: Path) -> "Lender":
        """What lends the processes to a round, for as long as it runs.

        Args:
            folder: of the round.
        """
        from .distributed.gathering import Lender

        return Lender(self.attached, folder / "attach")

    def tell(self, needed: bool) -> None:
        """Tell the others whether they are needed; those that are lent know it already."""
        if self._lent is not None or self._attached is None:
            return
        if needed:
            self._attached.join()
        else:
            self._attached.release()
            self._attached = None

    def end(self) -> None:
        """Let the others go: to exit, or back to the pytest that lent them."""
        if self._attached is not None:
            self._attached.end()
            self._attached = None


def attach(config: pytest.Config) -> int | None:
    """Become what this process is in its launch.

    Returns:
        The exit status of a process that served rank 0; None where pytest goes on here.

    Raises:
        pytest.UsageError: the launcher's variables cannot be used, or rank 0 was not joined by the others.
    """
    from .distributed.gathering import pop_lent
    from .distributed.identity import identify

    if any(config.getoption(name, False) for name in _ONLY_TELLING):
        return None
    try:
        identity = identify(os.environ)
        if identity is None or identity.size == 1:
            return None
        lent = pop_lent()
        if lent is not None:
            _lead(config, Launch(identity, None, lent))
            return None
        if identity.rank:
            return _follow(config, identity)
        _gather(config, identity)
    except (BadInput, RanksFailed) as error:
        raise pytest.UsageError(f"{error}. Where these ranks are to run tests of their own: -p no:roofline") from None
    return None


def _follow(config: pytest.Config, identity: "Identity") -> int | None:
    """Serve rank 0 to its end; None where that has no test of ours."""
    from .distributed.rendezvous import board_of
    from .distributed.supervising import follow, supervise
    from .settings import boot_timeout_of

    channel = follow(identity, board_of(identity, os.environ, _folder(config)), boot_timeout_of(config))
    status = supervise(channel, identity)
    if status:
        print(f"roofline: rank {identity.rank} of {identity.size}: rank 0 is gone", file=sys.stderr)
    return status


def _gather(config: pytest.Config, identity: "Identity") -> None:
    from .distributed.gathering import gather
    from .distributed.rendezvous import board_of
    from .settings import boot_timeout_of

    asked = option_value(config, "address")
    on_one_host = identity.local_size == identity.size
    bind = asked or ("127.0.0.1" if on_one_host else "")
    board = board_of(identity, os.environ, _folder(config))
    _lead(config, Launch(identity, gather(identity, board, boot_timeout_of(config), bind)))


def _lead(config: pytest.Config, launch: Launch) -> None:
    config.stash[attached_key] = launch
    config.pluginmanager.register(Leading(config, launch), "roofline-leading")


def _folder(config: pytest.Config) -> Path:
    """Where runs are kept; parsed here, since a process that serves never configures itself."""
    from .settings import run_folder

    return run_folder(config)


class Leading:
    """On rank 0: tells the others whether they are needed, and lets them go behind the report."""

    def __init__(self, config: pytest.Config, launch: Launch) -> None:
        self._config = config
        self._launch = launch
        self._told = False

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Of tests that only use other plugins every rank runs its own; what -k leaves out is none of ours."""
        result = yield
        ours = any(not {FIXTURE, RANKS_FIXTURE}.isdisjoint(getattr(item, "fixturenames", ())) for item in items)
        # Where nothing will run, one report of that is enough.
        broken = session.testsfailed and not self._config.option.continue_on_collection_errors
        needed = bool(ours or not items or broken)
        self._launch.tell(needed)
        self._told = True
        if not needed:
            del self._config.stash[attached_key]
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """After the report, whatever became of the run."""
        if not self._told:
            # The run ended before its tests were known: the others are not to begin one of their own.
            self._launch.tell(needed=True)
        self._launch.end()
