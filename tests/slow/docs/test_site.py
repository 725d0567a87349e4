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
    options = ["--fail-on-warning", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
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


def test_a_page_from_elsewhere_is_the_file_itself_and_links_within_the_site(site):
    page = (site / "about" / "contributing.html").read_text(encoding="utf-8")
    assert "A commit holds one idea" in page
    assert 'href="../design.html"' in page
    assert "../../CONTRIBUTING.md" not in page


def test_every_page_is_told_of_by_the_index_with_what_it_is_for(site):
    index = (site / "index.html").read_text(encoding="utf-8")
    body = index[index.index("<article") : index.index("</article>")]
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    linked = set(re.findall(r'href="([^"#:]+\.html)', body))
    assert pages - linked == {"index.html", "genindex.html", "search.html", "py-modindex.html"} & pages


def test_no_two_entries_of_the_navigation_have_one_name(site):
    navigation = (site / "index.html").read_text(encoding="utf-8").partition("<article")[0]
    names = re.findall(r'toctree-l1"><a class="reference internal" href="[^"]+">(.*?)</a>', navigation)
    assert len(names) > 30
    assert len(set(names)) == len(names)


def test_no_page_ends_in_a_copyright_of_nobody(site):
    assert "Copyright" not in (site / "index.html").read_text(encoding="utf-8")
