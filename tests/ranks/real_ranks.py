"""A pool of real ranks for tests: what works, what fails, and that nothing of it is left."""

import contextlib
import re
import socket
import time
from itertools import count
from pathlib import Path

import pytest

from pytest_roofline.core.errors import RanksFailed
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.pool import Pool
from pytest_roofline.ranks.tasks import reference

from . import rank_functions as ranks

# For what should end at once, on a machine that pauses at will.
PATIENCE_S = 30.0


def runs(pid):
    """Whether any thread of a process still runs; what is dead and waits for its parent does not."""
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            if task.read_text().rpartition(")")[2].split()[0] not in ("Z", "X"):
                return True
    return False


def end_within(seconds, pids):
    """Whether processes have ended within so many seconds."""
    until_s = time.monotonic() + seconds
    while any(map(runs, pids)) and time.monotonic() < until_s:
        time.sleep(0.02)
    return not any(map(runs, pids))


def gone(pid):
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


def until(condition):
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


class RealRanks:
    """A pool of ranks, their tasks numbered, and the processes of the last."""

    def __init__(self, size, placement=None):
        self.pool = Pool(placement or Local(), size, "cpu")
        self.size = size
        self.pids = []
        self._tags = count(1)

    def works(self):
        """A task whose payloads can only be its own; `pids` has the ranks that did it."""
        tag = next(self._tags)
        total, rows = ranks.expected(tag, self.size)
        found = self.pool.run(reference(ranks.tagged), (tag,), self.size, timeout_s=60.0)
        for rank, own in enumerate(found):
            assert own["rank"] == rank
            assert own["total"].equal(total)
            assert own["rows"].equal(rows)
        self.pids = [own["pid"] for own in found]

    def fails(self, function, *arguments, timeout_s=PATIENCE_S):
        """The text of the failure of a task, which leaves none of its processes behind; the next task works."""
        self.works()
        generation = self.pool.generation
        with pytest.raises(RanksFailed) as caught:
            self.pool.run(reference(function), arguments, self.size, timeout_s=timeout_s)
        assert not [pid for pid in self.pids if runs(pid)]
        broken = self.pids
        self.works()
        assert self.pool.generation == generation + 1
        assert not set(broken) & set(self.pids)
        self.name = [
            rf"rank {rank} \(pid {pid} on {re.escape(socket.gethostname())}\)"
            for rank, pid in enumerate(broken)
        ]
        return str(caught.value)

    def blamed(self, guilty, cause, function, *arguments, **options):
        """The text of a failure, after a look at its first line: the guilty, its host and the cause."""
        text = self.fails(function, *arguments, **options)
        assert re.match(rf"{self.name[guilty]} {cause}", text.splitlines()[0]), text
        return text
