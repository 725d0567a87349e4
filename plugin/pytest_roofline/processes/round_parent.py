"""The process that rounds on a processor are forked from. It is replaced every few rounds."""

import os
import sys
from collections.abc import Mapping, Sequence

from .fork_server import SUPPORTED, ForkServer

# The module of the process that forks rounds.
SERVER = "pytest_roofline.plugin.round_server"
# Rounds that are forked before the parent is replaced. They all share the addresses of its libraries in memory and the
# seed of its hashes, which may influence times.
ROUNDS_PER_PARENT = 3


class RoundParent:
    """Keeps the process that the next round is forked from.

    Args:
        plugins: modules of pytest's plugins, which the process imports.
        python: the interpreter of the process.
        folder: that the process starts in.
    """

    def __init__(
        self,
        plugins: Sequence[str] = (),
        *,
        python: str = sys.executable,
        folder: str | os.PathLike[str],
    ) -> None:
        """Prepare to start a server for rounds at the first of them. The class describes the arguments."""
        self._plugins, self._python, self._folder = plugins, python, folder
        self._server: ForkServer | None = None
        self._rounds_left = 0
        self._can_fork = SUPPORTED

    def next(self, environ: Mapping[str, str]) -> ForkServer | None:
        """Return the server that forks the process of the next round (a repetition of tests in a process of its own).

        It is a new one after a few rounds. It is None where rounds cannot be forked; then each round
        is a fresh process.

        Args:
            environ: the variables of the round.
        """
        if not self._can_fork:
            return None
        if self._server is None or not self._rounds_left or not self._server.serves(environ):
            self.close()
            self._server = ForkServer(
                environ, SERVER, self._plugins, python=self._python, folder=self._folder
            )
            self._rounds_left = ROUNDS_PER_PARENT
        self._rounds_left -= 1
        return self._server

    def gave_up(self, environ: Mapping[str, str]) -> bool:
        """Return whether the server that forks rounds has ended by itself. If so, no other is started from then on.

        Args:
            environ: the variables of the last round.
        """
        if self._server is None or self._server.serves(environ):
            return False
        self._can_fork = False
        self.close()
        return True

    def close(self) -> None:
        """End the server, and with it the rounds that it has forked."""
        if self._server is not None:
            self._server.end()
            self._server = None
