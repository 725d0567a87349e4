"""docs/ci/*-ab*.yml: valid, and safe beside a stranger's code; what they run finds a slowdown, and comments once."""

import copy
import os
import subprocess
import sys

import pytest
import yaml

from .conftest import PACKAGE, SHIPPED, files
from .expressions import filled, true
from .github import Runner, steps

TEXTS = {
    name: (SHIPPED / f"{name}.yml").read_text(encoding="utf-8")
    for name in ("github-ab", "github-ab-comment", "gitlab-ab")
}
GITHUB, COMMENT, GITLAB = map(yaml.safe_load, TEXTS.values())
MEASURE, JOB = GITHUB["jobs"]["ab"], COMMENT["jobs"]["comment"]
CALL = "./.github/actions/roofline"
MARK = "<!-- roofline ab -->"
# Answers as GitHub's own program does, and writes down what it was told.
GH = """#!/usr/bin/env bash
echo "$@" >> "$STANDIN_LOG"
case "$*" in
*/pulls*) [ "$COMMIT" = gone ] || echo "$STANDIN_PULLS" ;;
*"--paginate"*) echo "$STANDIN_KNOWN" ;;
*) cat body.md >> "$STANDIN_LOG" ;;
esac
"""


def git(folder, *words):
    who = ("-c", "user.name=me", "-c", "user.email=me@here")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_the_files_obey_the_published_schemas_and_the_rules_of_safe_ones():
    for name in TEXTS:
        schema = "vendor.gitlab-ci" if name == "gitlab-ab" else "vendor.github-workflows"
        command = [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            schema,
            str(SHIPPED / f"{name}.yml"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    # What runs a stranger's code can read, and keeps no token; what may write runs none of it.
    assert GITHUB["permissions"] == {"contents": "read"}
    assert steps(MEASURE)["actions/checkout@v4"]["with"] == {
        "fetch-depth": 0,
        "persist-credentials": False,
    }
    assert "secrets" not in "".join(TEXTS.values())
    assert COMMENT["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert [step.get("uses") for step in JOB["steps"]] == ["actions/download-artifact@v4", None]
    # The steps of the action are looked at with those of the other workflow that calls it.
    assert list(steps(MEASURE)) == ["actions/checkout@v4", CALL]
    assert [step for step in JOB["steps"] if "${{" in step.get("run", "")] == []
    assert "${{" not in steps(MEASURE)[CALL]["with"]["run"]
    assert COMMENT[True] == {
        "workflow_run": {"workflows": [GITHUB["name"]], "types": ["completed"]}
    }
    own, theirs = (
        {"event": {"pull_request": {"head": {"repo": {"full_name": name}}}}, "repository": "ours"}
        for name in ("ours", "fork")
    )
    assert [true(MEASURE["if"], github=one) for one in (own, theirs)] == [True, False]
    ran = [
        {"event": {"workflow_run": {"event": "pull_request", "conclusion": how}}}
        for how in ("failure", "skipped")
    ]
    assert [true(JOB["if"], github=one) for one in ran] == [True, False]


@pytest.fixture
def branch(checkout):
    """A checkout whose branch made one copy slower than on main."""
    suite = checkout.suite / "perf_tests" / "test_memcpy.py"
    git(checkout.path, "init", "-q", "-b", "main")
    git(checkout.path, "add", "-A")
    git(checkout.path, "commit", "-q", "-m", "before")
    git(checkout.path, "checkout", "-q", "-b", "feature")
    text = suite.read_text()
    assert "size_bytes / 55e9" in text
    suite.write_text(text.replace("size_bytes / 55e9", "size_bytes / 45e9"))
    git(checkout.path, "commit", "-q", "-a", "-m", "slower")
    return checkout


def test_the_job_finds_a_slowdown_and_leaves_the_comment_and_the_runs_of_both_sides(branch):
    job = copy.deepcopy(MEASURE)
    inputs = steps(job)[CALL]["with"]
    assert inputs["package"] == ""
    inputs["package"] = PACKAGE
    measure = inputs["run"].replace("\\\n", " ").partition(" || ")[0]
    assert measure.split() == GITLAB["roofline ab"]["script"][0].split()
    # Some tests of the stand-in are enough.
    workflow = GITHUB | {"env": {"ROOFLINE_TESTS": "64MiB or 4KiB"}}
    done = Runner(branch, branch.path.parent, workflow, job).run("pull_request")
    printed = done.printed["Measure"]
    assert done.failed == "Measure", printed
    assert "RED: 1 REGRESSED, 2 of 3 fast enough" in printed.splitlines()
    assert done.report == {"ab", "comment.md", "runs"}
    assert len(files(done.uploaded / "runs")) == 3
    comment = (done.uploaded / "comment.md").read_text()
    head, sentence, *_ = comment.splitlines()
    assert (head, sentence) == (MARK, "**`RED: 1 REGRESSED, 2 of 3 fast enough`**")
    assert comment in done.summary


def test_on_gitlab_the_python_that_measures_is_asked_for_torch(checkout):
    script = "\n".join(GITLAB["roofline ab"]["before_script"])
    for environ, expected in [({"STANDIN_NO_TORCH": "1"}, (1, False)), ({}, (0, True))]:
        base = checkout.environment() | {"ROOFLINE_PACKAGE": PACKAGE} | environ
        done = checkout.bash(script, base)
        assert expected == (done.returncode, checkout.log.exists()), done.stdout + done.stderr


def test_the_comment_is_written_once_and_replaced_and_only_on_the_pull_request_that_github_names(
    tmp_path,
):
    step = steps(JOB)["Comment"]
    ran = {
        "id": 1,
        "head_repository": {"owner": {"login": "them"}},
        "head_branch": "$(touch hacked)",
        "head_sha": "c0ffee",
    }
    github = {"token": "t", "repository": "ours/project", "event": {"workflow_run": ran}}
    environ = {name: filled(text, github=github) for name, text in step["env"].items()}
    programs, log = tmp_path / "programs", tmp_path / "log"
    programs.mkdir()
    (programs / "gh").write_text(GH)
    (programs / "gh").chmod(0o755)
    environ |= {"PATH": f"{programs}:{os.environ['PATH']}", "STANDIN_LOG": str(log)}

    def comment(text, **more):
        log.write_text("")
        (tmp_path / "comment.md").write_bytes(text.encode())
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environ | {"STANDIN_KNOWN": "", "STANDIN_PULLS": "7"} | more,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout, log.read_text()

    text = f"{MARK}\n**GREEN: all**\n" + "µ" * 40_000
    _, told = comment(text)
    assert "head=them:$(touch hacked)" in told
    assert "--method POST repos/ours/project/issues/7/comments -F body=@body.md" in told
    assert ("**GREEN: all**" in told, len(told.encode()) < 61_000) == (True, True)
    _, told = comment(text, STANDIN_KNOWN="11\n12")
    assert "--method PATCH repos/ours/project/issues/comments/11 -F" in told
    # A branch may have a pull request into each of several others.
    _, told = comment(text, STANDIN_PULLS="7\n8")
    posts = [f"--method POST repos/ours/project/issues/{number}/comments" for number in (7, 8)]
    assert [True, True] == [post in told for post in posts]
    assert comment("mine\n") == ("the artifact has no comment of roofline ab\n", "")
    said, told = comment(text, COMMIT="gone")
    assert ("no open pull request is at gone" in said, "--method P" in told) == (True, False)
    assert not (tmp_path / "hacked").exists()
