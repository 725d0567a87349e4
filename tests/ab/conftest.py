"""Two sides whose processes are scripted: how slow each test is on each side, and what goes wrong in which process."""

import json
import random
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.ab import side_process, sides
from pytest_roofline.baselines.runs import encode_line, read_run
from pytest_roofline.cli.main import main
from pytest_roofline.core.facts import Code
from pytest_roofline.core.records import Outcome
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.processes.children import ChildEnd


def git(folder, *words):
    """What git prints in a repository of ours."""
    who = ("-c", "user.name=me", "-c", "user.email=me@here", "-c", "protocol.file.allow=always")
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository whose branch `feature` left `main` by one commit, checked out, in which this process is."""
    folder = tmp_path / "repository"
    (folder / "bench").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for branch, text in (("main", "old"), ("feature", "new")):
        if branch != "main":
            git(folder, "checkout", "-q", "-b", branch)
        (folder / "code.py").write_text(text)
        (folder / "bench" / "test_it.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", text)
    monkeypatch.chdir(folder)
    for name in ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_DIFF_BASE_SHA", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


class World:
    """Stands for the processes of both sides.

    Attributes:
        slow: by side, and by side and test, the factor on its time; of a side also `newer`, whose run files a later
            version wrote; of a test also `fail`, `busy`, `more`, `die`, `gone` or, once warm, `skip`.
        kernels: by test, the figures that it compiles in place of a time; a function of the side's name, which is
            `A again` of the second A, gives them.
        noise: the standard deviation of log seconds between processes.
        during: called in every process with its number, 0 of one that warms up, ahead of its tests.
        calls: of every process that was counted its number, its side, the tests asked for, and its variables.
    """

    def __init__(self, make, path, before=""):
        # What stands before every text of a run.
        self.make, self.path, self.before = make, path, before
        self.tests = [f"{before}test_it.py::test_copy[{number}]" for number in range(6)]
        self.slow, self.noise, self.stray, self.kernels = {}, 0.002, (), {}
        self.during = lambda number: None
        self.commit = lambda cwd: git(cwd, "rev-parse", "HEAD")
        self.calls, self.warmed, self.said = [], Counter(), ""
        # What each counted process was forked from, None of a fresh one.
        self.servers, self.device_type = [], "cuda"

    def run_child(self, command, folder, asked, *, variable, cwd, environ, quiet_s, parent=None):
        """As `processes.children.run_child`, but that no process starts."""
        cache, number = Path(environ["TRITON_CACHE_DIR"]), asked["round"]
        side = cache.parent.name + " again" * cache.name.endswith("-again")
        warming = side_process.WARMING_BUDGET in command
        if warming:
            self.warmed[side] += 1
        else:
            self.calls.append((number, side, tuple(asked["ids"]), environ))
            self.servers.append(parent)
        self.during(0 if warming else number)
        environment = self.make.environment(device_type=self.device_type)
        facts = replace(environment, code=(Code(".", self.commit(cwd)),), variables={})
        (folder / "runs").mkdir()
        lines, started, died = (
            [replace(self.make.header(f"{number}-{side}"), environment=facts)],
            [],
            "",
        )
        for test_id in self.tests if asked["ids"] is None else asked["ids"]:
            factor = self.slow.get((side, test_id), self.slow.get(side, 1.0))
            factor = 1.0 if factor == "skip" and warming else factor
            if factor != "gone":
                started.append(test_id)
            if factor == "die" and not warming:
                died = test_id
                break
            if factor != "gone":
                lines += self.records(test_id, number, side, factor)
        text = "".join(map(encode_line, lines))
        if self.slow.get(side) == "newer":
            text = text.replace('"schema":', '"schema":9', 1)
        (folder / "runs" / "run.jsonl").write_text(text)
        finished = tuple(one for one in started if one != died)
        planned = tuple(self.tests) if asked["ids"] is None else ()
        return ChildEnd(tuple(started), finished, -11 if died else 0, "", planned, self.stray)

    def records(self, test_id, number, side, factor):
        if test_id in self.kernels:
            return self.compiled(test_id, side, factor)
        inside = test_id.partition("[")[2].rstrip("]").split("-")
        key = self.make.key(
            "copy", parameters=dict(zip(("size", "execution"), inside, strict=False))
        )
        spread = random.Random(f"{test_id} {number} {side}").gauss(0, self.noise)
        # Twice the work takes twice the time.
        slowdown = {"more": 2.0}.get(factor, 1.0) if isinstance(factor, str) else factor
        seconds = 1e-3 * (1 + spread) * slowdown
        facts = {
            "test_id": test_id,
            "label": self.before + key.label,
            "process": f"{number}-{side}",
            "gate": True,
        }
        invalid = "other processes kept 1.8 of 2 cores busy" if factor == "busy" else ""
        work = self.make.copy(2**21 if factor == "more" else 2**20)
        one = self.make.measurement(seconds, key=key, invalid=invalid, work=work, **facts)
        ended = {"fail": ("failed", "wrong data"), "skip": ("skipped", "no room")}.get(
            factor, ("passed", "")
        )
        return [one, self.make.outcome(one, ended[0], reason=self.before + ended[1])]

    def compiled(self, test_id, side, factor):
        """The kernel of a test, whose id names its target and further words."""
        target, *words = test_id.partition("[")[2].rstrip("]").split("-")
        parameters = {"target": target} | dict(zip(("num_warps",), words, strict=False))
        key = ResourceKey("flash", parameters, target)
        if factor == "fail":
            return [Outcome(test_id, "failed", reason="no such instruction")]
        kernel = Resources(
            key,
            test_id,
            key.label,
            "process-1",
            self.kernels[test_id](side),
            compiler={"triton": f"3.{side[0]}"},
        )
        return [kernel, Outcome(test_id, "passed")]

    @property
    def arms(self):
        """The sides of all counted processes, in their order."""
        return [side for _, side, _, _ in self.calls]

    def ab(self, *words, status=0):
        """What the command told in JSON, or where it could not say anything on standard error; as it must end."""
        done = CliRunner().invoke(main, ["ab", "--json", *words], catch_exceptions=False)
        assert status == done.exit_code, done.output
        self.said = done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    def run(self, name):
        """A saved run."""
        return read_run(Path(".roofline", "runs", f"{name}.jsonl"))


@pytest.fixture
def world(make, repository, monkeypatch):
    """Both sides of the repository, as they are scripted."""
    world = World(make, repository)
    monkeypatch.setattr(side_process, "run_child", world.run_child)
    # What the interpreter of a side says of itself is asked of a real one in `test_sides.py`.
    monkeypatch.setattr(sides, "_import_paths", lambda *_: ([], []))
    return world


def verdicts(told):
    """By test its verdict."""
    return {row["label"]: row["verdict"] for row in told["tests"]}
