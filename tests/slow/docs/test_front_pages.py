"""So is every page outside docs/; in a file of its own, since the README takes as long as many others together."""

import pytest

from .executed import not_passed
from .pages import stories
from .scene import Scene


@pytest.mark.parametrize("page", sorted(set(stories()) - set(stories("docs/"))))
def test_the_blocks_of_a_page_do_what_it_says(page, tell):
    tell(page)


def test_what_init_writes_measures_this_machine_where_no_stand_in_takes_its_place(tmp_path):
    """Pages have three files on a device with a scripted clock for `perf_tests`, since the suite takes minutes."""
    scene = Scene(tmp_path)
    status, said = scene.roofline("init", "bench")
    assert status == 0, said
    scene.here = tmp_path / "bench"
    status, said = scene.forked(["-m", "pytest", "perf_tests", "-k", "memcpy_h2h and 4KiB", "--roofline-device=cpu"])
    assert (status, not_passed(said)) == (0, {"deselected"}), said
    assert "memcpy_h2h[4KiB]" in said
