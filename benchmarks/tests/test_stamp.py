"""Of which commit a page of results is."""

import re
import subprocess

import pytest


def test_a_page_says_below_its_title_of_which_commit_and_day_it_is(program):
    stamp = program("stamp")
    found = subprocess.run(
        ["git", "-C", stamp.ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip("needs a git checkout")
    title, _, said, *rest = stamp.stamped("# Title\n\nMade by nobody.\n").split("\n")
    commit, day = re.fullmatch(
        r"Of commit `([0-9a-f]{7,})`(?: with changes)?, (\d{4}-\d\d-\d\d)\.", said
    ).groups()
    assert (title, rest) == ("# Title", ["", "Made by nobody.", ""])
    assert found.stdout.startswith(commit)
    assert day >= "2026"
