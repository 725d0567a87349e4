"""The durations of the two recipes of docs/ci.md are the budgets of the tests that they select on an H100."""

import re
import shlex
from pathlib import Path

import pytest

from ... import warm

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| [^|]+ \| `(?P<command>pytest [^`]+)` \| (?P<planned>\d+ tests, \d+ min) \|$", re.M
)
# Opens a fake H100, and ends when the plugin has said what is planned.
PLUGIN = """
import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_roofline_device(config, name):
    from pytest_roofline.engine.devices.fake import FakeDevice

    return FakeDevice()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    pytest.exit("planned", returncode=0)
"""
# Pytest with the plugin of a folder.
PROGRAM = """
import sys

import pytest

folder, *arguments = sys.argv[1:]
sys.path.insert(0, folder)
sys.exit(pytest.main(arguments))
"""


@pytest.mark.parametrize("row", [*ROW.finditer(PAGE)], ids=["commit", "driver"])
def test_a_recipe_takes_as_long_as_the_page_says(row, tmp_path):
    (tmp_path / "planned.py").write_text(PLUGIN, encoding="utf-8")
    _, *words = shlex.split(row["command"])
    options = ["-p", "planned", f"--roofline-dir={tmp_path}"]
    done = warm.run(["-c", PROGRAM, str(tmp_path), *words, *options], cwd=ROOT)
    planned = re.search(r"(\d+) measuring tests planned, (\d+ min) of measuring", done.stdout)
    assert planned is not None, done.stdout + done.stderr
    assert f"{planned[1]} tests, {planned[2]}" == row["planned"]
