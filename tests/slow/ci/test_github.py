"""docs/ci/github-actions.yml: valid, and its steps do what they are for, run as a runner of GitHub runs them."""

import copy
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from .conftest import (
    ALL_PASSED,
    PACKAGE,
    REPORT,
    SHIPPED,
    SOME_REGRESSED,
    Checkout,
    files,
    runs,
)
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
    pulled = (
        {"pull_request": {"head": {"repo": {"full_name": source}}}}
        if name == "pull_request"
        else {}
    )
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
                told_it = {
                    key: filled(value, **contexts) for key, value in step.get("with", {}).items()
                }
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
    return SimpleNamespace(
        first=first, healthy=healthy, red=red, checkout=checkout, cache=runner.cache
    )


def judged(result):
    """What the job that is required says of a job that ended so."""
    (step,) = GATE["steps"]
    environ = {
        name: filled(value, needs={"measure": {"result": result}})
        for name, value in step["env"].items()
    }
    return subprocess.run(
        ["bash", "-e", "-c", step["run"]], env=environ, capture_output=True, text=True, check=False
    )


def test_the_workflow_obeys_the_published_schema_and_the_rules_of_a_safe_one():
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        str(FILE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stdout
    # No two jobs share the GPU, and none that waits is ended.
    assert WORKFLOW["concurrency"] == {
        "group": "roofline-gpu",
        "cancel-in-progress": False,
        "queue": "max",
    }
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in JOB | GATE
    every = [*STEPS.values(), *GATE["steps"]]
    assert [step for step in every if "${{" in step.get("run", "")] == []
    used = [step["uses"] for step in every if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"actions/[a-z/-]+@v\d+", name)] == []


def test_it_runs_every_night_for_pull_requests_of_ours_for_merge_queues_and_by_hand():
    assert {"schedule", "pull_request", "merge_group", "workflow_dispatch"} == set(EVENTS)
    assert all(true(JOB["if"], github=event(name)) for name in EVENTS)
    # A fork that was deleted since has no name.
    strangers = [event("pull_request", source) for source in ("theirs/project", None)]
    assert [true(JOB["if"], github=one) for one in strangers] == [False, False]


def test_the_check_to_require_fails_for_what_is_red_and_what_was_not_measured_and_is_never_skipped():
    assert (judged("success").returncode, judged("success").stdout) == (0, "")
    for result, words in [
        ("skipped", "comes from a fork"),
        ("failure", "ended as failure"),
        ("cancelled", "ended as cancelled"),
    ]:
        done = judged(result)
        assert (done.returncode, done.stdout.startswith("::error::"), words in done.stdout) == (
            1,
            True,
            True,
        )
    assert [true(GATE["if"], failed=failed) for failed in (False, True)] == [True, True]
    assert (GATE["needs"], GATE["runs-on"]) == ("measure", "ubuntu-latest")
    # Not even a checkout: what a stranger wrote is not executed there either.
    assert ["uses" in step for step in GATE["steps"]] == [False]


def test_the_cache_is_found_again_by_a_name_of_ours_and_only_jobs_of_a_branch_that_stays_fill_it():
    restore, save = STEPS["actions/cache/restore@v4"]["with"], STEPS["actions/cache/save@v4"]
    assert (restore["path"], restore["key"]) == (save["with"]["path"], save["with"]["key"])
    assert save["with"]["key"].startswith(restore["restore-keys"])
    assert (
        filled(restore["restore-keys"], env={"ROOFLINE_MACHINES": "h100"}) == "roofline-runs-h100-"
    )
    kept = {name for name in EVENTS if true(save["if"], failed=True, github=event(name))}
    assert kept == {"schedule", "workflow_dispatch"}


def test_only_the_package_is_installed(jobs):
    assert {f"-m pip install {PACKAGE}"} == set(jobs.checkout.log.read_text().splitlines())


def test_without_a_package_or_torch_it_stops_with_a_sentence_and_installs_nothing(
    checkout, tmp_path
):
    assert yaml.safe_load(FILE.read_text(encoding="utf-8"))["env"]["ROOFLINE_PACKAGE"] == ""
    for number, (environ, said) in enumerate(
        [
            ({"ROOFLINE_PACKAGE": ""}, "ROOFLINE_PACKAGE is ''; write the path or URL of a wheel"),
            ({"ROOFLINE_PACKAGE": "pytest-roofline==0.1.0"}, "write the path or URL of a wheel"),
            ({"STANDIN_NO_TORCH": "1"}, "the python3 of this runner has no torch"),
        ]
    ):
        job = Runner(checkout, tmp_path / str(number)).run(**environ)
        assert (job.failed, checkout.log.exists()) == ("Install", False)
        assert "::error::" in job.printed["Install"]
        assert said in job.printed["Install"]
        assert "Measure" not in job.printed


def test_on_day_one_it_is_green_by_its_floors_and_proposes_a_baseline_when_asked(jobs):
    assert jobs.first.failed == "", jobs.first.printed
    assert "torch" in jobs.first.printed["Look at the machine"]
    assert "NO BASELINE" in jobs.first.printed["Measure"]
    assert REPORT | {"proposal.json"} == jobs.first.report


def test_a_healthy_machine_is_green_and_a_slower_one_red_with_report_summary_and_annotations(jobs):
    assert (jobs.healthy.failed, jobs.red.failed) == ("", "Measure"), jobs.healthy.printed
    assert ALL_PASSED.search(jobs.healthy.printed["Measure"])
    assert SOME_REGRESSED.search(jobs.red.printed["Measure"])
    assert "Propose a baseline" not in jobs.healthy.printed
    assert [REPORT, REPORT] == [jobs.healthy.report, jobs.red.report]
    for job, red in ((jobs.red, True), (jobs.healthy, False)):
        assert ("REGRESSED" in job.summary, "::error" in job.printed["Measure"]) == (red, red)
        assert "memcpy_d2d" in job.summary
    # Every step that has a condition was run by one of the jobs.
    assert set(STEPS) == {
        name for job in (jobs.first, jobs.healthy, jobs.red) for name in job.printed
    }


def test_runs_are_saved_by_job_and_attempt_and_a_pull_request_leaves_none_in_the_cache(jobs):
    assert {"github-101-1", "github-102-1", "github-103-1"} == runs(
        jobs.checkout.path / ".roofline" / "runs"
    )
    assert [{"github-101-1"}, {"github-101-1", "github-102-1"}] == [
        runs(kept) for kept in jobs.cache.values()
    ]


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
