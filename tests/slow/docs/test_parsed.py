"""What of commands can be checked without running them: that there are such options, and that they select tests."""

import json
import re
import shlex
import shutil

import click
import pytest

from pytest_roofline.cli.main import main

from ... import warm
from ...run import PARTS
from .pages import ROOT, pages, read_page

# Tests are collected once for each set of arguments; which of them each -k leaves is asked of pytest.
CHOOSE = """
import contextlib, io, json, sys
import pytest

class Choosing:
    def __init__(self, expressions):
        self.expressions, self.counts = expressions, {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        for expression in self.expressions:
            chosen, config.option.keyword = list(items), expression
            config.pluginmanager.getplugin("mark").pytest_collection_modifyitems(chosen, config)
            self.counts[expression] = len(chosen)
        config.option.keyword = ""

for arguments, expressions in json.loads(sys.argv[1]):
    choosing, said = Choosing(expressions), io.StringIO()
    # A gate of the command refuses to only look at tests.
    words = [word for word in arguments if not word.startswith("--roofline-ci")]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *words], plugins=[choosing])
    print(json.dumps([arguments, int(status), choosing.counts, said.getvalue()[-500:]]))
"""
# Everything else belongs into a block of another language.
PROGRAMS = {
    "git",
    "ncu",
    "nsys",
    "pip",
    "pytest",
    "python",
    "python3",
    "rocprofv3",
    "roofline",
    "sbatch",
    "srun",
    "tox",
}


def commands():
    """Every command line of every page: its place, its words, and whether it is only parsed."""
    for page in pages():
        for block in read_page(page):
            if block.language == "sh" and not block.apart:
                for number, command in block.commands():
                    words = shlex.split(command, comments=True)
                    yield f"{block.place} line {number}", words, bool(block.word("parse", number))


def words_behind(program, words):
    """The arguments of a program in a command line, whoever starts it; None where it is not in it."""
    for at, word in enumerate(words):
        if re.fullmatch(rf"(.*/)?{program}", word):
            rest = words[at + 1 :]
            return rest[
                : min(
                    [rest.index(end) for end in ("&&", "||", "|", ";") if end in rest],
                    default=len(rest),
                )
            ]
    return None


def arguments_of_pytest(words):
    """What pytest gets in a command line; tox and the drill hand on what they are given."""
    if words_behind("drill", words):
        return words_behind("drill", words)[1:]
    if words_behind("tox", words):
        return [word for word in words_behind("--", words) or [] if word not in PARTS]
    return words_behind("pytest", words)


def collected(asked, **more):
    """By arguments, in a process of its own: status, how many tests each -k leaves, and the end of what was said."""
    done = warm.run(
        ["-c", CHOOSE, json.dumps([[list(one), list(asked[one])] for one in asked])], **more
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_command_of_a_page_selects_tests_of_the_shipped_suite():
    asked = {}
    for place, words, _ in commands():
        arguments = arguments_of_pytest(words) or []
        chosen = tuple(
            word for word in arguments if word.startswith(("perf_tests", "--roofline-tier"))
        )
        expression = arguments[arguments.index("-k") + 1] if "-k" in arguments else ""
        if any(word.startswith("perf_tests") for word in chosen):
            asked.setdefault(chosen, {})[expression] = place
    assert ("perf_tests",) in asked
    for arguments, status, counts, said in collected(asked, cwd=ROOT):
        empty = [
            f"{asked[tuple(arguments)][one]}: -k {one!r}"
            for one, count in counts.items()
            if not count
        ]
        assert (status, empty) == (0, []), f"{arguments}: {said}"


def test_pytest_takes_the_options_of_every_command_that_no_test_runs(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "perf_tests").mkdir()
    # It has options of its own.
    shutil.copy(ROOT / "perf_tests/conftest.py", tmp_path / "perf_tests")
    asked = {}
    for place, words, parsed in commands():
        arguments = [
            word for word in arguments_of_pytest(words) or [] if parsed and word != "copy_more"
        ]
        if arguments:
            for word in arguments:
                if word.endswith(".py"):
                    (tmp_path / word).touch()
            asked[tuple(word for word in arguments if word != "-p")] = {"": place}
    assert len(asked) > 10
    none = (int(pytest.ExitCode.OK), int(pytest.ExitCode.NO_TESTS_COLLECTED))
    refused = [
        (one, said) for one, status, _, said in collected(asked, cwd=tmp_path) if status not in none
    ]
    assert refused == []


def test_roofline_takes_the_options_of_every_command_that_no_test_runs():
    # A command keeps the names of the option for help that its first context has.
    root = click.Context(main, **main.context_settings)
    for place, words, parsed in commands():
        command, rest = main, words_behind("roofline", words) if parsed else None
        while rest and isinstance(command, click.Group):
            name, *rest = rest
            command = command.get_command(click.Context(command), name)
            assert command is not None, f"{place}: there is no {name}"
        if command is not main:
            command.make_context(command.name, rest, parent=root)


def test_every_program_that_no_test_runs_and_every_environment_of_tox_is_known():
    firsts = {
        next(word for word in words if "=" not in word) for _, words, parsed in commands() if parsed
    }
    assert {first.rpartition("/")[2] for first in firsts} <= PROGRAMS
    known = set(
        re.findall(
            r"^\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    lines = [" ".join(words_behind("tox", words) or []) for _, words, _ in commands()]
    asked = {
        name
        for line in lines
        for names in re.findall(r"^(?:run|devenv) -e (\S+)", line)
        for name in names.split(",")
    }
    assert asked
    assert asked <= known
