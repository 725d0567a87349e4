"""Whole searches: a history of commits in a temporary repository, whose programs print scripted figures."""

import re

import pytest

from ...ab.conftest import git
from ...bisect.conftest import RUN, steps


@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_the_first_slow_commit_of_a_history_is_named_and_confirmed(bisect, history, noise):
    commits = history(lambda number: 1.2 if number >= 11 else 1.0, noise)
    report = bisect("--seed=1", "--tolerance=3%", "HEAD~15", "HEAD", *RUN)
    assert steps(report) == [(commits[10], commits[11])]
    (step,) = report["steps"]
    assert (step["verdict"], step["broken"]) == ("REGRESSED", [])
    assert step["command"] == (
        f"roofline ab {commits[10]} {commits[11]} --tolerance 3% --run '{{python}} -I -S bench.py' --lower ms"
    )
    assert "bench.ms is slower since commit:" in report["sentence"]
    # Nothing stays of the worktrees, and nothing changes in the checkout.
    assert git(".", "status", "--porcelain", "--ignored").split() == ["!!", ".roofline/"]
    assert len(git(".", "worktree", "list").splitlines()) == 1
    # Four of fourteen commits are enough, each with a line.
    assert bisect.said.count(" so far\n") in ((4,) if noise == 0 else (4, 5, 6))


def test_ends_that_do_not_differ_leave_nothing_to_bisect(bisect, history):
    history(lambda _: 1.0, 0.005)
    report = bisect("--seed=1", "--tolerance=3%", "HEAD~15", "HEAD", *RUN, status=2)
    assert report["steps"] == []
    assert re.fullmatch(
        r"nothing to bisect at 3 %: bench.ms [+-]0\.\d % \(99 % interval .* … .* %\)",
        report["sentence"],
    )
    # The ends alone ran, four times each beside a second one and their warm-ups.
    assert bisect.calls <= 12


def test_commits_that_cannot_run_stay_in_the_range_with_the_reason(bisect, history):
    commits = history(lambda number: 1.2 if number >= 7 else 1.0, broken=(7, 8))
    report = bisect("--seed=1", "HEAD~15", "HEAD", *RUN)
    assert steps(report) == [(commits[6], commits[9])]
    reasons = report["steps"][0]["broken"]
    assert [reason.partition(" (")[0] for reason in reasons] == commits[7:9]
    assert all("No module named 'absent'" in reason for reason in reasons)
    assert "may be the first slow one as well" in report["sentence"]


def test_two_steps_are_both_named_and_confirmed(bisect, history):
    commits = history(lambda number: 1.0 + 0.2 * (number >= 4) + 0.3 * (number >= 12))
    report = bisect("--seed=1", "HEAD~15", "HEAD", *RUN)
    assert steps(report) == [(commits[3], commits[4]), (commits[11], commits[12])]
    assert [step["verdict"] for step in report["steps"]] == ["REGRESSED"] * 2
