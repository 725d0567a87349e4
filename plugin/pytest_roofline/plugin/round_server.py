"""What rounds on a processor are forked from: `python -m pytest_roofline.plugin.round_server DESCRIPTOR PLUGINS`.

It has imported torch, this plugin and the others, has collected nothing and opened no device. PLUGINS are the modules
of pytest's plugins that the run has loaded, of those that an installed package registers.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ..engine import host, measure
from ..engine.devices import cpu
from ..ranks.fork_server import serve
from . import display, in_process, running

# What takes a round long to import, beside torch.
__all__ = ["cpu", "display", "host", "in_process", "measure", "running"]


def load_plugins(names: Sequence[str]) -> None:
    """Import pytest's plugins of these modules; one that cannot be imported says so in the round."""
    for entry in entry_points(group="pytest11"):
        if entry.module in names:
            with contextlib.suppress(Exception):
                entry.load()


def live(arguments: Sequence[str]) -> int:
    """Be a round, which is pytest with these arguments; return its exit status."""
    sys.argv = [str(Path(pytest.__file__).with_name("__main__.py")), *arguments]
    # They were imported here, ahead of pytest's own import hook.
    return int(pytest.main([*arguments, "-W", "ignore::pytest.PytestAssertRewriteWarning"]))


if __name__ == "__main__":
    descriptor, *plugins = sys.argv[1:]
    load_plugins(plugins)
    # What torch holds at the end of an orderly life is none of the run's waiting.
    os._exit(serve(int(descriptor), live))
