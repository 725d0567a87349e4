"""A checkout as `roofline init` makes it, in which the files of docs/ci are executed.

The suite is replaced by tests on a device with a scripted clock, so that what is red and what is green is certain.
Installing is left out: `python3` is a stand-in that makes no environment, and writes down what pip was to install.
Only the Python of that environment, which is the one that measures, answers whether it has a torch.
`roofline doctor`, which imports torch and says the same each time, looks at the machine where a test asks for it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main
from pytest_roofline.cli.output import CI

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "docs" / "ci"
STANDIN = ROOT / "tests" / "slow" / "docs" / "standin"
REPORT = {"index.html", "junit.xml", "results.csv", "run.json", "summary.md"}
ALL_PASSED = re.compile(r"^GREEN: ([1-9]\d*) of \1 fast enough$", re.MULTILINE)
SOME_REGRESSED = re.compile(r"^RED: .*\b[1-9]\d* REGRESSED", re.MULTILINE)
PYTHON = """#!/usr/bin/env bash
case "$*" in
"-m venv "*) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python" && exit ;;
"-c import torch") [[ $0 == */bin/python ]] && exit "${STANDIN_NO_TORCH-0}" ;;
"-m pip install "*) echo "$*" >> "$STANDIN_LOG" && exit ;;
esac
echo "the stand-in for python knows no $*" >&2
exit 99
"""
# For a script of a CI, on a machine with others at work.
PATIENCE_S = 500.0
# What a user writes into the file.
PACKAGE = "https://example.org/pytest_roofline-0.1.0-py3-none-any.whl"
# The real one stands behind it on the path.
ROOFLINE = """#!/usr/bin/env bash
if [ "$*" = doctor ] && [ -z "${STANDIN_DOCTOR-}" ]; then exit; fi
PATH=${PATH#*"${0%/*}":} exec roofline "$@"
"""
# In a command of its own, as a user writes it: a gate heeds no rounds from elsewhere.
PYTEST = """#!/usr/bin/env bash
PATH=${PATH#*"${0%/*}":}
case "${0##*/} $*" in
pytest* | "python -m pytest "*) set -- "$@" --roofline-rounds=1 ;;
esac
exec "${0##*/}" "$@"
"""


class Checkout:
    """A repository with the suite, and a shell of a CI in it.

    Args:
        path: an empty folder.
        below: the folder of the repository that has the suite, where this is not its top.
    """

    def __init__(self, path: Path, below: str = "") -> None:
        self.path = path / "checkout"
        self.suite = self.path / below
        self.log = path / "installed.log"
        self._programs = path / "programs"
        options = [f"--ci={name}" for name in CI]
        result = CliRunner().invoke(main, ["init", str(self.suite), *options])
        assert result.exit_code == 0, result.output
        for suite in (self.suite / "perf_tests").glob("test_*.py"):
            suite.unlink()
        for name, target in (("scripted.py", "conftest.py"), ("memcpy.py", "test_memcpy.py")):
            shutil.copy(STANDIN / name, self.suite / "perf_tests" / target)
        self._programs.mkdir()
        programs = {"python3": PYTHON, "roofline": ROOFLINE, "pytest": PYTEST, "python": PYTEST}
        for name, text in programs.items():
            (self._programs / name).write_text(text)
            (self._programs / name).chmod(0o755)

    def environment(self, options: str = "") -> "dict[str, str]":
        """Of a job that sees the programs of this environment, with further options for pytest."""
        strange = ("PYTEST_", "GITHUB_", "GITLAB_", "CI_", "ROOFLINE_", "SLURM_", "PIP_")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
        return plain | {
            "PATH": f"{self._programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CI": "true",
            "NO_COLOR": "1",
            "WITHOUT_TORCH": "1",
            "STANDIN_LOG": str(self.log),
            "PYTEST_ADDOPTS": f"-p no:cacheprovider -p no:hypothesispytest {options}",
        }

    def bash(
        self,
        script: str,
        environ: "dict[str, str]",
        *shell: str,
        folder: str = "",
    ) -> "subprocess.CompletedProcess[str]":
        """A script as a CI runs it, in a folder of the repository."""
        return subprocess.run(
            ["bash", *(shell or ("-eo", "pipefail")), "-c", script],
            cwd=self.path / folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def clean(self) -> None:
        """What a CI does before a job: nothing is left of the job before."""
        for name in (".roofline", ".venv", "roofline-report"):
            shutil.rmtree(self.suite / name, ignore_errors=True)

    def take(self, path: str, into: Path) -> "Path | None":
        """Keep a folder of the repository elsewhere, if it is there, as a cache and an artifact do."""
        return shutil.copytree(self.path / path, into) if (self.path / path).exists() else None

    def bring(self, path: str, kept: "Path | None") -> None:
        """Put what was kept in its place."""
        if kept is not None:
            shutil.copytree(kept, self.path / path)

    def approve(self, proposal: Path) -> None:
        """What a person does on a branch."""
        into = ["--into", str(self.suite / "baselines")]
        result = CliRunner().invoke(main, ["baseline", "approve", str(proposal), *into])
        assert result.exit_code == 0, result.output


def runs(folder: Path) -> "set[str]":
    """The names of the runs in a folder."""
    return {path.stem for path in folder.glob("*.jsonl")}


def files(folder: Path) -> "set[str]":
    """The names of what is in a folder, such as a report; none where it is not there."""
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


@pytest.fixture
def checkout(tmp_path):
    """A checkout for one test."""
    return Checkout(tmp_path)
