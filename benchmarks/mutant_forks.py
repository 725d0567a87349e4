"""Mutants tried in forks of one process that has collected the tests: for `benchmarks/mutants.py`.

Importing torch and collecting some thousand tests takes longer than most mutants live. So one process does both, and
every mutant is a fork of it in which one function has another code object.
"""

import builtins
import contextlib
import functools
import gc
import importlib
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from types import FunctionType

import pytest

WORKERS = 2
# Tests of more than this run only with mutants that the others leave alive.
QUICK_S = 1.0
# Seconds of the processor beside five times what a test takes without a mutant; seconds of a fork in all.
SPARE_CPU_S, MOST_S = 5, 3600
MOST_BYTES = 12 * 2**30  # a mutant that asks for more fails, and the machine lives
STARTS = ("os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen")
ENDS = {
    0: "survived",
    -signal.SIGXCPU: "timeout",
    -signal.SIGALRM: "timeout",
    -signal.SIGKILL: "timeout",
}


class Forks:
    """A plugin of pytest that tries mutants with the tests that pytest collected, in place of running these.

    Args:
        side: under which a mutant gets how it ended; whoever has that is not tried again.
        mutants: each with its function in this tree and the code object to be tried.
        save: called after each.
    """

    def __init__(self, side, mutants, save):
        self._side, self._mutants, self._save = side, mutants, save
        self._now, self._failed, self._forks = "", None, {}
        self._executed, self._unfit, self._seconds = defaultdict(set), set(), {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        for path in {function.path for _, function, _ in self._mutants}:
            importlib.import_module(".".join(path.with_suffix("").parts[-3:]))
        self._find()
        for part in range(WORKERS):
            self._fork(functools.partial(self._watch, session.items[part::WORKERS]), self._watched)
        self._wait_for_all()
        print(
            f"{len(self._seconds) - len(self._unfit)} of {len(self._seconds)} tests have a say",
            file=sys.__stderr__,
        )
        self._pass(session.items, None, "unsettled", lambda test: self._seconds[test] <= QUICK_S)
        self._pass(
            session.items, "unsettled", "survived", lambda test: self._seconds[test] > QUICK_S
        )
        return True

    def _find(self):
        """All functions that are loaded, and all caches of results."""
        gc.unfreeze()
        gc.collect()
        self._loaded, self._caches = defaultdict(list), []
        for one in gc.get_objects():
            if type(one) is FunctionType:
                self._loaded[f"{one.__code__.co_filename}:{one.__code__.co_qualname}"].append(one)
            elif type(one) is functools._lru_cache_wrapper:
                self._caches.append(one)
        # The tests collect garbage, which would copy all of this process's memory into every fork.
        gc.freeze()

    def _put(self, function, code):
        for one in self._loaded[function.place] or sys.exit(f"{function.place} is not loaded"):
            one.__code__ = code

    def _pass(self, items, ended, survived, fit):
        """Try the mutants that ended so with the tests that fit; what none of these kills gets the word `survived`."""
        for mutant, function, code in self._mutants:
            if mutant.get(self._side) == ended:
                tests = [item for item in self._tests(items, function) if fit(item.nodeid)]
                work = functools.partial(self._try, function, code, tests)
                self._fork(work, functools.partial(self._tried, mutant, survived))
            if len(self._forks) == WORKERS:
                self._wait()
        self._wait_for_all()

    def _tests(self, items, function):
        """The tests that execute a function: those of its own file, then those of the quickest files first."""
        files = defaultdict(list)
        for item in items:
            file = item.nodeid.partition("::")[0]
            if (
                item.nodeid not in self._unfit
                and function.place in self._executed[item.nodeid] | self._executed[file]
            ):
                files[file].append(item)
        seconds = {
            file: sum(self._seconds[item.nodeid] for item in some) for file, some in files.items()
        }
        order = sorted(
            files, key=lambda file: (f"test_{function.path.stem}" not in file, seconds[file])
        )
        return [item for file in order for item in files[file]]

    def _fork(self, work, then):
        """Start work, which gets a path to write to, in a fork; `then` gets how it ended and what it wrote."""
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        if pid := os.fork():
            self._forks[pid] = folder, then
            return
        try:
            os.setsid()
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES,) * 2)
            signal.alarm(MOST_S)
            work(folder / "said")
            os._exit(0)
        finally:
            os._exit(3)

    def _wait(self):
        """Wait for one of the forks to end."""
        pid, status = os.wait()
        # What its tests left running.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        folder, then = self._forks.pop(pid)
        said = (folder / "said").read_text() if (folder / "said").exists() else ""
        shutil.rmtree(folder, ignore_errors=True)
        then(ENDS.get(os.waitstatus_to_exitcode(status), "killed"), said)

    def _wait_for_all(self):
        while self._forks:
            self._wait()

    def _watch(self, items, path):
        """Run tests without a mutant: the functions that each executes, those that have no say, the seconds of each."""
        executed, unfit, seconds = defaultdict(set), set(), {}
        builtins.__executed__ = lambda place: executed[self._now].add(place)
        for function in {function.place: function for _, function, _ in self._mutants}.values():
            self._put(
                function, function.compiled(f"__executed__({function.place!r})\n{function.body}")
            )
        sys.addaudithook(lambda event, _: event in STARTS and unfit.add(self._now))
        self._failed = unfit.add
        for item, following in pairwise([*items, None]):
            self._now, begin = item.nodeid, time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = time.process_time() - begin
        path.write_text(
            json.dumps([{test: [*places] for test, places in executed.items()}, [*unfit], seconds])
        )

    def _watched(self, end, said):
        executed, unfit, seconds = (
            json.loads(said) if said else sys.exit(f"The tests without a mutant: {end}")
        )
        for test, places in executed.items():
            self._executed[test] |= {*places}
        self._unfit |= {*unfit}
        self._seconds |= seconds

    def _try(self, function, code, tests, path):
        """Run tests with a mutant, to the first that fails."""
        self._put(function, code)
        for cache in self._caches:
            cache.cache_clear()
        self._failed = lambda test: (path.write_text(test), os._exit(1))
        for item, following in pairwise([*tests, None]):
            until_s = time.process_time() + SPARE_CPU_S + 5 * self._seconds[item.nodeid]
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(until_s), resource.RLIM_INFINITY))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def _tried(self, mutant, survived, end, test):
        mutant[self._side] = survived if end == "survived" else end
        print(
            mutant[self._side],
            mutant["function"],
            mutant["was"],
            "->",
            mutant["now"],
            test,
            file=sys.__stderr__,
        )
        self._save()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._failed(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """What a fixture of a module executes belongs to all tests of that module."""
        before = self._now
        self._now = before if fixturedef.scope == "function" else before.partition("::")[0]
        try:
            return (yield)
        finally:
            self._now = before
