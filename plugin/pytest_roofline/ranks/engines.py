"""Command lines of the launchers that start ranks past one node: torchrun, mpirun and srun."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ..core.errors import BadInput
from .identity import in_slurm_step
from .processes import MODULE

MpiFamily = Literal["openmpi", "mpich", "intel"]

NOT_FOUND = {
    "mpirun": "install Open MPI (Debian: openmpi-bin) or MPICH, or load its environment module",
    "srun": "run on a node of a Slurm cluster (Debian: slurm-client), or choose another launcher",
}
# The number of ranks comes from the tests' worlds, never from these arguments.
_COUNTS = {
    "torchrun": ("--nproc-per-node", "--nproc_per_node", "--nnodes", "--standalone"),
    "mpirun": ("-n", "-np", "--n", "--np", "-c"),
    "srun": ("-n", "--ntasks"),
}
# What users set for a run they expect on every rank, also where a launcher forwards nothing by itself.
_FORWARDED = re.compile(
    r"(PATH|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX"
    r"|(CUDA|FI|GLOO|HIP|HSA|MKL|NCCL|NVIDIA|OMP|PYTORCH|RCCL|ROCR|ROOFLINE|TORCH|TRITON|UCC|UCX)_.*)"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an engine is to start.

    Args:
        size: ranks.
        arguments: the user's own, for the launcher.
        exported: names of variables that every rank must get; their values are in the launcher's environment.
        environ: that pytest itself runs in.
        as_root: whether the user is root, which Open MPI wants confirmed.
        python: of the ranks.
        folder: for files that the launcher keeps.
    """

    size: int
    arguments: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()
    environ: Mapping[str, str] | None = None
    as_root: bool = False
    python: str = sys.executable
    folder: str = ""

    @property
    def forwarded(self) -> list[str]:
        """Every variable to hand on: the exported ones, and what of the user's own bears on a measurement."""
        own = [name for name in (self.environ or {}) if _FORWARDED.fullmatch(name)]
        return list(dict.fromkeys([*self.exported, *sorted(own)]))

    @property
    def nodes(self) -> int:
        """Nodes of the Slurm allocation that pytest runs in; 1 outside of one."""
        text = (self.environ or {}).get("SLURM_JOB_NUM_NODES", "1")
        return int(text) if text.isdecimal() else 1


def parse_arguments(name: str, text: str) -> tuple[str, ...]:
    """The user's arguments for a launcher."""
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(f"launcher arguments {text!r}: {error}; expected them as in a shell") from None
    for argument in arguments:
        if argument.split("=")[0] in _COUNTS[name]:
            raise BadInput(f"launcher arguments {text!r} have {argument}; {_instead(name, argument)}")
    return arguments


def mpi_family(version: str) -> MpiFamily:
    """Which mpirun this is."""
    # The marks are in the order of trust: Intel's is built on Hydra too.
    marks: tuple[tuple[str, MpiFamily], ...] = (
        (r"Open MPI|Open RTE|OpenRTE|PRRTE|Spectrum MPI", "openmpi"),
        (r"Intel\(R\) MPI", "intel"),
        (r"HYDRA|MPICH|MVAPICH", "mpich"),
    )
    for mark, family in marks:
        if re.search(mark, version, re.IGNORECASE):
            return family
    first = version.strip().partition("\n")[0]
    raise BadInput(f"`mpirun --version` says {first!r}; expected Open MPI, MPICH, MVAPICH or Intel MPI")


def is_tried(version: str) -> bool:
    """Whether the reports of an mpirun are known by its version: of Open MPI those before 5."""
    return re.search(r"\(Open MPI\) [1-4]\.", version) is not None


def mpi_plugin(listing: str) -> str:
    """Slurm's plugin by which MPI ranks find each other."""
    names = re.findall(r"\bpmix(?:_v\d+)?\b", listing)
    if not names:
        known = ", ".join(re.findall(r"^\s+(\w+)\s*$", listing, re.MULTILINE)) or "none"
        raise BadInput(f"`srun --mpi=list` knows {known}; expected pmix, or use --roofline-launcher=mpirun for MPI")
    return "pmix" if "pmix" in names else names[-1]


def torchrun(wanted: Wanted, endpoint: str = "", run_id: str = "") -> list[str]:
    """torchrun's command: on this node, or in a Slurm allocation of several nodes once on each of them."""
    nodes = min(wanted.nodes, wanted.size)
    if wanted.size % nodes:
        raise BadInput(
            f"{wanted.size} ranks on {nodes} nodes under torchrun, which starts as many on each; "
            "expected a multiple, or use --roofline-launcher=srun"
        )
    ranks = [f"--nproc-per-node={wanted.size // nodes}", "--max-restarts=0", "--tee=3", f"--log-dir={wanted.folder}"]
    agent = [wanted.python, "-m", "torch.distributed.run", *ranks]
    if nodes == 1:
        return [*agent, "--standalone", *wanted.arguments, "-m", MODULE]
    meeting = [f"--rdzv-endpoint={endpoint}", "--rdzv-backend=c10d", f"--rdzv-id={run_id}", "--rdzv-conf=is_host=0"]
    step = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", *_step_options(wanted, "none")]
    return [*step, *agent, f"--nnodes={nodes}", *meeting, *wanted.arguments, "-m", MODULE]


def mpirun(wanted: Wanted, family: MpiFamily) -> list[str]:
    """mpirun's command; ranks are not bound to cores, since a launcher's binding would show in what is measured."""
    if family == "openmpi":
        defaults = [("--bind-to", "none"), ("--oversubscribe", ""), ("--tag-output", "")]
        if wanted.as_root:
            defaults.append(("--allow-run-as-root", ""))
        # The user's own word on a variable stands; mpirun refuses two.
        given = {after.split("=")[0] for word, after in pairwise(wanted.arguments) if word == "-x"}
        variables = [word for name in wanted.forwarded if name not in given for word in ("-x", name)]
    else:
        # Hydra hands on the whole environment, over its own connections.
        defaults = [("-bind-to", "none"), ("-prepend-rank", ""), ("-genvall", "")]
        if family == "intel":
            defaults[0] = ("-genv", "I_MPI_PIN=0")
        variables = []
    return [
        "mpirun",
        "-n",
        str(wanted.size),
        *_unless_given(defaults, wanted.arguments),
        *variables,
        *wanted.arguments,
        *_rank(wanted),
    ]


def srun(wanted: Wanted, plugin: str = "none") -> list[str]:
    """srun's command."""
    options = _step_options(wanted, plugin)
    return ["srun", f"--ntasks={wanted.size}", "--label", *options, *wanted.arguments, *_rank(wanted)]


def _step_options(wanted: Wanted, plugin: str) -> list[str]:
    defaults = [("--kill-on-bad-exit", "1"), ("--cpu-bind", "none"), ("--mpi", plugin), ("--export", "ALL")]
    options = _unless_given(defaults, wanted.arguments, joined=True)
    # Within a step, the resources are the step's own, and a second one would wait for them for ever.
    shared = "SLURM_STEP_ID" in (wanted.environ or {}) or in_slurm_step(wanted.environ or {})
    return [*options, "--overlap"] if shared else options


def _rank(wanted: Wanted) -> list[str]:
    return [wanted.python, "-m", MODULE]


def _unless_given(defaults: Sequence[tuple[str, str]], given: Sequence[str], joined: bool = False) -> list[str]:
    """Options with their values, without those that the user gives, which launchers refuse to take twice."""
    names = {argument.split("=")[0].lstrip("-") for argument in given if argument.startswith("-")}
    kept = [(name, value) for name, value in defaults if name.lstrip("-") not in names]
    if joined:
        return [f"{name}={value}" for name, value in kept]
    return [word for option in kept for word in option if word]


def _instead(name: str, argument: str) -> str:
    if name == "torchrun" and argument.split("=")[0] in ("--nnodes", "--standalone"):
        return (
            "expected none, since the nodes are those of the Slurm allocation. Elsewhere, start "
            "`torchrun --nnodes=… -m pytest …` on every node: pytest then uses the ranks of that launch"
        )
    return "expected none, since the number of ranks comes from the tests: a test's world_size or its marker ranks=N"
