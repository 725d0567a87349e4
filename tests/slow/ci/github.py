"""A runner of GitHub: it executes the steps of a job, and follows an action of the repository to the steps in it."""

from types import SimpleNamespace

import yaml

from .conftest import files
from .expressions import filled, true

REPOSITORY = "ours/project"
# GitHub runs `shell: bash` so.
SHELL = ("--noprofile", "--norc", "-eo", "pipefail")


def event(name, source=REPOSITORY):
    """Return the context of an event; of a pull request, with the repository that its branch is in."""
    pulled = (
        {"pull_request": {"head": {"repo": {"full_name": source}}}}
        if name == "pull_request"
        else {}
    )
    return {"event_name": name, "repository": REPOSITORY, "event": pulled}


def steps(job):
    """Return the steps of a job by their names."""
    return {step.get("name", step.get("uses")): step for step in job["steps"]}


def steps_of_action(step, root, **contexts):
    """Return the steps of the action that a step calls in the repository `root`, and the inputs that they get."""
    action = yaml.safe_load((root / step["uses"] / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["using"] == "composite"
    values = {name: filled(value, **contexts) for name, value in step["with"].items()}
    unknown = set(values) - set(action["inputs"])
    missing = {name for name, each in action["inputs"].items() if "default" not in each} - set(
        values
    )
    assert (unknown, missing) == (set(), set())
    defaults = {name: each.get("default") for name, each in action["inputs"].items()}
    return steps(action["runs"]), defaults | values


class Runner:
    """A runner that plays one job, in a folder that is cleaned before each job.

    Args:
        checkout: the repository.
        folder: for what the runner, the cache and the artifacts keep.
        workflow: the workflow of the job.
        job: the job of the workflow.
    """

    def __init__(self, checkout, folder, workflow, job):
        self.checkout = checkout
        self.cache = {}
        self._folder = folder
        self._env = workflow.get("env", {})
        self._job = job
        self._number = 0

    def run(self, name="schedule", options="", **environ):
        """Run the job: its failed step, the output of each step, the summary and the uploaded report."""
        self._number += 1
        temporary = self._folder / f"job-{self._number}"
        temporary.mkdir(parents=True)
        written = {each: temporary / each for each in ("summary", "path")}
        for path in written.values():
            path.touch()
        base = self.checkout.environment(options) | self._env | environ
        base |= {
            "GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": name, "GITHUB_WORKSPACE": str(self.checkout.path),
            "GITHUB_RUN_ID": str(100 + self._number), "GITHUB_RUN_ATTEMPT": "1", "RUNNER_TEMP": str(temporary),
            "GITHUB_STEP_SUMMARY": str(written["summary"]), "GITHUB_PATH": str(written["path"]),
        }  # fmt: skip
        github = event(name) | {"run_id": base["GITHUB_RUN_ID"], "run_attempt": "1"}
        state = SimpleNamespace(
            failed="", printed={}, temporary=temporary, uploaded=temporary / "uploaded",
            base=base, path=written["path"],
        )  # fmt: skip
        self._play(steps(self._job), state, github=github, env=self._env)
        state.summary, state.report = written["summary"].read_text(), files(state.uploaded)
        return state

    def _play(self, steps_by_name, state, **contexts):
        for title, step in steps_by_name.items():
            if not true(step.get("if"), failed=bool(state.failed), **contexts):
                continue
            if step.get("uses", "").startswith("./"):
                inner, inputs = steps_of_action(step, self.checkout.path, **contexts)
                self._play(inner, state, **contexts, inputs=inputs)
            elif "uses" in step:
                state.printed[title] = ""
                values = {
                    name: filled(value, **contexts) for name, value in step.get("with", {}).items()
                }
                self._act(step["uses"], values, state)
            else:
                self._shell(title, step, state, **contexts)

    def _shell(self, title, step, state, **contexts):
        """Run the commands of a step, in its folder and with its variables."""
        assert step["shell"] == "bash"
        paths = [*reversed(state.path.read_text().splitlines()), state.base["PATH"]]
        environ = {name: filled(value, **contexts) for name, value in step.get("env", {}).items()}
        done = self.checkout.bash(
            step["run"], state.base | environ | {"PATH": ":".join(paths)}, *SHELL,
            folder=filled(step.get("working-directory", ""), **contexts),
        )  # fmt: skip
        state.printed[title] = done.stdout + done.stderr
        state.failed = state.failed or (title if done.returncode else "")

    def _act(self, action, values, state):
        """Do what the actions of GitHub do, with paths below the top of the repository."""
        match action.split("@")[0]:
            case "actions/checkout":
                self.checkout.clean()
            case "actions/cache/restore":
                keys = [key for key in self.cache if key.startswith(values["restore-keys"])]
                self.checkout.bring(values["path"], self.cache[keys[-1]] if keys else None)
            case "actions/cache/save":
                if folder := self.checkout.take(values["path"], state.temporary / "cache"):
                    self.cache[values["key"]] = folder
            case "actions/upload-artifact":
                self.checkout.take(values["path"], state.uploaded)
