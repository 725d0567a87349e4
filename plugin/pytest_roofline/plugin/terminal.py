"""Lines of ours on the terminal: broken between words, also while tests run."""

import textwrap
from typing import Any

import pytest

from ..core.units import printable, without_commands


def tell(config: pytest.Config, line: str, *, progress: bool = True) -> None:
    """Print a line while tests run. With -q a line on progress is not printed."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or (progress and config.get_verbosity() < 0):
        return
    reporter.ensure_newline()
    if reporter._tw.width_of_current_line:
        # With -q pytest does not notice that this line has dots already.
        reporter.write("\n")
    for part in wrapped(printable(line), reporter._tw.fullwidth):
        reporter.write_line(part)


def wrapped(line: str, width: int) -> list[str]:
    """Return a line of ours, broken between words.

    A command stays whole, so that it can be copied.
    """
    is_command = line.startswith("  ") and line.lstrip().startswith(("roofline ", "pytest "))
    if len(line) <= width or is_command:
        return [without_commands(line)]
    indent = line[: len(line) - len(line.lstrip())] + "  "
    # A space that does not break keeps a number and its `%` together.
    parts = textwrap.wrap(
        line.replace(" %", "\xa0%"),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [without_commands(part.replace("\xa0%", " %")) for part in parts]
