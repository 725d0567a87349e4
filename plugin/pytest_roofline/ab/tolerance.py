"""The tolerance of a run of `roofline ab`.

The user names it before `--`, or among pytest's arguments.
"""

import shlex
from argparse import Namespace
from collections.abc import Sequence

from ..core.errors import BadInput
from ..core.units import parse_tolerance
from ..settings.command_line import parse_apart

OPTION, INI = "--roofline-tolerance", "roofline_tolerance"


def tolerance_in_force(option_text: str | None, arguments: Sequence[str]) -> float | None:
    """Return the tolerance of a run, as a share of time. None means the default.

    Args:
        option_text: the value of `--tolerance`.
        arguments: pytest's.

    Raises:
        BadInput: two tolerances differ, a value is no tolerance, or pytest cannot read its arguments.
    """
    values = [("--tolerance", option_text)] if option_text is not None else []
    values += [(OPTION, text) for text in _values_behind(arguments)]
    shares = {f"{option}={text}": parse_tolerance(text, option) for option, text in values}
    if len(set(shares.values())) > 1:
        raise BadInput(f"the tolerances {' and '.join(shares)} differ; expected one tolerance")
    return next(iter(shares.values()), None)


def _values_behind(arguments: Sequence[str]) -> list[str]:
    """Return the texts of tolerances among pytest's arguments.

    They are values of the option, and of the ini setting by `-o`.
    """
    # An argument @FILE stands for the arguments in the file. Other arguments are not parsed, only passed to pytest.
    if not any(OPTION in text or INI in text or text.startswith("@") for text in arguments):
        return []
    try:
        addopts = _settings(_parse(arguments), "addopts")
        # As in pytest: the last addopts counts, its arguments come first, and an addopts among them is ignored.
        options = _parse([*shlex.split(addopts[-1]), *arguments] if addopts else arguments)
    except ValueError as error:
        raise BadInput(
            f"the arguments after -- cannot be read: {error}; expected only arguments of pytest or pytest-roofline; "
            "give the tolerance before --, as --tolerance"
        ) from None
    return [*options.tolerances, *_settings(options, INI)]


def _parse(arguments: Sequence[str]) -> Namespace:
    """Return the arguments as pytest parses them.

    `tolerances` has every value of the option, where pytest keeps only the last.
    """
    return parse_apart(arguments, OPTION, "tolerances")


def _settings(options: Namespace, name: str) -> list[str]:
    """Return the values of an ini setting that `-o NAME=VALUE` sets."""
    pairs = (setting.partition("=") for setting in options.override_ini or ())
    return [value for key, _, value in pairs if key == name]
