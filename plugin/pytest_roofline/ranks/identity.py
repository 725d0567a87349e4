"""The rank that this process was launched as. It is read from the variables that launchers set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..core.errors import BadInput

# Slurm numbers steps that are shells and not launches (batch, extern, interactive) from here on.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_OMPI = "OMPI_COMM_WORLD_"
# Variables that launchers set for their processes. A launcher that such a process starts must not see them.
_PREFIXES = (
    *(
        "OMPI_APP_CTX_",
        _OMPI,
        "OMPI_MCA_ess",
        "OMPI_MCA_initial_wdir",
        "OMPI_MCA_orte_",
        "OMPI_MCA_pmix",
    ),
    *("OMPI_MCA_prte_", "PALS_", "PMIX_", "PMI_", "PRTE_", "TORCHELASTIC_"),
)
_NAMES = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("HYDI_CONTROL_FD", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    *(
        "OMPI_ARGV",
        "OMPI_COMMAND",
        "OMPI_FILE_LOCATION",
        "OMPI_FIRST_RANKS",
        "OMPI_NUM_APP_CTX",
        "OMPI_UNIVERSE_SIZE",
    ),
    "OMPI_MCA_mpi_oversubscribe",
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that a launcher started as one of several.

    Args:
        rank: its number, 0 … size − 1.
        size: the number of processes of the launch.
        local_rank: its number on its host; 0 where the launcher does not tell.
        local_size: the number of processes on its host; None where the launcher does not tell.
        launcher: `torchrun`, `env` (RANK and WORLD_SIZE set by something else, as Kubernetes does), `mpirun` or `srun`.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int | None
    launcher: str

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment variables that tell a process that it is this rank."""
        variables = {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.local_rank),
        }
        if self.local_size is not None:
            variables["LOCAL_WORLD_SIZE"] = str(self.local_size)
        return variables


class _Source(NamedTuple):
    """The variables of one launcher.

    `local_rank` and `local_size` have several names; the first that is set counts.
    """

    launcher: str
    rank: str
    size: str
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()


# In this order, since one launcher often starts another: srun starts mpirun's daemons, and torchrun once a node.
_SOURCES = (
    _Source("env", "RANK", "WORLD_SIZE", ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",)),
    _Source(
        "mpirun", f"{_OMPI}RANK", f"{_OMPI}SIZE", (f"{_OMPI}LOCAL_RANK",), (f"{_OMPI}LOCAL_SIZE",)
    ),
    _Source(
        "mpirun",
        "PMI_RANK",
        "PMI_SIZE",
        ("MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
    ),
)
_SLURM = _Source("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_LOCALID",))


def identify(environ: Mapping[str, str]) -> Identity | None:
    """Return the rank that a launcher made of this process.

    It is None if no launcher started this process as one of several.

    Raises:
        BadInput: the launcher's variables contradict each other, or do not tell the number of ranks.
    """
    for source in _SOURCES:
        if source.rank in environ and source.size in environ:
            return _read(environ, source, _launcher(environ, source))
    if in_slurm_step(environ):
        return _read(environ, _SLURM, "srun")
    if "PMIX_RANK" in environ and "SLURM_STEP_ID" not in environ:
        raise BadInput(
            f"PMIX_RANK={environ['PMIX_RANK']} is set, but no variable says how many ranks there are; "
            "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process, or unset PMIX_RANK"
        )
    return None


def without_launch(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of a rank. Those of a Slurm job stay."""
    return {
        name: setting
        for name, setting in environ.items()
        if not name.startswith(_PREFIXES) and name not in _NAMES
    }


def in_slurm_step(environ: Mapping[str, str]) -> bool:
    """Return whether `srun` started this process as one of several.

    A batch script and an interactive shell have a step too, but they are no such processes.
    """
    step, task_count = environ.get("SLURM_STEP_ID", ""), environ.get("SLURM_STEP_NUM_TASKS", "")
    is_launch = step.isdecimal() and int(step) < _FIRST_SPECIAL_STEP
    has_several_tasks = task_count.isdecimal() and int(task_count) > 1
    return is_launch and has_several_tasks and "SLURM_PROCID" in environ


def _launcher(environ: Mapping[str, str], source: _Source) -> str:
    """Return the launcher that set the variables of a source.

    A source is the set of variables by which one kind of launcher gives a process its rank.
    """
    if source.launcher == "env":
        return "torchrun" if "TORCHELASTIC_RUN_ID" in environ else "env"
    # `srun --mpi=pmi2` sets PMI's variables too, and they agree with Slurm's. Under MPICH's mpirun they do not: there
    # Slurm's variables are those of a step with one daemon on each node.
    agrees_with_slurm = (
        environ.get(_SLURM.rank) == environ[source.rank]
        and environ.get(_SLURM.size) == environ[source.size]
    )
    is_srun = source.rank == "PMI_RANK" and in_slurm_step(environ) and agrees_with_slurm
    return "srun" if is_srun else source.launcher


def _read(environ: Mapping[str, str], source: _Source, launcher: str) -> Identity:
    """Return the rank that one kind of launcher's variables (`source`) describe."""
    size, rank = _number(environ, source.size, least=1), _number(environ, source.rank, least=0)
    local_rank_name = next((name for name in source.local_rank if name in environ), None)
    local_size_name = next((name for name in source.local_size if name in environ), None)
    if rank >= size:
        raise BadInput(
            f"{source.rank}={rank} and {source.size}={size} contradict each other; expected a rank from 0 to "
            f"{size - 1}. Unset both to run without a launcher"
        )
    return Identity(
        rank=rank,
        size=size,
        local_rank=_number(environ, local_rank_name, least=0) if local_rank_name else 0,
        local_size=_number(environ, local_size_name, least=1) if local_size_name else None,
        launcher=launcher,
    )


def _number(environ: Mapping[str, str], name: str, least: int) -> int:
    """Return a variable as a whole number; raise BadInput if it is none."""
    text = environ[name].strip()
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise BadInput(
            f"{name}={environ[name]!r}; expected a whole number of at least {least} from the launcher"
        )
    return int(text)
