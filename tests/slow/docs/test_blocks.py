"""Every block of the documentation is of a known language, and is executed or says why not."""

import json
import re
import shlex
import subprocess
from collections import Counter

import pytest
import yaml
from markdown_it import MarkdownIt

from .pages import ALLOWED, LANGUAGES, NEEDED, ROOT, Block, pages, read_page

# How many blocks of a page another test runs. Whoever adds one makes that test run it first, then counts it here.
ELSEWHERE = {
    ("docs/exchange.md", "tests/bundle/test_cli.py"): 2,
    ("docs/ci.md", "tests/slow/ci/test_page.py"): 1,
    ("docs/compare.md", "tests/plugin/test_new_driver.py"): 9,
    ("docs/verdicts.md", "tests/slow/products/test_siblings.py"): 1,
    ("docs/ci.md", "tests/slow/packaging/test_wheelhouse.py"): 4,
    ("docs/writing-tests.md", "tests/plugin/test_figures.py"): 1,
}
BLOCKS = [block for page in pages() for block in read_page(page)]


def of(*languages):
    """The blocks of some languages."""
    return [pytest.param(block, id=block.place) for block in BLOCKS if block.language in languages]


@pytest.mark.parametrize("page", pages())
def test_every_block_of_a_page_is_a_fence_that_the_tests_read(page):
    tokens = MarkdownIt().parse((ROOT / page).read_text(encoding="utf-8"))
    kinds = ("fence", "code_block")
    written = [(token.map[0] + 1, token.markup, token.content) for token in tokens if token.type in kinds]
    assert [(block.line, "```", block.text) for block in BLOCKS if block.page == page] == written


def test_every_fence_names_a_language_that_the_tests_know():
    assert [block.place for block in BLOCKS if block.language not in LANGUAGES] == []


def test_every_word_above_a_block_is_one_of_its_language():
    wrong = [
        f"{block.place}: {word.kind}"
        for block in BLOCKS
        for word in block.words
        if word.kind not in ALLOWED.get(block.language, ())
    ]
    assert wrong == []


def test_every_comment_of_the_tests_stands_directly_above_a_block():
    told = sum((ROOT / page).read_text(encoding="utf-8").count("<!-- docs-test") for page in pages())
    assert told == sum(bool(block.words) for block in BLOCKS)


def test_what_no_program_runs_by_itself_says_what_it_is_for():
    silent = [b.place for b in BLOCKS if b.language in NEEDED and not NEEDED[b.language] & {w.kind for w in b.words}]
    assert silent == []


def test_lines_that_are_only_parsed_are_lines_of_their_block():
    for block in BLOCKS:
        starts = {number for number, _ in block.commands()} if block.language == "sh" else set()
        for word in block.words:
            assert word.lines & starts or not word.lines, f"{block.place}: {word}"


def test_another_test_looks_after_just_the_blocks_that_it_is_known_to_run():
    words = [(block.page, word) for block in BLOCKS for word in block.words if word.kind in ("elsewhere", "compared")]
    assert Counter((page, word.argument) for page, word in words) == ELSEWHERE


@pytest.mark.parametrize(("page", "test"), ELSEWHERE, ids=[page for page, _ in ELSEWHERE])
def test_what_looks_after_blocks_of_a_page_reads_it(page, test):
    assert page.rpartition("/")[2] in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", of("json", "yaml"))
def test_data_can_be_read(block):
    assert (json.loads if block.language == "json" else yaml.safe_load)(block.text)


@pytest.mark.parametrize("block", of("sh"))
def test_every_command_is_bash(block):
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_environments_of_tox_are_those_of_the_project():
    known = set(re.findall(r"^\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text(encoding="utf-8"), re.MULTILINE))
    asked = [name for _, command in commands("tox") for name in re.findall(r"(?:run|devenv) -e (\S+)", command)]
    assert asked
    assert {name for names in asked for name in names.split(",")} <= known


def commands(program: str) -> list[tuple[Block, str]]:
    """The commands of all pages that hold a program."""
    shells = [block for block in BLOCKS if block.language == "sh"]
    return [
        (block, command)
        for block in shells
        for _, command in block.commands()
        if program in re.split(r"[\s/]", _code(command))
    ]


def _code(command: str) -> str:
    return shlex.join(shlex.split(command, comments=True))
