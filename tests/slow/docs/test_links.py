"""Links between the pages, as GitHub follows them."""

import re

import pytest

from .pages import ROOT, pages


@pytest.mark.parametrize("page", [ROOT / page for page in pages()], ids=pages())
def test_every_link_of_a_page_leads_to_a_file(page):
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
