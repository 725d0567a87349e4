"""What runs the blocks of pages notices what is wrong with them."""

import re

import pytest

from .pages import Block, Word, read_page
from .scene import Scene

SKIPPED = "import pytest\n\n@pytest.mark.skip\ndef test_it():\n    pass\n"
TEST = "def test_it():\n    pass\n"


@pytest.fixture
def play(tmp_path):
    """Play blocks, each a language and a text with one word above it, in one folder."""
    scene = Scene(tmp_path)

    def play(*blocks):
        for language, text, *word in blocks:
            kind, argument, lines = (*word, "", "", ())[:3] if word else ("", "", ())
            words = (Word(kind, argument, frozenset(lines), "a reason"),) if kind else ()
            scene.play(Block("page.md", 1, language, text, words))

    return play


@pytest.mark.parametrize(
    ("said", "blocks"),
    [
        ("page.md:1: roofline compare one two", [("sh", "roofline compare one two\n")]),
        ("no test runs srun", [("sh", "srun -N2 hostname\n")]),
        ("no test runs sbatch", [("sh", "srun -N2 hostname\nsbatch job\n", "parse", "", [1])]),
        ("page.md:1", [("python", "print('one')\nprint('two')\n"), ("text", "one\n")]),
        ("1 failed", [("python", "def test_it():\n    assert False\n")]),
        ("tests were skipped", [("python", SKIPPED)]),
        ("tests were skipped", [("python", SKIPPED, "file", "test_some.py"), ("sh", "pytest test_some.py\n")]),
        ("shows 'a 1'", [("sh", "printf 'a 1\\nc 3\\n' | cat\n"), ("text", "c 3\na 1\n")]),
        ("shows 'b 3'", [("sh", "printf 'b 2\\n' | cat\n"), ("text", "b 3\n")]),
        ("REGRESSED", [("sh", "printf 'took 1 ms, PASSED\\n' | cat\n"), ("text", "took 2 µs, REGRESSED\n", "shape")]),
        ("has not these lines once", [("python", "x\n", "file", "a.py"), ("diff", "-y = 2\n+x\n", "patch", "a.py")]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_blocks_is_noticed(play, said, blocks):
    with pytest.raises(AssertionError, match=re.escape(said)):
        play(*blocks)


def test_what_is_right_with_blocks_passes(play):
    play(
        ("sh", "roofline compare one two  # there are no such runs\n", "exit", "2"),
        ("sh", "srun -N2 hostname\n", "parse"),
        ("python", "x = 41\n"),
        ("python", "print(x + 1)\n"),
        ("text", "42\n"),
        ("python", TEST, "file", "test_some.py"),
        ("sh", "pytest test_some.py\n"),
        ("sh", "printf 'a 1\\nb 2\\nc 3\\n' | cat\n"),
        ("text", "a 1\n…\nc 3\n"),
        ("sh", "printf 'call 0 took 1.76 ms, PASSED\\n' | cat\n"),
        ("text", "call 0 took 250 µs, PASSED\n", "shape"),
    )


def test_comments_count_for_the_block_below_them_and_need_a_reason(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- docs-test: parse 1, why -->\n```sh\npytest \\\n  -q\n\n# no\nroofline --help\n```\n\n```sh\nfalse\n```\n"
    )
    first, second = read_page(str(page))
    assert first.commands() == [(1, "pytest   -q"), (5, "roofline --help")]
    assert (first.word("parse", 1).why, first.word("parse", 5), second.words) == ("why", None, ())
    for comment in ("parse", "record, ", "parse 1-2"):
        page.write_text(f"<!-- docs-test: {comment} -->\n```sh\ntrue\n```\n")
        with pytest.raises(AssertionError, match="no reason"):
            read_page(str(page))
