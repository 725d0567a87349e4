"""Ranks that are started once, kept from task to task, made anew after a loss, and gone at the end."""

import contextlib
import dataclasses
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
from pytest_roofline.ranks.channel import Endpoint, connect
from pytest_roofline.ranks.functions import reference
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.messages import CONTROLLER_VARIABLE
from pytest_roofline.ranks.placement import ending, last_words, text_of
from pytest_roofline.ranks.pool import MOST_FAILED_BOOTS, Pool
from pytest_roofline.ranks.processes import is_same, process_space, signal_to
from pytest_roofline.ranks.worlds import backend_of

from ..plugin.rank_runs import MARK, processes
from . import rank_functions as ranks
from .real_ranks import PATIENCE_S, RealRanks, end_within, runs

HOST = socket.gethostname()
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture(scope="module")
def three():
    own = RealRanks(3, Local(forks=True))
    yield own
    own.pool.stop()


def run(pool, function, *arguments, size=None, timeout_s=60.0):
    return pool.run(reference(function), arguments, size or pool.size, timeout_s=timeout_s)


# Processes.


def test_a_number_is_a_process_of_ours_only_where_the_kernel_the_space_and_the_start_agree(three):
    three.works()
    *_, member = three.pool.members
    assert member.here
    assert is_same(member.process)
    other = dataclasses.replace(member, ticks=member.ticks + 1)
    assert not is_same(other.process)
    assert not signal_to(other.process, signal.SIGKILL)
    # Of a container of the same name, where the number means another process.
    assert not dataclasses.replace(member, space="another boot pid:[1]").here
    assert runs(member.pid)


def test_without_proc_a_space_is_a_host(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert process_space() == HOST


# Tasks and worlds.


def test_worlds_of_any_size_follow_each_other_on_the_same_ranks(three):
    three.works()
    before = three.pids
    for tag, size in enumerate((2, 3, 2, 1, 3, 3, 2), start=100):
        total, rows = ranks.expected(tag, size)
        found = run(three.pool, ranks.tagged, tag, size=size)
        assert [own["pid"] for own in found] == before[:size]
        assert all(own["total"].equal(total) and own["rows"].equal(rows) for own in found)
    assert three.pool.generation == 1


def sockets(pid):
    """How many a process has open."""
    names = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(link.readlink()))
    return sum(name.startswith("socket:") for name in names)


def test_a_rank_that_the_next_world_has_not_leaves_the_last_one(three):
    three.works()
    outside = three.pids[2]
    connected = sockets(outside)
    run(three.pool, ranks.echo, size=1)

    until_s = time.monotonic() + PATIENCE_S
    while sockets(outside) >= connected and time.monotonic() < until_s:
        time.sleep(0.02)
    assert sockets(outside) < connected
    three.works()
    assert three.pids[2] == outside


def test_a_task_after_the_first_takes_no_boot(three):
    three.works()
    before = three.pids
    for _ in range(10):
        three.works()

    assert three.pids == before


def test_a_world_with_more_time_than_the_last_is_a_new_one_and_works(three):
    assert run(three.pool, ranks.echo, timeout_s=10_000.0) == [(rank,) for rank in range(3)]
    three.works()


def test_groups_within_a_world_are_kept_and_let_go_in_order(three):
    for most in (2, 8):
        found = run(three.pool, ranks.subgroups, most)
        assert [sums for sums, _ in found] == [
            [[1.0], None, [2.0], [1.0], [3.0], None, None, [1.0]],
            [[1.0], [3.0], None, [1.0], [3.0], [3.0], None, [1.0]],
            [None, [3.0], [2.0], None, [3.0], [3.0], [2.0], None],
        ]
        assert all(kept for _, kept in found)
    three.works()


def test_numbers_are_gathered_beside_the_measured_group(three):
    assert run(three.pool, ranks.gathered) == [[(0.0, 0.0), (1.0, 0.5), (2.0, 1.0)]] * 3


def test_arguments_and_results_travel_as_they_are(three):
    values = (1, "é", None, [1.5, (2, b"x")], {"dtype": torch.bfloat16})
    found = run(three.pool, ranks.echo, *values)

    assert found == [(rank, *values) for rank in range(3)]
    assert run(three.pool, ranks.elements, torch.zeros(2**20)) == [2**20] * 3


def test_ranks_know_no_key_share_the_cores_and_stand_in_the_same_folder(three):
    for told in run(three.pool, ranks.environment):
        assert CONTROLLER_VARIABLE not in told["variables"]
        assert told["threads"] == max(1, len(os.sched_getaffinity(0)) // 3)
        assert told["folder"] == str(Path.cwd())


def test_arguments_that_are_no_plain_data_are_refused_before_a_rank_hears_of_them(three):
    three.works()
    with pytest.raises(BadInput, match=r"^an argument holds"):
        run(three.pool, ranks.echo, lambda: 1)

    assert not [pid for pid in three.pids if not runs(pid)]


def test_every_rank_says_at_boot_who_it_is(three):
    members = three.pool.members

    assert [(member.rank, member.host, member.here) for member in members] == [(rank, HOST, True) for rank in range(3)]
    assert [member.facts.rank for member in members] == [0, 1, 2]
    assert [member.facts.pid for member in members] == [member.pid for member in members]
    assert {member.environment.host.name for member in members} == {HOST}


def test_a_world_that_is_larger_than_the_pool_is_refused_and_harms_nothing(three):
    three.works()
    with pytest.raises((BadInput, RanksFailed), match=r"4.*3"):
        run(three.pool, ranks.echo, size=4)
    before = three.pids
    three.works()

    assert three.pids == before


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


def test_an_interruption_leaves_no_rank_behind(three):
    three.works()

    def interrupt(number, frame):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Interrupted):
            run(three.pool, ranks.hang, 1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert end_within(5.0, three.pids)


def test_two_pools_on_one_host_do_not_meet_and_an_orderly_end_leaves_nothing_behind(three, monkeypatch, tmp_path):
    three.works()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    handlers = [signal.getsignal(number) for number in SIGNALS]
    own = RealRanks(2)
    for _ in range(3):
        own.works()
        three.works()
    assert not set(own.pids) & set(three.pids)
    assert list(tmp_path.iterdir())
    started = run(own.pool, ranks.starts_a_process)

    try:
        own.pool.stop()
        assert end_within(5.0, own.pids)
        assert not list(tmp_path.iterdir())
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
        three.works()
        assert end_within(5.0, started)
    finally:
        for pid in filter(runs, started):
            os.kill(pid, signal.SIGKILL)


def test_a_pool_that_was_stopped_or_never_started_can_be_stopped_again():
    pool = Pool(Local(), 2, "cpu")
    pool.stop()
    pool.kill()
    pool.stop()

    assert pool.generation == 0


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
        for hello in self._hellos:
            threading.Thread(target=self._come, args=(endpoint, hello), daemon=True).start()

    def _come(self, endpoint, hello):
        end = connect(endpoint, PATIENCE_S)
        self._ends.append(end)
        end.send({"kind": "hello", "host": "n7", "pid": 0, "stacks": 0, "space": "", "ticks": None} | hello)

    def trouble(self):
        return self._trouble

    def fate(self, rank):
        return ""

    def signal(self, rank, number):
        return False

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


def test_a_launcher_that_fails_before_any_rank_has_come_is_told_at_once():
    began_s = time.monotonic()
    text = failed_boot(Scripted(trouble="scripted: no such partition"))

    assert text.startswith("scripted: no such partition (scripted, started on ")
    assert "ranks 0, 1 of 2 did not come" in text
    assert time.monotonic() - began_s < PATIENCE_S


def test_too_few_ranks_are_told_after_the_time_of_a_boot_with_who_is_missing():
    text = failed_boot(Scripted([{"rank": 0, "size": 2}]), boot_s=0.5)

    assert text == "rank 1 of 2 did not come within 0.5 s (scripted)\nwords of rank 1"


@pytest.mark.parametrize(
    "hellos",
    [
        pytest.param([{"rank": 0, "size": 1}, {"rank": 0, "size": 1}], id="each a world of its own"),
        pytest.param([{"rank": 0, "size": 2}, {"rank": 0, "size": 2}], id="one twice"),
        pytest.param([{"rank": 5, "size": 2}], id="beyond the world"),
    ],
)
def test_ranks_of_another_world_are_refused_with_their_host_and_the_likely_reason(hellos):
    text = failed_boot(Scripted(hellos))

    assert text.startswith("a rank on n7 says that it is rank ")
    assert "expected ranks 0 to 1 of 2, once each" in text


def test_a_pool_whose_boots_failed_is_not_tried_again():
    placement = Scripted(trouble="scripted: no such partition")
    pool = Pool(placement, 2, "cpu")
    for attempt in range(MOST_FAILED_BOOTS + 2):
        with pytest.raises(RanksFailed, match="no such partition") as caught:
            run(pool, ranks.echo)
        assert ("not tried again" in str(caught.value)) == (attempt >= MOST_FAILED_BOOTS)

    assert placement.starts == MOST_FAILED_BOOTS
    assert placement.kills >= MOST_FAILED_BOOTS


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


def test_a_torch_without_the_devices_own_back_end_is_said():
    assert (backend_of("cpu", None), backend_of("cuda", "gloo")) == ("gloo", "gloo")
    if not torch.distributed.is_nccl_available():
        with pytest.raises(BadInput, match=r"^torch \S+ was built without nccl"):
            backend_of("cuda", None)


class Spoiled(Local):
    """Ranks that find something at their start which ends one of them."""

    def __init__(self, folder, text):
        super().__init__()
        (folder / "sitecustomize.py").write_text(text)
        self._path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.pids = []

    def start(self, size, variables):
        super().start(size, variables | {"PYTHONPATH": self._path})
        self.pids = [process.pid for process in self._processes.values()]


def test_a_rank_that_ends_before_it_has_come_is_told_with_its_last_words(tmp_path):
    placement = Spoiled(
        tmp_path, "import os\nif os.environ.get('RANK') == '1':\n    os.write(2, b'no libcuda\\n')\n    os._exit(7)\n"
    )
    text = failed_boot(placement)

    assert "rank 1 ended during its boot: exit code 7" in text.splitlines()[0]
    assert "no libcuda" in text
    assert end_within(PATIENCE_S, placement.pids)


BETTER = """
from pathlib import Path
import pytest_roofline.engine.host as environment
environment.ACCELERATOR_NODES = (Path("/"),)
"""


@pytest.mark.parametrize("asked", [True, False])
def test_the_cpu_that_nobody_asked_for_is_refused_on_a_host_with_an_accelerator(tmp_path, asked):
    pool = Pool(Spoiled(tmp_path, BETTER), 2, "cpu", asked=asked)
    try:
        if asked:
            assert run(pool, ranks.echo) == [(0,), (1,)]
        else:
            with pytest.raises(RanksFailed, match=rf"^rank 0 on {re.escape(HOST)}: this machine has an accelerator"):
                run(pool, ranks.echo)
    finally:
        pool.stop()


LOST_AFTER_HELLO = """
import os, sys


class Ends:
    def find_spec(self, name, path=None, target=None):
        if name == "pytest_roofline.ranks.facts":
            os._exit(5)


if os.environ.get("RANK") == "1":
    sys.meta_path.insert(0, Ends())
"""


def test_a_rank_that_is_lost_while_it_tells_what_it_is_is_named_with_the_cause(tmp_path):
    placement = Spoiled(tmp_path, LOST_AFTER_HELLO)
    text = failed_boot(placement)

    # Rank 0 may not have come by then.
    assert re.search(r"rank 1 .*during its boot: exit code 5", text.splitlines()[0])
    assert end_within(PATIENCE_S, placement.pids)


def test_ranks_that_take_too_long_to_come_are_named_and_ended(tmp_path):
    placement = Spoiled(tmp_path, "import os, time\nif os.environ.get('RANK') == '0':\n    time.sleep(600)\n")
    pool = Pool(placement, 2, "cpu", boot_s=0.5)
    with pytest.raises(RanksFailed, match=r"did not come within 0\.5 s"):
        run(pool, ranks.echo)

    assert end_within(PATIENCE_S, placement.pids)


# The end of the controller.

CONTROLLER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("rank_functions", sys.argv[1])
ranks = importlib.util.module_from_spec(spec)
sys.modules["rank_functions"] = ranks
spec.loader.exec_module(ranks)
from pytest_roofline.ranks.functions import reference
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.pool import Pool

pool = Pool(Local(forks=sys.argv[3] == "forked"), 3, "cpu")
print(*(member.pid for member in pool.members), flush=True)
pool.run(reference(ranks.stuck_in_every_way), (sys.argv[2],), 3, timeout_s=600.0)
"""


def _is_stopped(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


@pytest.mark.parametrize("how", ["forked", "started"])
def test_ranks_do_not_outlive_a_controller_that_was_killed_however_stuck_they_are(tmp_path, how):
    (tmp_path / "started").mkdir()
    (tmp_path / "tmp").mkdir()
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, ranks.__file__, str(tmp_path / "started"), how],
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
        text=True,
    )
    pids = [int(pid) for pid in controller.stdout.readline().split()]
    try:
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s and not (
            len(list((tmp_path / "started").iterdir())) == 3 and _is_stopped(pids[2])
        ):
            time.sleep(0.02)
        # Rank 1 holds its interpreter by now, and rank 0 waits for it.
        time.sleep(0.3)
        assert len(pids) == 3
        assert all(map(runs, pids))
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


@pytest.mark.parametrize("leads", [True, False], ids=["with its session", "with what it forked"])
def test_a_rank_that_does_not_come_to_its_end_is_ended(leads):
    program = "import os, time\nfrom pytest_roofline.ranks.worker import _end_after\nos.fork() and _end_after(0.2)\n"
    done = subprocess.run(
        [sys.executable, "-c", program + "time.sleep(600)"],
        # What it forked holds it too.
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
        start_new_session=leads,
    )

    assert done.returncode == -signal.SIGKILL


def test_a_rank_whose_controller_is_gone_before_it_begins_does_not_import_torch_first():
    command = [sys.executable, "-X", "importtime", "-m", "pytest_roofline.ranks.rank"]
    gone = os.environ | {"ROOFLINE_RANK_PARENT": str(os.getppid())}
    done = subprocess.run(command, env=gone, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert re.search(r" pytest_roofline\.ranks\.processes$", done.stderr, re.MULTILINE)
    assert not re.search(r" torch$", done.stderr, re.MULTILINE)


GUARDED = """
import os, sys, time
from pytest_roofline.ranks.processes import guard_group

if sys.argv[1] == "looks":
    del os.pidfd_open
guard_group()
if os.fork() == 0:
    time.sleep(600)
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["waits", "looks"])
def test_what_a_killed_process_forked_is_ended_by_its_guard_which_then_goes_too(how):
    mark = uuid.uuid4().hex
    guarded = subprocess.Popen(
        [sys.executable, "-c", GUARDED, how],
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


# What a launcher tells of an end.


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "killed by SIGKILL.*memory.*"),
        (-11, "killed by SIGSEGV"),
        (-63, "killed by signal 63"),
    ],
)
def test_an_exit_status_is_told_in_words(status, words):
    assert re.fullmatch(words, ending(status))


def test_the_tail_of_a_log_is_its_last_lines_whatever_bytes_they_are(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"line %d\n\n" % number for number in range(100)) + b"\xff\xfe caf\xe9 " + b"x" * 10_000)
    lines = last_words(text_of(log)).splitlines()

    assert lines[-2] == "line 99"
    assert lines[-1].startswith("\ufffd\ufffd caf\ufffd xxx")
    assert len(lines) < 50
    assert max(map(len, lines)) < 1000
    assert text_of(tmp_path / "other") == ""
