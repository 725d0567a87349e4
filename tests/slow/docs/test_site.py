"""The site that `tox run -e docs` builds of the pages."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from ... import warm
from ...tools import require_tools
from ..browser import chromium, requests, resize
from .pages import ROOT

# The width of a phone.
PHONE = 400


class Targets(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.add(found.get("id") or "")
        self.links |= {link for link in (found.get("href"), found.get("src")) if link}
        # A browser loads these by itself; an `a` waits for the reader.
        if tag != "a":
            self.loaded |= {link for link in (found.get("href"), found.get("src")) if link}


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser with the screen of a phone."""
    require_tools("chromium", "chromedriver")
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        resize(driver, PHONE)
        yield driver


def test_no_page_loads_anything_from_another_place(site):
    pages = list(site.rglob("*.html"))
    loaded = {link for page in pages for link in Targets(page).loaded}
    styles = [style.read_text(encoding="utf-8") for style in site.rglob("*.css")]
    loaded |= {
        link
        for style in styles
        for link in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", style)
    }
    assert any(".css" in link for link in loaded)
    assert [link for link in loaded if re.match(r"(https?:)?//", link)] == []


def test_on_a_phone_no_page_is_wider_than_the_screen(site, browser):
    requests(browser)
    wide = []
    for page in sorted(site.rglob("*.html")):
        browser.get(page.as_uri())
        width = browser.execute_script("return document.documentElement.scrollWidth")
        if width != PHONE:
            wide.append((page.relative_to(site).as_posix(), width))
    assert wide == []
    addresses = requests(browser)
    assert addresses
    assert [url for url in addresses if not url.startswith(site.as_uri())] == []


def test_a_search_finds_the_page_without_a_network(site, browser):
    from selenium.webdriver.support.ui import WebDriverWait

    form = re.search(r'<form[^>]*action="([^"]+)"', (site / "index.html").read_text("utf-8"))
    browser.get(f"{(site / form[1]).as_uri()}?q=INCONCLUSIVE")
    results = "return [...document.querySelectorAll('#search-results li a')].map(a => a.pathname)"
    expected = (site / "reference/verdicts.html").as_posix()
    # The page adds one result after the other.
    WebDriverWait(browser, 60, 0.05).until(lambda page: expected in page.execute_script(results))
