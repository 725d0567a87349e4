"""Every block of the documentation is of a known language, and is executed or says why not."""

import json
import re
import subprocess
from collections import Counter

from markdown_it import MarkdownIt

from .pages import ALLOWED, NEEDED, ROOT, pages, read_page

# How many blocks of a page another test runs. Whoever adds one makes that test run it first, then counts it here.
ELSEWHERE = {
    ("CONTRIBUTING.md", "tests/slow/test_quarter_of_an_hour.py"): 1,
    ("docs/ci.md", "tests/slow/ci/test_page.py"): 1,
    ("docs/new-driver.md", "tests/slow/plugin/test_new_driver.py"): 7,
    ("docs/fleet.md", "tests/slow/plugin/test_new_driver.py"): 2,
    ("docs/reference/verdicts.md", "tests/slow/products/test_siblings.py"): 1,
    ("docs/reference/offline.md", "tests/slow/packaging/test_wheelhouse.py"): 4,
    ("docs/writing-tests.md", "tests/plugin/test_figures.py"): 1,
}
BLOCKS = [block for page in pages() for block in read_page(page)]


def test_every_block_is_a_fence_that_the_tests_read_with_its_comment():
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        tokens = [
            token for token in MarkdownIt().parse(text) if token.type in ("fence", "code_block")
        ]
        written = [(token.map[0] + 1, token.markup, token.content) for token in tokens]
        ours = [block for block in BLOCKS if block.page == page]
        assert [(block.line, "```", block.text) for block in ours] == written, page
        assert sum(bool(block.words) for block in ours) == text.count("<!-- docs-test"), page


def test_every_word_is_one_of_its_language_and_about_lines_of_its_block():
    for block in BLOCKS:
        assert block.language in ALLOWED, block.place
        kinds = {word.kind for word in block.words}
        needed = NEEDED.get(block.language)
        assert kinds <= ALLOWED[block.language], block.place
        assert needed is None or kinds & needed, f"{block.place} does not say what it is for"
        starts = {number for number, _ in block.commands()}
        assert all(word.lines & starts or not word.lines for word in block.words), block.place


def test_another_test_looks_after_just_the_blocks_that_it_is_known_to_run():
    words = [
        (block.page, word)
        for block in BLOCKS
        for word in block.words
        if word.kind in ("elsewhere", "compared")
    ]
    assert Counter((page, word.argument) for page, word in words) == ELSEWHERE
    for page, test in ELSEWHERE:
        assert page.rpartition("/")[2] in (ROOT / test).read_text(encoding="utf-8"), test


def test_data_can_be_read_and_commands_are_bash():
    for block in BLOCKS:
        if block.language == "json":
            assert json.loads(block.text), block.place
    commands = "".join(block.text for block in BLOCKS if block.language == "sh")
    done = subprocess.run(
        ["bash", "-n"], input=commands, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_link_leads_to_a_file():
    for page in pages():
        targets = re.findall(
            r"\]\((?!https?:)([^)#\s]+)", (ROOT / page).read_text(encoding="utf-8")
        )
        folder = (ROOT / page).parent
        assert [target for target in targets if not (folder / target).exists()] == [], page


def test_every_module_that_the_page_on_the_design_names_is_there():
    text = (ROOT / "docs" / "authors" / "design.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b[a-z_]+/(?:[a-z_]+/)*[a-z_]+\.py\b", text))
    roots = (ROOT, ROOT / "plugin" / "pytest_roofline", ROOT / "kernels" / "roofline_kernels")
    assert len(named) > 8
    assert [
        name for name in sorted(named) if not any((root / name).exists() for root in roots)
    ] == []
