"""The meeting of one launch's processes with rank 0. They use a file of this user, or a secret
that the user gave to all of them.

The key lets its owner run any code on the ranks, so it goes only where nobody but this user can read it: into a file
whose owner and mode are checked before it is used, or into a variable that the user sets for every process.
"""

import contextlib
import hashlib
import os
import re
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import BadInput, RanksFailed
from .channel import Channel, Endpoint, connect
from .identity import Identity
from .listener import Listener, is_loopback

# Seconds for all processes of a launch to meet.
MEET_S = 60.0
POLL_S = 0.1
# Seconds for one attempt to reach rank 0. The address in the file may be that of an earlier launch.
ATTEMPT_S = 2.0
# A secret that the user gives to every process of a launch whose nodes share no folder.
SECRET_VARIABLE = "ROOFLINE_ATTACH_KEY"
SHORTEST_SECRET = 16
# The number of ports after MASTER_PORT that rank 0 tries under torchrun, whose agent uses that port itself.
PORTS_BEHIND = 16
# Variables that name a launch, or else its job; the first that is set counts.
_LAUNCH_NAMES = (
    *("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "PALS_APID"),
    *("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"),
)
_MASTER_NAMES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


class FileRendezvous:
    """A file that only its owner reads, in a shared folder. Every node must see the folder."""

    def __init__(self, path: Path) -> None:
        """Let the processes meet by a file, into which rank 0 writes its address."""
        self._path = path
        self.where = (
            f"{path}, a folder that every node must share (or give all nodes a secret of at least {SHORTEST_SECRET} "
            f"characters in {SECRET_VARIABLE}, and MASTER_ADDR and MASTER_PORT)"
        )

    def listen(self, bind: str) -> Listener:
        """Listen as rank 0, and write the address into the file for the other ranks."""
        listener = Listener(bind)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Other ranks must not read half an address, so it is written beside the file, which is then replaced.
            # mkstemp gives mode 0600.
            descriptor, name = tempfile.mkstemp(
                dir=self._path.parent, prefix=f".{self._path.name}."
            )
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(listener.endpoint.text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except OSError as error:
            listener.close()
            raise RanksFailed(
                f"rank 0 cannot write {self._path}: {error.strerror}; the other ranks read this file"
            ) from None
        return listener

    def endpoints(self) -> list[Endpoint]:
        """Return rank 0's address from the file.

        This user must own the file, and nobody else may be able to read it. Otherwise, and without a file, the list is
        empty.
        """
        with contextlib.suppress(OSError):
            # Network file systems cache for long that a file is missing; reading its folder renews that.
            os.listdir(self._path.parent)  # noqa: PTH208 - the names are not wanted
            with self._path.open(encoding="utf-8") as file:
                status = os.fstat(file.fileno())
                if status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0:
                    return [Endpoint.parse(file.read())]
        return []

    def close(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._path.unlink()


class SecretRendezvous:
    """A port of MASTER_ADDR, guarded by a secret of the launch."""

    def __init__(self, host: str, ports: range, key: bytes) -> None:
        """Let the processes meet at a port of rank 0's host.

        It is one of some, by a key made from the user's secret.
        """
        self._host, self._ports, self._key = host, ports, key
        first_port, last_port = ports[0], ports[-1]
        ports_text = f"{first_port} to {last_port}" if len(ports) > 1 else f"{first_port}"
        self.where = f"the secret in {SECRET_VARIABLE} at MASTER_ADDR={host}, port {ports_text}"

    def listen(self, bind: str) -> Listener:  # noqa: ARG002 - the others come by MASTER_ADDR
        """Listen as rank 0, on the first port that is free.

        The address is MASTER_ADDR's own, so `bind` is not used.
        """
        reason = ""
        for port in self._ports:
            try:
                return Listener("127.0.0.1" if _leads_here(self._host) else "", port, self._key)
            except RanksFailed as error:
                # The remedy behind the semicolon does not fit here.
                reason, _, _ = str(error).partition(";")
        raise RanksFailed(
            f"rank 0 {reason} (MASTER_PORT); expected a free port on {socket.gethostname()}. Choose another port"
        )

    def endpoints(self) -> list[Endpoint]:
        """Return an endpoint for every port that rank 0 may have taken."""
        return [Endpoint((self._host,), port, self._key) for port in self._ports]

    def close(self) -> None:
        """Do nothing, since no file was written."""


Rendezvous = FileRendezvous | SecretRendezvous


def rendezvous_of(identity: Identity, environ: Mapping[str, str], folder: Path) -> Rendezvous:
    """Return the meeting place of a launch's processes.

    It is a port that a secret guards, if the user gave one, else a file in the folder.

    Raises:
        BadInput: the secret is too short, or the address of rank 0 is missing or wrong.
    """
    host, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    secret = environ.get(SECRET_VARIABLE, "")
    if secret and len(secret) < SHORTEST_SECRET:
        raise BadInput(
            f"{SECRET_VARIABLE} has {len(secret)} characters; expected at least {SHORTEST_SECRET}, "
            "the same for every process. Make a secret with `openssl rand -hex 16`"
        )
    if host and port:
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise BadInput(f"MASTER_PORT={port!r}; expected a port from 1 to 65535")
        if secret:
            key = hashlib.sha256(f"{secret}\n{_master(environ)}".encode()).digest()
            return SecretRendezvous(host, _ports(int(port), environ), key)
    elif identity.launcher in ("torchrun", "env"):
        missing = " and ".join(
            name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name)
        )
        raise BadInput(
            f"RANK={identity.rank} and WORLD_SIZE={identity.size} are set, but not {missing}; "
            "set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port of this host, or unset RANK and WORLD_SIZE"
        )
    name = f"{identity.launcher}-{_launch_name(identity, environ)}"
    return FileRendezvous(folder / "attach" / name)


def meet(identity: Identity, rendezvous: Rendezvous, timeout: float = MEET_S) -> Channel:
    """Return a channel to rank 0, as soon as it can be reached.

    The address of an earlier launch of the same name may be in the file; it is tried in vain.

    Raises:
        RanksFailed: rank 0 was not reached within `timeout` seconds.
    """
    until_s, reason = time.monotonic() + timeout, "rank 0 wrote no address"
    while (remaining_s := until_s - time.monotonic()) > 0:
        try:
            endpoints = rendezvous.endpoints()
        except ValueError as error:
            endpoints, reason = [], f"the file of rank 0 cannot be read: {error}"
        # Of several ports, each is tried once at a time, since rank 0 listens on only one of them.
        attempt_s = 0.0 if len(endpoints) > 1 else min(ATTEMPT_S, remaining_s)
        for endpoint in endpoints:
            try:
                return connect(endpoint, attempt_s)
            except ConnectionError as error:
                reason = f"the address of rank 0 cannot be reached: {error}"
        time.sleep(POLL_S)
    raise RanksFailed(
        f"rank {identity.rank} of {identity.size} on {socket.gethostname()} did not find rank 0 within {timeout:g} s "
        f"by {rendezvous.where}: {reason}. Expected every process of this launch ({identity.launcher}) to run the same "
        "pytest"
    )


def _ports(port: int, environ: Mapping[str, str]) -> range:
    """Return the ports that rank 0 may listen on.

    It is MASTER_PORT itself, or those after it where torchrun's agent uses that port.
    """
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return range(port, port + 1)
    first = min(port, 65535 - PORTS_BEHIND) + 1
    return range(first, first + PORTS_BEHIND)


def _master(environ: Mapping[str, str]) -> str:
    """Return the variables of a launch's master as one text."""
    return "-".join(environ[name] for name in _MASTER_NAMES if environ.get(name))


def _leads_here(address: str) -> bool:
    """Return whether an address or name means this host."""
    return address == "localhost" or is_loopback(address)


def _launch_name(identity: Identity, environ: Mapping[str, str]) -> str:
    """Return a name that all processes of one launch share. Other launches have other names."""
    master = _master(environ)
    if _leads_here(environ.get("MASTER_ADDR", "")):
        # Another host that shares the folder may have a launch with the same loopback address and port.
        master = f"{socket.gethostname()}-{master}"
    if identity.launcher == "srun":
        name = f"{environ['SLURM_JOB_ID']}-{environ['SLURM_STEP_ID']}"
    elif identity.launcher in ("torchrun", "env"):
        name = master
    else:
        job_name = next(
            (environ[variable] for variable in _LAUNCH_NAMES if environ.get(variable)), master
        )
        if not job_name and identity.local_size != identity.size:
            raise BadInput(
                f"this mpirun gives no job name to rank {identity.rank} of {identity.size}; "
                "set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port of this host"
            )
        # On one node, MPICH's ranks have the same parent.
        name = job_name or f"{socket.gethostname()}-{os.getppid()}"
    return re.sub(r"[^\w.@-]", "_", name)
