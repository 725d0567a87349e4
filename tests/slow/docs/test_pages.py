"""Every page is a story: its blocks do what it says, and print what stands below them."""

import pytest

from .pages import pages, read_page
from .prepare import PREPARATIONS, Machine
from .scene import Scene, not_passed

RESULTS = "docs/results/"
STORIES = [page for page in pages() if read_page(page) and not page.startswith(RESULTS)]


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.mark.parametrize("page", STORIES)
def test_the_blocks_of_a_page_do_what_it_says(page, machine, tmp_path):
    scene = Scene(tmp_path)
    if prepare := PREPARATIONS.get(page):
        prepare(scene, machine)
    for block in read_page(page):
        if not block.apart:
            scene.play(block)


def test_pages_of_results_hold_what_was_printed_and_no_commands():
    blocks = [block for page in pages() if page.startswith(RESULTS) for block in read_page(page)]
    assert {block.language for block in blocks} == {"text"}


def test_what_init_writes_measures_this_machine_where_no_stand_in_takes_its_place(tmp_path):
    """Pages have three files on a device with a scripted clock for `perf_tests`, since the suite takes minutes."""
    scene = Scene(tmp_path)
    status, said = scene.roofline("init", "bench")
    assert status == 0, said
    scene.here = tmp_path / "bench"
    status, said = scene.forked(
        ["-m", "pytest", "perf_tests", "-k", "memcpy_h2h and 4KiB", "--roofline-device=cpu"]
    )
    assert (status, not_passed(said)) == (0, {"deselected"}), said
    assert "memcpy_h2h[4KiB]" in said
