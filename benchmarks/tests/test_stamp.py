"""The commit and day of a line that names them."""

import re
import subprocess

import pytest


def test_a_line_names_the_commit_and_the_day(program):
    stamp = program("stamp")
    head = subprocess.run(
        ["git", "-C", stamp.ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    if head.returncode:
        pytest.skip("needs a git checkout")
    commit, day = re.fullmatch(
        r"Of commit `([0-9a-f]{7,})`(?: with changes)?, (\d{4}-\d\d-\d\d)\.", stamp.stamp()
    ).groups()
    assert head.stdout.startswith(commit)
    assert day >= "2026"
