"""The one tolerance of a run of `roofline ab`, which is asked for ahead of `--` or among pytest's arguments."""

import argparse
from collections.abc import Sequence

from ..core.errors import BadInput
from ..core.units import parse_tolerance

OPTION, INI = "--roofline-tolerance", "roofline_tolerance"


def asked_tolerance(asked: str | None, arguments: Sequence[str]) -> float | None:
    """Return the tolerance that was asked for, as a share of time; None is the default.

    Args:
        asked: the value of `--tolerance`.
        arguments: pytest's.

    Raises:
        BadInput: two of them differ, or a value is no tolerance.
    """
    values = [("--tolerance", asked)] if asked is not None else []
    values += [(OPTION, text) for text in _values_behind(arguments)]
    shares = {f"{option}={text}": parse_tolerance(text, option) for option, text in values}
    if len(set(shares.values())) > 1:
        raise BadInput(f"the tolerances {' and '.join(shares)} differ; expected one tolerance")
    return next(iter(shares.values()), None)


def _values_behind(arguments: Sequence[str]) -> list[str]:
    """Return the tolerances among pytest's arguments, by its option or in place of its ini file's."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(OPTION, action="append", default=[], dest="values")
    parser.add_argument("-o", "--override-ini", action="append", default=[], dest="settings")
    try:
        options, _ = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise BadInput(f"behind --: {error}") from None
    pairs = (setting.partition("=") for setting in options.settings)
    return [*options.values, *(value for name, _, value in pairs if name.strip() == INI)]
