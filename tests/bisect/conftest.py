"""Programs whose figures are scripted, so that what is slow is certain, and no time counts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main

from ..ab.conftest import git

# Each process draws its noise by its number. `slow` is the factor on its figure.
BENCH = """
import json, os, pathlib, random
calls = pathlib.Path(os.environ["CALLS"])
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("." * (number + 1))
noise = random.Random(number).gauss(0, {noise})
{slow}
print(json.dumps({{"ms": 31 * slow * (1 + noise)}}))
"""
# Without the packages of this environment, which take their time to be looked for.
RUN = ("--run", "{python} -I -S bench.py", "--lower=ms")


def program(slow, noise=0.0):
    """The source of a program; `slow` is an assignment."""
    return BENCH.format(slow=slow, noise=noise)


class Command:
    """The command in a folder: `said` is what it told on standard error."""

    def __init__(self, folder):
        self.folder, self.said = folder, ""

    @property
    def calls(self):
        """How many processes of the program ran."""
        return len((self.folder / "calls").read_text())

    def __call__(self, *words, status=0, command="bisect"):
        """Return what the command prints as JSON, or if that is nothing, what it says."""
        result = CliRunner().invoke(main, [command, "--json", *words], catch_exceptions=False)
        assert status == result.exit_code, result.output
        self.said = result.stderr
        return json.loads(result.stdout) if result.stdout else result.stderr


@pytest.fixture
def bisect(tmp_path, monkeypatch):
    """The command, in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    for name in ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_DIFF_BASE_SHA", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    return Command(tmp_path)


def steps(report):
    """The last fast and the first slow candidate of each step."""
    return [(step["good"], step["bad"]) for step in report["steps"]]


def write(name, text):
    Path(name).write_text(text, encoding="utf-8")


COMMITS = 16


@pytest.fixture
def history(bisect):
    """Return a function that commits a program for each of 16 steps: `slow` by number, or no program at all."""

    def make(slow, noise=0.0, broken=()):
        git(".", "init", "-q", "-b", "main")
        hashes = []
        for number in range(COMMITS):
            text = "import absent" if number in broken else program(f"slow = {slow(number)}", noise)
            write("bench.py", f"{text}\n# {number}")
            git(".", "add", "-A")
            git(".", "commit", "-q", "-m", str(number))
            hashes.append(git(".", "rev-parse", "HEAD"))
        return [f"commit:{commit[:12]}" for commit in hashes]

    return make
