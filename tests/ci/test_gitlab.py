"""docs/ci/gitlab-ci.yml: valid, and its scripts do what they are for, run as a runner of GitLab runs them."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from .conftest import REPORT, SHIPPED, WANTED, Checkout

FILE = SHIPPED / "gitlab-ci.yml"
JOB = yaml.safe_load(FILE.read_text(encoding="utf-8"))["roofline"]
SHELL = ("-eo", "pipefail")


def run(checkout, number, options="", **environ):
    """A job: its status, and what it printed, also in what follows the script whatever its status."""
    base = checkout.environment(options) | JOB["variables"] | environ
    base |= {"GITLAB_CI": "true", "CI_PROJECT_DIR": str(checkout.path), "CI_JOB_ID": str(number)}
    done = checkout.bash("\n".join([*JOB["before_script"], *JOB["script"]]), base, *SHELL)
    after = checkout.bash("\n".join(JOB["after_script"]), base, *SHELL)
    return SimpleNamespace(
        status=done.returncode, said=done.stdout + done.stderr, after=after, report=checkout.report()
    )


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Jobs of one project: without a baseline, with one, and slowed down."""
    checkout = Checkout(tmp_path_factory.mktemp("gitlab"))
    first = run(checkout, 1, ROOFLINE_PROPOSE="true")
    checkout.approve("roofline-report/proposal.json")
    (checkout.path / "roofline-report" / "proposal.json").unlink()
    healthy = run(checkout, 2)
    red = run(checkout, 3, "--roofline-drill=100%")
    return SimpleNamespace(first=first, healthy=healthy, red=red, checkout=checkout)


def test_the_file_obeys_the_published_schema():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stdout


def test_it_runs_by_schedule_for_merge_requests_and_by_hand():
    told = [re.fullmatch(r'\$CI_PIPELINE_SOURCE == "(\w+)"', rule["if"])[1] for rule in JOB["rules"]]
    assert told == ["schedule", "merge_request_event", "web"]


def test_no_two_jobs_share_the_gpu():
    assert (JOB["resource_group"], JOB["interruptible"]) == ("roofline-gpu", False)


def test_merge_requests_leave_no_runs():
    policies = {
        rule["if"].split('"')[1]: (JOB["variables"] | rule.get("variables", {}))["ROOFLINE_CACHE"]
        for rule in JOB["rules"]
    }
    assert policies == {"schedule": "pull-push", "merge_request_event": "pull", "web": "pull-push"}
    assert (JOB["cache"]["policy"], JOB["cache"]["paths"]) == ("$ROOFLINE_CACHE", [".roofline/runs"])


def test_the_report_is_an_artifact_whatever_the_outcome(jobs):
    told = JOB["artifacts"]
    assert (told["when"], told["paths"]) == ("always", ["roofline-report/"])
    assert all((jobs.checkout.path / path).exists() for path in (*told["paths"], told["reports"]["junit"]))
    assert [REPORT, REPORT] == [jobs.healthy.report, jobs.red.report]


def test_torch_and_triton_of_the_machine_are_pinned_while_installing(jobs):
    command, *constraints = jobs.checkout.log.read_text().splitlines()[: 1 + len(WANTED)]
    assert command == f"-m pip install --constraint .venv/installed.txt {JOB['variables']['ROOFLINE_PACKAGE']}"
    assert WANTED == constraints


def test_a_machine_without_torch_installs_nothing(checkout):
    base = checkout.environment() | JOB["variables"] | {"CI_PROJECT_DIR": str(checkout.path)}
    done = checkout.bash("\n".join(JOB["before_script"]), base | {"STANDIN_INSTALLED": "numpy==2.2.0\n"}, *SHELL)
    assert (done.returncode, done.stdout) == (1, "the python3 of this runner has no torch\n")
    assert not checkout.log.exists()


def test_without_a_baseline_it_is_red_and_proposes_one_when_asked(jobs):
    assert jobs.first.status == 1
    assert "NO BASELINE" in jobs.first.said
    assert REPORT | {"proposal.json"} == jobs.first.report


def test_a_healthy_machine_is_green(jobs):
    assert jobs.healthy.status == 0, jobs.healthy.said
    assert "4 of 4 compared: 4 PASSED" in jobs.healthy.said


def test_a_slower_machine_is_red(jobs):
    assert jobs.red.status == 1
    assert "4 REGRESSED" in jobs.red.said


def test_what_follows_the_script_succeeds_after_green_and_after_red(jobs):
    for job in (jobs.first, jobs.healthy, jobs.red):
        assert job.after.returncode == 0, job.after.stdout + job.after.stderr


def test_runs_are_kept_by_job(jobs):
    assert {"gitlab-1", "gitlab-2", "gitlab-3"} <= jobs.checkout.runs()
