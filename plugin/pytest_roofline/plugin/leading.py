"""The ranks of a launch that pytest itself was started by: one process leads, the others follow."""

import os
import sys
from collections.abc import Generator

import pytest

from ..ranks.attach import (
    ALONE,
    BYE,
    JOIN,
    AttachedProcesses,
    follow,
    gather,
    inherit_processes,
    supervise,
)
from ..ranks.identity import Identity, identify
from ..ranks.rendezvous import rendezvous_of
from ..settings.command_line import option_value
from ..settings.options import FIXTURE, RANKS_FIXTURE, attached_key
from ..settings.parsing import boot_timeout_of, run_folder


def follow_or_lead(config: pytest.Config) -> int | None:
    """Serve rank 0, or lead the launch as rank 0.

    Returns:
        The exit status of a process that served rank 0; None where pytest goes on here.

    Raises:
        BadInput: the launcher's variables cannot be used.
        RanksFailed: rank 0 was not joined by the others.
    """
    identity = identify(os.environ)
    if identity is None or identity.size == 1:
        return None
    if identity.rank != 0:
        return _follow(config, identity)
    config.pluginmanager.register(Leading(config, _lead(config, identity)))
    return None


def _follow(config: pytest.Config, identity: Identity) -> int | None:
    """Serve rank 0 to its end, and return the exit status.

    It is None if rank 0 has no test that needs ranks or measures; this process then runs the tests for itself.
    """
    rendezvous = rendezvous_of(identity, os.environ, run_folder(config))
    status = supervise(follow(identity, rendezvous, boot_timeout_of(config)))
    if status:
        print(
            f"roofline: rank {identity.rank} of {identity.size} ended, since rank 0 has ended",
            file=sys.stderr,
        )
    return status


def _lead(config: pytest.Config, identity: Identity) -> AttachedProcesses:
    """Return the other processes of the launch.

    They are connected to this one, which is rank 0. A round inherits them from the pytest that started it.
    """
    attached = inherit_processes(identity)
    if attached is not None:
        return attached
    # Where all ranks are on this host, no other host needs to reach rank 0.
    bind = option_value(config, "address") or (
        "127.0.0.1" if identity.local_size == identity.size else ""
    )
    rendezvous = rendezvous_of(identity, os.environ, run_folder(config))
    return gather(identity, rendezvous, boot_timeout_of(config), bind)


class Leading:
    """The hooks of rank 0: it tells the other ranks whether they are needed, and when to end."""

    def __init__(self, config: pytest.Config, attached: AttachedProcesses) -> None:
        """Prepare to lead the other processes of the launch, as rank 0."""
        self._config = config
        self._attached = attached
        # Whether the other ranks were told to serve this one, or to run the tests for themselves.
        self._has_decided = False
        config.stash[attached_key] = attached

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Tell the other ranks whether to serve this one.

        They run the tests for themselves if every selected test only uses other plugins.
        """
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
        """Let the other ranks of the launch end, after pytest has reported."""
        if not self._has_decided:
            # The run ended before its tests were known. The other ranks must not begin runs of their own.
            self._attached.tell(JOIN)
        self._attached.tell(BYE)
