"""`roofline ab` with its real processes: a repository, a scripted device, ranks, signals, and what is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_roofline.baselines.runs import read_run

ROOFLINE = Path(sys.executable).parent / "roofline"
CONFTEST = (
    (Path(__file__).parents[1] / "docs" / "standin" / "scripted.py").read_text(encoding="utf-8")
    + """
import random
from pathlib import Path
from pytest_roofline.settings.round import in_round

@pytest.fixture
def busy(request):
    # Of the side and the process, so that every machine draws the same.
    process = Path(os.environ["TRITON_CACHE_DIR"]).parent.name, in_round(request.config).number
    noise = random.Random(f"{process}{request.node.name}").gauss(0, 0.003)
    return lambda seconds: request.config.fake.work(seconds * (1 + noise))
"""
)
SUITE = """
import pytest
from package import SECONDS
from pytest_roofline import Work

@pytest.mark.parametrize("size", SECONDS)
def test_step(roofline, busy, size):
    roofline.measure(lambda: busy(SECONDS[size]), work=Work(read_bytes=10**8, write_bytes=10**8))

def test_that_measures_nothing():
    raise AssertionError
"""
RANKS = """
import pytest
import torch
import torch.distributed as dist
from pytest_roofline import Work
from pytest_roofline.engine.devices import cpu

# Ranks load this file, too; whatever else runs on the machine, the numbers are to count.
cpu.too_busy = lambda taken: ""
WORK = Work(algbw_bytes=4096, busbw_bytes=4096, read_bytes=4096, write_bytes=4096)

def reduces(rank, numel):
    values = torch.ones(numel)
    return lambda: dist.all_reduce(values)

@pytest.mark.parametrize("world_size", [2], ids=["2ranks"])
def test_all_reduce(roofline, distributed, world_size):
    roofline.measure_ranks(distributed, reduces, 1024, work=WORK, collective="all_reduce")
"""
SLOW = "SECONDS = {'small': 1e-3, 'large': 2.2e-3}"


def git(folder, *words):
    command = ["git", "-C", str(folder), "-c", "user.name=me", "-c", "user.email=me@here", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A branch that made one of two steps slower by 10 %, in a package that is on the path of the checkout."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "bench").mkdir()
    git(folder, "init", "-q", "-b", "main")
    for path, text in (
        (
            "pytest.ini",
            "[pytest]\naddopts = -p no:cacheprovider -p no:hypothesispytest\nroofline_ci = true\n",
        ),
        ("bench/conftest.py", CONFTEST),
        ("bench/test_steps.py", SUITE),
        ("src/package.py", SLOW.replace("2.2", "2.0")),
    ):
        (folder / path).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "before")
    git(folder, "checkout", "-q", "-b", "feature")
    (folder / "src" / "package.py").write_text(SLOW)
    git(folder, "commit", "-q", "-a", "-m", "slower")
    return folder


def environ(repository):
    strange = ("PYTEST_", "GITHUB_", "CI_", "ROOFLINE_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    # As an editable install of the checkout would have it.
    return kept | {
        "PYTHONPATH": str(repository / "src"),
        "TMPDIR": str(repository.parent),
        "WITHOUT_TORCH": "1",
    }


def ab(repository, *words, statuses=(0,)):
    command = [ROOFLINE, "ab", "--json", *words]
    done = subprocess.run(
        command,
        cwd=repository,
        env=environ(repository),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode in statuses, done.stdout + done.stderr
    return json.loads(done.stdout)


def left(repository):
    """What a run left in the folder for temporary files, and of worktrees."""
    kept = [path.name for path in repository.parent.glob("roofline-*")]
    return kept, len(git(repository, "worktree", "list").splitlines()) - 1


def test_a_commit_measures_its_own_code_and_the_slowdown_is_found(repository):
    told = ab(
        repository,
        "--name=one",
        "--seed=1",
        "merge-base",
        ".",
        "--",
        "bench",
        "-k",
        "step",
        "--roofline-ci",
        statuses=(1,),
    )
    assert {row["label"]: row["verdict"] for row in told["tests"]} == {
        "step[large]": "REGRESSED", "step[small]": "PASSED"
    }  # fmt: skip
    assert told["tests"][0]["change"] == pytest.approx(0.1, abs=0.01)
    sides = {
        side: read_run(repository / ".roofline" / "runs" / f"one-{side}.jsonl") for side in "ab"
    }
    commits = {side: run.header.environment.code[0].commit for side, run in sides.items()}
    assert commits == {
        "a": git(repository, "rev-parse", "main"),
        "b": git(repository, "rev-parse", "feature"),
    }
    assert [change for change in told["changed"] if change.startswith("code ")]
    assert not [change for change in told["changed"] if "CACHE" in change]
    assert left(repository) == ([], 0)


def test_whoever_ends_it_leaves_nothing_behind_and_resumes(repository):
    command = [ROOFLINE, "ab", "--name=cut", "--seed=1", "main", ".", "--", "bench", "-k", "step"]
    state = repository / ".roofline" / "ab" / "cut" / "state.json"

    def started(words, processes):
        running = subprocess.Popen(
            words,
            cwd=repository,
            env=environ(repository),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not state.exists() or len(json.loads(state.read_text()).get("taken", [])) < processes:
            assert running.poll() is None, running.communicate()
            time.sleep(0.1)
        return running

    running = started(command, 2)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, "continue with: roofline ab --resume cut" in said) == (2, True)
    assert left(repository) == ([], 0)
    running = started([ROOFLINE, "ab", "--resume=cut"], 4)
    running.kill()
    running.communicate()
    # Its children end with it, and what it could not remove the next one does.
    assert left(repository)[1] == 1
    told = ab(repository, "--resume=cut", statuses=(1,))
    assert {row["label"]: row["verdict"] for row in told["tests"]}["step[large]"] == "REGRESSED"
    assert sum(told["processes"].values()) == len(json.loads(state.read_text())["taken"])
    assert left(repository) == ([], 0)


def test_two_ranks_are_timed_on_both_sides(repository):
    (repository / "bench" / "conftest.py").unlink()
    (repository / "bench" / "test_ranks.py").write_text(RANKS)
    words = (
        "--name=ranks",
        "--processes=2",
        ".",
        ".",
        "--",
        "bench/test_ranks.py",
        "--roofline-device=cpu",
        "--roofline-budget=0.05",
    )
    # How fast two ranks are is this machine's affair, and so is the verdict on two processes a side.
    told = ab(repository, *words, statuses=(0, 1, 2))
    (row,) = told["tests"]
    assert (row["label"], row["processes"], row["baseline_processes"]) == (
        "all_reduce[2ranks]",
        2,
        2,
    )
    runs = [read_run(repository / ".roofline" / "runs" / f"ranks-{side}.jsonl") for side in "ab"]
    assert {one.ranks.size for run in runs for one in run.tested} == {2}
