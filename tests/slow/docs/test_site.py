"""The site that `tox run -e docs` builds of the pages."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from ... import warm
from .pages import ROOT


class Targets(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.add(found.get("id") or "")
        self.links |= {link for link in (found.get("href"), found.get("src")) if link}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    options = [
        "--fail-on-warning",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        str(folder / "doctrees"),
    ]
    done = warm.run(["-m", "sphinx", *options, "docs", str(folder / "html")], cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


def test_every_link_of_the_site_leads_to_a_page_or_file_of_it_and_an_anchor_there(site):
    pages = {page: Targets(page) for page in site.rglob("*.html")}
    assert len(pages) > 20
    broken = []
    for page, targets in pages.items():
        for link in targets.links:
            path, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            there = (page.parent / path.partition("?")[0]).resolve() if path else page
            if not there.exists() or (there in pages and anchor not in pages[there].anchors):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_the_menu_has_every_page_for_users_and_none_for_authors(site):
    menu = (site / "index.html").read_text(encoding="utf-8").partition("<article")[0]
    names = re.findall(r'toctree-l1[^"]*">.*?href="([^"]+)\.html">(.*?)</a>', menu)
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/reference").glob("*.md")]
    expected = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in pages}
    assert {name for name, _ in names} == expected - {"index"}


def test_one_page_leads_to_every_page_for_authors(site):
    page = (site / "authors/design.html").read_text(encoding="utf-8").partition("<article")[2]
    linked = {
        (site / "authors" / link).resolve() for link in re.findall(r'href="([^"#:]+\.html)', page)
    }
    expected = {*(site / "results").rglob("*.html"), *(site / "authors").glob("*.html")}
    assert expected - linked - {site / "authors/design.html"} == set()
