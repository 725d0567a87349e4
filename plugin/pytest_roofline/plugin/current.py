"""The session of this run, for hooks that are there before it."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .session import RooflineSession

session_key: "pytest.StashKey[RooflineSession]" = pytest.StashKey()


def open_session(config: pytest.Config) -> "RooflineSession | None":
    """Return the session of this run, once its device is open."""
    state = config.stash.get(session_key, None)
    return state if state is not None and state.opened else None
