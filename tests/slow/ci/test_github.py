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
    runs,
)
from .expressions import filled, true
from .github import Runner, event, steps, steps_of_action

FILE, ACTION = SHIPPED / "github-actions.yml", SHIPPED / "action.yml"
CALL = "./.github/actions/roofline"
WORKFLOW = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SHIPPED_JOB, GATE = WORKFLOW["jobs"]["measure"], WORKFLOW["jobs"]["roofline"]
# YAML 1.1 reads the key `on` as true.
EVENTS = WORKFLOW[True]


def job_with(**inputs):
    """Return the job that measures, with these inputs of the action."""
    job = copy.deepcopy(SHIPPED_JOB)
    steps(job)[CALL]["with"] |= inputs
    return job


JOB = job_with(package=PACKAGE)
# The steps of the action as it ships, and the inputs that they get.
STEPS, INPUTS = steps_of_action(steps(JOB)[CALL] | {"uses": "."}, SHIPPED)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Jobs of one repository, in their order: without a baseline, with one, slowed down, and of a pull request."""
    folder = tmp_path_factory.mktemp("github")
    checkout = Checkout(folder)
    runner = Runner(checkout, folder, WORKFLOW, JOB)
    first = runner.run("workflow_dispatch", STANDIN_DOCTOR="real")
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


def test_workflow_and_action_obey_the_published_schemas_and_the_rules_of_safe_ones():
    for schema, path in (("github-workflows", FILE), ("github-actions", ACTION)):
        command = [sys.executable, "-m", "check_jsonschema"]
        command += ["--builtin-schema", f"vendor.{schema}", str(path)]
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
    assert steps(JOB)["actions/checkout@v4"]["with"] == {"persist-credentials": False}
    every = [*JOB["steps"], *STEPS.values(), *GATE["steps"]]
    assert [step for step in every if "${{" in step.get("run", "")] == []
    used = [step["uses"] for step in every if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"actions/[a-z/-]+@v\d+", name)] == [CALL]


def test_it_runs_every_night_for_pull_requests_of_ours_for_merge_queues_and_by_hand():
    assert {"schedule", "pull_request", "merge_group", "workflow_dispatch"} == set(EVENTS)
    assert all(true(JOB["if"], github=event(name)) for name in EVENTS)
    # A fork that was deleted since has no name.
    strangers = [event("pull_request", source) for source in ("theirs/project", None)]
    assert [true(JOB["if"], github=one) for one in strangers] == [False, False]


def test_the_check_to_require_fails_for_what_is_red_and_what_was_not_measured_and_is_never_skipped():
    assert (judged("success").returncode, judged("success").stdout) == (0, "")
    for result, words in [
        ("skipped", "this comes from a fork"),
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
    assert filled(restore["restore-keys"], inputs=INPUTS) == "roofline-runs-gpu-"
    filling = {
        name for name in EVENTS if true(save["if"], failed=True, github=event(name), inputs=INPUTS)
    }
    assert filling == {"schedule", "workflow_dispatch"}
    assert not true(save["if"], github=event("schedule"), inputs=INPUTS | {"cache": ""})


def test_only_the_package_is_installed(jobs):
    assert {f"-m pip install {PACKAGE}"} == set(jobs.checkout.log.read_text().splitlines())


def test_without_a_package_or_torch_it_stops_with_a_sentence_and_installs_nothing(
    checkout, tmp_path
):
    assert steps(SHIPPED_JOB)[CALL]["with"]["package"] == ""
    for number, (package, environ, message) in enumerate(
        [
            ("", {}, "package is ''; write the path or URL of a wheel"),
            ("pytest-roofline==0.1.0", {}, "write the path or URL of a wheel"),
            (PACKAGE, {"STANDIN_NO_TORCH": "1"}, "the python3 of this runner has no torch"),
        ]
    ):
        folder = tmp_path / str(number)
        job = Runner(checkout, folder, WORKFLOW, job_with(package=package)).run(**environ)
        assert (job.failed, checkout.log.exists()) == ("Install", False)
        assert "::error::" in job.printed["Install"]
        assert message in job.printed["Install"]
        assert "Measure" not in job.printed


def test_the_python_that_measures_is_asked_for_torch(checkout, tmp_path):
    environ = checkout.environment() | {
        "PACKAGE": PACKAGE, "RUNNER_TEMP": str(tmp_path), "GITHUB_PATH": str(tmp_path / "path")
    }  # fmt: skip
    done = checkout.bash(STEPS["Install"]["run"], environ)
    assert (0, True) == (done.returncode, checkout.log.exists()), done.stdout + done.stderr


def test_on_day_one_it_is_green_by_its_floors_and_proposes_a_baseline_when_asked(jobs):
    assert jobs.first.failed == "", jobs.first.printed
    assert "torch" in jobs.first.printed["Measure"].partition("test session starts")[0]
    assert "NO BASELINE" in jobs.first.printed["Measure"]
    assert REPORT | {"proposal.json"} == jobs.first.report


def test_a_healthy_machine_is_green_and_a_slower_one_red_with_report_summary_and_annotations(jobs):
    assert (jobs.healthy.failed, jobs.red.failed) == ("", "Measure"), jobs.healthy.printed
    assert ALL_PASSED.search(jobs.healthy.printed["Measure"])
    assert SOME_REGRESSED.search(jobs.red.printed["Measure"])
    assert [REPORT, REPORT] == [jobs.healthy.report, jobs.red.report]
    for job, red in ((jobs.red, True), (jobs.healthy, False)):
        assert ("REGRESSED" in job.summary, "::error" in job.printed["Measure"]) == (red, red)
        assert "memcpy_d2d" in job.summary
    # Every step that has a condition was run by one of the jobs.
    assert {*STEPS, "actions/checkout@v4"} == {
        name for job in (jobs.first, jobs.healthy, jobs.red) for name in job.printed
    }


def test_runs_are_saved_by_job_and_attempt_and_a_pull_request_leaves_none_in_the_cache(jobs):
    assert {"github-101-1", "github-102-1", "github-103-1"} == runs(
        jobs.checkout.path / ".roofline" / "runs"
    )
    assert [{"github-101-1"}, {"github-101-1", "github-102-1"}] == [
        runs(folder) for folder in jobs.cache.values()
    ]


def test_below_the_top_of_a_repository_it_works_with_the_changes_that_init_names(tmp_path):
    checkout = Checkout(tmp_path, "bench")
    (checkout.suite / ".github").rename(checkout.path / ".github")
    runner = Runner(checkout, tmp_path, WORKFLOW, job_with(package=PACKAGE, suite="bench"))
    done = runner.run("workflow_dispatch")
    assert (done.failed, REPORT | {"proposal.json"}) == ("", done.report)
    assert [{"github-101-1"}] == [runs(folder) for folder in runner.cache.values()]


def test_a_proposal_that_was_asked_for_and_cannot_be_made_is_red(checkout, tmp_path):
    (checkout.suite / "perf_tests" / "test_memcpy.py").write_text("def test_nothing():\n    pass\n")
    job = job_with(package=PACKAGE)
    call = steps(job)[CALL]["with"]
    call["run"] = call["run"].replace("--roofline-ci", "")
    runner = Runner(checkout, tmp_path, WORKFLOW | {"env": {"ROOFLINE_TESTS": "nothing"}}, job)
    assert [runner.run(name).failed for name in ("schedule", "workflow_dispatch")] == [
        "",
        "Measure",
    ]
