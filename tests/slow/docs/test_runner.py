"""What runs the blocks of pages notices what is wrong with them."""

import pytest

from .pages import Block, Word, read_page
from .scene import Scene


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


@pytest.fixture
def play(scene):
    """Play a block of a language with one word above it."""

    def play(language, text, kind="", argument="", lines=()):
        words = (Word(kind, argument, frozenset(lines), "a reason"),) if kind else ()
        scene.play(Block("page.md", 1, language, text, words))

    return play


@pytest.fixture
def page(tmp_path):
    """The blocks of a page with this text."""

    def page(text):
        (tmp_path / "page.md").write_text(text)
        return read_page(str(tmp_path / "page.md"))

    return page


def test_a_command_with_another_status_is_noticed(play):
    play("sh", "roofline compare one two  # there are no such runs\n", "exit", "2")
    with pytest.raises(AssertionError, match=r"page\.md:1: roofline compare one two"):
        play("sh", "roofline compare one two\n")


def test_a_command_that_no_test_can_run_has_to_say_why(play):
    with pytest.raises(AssertionError, match="no test runs srun"):
        play("sh", "srun -N2 hostname\n")
    play("sh", "srun -N2 hostname\n", "parse")


def test_only_the_lines_that_are_named_are_left_to_parsing(play):
    with pytest.raises(AssertionError, match="no test runs sbatch"):
        play("sh", "srun -N2 hostname\nsbatch job\n", "parse", lines=[1])


def test_what_a_program_prints_is_all_that_stands_below_it(play):
    play("python", "print('one')\nprint('two')\n")
    play("text", "one\ntwo\n")
    with pytest.raises(AssertionError):
        play("text", "one\n")


def test_names_are_known_to_later_programs_of_a_page(play):
    play("python", "x = 41\n")
    play("python", "print(x + 1)\n")
    play("text", "42\n")


def test_a_test_that_fails_is_noticed(play):
    with pytest.raises(AssertionError, match="1 failed"):
        play("python", "def test_it():\n    assert False\n")


DEVICE = "import pytest\n@pytest.mark.roofline(needs='accelerator')\n"
SECOND = "import pytest\n@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.skip)])\n"
NEVER_RUN = {
    "skipped": "import pytest\ndef test_it():\n    pytest.skip('no GPU')\n",
    "xfailed": "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n",
    "xpassed": "import pytest\n@pytest.mark.xfail\ndef test_it():\n    pass\n",
    "without the device": DEVICE + "def test_it(roofline):\n    1 / 0\n",
    "in a class": "class TestIt:\n    def test_it(self):\n        assert False\n",
    "in a class with another name": "class It:\n    def test_it(self):\n        1 / 0\n\ndef test_two():\n    pass\n",
    "async": "async def test_it():\n    assert False\n",
    "nested": "def test_it():\n    def test_nested():\n        assert False\n",
    "partly": SECOND + "def test_it(n):\n    pass\n",
}


@pytest.mark.parametrize("text", NEVER_RUN.values(), ids=NEVER_RUN)
def test_tests_that_did_not_all_pass_are_noticed(play, text):
    with pytest.raises(AssertionError):
        play("python", text)


def test_every_test_of_a_class_may_pass(play):
    play("python", "class TestIt:\n    def test_one(self):\n        pass\n\n    def test_two(self):\n        pass\n")


def test_tests_are_left_out_only_where_the_page_says_so(play):
    text = "import pytest\n@pytest.mark.parametrize('n', [4096, 8192])\ndef test_it(n):\n    assert n == 4096\n"
    play("python", text, "only", "4096")
    with pytest.raises(AssertionError, match="1 failed"):
        play("python", text)


def test_a_command_whose_tests_are_skipped_is_noticed(play):
    play("python", "import pytest\n\n@pytest.mark.skip\ndef test_it():\n    pass\n", "file", "test_some.py")
    with pytest.raises(AssertionError, match="tests were skipped"):
        play("sh", "pytest test_some.py\n")


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return undefined\n",
        "def f():\n    return f()\n",
        "class C:\n    def f(self):\n        return undefined\n",
        "async def f():\n    return undefined\n",
    ],
    ids=["function", "recursive", "class", "async"],
)
def test_a_definition_that_no_block_uses_is_noticed(scene, play, text):
    play("python", text)
    play("python", "print(1)\n")
    with pytest.raises(AssertionError, match=r"page\.md:1: nothing uses"):
        scene.end()


def test_a_definition_may_be_used_further_down_or_be_said_to_be_of_no_use(scene, play):
    play("python", "def f():\n    return 1\n")
    play("python", "print(f())\n")
    play("python", "def g():\n    return undefined\n", "unused")
    scene.end()


def test_a_file_that_no_command_runs_is_noticed(scene, play):
    play("python", "def test_it():\n    pass\n", "file", "test_some.py")
    with pytest.raises(AssertionError, match=r"nothing runs test_some\.py"):
        scene.end()
    play("sh", "pytest test_some.py\n")
    scene.end()


def test_lines_of_a_command_stand_in_their_order(play):
    play("sh", "printf 'a 1\\nb 2\\nc 3\\n' | cat\n")
    play("text", "a 1\n…\nc 3\n")
    with pytest.raises(AssertionError, match="shows 'a 1'"):
        play("text", "c 3\na 1\n")
    with pytest.raises(AssertionError, match="shows 'b 3'"):
        play("text", "b 3\n")


def test_a_shape_leaves_numbers_open_and_words_not(play):
    play("sh", "printf 'call 0 took 1.76 ms, PASSED\\n' | cat\n")
    play("text", "call 0 took 250 µs, PASSED\n", "shape")
    with pytest.raises(AssertionError, match="REGRESSED"):
        play("text", "call 0 took 250 µs, REGRESSED\n", "shape")


def test_a_diff_has_to_fit_its_file(play):
    play("python", "x = 1\n", "file", "some.py")
    with pytest.raises(AssertionError, match="has not these lines once"):
        play("diff", "-x = 2\n+x = 3\n", "patch", "some.py")


@pytest.mark.parametrize(
    ("comment", "said"), [("parse", "no reason"), ("record, ", "no reason"), ("parse 1-2", "no reason")]
)
def test_a_word_without_a_reason_is_refused(page, comment, said):
    with pytest.raises(AssertionError, match=said):
        page(f"<!-- docs-test: {comment} -->\n```sh\ntrue\n```\n")


def test_a_fence_that_is_never_closed_is_refused(page):
    with pytest.raises(AssertionError, match="never closed"):
        page("```sh\ntrue\n")


def test_a_comment_counts_for_the_block_below_it_alone(page):
    first, second = page("<!-- docs-test: parse, why -->\n```sh\ntrue\n```\n\n```sh\nfalse\n```\n")
    assert (first.word("parse").why, second.word("parse")) == ("why", None)


def test_continued_lines_are_one_command(page):
    (block,) = page("```sh\npytest \\\n  -q\n\n# nothing\nroofline --help\n```\n")
    assert block.commands() == [(1, "pytest   -q"), (5, "roofline --help")]
