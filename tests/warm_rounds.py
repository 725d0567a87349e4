"""Further rounds of inner runs, forked from a process that outlives the runs: a fresh one imports for a second.

For tests that are not about how a round starts. The process is as the one that rounds on a processor are forked from,
kept for all runs of this process instead of for a few rounds; each round goes to the folder of its run first.
"""

import os
from pathlib import Path

from pytest_roofline.plugin import round_server, rounds
from pytest_roofline.processes.fork_server import SUPPORTED, ForkServer
from pytest_roofline.settings.options import attached_key

ROOT = Path(__file__).resolve().parents[1]
# Plugins that inner runs load beside this one.
PLUGINS = ("pytest_benchmark.plugin", "pytest_rerunfailures", "xdist.plugin", "xdist.looponfail")
# The process, once a round has needed it, with the variables that it started with.
_servers = []


def install(patch):
    """Have rounds forked from the lasting process, until `patch` is undone."""
    patch.setattr(rounds, "RoundParent", WarmParent)
    patch.setattr(
        rounds,
        "may_fork",
        lambda state: SUPPORTED and state.config.stash.get(attached_key, None) is None,
    )


class WarmParent:
    """In place of a `RoundParent`: the same process for every run."""

    def __init__(self, plugins=(), *, folder):
        self._folder = str(folder)

    def next(self, environ):
        """Return the process, which goes to this run's folder before it is a round."""
        if not _servers or not _servers[0][0].serves(_servers[0][1]):
            variables = dict(os.environ)
            _servers[:] = [(ForkServer(variables, __name__, PLUGINS, folder=ROOT), variables)]
        return InFolder(_servers[0][0], self._folder)

    def gave_up(self, environ):
        """Never: where the process has ended, the next round starts another."""
        return False

    def close(self):
        """Leave the process to the next run."""


class InFolder:
    """A fork server whose processes live in a folder."""

    def __init__(self, server, folder):
        self._server, self._folder = server, folder
        self.pid, self.end = server.pid, server.end

    def fork(self, environ, log, arguments):
        """Ask for a process, as `ForkServer.fork` does."""
        return self._server.fork(environ, log, [self._folder, *arguments])


def live(arguments):
    """Be a round in the folder that comes ahead of its arguments; return the exit status."""
    folder, *words = arguments
    os.chdir(folder)
    return round_server.live(words)
