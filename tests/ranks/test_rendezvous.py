"""How the processes of a launch find rank 0, past what earlier launches left and past other users of the machine."""

import contextlib
import os
import select
import signal
import socket
import tempfile
import threading
import time
import traceback
from pathlib import Path

import pytest

from pytest_roofline.core.errors import BadInput, RanksFailed
from pytest_roofline.ranks import rendezvous
from pytest_roofline.ranks.attach import BYE, follow, gather
from pytest_roofline.ranks.channel import Endpoint
from pytest_roofline.ranks.identity import Identity
from pytest_roofline.ranks.listener import Listener
from pytest_roofline.ranks.rendezvous import FileRendezvous, SecretRendezvous, meet, rendezvous_of

from .launches import free_port

ONE, MPI, ENV = (
    Identity(1, 2, 0, None, "srun"),
    Identity(1, 2, 1, 2, "mpirun"),
    Identity(1, 2, 0, None, "env"),
)
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2"}
HOST = socket.gethostname()
MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
ELASTIC = MASTER | {"TORCHELASTIC_RUN_ID": "a/b", "TORCHELASTIC_RESTART_COUNT": "1"}
AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
KEY = b"a key of this test"
SECRET = {"ROOFLINE_ATTACH_KEY": "0123456789abcdef"}


@pytest.fixture
def by_file(tmp_path):
    return FileRendezvous(tmp_path / "attach" / "srun-7-2")


def test_what_rank_0_writes_is_its_owners_only_is_believed_only_as_such_and_is_taken_down(
    by_file, tmp_path, monkeypatch
):
    path, own = tmp_path / "attach" / "srun-7-2", os.geteuid()
    with contextlib.closing(by_file.listen("127.0.0.1")) as listener:
        assert (list((tmp_path / "attach").iterdir()), path.stat().st_mode & 0o777) == (
            [path],
            0o600,
        )
        assert by_file.endpoints() == [listener.endpoint]
        # A file that others may write or read is not believed.
        for mode in (0o622, 0o640, 0o604):
            path.chmod(mode)
            assert by_file.endpoints() == []
        path.chmod(0o600)
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: own + 1)
            assert by_file.endpoints() == []
        by_file.close()
        assert by_file.endpoints() == []
    path.parent.rmdir()
    path.parent.write_text("a file")
    with pytest.raises(RanksFailed, match=r"rank 0 cannot write .*srun-7-2"):
        by_file.listen("127.0.0.1")


def test_what_an_earlier_launch_left_costs_a_retry_only_and_where_nothing_comes_it_is_said(
    by_file, monkeypatch, tmp_path
):
    monkeypatch.setattr(rendezvous, "ATTEMPT_S", 0.1)
    with pytest.raises(RanksFailed) as caught:
        meet(ONE, by_file, 0.2)
    assert str(caught.value).startswith(
        f"rank 1 of 2 on {HOST} did not find rank 0 within 0.2 s by {tmp_path}/attach/srun-7-2, a "
        "folder that every node must share"
    )
    assert "rank 0 wrote no address. Expected every process of this launch (srun) to run" in str(
        caught.value
    )
    by_file.listen("127.0.0.1").close()
    path = tmp_path / "attach" / "srun-7-2"
    # That of the port may be somebody else's by now.
    path.write_text(Endpoint(("127.0.0.1",), free_port(), KEY).text)
    with pytest.raises(RanksFailed, match=r"the address of rank 0 cannot be reached: .*refused"):
        meet(ONE, by_file, 0.3)
    with contextlib.closing(Listener("127.0.0.1")) as other:
        for left in (Endpoint(("127.0.0.1",), other.endpoint.port, KEY).text, "{"):
            path.write_text(left)
            path.chmod(0o600)
            met = []
            thread = threading.Thread(target=lambda met=met: met.append(meet(ONE, by_file, 60)))
            thread.start()
            # Until it has read what is stale, whose connection is refused.
            time.sleep(0.3)
            with contextlib.closing(by_file.listen("127.0.0.1")):
                thread.join(60)
            met[0].close()


def test_a_launch_without_a_secret_meets_by_a_file_of_its_own(tmp_path):
    for number, (identity, environ, where) in enumerate((
        (ONE, STEP | MASTER, "srun-7-2"),
        (ONE, STEP | SECRET, "srun-7-2"),
        (MPI, {"PMIX_NAMESPACE": "prterun-1@1", "SLURM_JOB_ID": "7"}, "mpirun-prterun-1@1"),
        (MPI, {"PMIX_NAMESPACE": "../../etc/x"}, "mpirun-.._.._etc_x"),
        (Identity(1, 2, 0, 1, "mpirun"), {"PBS_JOBID": "42.server"}, "mpirun-42.server"),
        (MPI, {}, f"mpirun-{HOST}-{os.getppid()}"),
        (Identity(1, 2, 0, 1, "mpirun"), MASTER, f"mpirun-{HOST}-127.0.0.1-29500"),
        (ENV, MASTER | {"MASTER_ADDR": "localhost"}, f"env-{HOST}-localhost-29500"),
        (ENV, MASTER | {"MASTER_ADDR": "10.0.0.1"}, "env-10.0.0.1-29500"),
        (Identity(1, 2, 1, 2, "torchrun"), ELASTIC, f"torchrun-{HOST}-127.0.0.1-29500-a_b-1"),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        rendezvous_of(identity, environ, folder).listen("127.0.0.1").close()
        assert [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()] == [
            f"attach/{where}"
        ]
    for launcher, environ, told in (
        ("env", {}, "RANK=1 and WORLD_SIZE=2 are set, but not MASTER_ADDR and MASTER_PORT"),
        (
            "env",
            {"MASTER_ADDR": "a"},
            "but not MASTER_PORT; set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port",
        ),
        (
            "torchrun",
            {"MASTER_ADDR": "a", "MASTER_PORT": "70000"},
            "MASTER_PORT='70000'; expected a port",
        ),
        ("mpirun", {}, "this mpirun gives no job name to rank 1 of 2"),
        (
            "srun",
            STEP | MASTER | {"ROOFLINE_ATTACH_KEY": "12345"},
            "has 5 characters; expected at least 16, the same",
        ),
    ):
        with pytest.raises(BadInput) as caught:
            rendezvous_of(Identity(1, 2, 0, None, launcher), environ, tmp_path)
        assert told in str(caught.value)


def test_a_launch_with_a_secret_and_a_master_meets_there_and_writes_no_file(tmp_path):
    for launcher in ("srun", "torchrun"):
        environ = STEP | MASTER | SECRET | {"MASTER_PORT": str(free_port())}
        # torchrun's agent holds the port itself.
        environ |= AGENT if launcher == "torchrun" else {}
        zero, one = Identity(0, 2, 0, None, launcher), Identity(1, 2, 0, None, launcher)
        gathered = []

        def lead(zero=zero, environ=environ, gathered=gathered):
            gathered.append(gather(zero, rendezvous_of(zero, environ, tmp_path), 30, "127.0.0.1"))

        with contextlib.ExitStack() as stack:
            if launcher == "torchrun":
                stack.enter_context(socket.create_server(("", int(environ["MASTER_PORT"]))))
            thread = threading.Thread(target=lead)
            thread.start()
            channel = follow(one, rendezvous_of(one, environ, tmp_path), 30)
            thread.join(30)
        assert [attached.size for attached in gathered] == [2]
        gathered[0].tell(BYE)
        channel.close()
    assert list(tmp_path.rglob("*")) == []
    # Launches of one user with one secret have different keys.
    environs = [MASTER | SECRET | {"TORCHELASTIC_RESTART_COUNT": count} for count in "01"]
    assert (
        len({rendezvous_of(ONE, environ, tmp_path).endpoints()[0].key for environ in environs}) == 2
    )
    # Rank 0 takes the first port that is free, and says where none is.
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            RanksFailed,
            match=rf"rank 0 cannot listen on .*:{port}: Address already in use \(MASTER_P",
        ):
            SecretRendezvous("node1", range(port, port + 1), KEY).listen("")
        with contextlib.closing(
            SecretRendezvous("node1", range(port, port + 9), KEY).listen("")
        ) as listener:
            assert port < listener.endpoint.port < port + 9


class Stranger:
    """Another user, who was first at every port that was free, and writes files where one is looked for."""

    def __init__(self, ports, folder, names):
        (ready, readied), (self.accepted, told) = os.pipe(), os.pipe()
        self._child = os.fork()
        if not self._child:
            try:
                self._act(ports, folder, names, readied, told)
            finally:
                traceback.print_exc()
                os._exit(1)
        os.close(readied)
        os.close(told)
        assert os.read(ready, 1) == b"x", "the stranger could not begin"

    def _act(self, ports, folder, names, readied, told):
        # What this loads, and perhaps the way to the folder, lies where the other user may not look.
        socket.getaddrinfo("127.0.0.1", 0)
        folder = os.open(folder, os.O_RDONLY)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        listeners = []
        for port in ports:
            # Whoever else has this one is no rank's controller either.
            with contextlib.suppress(RanksFailed):
                listeners.append(Listener("127.0.0.1", port, KEY))
        for name in names:
            with os.fdopen(
                os.open(name, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=folder), "w"
            ) as file:
                file.write(listeners[0].endpoint.text)
        os.write(readied, b"x")
        while True:
            if any(listener.accept(0.02) is not None for listener in listeners):
                os.write(told, b"x")

    def close(self):
        """Whether a rank came to him and would have run what he says."""
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        return os.read(self.accepted, 1) == b"x"


def lured(launcher, secret, seconds=0.8):
    """Whether a rank of a launch came to a stranger, where everybody may write into the folder of the runs."""
    identity, port = Identity(1, 2, 1, 2, launcher), free_port()
    environ = STEP | ELASTIC | {"PMIX_NAMESPACE": "job", "MASTER_PORT": str(port)} | secret
    environ |= AGENT if launcher == "torchrun" else {}
    master = f"{HOST}-127.0.0.1-{port}-a_b-1"
    names = ["srun-7-2", "mpirun-job", f"env-{master}", f"torchrun-{master}"]
    with tempfile.TemporaryDirectory() as folder:
        attach = Path(folder) / "attach"
        attach.mkdir()
        for one in (attach, attach.parent):
            one.chmod(0o777)
        own = rendezvous_of(identity, environ, Path(folder))
        ports = [endpoint.port for endpoint in own.endpoints()] if secret else [0]
        stranger = Stranger(ports, attach, names)
        try:
            with contextlib.suppress(RanksFailed), contextlib.closing(meet(identity, own, seconds)):
                # He takes note of whoever comes to him.
                select.select([stranger.accepted], [], [], 60)
        finally:
            got_one = stranger.close()
    return got_one


def test_another_user_of_the_machine_gets_no_rank(monkeypatch):
    if os.geteuid():
        pytest.skip("needs root, to be another user")
    monkeypatch.setattr(rendezvous, "ATTEMPT_S", 0.3)
    for launcher, secret in (
        ("srun", {}),
        ("srun", SECRET),
        ("torchrun", {}),
        ("torchrun", SECRET),
    ):
        assert not lured(launcher, secret)
    # He would get who believes him.
    monkeypatch.setattr(
        FileRendezvous, "endpoints", lambda own: [Endpoint.parse(own._path.read_text())]
    )
    assert lured("srun", {}, 60)
