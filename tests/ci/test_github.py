"""docs/ci/github-actions.yml: valid, and its steps do what they are for, run as a runner of GitHub runs them."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from .conftest import REPORT, SHIPPED, WANTED, Checkout

FILE = SHIPPED / "github-actions.yml"
WORKFLOW = yaml.safe_load(FILE.read_text(encoding="utf-8"))
JOB = WORKFLOW["jobs"]["roofline"]
# YAML 1.1 reads the key `on` as true.
EVENTS = WORKFLOW[True]
STEPS = {step.get("name", step.get("uses")): step for step in JOB["steps"]}
CONDITIONS = {
    None: lambda failed, event, propose: not failed,
    "always()": lambda failed, event, propose: True,
    "always() && inputs.propose": lambda failed, event, propose: propose,
    "always() && github.event_name != 'pull_request'": lambda failed, event, propose: event != "pull_request",
}


class Runner:
    """What a runner does with the steps of the job.

    Args:
        checkout: the repository; its folder is kept from job to job, as the cache keeps the runs.
    """

    def __init__(self, checkout, folder):
        self.checkout = checkout
        self._folder = folder
        self._number = 0

    def run(self, event="schedule", propose=False, options="", **environ):
        """A job: its exit status, what each step printed, which actions were called, and the summary."""
        self._number += 1
        temporary = self._folder / f"job-{self._number}"
        temporary.mkdir()
        told = {name: temporary / name for name in ("summary", "path")}
        for path in told.values():
            path.touch()
        base = self.checkout.environment(options) | WORKFLOW["env"] | environ
        base |= {
            "GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": event, "GITHUB_WORKSPACE": str(self.checkout.path),
            "GITHUB_RUN_ID": str(100 + self._number), "GITHUB_RUN_ATTEMPT": "1", "RUNNER_TEMP": str(temporary),
            "GITHUB_STEP_SUMMARY": str(told["summary"]), "GITHUB_PATH": str(told["path"]),
        }  # fmt: skip
        failed, printed = "", {}
        for name, step in STEPS.items():
            if not CONDITIONS[step.get("if")](bool(failed), event, propose):
                continue
            printed[name] = ""
            if "run" in step:
                paths = [*reversed(told["path"].read_text().splitlines()), base["PATH"]]
                assert WORKFLOW["defaults"]["run"]["shell"] == "bash"
                shell = ("--noprofile", "--norc", "-eo", "pipefail")
                done = self.checkout.bash(step["run"], base | {"PATH": ":".join(paths)}, *shell)
                printed[name] = done.stdout + done.stderr
                failed = failed or (name if done.returncode else "")
        return SimpleNamespace(failed=failed, printed=printed, summary=told["summary"].read_text())


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Jobs of one repository, in their order: without a baseline, with one, slowed down, and of a pull request."""
    folder = tmp_path_factory.mktemp("github")
    checkout = Checkout(folder)
    runner = Runner(checkout, folder)
    first = runner.run("workflow_dispatch", propose=True, STANDIN_DOCTOR="real")
    first.report = checkout.report()
    checkout.approve("roofline-report/proposal.json")
    healthy = runner.run()
    healthy.report = checkout.report()
    red = runner.run("pull_request", options="--roofline-drill=100%")
    return SimpleNamespace(first=first, healthy=healthy, red=red, checkout=checkout)


def test_the_workflow_obeys_the_published_schema():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stdout


def test_it_runs_every_night_for_pull_requests_and_by_hand():
    assert {"schedule", "pull_request", "workflow_dispatch"} == set(EVENTS)


def test_no_two_jobs_share_the_gpu_and_none_that_waits_is_ended():
    assert WORKFLOW["concurrency"] == {"group": "roofline-gpu", "cancel-in-progress": False, "queue": "max"}


def test_a_strangers_pull_request_reaches_no_machine_of_ours():
    assert "github.event.pull_request.head.repo.full_name == github.repository" in JOB["if"]


def test_it_may_read_the_repository_and_nothing_else():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in JOB


def test_no_step_pastes_an_expression_into_a_shell():
    assert [name for name, step in STEPS.items() if "${{" in step.get("run", "")] == []


def test_every_action_is_of_github_itself_and_of_one_version():
    used = [step["uses"] for step in STEPS.values() if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"actions/[a-z/-]+@v\d+", name)] == []


def test_the_cache_that_is_saved_is_the_one_that_the_next_job_looks_for():
    restore, save = STEPS["actions/cache/restore@v4"]["with"], STEPS["actions/cache/save@v4"]["with"]
    assert (restore["path"], restore["key"]) == (save["path"], save["key"])
    assert save["key"].startswith(restore["restore-keys"])
    assert save["path"] == ".roofline/runs"


def test_what_is_uploaded_is_the_report_also_after_red():
    step = STEPS["actions/upload-artifact@v4"]
    assert (step["if"], step["with"]["path"]) == ("always()", "roofline-report")


def test_torch_and_triton_of_the_machine_are_pinned_while_installing(jobs):
    command, *constraints = jobs.checkout.log.read_text().splitlines()[: 1 + len(WANTED)]
    assert command.startswith("-m pip install --constraint ")
    assert command.endswith(f" {WORKFLOW['env']['ROOFLINE_PACKAGE']}")
    assert WANTED == constraints


def test_a_machine_without_torch_installs_nothing(tmp_path):
    checkout = Checkout(tmp_path)
    job = Runner(checkout, tmp_path).run(STANDIN_INSTALLED="numpy==2.2.0\n")
    assert (job.failed, checkout.log.exists()) == ("Install", False)
    assert "::error::the python3 of this runner has no torch" in job.printed["Install"]
    assert "Measure" not in job.printed


def test_the_log_tells_what_the_machine_has(jobs):
    assert "torch" in jobs.first.printed["Look at the machine"]


def test_without_a_baseline_it_is_red_and_proposes_one_when_asked(jobs):
    assert jobs.first.failed == "Measure"
    assert "NO BASELINE" in jobs.first.printed["Measure"]
    assert REPORT | {"proposal.json"} == jobs.first.report


def test_a_healthy_machine_is_green(jobs):
    assert jobs.healthy.failed == "", jobs.healthy.printed
    assert "4 of 4 compared: 4 PASSED" in jobs.healthy.printed["Measure"]
    assert "Propose a baseline" not in jobs.healthy.printed


def test_a_slower_machine_is_red(jobs):
    assert jobs.red.failed == "Measure"
    assert "4 REGRESSED" in jobs.red.printed["Measure"]


def test_the_report_that_is_uploaded_is_there_whatever_the_outcome(jobs):
    assert REPORT <= jobs.healthy.report
    assert REPORT <= jobs.checkout.report()
    assert all("actions/upload-artifact@v4" in job.printed for job in (jobs.first, jobs.healthy, jobs.red))


def test_every_job_writes_its_summary(jobs):
    assert "REGRESSED" in jobs.red.summary
    assert "REGRESSED" not in jobs.healthy.summary
    assert "memcpy_d2d" in jobs.healthy.summary


def test_red_is_annotated_and_green_is_not(jobs):
    assert "::error" in jobs.red.printed["Measure"]
    assert "::error" not in jobs.healthy.printed["Measure"]


def test_runs_are_kept_by_job_and_attempt_and_a_pull_request_leaves_none_in_the_cache(jobs):
    assert {"github-101-1", "github-102-1", "github-103-1"} <= jobs.checkout.runs()
    assert ["actions/cache/save@v4" in job.printed for job in (jobs.healthy, jobs.red)] == [True, False]


def test_every_step_that_has_a_condition_was_run_by_one_of_the_jobs(jobs):
    seen = {name for job in (jobs.first, jobs.healthy, jobs.red) for name in job.printed}
    assert set(STEPS) == seen
