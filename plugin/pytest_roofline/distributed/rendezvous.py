"""How the processes of one launch find rank 0: where it posts its address, and the others meet it.

Whoever knows the key has the ranks run what he likes, so it travels only where nobody but this user reads: in a file of
his, which is looked at before it is believed, or in a variable that he set for every process himself.
"""

import contextlib
import hashlib
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from ..core.errors import BadInput, RanksFailed
from .channel import Channel, connect
from .identity import Identity
from .interfaces import is_loopback

MEET_S = 60.0
POLL_S = 0.1
# One attempt to reach a rank 0 that was posted; what is posted may be left from a launch that is gone.
ATTEMPT_S = 2.0
_STORE_KEY = "roofline/rank0"
# A secret that the user gives to every process of a launch whose nodes share no folder.
SECRET_VARIABLE = "ROOFLINE_ATTACH_KEY"
SHORTEST_SECRET = 16
# What names a launch, by who starts it: the first that is set.
_LAUNCH_NAMES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "PALS_APID")
_JOB_NAMES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where to meet a controller.

    Args:
        addresses: of its host, to try in turn.
        port: that it listens on.
        key: that proves both sides.
    """

    addresses: tuple[str, ...]
    port: int
    key: bytes

    @property
    def text(self) -> str:
        """For a board."""
        return json.dumps({"addresses": self.addresses, "port": self.port, "key": self.key.hex()})

    @classmethod
    def parse(cls, text: str) -> "Meeting":
        """What `text` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            plain = json.loads(text)
            return cls(tuple(map(str, plain["addresses"])), int(plain["port"]), bytes.fromhex(plain["key"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no meeting: {error!r}") from None


class Board(Protocol):
    """A place that every process of a launch can read, and rank 0 can write."""

    where: str
    """For messages."""
    key: bytes
    """What both sides knew before; empty where the key is posted with the address."""

    def post(self, text: str) -> None:
        """Let everyone read `text` instead of what stood there."""

    def read(self, seconds: float) -> str | None:
        """What stands there; None where nothing did within so many seconds."""

    def close(self) -> None:
        """Take down what was posted."""


class StoreBoard:
    """A torch `TCPStore`: the one that torchrun's agent keeps, or one that rank 0 hosts for as long as it posts.

    It asks nobody who he is, and whoever opens it first owns it: no key is posted there, and nothing in it believed.

    Args:
        key: that every process of the launch knows.
        host: MASTER_ADDR.
        port: MASTER_PORT.
        hosted: whether rank 0 must open the store, since nobody else has.
        launch: tells restarts of the same launch apart.
        timeout: seconds in which the agent's store must answer rank 0.
    """

    def __init__(
        self, host: str, port: int, key: bytes, *, hosted: bool, launch: str = "0", timeout: float = MEET_S
    ) -> None:
        self.key = key
        self._timeout = timeout
        self._host, self._port, self._hosted = host, port, hosted
        self._name = f"{_STORE_KEY}/{launch}"
        self._store: Any = None
        self.where = f"the store at MASTER_ADDR={host}, MASTER_PORT={port}"

    def post(self, text: str) -> None:
        """Let everyone read `text`.

        Raises:
            RanksFailed: the port is taken, or the agent's store does not answer.
        """
        self._store = self._host_store() if self._hosted else self._client(self._timeout)
        if self._store is None:
            raise RanksFailed(f"{self.where} does not answer; expected torchrun's agent to keep it")
        self._store.set(self._name, text)

    def read(self, seconds: float) -> str | None:
        """What stands there; None where nothing did within so many seconds."""
        until_s = time.monotonic() + seconds
        # A client that is kept would hold on to a store which is gone, and not see the next one on its port.
        store = self._client(seconds)
        if store is None:
            return None
        with contextlib.suppress(RuntimeError):
            store.wait([self._name], timedelta(seconds=max(0.01, until_s - time.monotonic())))
            return str(store.get(self._name).decode())
        return None

    def close(self) -> None:
        """Take down what was posted; a hosted store gives its port back."""
        if self._store is not None and not self._hosted:
            with contextlib.suppress(RuntimeError):
                self._store.delete_key(self._name)
        self._store = None

    def _host_store(self) -> Any:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        try:
            server = socket.create_server(("", self._port), backlog=512)
        except OSError as error:
            raise RanksFailed(
                f"rank 0 cannot listen on MASTER_PORT={self._port}: {error.strerror}; expected a port that is free on "
                f"{socket.gethostname()}, so choose another"
            ) from None
        # The store takes the socket over, and closes it at its end.
        return TCPStore("127.0.0.1", self._port, None, True, wait_for_workers=False, master_listen_fd=server.detach())

    def _client(self, seconds: float) -> Any:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        until_s = time.monotonic() + seconds
        # torch warns of every attempt that fails, so it is asked only where somebody answers.
        while not _answers(self._host, self._port):
            if time.monotonic() > until_s:
                return None
            time.sleep(POLL_S)
        with contextlib.suppress(RuntimeError):
            left_s = max(1.0, until_s - time.monotonic())
            return TCPStore(self._host, self._port, None, False, timedelta(seconds=left_s), wait_for_workers=False)
        return None


class FileBoard:
    """A file that only its owner can read, in a folder that every node sees.

    Args:
        path: of the file.
    """

    key = b""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = (
            f"{path}, which every node must see (else give all of them one secret of {SHORTEST_SECRET} characters or "
            f"more in {SECRET_VARIABLE}, and MASTER_ADDR and MASTER_PORT)"
        )

    def post(self, text: str) -> None:
        """Let everyone read `text`, at once and as a whole.

        Raises:
            RanksFailed: the file cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # mkstemp gives mode 0600.
            descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except OSError as error:
            raise RanksFailed(
                f"rank 0 cannot write {self._path}: {error.strerror}; the other ranks look there"
            ) from None

    def read(self, seconds: float) -> str | None:
        """What stands there; None where nothing did within so many seconds."""
        until_s = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                # Network file systems remember for long that a file is missing, unless its folder is looked at.
                os.listdir(self._path.parent)  # noqa: PTH208 - the names are not wanted
                with self._path.open(encoding="utf-8") as file:
                    # Whoever else could write or read it would have these processes run what they like.
                    status = os.fstat(file.fileno())
                    if status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0:
                        return file.read()
            if time.monotonic() > until_s:
                return None
            time.sleep(POLL_S)

    def close(self) -> None:
        """Take it down."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def board_of(identity: Identity, environ: Mapping[str, str], folder: Path, timeout: float = MEET_S) -> Board:
    """Where the processes of a launch meet.

    Args:
        identity: of this process.
        environ: as its launcher left it.
        folder: of the runs; on a file system that every node sees, where there are several.
        timeout: seconds in which the store of torchrun's agent must answer.

    Raises:
        BadInput: the launcher gives nothing to meet by, or the secret is too short to be one.
    """
    host, port, secret = (environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", SECRET_VARIABLE))
    if secret and len(secret) < SHORTEST_SECRET:
        raise BadInput(
            f"{SECRET_VARIABLE} has {len(secret)} characters; expected at least {SHORTEST_SECRET}, as of "
            "`openssl rand -hex 16`, the same for every process of the launch"
        )
    if host and port:
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise BadInput(f"MASTER_PORT={port!r}; expected a port from 1 to 65535")
        if secret:
            hosted = environ.get("TORCHELASTIC_USE_AGENT_STORE", "False") != "True"
            launch = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            key = hashlib.sha256(secret.encode()).digest()
            return StoreBoard(host, int(port), key, hosted=hosted, launch=launch, timeout=timeout)
    elif identity.launcher in ("torchrun", "env"):
        missing = " and ".join(name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name))
        raise BadInput(
            f"RANK={identity.rank} and WORLD_SIZE={identity.size} are set, but not {missing}; "
            "set them to rank 0's host and a free port there, or unset RANK and WORLD_SIZE"
        )
    return FileBoard(folder / "attach" / f"{identity.launcher}-{_launch(identity, environ)}")


def meet(identity: Identity, board: Board, timeout: float = MEET_S) -> Channel:
    """Connect to the rank 0 that has posted, past what an earlier launch of the same name may have left.

    Args:
        identity: of this process.
        board: of the launch.
        timeout: seconds.

    Raises:
        RanksFailed: it was not met in time; the text says how far it came.
    """
    until_s, why = time.monotonic() + timeout, "nothing was posted there"
    while (left_s := until_s - time.monotonic()) > 0:
        text = board.read(left_s)
        if text is None:
            break
        try:
            meeting = Meeting.parse(text)
            return connect(meeting.addresses, meeting.port, board.key or meeting.key, min(ATTEMPT_S, left_s))
        except ValueError as error:
            why = f"what was posted there cannot be read: {error}"
        except ConnectionError as error:
            why = f"what was posted there leads nowhere: {error}"
        time.sleep(POLL_S)
    raise RanksFailed(
        f"rank {identity.rank} of {identity.size} on {socket.gethostname()} did not meet rank 0 within {timeout:g} s "
        f"by {board.where}: {why}. Expected every process of this launch ({identity.launcher}) to run the same pytest"
    )


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=ATTEMPT_S):
        return True
    return False


def _launch(identity: Identity, environ: Mapping[str, str]) -> str:
    """A name that the processes of one launch share, and other launches do not."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    master = "-".join(environ[known] for known in names if environ.get(known))
    if (address := environ.get("MASTER_ADDR", "")) == "localhost" or is_loopback(address):
        # Another host that shares the folder may have a launch at that port of its own.
        master = f"{socket.gethostname()}-{master}"
    if identity.launcher == "srun":
        name = f"{environ['SLURM_JOB_ID']}-{environ['SLURM_STEP_ID']}"
    elif identity.launcher in ("torchrun", "env"):
        name = master
    else:
        found = [environ[known] for known in (*_LAUNCH_NAMES, *_JOB_NAMES) if environ.get(known)]
        if not found and master:
            found = [master]
        if not found and identity.local_size != identity.size:
            raise BadInput(
                f"this mpirun names no job that rank {identity.rank} of {identity.size} could know its own by; "
                "set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port there"
            )
        # On one node, MPICH's ranks have the same parent.
        name = found[0] if found else f"{socket.gethostname()}-{os.getppid()}"
    return re.sub(r"[^\w.@-]", "_", name)
