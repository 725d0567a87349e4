"""Command lines of launchers, what is read from their output, and what becomes of them."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_roofline.core.errors import BadInput, RanksFailed
from pytest_roofline.ranks import launching
from pytest_roofline.ranks.command_lines import (
    Launch,
    mpi_family,
    mpi_plugin,
    mpirun,
    parse_arguments,
    srun,
)
from pytest_roofline.ranks.command_lines import torchrun as torchrun_of
from pytest_roofline.ranks.launching import LauncherPlacement

from .real_ranks import gone, until

RANK = (sys.executable, "-m", "pytest_roofline.ranks.worker")
KEY = "ROOFLINE_RANK_CONTROLLER"
ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}


def wanted(size=4, *arguments, **environ):
    return Launch(size, arguments, (KEY,), environ, "/f")


def test_mpirun_binds_nothing_and_hands_on_variables_by_name_and_never_their_values():
    command = mpirun(
        wanted(2, "--hostfile", "my hosts", **{KEY: "5ec4e7", "NCCL_DEBUG": "INFO"}), "openmpi"
    )
    root = ["--allow-run-as-root"] * (os.geteuid() == 0)
    assert command == [
        *("mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe", "--tag-output", *root),
        *("-x", KEY, "-x", "NCCL_DEBUG", "--hostfile", "my hosts", *RANK),
    ]
    # What the user gives replaces the default.
    command = mpirun(wanted(2, "--bind-to", "core", "-x", f"{KEY}=1"), "openmpi")
    assert (command.count("--bind-to"), command.count("-x"), "none" in command) == (1, 1, False)
    # Hydra hands on the whole environment.
    command = mpirun(wanted(2), "mpich")
    assert command == ["mpirun", "-n", "2", "-bind-to", "none", "-prepend-rank", "-genvall", *RANK]
    assert ["-genv", "I_MPI_PIN=0"] == mpirun(wanted(2), "intel")[3:5]


def test_srun_binds_nothing_speaks_no_mpi_unless_it_must_and_shares_a_step():
    options = ("--kill-on-bad-exit=1", "--cpu-bind=none", "--mpi=none", "--export=ALL")
    assert srun(wanted(4, "-N2", **ALLOCATION)) == [
        "srun",
        "--ntasks=4",
        "--label",
        *options,
        "-N2",
        *RANK,
    ]
    assert "--mpi=pmix" in srun(wanted(4), "pmix")
    command = srun(wanted(2, "--cpu-bind=cores", "--mpi=cray_shasta"))
    given = [word for word in command if word.startswith(("--cpu-bind", "--mpi"))]
    assert given == ["--cpu-bind=cores", "--mpi=cray_shasta"]
    assert "--overlap" in srun(wanted(**ALLOCATION, SLURM_STEP_ID="4294967290"))


def test_torchrun_stands_alone_on_one_node_and_is_started_once_on_each_of_an_allocation():
    assert torchrun_of(wanted(4, "--monitor-interval=0.5")) == [
        *(
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=4",
            "--max-restarts=0",
            "--tee=3",
        ),
        *("--log-dir=/f", "--standalone", "--monitor-interval=0.5", *RANK[1:]),
    ]
    command = torchrun_of(wanted(4, **ALLOCATION), "host:1234", "run")
    assert command[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert {
        "--nproc-per-node=2",
        "--nnodes=2",
        "--rdzv-endpoint=host:1234",
        "--rdzv-id=run",
    } <= set(command)
    assert "--standalone" not in command
    with pytest.raises(BadInput, match=r"torchrun .* 3 ranks on 2 nodes"):
        torchrun_of(wanted(3, **ALLOCATION))
    assert "--nproc-per-node=1" in torchrun_of(wanted(1, **ALLOCATION))


def test_arguments_and_what_launchers_say_of_themselves_are_read_or_refused():
    assert parse_arguments("mpirun", "--hostfile 'my hosts'") == ("--hostfile", "my hosts")
    for version, family in (
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", "openmpi"),
        ("mpirun (IBM Spectrum MPI) 10.3", "openmpi"),
        ("HYDRA build details:\n    Version:    4.0.2", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.12 Build 20240213", "intel"),
    ):
        assert mpi_family(version) == family
    listing = (
        "MPI plugin types are...\n\tpmix\n\tnone\nspecific pmix plugin versions available: pmix_v4"
    )
    assert (mpi_plugin(listing), mpi_plugin("\tnone\n\tpmix_v3\n")) == ("pmix", "pmix_v3")
    for call, arguments, told in (
        (parse_arguments, ("mpirun", "--hostfile 'my"), "No closing quotation"),
        (
            parse_arguments,
            ("mpirun", "-np 4"),
            "have -np. Leave -np out: tests set the number of ranks",
        ),
        (
            parse_arguments,
            ("torchrun", "--nnodes=2"),
            "start `torchrun --nnodes=… -m pytest …` on every node",
        ),
        (mpi_family, ("SGI MPT 2.25\n",), "says 'SGI MPT 2.25'; expected Open MPI, MPICH"),
        (
            mpi_plugin,
            ("MPI plugin types are...\n\tnone\n\tpmi2\n",),
            "names none, pmi2; expected pmix",
        ),
    ):
        with pytest.raises(BadInput) as caught:
            call(*arguments)
        assert told in str(caught.value)


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """A folder in PATH whose launchers do what a test says."""
    # Without the real launchers, but with the system's own tools.
    shell = shutil.which("sh")
    for name in ("sleep", "cat"):
        (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name, script):
        path = tmp_path / name
        # Of a long folder the kernel would read a part.
        path.write_text(f"#!{shell}\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return put


def started(name, *arguments, variables=None, size=2, **more):
    placement = LauncherPlacement(name, arguments, **more)
    placement.start(size, variables or {})
    return placement


def test_the_last_words_of_a_rank_are_its_own_and_its_launchers(scene):
    for name, text, rank, told in (
        ("mpirun", "[1,0]<stdout>:hello\n[prterun-n1@1,1]<stderr>:there\nprocess rank 1 exited on signal 9", 1,
         "there\nprocess rank 1 exited on signal 9"),
        ("srun", "0: hello\n1: 2: mine\nsrun: error: task 1: Killed", 1, "2: mine\nsrun: error: task 1: Killed"),
        ("mpirun", "[0] hello\n[1] there\nBAD TERMINATION", 0, "hello\nBAD TERMINATION"),
        # Of one that said nothing there are those of all.
        ("srun", "0: hello\nsrun: error", 1, "0: hello\nsrun: error"),
    ):  # fmt: skip
        scene(
            name, f'[ "$1" = --version ] && echo "Open MPI" && exit; cat <<END\n{text}\nEND\nexit 1'
        )
        placement = started(name)
        until(placement.trouble)
        assert (placement.fate(1), placement.tail(rank)) == ("", told)
        assert placement.trouble() == f"{name} has ended: exit code 1\n{text}"
        placement.kill()


def test_a_launcher_that_is_not_there_or_cannot_be_started_is_told_and_leaves_no_folder(
    scene, monkeypatch, tmp_path
):
    folders = tmp_path / "folders"
    folders.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folders))
    for name, package in (("mpirun", "openmpi-bin"), ("srun", "slurm-client")):
        with pytest.raises(BadInput, match=f"`{name}` is not in PATH; .*{package}"):
            started(name)
    for listing in ("exit 3", "echo 'MPI plugin types are...'"):
        scene("srun", f'[ "$1" = --mpi=list ] && {{ {listing}; exit; }}; exit 0')
        # It is asked for PMIx only where MPI is needed.
        with pytest.raises(BadInput, match="--mpi=list"):
            started("srun", mpi=True)
        assert started("srun").wait(20)

    def fail(*_, **__):
        raise OSError("no process")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(RanksFailed, match="srun could not be started: no process"):
        started("srun")
    assert list(folders.iterdir()) == []


def test_the_secret_is_in_no_command_line_and_the_launch_that_pytest_is_in_is_not_handed_on(
    scene, monkeypatch
):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}.items():
        monkeypatch.setenv(name, value)
    said = 'echo "args $*"; echo "key $' + KEY + ' rank ${RANK:-none} ${TORCHELASTIC_RUN_ID:-none}"'
    scene("mpirun", f'[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit; {said}')
    placement = started("mpirun", variables={KEY: "5ec4e7"})
    until(placement.trouble)
    args, key = placement.tail(0).splitlines()
    assert "5ec4e7" not in args
    assert key == "key 5ec4e7 rank none none"
    placement.kill()


def test_what_ignores_the_end_is_killed_with_its_children(scene, monkeypatch):
    monkeypatch.setattr(launching, "TERMINATE_S", 0.3)
    # A child in a session of its own, as torchrun's ranks are.
    child = f"{sys.executable} -c 'import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)'"
    scene("srun", f"trap '' TERM; {child} & wait; sleep 600")
    placement = started("srun", size=1)
    until(lambda: placement.tail(0))
    pid = int(placement.tail(0))
    placement.kill()
    # Its parent is gone, and whoever inherited it may not have reaped it yet.
    until(lambda: gone(pid))
    assert placement.trouble() == ""
    assert not Path(placement._folder).exists()
