"""Ranks past one node: torchrun, mpirun or srun as a child process. Its output goes into a file."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ..core.errors import BadInput, RanksFailed
from ..processes.system import (
    FATE_S,
    REAP_S,
    descendants,
    ending,
    kill_each,
    last_words,
    loopback,
    owned_prefix,
    text_of,
)
from .command_lines import Launch, mpi_family, mpi_plugin, mpirun, srun, torchrun
from .identity import identify, without_launch
from .listener import own_addresses, store_server

# Seconds for a launcher to clean up after SIGTERM. Its ranks have ended before, since their controller hung up. A
# failure report waits for the launcher.
TERMINATE_S = 1.0
# Seconds for a launcher to print its version.
PROBE_S = 20.0
# The label before a line that a rank prints, as torchrun, Open MPI, MPICH and srun are asked to write it.
_LABEL = re.compile(r"\[default(\d+)\]:|\[(?:[^\s\[\],]+,)?(\d+)\](?:<std(?:out|err)>:| )|(\d+): ?")

NOT_FOUND = {
    "mpirun": "install Open MPI (Debian: openmpi-bin) or MPICH, or load its environment module",
    "srun": "run on a node of a Slurm cluster (Debian: slurm-client), or choose another launcher",
}


class LauncherPlacement:
    """Ranks under `torchrun`, `mpirun` or `srun`.

    Args:
        name: of the launcher.
        arguments: the user's own, for the launcher.
        mpi: whether the ranks use MPI themselves.
        address: of this node, which ranks connect to; empty for any.
    """

    def __init__(
        self, name: str, arguments: tuple[str, ...] = (), *, mpi: bool = False, address: str = ""
    ) -> None:
        """Prepare to start ranks by a launcher; `start` runs it.

        `address` is that of this node, which the ranks connect to; empty for any. `mpi` is whether the ranks use MPI.
        """
        self.name = name
        # The ranks of a launch on one node need no address that other nodes can reach.
        is_on_one_node = name == "torchrun" and Launch(1, environ=os.environ).node_count == 1
        self.bind = address or ("127.0.0.1" if is_on_one_node else "")
        self._arguments = arguments
        self._mpi = mpi
        # The launcher's temporary folder and process, while it runs.
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
        # The store where torchrun's agents on several nodes meet.
        self._store: Any = None

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start the launcher, which starts `size` ranks with these variables."""
        if self.bind == "127.0.0.1":
            variables = variables | loopback()
        is_in_launch = identify(os.environ) is not None
        environ = (without_launch(os.environ) if is_in_launch else dict(os.environ)) | variables
        self._folder = tempfile.mkdtemp(prefix=owned_prefix("launch"))
        try:
            command = self._command(
                Launch(size, self._arguments, tuple(variables), environ, self._folder)
            )
            if shutil.which(command[0]) is None:
                raise _missing_command(command[0])
            self._run(command, environ)
        except BaseException:
            self._forget()
            raise

    def _run(self, command: list[str], environ: dict[str, str]) -> None:
        """Start the launcher's process, with its output in a file."""
        try:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise RanksFailed(f"{self.name} could not be started: {error}") from None

    def trouble(self) -> str:
        """Return why ranks will not come: the launcher has ended.

        The last lines of its output follow. It is empty while the launcher runs.
        """
        if self._process is None or self._process.poll() is None:
            return ""
        end = f"{self.name} has ended: {ending(self._process.returncode)}"
        return f"{end}\n{last_words(text_of(self._output))}".rstrip()

    def fate(self, rank: int) -> str:  # noqa: ARG002 - the seam's signature
        """Return an empty text, since no launcher tells how a rank ended.

        Wait a moment for the end of the launcher first, so that `tail` has its last lines.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(FATE_S)
        return ""

    def stacks_of(self, rank: int, descriptor: int) -> str:  # noqa: ARG002 - the seam's signature
        """Return an empty text, since a launcher cannot signal a single rank."""
        return ""

    def tail(self, rank: int) -> str:
        """Return the last words of a rank and of its launcher.

        Where the lines of ranks cannot be told apart, they are of all ranks.
        """
        text = text_of(self._output)
        matches = [(_LABEL.match(line), line) for line in text.splitlines()]
        # On several nodes, torchrun labels lines by the number on the node, which does not tell the rank.
        has_local_labels = self._store is not None
        # The pattern has a group for each way to write a label. The only one that matched is the number.
        labelled_lines = [
            (int(match[match.lastindex or 0]), line[match.end() :])
            for match, line in matches
            if match
        ]
        rank_lines = [line for number, line in labelled_lines if has_local_labels or number == rank]
        if not rank_lines:
            return last_words(text)
        launcher_lines = [line for match, line in matches if not match]
        return "\n".join(
            filter(None, (last_words("\n".join(rank_lines)), last_words("\n".join(launcher_lines))))
        )

    def kill(self) -> None:
        """End the launcher, and with it all that it started. Ranks also end when their controller
        hangs up.
        """
        process = self._process
        if process is None:
            return
        # Listed before and after SIGTERM: meanwhile a process may lose its parent, or start others.
        started_processes = descendants(process.pid)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERMINATE_S)
        started_processes |= descendants(process.pid)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        kill_each(started_processes)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAP_S)
        self._forget()

    def wait(self, seconds: float) -> bool:
        """Return whether the launcher ends by itself within so many seconds."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
        self._forget()
        return True

    @property
    def _output(self) -> Path:
        return Path(self._folder) / "output"

    def _command(self, launch: "Launch") -> list[str]:
        """Return the command line of this launcher."""
        if self.name != "torchrun":
            return command_of_launch(self.name, launch, mpi=self._mpi)
        is_on_one_node = min(launch.node_count, launch.size) == 1
        if is_on_one_node:
            return torchrun(launch)
        # The agents of several nodes meet at a store, under a name that no other launch has.
        return torchrun(launch, self._endpoint(), run_id=secrets.token_hex(8))

    def _endpoint(self) -> str:
        """Return the address of a store where torchrun's agents on all nodes meet."""
        self._store = self._store or store_server(self.bind)
        host = own_addresses(self.bind)[0]
        # An IPv6 address has colons itself, so it needs brackets.
        return f"[{host}]:{self._store.port}" if ":" in host else f"{host}:{self._store.port}"

    def _forget(self) -> None:
        """Drop the launcher that has ended, its store and its folder."""
        self._process = None
        self._store = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def command_of_launch(name: str, launch: Launch, *, mpi: bool) -> list[str]:
    """Return the command by which `mpirun` or `srun` starts ranks, which may use MPI.

    Raises:
        BadInput: the launcher is not in PATH, or not known.
    """
    if name == "srun":
        return srun(launch, mpi_plugin(_probe("srun", "--mpi=list")) if mpi else "none")
    return mpirun(launch, mpi_family(_probe("mpirun", "--version")))


def _probe(command: str, option: str) -> str:
    """Return what a launcher prints about itself.

    It is called with an option such as `--version`.
    """
    if shutil.which(command) is None:
        raise _missing_command(command)
    try:
        process = subprocess.run(
            [command, option],
            env=without_launch(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"`{command} {option}`: {error}; expected an answer") from None
    if process.returncode:
        raise BadInput(
            f"`{command} {option}` ended with {process.returncode}: {last_words(process.stderr or process.stdout)}"
        )
    return process.stdout + process.stderr


def _missing_command(command: str) -> BadInput:
    return BadInput(f"`{command}` is not in PATH; {NOT_FOUND[command]}")
