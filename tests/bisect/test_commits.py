"""A history of commits in a temporary repository."""

import signal
from pathlib import Path

import pytest

from pytest_roofline.bisect import cli, measuring
from pytest_roofline.bisect.candidates import row_between
from pytest_roofline.core.errors import BadInput

from ..ab.conftest import git
from .conftest import RUN, steps, write


def test_a_merge_is_one_change_and_a_checkout_with_changes_is_the_last_candidate(history):
    commits = history(lambda _: 1.0)
    git(".", "checkout", "-q", "-b", "side", "HEAD~3")
    write("other.py", "")
    git(".", "add", "-A")
    git(".", "commit", "-q", "-m", "side")
    git(".", "checkout", "-q", "main")
    git(".", "merge", "-q", "--no-ff", "-m", "merge", "side")
    merge = f"commit:{git('.', 'rev-parse', 'HEAD')[:12]}"
    here = Path.cwd()
    assert row_between("HEAD~3", "HEAD", here, pre=False) == [*commits[-3:], merge]
    assert row_between("HEAD~3", ".", here, pre=False) == [*commits[-3:], "."]
    write("bench.py", "changed")
    assert row_between("HEAD~1,build=make", ".", here, pre=False) == [
        f"{commits[-1]},build=make",
        f"{merge},build=make",
        ".",
    ]
    with pytest.raises(BadInput, match="is no ancestor of the other side; expected one, such as"):
        row_between("HEAD", "HEAD~3", here, pre=False)


def test_a_spent_budget_says_what_is_left_and_resume_goes_on_there(bisect, history, monkeypatch):
    commits = history(lambda number: 1.2 if number >= 11 else 1.0)
    measure, places = measuring.Bench.measure, []

    def late(bench, place):
        places.append(place)
        if len(places) == 3:
            raise measuring.BudgetSpent
        measure(bench, place)

    monkeypatch.setattr(measuring.Bench, "measure", late)
    report = bisect("--name=one", "--seed=1", "HEAD~15", "HEAD", *RUN, status=2)
    assert report["sentence"].startswith(
        f"--budget is spent: 4 candidates left, {commits[8]} … {commits[11]} ("
    )
    before = bisect.calls
    report = bisect("--resume=one")
    assert steps(report) == [(commits[10], commits[11])]
    # The ends were not measured again, and no candidate twice.
    assert "bench.ms is slower at the bad end" not in bisect.said
    assert len(places) == len(set(places)) + 1
    assert bisect.calls > before


# Ends its caller as `kill` does, once, in the process of this number, and would go on for an hour.
KILLER = """
import signal, time
if number == {number}:
    pathlib.Path(os.environ["CALLS"] + ".pid").write_text(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(3600)
"""


# The third process is one of the ends, the twentieth one of a step.
@pytest.mark.parametrize("number", [2, 20])
def test_a_search_that_is_killed_leaves_no_process_and_goes_on(bisect, history, number):
    commits = history(lambda step: f"{1.2 if step >= 11 else 1.0}\n{KILLER.format(number=number)}")
    said = bisect("--name=one", "--seed=1", "--dir=saved", "HEAD~15", "HEAD", *RUN, status=2)
    assert said.endswith("to continue it, type: roofline bisect --resume one --dir saved\n")
    pid = Path(f"{bisect.folder}/calls.pid").read_text(encoding="utf-8")
    assert not Path("/proc", pid).exists()
    assert len(git(".", "worktree", "list").splitlines()) == 1
    report = bisect("--resume=one", "--dir=saved")
    assert steps(report) == [(commits[10], commits[11])]


def test_a_search_that_is_interrupted_before_it_begins_says_how_to_go_on(
    bisect, history, monkeypatch
):
    history(lambda _: 1.0)
    monkeypatch.setattr(cli, "Search", lambda *_: signal.raise_signal(signal.SIGTERM))
    printed = bisect("--name=one", "HEAD~1", "HEAD", *RUN, status=2)
    assert printed.endswith(
        "the search is interrupted; to continue it, type: roofline bisect --resume one\n"
    )


def test_what_cannot_be_searched_is_refused_with_what_to_type(bisect, history):
    history(lambda _: 1.0)
    for words, expected in {
        ("HEAD",): "an end is missing; expected two versions of a package (with:triton==3.6.*",
        (".", "HEAD"): "have no candidates between them; expected two versions",
        ("with:a==1", "with:b==2"): "name two packages; expected",
        ("with:a==1==", "with:a==2"): "is no requirement",
        ("HEAD", "HEAD"): "are the same; expected two ends that differ",
        ("--resume=absent",): "holds no `roofline bisect` run 'absent'; expected a run that was "
        "interrupted; to begin a run, type: roofline bisect GOOD BAD",
        ("--resume=absent", "HEAD", "."): "was given together with sides and arguments; a resumed",
        ("--resume=absent", "--seed=1"): "was given together with --seed; a resumed run keeps its",
    }.items():
        assert expected in bisect(*words, status=2)
