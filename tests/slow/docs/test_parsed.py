"""What of commands can be checked without running them: that there are such options, and that they select tests."""

import json
import re
import shlex
import shutil

import click
import pytest

from pytest_roofline.cli.main import main

from ... import warm
from .pages import ROOT, pages, read_page
from .scene import stand_in

# The suite is collected once for each set of files and tier; which tests each -k leaves of it is asked of pytest.
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
    choosing = Choosing(expressions)
    with contextlib.redirect_stdout(io.StringIO()):
        status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *arguments], plugins=[choosing])
    print(json.dumps([arguments, int(status), choosing.counts]))
"""
# Everything else belongs into a block of another language.
PROGRAMS = ["ncu", "nsys", "pip", "pytest", "python", "python3", "rocprofv3", "roofline", "sbatch", "srun", "tox"]


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
            return rest[: min([rest.index(end) for end in ("&&", "||", "|", ";") if end in rest], default=len(rest))]
    return None


def arguments_of_pytest(words):
    """What pytest gets in a command line; tox and the drill hand on what they are given."""
    if words_behind("drill", words):
        return words_behind("drill", words)[1:]
    if words_behind("tox", words):
        # tests/run.py knows a word of its own, which never comes to pytest.
        return [word for word in words_behind("--", words) or [] if word != "slow"]
    return words_behind("pytest", words)


def selections():
    """By files and tier the values of -k that pages use on the shipped suite, each with a place."""
    found = {}
    for place, words, _ in commands():
        rest = iter(arguments_of_pytest(words) or ())
        files, expression = [], ""
        for word in rest:
            if word.startswith(("perf_tests", "--roofline-tier")):
                files.append(word)
            elif word == "-k":
                expression = next(rest)
        if any(word.startswith("perf_tests") for word in files):
            found.setdefault(tuple(files), {})[expression] = place
    return found


def test_every_command_of_a_page_selects_tests_of_the_shipped_suite():
    asked = selections()
    assert asked[("perf_tests",)]
    done = warm.run(["-c", CHOOSE, json.dumps([[files, list(places)] for files, places in asked.items()])], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(tuple(files), status) for files, status, _ in answers] == [(files, 0) for files in asked]
    empty = [
        f"{asked[tuple(files)][expression]}: -k {expression!r} selects nothing of {shlex.join(files)}"
        for files, _, counts in answers
        for expression, count in counts.items()
        if not count
    ]
    assert empty == []
    assert sum(len(counts) for _, _, counts in answers) == sum(map(len, asked.values()))


PYTEST = [(place, arguments_of_pytest(words)) for place, words, parsed in commands() if parsed]
PYTEST = [(place, arguments) for place, arguments in PYTEST if arguments]


@pytest.mark.parametrize(("place", "arguments"), PYTEST, ids=[place for place, _ in PYTEST])
def test_pytest_takes_the_options_of_a_command_that_no_test_runs(place, arguments, tmp_path):
    stand_in(tmp_path)
    shutil.copytree(ROOT / "benchmarks" / "drills", tmp_path, dirs_exist_ok=True)
    (tmp_path / "tests").mkdir()
    for word in arguments:
        if word.endswith(".py"):
            (tmp_path / word).touch()
    done = warm.run(["-m", "pytest", "-p", "no:cacheprovider", "--collect-only", *arguments], cwd=tmp_path)
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout + done.stderr


ROOFLINE = [(place, words_behind("roofline", words)) for place, words, parsed in commands() if parsed]
ROOFLINE = [(place, arguments) for place, arguments in ROOFLINE if arguments]


@pytest.mark.parametrize(("place", "arguments"), ROOFLINE, ids=[place for place, _ in ROOFLINE])
def test_roofline_takes_the_options_of_a_command_that_no_test_runs(place, arguments):
    command, rest = main, arguments
    while isinstance(command, click.Group):
        name, *rest = rest
        command = command.get_command(click.Context(command), name)
        assert command is not None, f"{place}: there is no {name}"
    command.make_context(command.name, rest)


def test_every_program_that_no_test_runs_is_known_here():
    firsts = [next(word for word in words if "=" not in word) for _, words, parsed in commands() if parsed]
    assert {first.rpartition("/")[2] for first in firsts} - set(PROGRAMS) == set()
