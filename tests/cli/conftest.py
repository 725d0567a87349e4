"""Commands of `roofline` in a folder of their own."""

import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs a command there."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def saved(make, tmp_path):
    """Saves a run under its name."""

    def save(name, *records, **changes):
        return make.save(tmp_path / ".roofline" / "runs" / f"{name}.jsonl", *records, **changes)

    return save


@pytest.fixture
def refused(command):
    """The one sentence of a command that cannot use its input."""

    def sentence(*arguments):
        result = command(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        assert result.stderr.startswith("roofline: ")
        assert result.stderr.count("\n") == 1
        return result.stderr.removeprefix("roofline: ").rstrip("\n")

    return sentence
