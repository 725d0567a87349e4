"""Command lines of launchers, what is read from their output, and what becomes of them."""

import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_roofline.core.errors import BadInput, RanksFailed
from pytest_roofline.ranks import engines, launching
from pytest_roofline.ranks.engines import Wanted, mpi_family, mpi_plugin, parse_arguments
from pytest_roofline.ranks.launching import Launched, by_rank, fates
from pytest_roofline.ranks.processes import last_words

from .real_ranks import gone, until

MODULE = "pytest_roofline.ranks.worker"
KEY = "ROOFLINE_RANK_CONTROLLER"
ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}


def wanted(size=4, *arguments, **changes):
    return Wanted(
        size, arguments, **({"exported": (KEY,), "environ": {}, "python": "python3", "folder": "/f"} | changes)
    )


def test_mpirun_binds_nothing_and_hands_on_variables_by_name_and_never_their_values():
    environ = {KEY: "5ec4e7", "NCCL_DEBUG": "INFO", "HOME": "/root"}
    command = engines.mpirun(wanted(2, "--hostfile", "my hosts", environ=environ), "openmpi")
    assert command == [
        *("mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe", "--tag-output"),
        *("-x", KEY, "-x", "NCCL_DEBUG", "--hostfile", "my hosts", "python3", "-m", MODULE),
    ]
    for as_root in (False, True):
        assert ("--allow-run-as-root" in engines.mpirun(wanted(as_root=as_root), "openmpi")) is as_root
    # What the user gives replaces the default.
    command = engines.mpirun(wanted(2, "--bind-to", "core", "-x", f"{KEY}=1"), "openmpi")
    assert (command.count("--bind-to"), command.count("-x"), "none" in command) == (1, 1, False)
    # Hydra hands on the whole environment.
    command = engines.mpirun(wanted(2), "mpich")
    assert command == [*("mpirun", "-n", "2", "-bind-to", "none", "-prepend-rank", "-genvall", "python3", "-m", MODULE)]
    assert ["-genv", "I_MPI_PIN=0"] == engines.mpirun(wanted(2), "intel")[3:5]


def test_srun_binds_nothing_speaks_no_mpi_unless_it_must_and_shares_a_step():
    options = ("--kill-on-bad-exit=1", "--cpu-bind=none", "--mpi=none", "--export=ALL")
    expected = ["srun", "--ntasks=4", "--label", *options, "-N2", "python3", "-m", MODULE]
    assert engines.srun(wanted(4, "-N2")) == expected
    assert "--mpi=pmix" in engines.srun(wanted(4), "pmix")
    command = engines.srun(wanted(2, "--cpu-bind=cores", "--mpi=cray_shasta"))
    given = [word for word in command if word.startswith(("--cpu-bind", "--mpi"))]
    assert given == ["--cpu-bind=cores", "--mpi=cray_shasta"]
    assert "--overlap" not in engines.srun(wanted(environ=ALLOCATION))
    assert "--overlap" in engines.srun(wanted(environ=ALLOCATION | {"SLURM_STEP_ID": "4294967290"}))


def test_torchrun_stands_alone_on_one_node_and_is_started_once_on_each_of_an_allocation():
    assert engines.torchrun(wanted(4, "--monitor-interval=0.5")) == [
        *("python3", "-m", "torch.distributed.run", "--nproc-per-node=4", "--max-restarts=0", "--tee=3"),
        *("--log-dir=/f", "--standalone", "--monitor-interval=0.5", "-m", MODULE),
    ]
    command = engines.torchrun(wanted(4, environ=ALLOCATION), "host:1234", "run")
    assert command[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    agent = command[command.index("python3") :]
    assert {"--nproc-per-node=2", "--nnodes=2", "--rdzv-endpoint=host:1234", "--rdzv-id=run"} <= set(agent)
    assert "--standalone" not in agent
    with pytest.raises(BadInput, match="3 ranks on 2 nodes under torchrun"):
        engines.torchrun(wanted(3, environ=ALLOCATION))
    assert "--nproc-per-node=1" in engines.torchrun(wanted(1, environ=ALLOCATION))


def test_arguments_are_read_as_in_a_shell_without_the_number_of_ranks():
    for name, text, expected in (
        ("mpirun", "--hostfile 'my hosts'", ("--hostfile", "my hosts")),
        ("srun", "-N2 --gres=gpu:8", ("-N2", "--gres=gpu:8")),
        ("torchrun", "", ()),
    ):
        assert parse_arguments(name, text) == expected
    for name, text, told in (
        ("mpirun", "--hostfile 'my", "No closing quotation"),
        ("mpirun", "-np 4", "the number of ranks comes from the tests"),
        ("srun", "--ntasks=4", "the number of ranks comes from the tests"),
        ("torchrun", "--nnodes=2 --rdzv-endpoint=a:1", "start `torchrun --nnodes=… -m pytest …` on every node"),
    ):
        with pytest.raises(BadInput) as caught:
            parse_arguments(name, text)
        assert told in str(caught.value)


def test_launchers_are_known_by_what_they_say_of_themselves():
    for version, family in (
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", "openmpi"),
        ("mpirun (Open MPI) 5.0.6", "openmpi"),
        ("mpirun (IBM Spectrum MPI) 10.3", "openmpi"),
        ("HYDRA build details:\n    Version:    4.0.2", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.12 Build 20240213", "intel"),
    ):
        assert mpi_family(version) == family
    with pytest.raises(BadInput, match=r"says 'SGI MPT 2.25'; expected Open MPI, MPICH"):
        mpi_family("SGI MPT 2.25\n")
    listing = "MPI plugin types are...\n\tpmix\n\tnone\nspecific pmix plugin versions available: pmix_v4"
    assert mpi_plugin(listing) == "pmix"
    assert mpi_plugin("MPI plugin types are...\n\tnone\n\tpmix_v3\n") == "pmix_v3"
    with pytest.raises(BadInput, match="knows none, pmi2; expected pmix"):
        mpi_plugin("MPI plugin types are...\n\tnone\n\tpmi2\n")


OPENMPI_OUTPUT = """\
[1,0]<stdout>:hello[1,1]<stdout>:hello 1
[1,0]<stdout>: 0
--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node n2 exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
OPENMPI_EXIT = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[31999,1],3]
  Exit code:    7
"""
OPENMPI_5 = """\
[1,0]<stdout>:hello
[prterun-n1-4711@1,1]<stderr>:there
prterun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

   Process name: [prterun-n1-4711@1,1] Exit code:    7
"""
SRUN_OUTPUT = """\
0: hello 0
1: 2: this is rank 1's
srun: error: n2: task 1: Segmentation fault
srun: error: n1: tasks 0,2-3: Terminated
srun: error: n2: task 1: Terminated
srun: error: n3: task 4: Exited with exit code 3
srun: error: n3: task 5: Out Of Memory
srun: error: n3: task 6: Aborted (core dumped)
"""
TORCHRUN_OUTPUT = """\
[default1]:hello 1
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 4181)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 4182)
"""


def test_what_ranks_print_and_how_they_ended_is_read_from_what_their_launcher_says():
    term, ended = "killed by SIGTERM", dict.fromkeys((0, 2, 3), "killed by SIGTERM")
    slurm = {1: "killed by SIGSEGV", 4: "exit code 3", 5: "as srun says: Out Of Memory", 6: "killed by SIGABRT"}
    for text, dialect, printed, ends in (
        (OPENMPI_OUTPUT, "openmpi", {0: "hello 0\n", 1: "hello 1\n"}, {1: "killed by SIGKILL"}),
        (OPENMPI_EXIT, "openmpi", {}, {3: "exit code 7"}),
        (OPENMPI_5, "openmpi", {0: "hello\n", 1: "there\n"}, {1: "exit code 7"}),
        (SRUN_OUTPUT, "srun", {0: "hello 0\n", 1: "2: this is rank 1's\n"}, ended | slurm),
        (TORCHRUN_OUTPUT, "torchrun", {1: "hello 1\n"}, {0: term, 1: "exit code 3"}),
        ("[0] hello\n[1] there\nBAD TERMINATION", "mpich", {0: "hello\n", 1: "there\n"}, {}),
    ):
        assert {rank: said for rank, said in by_rank(text, dialect).items() if rank is not None} == printed
        assert {rank: how.partition(" (")[0] for rank, how in fates(text, dialect).items()} == ends
    assert last_words("one\n\n-----\n  ====  \ntwo\n") == "one\ntwo"


class Scene:
    """A folder in PATH whose launchers do what a test says."""

    def __init__(self, folder, monkeypatch):
        self._folder = folder
        # Without the real launchers, but with the system's own tools.
        tools = [shutil.which(name) for name in ("sh", "sleep", "cat")]
        for tool in tools:
            (folder / Path(tool).name).symlink_to(tool)
        monkeypatch.setenv("PATH", str(folder))

    def put(self, name, script):
        path = self._folder / name
        path.write_text(f"#!{self._folder / 'sh'}\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


def started(name, *arguments, variables=None, size=2, **more):
    placement = Launched(name, arguments, **more)
    placement.start(size, variables or {})
    return placement


def test_a_launcher_that_is_not_there_or_ends_before_ranks_come_is_told_with_its_words(scene):
    for name, package in (("mpirun", "openmpi-bin"), ("srun", "slurm-client")):
        with pytest.raises(BadInput, match=f"`{name}` is not in PATH; .*{package}"):
            started(name)
    scene.put("srun", "echo 'srun: error: Unable to allocate resources: Invalid partition' >&2; exit 1")
    placement = started("srun", "-p", "nosuch")
    until(placement.trouble)
    told = "srun has ended: exit code 1\nsrun: error: Unable to allocate resources: Invalid partition"
    assert placement.trouble() == told
    placement.kill()
    # What a rank said is shown too.
    scene.put(
        "srun", "echo \"1: ImportError: no module\"; echo 'srun: error: n2: task 1: Exited with exit code 1'; exit 1"
    )
    placement = started("srun")
    until(placement.trouble)
    assert "ImportError: no module\nsrun: error: n2: task 1" in placement.trouble()
    assert (placement.fate(1), placement.fate(0)) == ("exit code 1", "")
    placement.kill()


def test_no_failure_is_told_only_of_a_launcher_whose_reports_are_known(scene, monkeypatch):
    monkeypatch.setattr(launching, "FATE_S", 0.1)
    for version, rest, fate in (
        ("4.1.4", "exec sleep 600", "exit code 0, as mpirun tells of no failure"),
        ("5.0.6", "exec sleep 600", ""),
        # One that ended well is believed whatever its version.
        ("5.0.6", "exit 0", "exit code 0, as mpirun tells of no failure"),
    ):
        scene.put("mpirun", f'[ "$1" = --version ] && echo "mpirun (Open MPI) {version}" && exit; {rest}')
        placement = started("mpirun")
        if rest == "exit 0":
            until(placement.trouble)
        assert placement.fate(1) == fate
        placement.kill()


def test_a_launcher_that_cannot_be_started_leaves_no_folder(scene, monkeypatch, tmp_path):
    folders = tmp_path / "folders"
    folders.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folders))

    def fail(*_, **__):
        raise OSError("no process")

    scene.put("srun", "exit 0")
    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(RanksFailed, match="srun could not be started: no process"):
        Launched("srun").start(2, {})
    assert list(folders.iterdir()) == []


def test_the_secret_is_in_the_environment_and_in_no_command_line_nor_is_the_launch_that_pytest_is_in(
    scene, monkeypatch
):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}.items():
        monkeypatch.setenv(name, value)
    said = 'echo "args $*"; echo "key $' + KEY + ' rank ${RANK:-none} ${TORCHELASTIC_RUN_ID:-none}"'
    scene.put("mpirun", f'[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit; {said}')
    placement = started("mpirun", variables={KEY: "5ec4e7"})
    assert placement.wait(20)
    placement.start(2, {KEY: "5ec4e7"})
    until(placement.trouble)
    args, key = placement.tail(0).splitlines()
    assert "5ec4e7" not in args
    assert key == "key 5ec4e7 rank none none"
    placement.kill()


def test_what_ignores_the_end_is_killed_with_its_children(scene, monkeypatch):
    monkeypatch.setattr(launching, "TERMINATE_S", 0.3)
    # A child in a session of its own, as torchrun's ranks are.
    child = f"{sys.executable} -c 'import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)'"
    scene.put("srun", f"trap '' TERM; {child} & wait; sleep 600")
    placement = started("srun", size=1)
    until(lambda: placement.tail(0))
    pid = int(placement.tail(0))
    placement.kill()
    # Its parent is gone, and whoever inherited it may not have reaped it yet.
    until(lambda: gone(pid))
    assert placement.trouble() == ""


def test_srun_is_asked_for_pmix_only_where_mpi_is_needed(scene):
    for listing in ("exit 3", "echo 'MPI plugin types are...'"):
        scene.put("srun", f'[ "$1" = --mpi=list ] && {{ {listing}; exit; }}; exit 0')
        with pytest.raises(BadInput, match="--mpi=list"):
            started("srun", mpi=True)
        assert started("srun").wait(20)
