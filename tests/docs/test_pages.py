"""Every page is a story: its blocks are executed from top to bottom in one folder, and print what stands below them."""

import pytest

from .pages import DIRECTIVES, pages, read_page
from .prepare import PREPARATIONS, Machine, nothing
from .scene import Scene

STORIES = [page for page in pages() if {block.language for block in read_page(page)} - set(DIRECTIVES)]
RESULTS = "docs/results/"


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.mark.parametrize("page", [page for page in STORIES if not page.startswith(RESULTS)])
def test_the_blocks_of_a_page_do_what_it_says(page, machine, tmp_path):
    scene = Scene(tmp_path)
    PREPARATIONS.get(page, nothing)(scene, machine)
    for block in read_page(page):
        if not block.word("elsewhere"):
            scene.play(block)
    scene.end()


def test_pages_of_results_hold_what_was_printed_and_no_commands():
    blocks = [block for page in STORIES if page.startswith(RESULTS) for block in read_page(page)]
    assert {block.language for block in blocks} == {"text"}
