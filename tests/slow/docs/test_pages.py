"""Every page of docs/ is a story: its blocks do what it says, and print what stands below them."""

import pytest

from .pages import read_page, stories

RESULTS = "docs/results/"


@pytest.mark.parametrize("page", [page for page in stories("docs/") if not page.startswith(RESULTS)])
def test_the_blocks_of_a_page_do_what_it_says(page, tell):
    tell(page)


def test_pages_of_results_hold_what_was_printed_and_no_commands():
    blocks = [block for page in stories(RESULTS) for block in read_page(page)]
    assert {block.language for block in blocks} == {"text"}
