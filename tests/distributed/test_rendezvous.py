"""How the processes of a launch find rank 0, past what earlier launches left."""

import contextlib
import os
import signal
import socket
import tempfile
import threading
import time
import traceback
from contextlib import closing
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from pytest_roofline.core.errors import BadInput, RanksFailed
from pytest_roofline.distributed import rendezvous
from pytest_roofline.distributed.channel import listen, new_key
from pytest_roofline.distributed.gathering import gather
from pytest_roofline.distributed.identity import Identity
from pytest_roofline.distributed.rendezvous import FileBoard, Meeting, StoreBoard, board_of, meet
from pytest_roofline.distributed.supervising import follow

ONE = Identity(1, 2, 0, None, "srun")
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2"}
HOST = socket.gethostname()
MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
ELASTIC = MASTER | {"TORCHELASTIC_RUN_ID": "a/b", "TORCHELASTIC_RESTART_COUNT": "1"}
KEY = new_key()
SECRET = {"ROOFLINE_ATTACH_KEY": "0123456789abcdef"}


@pytest.fixture
def board(tmp_path):
    return FileBoard(tmp_path / "attach" / "srun-7-2")


@pytest.fixture
def listener():
    key = new_key()
    with closing(listen("127.0.0.1", key)) as open_one:
        yield open_one, Meeting(("127.0.0.1",), open_one.port, key)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_a_meeting_is_what_its_text_says():
    meeting = Meeting(("node1", "10.0.0.1"), 1234, new_key())
    assert Meeting.parse(meeting.text) == meeting


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"addresses": 3, "port": 1, "key": ""}', '{"addresses": [], "port": "x"}']
)
def test_what_is_no_meeting_is_refused(text):
    with pytest.raises(ValueError):
        Meeting.parse(text)


def test_what_was_posted_can_be_read_by_its_owner_only_and_is_taken_down(board, tmp_path):
    board.post("first")
    board.post("second")
    (path,) = (tmp_path / "attach").iterdir()
    assert (board.read(0), path.name, path.stat().st_mode & 0o777) == ("second", "srun-7-2", 0o600)
    board.close()
    assert board.read(0) is None
    board.close()


@pytest.mark.parametrize("mode", [0o622, 0o640, 0o604])
def test_a_file_that_others_may_write_or_read_is_not_believed(board, tmp_path, mode):
    board.post("text")
    (tmp_path / "attach" / "srun-7-2").chmod(mode)
    assert board.read(0) is None


def test_a_file_of_somebody_else_is_not_believed(board, monkeypatch):
    board.post("text")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert board.read(0) is None


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "attach").write_text("a file")
    with pytest.raises(RanksFailed, match=r"rank 0 cannot write .*srun-7-2"):
        FileBoard(tmp_path / "attach" / "srun-7-2").post("text")


def test_the_others_meet_the_rank_0_that_posted(board, listener):
    listener, meeting = listener
    board.post(meeting.text)
    with closing(meet(ONE, board, 30)) as channel:
        channel.send("here")
        with closing(listener.accept(30)) as accepted:
            assert accepted.receive(30) == "here"


@pytest.mark.parametrize("stale", ["refused", "wrong key", "nonsense"])
def test_what_an_earlier_launch_left_costs_a_retry_only(board, listener, monkeypatch, stale):
    monkeypatch.setattr(rendezvous, "ATTEMPT_S", 0.2)
    listener, meeting = listener
    left = {
        "refused": Meeting(("127.0.0.1",), free_port(), new_key()).text,
        "wrong key": Meeting(("127.0.0.1",), meeting.port, new_key()).text,
        "nonsense": "{",
    }
    board.post(left[stale])
    met = []
    thread = threading.Thread(target=lambda: met.append(meet(ONE, board, 60)))
    thread.start()
    # Until it has read what is stale, whose connection is refused.
    time.sleep(0.3)
    board.post(meeting.text)
    thread.join(60)
    (channel,) = met
    channel.close()


def test_a_rank_that_never_meets_rank_0_says_where_it_looked(board):
    with pytest.raises(RanksFailed) as caught:
        meet(ONE, board, 0.2)
    assert str(caught.value).startswith(
        f"rank 1 of 2 on {socket.gethostname()} did not meet rank 0 within 0.2 s "
        f"by {board._path}, which every node must see"
    )
    assert "nothing was posted there. Expected every process of this launch (srun) to run the same pytest" in str(
        caught.value
    )


def test_a_rank_that_finds_nobody_where_it_was_sent_says_so(board, monkeypatch):
    monkeypatch.setattr(rendezvous, "ATTEMPT_S", 0.1)
    board.post(Meeting(("127.0.0.1",), free_port(), new_key()).text)
    with pytest.raises(RanksFailed, match=r"what was posted there leads nowhere: .*refused"):
        meet(ONE, board, 0.5)


def test_a_hosted_store_is_read_by_others_and_gives_its_port_back():
    port = free_port()
    zero, other = (StoreBoard("127.0.0.1", port, KEY, hosted=True) for _ in range(2))
    zero.post("where I am")
    assert other.read(30) == "where I am"
    zero.close()
    socket.create_server(("127.0.0.1", port)).close()
    assert other.read(0.2) is None


def test_readers_wait_for_the_store_and_for_what_is_posted():
    port = free_port()
    found = []
    reader = StoreBoard("127.0.0.1", port, KEY, hosted=True)
    thread = threading.Thread(target=lambda: found.append(reader.read(60)))
    thread.start()
    zero = StoreBoard("127.0.0.1", port, KEY, hosted=True)
    zero.post("late")
    thread.join(60)
    assert found == ["late"]
    zero.close()


def test_a_taken_port_is_said():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RanksFailed, match=f"rank 0 cannot listen on MASTER_PORT={port}: Address already in use"):
            StoreBoard("127.0.0.1", port, KEY, hosted=True).post("text")


def test_restarts_of_one_launch_do_not_read_each_others_posts():
    port = free_port()
    host = StoreBoard("127.0.0.1", port, KEY, hosted=True)
    host.post("of the host")
    first, second = (StoreBoard("127.0.0.1", port, KEY, hosted=False, launch=count) for count in "12")
    first.post("of the first")
    assert (second.read(0.2), first.read(10), host.read(10)) == (None, "of the first", "of the host")
    first.close()
    assert first.read(0.2) is None
    host.close()


@pytest.mark.parametrize(
    ("identity", "environ", "where"),
    [
        (ONE, STEP, "srun-7-2"),
        (Identity(1, 2, 1, 2, "mpirun"), {"PMIX_NAMESPACE": "prterun-1@1", "SLURM_JOB_ID": "7"}, "mpirun-prterun-1@1"),
        (Identity(1, 2, 1, 2, "mpirun"), {"PMIX_NAMESPACE": "../../etc/x"}, "mpirun-.._.._etc_x"),
        (Identity(1, 2, 0, 1, "mpirun"), {"PBS_JOBID": "42.server"}, "mpirun-42.server"),
        (Identity(1, 2, 1, 2, "mpirun"), {}, f"mpirun-{HOST}-{os.getppid()}"),
        (Identity(1, 2, 0, 1, "mpirun"), MASTER, f"mpirun-{HOST}-127.0.0.1-29500"),
        (ONE, STEP | MASTER, "srun-7-2"),
        (ONE, STEP | SECRET, "srun-7-2"),
        (Identity(1, 2, 0, None, "env"), MASTER, f"env-{HOST}-127.0.0.1-29500"),
        (Identity(1, 2, 0, None, "env"), MASTER | {"MASTER_ADDR": "localhost"}, f"env-{HOST}-localhost-29500"),
        (Identity(1, 2, 0, None, "env"), MASTER | {"MASTER_ADDR": "10.0.0.1"}, "env-10.0.0.1-29500"),
        (Identity(1, 2, 1, 2, "torchrun"), ELASTIC, f"torchrun-{HOST}-127.0.0.1-29500-a_b-1"),
    ],
)  # fmt: skip
def test_a_launch_without_a_secret_meets_by_a_file_of_its_own(identity, environ, where, tmp_path):
    board = board_of(identity, environ, tmp_path)
    assert isinstance(board, FileBoard)
    board.post("x")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [f"attach/{where}"]


@pytest.mark.parametrize("launcher", ["torchrun", "env", "srun", "mpirun"])
def test_a_launch_with_a_secret_and_a_master_meets_there_and_posts_no_key(launcher, tmp_path):
    board = board_of(Identity(1, 2, 0, None, launcher), STEP | MASTER | SECRET, tmp_path)
    assert board.where == "the store at MASTER_ADDR=127.0.0.1, MASTER_PORT=29500"
    posted = []
    board.post = posted.append
    with pytest.raises(RanksFailed, match="rank 1 of 2 did not come"):
        gather(Identity(0, 2, 0, None, launcher), board, 0.1)
    assert [Meeting.parse(text).key for text in posted] == [b""]
    assert list(tmp_path.rglob("*")) == []


class Stranger:
    """Another user of this machine, who was first at the store, and sends whoever reads it to a listener of his.

    He posts under every name that a launch may have, and writes a file of his own where one is looked for.
    """

    def __init__(self, port, files):
        (ready, readied), (self.accepted, told) = os.pipe(), os.pipe()
        self._child = os.fork()
        if not self._child:
            try:
                self._act(port, files, readied, told)
            finally:
                traceback.print_exc()
                os._exit(1)
        os.close(readied)
        os.close(told)
        assert os.read(ready, 1) == b"x", "the stranger could not begin"

    def _act(self, port, files, readied, told):
        # What this loads lies where the other user may not look.
        socket.getaddrinfo("127.0.0.1", 0)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        listener = listen("127.0.0.1", KEY)
        meeting = Meeting(("127.0.0.1",), listener.port, KEY).text
        store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)
        for launch in "01":
            store.set(f"roofline/rank0/{launch}", meeting)
        for path in files:
            path.write_text(meeting)
        os.write(readied, b"x")
        while True:
            if listener.accept(0.1) is not None:
                os.write(told, b"x")

    def close(self):
        """Whether a rank came to him and would have run what he says."""
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        return os.read(self.accepted, 1) == b"x"


def lured(launcher, secret):
    """Whether a rank of a launch came to a stranger, where everybody may write into the folder of the runs."""
    identity, port = Identity(1, 2, 1, 2, launcher), free_port()
    environ = STEP | ELASTIC | {"PMIX_NAMESPACE": "job", "MASTER_PORT": str(port)} | secret
    if launcher == "torchrun":
        environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    master = f"{HOST}-127.0.0.1-{port}-a_b-1"
    names = ["srun-7-2", "mpirun-job", f"env-{master}", f"torchrun-{master}"]
    with tempfile.TemporaryDirectory() as folder:
        attach = Path(folder) / "attach"
        attach.mkdir()
        for one in (attach, attach.parent):
            one.chmod(0o777)
        stranger = Stranger(port, [attach / name for name in names])
        try:
            with contextlib.suppress(RanksFailed):
                meet(identity, board_of(identity, environ, Path(folder)), 0.8).close()
        finally:
            got_one = stranger.close()
    return got_one


@pytest.mark.parametrize("launcher", ["torchrun", "env", "srun", "mpirun"])
@pytest.mark.parametrize("secret", [{}, SECRET], ids=["by a file", "by a secret"])
def test_another_user_of_the_machine_gets_no_rank(launcher, secret, monkeypatch):
    if os.geteuid():
        pytest.skip("needs root, to be another user")
    monkeypatch.setattr(rendezvous, "ATTEMPT_S", 0.3)
    assert not lured(launcher, secret)


def test_a_secret_that_is_short_is_none(tmp_path):
    with pytest.raises(BadInput, match="ROOFLINE_ATTACH_KEY has 5 characters; expected at least 16, as of `openssl"):
        board_of(ONE, STEP | MASTER | {"ROOFLINE_ATTACH_KEY": "12345"}, tmp_path)


def test_ranks_that_share_a_secret_meet_by_a_store(tmp_path, monkeypatch):
    environ = MASTER | SECRET | {"MASTER_PORT": str(free_port())}
    gathered = []

    def lead():
        zero = Identity(0, 2, 0, None, "env")
        gathered.append(gather(zero, board_of(zero, environ, tmp_path), 30, "127.0.0.1"))

    thread = threading.Thread(target=lead)
    thread.start()
    one = Identity(1, 2, 0, None, "env")
    channel = follow(one, board_of(one, environ, tmp_path), 30)
    thread.join(30)
    assert [attached.size for attached in gathered] == [2]
    channel.close()


@pytest.mark.parametrize(
    ("launcher", "environ", "said"),
    [
        ("env", {}, "RANK=1 and WORLD_SIZE=2 are set, but not MASTER_ADDR and MASTER_PORT"),
        ("env", {"MASTER_ADDR": "a"}, "but not MASTER_PORT; set them to rank 0's host and a free port"),
        ("torchrun", {"MASTER_ADDR": "a", "MASTER_PORT": "70000"}, "MASTER_PORT='70000'; expected a port"),
        ("mpirun", {}, "this mpirun names no job that rank 1 of 2 could know its own by"),
    ],
)
def test_a_launch_that_gives_nothing_to_meet_by_is_refused(launcher, environ, said, tmp_path):
    with pytest.raises(BadInput) as caught:
        board_of(Identity(1, 2, 0, None, launcher), environ, tmp_path)
    assert said in str(caught.value)
