"""What tests of pages share."""

import pytest

from .pages import read_page
from .prepare import PREPARATIONS, Machine, nothing
from .scene import Scene


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def tell(machine, tmp_path):
    """Execute the blocks of a page from top to bottom in one folder."""

    def tell(page):
        scene = Scene(tmp_path)
        PREPARATIONS.get(page, nothing)(scene, machine)
        for block in read_page(page):
            if not block.apart:
                scene.play(block)
        scene.end()

    return tell
