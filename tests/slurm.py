"""Two Slurm nodes on this host: munge, one controller and two node daemons in a temporary folder, on loopback.

`srun` finds them by `SLURM_CONF` alone, so nothing of a Slurm that the machine may have is touched.
"""

import contextlib
import getpass
import os
import secrets
import signal
import socket
import subprocess
from pathlib import Path

from .tools import find_tool, what_lacks
from .waiting import until

TOOLS = (
    "munged",
    "slurmctld",
    "slurmd",
    "salloc",
    "sbatch",
    "scancel",
    "scontrol",
    "sinfo",
    "srun",
)
NODES = ("n1", "n2")
CPUS = 4
BOOT_S, STOP_S = 30.0, 10.0
# Somebody may take a port between choosing and binding it, which Slurm's configuration file cannot avoid.
ATTEMPTS = 3


class SlurmFailed(RuntimeError):
    """The nodes did not come up; holds the last words of the daemons."""


class Slurm:
    """A running pair of nodes.

    Attributes:
        environ: what a process needs beside its own environment to find them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environ = {"SLURM_CONF": str(folder / "slurm.conf")}

    @property
    def environ(self) -> dict[str, str]:
        return dict(self._environ)

    def srun(self, *arguments: str, timeout: float = 60.0) -> "subprocess.CompletedProcess[str]":
        """Run `srun` to its end."""
        return self._run("srun", *arguments, timeout=timeout)

    def idle(self) -> bool:
        """Whether both nodes are up and do nothing."""
        shown = self._run("sinfo", "--noheader", "--Node", "--format=%t")
        return shown.stdout.split() == ["idle"] * len(NODES)

    def start(self) -> None:
        """Bring everything up; raises SlurmFailed with the daemons' last words."""
        if lacks := what_lacks(*TOOLS):
            raise SlurmFailed(lacks)
        self._folder.mkdir(parents=True, exist_ok=True)
        # Daemons of Slurm give up where others may write into the folders that lead to theirs.
        self._folder.chmod(0o755)
        socket_path = self._munge()
        self._configure(socket_path)
        self._daemon("slurmctld", "-D", "-i", "-f", self._environ["SLURM_CONF"])
        for node in NODES:
            (self._folder / f"spool-{node}").mkdir(exist_ok=True)
            self._daemon(
                "slurmd", "-D", "-N", node, "-f", self._environ["SLURM_CONF"], log=f"slurmd-{node}"
            )
        self._await(self.idle, "both nodes to be idle")

    def stop(self) -> None:
        """End every job and daemon; nothing is left running."""
        if len(self._daemons) > 1 and all(daemon.poll() is None for daemon in self._daemons):
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                self._run("scancel", "--signal=KILL", f"--user={getpass.getuser()}")
                self._run("scancel", f"--user={getpass.getuser()}")
                until(self.idle, STOP_S)
        for daemon in reversed(self._daemons):
            _end(daemon)
        self._daemons.clear()

    def _munge(self) -> Path:
        # The path of a Unix socket may have 107 bytes, which a test's temporary folder can exceed.
        home = self._folder / "munge"
        home.mkdir(mode=0o755)
        key, path = home / "key", home / "socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = {
            "socket": path,
            "key-file": key,
            "pid-file": home / "pid",
            "seed-file": home / "seed",
        }
        options = [f"--{name}={file}" for name, file in files.items()]
        self._daemon("munged", "--foreground", "--force", f"--log-file={home / 'log'}", *options)
        self._await(path.exists, "munged's socket")
        return path

    def _configure(self, munge: Path) -> None:
        host, folder = socket.gethostname().split(".")[0], self._folder
        control, *ports = _free_ports(1 + len(NODES))
        (folder / "state").mkdir(exist_ok=True)
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} State=UNKNOWN"
            for node, port in zip(NODES, ports, strict=True)
        ]
        text = f"""\
ClusterName=roofline
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
AuthInfo=socket={munge}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=2
PartitionName=test Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
        Path(self._environ["SLURM_CONF"]).write_text("\n".join([*nodes, text]), encoding="utf-8")

    def _daemon(self, tool: str, *arguments: str, log: str = "") -> None:
        with (self._folder / f"{log or tool}.out").open("wb") as output:
            # However the tests end, the daemons end with them.
            command = ["setpriv", "--pdeathsig", "TERM", _found(tool), *arguments]
            daemon = subprocess.Popen(
                command,
                env=os.environ | self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._daemons.append(daemon)

    def _run(
        self, tool: str, *arguments: str, timeout: float = 20.0
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [_found(tool), *arguments],
            env=os.environ | self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def _await(self, come, what: str) -> None:
        def ready_or_dead() -> bool:
            return any(daemon.poll() is not None for daemon in self._daemons) or come()

        arrived = until(ready_or_dead, BOOT_S)
        if not arrived or any(daemon.poll() is not None for daemon in self._daemons):
            raise SlurmFailed(f"waited for {what}; the daemons' last words:\n{self._words()}")

    def _words(self) -> str:
        logs = [
            path
            for pattern in ("*.out", "*.log", "munge/log")
            for path in sorted(self._folder.glob(pattern))
        ]
        tails = {path.name: path.read_text(errors="replace").splitlines()[-8:] for path in logs}
        return "\n".join(f"{name}: {line}" for name, lines in tails.items() for line in lines)


@contextlib.contextmanager
def two_nodes(folder: Path):
    """Two nodes for as long as the block runs.

    Args:
        folder: for configuration, state and logs; the path should be short, since a socket lies in it.
    """
    for attempt in range(1, ATTEMPTS + 1):
        slurm = Slurm(folder / str(attempt))
        try:
            slurm.start()
        except SlurmFailed:
            slurm.stop()
            if attempt == ATTEMPTS or not _found("munged"):
                raise
            continue
        except BaseException:
            slurm.stop()
            raise
        break
    try:
        yield slurm
    finally:
        slurm.stop()


def _found(tool: str) -> str:
    return find_tool(tool) or ""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    """End a daemon and what is left of its group, and reap it."""
    daemon.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        daemon.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait()
