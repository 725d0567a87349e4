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


# A page of results that has its place beside the others.
SEEDS = "seeds"


def test_the_menu_has_twenty_pages_in_four_groups_and_every_page_of_the_folder(site):
    menu = (site / "index.html").read_text(encoding="utf-8").partition("<article")[0]
    names = re.findall(r'toctree-l1[^"]*">.*?href="([^"]+)\.html">(.*?)</a>', menu)
    assert len(re.findall(r'class="caption"', menu)) == 4
    assert len(set(names)) == 20
    there = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index", SEEDS}
    assert {name for name, _ in names} == there


def test_one_page_of_the_menu_leads_to_every_page_of_results(site):
    page = (site / "design.html").read_text(encoding="utf-8").partition("<article")[2]
    results = {path.relative_to(site).as_posix() for path in (site / "results").rglob("*.html")}
    results.add(f"{SEEDS}.html")
    assert results - set(re.findall(r'href="([^"#:]+\.html)', page)) == set()
