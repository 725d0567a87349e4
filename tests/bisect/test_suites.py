"""A suite of tests between two commits, whose processes are scripted: times, compiled kernels, and tests that fail."""

from itertools import groupby
from pathlib import Path

import pytest

from pytest_roofline.ab import side_process, sides

from ..ab.conftest import World, git
from .conftest import steps, write

COMMITS = 8
KERNEL = "test_it.py::test_kernel[sm_90-4]"


class History(World):
    """Scripted processes of every commit: a side is the number of the commit that its folder holds."""

    def run_child(self, command, folder, order, *, cwd, **settings):
        number = int((cwd / "number").read_text())
        name = Path(settings["environ"]["TRITON_CACHE_DIR"]).parent.name
        for test_id in self.tests:
            self.slow[name, test_id] = self.of_commit(number, test_id)
        self.numbers.append((name, number, order["ids"]))
        return super().run_child(command, folder, order, cwd=cwd, **settings)


@pytest.fixture
def history(make, bisect, monkeypatch):
    """A repository of commits, and what their processes measure."""
    git(".", "init", "-q", "-b", "main")
    hashes = []
    for number in range(COMMITS):
        write("number", str(number))
        git(".", "add", "-A")
        git(".", "commit", "-q", "-m", str(number))
        hashes.append(f"commit:{git('.', 'rev-parse', 'HEAD')[:12]}")
    world = History(make, Path.cwd())
    world.hashes, world.numbers = hashes, []
    monkeypatch.setattr(side_process, "run_child", world.run_child)
    monkeypatch.setattr(sides, "_import_paths", lambda *_: ([], []))
    return world


def test_a_search_runs_the_test_that_is_clearly_slower_and_no_other(bisect, history):
    slow = history.tests[3]
    history.of_commit = lambda number, test_id: 1.2 if number >= 5 and test_id == slow else 1.0
    report = bisect("--seed=1", "HEAD~7", "HEAD", "--", "test_it.py")
    assert steps(report) == [(history.hashes[4], history.hashes[5])]
    assert {tuple(ids) for name, _, ids in history.numbers if name == "M"} == {(slow,)}
    assert report["steps"][0]["command"].endswith(" -- test_it.py")


def processes_of_ends(history):
    """The number of processes ahead of the first block with a candidate, which begins with an end."""
    return history.arms.index("M") - 1


def test_ends_that_clearly_differ_are_compared_in_two_blocks(bisect, history):
    history.of_commit = lambda number, test_id: 1.2 if number >= 5 else 1.0
    bisect("--seed=1", "HEAD~7", "HEAD", "--", "test_it.py")
    # Two blocks of four, and a second A in one of them.
    assert processes_of_ends(history) == 9


def test_noise_takes_more_blocks_and_a_candidate_that_is_measured_again_stays_warm(bisect, history):
    history.tests, history.noise = history.tests[:1], 0.03
    history.of_commit = lambda number, test_id: 1.1 if number >= 5 else 1.0
    bisect("--seed=2", "HEAD~7", "HEAD", "--", "test_it.py")
    assert processes_of_ends(history) > 9
    middles = [number for name, number, _ in history.numbers if name == "M"]
    lengths = [len(list(group)) for _, group in groupby(middles)]
    # A warm-up, and a process for each block in a row of the same candidate.
    assert (max(lengths), history.warmed["M"]) == (3, len(lengths))


def test_a_test_of_other_work_does_not_end_the_comparison_of_the_ends(bisect, history):
    history.tests, history.noise = history.tests[:2], 0.03
    slow, other_work = history.tests

    def of_commit(number, test_id):
        # A slowdown that takes more blocks than the other work, which is never searched.
        return 1.0 if number < 5 else {slow: 1.1, other_work: "more"}[test_id]

    history.of_commit = of_commit
    report = bisect("--seed=2", "HEAD~7", "HEAD", "--", "test_it.py")
    assert [(history.hashes[4], history.hashes[5])] == steps(report)
    assert processes_of_ends(history) > 9


def test_a_commit_whose_test_fails_stays_in_the_range(bisect, history):
    def of_commit(number, test_id):
        if test_id == history.tests[0] and number in (4, 5):
            return "fail"
        return 1.2 if number >= 5 else 1.0

    history.tests = history.tests[:1]
    history.of_commit = of_commit
    report = bisect("--seed=1", "HEAD~7", "HEAD", "--", "test_it.py")
    assert steps(report) == [(history.hashes[3], history.hashes[6])]
    assert all("wrong data" in reason for reason in report["steps"][0]["broken"])


def test_of_a_kernel_one_process_decides_and_a_second_a_guards(bisect, history):
    history.tests = [KERNEL]
    history.of_commit = lambda number, test_id: 1.0

    def compiled(side):
        number = next(number for name, number, _ in reversed(history.numbers))
        # The spills differ between any two processes, so that no step of theirs is searched. Two commits between the
        # ends take fewer registers than either, which is no slowdown.
        registers = 96 if number >= 6 else 60 if number in (3, 4) else 64
        return {"registers": registers, "spills": len(history.numbers)}

    history.kernels[KERNEL] = compiled
    report = bisect("--seed=1", "HEAD~7", "HEAD", "--", "test_it.py")
    assert steps(report) == [(history.hashes[5], history.hashes[6])]
    assert "registers 64 → 96" in report["steps"][0]["change"]
    assert f"] is worse since {history.hashes[6]}: " in report["sentence"]
    of_middle = [number for name, number, _ in history.numbers if name == "M"]
    assert (len(of_middle), len(set(of_middle))) == (3, 3)
