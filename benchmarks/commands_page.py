"""The page of options and commands, made from their help: `python benchmarks/commands_page.py`.

It writes `docs/reference/commands.md`, and a test compares that page with the code. Only the introductions and the
links to other pages stand here.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pytest_roofline.cli.main import SECTIONS, main
from pytest_roofline.settings.options import COMMAND_OPTIONS, add_options

PAGE = Path(__file__).parents[1] / "docs/reference/commands.md"
OPTIONS = """# Options and commands

This page is made from what `pytest --help` and `roofline COMMAND --help` print.

## Options of pytest

{command_only} stand in the command only. Every other option
can also be set in an ini file, with underscores: `roofline_tier = nightly`. Of several values the first counts: an
argument of `measure` or of the marker, the entry of the baseline, the command line, the ini file, the default. If
`--roofline-ci` stands in the command, [the command decides](gate.md#the-command-decides).
"""
COMMANDS = """pytest-xdist runs tests side by side, which disturbs every timing. So with `-n 2`, tests that measure are
skipped, or fail under `--roofline-ci`. pytest refuses to start with `PYTHONOPTIMIZE`, since no `assert` would then
see wrong data.

## The command `roofline`

{help}

Only `ab`, `bisect`, `drill` and `doctor --measure` measure. They need torch; with `--run`, `ab` and `bisect` do not.

```sh
roofline --help
roofline compare --help
```

{options}

### Exit statuses

{statuses}

So a script can tell "slower" from "could not tell":

```sh
status=0; roofline hardware nonsense > output.txt || status=$?; test $status = 1
```

`compare`, `rollout` and `ab` share one rule. 1 outweighs all else. 2 also says that they cannot tell: nothing was
compared, or a test is INCONCLUSIVE and its estimate lies beyond its tolerance or limit. Of imported logs, which
nothing measures again, every INCONCLUSIVE test counts. The output is complete all the same, and its last line names
the undecided tests.

A run of pytest ends with pytest's own status: 1 if a test failed, and [the gate](gate.md#what-fails) says which
verdicts fail a test.

`export -o` and `report -o` replace a file that an earlier call wrote; `export` refuses the name of a run, of a baseline
and of its input. Every other `-o`, and `--write-expect`, refuses a name that is taken. No command writes over a pipe or
a device; `export` can write to standard output.

### All commands

With `--json` a command prints [one JSON document](formats.md#json).
"""
# By option of pytest, the page that tells more.
OPTION_PAGES = {
    "--roofline-record": "baselines.md#recording",
    "--roofline-rounds": "gate.md#rounds",
    "--roofline-ci": "gate.md",
    "--roofline-fail-on": "gate.md#what-fails",
    "--roofline-min-percent": "verdicts.md#limits",
    "--roofline-expect": "../authors/timing.md#roofline-doctor",
    "--roofline-profile": "../writing-tests.md",
    "--roofline-report": "reports.md",
    "--roofline-wait": "baselines.md#a-quiet-machine",
}
# By command, the page on what it is for.
COMMAND_PAGES = {
    "report": "reports.md",
    "explain": "verdicts.md",
    "profiler": "../writing-tests.md",
    "compare": "../new-driver.md",
    "history": "../new-driver.md",
    "rollout": "../fleet.md",
    "fleet": "../fleet.md",
    "init": "../ci.md",
    "baseline propose": "baselines.md",
    "baseline approve": "baselines.md#approving",
    "baseline show": "baselines.md#show-and-check",
    "baseline check": "baselines.md#show-and-check",
    "ab": "../pull-requests.md",
    "bisect": "../what-did-it.md",
    "drill": "../quick-start.md",
    "doctor": "../authors/timing.md#roofline-doctor",
    "hardware": "../authors/hardware.md",
    "export": "formats.md#formats-that-export-writes",
    "import": "formats.md#formats-that-import-reads",
}


def page() -> str:
    """Return the whole page."""
    command_only = [f"`--roofline-{name}`" for name in COMMAND_OPTIONS]
    prose, statuses = inspect.cleandoc(main.help or "").rsplit("Exit status of every command: ", 1)
    parts = [
        OPTIONS.format(command_only=" and ".join(command_only)),
        "\n".join(option_lines()) + "\n",
        COMMANDS.format(
            help=join_lines(prose),
            options="\n".join(parameter_lines(main, root_context())),
            statuses=mark_statuses(statuses),
        ),
        "\n".join(table_lines()) + "\n",
    ]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [command_text(*leaf) for name in names for leaf in leaves(name)]
    return "\n".join(parts)


class OptionGroup:
    """A parser of pytest that keeps the options which are added, by name."""

    def __init__(self) -> None:
        self.options: dict[str, dict[str, Any]] = {}

    def getgroup(self, *_names: str) -> "OptionGroup":
        """Return the group of options, which is the parser itself."""
        return self

    def addoption(self, name: str, **settings: Any) -> None:
        """Keep an option with its settings, which are those of argparse."""
        self.options[name] = settings

    def addini(self, *_names: Any, **_settings: Any) -> None:
        """Ignore an ini setting, which has the help of its option."""


def option_lines() -> Iterator[str]:
    """Yield a line for each option of pytest that `pytest --help` shows."""
    group = OptionGroup()
    add_options(group)  # type: ignore[arg-type]
    for name, settings in group.options.items():
        # A hidden option has argparse's mark in place of a text.
        if settings["help"].startswith("=="):
            continue
        metavar = settings.get("metavar")
        spelling = f"`{name}={metavar}`" if metavar else f"`{name}`"
        address = OPTION_PAGES.get(name)
        link = f"[{spelling}]({address})" if address else spelling
        yield f"* {link}: {escape(settings['help'].replace('%%', '%'))}."


def root_context() -> click.Context:
    """Return the context of `roofline` itself.

    It has the names of the option for help. A command keeps those of the first context that it is used with.
    """
    return click.Context(main, **main.context_settings)


def leaves(name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command by its words; of a group yield each of its commands."""
    context = root_context()
    command = main.get_command(context, name)
    assert command is not None
    if not isinstance(command, click.Group):
        yield name, command
        return
    for inner_name in command.list_commands(context):
        inner = command.get_command(context, inner_name)
        assert inner is not None
        yield f"{name} {inner_name}", inner


def table_lines() -> Iterator[str]:
    """Yield the table of all commands: each links to its part of this page, and to the page on its use."""
    yield "| command | does | more |"
    yield "|---|---|---|"
    for names in SECTIONS.values():
        for name in names:
            for words, command in leaves(name):
                anchor = f"roofline {words}".replace(" ", "-")
                address = COMMAND_PAGES[words]
                title = address.rpartition("/")[2].partition(".md")[0].replace("-", " ")
                yield f"| [`{words}`](#{anchor}) | {first_sentence(command)} | [{title}]({address}) |"


def first_sentence(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    return join_lines(inspect.cleandoc(command.help or "").partition("\n\n")[0]).replace("|", "\\|")


def command_text(words: str, command: click.Command) -> str:
    """Return the part of the page on one command: its usage, its help and its options."""
    context = click.Context(command, info_name=words, parent=root_context())
    usage = " ".join([f"roofline {words}", *command.collect_usage_pieces(context)])
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    parts = [f"### `roofline {words}`", f"`{usage}`", *map(paragraph_text, paragraphs)]
    parts.append("\n".join(parameter_lines(command, context)))
    return "\n\n".join(parts) + "\n"


def paragraph_text(paragraph: str) -> str:
    """Return a paragraph of a command's help as Markdown.

    A paragraph behind click's mark for lines that stay apart becomes a list: the first column is the term.
    """
    if paragraph.startswith("\b"):
        rows = [re.split(r" {2,}", line, maxsplit=1) for line in paragraph.splitlines()[1:]]
        return "\n".join(f"* `{term}`: {escape(text)}" for term, text in rows)
    text = " ".join(paragraph.split())
    if text.startswith("Example: "):
        return f"Example: `{text.removeprefix('Example: ')}`"
    if text.startswith("Exit status: "):
        return f"Exit status: {mark_statuses(text.removeprefix('Exit status: '))}"
    return escape(text)


def parameter_lines(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield a line for each option of a command, but `--help`."""
    for parameter in command.params:
        # Some versions of click have a record of arguments too, which say no more than the usage.
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            spelling, text = record
            yield f"* `{spelling}`: {escape(text)}"


def mark_statuses(text: str) -> str:
    """Return the sentence on exit statuses, with each number as code."""
    return escape(re.sub(r"(^|[,;] )([012]) ", r"\1`\2` ", " ".join(text.split())))


def join_lines(text: str) -> str:
    """Return a text of several lines as one line of Markdown."""
    return escape(" ".join(text.split()))


def escape(text: str) -> str:
    """Return a text as Markdown: no character outside of backquotes is markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
