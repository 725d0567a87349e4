"""docs/ci/gitlab-ci.yml: valid, and its scripts do what they are for, run as a runner of GitLab runs them."""

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

FILE = SHIPPED / "gitlab-ci.yml"
JOB = yaml.safe_load(FILE.read_text(encoding="utf-8"))["roofline"]
JOB["variables"]["ROOFLINE_PACKAGE"] = PACKAGE
SHELL = ("-eo", "pipefail")
# By what starts a pipeline, the variables of its job.
VARIABLES = {
    re.fullmatch(r'\$CI_PIPELINE_SOURCE == "(\w+)"', rule["if"])[1]: JOB["variables"]
    | rule.get("variables", {})
    for rule in JOB["rules"]
}


class Runner:
    """What a runner does with the job, in a folder that is cleaned before it.

    Args:
        checkout: the repository.
        folder: for the cache and the artifacts.
        job: the job, where it is not as it ships.
    """

    def __init__(self, checkout, folder, job=JOB):
        self.checkout = checkout
        self.cache = None
        self._folder = folder
        self._job = job
        self._number = 0

    def run(self, source="schedule", options="", **environ):
        """A job: its status, what it printed, what follows the script whatever its status, and the artifacts."""
        self._number += 1
        cache, artifacts = self._job["cache"], self._job["artifacts"]
        assert cache["when"] == artifacts["when"] == "always"
        base = self.checkout.environment(options) | VARIABLES[source] | environ
        base |= {
            "GITLAB_CI": "true",
            "CI_PROJECT_DIR": str(self.checkout.path),
            "CI_JOB_ID": str(self._number),
        }
        kept, uploaded = (
            self._folder / f"{kind}-{self._number}" for kind in ("cache", "artifacts")
        )
        self.checkout.clean()
        self.checkout.bring(*cache["paths"], self.cache)
        done = self.checkout.bash(
            "\n".join([*self._job["before_script"], *self._job["script"]]), base, *SHELL
        )
        after = self.checkout.bash("\n".join(self._job["after_script"]), base, *SHELL)
        if base[cache["policy"].removeprefix("$")] == "pull-push":
            self.cache = self.checkout.take(*cache["paths"], kept) or self.cache
        self.checkout.take(*artifacts["paths"], uploaded)
        assert (self.checkout.path / artifacts["reports"]["junit"]).exists()
        said = done.stdout + done.stderr
        return SimpleNamespace(
            status=done.returncode,
            said=said,
            after=after,
            uploaded=uploaded,
            report=files(uploaded),
        )


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Jobs of one project: without a baseline, with one, and slowed down."""
    folder = tmp_path_factory.mktemp("gitlab")
    checkout = Checkout(folder)
    runner = Runner(checkout, folder)
    first = runner.run("web", ROOFLINE_PROPOSE="true")
    checkout.approve(first.uploaded / "proposal.json")
    healthy = runner.run()
    red = runner.run("merge_request_event", "--roofline-drill=100%")
    return SimpleNamespace(
        first=first, healthy=healthy, red=red, checkout=checkout, cache=runner.cache
    )


def test_the_file_obeys_the_published_schema_and_no_two_jobs_share_the_gpu():
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.gitlab-ci",
        str(FILE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stdout
    assert list(VARIABLES) == ["schedule", "merge_request_event", "web"]
    assert (JOB["resource_group"], JOB["interruptible"]) == ("roofline-gpu", False)
    assert JOB["cache"]["key"] == "roofline-runs-$ROOFLINE_MACHINES"
    assert all("ROOFLINE_MACHINES" in variables for variables in VARIABLES.values())


def test_only_the_package_is_installed(jobs):
    assert {f"-m pip install {PACKAGE}"} == set(jobs.checkout.log.read_text().splitlines())


def test_without_a_package_or_torch_it_stops_with_a_sentence_and_installs_nothing(checkout):
    shipped = yaml.safe_load(FILE.read_text(encoding="utf-8"))["roofline"]["variables"][
        "ROOFLINE_PACKAGE"
    ]
    wanted = "ROOFLINE_PACKAGE is '{}'; write the path or URL of a wheel"
    for environ, said in [
        ({"ROOFLINE_PACKAGE": shipped}, wanted.format(shipped)),
        ({"ROOFLINE_PACKAGE": "pytest-roofline==0.1.0"}, wanted.format("pytest-roofline==0.1.0")),
        ({"STANDIN_NO_TORCH": "1"}, "the python3 of this runner has no torch\n"),
    ]:
        base = (
            checkout.environment()
            | JOB["variables"]
            | {"CI_PROJECT_DIR": str(checkout.path)}
            | environ
        )
        done = checkout.bash("\n".join(JOB["before_script"]), base, *SHELL)
        assert (done.returncode, checkout.log.exists(), done.stdout.startswith(said)) == (
            1,
            False,
            True,
        ), done.stdout


def test_green_on_day_one_with_a_proposal_green_when_healthy_and_red_when_slower_with_a_report_each_time(
    jobs,
):
    assert [jobs.first.status, jobs.healthy.status, jobs.red.status] == [0, 0, 1], jobs.first.said
    assert "NO BASELINE" in jobs.first.said
    assert ALL_PASSED.search(jobs.healthy.said)
    assert SOME_REGRESSED.search(jobs.red.said)
    assert [jobs.first.report, jobs.healthy.report, jobs.red.report] == [
        REPORT | {"proposal.json"},
        REPORT,
        REPORT,
    ]
    for job in (jobs.first, jobs.healthy, jobs.red):
        assert job.after.returncode == 0, job.after.stdout + job.after.stderr
    # Those of merge requests are not in the cache.
    assert {"gitlab-1", "gitlab-2", "gitlab-3"} == runs(jobs.checkout.path / ".roofline" / "runs")
    assert {"gitlab-1", "gitlab-2"} == runs(jobs.cache)


def test_a_proposal_that_was_asked_for_and_cannot_be_made_is_red_although_the_gate_is_green(
    checkout, tmp_path
):
    programs = tmp_path / "green"
    programs.mkdir()
    (programs / "pytest").write_text(
        "#!/usr/bin/env bash\nmkdir roofline-report && touch roofline-report/junit.xml\n"
    )
    (programs / "pytest").chmod(0o755)
    script = f"export PATH={programs}:$PATH\n"
    job = JOB | {"script": [script, *JOB["script"]]}
    runner = Runner(checkout, tmp_path, job)
    assert runner.run().status == 0
    asked = runner.run("web", ROOFLINE_PROPOSE="true")
    assert (asked.status, {"junit.xml"}) == (2, asked.report), asked.said


def test_below_the_top_of_a_repository_it_works_with_the_changes_that_init_names(tmp_path):
    job = copy.deepcopy(JOB)
    for name in ("before_script", "after_script"):
        job[name].insert(0, "cd bench")
    for told, name in ((job["cache"], "paths"), (job["artifacts"], "paths")):
        told[name] = [f"bench/{path}" for path in told[name]]
    job["artifacts"]["reports"]["junit"] = f"bench/{job['artifacts']['reports']['junit']}"
    runner = Runner(Checkout(tmp_path, "bench"), tmp_path, job)
    done = runner.run("web", ROOFLINE_PROPOSE="true")
    assert (done.status, done.after.returncode, REPORT | {"proposal.json"}) == (0, 0, done.report)
    assert {"gitlab-1"} == runs(runner.cache)
