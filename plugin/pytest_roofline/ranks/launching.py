"""Ranks past one node: torchrun, mpirun or srun as a child process. Its output goes into a file."""

import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

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
from .identity import identify, without_launch
from .listener import own_addresses, store_server
from .placement import MODULE

# Seconds for a launcher to clean up after SIGTERM. Its ranks have ended before, since their controller hung up. A
# failure report waits for the launcher.
TERMINATE_S = 1.0
# Seconds for a launcher to print its version.
PROBE_S = 20.0
# The label before a line that a rank prints, as torchrun, Open MPI, MPICH and srun are asked to write it.
_LABEL = re.compile(r"\[default(\d+)\]:|\[(?:[^\s\[\],]+,)?(\d+)\](?:<std(?:out|err)>:| )|(\d+): ?")
MpiFamily = Literal["openmpi", "mpich", "intel"]

NOT_FOUND = {
    "mpirun": "install Open MPI (Debian: openmpi-bin) or MPICH, or load its environment module",
    "srun": "run on a node of a Slurm cluster (Debian: slurm-client), or choose another launcher",
}
_RANK = (sys.executable, "-m", MODULE)
# The number of ranks comes from the tests' worlds, never from these arguments.
_COUNTS = {
    "torchrun": ("--nproc-per-node", "--nproc_per_node", "--nnodes", "--standalone"),
    "mpirun": ("-n", "-np", "--n", "--np", "-c"),
    "srun": ("-n", "--ntasks"),
}
# Variables that every rank gets. Users who set them for a run expect that, also of launchers that forward none.
_FORWARDED = re.compile(
    r"(PATH|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX"
    r"|(CUDA|FI|GLOO|HIP|HSA|MKL|NCCL|NVIDIA|OMP|PYTORCH|RCCL|ROCR|ROOFLINE|TORCH|TRITON|UCC|UCX)_.*)"
)


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
        self.name = name
        # The ranks of a launch on one node need no address that other nodes can reach.
        is_on_one_node = name == "torchrun" and Launch(1, environ=os.environ).node_count == 1
        self.bind = address or ("127.0.0.1" if is_on_one_node else "")
        self._arguments = arguments
        self._mpi = mpi
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
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
        # The one group of the pattern that matched is the number.
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
        if self.name == "mpirun":
            return mpirun(launch, mpi_family(_probe("mpirun", "--version")))
        if self.name == "srun":
            return srun(launch, mpi_plugin(_probe("srun", "--mpi=list")) if self._mpi else "none")
        if min(launch.node_count, launch.size) == 1:
            return torchrun(launch)
        return torchrun(launch, self._endpoint(), secrets.token_hex(8))

    def _endpoint(self) -> str:
        """Return the address of a store where torchrun's agents on all nodes meet."""
        self._store = self._store or store_server(self.bind)
        host = own_addresses(self.bind)[0]
        return f"[{host}]:{self._store.port}" if ":" in host else f"{host}:{self._store.port}"

    def _forget(self) -> None:
        """Drop the launcher that has ended, its store and its folder."""
        self._process = None
        self._store = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _probe(command: str, option: str) -> str:
    """Return what a launcher prints about itself."""
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


# Command lines of the launchers.


@dataclass(frozen=True, slots=True)
class Launch:
    """The ranks to start, and all that a launcher needs for it.

    Args:
        size: the number of ranks.
        arguments: the user's own, for the launcher.
        exported: names of variables that every rank must get; their values are in the launcher's environment.
        environ: the variables of the launcher.
        folder: for the log files of the launcher.
    """

    size: int
    arguments: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    @property
    def forwarded(self) -> list[str]:
        """Return the names of the variables to hand on to ranks.

        These are the exported ones, and the user's that can influence a measurement.
        """
        user_names = [name for name in self.environ if _FORWARDED.fullmatch(name)]
        return list(dict.fromkeys([*self.exported, *sorted(user_names)]))

    @property
    def node_count(self) -> int:
        """Return the number of nodes of pytest's Slurm allocation, else 1."""
        text = self.environ.get("SLURM_JOB_NUM_NODES", "1")
        return int(text) if text.isdecimal() else 1


def parse_arguments(name: str, text: str) -> tuple[str, ...]:
    """Return the user's arguments for a launcher.

    Raises:
        BadInput: the text is no shell words, or sets the number of ranks or nodes.
    """
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(
            f"launcher arguments {text!r}: {error}; expected arguments quoted as in a shell"
        ) from None
    for argument in arguments:
        if argument.split("=")[0] in _COUNTS[name]:
            raise BadInput(
                f"launcher arguments {text!r} have {argument}. Leave {argument} out: tests set the number "
                "of ranks (world_size, or the marker ranks=N), and Slurm sets the nodes. "
                "Without Slurm, start `torchrun --nnodes=… -m pytest …` on every node"
            )
    return arguments


def mpi_family(version: str) -> MpiFamily:
    """Return the family that an mpirun belongs to."""
    # Intel MPI is built on Hydra too, so its own name is looked for first.
    marks: tuple[tuple[str, MpiFamily], ...] = (
        (r"Open MPI|Open RTE|OpenRTE|PRRTE|Spectrum MPI", "openmpi"),
        (r"Intel\(R\) MPI", "intel"),
        (r"HYDRA|MPICH|MVAPICH", "mpich"),
    )
    for mark, family in marks:
        if re.search(mark, version, re.IGNORECASE):
            return family
    first = version.strip().partition("\n")[0]
    raise BadInput(
        f"`mpirun --version` says {first!r}; expected Open MPI, MPICH, MVAPICH or Intel MPI"
    )


def mpi_plugin(listing: str) -> str:
    """Return Slurm's plugin by which MPI ranks find each other."""
    names = re.findall(r"\bpmix(?:_v\d+)?\b", listing)
    if not names:
        plugins = ", ".join(re.findall(r"^\s+(\w+)\s*$", listing, re.MULTILINE)) or "none"
        raise BadInput(
            f"`srun --mpi=list` names {plugins}; expected pmix. For MPI, pass --roofline-launcher=mpirun"
        )
    return "pmix" if "pmix" in names else names[-1]


def torchrun(launch: Launch, endpoint: str = "", run_id: str = "") -> list[str]:
    """Return torchrun's command. In a Slurm allocation of several nodes it runs once on each of
    them, otherwise on this node.

    Args:
        launch: the ranks to start.
        endpoint: the address of the store where agents of several nodes meet.
        run_id: a name that these agents share.
    """
    node_count = min(launch.node_count, launch.size)
    if launch.size % node_count:
        raise BadInput(
            f"torchrun starts equally many ranks on each node, but the test needs {launch.size} ranks on {node_count} "
            f"nodes; expected a multiple of {node_count}. Otherwise pass --roofline-launcher=srun"
        )
    agent = [
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nproc-per-node={launch.size // node_count}",
        *("--max-restarts=0", "--tee=3"),
        f"--log-dir={launch.folder}",
    ]
    if node_count == 1:
        return [*agent, "--standalone", *launch.arguments, *_RANK[1:]]
    return [
        *("srun", f"--nodes={node_count}", f"--ntasks={node_count}", "--ntasks-per-node=1"),
        *_step_options(launch, "none"),
        *agent,
        f"--nnodes={node_count}",
        *(f"--rdzv-endpoint={endpoint}", "--rdzv-backend=c10d", f"--rdzv-id={run_id}"),
        "--rdzv-conf=is_host=0",
        *launch.arguments,
        *_RANK[1:],
    ]


def mpirun(launch: Launch, family: MpiFamily) -> list[str]:
    """Return mpirun's command.

    Ranks are not bound to cores, since a launcher's binding would influence their times.
    """
    if family == "openmpi":
        defaults = [("--bind-to", "none"), ("--oversubscribe", ""), ("--tag-output", "")]
        if os.geteuid() == 0:
            defaults.append(("--allow-run-as-root", ""))
        # mpirun refuses a variable that is passed twice, so those that the user passes are left out.
        user_names = {
            setting.split("=")[0]
            for option, setting in pairwise(launch.arguments)
            if option == "-x"
        }
        variables = [
            word for name in launch.forwarded if name not in user_names for word in ("-x", name)
        ]
    else:
        # With `-genvall`, Hydra hands on the whole environment.
        defaults = [("-bind-to", "none"), ("-prepend-rank", ""), ("-genvall", "")]
        if family == "intel":
            defaults[0] = ("-genv", "I_MPI_PIN=0")
        variables = []
    return [
        *("mpirun", "-n", str(launch.size)),
        *_without_users_options(defaults, launch.arguments),
        *variables,
        *launch.arguments,
        *_RANK,
    ]


def srun(launch: Launch, plugin: str = "none") -> list[str]:
    """Return srun's command, with Slurm's plugin for MPI."""
    return [
        *("srun", f"--ntasks={launch.size}", "--label"),
        *_step_options(launch, plugin),
        *launch.arguments,
        *_RANK,
    ]


def _step_options(launch: Launch, plugin: str) -> list[str]:
    """Return the options of `srun` that every step gets, unless the user sets them."""
    defaults = [
        ("--kill-on-bad-exit", "1"),
        ("--cpu-bind", "none"),
        ("--mpi", plugin),
        ("--export", "ALL"),
    ]
    options = _without_users_options(defaults, launch.arguments, joined=True)
    # The step that pytest itself runs in holds the resources; without `--overlap` a new step would wait for ever.
    return [*options, "--overlap"] if "SLURM_STEP_ID" in launch.environ else options


def _without_users_options(
    defaults: Sequence[tuple[str, str]], arguments: Sequence[str], joined: bool = False
) -> list[str]:
    """Return options without those that the user sets.

    Launchers refuse an option that is set twice. With `joined`, an option and its setting are one
    word, with `=` between them.
    """
    names = {
        argument.split("=")[0].lstrip("-") for argument in arguments if argument.startswith("-")
    }
    remaining = [(name, setting) for name, setting in defaults if name.lstrip("-") not in names]
    if joined:
        return [f"{name}={setting}" for name, setting in remaining]
    return [word for option in remaining for word in option if word]
