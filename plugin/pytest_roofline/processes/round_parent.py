"""The process that rounds on a processor are forked from. It is replaced every few rounds."""

import os
import sys
from collections.abc import Mapping, Sequence

from .fork_server import SUPPORTED, ForkServer

# What forks rounds.
SERVER = "pytest_roofline.plugin.round_server"
# Rounds of one parent share the places of its libraries in memory, and the seed of its hashes.
ROUNDS_PER_PARENT = 3


class RoundParent:
    """Gives the process to fork the next round from.

    Args:
        plugins: modules of pytest's plugins, to be imported there.
        python: its interpreter.
        folder: where it starts.
    """

    def __init__(
        self,
        plugins: Sequence[str] = (),
        *,
        python: str = sys.executable,
        folder: str | os.PathLike[str],
    ) -> None:
        self._plugins, self._python, self._folder = plugins, python, folder
        self._server: ForkServer | None = None
        self._rounds_left = 0
        self._can_fork = SUPPORTED

    def next(self, environ: Mapping[str, str]) -> ForkServer | None:
        """Return the server that forks the next round, started anew when it has forked its share.

        None where rounds cannot be forked, so that each is a fresh process.

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
        """Return whether the process has ended by itself. Then no other is started."""
        if self._server is None or self._server.serves(environ):
            return False
        self._can_fork = False
        self.close()
        return True

    def close(self) -> None:
        """End the process, and with it what it has forked."""
        if self._server is not None:
            self._server.end()
            self._server = None
