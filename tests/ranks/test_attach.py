"""Attach mode: what the processes of a launch do for rank 0, and what rank 0 makes of them."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from pytest_roofline.core.errors import BadInput, RanksFailed
from pytest_roofline.processes import system as processes
from pytest_roofline.processes.system import descendants
from pytest_roofline.ranks import attach, local
from pytest_roofline.ranks.attach import (
    ALONE,
    BYE,
    JOIN,
    LENT_VARIABLE,
    AttachPlacement,
    follow,
    gather,
    inherit_processes,
    supervise,
)
from pytest_roofline.ranks.identity import Identity
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.rendezvous import FileRendezvous, meet

from .real_ranks import gone, until

# In place of a rank: says what it was told, and then does what it is told.
PROGRAM = """
import os, signal, sys, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "ROOFLINE_RANK_CONTROLLER")
print(" ".join(os.environ.get(name, "-") for name in names), flush=True)
how = os.environ.get("HOW", "stay")
if how == "stacks":
    import faulthandler, tempfile
    file = tempfile.TemporaryFile("w+")
    faulthandler.register(signal.SIGUSR1, file=file)
    print("writes into", file.fileno(), flush=True)
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if how.isdecimal():
    sys.exit(int(how))
parent, end_s = int(os.environ["ROOFLINE_RANK_PARENT"]), time.monotonic() + 600
while os.getppid() == parent and time.monotonic() < end_s:
    time.sleep(0.05)
"""
COMMAND = (sys.executable, "-c", PROGRAM)
KEY = {"ROOFLINE_RANK_CONTROLLER": "5ec4e7"}


def pid_of(ranks):
    """Of the one process that it has started; 0 where it has none."""
    return next((process.pid for process in ranks._processes.values()), 0)


class Launch:
    """A launch in threads: rank 0 is the test, the others supervise."""

    def __init__(self, folder, size=2):
        self.identity = Identity(0, size, 0, None, "srun")
        self.folder = folder
        self.rendezvous = FileRendezvous(folder / "attach" / "srun-7-2")
        self.children = {rank: Local(command=COMMAND) for rank in range(size)}
        self.ended = {}
        self._threads = [
            threading.Thread(target=self._other, args=(rank,)) for rank in range(1, size)
        ]
        for thread in self._threads:
            thread.start()
        self.attached = gather(self.identity, self.rendezvous, 60, "127.0.0.1")

    def _other(self, rank):
        identity = Identity(rank, self.identity.size, rank, None, "srun")
        self.ended[rank] = supervise(follow(identity, self.rendezvous, 60), self.children[rank])

    def placement(self):
        self.attached.tell(JOIN)
        return AttachPlacement(self.attached, self.children[0])

    def statuses(self):
        """How the others ended, when they have."""
        for thread in self._threads:
            thread.join(60)
        return self.ended


@pytest.fixture
def launch(tmp_path):
    launches = []

    def make(size=2):
        launches.append(Launch(tmp_path, size))
        return launches[-1]

    yield make
    for one in launches:
        one.attached.tell(BYE)
        one.children[0].kill()
        one.statuses()


def test_the_others_leave_with_0_when_rank_0_says_so_or_go_on_by_themselves(tmp_path, capfd):
    for words, status in (((JOIN, BYE), 0), ((ALONE,), None)):
        one = Launch(tmp_path, 3)
        # The file that all met by is taken down.
        assert list((tmp_path / "attach").iterdir()) == []
        for word in words:
            one.attached.tell(word)
        assert one.statuses() == {1: status, 2: status}
    assert capfd.readouterr() == ("", "")


def test_every_rank_is_told_who_it_is_and_nothing_of_its_launch(launch, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "node1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "9")
    one = launch(3)
    placement = one.placement()
    # A smaller world leaves the last processes idle.
    placement.start(2, KEY)
    until(lambda: placement.tail(1))
    assert (placement.tail(1), pid_of(one.children[2])) == ("1 2 1 - - 5ec4e7", 0)
    first = [pid_of(child) for child in one.children.values()][:2]
    placement.kill()
    assert all(map(gone, first))
    placement.start(3, KEY)
    until(lambda: all(placement.tail(rank) for rank in range(3)))
    assert [placement.tail(rank) for rank in range(3)] == [
        f"{rank} 3 {rank} - - 5ec4e7" for rank in range(3)
    ]
    assert placement.trouble() == ""
    # One that still runs has no fate.
    monkeypatch.setattr(local, "FATE_S", 0.05)
    assert (placement.fate(0), placement.fate(1), placement.wait(0.05)) == ("", "", False)
    with pytest.raises(BadInput, match="4 ranks are needed, but the launch has 3"):
        placement.start(4, KEY)
    one.children[1]._command = ["/nowhere/python"]
    with pytest.raises(
        RanksFailed, match=r"rank 1 on \S+: the rank could not be started: .*No such file"
    ):
        placement.start(2, KEY)


@pytest.fixture
def patient(monkeypatch):
    """A rank that is to end may take as long to begin as a busy machine has it."""
    monkeypatch.setattr(local, "FATE_S", 60.0)
    monkeypatch.setattr(attach, "FATE_S", 60.0)


def test_the_end_of_a_rank_is_known_on_every_host(launch, patient):
    placement = launch().placement()
    for how, fate in (("kill", "killed by SIGKILL"), ("3", "exit code 3"), ("0", "exit code 0")):
        placement.start(2, KEY | {"HOW": how})
        assert [placement.fate(rank).partition(" (")[0] for rank in (0, 1)] == [fate, fate]
        assert placement.trouble().startswith(f"rank 0 ended during its start: {fate}")
        assert placement.trouble().endswith("\n0 2 0 - - 5ec4e7")
        assert placement.wait(60)


def test_the_end_of_rank_0_ends_every_rank_and_exits_with_1(launch):
    one = launch(3)
    placement = one.placement()
    placement.start(3, KEY)
    pids = [pid_of(one.children[rank]) for rank in (1, 2)]
    for channel in one.attached._channels.values():
        channel.close()
    assert one.statuses() == {1: 1, 2: 1}
    assert all(map(gone, pids))


def test_a_process_of_the_launch_that_is_gone_or_does_not_answer_is_given_up(launch, monkeypatch):
    one = launch(3)
    placement = one.placement()
    placement.start(3, KEY)
    one.attached._channels[2].close()
    told = "the launched process of rank 2 has ended"
    assert re.fullmatch(rf"rank 2 on \S+: {told}", placement.trouble())
    assert (placement.fate(2), placement.tail(2)) == (told, "")
    given_up = threading.Event()
    monkeypatch.setattr(one.children[1], "tail", lambda _: given_up.wait(60))
    assert one.attached.ask([1], "tail", 7, seconds=0.2) == {1: None}
    given_up.set()
    assert one.attached.is_gone(1)
    # An order that rank 0 may not give is refused.
    one = launch()
    one.attached.tell(JOIN)
    assert one.attached.ask([1], "__init__") == {1: None}
    assert one.statuses() == {1: 1}


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_ranks_that_never_come_or_do_not_belong_to_the_launch_are_named(tmp_path):
    rendezvous, zero = FileRendezvous(tmp_path / "board"), Identity(0, 3, 0, None, "srun")
    with pytest.raises(
        RanksFailed, match=r"ranks 1, 2 of 3 did not connect to rank 0 on \S+ within 0.2 s"
    ):
        gather(zero, rendezvous, 0.2)
    assert list(tmp_path.iterdir()) == []
    for rank, size in ((0, 3), (3, 3), (1, 4)):

        def come(rank=rank, size=size):
            channel = follow(Identity(rank, size, 0, None, "srun"), rendezvous, 60)
            with pytest.raises(EOFError):
                channel.receive(60)

        thread = in_a_thread(come)
        with pytest.raises(
            RanksFailed, match=f"says that it is rank {rank} of {size}; expected ranks 1 to 2 of 3"
        ):
            gather(zero, rendezvous, 60)
        thread.join(60)
        assert not thread.is_alive()
    # Strangers, and those that are gone again, do not end a launch.
    one = Identity(1, 2, 0, None, "srun")

    def come():
        meet(one, rendezvous, 60).close()
        with closing(meet(one, rendezvous, 60)) as stranger:
            stranger.send("who is there?")
            with closing(follow(one, rendezvous, 60)) as channel:
                channel.receive(60)

    thread = in_a_thread(come)
    attached = gather(Identity(0, 2, 0, None, "srun"), rendezvous, 60)
    attached.tell(JOIN)
    thread.join(60)
    assert (thread.is_alive(), attached.size) == (False, 2)


def test_a_blocked_rank_of_another_process_writes_its_stacks_at_a_signal_once_it_has_a_core(
    launch, monkeypatch
):
    monkeypatch.setattr(processes, "SIGNAL_S", 60.0)
    one = launch()
    placement = one.placement()
    placement.start(2, KEY | {"HOW": "stacks"})
    until(lambda: "writes into" in placement.tail(1))
    descriptor = int(placement.tail(1).rpartition(" ")[2])
    pid = pid_of(one.children[1])
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (pid, signal.SIGCONT)).start()
    assert 'File "<string>"' in placement.stacks_of(1, descriptor)
    placement.kill()
    assert placement.stacks_of(1, descriptor) == ""


ROUND = f"""
import os, signal, sys
from pytest_roofline.ranks.attach import AttachPlacement, BYE, JOIN, inherit_processes
from pytest_roofline.ranks.identity import Identity
from pytest_roofline.ranks.local import Local
attached = inherit_processes(Identity(0, 3, 0, None, "srun"))
assert inherit_processes(attached.identity) is None
attached.tell(JOIN)
placement = AttachPlacement(attached, Local(command={COMMAND!r}))
placement.start(3, {KEY!r} | {{"HOW": sys.argv[1]}})
if sys.argv[1] == "stay":
    attached._send(1, {{"do": "tail", "what": [1], "mark": "never read"}})
    print(attached.ask([2], "trouble")[2] == "", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
print(placement.fate(1), placement.fate(2), flush=True)
placement.kill()
attached.tell(BYE)
"""


def test_a_round_leads_the_processes_and_gives_them_back_also_when_it_is_killed(launch, patient):
    one = launch(3)
    own = one.placement()
    own.start(3, KEY)
    own.kill()
    environ, descriptors = one.attached.lend()
    assert list(environ) == [LENT_VARIABLE]
    # Only a round borrows.
    assert inherit_processes(one.identity) is None
    for how, said, status in (
        ("3", "exit code 3 exit code 3", 0),
        ("stay", "True", -signal.SIGKILL),
    ):
        done = subprocess.run(
            [sys.executable, "-c", ROUND, how], env=os.environ | environ, pass_fds=descriptors, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.stdout.strip(), done.returncode) == (said, status), done.stderr
        left = [pid_of(one.children[rank]) for rank in (1, 2)]
        own.start(3, KEY)
        until(lambda: own.tail(2))
        assert own.tail(2) == "2 3 2 - - 5ec4e7"
        assert all(gone(pid) for pid in left if pid)
        own.kill()


SUPERVISOR = f"""
import os, sys
from pathlib import Path
from pytest_roofline.ranks.attach import follow, supervise
from pytest_roofline.ranks.identity import Identity
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.rendezvous import FileRendezvous
channel = follow(Identity(1, 2, 0, None, "srun"), FileRendezvous(Path(sys.argv[1])), 60)
sys.exit(supervise(channel, Local(command={COMMAND!r})))
"""


def test_a_launcher_that_ends_its_processes_ends_their_ranks_and_ctrl_c_is_left_to_rank_0(tmp_path):
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 0)):
        process = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(tmp_path / "meet")])
        attached = gather(
            Identity(0, 2, 0, None, "srun"), FileRendezvous(tmp_path / "meet"), 60, "127.0.0.1"
        )
        attached.tell(JOIN)
        assert attached.ask([1], "start_one", 1, KEY) == {1: ""}
        ((child, _),) = descendants(process.pid)
        process.send_signal(number)
        if number == signal.SIGINT:
            assert attached.ask([1], "fate", 1) == {1: ""}
        attached.tell(BYE)
        assert process.wait(60) == status
        assert gone(child)
