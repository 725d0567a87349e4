"""Ranks that are started once, kept from task to task, made anew after a loss, and gone at the end."""

import contextlib
import dataclasses
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import pytest
import torch

from pytest_roofline.core.errors import BadInput, RanksFailed, RanksSkipped
from pytest_roofline.engine.host import cgroup_cpus
from pytest_roofline.processes.system import (
    ending,
    is_same,
    last_words,
    owned_prefix,
    remove_abandoned,
    signal_to,
    text_of,
)
from pytest_roofline.ranks.channel import CONTROLLER_VARIABLE, Endpoint, connect
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.pool import MOST_FAILED_BOOTS, Pool
from pytest_roofline.ranks.tasks import reference
from pytest_roofline.ranks.worlds import backend_of

from ..plugin.rank_runs import MARK, processes
from . import rank_functions as ranks
from .real_ranks import PATIENCE_S, RealRanks, end_within, runs, until

HOST = socket.gethostname()
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture(scope="module")
def three():
    own = RealRanks(3, Local(forks=True))
    yield own
    own.pool.stop()


def run(pool, function, *arguments, size=None, timeout_s=60.0):
    return pool.run(reference(function), arguments, size or pool.size, timeout_s=timeout_s)


def test_a_number_is_a_process_of_ours_only_where_the_kernel_the_space_and_the_start_agree(three):
    three.works()
    *_, member = three.pool.members
    assert (member.is_here, is_same(member.process)) == (True, True)
    other = member.process._replace(ticks=member.process.ticks + 1)
    assert (is_same(other), signal_to(other, signal.SIGKILL)) == (False, False)
    # Of a container of the same name, where the number means another process.
    assert not dataclasses.replace(member, space="another boot pid:[1]").is_here
    assert runs(member.process.pid)


# Tasks and worlds.


def test_worlds_of_any_size_follow_each_other_on_the_same_ranks_and_nothing_boots_again(three):
    three.works()
    before, generation = three.pids, three.pool.generation
    for tag, size in enumerate((2, 3, 2, 1, 3, 3, 2), start=100):
        total, rows = ranks.expected(tag, size)
        found = run(three.pool, ranks.tagged, tag, size=size)
        assert [own["pid"] for own in found] == before[:size]
        assert all(own["total"].equal(total) and own["rows"].equal(rows) for own in found)
    # A world with more time than the last is a new one.
    assert run(three.pool, ranks.echo, timeout_s=10_000.0) == [(rank,) for rank in range(3)]
    # A back end that is not there is said.
    if not torch.distributed.is_nccl_available():
        with pytest.raises(BadInput, match=r"^torch \S+ was built without nccl"):
            backend_of("cuda", None)
    # What is no plain data is refused before a rank hears of it, and so is a world that is larger than the pool.
    with pytest.raises(BadInput, match=r"^an argument holds"):
        run(three.pool, ranks.echo, lambda: 1)
    with pytest.raises(BadInput, match=r"a world of 4 ranks was requested; expected 1 to 3"):
        run(three.pool, ranks.echo, size=4)
    three.works()
    assert (three.pids, three.pool.generation) == (before, generation)


def sockets(pid):
    """How many a process has open."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # It may be closed meanwhile.
        with contextlib.suppress(OSError):
            count += str(link.readlink()).startswith("socket:")
    return count


def test_a_rank_that_the_next_world_has_not_leaves_the_last_one(three):
    three.works()
    outside = three.pids[2]
    connected = sockets(outside)
    run(three.pool, ranks.echo, size=1)
    until(lambda: sockets(outside) < connected)
    three.works()
    assert three.pids[2] == outside


def test_groups_within_a_world_are_kept_and_numbers_are_gathered_beside_it(three):
    found = run(three.pool, ranks.subgroups)
    assert [sums for sums, _ in found] == [
        [[1.0], None, [1.0], None],
        [[1.0], [3.0], [1.0], None],
        [None, [3.0], None, [2.0]],
    ]
    assert all(kept for _, kept in found)
    assert run(three.pool, ranks.gathered) == [[(0.0, 0.0), (1.0, 0.5), (2.0, 1.0)]] * 3


def test_every_rank_says_who_it_is_and_its_arguments_travel_as_they_are(three):
    values = (1, "é", None, [1.5, (2, b"x")], {"dtype": torch.bfloat16})
    assert run(three.pool, ranks.echo, *values) == [(rank, *values) for rank in range(3)]
    assert run(three.pool, ranks.elements, torch.zeros(2**20)) == [2**20] * 3
    cores = min(len(os.sched_getaffinity(0)), cgroup_cpus() or math.inf)
    for told in run(three.pool, ranks.environment):
        # Nothing that a rank function starts can read the key; the cores are shared.
        assert CONTROLLER_VARIABLE not in told["variables"]
        assert told["threads"] == max(1, cores // 3)
        assert told["folder"] == str(Path.cwd())
    members = three.pool.members
    assert [(member.rank, member.host, member.is_here) for member in members] == [
        (rank, HOST, True) for rank in range(3)
    ]
    assert [member.facts.rank for member in members] == [0, 1, 2]
    assert [member.facts.pid for member in members] == [member.process.pid for member in members]
    assert {member.environment.host.name for member in members} == {HOST}


def test_a_rank_that_is_lost_between_two_tasks_costs_a_new_generation_and_no_failure(three):
    three.works()
    generation = three.pool.generation
    *others, idle = three.pids
    os.kill(idle, signal.SIGKILL)
    assert end_within(PATIENCE_S, [idle])

    assert run(three.pool, ranks.echo, size=2) == [(0,), (1,)]
    assert three.pool.generation == generation + 1
    assert not [pid for pid in others if runs(pid)]


class Interrupted(BaseException):
    """As Ctrl-C is."""


def test_an_interruption_leaves_no_rank_behind(three, tmp_path):
    three.works()

    def interrupt(number, frame):
        raise Interrupted

    def when_all_hang():
        until(lambda: len(list(tmp_path.iterdir())) == 3)
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        threading.Thread(target=when_all_hang).start()
        with pytest.raises(Interrupted):
            run(three.pool, ranks.stuck_in_every_way, str(tmp_path))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert end_within(5.0, three.pids)


def test_two_pools_on_one_host_do_not_meet_and_an_orderly_end_leaves_nothing_behind(
    three, monkeypatch, tmp_path
):
    three.works()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    handlers = [signal.getsignal(number) for number in SIGNALS]
    own = RealRanks(2, Local(forks=True))
    for _ in range(3):
        own.works()
        three.works()
    assert not set(own.pids) & set(three.pids)
    assert list(tmp_path.iterdir())
    started = run(own.pool, ranks.starts_a_process)

    try:
        # Twice does no harm.
        own.pool.stop()
        own.pool.stop()
        assert end_within(5.0, own.pids)
        assert not list(tmp_path.iterdir())
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
        three.works()
        assert end_within(5.0, started)
    finally:
        for pid in filter(runs, started):
            os.kill(pid, signal.SIGKILL)


# Boots.


class Scripted:
    """A launcher whose ranks are threads of this process that only say hello, and then what they are told to."""

    name = "scripted"
    bind = "127.0.0.1"

    def __init__(self, hellos=(), trouble=""):
        self._hellos, self._trouble = hellos, trouble
        self.starts = 0
        self.kills = 0
        self._ends = []

    def start(self, size, variables):
        self.starts += 1
        endpoint = Endpoint.parse(bytes.fromhex(variables[CONTROLLER_VARIABLE]).decode())
        come = [
            threading.Thread(target=self._come, args=(endpoint, hello), daemon=True)
            for hello in self._hellos
        ]
        for thread in come:
            thread.start()
        # Whoever waits for them has no time for those that never come.
        for thread in come:
            thread.join(PATIENCE_S)

    def _come(self, endpoint, hello):
        end = connect(endpoint, PATIENCE_S)
        self._ends.append(end)
        end.send(
            {"kind": "hello", "host": "n7", "pid": 0, "stacks": 0, "space": "", "ticks": None}
            | hello
        )

    def trouble(self):
        return self._trouble

    def fate(self, rank):
        return ""

    def stacks_of(self, rank, descriptor):
        return ""

    def tail(self, rank):
        return f"words of rank {rank}"

    def kill(self):
        self.kills += 1
        for end in self._ends:
            end.close()

    def wait(self, seconds):
        return True


def failed_boot(placement, size=2, boot_s=PATIENCE_S):
    pool = Pool(placement, size, "cpu", boot_s=boot_s)
    with pytest.raises(RanksFailed) as caught:
        run(pool, ranks.echo)
    return str(caught.value)


def test_a_boot_that_fails_says_who_is_missing_and_why_and_is_not_tried_again_and_again():
    placement = Scripted(trouble="scripted: no such partition")
    pool = Pool(placement, 2, "cpu")
    for attempt in range(MOST_FAILED_BOOTS + 2):
        began_s = time.monotonic()
        with pytest.raises(
            RanksFailed, match=r"^scripted: no such partition \(scripted, started on "
        ) as caught:
            run(pool, ranks.echo)
        assert "ranks 0, 1 of 2 did not connect" in str(caught.value)
        assert ("not started again" in str(caught.value)) == (attempt >= MOST_FAILED_BOOTS)
        assert time.monotonic() - began_s < PATIENCE_S
    assert placement.starts == MOST_FAILED_BOOTS
    assert placement.kills >= MOST_FAILED_BOOTS
    text = failed_boot(Scripted([{"rank": 0, "size": 2}]), boot_s=0.5)
    assert text == "rank 1 of 2 did not connect within 0.5 s (scripted)\nwords of rank 1"
    # Ranks of another world are refused: each a world of its own, one twice, one beyond the world.
    for hellos in ([(0, 1), (0, 1)], [(0, 2), (0, 2)], [(5, 2)]):
        text = failed_boot(Scripted([{"rank": rank, "size": size} for rank, size in hellos]))
        assert text.startswith("a rank on n7 says that it is rank ")
        assert "expected ranks 0 to 1 of 2, once each. If scripted" in text


def test_too_few_devices_are_a_skip_that_is_told_again_without_a_boot(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")
    pool = Pool(Local(forks=True), 2, "cuda")
    for _ in range(2):
        with pytest.raises(RanksSkipped, match=f"^needs 2 GPUs, found 0 on {re.escape(HOST)}$"):
            run(pool, ranks.echo)
        assert pool.generation == 1
    # A smaller world is worth a try of its own.
    with pytest.raises(RanksSkipped, match="needs 1 GPUs, found 0"):
        run(pool, ranks.echo, size=1)
    assert pool.generation == 2


# The end of the controller.

CONTROLLER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("rank_functions", sys.argv[1])
ranks = importlib.util.module_from_spec(spec)
sys.modules["rank_functions"] = ranks
spec.loader.exec_module(ranks)
from pytest_roofline.ranks.tasks import reference
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.pool import Pool

pool = Pool(Local(forks=True), 3, "cpu")
print(*(member.process.pid for member in pool.members), flush=True)
pool.run(reference(ranks.stuck_in_every_way), (sys.argv[2],), 3, timeout_s=600.0)
"""


def test_ranks_do_not_outlive_a_controller_that_was_killed_however_stuck_they_are(tmp_path):
    (tmp_path / "started").mkdir()
    (tmp_path / "tmp").mkdir()
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, ranks.__file__, str(tmp_path / "started")],
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
        text=True,
    )
    pids = [int(pid) for pid in controller.stdout.readline().split()]
    try:
        until(lambda: len(list((tmp_path / "started").iterdir())) == 3)
        # Rank 2 is stopped and rank 1 holds its interpreter by now, and rank 0 waits for both.
        time.sleep(0.5)
        assert [runs(pid) for pid in pids] == [True] * 3
        controller.kill()
        controller.wait(PATIENCE_S)
        # Within 2 s by design; the rest is for the machine.
        assert end_within(5.0, pids)
    finally:
        controller.kill()
        controller.stdout.close()
        controller.wait(PATIENCE_S)
        for pid in filter(runs, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_rank_that_does_not_come_to_its_end_is_ended_with_its_session_or_with_what_it_forked():
    program = "import os, time\nfrom pytest_roofline.ranks.worker import _end_after\nos.fork() and _end_after(0.2)\n"
    command = [sys.executable, "-c", program + "time.sleep(600)"]
    for leads in (True, False):
        # What it forked holds its output too.
        done = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=60, check=False, start_new_session=leads
        )
        assert done.returncode == -signal.SIGKILL


GUARDED = """
import os, time
from pytest_roofline.processes.system import guard_group

guard_group()
if os.fork() == 0:
    time.sleep(600)
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_what_a_killed_process_forked_is_ended_by_its_guard_which_then_goes_too():
    mark = uuid.uuid4().hex
    guarded = subprocess.Popen(
        [sys.executable, "-c", GUARDED],
        env=os.environ | {MARK: mark},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert guarded.stdout.readline() == f"{guarded.pid}\n"
        # The process, what it forked, and the guard.
        assert len(processes(mark)) == 3
        guarded.kill()
        # Whoever holds it is still there.
        assert guarded.stdout.read() == ""
        guarded.wait(PATIENCE_S)
        assert end_within(PATIENCE_S, processes(mark))
    finally:
        guarded.kill()
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)
        guarded.communicate()


# What a kill leaves.

OWNING = """
import tempfile, time
from pytest_roofline.processes.system import owned_prefix

print(tempfile.mkdtemp(prefix=owned_prefix("round")), flush=True)
time.sleep(600)
"""


def test_a_temporary_folder_is_removed_once_its_process_is_gone_and_never_that_of_another(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = Path(tempfile.mkdtemp(prefix=owned_prefix("launch")))
    owner = subprocess.Popen([sys.executable, "-c", OWNING], stdout=subprocess.PIPE, text=True)
    try:
        folder = Path(owner.stdout.readline().strip())
        (folder / "runs").mkdir()
        remove_abandoned()
        assert {*tmp_path.iterdir()} == {own, folder}
    finally:
        owner.kill()
        owner.communicate()
    _, kind, pid, ticks, space, end = folder.name.split("-")
    kept = [
        tmp_path / name
        for name in (
            # Of another container or boot; without a process, as a run that was saved aside; of others.
            f"roofline-{kind}-{pid}-{ticks}-{'0' * len(space)}-{end}", "roofline-x1y2z3", f"other-{folder.name}",
            f"roofline-theirs-{pid}-{ticks}-{space}-{end}",
        )
    ]  # fmt: skip
    for one in kept:
        one.mkdir()
    if os.getuid() == 0:
        os.chown(kept[-1], 65534, 65534)
    else:
        kept.pop().rmdir()
    # The number belongs to a process that came later.
    reused = tmp_path / f"roofline-{kind}-{os.getpid()}-1-{space}-{end}"
    reused.mkdir()
    link = tmp_path / f"roofline-link-{pid}-{ticks}-{space}-{end}"
    link.symlink_to(own)
    remove_abandoned()
    assert {*tmp_path.iterdir()} == {own, link, *kept}


# What a launcher tells of an end.


def test_an_end_is_told_in_words_and_a_log_by_its_last_lines_whatever_bytes_they_are(tmp_path):
    for status, words in (
        (0, "exit code 0"), (3, "exit code 3"), (-9, "killed by SIGKILL.*memory.*"), (-11, "killed by SIGSEGV"),
        (-63, "killed by signal 63"),
    ):  # fmt: skip
        assert re.fullmatch(words, ending(status))
    log = tmp_path / "log"
    log.write_bytes(
        b"".join(b"line %d\n\n" % number for number in range(100))
        + b"\xff\xfe caf\xe9 "
        + b"x" * 10_000
    )
    lines = last_words(text_of(log)).splitlines()
    assert lines[-2] == "line 99"
    assert lines[-1].startswith("\ufffd\ufffd caf\ufffd xxx")
    assert len(lines) < 50
    assert max(map(len, lines)) < 1000
    assert text_of(tmp_path / "other") == ""
