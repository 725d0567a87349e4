"""So is every page outside docs/; in a file of its own, since the README takes as long as many others together."""

import pytest

from .pages import stories


@pytest.mark.parametrize("page", sorted(set(stories()) - set(stories("docs/"))))
def test_the_blocks_of_a_page_do_what_it_says(page, tell):
    tell(page)
