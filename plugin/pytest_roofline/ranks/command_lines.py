"""The command lines of launchers: torchrun, mpirun and srun."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from ..core.errors import BadInput
from .placement import MODULE

# The process of a rank.
_RANK = (sys.executable, "-m", MODULE)
MpiFamily = Literal["openmpi", "mpich", "intel"]
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


@dataclass(frozen=True, slots=True)
class Launch:
    """The ranks to start, and all that a launcher needs for it.

    Args:
        size: the number of ranks.
        arguments: the user's own, for the launcher.
        exported: names of variables that every rank must get; their values are in the launcher's environment.
        environ: the variables of the launcher.
        folder: for the log files of the launcher.
        program: what each rank runs; a worker of this package where it is empty.
    """

    size: int
    arguments: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    program: tuple[str, ...] = ()

    @property
    def is_labelled(self) -> bool:
        """The form of the output: True where the lines of each rank begin with its number.

        The figures of a program would not be read behind it.
        """
        return not self.program

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
    """Return the family that an mpirun belongs to; `version` is the answer to `mpirun --version`."""
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
    """Return Slurm's plugin by which MPI ranks find each other.

    `listing` is the answer to `srun --mpi=list`, which may name several versions of pmix.
    """
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
    # torchrun starts the interpreter itself, so the command of a rank stands without it.
    _, *rank_words = _RANK
    if node_count == 1:
        return [*agent, "--standalone", *launch.arguments, *rank_words]
    return [
        *("srun", f"--nodes={node_count}", f"--ntasks={node_count}", "--ntasks-per-node=1"),
        *_step_options(launch, "none"),
        *agent,
        f"--nnodes={node_count}",
        *(f"--rdzv-endpoint={endpoint}", "--rdzv-backend=c10d", f"--rdzv-id={run_id}"),
        # The store is in pytest's own process, so that no agent starts one.
        "--rdzv-conf=is_host=0",
        *launch.arguments,
        *rank_words,
    ]


def mpirun(launch: Launch, family: MpiFamily) -> list[str]:
    """Return mpirun's command.

    Ranks are not bound to cores, since a launcher's binding would influence their times.
    """
    if family == "openmpi":
        defaults, variables = _openmpi_defaults(launch), _openmpi_variables(launch)
    else:
        # With `-genvall`, Hydra hands on the whole environment, so no variable is named.
        binding = ("-genv", "I_MPI_PIN=0") if family == "intel" else ("-bind-to", "none")
        labels = [("-prepend-rank", "")] if launch.is_labelled else []
        defaults, variables = [binding, *labels, ("-genvall", "")], []
    return [
        *("mpirun", "-n", str(launch.size)),
        *_without_users_options(defaults, launch.arguments),
        *variables,
        *launch.arguments,
        *(launch.program or _RANK),
    ]


def _openmpi_defaults(launch: Launch) -> list[tuple[str, str]]:
    """Return our options for Open MPI, each with its setting; empty without one."""
    defaults = [("--bind-to", "none"), ("--oversubscribe", "")]
    if launch.is_labelled:
        defaults.append(("--tag-output", ""))
    if os.geteuid() == 0:
        defaults.append(("--allow-run-as-root", ""))
    return defaults


def _openmpi_variables(launch: Launch) -> list[str]:
    """Return the words by which Open MPI hands variables on to ranks.

    mpirun refuses a variable that is passed twice, so those that the user passes are left out.
    """
    user_names = {
        setting.split("=")[0] for option, setting in pairwise(launch.arguments) if option == "-x"
    }
    names = [name for name in launch.forwarded if name not in user_names]
    return [word for name in names for word in ("-x", name)]


def srun(launch: Launch, plugin: str = "none") -> list[str]:
    """Return srun's command, with Slurm's plugin for MPI."""
    return [
        *("srun", f"--ntasks={launch.size}"),
        *(["--label"] if launch.is_labelled else []),
        *_step_options(launch, plugin),
        *launch.arguments,
        *(launch.program or _RANK),
    ]


def _step_options(launch: Launch, plugin: str) -> list[str]:
    """Return the options that every call of `srun` gets.

    Such a call is a step of Slurm's job. Those that the user sets are left out. `plugin` is the one by which MPI ranks
    find each other; `none` without MPI.
    """
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
    """Return the words of our default options without those that the user sets.

    Launchers refuse an option that is set twice. With `joined`, an option and its setting are one
    word, with `=` between them.

    Args:
        defaults: pairs of an option and its setting, which is empty for an option without one.
        arguments: the words that the user adds to the launcher's command.
        joined: see above.
    """
    names = {
        argument.split("=")[0].lstrip("-") for argument in arguments if argument.startswith("-")
    }
    remaining = [(name, setting) for name, setting in defaults if name.lstrip("-") not in names]
    if joined:
        return [f"{name}={setting}" for name, setting in remaining]
    # An option without a setting is a single word.
    return [word for option in remaining for word in option if word]
