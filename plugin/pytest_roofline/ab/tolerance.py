"""The one tolerance of a run of `roofline ab`, which is asked for ahead of `--` or among pytest's arguments."""

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
        BadInput: two of them differ, a value is no tolerance, or pytest cannot read its arguments.
    """
    values = [("--tolerance", option_text)] if option_text is not None else []
    values += [(OPTION, text) for text in _values_behind(arguments)]
    shares = {f"{option}={text}": parse_tolerance(text, option) for option, text in values}
    if len(set(shares.values())) > 1:
        raise BadInput(f"the tolerances {' and '.join(shares)} differ; expected one tolerance")
    return next(iter(shares.values()), None)


def _values_behind(arguments: Sequence[str]) -> list[str]:
    """Return the tolerances among pytest's arguments, by option or ini setting."""
    # An argument @FILE stands for those in the file. What names no tolerance is pytest's alone to read.
    if not any(OPTION in text or INI in text or text.startswith("@") for text in arguments):
        return []
    try:
        added = _settings(_parse(arguments), "addopts")
        # As pytest does: the last addopts counts, its arguments come first, and none of them adds further ones.
        options = _parse([*shlex.split(added[-1]), *arguments] if added else arguments)
    except ValueError as error:
        raise BadInput(
            f"after --: {error}; expected arguments of pytest or pytest-roofline "
            "only, or --tolerance before --"
        ) from None
    return [*options.tolerances, *_settings(options, INI)]


def _parse(arguments: Sequence[str]) -> Namespace:
    """Return the arguments as pytest parses them, with every tolerance."""
    return parse_apart(arguments, OPTION, "tolerances")


def _settings(options: Namespace, name: str) -> list[str]:
    """Return the values of an ini setting by `-o NAME=VALUE`."""
    pairs = (setting.partition("=") for setting in options.override_ini or ())
    return [value for key, _, value in pairs if key == name]
