"""Which rank a launcher made of a process."""

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.ranks.identity import Identity, identify, without_launch

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}
KUBERNETES = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_RANK": "2",
    "PMIX_NAMESPACE": "1677852673",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
# What a batch script sees.
BATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}
STEP = BATCH | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, Identity(3, 4, 1, 2, "torchrun")),
        (KUBERNETES, Identity(1, 2, 0, None, "env")),
        (OPENMPI, Identity(2, 4, 0, 2, "mpirun")),
        (MPICH, Identity(1, 2, 1, 2, "mpirun")),
        (STEP, Identity(3, 4, 1, None, "srun")),
        (STEP | {"PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.7.0"}, Identity(3, 4, 1, None, "srun")),
        # `srun --mpi=pmi2`.
        (STEP | {"PMI_RANK": "3", "PMI_SIZE": "4"}, Identity(3, 4, 0, None, "srun")),
        # A world of one is a world.
        (TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
         Identity(0, 1, 0, 1, "torchrun")),
    ],
)  # fmt: skip
def test_each_launcher_is_known_by_its_variables(environ, expected):
    assert identify(environ) == expected


@pytest.mark.parametrize(
    ("outer", "inner", "launcher"),
    [
        (STEP, TORCHRUN, "torchrun"),
        (OPENMPI, TORCHRUN, "torchrun"),
        (STEP, OPENMPI, "mpirun"),
        (STEP, MPICH, "mpirun"),
        (OPENMPI, MPICH, "mpirun"),
    ],
)
def test_of_a_launcher_that_another_one_started_the_inner_one_counts(outer, inner, launcher):
    identity = identify(outer | inner)
    assert identity is not None
    assert identity.launcher == launcher
    inner_alone = identify(inner) if inner is not MPICH or outer is not OPENMPI else identify(OPENMPI)
    assert identity == inner_alone


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HOME": "/root", "RANK": "3"},
        {"WORLD_SIZE": "8", "MASTER_ADDR": "localhost"},
        BATCH,
        # An interactive shell is a step of one task, and has one of Slurm's special numbers.
        BATCH | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"},
        BATCH | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "4"},
        BATCH | {"SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "1", "PMIX_RANK": "0"},
    ],
    ids=["empty", "rank-only", "size-only", "batch", "salloc", "special-step", "srun-shell"],
)
def test_a_shell_is_no_launch(environ):
    assert identify(environ) is None


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        (TORCHRUN | {"RANK": "4"}, "RANK=4 and WORLD_SIZE=4 contradict each other; expected a rank from 0 to 3"),
        (TORCHRUN | {"RANK": "first"}, "RANK='first'; expected a whole number of at least 0"),
        (TORCHRUN | {"RANK": "-1"}, "RANK='-1'"),
        (TORCHRUN | {"WORLD_SIZE": ""}, "WORLD_SIZE=''"),
        (TORCHRUN | {"WORLD_SIZE": "0"}, "WORLD_SIZE='0'; expected a whole number of at least 1"),
        (TORCHRUN | {"LOCAL_RANK": "2"}, "LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2 contradict"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "8"}, "LOCAL_WORLD_SIZE=8 and WORLD_SIZE=4 contradict"),
        (OPENMPI | {"OMPI_COMM_WORLD_RANK": "٣"}, "OMPI_COMM_WORLD_RANK="),
        (STEP | {"PMIX_RANK": "1"}, "PMIX_RANK=1 and SLURM_PROCID=3"),
        ({"PMIX_RANK": "1"}, "PMIX_RANK=1 is set, but no variable says how many ranks there are"),
    ],
)
def test_what_contradicts_or_is_no_number_is_said(environ, seen):
    with pytest.raises(BadInput) as caught:
        identify(environ)
    assert seen in str(caught.value)


@pytest.mark.parametrize("environ", [TORCHRUN, KUBERNETES, OPENMPI, MPICH])
def test_without_its_launch_a_process_is_nobodys_rank(environ):
    left = without_launch(environ | {"HOME": "/root", "NCCL_DEBUG": "INFO", "OMPI_MCA_btl": "tcp", "SLURM_JOB_ID": "7"})
    assert left == {"HOME": "/root", "NCCL_DEBUG": "INFO", "OMPI_MCA_btl": "tcp", "SLURM_JOB_ID": "7"}


@pytest.mark.parametrize("identity", [Identity(1, 4, 1, 2, "env"), Identity(0, 2, 0, None, "env")])
def test_an_identity_is_what_its_own_variables_say(identity):
    assert identify(identity.environ) == identity
