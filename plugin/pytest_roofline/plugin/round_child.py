"""The child's side of a round: a pytest that runs a list of tests, writes their results, and judges nothing.

The parent starts it with its own command line and says the rest in a file that an environment variable names. What
selects, stops, reruns or reports is put back to pytest's defaults here, after pytest has parsed it, so that no form of
writing an option can slip through.
"""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from ..core.units import encodable
from ..engine.devices.base import started_by
from ..engine.identity import copied_from
from ..settings.command_line import unheeded_key
from ..settings.options import ROUND_VARIABLE as VARIABLE
from ..settings.round import Round, round_key

PARENT_EVERY_S = 0.5

# Options of pytest and its usual companions that select, stop, repeat or report, with the value that does none of it.
_NEUTRAL_VALUES: dict[str, Any] = {
    "keyword": "",
    "markexpr": "",
    "maxfail": 0,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "stepwise_reset": False,
    "basetemp": None,
    "deselect": None,
    "xmlpath": None,
    "htmlpath": None,
    "json_report": False,
    "json_report_file": None,
    "report_log": None,
    "log_file": os.devnull,
    "pastebin": None,
    "durations": None,
    "usepdb": False,
    "trace": False,
    "cov_report": {},
    "numprocesses": 0,
    "dist": "no",
    "tx": [],
    "benchmark_json": None,
    "benchmark_save": None,
    "benchmark_autosave": None,
    "benchmark_compare": [],
    "benchmark_compare_fail": None,
    "benchmark_histogram": [],
}
# The options of pytest that select tests. They are kept where the parent gave no list of tests.
_CHOOSING_OPTIONS = ("keyword", "markexpr", "deselect")
# Options of ours that no round heeds, and those that a process of `roofline ab` does not heed besides.
_UNHEEDED_OPTIONS = frozenset(("save", "profile", "rounds", "record", "accept-slower", "wait"))
_UNJUDGED_OPTIONS = frozenset(
    (
        "against",
        "expect",
        "ci",
        "fail-on",
        "min-percent",
        "report",
    )
)


def begin(config: pytest.Config) -> None:
    """Turn this run into a round, if a parent asks for one.

    Its options then are neutral where they would select, repeat or report tests, since the parent decides on that.
    """
    path = os.environ.pop(VARIABLE, "")
    if not path:
        return
    this_round = config.stash[round_key] = _read_round(path)
    # A side of `roofline ab` is compared by its parent, so more options are not heeded there.
    config.stash[unheeded_key] = (
        _UNHEEDED_OPTIONS if this_round.side is None else _UNHEEDED_OPTIONS | _UNJUDGED_OPTIONS
    )
    # `count` may be an option of the user's own, unless pytest-repeat is there.
    repeats = {"count": 1} if config.pluginmanager.hasplugin("pytest_repeat") else {}
    for name, value in (_NEUTRAL_VALUES | repeats).items():
        # Without ids the round selects its tests as the command does, so the options that choose them stay.
        is_kept = this_round.ids is None and name in _CHOOSING_OPTIONS
        if hasattr(config.option, name) and not is_kept:
            setattr(config.option, name, value)
    config.args = files_of(this_round.ids or [], config.rootpath) or config.args
    config.pluginmanager.register(Watch(this_round))
    # A round in a process of its own must not outlive its parent.
    if this_round.own_process:
        started_by(this_round.parent)
        threading.Thread(target=_end_with, args=(this_round.parent,), daemon=True).start()


def files_of(test_ids: Sequence[str], rootdir: Path) -> list[str]:
    """Return the files of tests in their order; none if any is missing.

    A round collects these files only, so that it imports no other. A node id begins with its file's path from the root
    directory, unless the file lies outside of it.
    """
    paths = dict.fromkeys(str(rootdir / test_id.partition("::")[0]) for test_id in test_ids)
    return list(paths) if all(map(os.path.isfile, paths)) else []


def _read_round(path: str) -> Round:
    """Return the round, the task of this process, from a file that its parent wrote.

    Raises:
        pytest.UsageError: there is no such file, or another process wrote it.
    """
    try:
        this_round = Round(Path(path))
        if os.getppid() == this_round.parent:
            return this_round
    except (OSError, ValueError, LookupError, TypeError):
        pass
    raise pytest.UsageError(
        f"{VARIABLE} is {path!r}, but no such file exists. Only a run sets this variable, for "
        f"its further rounds. Unset {VARIABLE}"
    )


def _end_with(parent: int) -> None:
    """Wait until the parent has ended; then end this process and its group.

    Without the parent nobody would end a round that hangs.
    """
    while os.getppid() == parent:
        time.sleep(PARENT_EVERY_S)
    # A group that another process leads is not ours to end.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


class Watch:
    """The hooks of a round: they keep the tests of the parent's list, and report each to the parent."""

    def __init__(self, this_round: Round) -> None:
        self._round = this_round

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of the round, in the order of collection."""
        if self._round.ids is not None:
            test_ids = set(map(encodable, self._round.ids))
            items[:] = [item for item in items if encodable(item.nodeid) in test_ids]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test once, without repeats; stop if the round is over."""
        if reason := self._round.over:
            item.session.shouldstop = reason
            return True
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        runtestprotocol(item, nextitem=nextitem)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Report every test that will run, if the parent has no list."""
        for item in session.items if self._round.ids is None else ():
            self._round.say("planned", item.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report that a test begins."""
        self._round.say("start", nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Report that a test has ended."""
        self._round.say("end", nodeid)

    def pytest_unconfigure(self) -> None:
        """Skip the garbage collections at pytest's end, which take long.

        The end of this process frees its memory.
        """
        if self._round.own_process:
            gc.freeze()

    def pytest_sessionfinish(self) -> None:
        """Report code that came from the checkout instead of the side's folder.

        Only a process of `roofline ab` has a side. Code of an environment that lies in the checkout is not reported.
        """
        side = self._round.side or {}
        if side.get("checkout") == side.get("folder"):
            return
        checkout_prefix = f"{side['checkout']}{os.sep}"
        allowed_places = (sys.prefix, sys.base_prefix, side["folder"])
        allowed_prefixes = tuple(
            place
            for place in (*allowed_places, *map(os.path.realpath, allowed_places))
            if place.startswith(checkout_prefix)
        )
        files = {
            str(getattr(module, "__file__", None) or os.devnull)
            for module in list(sys.modules.values())
        }
        # A path may lead into the checkout through a link.
        strays = [
            path
            for path in sorted(files | set(map(os.path.realpath, files)))
            if path.startswith(checkout_prefix)
            and not path.startswith(allowed_prefixes)
            and not {"site-packages", "dist-packages"} & set(Path(path).parts)
        ]
        for path in [*strays, *copied_from(side)]:
            self._round.say("stray", path)
