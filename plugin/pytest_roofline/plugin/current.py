"""What several hooks share of this run: its session, its launch as ranks, and the launcher of its ranks."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..ranks.attach import AttachedProcesses
    from .launcher import Launcher
    from .session import RooflineSession

session_key: "pytest.StashKey[RooflineSession]" = pytest.StashKey()
# The launch that this pytest is rank 0 of.
attached_key: "pytest.StashKey[AttachedProcesses]" = pytest.StashKey()
# The launcher of a run with tests that use ranks.
ranks_key: "pytest.StashKey[Launcher]" = pytest.StashKey()


def open_session(config: pytest.Config) -> "RooflineSession | None":
    """Return the session of this run, once its device is open."""
    state = config.stash.get(session_key, None)
    return state if state is not None and state.opened else None
