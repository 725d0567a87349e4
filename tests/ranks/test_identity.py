"""Which rank a launcher made of a process, and by which network interface it reaches the others."""

import os
import socket

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.ranks import listener
from pytest_roofline.ranks.identity import Identity, identify, without_launch
from pytest_roofline.ranks.listener import (
    GLOO_VARIABLE,
    interface_of,
    is_loopback,
    keep_gloo_reachable,
)

KUBERNETES = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
TORCHRUN = KUBERNETES | {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
TORCHRUN |= {"TORCHELASTIC_RUN_ID": "none"}
OPENMPI = {
    f"OMPI_COMM_WORLD_{name}": n
    for name, n in {"RANK": "2", "SIZE": "4", "LOCAL_RANK": "0"}.items()
}
OPENMPI |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "2", "PMIX_NAMESPACE": "1677852673"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
# What a batch script sees, and a process of a step.
BATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}
STEP = BATCH | {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}


def test_each_launcher_is_known_by_its_variables_and_of_two_the_inner_one_counts():
    torchrun, openmpi = Identity(3, 4, 1, 2, "torchrun"), Identity(2, 4, 0, 2, "mpirun")
    for environ, expected in (
        (TORCHRUN, torchrun),
        (KUBERNETES, Identity(1, 2, 0, None, "env")),
        (OPENMPI, openmpi),
        (MPICH, Identity(1, 2, 1, 2, "mpirun")),
        (
            STEP | {"PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.7.0"},
            Identity(3, 4, 1, None, "srun"),
        ),
        # `srun --mpi=pmi2`.
        (STEP | {"PMI_RANK": "3", "PMI_SIZE": "4"}, Identity(3, 4, 0, None, "srun")),
        (STEP | OPENMPI | TORCHRUN, torchrun),
        (STEP | OPENMPI | MPICH, openmpi),
        (STEP | MPICH, Identity(1, 2, 1, 2, "mpirun")),
        # An identity is what its own variables say.
        (Identity(1, 4, 1, 2, "env").environ, Identity(1, 4, 1, 2, "env")),
        # A shell is no launch; an interactive one is a step of one task, or has one of Slurm's special numbers.
        ({"HOME": "/root", "RANK": "3"}, None),
        (BATCH, None),
        (BATCH | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "4"}, None),
        (BATCH | {"SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "1", "PMIX_RANK": "0"}, None),
    ):
        assert identify(environ) == expected
    kept = {"HOME": "/root", "NCCL_DEBUG": "INFO", "OMPI_MCA_btl": "tcp", "SLURM_JOB_ID": "7"}
    for environ in (TORCHRUN, KUBERNETES, OPENMPI, MPICH):
        assert without_launch(environ | kept) == kept
    for environ, told in (
        (
            TORCHRUN | {"RANK": "4"},
            "RANK=4 and WORLD_SIZE=4 contradict each other; expected a rank from 0 to 3",
        ),
        (TORCHRUN | {"RANK": "-1"}, "RANK='-1'; expected a whole number of at least 0"),
        (TORCHRUN | {"WORLD_SIZE": "0"}, "WORLD_SIZE='0'; expected a whole number of at least 1"),
        ({"PMIX_RANK": "0"}, "PMIX_RANK=0 is set, but no variable says how many ranks there are"),
    ):
        with pytest.raises(BadInput) as caught:
            identify(environ)
        assert told in str(caught.value)


def test_gloo_is_told_the_interface_that_other_nodes_reach(monkeypatch):
    assert interface_of("127.0.0.1") in [known for _, known in socket.if_nameindex()]
    assert [interface_of(address) for address in ("", "node7", "203.0.113.9", "2001:db8::8")] == [
        None
    ] * 4
    assert [is_loopback(address) for address in ("127.0.1.1", "::1", "::ffff:127.0.0.1")] == [
        True
    ] * 3
    assert [is_loopback(address) for address in ("10.0.0.1", "fe80::1%ib0", "localhost", "")] == [
        False
    ] * 4
    monkeypatch.setattr(listener, "interface_of", {"10.0.0.1": "eth1", "10.0.0.2": "eth2"}.get)
    for own, outward, chosen, expected in (
        ("10.0.0.2", "10.0.0.1", None, "eth2"),
        # Beside the controller; no interface of that address; the user's choice.
        ("127.0.0.1", "10.0.0.1", None, "eth1"),
        ("10.0.0.9", "10.0.0.1", None, None),
        ("10.0.0.2", "10.0.0.1", "ib0", "ib0"),
    ):
        with monkeypatch.context() as patch:
            # So that it is put back, whatever becomes of it here.
            patch.setenv(GLOO_VARIABLE, chosen or "")
            if chosen is None:
                patch.delenv(GLOO_VARIABLE)
            keep_gloo_reachable(own, outward)
            assert os.environ.get(GLOO_VARIABLE) == expected
