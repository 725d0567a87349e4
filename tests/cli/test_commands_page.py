"""The page of options and commands is made from the code, and says where each has its use."""

import importlib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def program(monkeypatch):
    """The program that writes the page."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("commands_page")


@pytest.mark.feature
def test_the_page_says_what_the_help_says(program):
    message = "`python benchmarks/commands_page.py` writes it anew"
    assert program.PAGE.read_text(encoding="utf-8") == program.page(), message


@pytest.mark.feature
def test_a_command_has_both_names_of_help_after_the_page_is_made(program):
    program.page()
    for name in ("explain", "fleet", "report"):
        assert "-h, --help" in CliRunner().invoke(main, [name, "--help"]).output


@pytest.mark.feature
def test_every_command_and_every_linked_option_is_there(program):
    commands = [
        words
        for names in program.SECTIONS.values()
        for name in names
        for words, _ in program.leaves(name)
    ]
    assert sorted(commands) == sorted(program.COMMAND_PAGES)
    linked = [line for line in program.option_lines() if line.startswith("* [")]
    assert len(linked) == len(program.OPTION_PAGES)


def test_an_option_that_pytest_hides_has_no_line(program):
    lines = "\n".join(program.option_lines())
    assert ("--roofline-drill" in lines, "--roofline-tier=" in lines) == (False, True)


def test_the_help_of_a_command_becomes_markdown(program):
    @click.command()
    @click.argument("run")
    @click.option("--only", metavar="NAME", help="Only 'copy_*', as [a-c].")
    def show():
        """Show a run.

        \b
        .          the run at hand
        NAME       a run, *or* more

        Example: roofline show run

        Exit status: 0 shown, 1 it
        is slow, 2 the input cannot be used.
        """

    lines = program.command_text("show", show).splitlines()
    assert [line for line in lines if line] == [
        "### `roofline show`",
        "`roofline show [OPTIONS] RUN`",
        "Show a run.",
        "* `.`: the run at hand",
        r"* `NAME`: a run, \*or\* more",
        "Example: `roofline show run`",
        "Exit status: `0` shown, `1` it is slow, `2` the input cannot be used.",
        r"* `--only NAME`: Only 'copy_\*', as \[a-c\].",
    ]
