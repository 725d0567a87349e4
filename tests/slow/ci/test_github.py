"""docs/ci/github-actions.yml: valid, and its steps do what they are for, run as a runner of GitHub runs them."""

import copy
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from .conftest import ALL_PASSED, PACKAGE, REPORT, SHIPPED, SOME_REGRESSED, WANTED, Checkout, files, runs
from .expressions import filled, true

FILE = SHIPPED / "github-actions.yml"
WORKFLOW = yaml.safe_load(FILE.read_text(encoding="utf-8"))
WORKFLOW["env"]["ROOFLINE_PACKAGE"] = PACKAGE
JOB, GATE = WORKFLOW["jobs"]["measure"], WORKFLOW["jobs"]["roofline"]
# YAML 1.1 reads the key `on` as true.
EVENTS = WORKFLOW[True]
REPOSITORY = "ours/project"


def steps(job):
    """The steps of a job by their names."""
    return {step.get("name", step.get("uses")): step for step in job["steps"]}


STEPS = steps(JOB)


def event(name, source=REPOSITORY):
    """What is told of an event; of a pull request, the repository that its branch is in."""
    pulled = {"pull_request": {"head": {"repo": {"full_name": source}}}} if name == "pull_request" else {}
    return {"event_name": name, "repository": REPOSITORY, "event": pulled}


class Runner:
    """What a runner does with the steps of the job that measures, in a folder that is cleaned before each job.

    Args:
        checkout: the repository.
        folder: for what the runner, the cache and the artifacts keep.
        job: the job, where it is not as it ships.
    """

    def __init__(self, checkout, folder, job=JOB):
        self.checkout = checkout
        self.cache = {}
        self._folder = folder
        self._steps = steps(job)
        self._defaults = job["defaults"]["run"]
        self._number = 0

    def run(self, name="schedule", propose=False, options="", **environ):
        """A job: its failed step, what each step printed, the summary and the report that was uploaded."""
        self._number += 1
        temporary = self._folder / f"job-{self._number}"
        temporary.mkdir(parents=True)
        told = {name: temporary / name for name in ("summary", "path")}
        for path in told.values():
            path.touch()
        base = self.checkout.environment(options) | WORKFLOW["env"] | environ
        base |= {
            "GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": name, "GITHUB_WORKSPACE": str(self.checkout.path),
            "GITHUB_RUN_ID": str(100 + self._number), "GITHUB_RUN_ATTEMPT": "1", "RUNNER_TEMP": str(temporary),
            "GITHUB_STEP_SUMMARY": str(told["summary"]), "GITHUB_PATH": str(told["path"]),
        }  # fmt: skip
        github = event(name) | {"run_id": base["GITHUB_RUN_ID"], "run_attempt": "1"}
        contexts = {"github": github, "inputs": {"propose": propose}, "env": WORKFLOW["env"]}
        job = SimpleNamespace(failed="", printed={}, uploaded=temporary / "uploaded")
        for title, step in self._steps.items():
            if not true(step.get("if"), failed=bool(job.failed), **contexts):
                continue
            job.printed[title] = ""
            if "uses" in step:
                told_it = {key: filled(value, **contexts) for key, value in step.get("with", {}).items()}
                self._act(step["uses"], told_it, temporary, job)
                continue
            paths = [*reversed(told["path"].read_text().splitlines()), base["PATH"]]
            assert self._defaults["shell"] == "bash"
            done = self.checkout.bash(
                step["run"], base | {"PATH": ":".join(paths)}, "--noprofile", "--norc", "-eo", "pipefail",
                folder=self._defaults.get("working-directory", ""),
            )  # fmt: skip
            job.printed[title] = done.stdout + done.stderr
            job.failed = job.failed or (title if done.returncode else "")
        job.summary, job.report = told["summary"].read_text(), files(job.uploaded)
        return job

    def _act(self, action, told, temporary, job):
        """What the actions do, with paths below the top of the repository."""
        match action.split("@")[0]:
            case "actions/checkout":
                self.checkout.clean()
            case "actions/cache/restore":
                found = [key for key in self.cache if key.startswith(told["restore-keys"])]
                self.checkout.bring(told["path"], self.cache[found[-1]] if found else None)
            case "actions/cache/save":
                self.checkout.take(told["path"], temporary / "cache")
                self.cache[told["key"]] = temporary / "cache"
            case "actions/upload-artifact":
                self.checkout.take(told["path"], job.uploaded)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Jobs of one repository, in their order: without a baseline, with one, slowed down, and of a pull request."""
    folder = tmp_path_factory.mktemp("github")
    checkout = Checkout(folder)
    runner = Runner(checkout, folder)
    first = runner.run("workflow_dispatch", propose=True, STANDIN_DOCTOR="real")
    checkout.approve(first.uploaded / "proposal.json")
    healthy = runner.run()
    red = runner.run("pull_request", options="--roofline-drill=100%")
    return SimpleNamespace(first=first, healthy=healthy, red=red, checkout=checkout, cache=runner.cache)


def judged(result):
    """What the job that is required says of a job that ended so."""
    (step,) = GATE["steps"]
    environ = {name: filled(value, needs={"measure": {"result": result}}) for name, value in step["env"].items()}
    return subprocess.run(["bash", "-e", "-c", step["run"]], env=environ, capture_output=True, text=True, check=False)


def test_the_workflow_obeys_the_published_schema():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stdout


def test_it_runs_every_night_for_pull_requests_for_merge_queues_and_by_hand():
    assert {"schedule", "pull_request", "merge_group", "workflow_dispatch"} == set(EVENTS)
    assert all(true(JOB["if"], github=event(name)) for name in EVENTS)


def test_no_two_jobs_share_the_gpu_and_none_that_waits_is_ended():
    assert WORKFLOW["concurrency"] == {"group": "roofline-gpu", "cancel-in-progress": False, "queue": "max"}


def test_a_strangers_pull_request_reaches_no_machine_of_ours():
    # A fork that was deleted since has no name.
    assert [False, False] == [
        true(JOB["if"], github=event("pull_request", source)) for source in ("theirs/project", None)
    ]


@pytest.mark.parametrize(
    ("result", "words"),
    [("skipped", "comes from a fork"), ("failure", "ended as failure"), ("cancelled", "ended as cancelled")],
)
def test_what_was_not_measured_and_what_is_red_fails_the_check_to_require(result, words):
    done = judged(result)
    assert (done.returncode, done.stdout.startswith("::error::"), words in done.stdout) == (1, True, True)


def test_what_was_measured_and_green_passes_the_check_to_require():
    assert (judged("success").returncode, judged("success").stdout) == (0, "")


@pytest.mark.parametrize("failed", [False, True])
def test_the_check_to_require_is_never_skipped_and_needs_no_machine_of_ours(failed):
    assert (GATE["needs"], true(GATE["if"], failed=failed)) == ("measure", True)
    assert GATE["runs-on"] == "ubuntu-latest" != JOB["runs-on"]
    # Not even a checkout: what a stranger wrote is not executed there either.
    assert ["uses" in step for step in GATE["steps"]] == [False]


def test_it_may_read_the_repository_and_nothing_else():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in JOB | GATE


def test_no_step_pastes_an_expression_into_a_shell():
    assert [name for name, step in STEPS.items() if "${{" in step.get("run", "")] == []
    assert "${{" not in GATE["steps"][0]["run"]


def test_every_action_is_of_github_itself_and_of_one_version():
    used = [step["uses"] for step in STEPS.values() if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"actions/[a-z/-]+@v\d+", name)] == []


def test_the_cache_that_is_saved_is_the_one_that_the_next_job_looks_for():
    restore, save = STEPS["actions/cache/restore@v4"]["with"], STEPS["actions/cache/save@v4"]["with"]
    assert (restore["path"], restore["key"]) == (save["path"], save["key"])
    assert save["key"].startswith(restore["restore-keys"])


def test_runs_are_kept_by_a_name_of_ours_since_some_runners_have_a_new_one_for_each_job():
    key = STEPS["actions/cache/restore@v4"]["with"]["restore-keys"]
    assert filled(key, env={"ROOFLINE_MACHINES": "h100"}) == "roofline-runs-h100-"


def test_torch_and_triton_of_the_machine_are_pinned_while_installing(jobs):
    command, *constraints = jobs.checkout.log.read_text().splitlines()[: 1 + len(WANTED)]
    assert command.startswith("-m pip install --constraint ")
    assert command.endswith(f" {PACKAGE}")
    assert WANTED == constraints


def test_until_it_is_told_what_to_install_it_stops_with_a_sentence(tmp_path):
    checkout = Checkout(tmp_path)
    assert yaml.safe_load(FILE.read_text(encoding="utf-8"))["env"]["ROOFLINE_PACKAGE"] == ""
    for package in ("", "pytest-roofline==0.1.0"):
        job = Runner(checkout, tmp_path / package).run(ROOFLINE_PACKAGE=package)
        assert (job.failed, checkout.log.exists()) == ("Install", False)
        assert f"::error::ROOFLINE_PACKAGE is '{package}'; write the path or URL of a wheel" in job.printed["Install"]


def test_a_machine_without_torch_installs_nothing(tmp_path):
    checkout = Checkout(tmp_path)
    job = Runner(checkout, tmp_path).run(STANDIN_INSTALLED="numpy==2.2.0\n")
    assert (job.failed, checkout.log.exists()) == ("Install", False)
    assert "::error::the python3 of this runner has no torch" in job.printed["Install"]
    assert "Measure" not in job.printed


def test_the_log_tells_what_the_machine_has(jobs):
    assert "torch" in jobs.first.printed["Look at the machine"]


def test_on_day_one_it_is_green_by_its_floors_and_proposes_a_baseline_when_asked(jobs):
    assert jobs.first.failed == "", jobs.first.printed
    assert "NO BASELINE" in jobs.first.printed["Measure"]
    assert REPORT | {"proposal.json"} == jobs.first.report


def test_a_healthy_machine_is_green(jobs):
    assert jobs.healthy.failed == "", jobs.healthy.printed
    assert ALL_PASSED.search(jobs.healthy.printed["Measure"])
    assert "Propose a baseline" not in jobs.healthy.printed


def test_a_slower_machine_is_red(jobs):
    assert jobs.red.failed == "Measure"
    assert SOME_REGRESSED.search(jobs.red.printed["Measure"])


def test_the_report_that_is_uploaded_is_there_whatever_the_outcome(jobs):
    assert [REPORT, REPORT] == [jobs.healthy.report, jobs.red.report]


def test_every_job_writes_its_summary(jobs):
    assert "REGRESSED" in jobs.red.summary
    assert "REGRESSED" not in jobs.healthy.summary
    assert "memcpy_d2d" in jobs.healthy.summary


def test_red_is_annotated_and_green_is_not(jobs):
    assert "::error" in jobs.red.printed["Measure"]
    assert "::error" not in jobs.healthy.printed["Measure"]


def test_runs_are_kept_by_job_and_attempt_and_a_pull_request_leaves_none_in_the_cache(jobs):
    assert {"github-101-1", "github-102-1", "github-103-1"} == runs(jobs.checkout.path / ".roofline" / "runs")
    assert [{"github-101-1"}, {"github-101-1", "github-102-1"}] == [runs(kept) for kept in jobs.cache.values()]


@pytest.mark.parametrize(
    ("name", "kept"), [("schedule", True), ("workflow_dispatch", True), ("pull_request", False), ("merge_group", False)]
)
def test_only_jobs_of_a_branch_that_stays_keep_their_runs(name, kept):
    assert true(STEPS["actions/cache/save@v4"]["if"], failed=True, github=event(name)) is kept


def test_every_step_that_has_a_condition_was_run_by_one_of_the_jobs(jobs):
    seen = {name for job in (jobs.first, jobs.healthy, jobs.red) for name in job.printed}
    assert set(STEPS) == seen


def test_below_the_top_of_a_repository_it_works_with_the_changes_that_init_names(tmp_path):
    job = copy.deepcopy(JOB)
    job["defaults"]["run"]["working-directory"] = "bench"
    for step in job["steps"]:
        if "path" in step.get("with", {}):
            step["with"]["path"] = f"bench/{step['with']['path']}"
    runner = Runner(Checkout(tmp_path, "bench"), tmp_path, job)
    done = runner.run(propose=True)
    assert (done.failed, REPORT | {"proposal.json"}) == ("", done.report)
    assert [{"github-101-1"}] == [runs(kept) for kept in runner.cache.values()]
