"""Command lines of launchers, what is read from their output, and ranks under them."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pytest_roofline.core.errors import BadInput, RanksFailed
from pytest_roofline.ranks import engines, launching
from pytest_roofline.ranks.engines import Wanted, mpi_family, mpi_plugin, parse_arguments
from pytest_roofline.ranks.launching import Launched, by_rank, fates
from pytest_roofline.ranks.placement import last_words

from ..tools import require_tools

MODULE = "pytest_roofline.ranks.rank"
KEY = "ROOFLINE_RANK_CONTROLLER"
ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}


def wanted(size=4, *arguments, **changes):
    return Wanted(
        size, arguments, **({"exported": (KEY,), "environ": {}, "python": "python3", "folder": "/f"} | changes)
    )


def test_openmpi_gets_the_names_of_variables_and_never_their_values():
    environ = {KEY: "5ec4e7", "NCCL_DEBUG": "INFO", "HOME": "/root"}
    command = engines.mpirun(wanted(2, "--hostfile", "my hosts", environ=environ), "openmpi")
    assert command == [
        *("mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe", "--tag-output"),
        *("-x", KEY, "-x", "NCCL_DEBUG", "--hostfile", "my hosts", "python3", "-m", MODULE),
    ]
    assert "5ec4e7" not in " ".join(command)


@pytest.mark.parametrize("as_root", [False, True])
def test_openmpi_as_root_is_confirmed_and_only_then(as_root):
    assert ("--allow-run-as-root" in engines.mpirun(wanted(as_root=as_root), "openmpi")) is as_root


def test_what_the_user_gives_replaces_the_default():
    command = engines.mpirun(wanted(2, "--bind-to", "core", "-x", f"{KEY}=1"), "openmpi")
    assert (command.count("--bind-to"), command.count("-x"), "none" in command) == (1, 1, False)
    command = engines.srun(wanted(2, "--cpu-bind=cores", "--mpi=cray_shasta"))
    assert [word for word in command if word.startswith(("--cpu-bind", "--mpi"))] == [
        "--cpu-bind=cores",
        "--mpi=cray_shasta",
    ]


def test_hydra_hands_on_the_whole_environment():
    command = engines.mpirun(wanted(2), "mpich")
    assert command == [*("mpirun", "-n", "2", "-bind-to", "none", "-prepend-rank", "-genvall", "python3", "-m", MODULE)]
    assert ["-genv", "I_MPI_PIN=0"] == engines.mpirun(wanted(2), "intel")[3:5]


def test_srun_binds_nothing_and_speaks_no_mpi_unless_it_must():
    options = ("--kill-on-bad-exit=1", "--cpu-bind=none", "--mpi=none", "--export=ALL")
    assert engines.srun(wanted(4, "-N2")) == [
        *("srun", "--ntasks=4", "--label", *options, "-N2", "python3", "-m", MODULE)
    ]
    assert "--mpi=pmix" in engines.srun(wanted(4), "pmix")


def test_a_step_within_a_step_shares_its_resources():
    assert "--overlap" not in engines.srun(wanted(environ=ALLOCATION))
    assert "--overlap" in engines.srun(wanted(environ=ALLOCATION | {"SLURM_STEP_ID": "4294967290"}))


def test_torchrun_stands_alone_on_one_node():
    assert engines.torchrun(wanted(4, "--monitor-interval=0.5")) == [
        *("python3", "-m", "torch.distributed.run", "--nproc-per-node=4", "--max-restarts=0", "--tee=3"),
        *("--log-dir=/f", "--standalone", "--monitor-interval=0.5", "-m", MODULE),
    ]


def test_torchrun_in_an_allocation_is_started_once_a_node():
    command = engines.torchrun(wanted(4, environ=ALLOCATION), "host:1234", "run")
    assert command[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    agent = command[command.index("python3") :]
    assert {"--nproc-per-node=2", "--nnodes=2", "--rdzv-endpoint=host:1234", "--rdzv-id=run"} <= set(agent)
    assert "--standalone" not in agent


def test_torchrun_needs_as_many_ranks_on_each_node():
    with pytest.raises(BadInput, match="3 ranks on 2 nodes under torchrun"):
        engines.torchrun(wanted(3, environ=ALLOCATION))
    assert "--nproc-per-node=1" in engines.torchrun(wanted(1, environ=ALLOCATION))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("mpirun", "--hostfile 'my hosts'", ("--hostfile", "my hosts")),
        ("srun", "-N2 --gres=gpu:8", ("-N2", "--gres=gpu:8")),
        ("torchrun", "", ()),
    ],
)
def test_arguments_are_read_as_in_a_shell(name, text, expected):
    assert parse_arguments(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mpirun", "--hostfile 'my", "No closing quotation"),
        ("mpirun", "-np 4", "the number of ranks comes from the tests"),
        ("srun", "--ntasks=4", "the number of ranks comes from the tests"),
        ("torchrun", "--nnodes=2 --rdzv-endpoint=a:1", "start `torchrun --nnodes=… -m pytest …` on every node"),
    ],
)
def test_arguments_that_cannot_be_are_refused(name, text, said):
    with pytest.raises(BadInput) as caught:
        parse_arguments(name, text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("version", "family"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", "openmpi"),
        ("mpirun (Open MPI) 5.0.6", "openmpi"),
        ("mpirun (IBM Spectrum MPI) 10.3", "openmpi"),
        ("HYDRA build details:\n    Version:    4.0.2", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.12 Build 20240213", "intel"),
    ],
)
def test_mpirun_is_known_by_its_version(version, family):
    assert mpi_family(version) == family


def test_an_unknown_mpirun_is_said():
    with pytest.raises(BadInput, match=r"says 'SGI MPT 2.25'; expected Open MPI, MPICH"):
        mpi_family("SGI MPT 2.25\n")


def test_slurm_without_pmix_is_said():
    assert (
        mpi_plugin("MPI plugin types are...\n\tpmix\n\tnone\nspecific pmix plugin versions available: pmix_v4")
        == "pmix"
    )
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


@pytest.mark.parametrize(
    ("text", "dialect", "expected"),
    [
        (OPENMPI_OUTPUT, "openmpi", {0: "hello 0\n", 1: "hello 1\n"}),
        (OPENMPI_5, "openmpi", {0: "hello\n", 1: "there\n"}),
        (SRUN_OUTPUT, "srun", {0: "hello 0\n", 1: "2: this is rank 1's\n"}),
        (TORCHRUN_OUTPUT, "torchrun", {1: "hello 1\n"}),
        ("[0] hello\n[1] there\n", "mpich", {0: "hello\n", 1: "there\n"}),
    ],
)
def test_what_ranks_print_is_told_apart(text, dialect, expected):
    found = by_rank(text, dialect)
    found.pop(None, None)
    assert found == expected


@pytest.mark.parametrize(
    ("text", "dialect", "expected"),
    [
        (OPENMPI_OUTPUT, "openmpi", {1: "killed by SIGKILL"}),
        (OPENMPI_EXIT, "openmpi", {3: "exit code 7"}),
        (OPENMPI_5, "openmpi", {1: "exit code 7"}),
        (
            SRUN_OUTPUT,
            "srun",
            {
                0: "killed by SIGTERM",
                1: "killed by SIGSEGV",
                2: "killed by SIGTERM",
                3: "killed by SIGTERM",
                4: "exit code 3",
                5: "as srun says: Out Of Memory",
                6: "killed by SIGABRT",
            },
        ),
        (TORCHRUN_OUTPUT, "torchrun", {0: "killed by SIGTERM", 1: "exit code 3"}),
        ("BAD TERMINATION", "mpich", {}),
    ],
)
def test_the_end_of_a_rank_is_read_from_what_its_launcher_says(text, dialect, expected):
    assert {rank: how.partition(" (")[0] for rank, how in fates(text, dialect).items()} == expected


def test_last_words_say_something():
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


def gone(pid):
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until(condition):
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "package"), [("mpirun", "openmpi-bin"), ("srun", "slurm-client")])
def test_a_launcher_that_is_not_there_is_said_with_its_package(scene, name, package):
    with pytest.raises(BadInput, match=f"`{name}` is not in PATH; .*{package}"):
        Launched(name).start(2, {})


def test_a_launcher_that_ends_before_ranks_come_is_trouble_with_its_words(scene):
    scene.put("srun", "echo 'srun: error: Unable to allocate resources: Invalid partition' >&2; exit 1")
    placement = Launched("srun", ("-p", "nosuch"))
    placement.start(2, {})
    until(placement.trouble)
    assert placement.trouble() == (
        "srun has ended: exit code 1\nsrun: error: Unable to allocate resources: Invalid partition"
    )
    placement.kill()


def test_trouble_shows_what_a_rank_said_too(scene):
    scene.put(
        "srun", "echo \"1: ImportError: no module\"; echo 'srun: error: n2: task 1: Exited with exit code 1'; exit 1"
    )
    placement = Launched("srun")
    placement.start(2, {})
    until(placement.trouble)
    assert "ImportError: no module\nsrun: error: n2: task 1" in placement.trouble()
    assert (placement.fate(1), placement.fate(0)) == ("exit code 1", "")
    placement.kill()


@pytest.mark.parametrize(("version", "fate"), [("4.1.4", "exit code 0, as mpirun tells of no failure"), ("5.0.6", "")])
def test_no_failure_is_told_only_of_a_launcher_whose_reports_are_known(scene, monkeypatch, version, fate):
    monkeypatch.setattr(launching, "FATE_S", 0.1)
    scene.put("mpirun", f'[ "$1" = --version ] && echo "mpirun (Open MPI) {version}" && exit; exec sleep 600')
    placement = Launched("mpirun")
    placement.start(2, {})
    try:
        assert placement.fate(1) == fate
    finally:
        placement.kill()


def test_a_launcher_that_ended_well_is_believed_whatever_its_version(scene):
    scene.put("mpirun", 'echo "mpirun (Open MPI) 5.0.6"')
    placement = Launched("mpirun")
    placement.start(2, {})
    try:
        assert placement.fate(1).startswith("exit code 0")
    finally:
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


def test_the_secret_is_in_the_environment_and_in_no_command_line(scene):
    scene.put(
        "mpirun",
        '[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit; echo "args $*"; echo "key $' + KEY + '"',
    )
    placement = Launched("mpirun")
    placement.start(2, {KEY: "5ec4e7"})
    assert placement.wait(20) or placement.kill()
    placement.start(2, {KEY: "5ec4e7"})
    until(placement.trouble)
    args, key = placement.tail(0).splitlines()
    assert "5ec4e7" not in args
    assert key == "key 5ec4e7"
    placement.kill()


def test_ranks_do_not_see_the_launch_that_pytest_itself_is_in(scene, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}.items():
        monkeypatch.setenv(name, value)
    scene.put("srun", 'echo "rank ${RANK:-none} ${TORCHELASTIC_RUN_ID:-none}"')
    placement = Launched("srun")
    placement.start(2, {})
    until(placement.trouble)
    assert placement.tail(0) == "rank none none"
    placement.kill()


def test_what_ignores_the_end_is_killed_with_its_children(scene, monkeypatch):
    monkeypatch.setattr(launching, "TERMINATE_S", 0.3)
    # A child in a session of its own, as torchrun's ranks are.
    child = f"{sys.executable} -c 'import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)'"
    scene.put("srun", f"trap '' TERM; {child} & wait; sleep 600")
    placement = Launched("srun")
    placement.start(1, {})
    until(lambda: placement.tail(0))
    pid = int(placement.tail(0))
    placement.kill()
    # Its parent is gone, and whoever inherited it may not have reaped it yet.
    until(lambda: gone(pid))
    assert placement.trouble() == ""


@pytest.mark.parametrize("listing", ["exit 3", "echo 'MPI plugin types are...'"])
def test_srun_is_asked_for_pmix_only_where_mpi_is_needed(scene, listing):
    scene.put("srun", f'[ "$1" = --mpi=list ] && {{ {listing}; exit; }}; exit 0')
    with pytest.raises(BadInput, match="--mpi=list"):
        Launched("srun", mpi=True).start(1, {})
    placement = Launched("srun")
    placement.start(1, {})
    assert placement.wait(20)


PROGRAM = """
import os, signal, sys, time
from pytest_roofline.ranks.identity import identify
identity = identify(os.environ)
print(f"rank {identity.rank} of {identity.size}", os.environ["ROOFLINE_RANK_CONTROLLER"], flush=True)
if identity.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


@pytest.fixture
def small_rank(tmp_path, monkeypatch):
    """A small script in place of the rank."""
    (tmp_path / "small_rank.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(engines, "MODULE", "small_rank")


@pytest.mark.parametrize("name", ["mpirun", "torchrun"])
def test_a_real_launcher_tells_of_a_rank_that_was_killed(small_rank, name):
    require_tools(*(["mpirun"] if name == "mpirun" else []))
    placement = Launched(name)
    placement.start(2, {KEY: "5ec4e7"})
    until(lambda: "rank 1 of 2 5ec4e7" in placement.tail(1))
    until(placement.trouble)
    assert placement.fate(1).startswith("killed by SIGKILL")
    assert placement.trouble().startswith(f"{name} has ended: ")
    placement.kill()


def test_srun_starts_ranks_on_two_nodes(small_rank, slurm, monkeypatch):
    for name, value in slurm.environ.items():
        monkeypatch.setenv(name, value)
    placement = Launched("srun", ("-N2",))
    placement.start(2, {KEY: "5ec4e7"})
    until(lambda: "rank 1 of 2 5ec4e7" in placement.tail(1))
    until(placement.trouble)
    assert placement.fate(1).startswith("killed by SIGKILL")
    placement.kill()


def test_torchrun_starts_ranks_on_the_nodes_of_an_allocation(small_rank, slurm):
    program = """
import time
from pytest_roofline.ranks import engines
from pytest_roofline.ranks.launching import Launched
engines.MODULE = "small_rank"
placement = Launched("torchrun")
placement.start(2, {"ROOFLINE_RANK_CONTROLLER": "5ec4e7"})
while not placement.trouble():
    time.sleep(0.05)
print(placement.fate(1), "|", "rank 0 of 2" in placement.tail(0), "rank 1 of 2" in placement.tail(0))
placement.kill()
"""
    done = subprocess.run(
        ["salloc", "-N2", "-n2", sys.executable, "-c", program],
        env=os.environ | slurm.environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout.startswith("killed by SIGKILL"), done.stdout[-12:]) == (True, "| True True\n"), done.stderr
