"""Unknown options and values of ours: each is refused with what to type in its place."""

import os
import shlex
from collections.abc import Iterator, Sequence

import pytest

from ..core.errors import BadInput
from ..core.units import printable
from .options import COMMAND_OPTIONS, DRILL, NAMES, PREFIX, SHADOW, ini_name

_LIST_HINT = "`pytest --help` lists all options"
# The flags of ours, which take no value, each with the texts that may follow `=` all the same.
_FLAGS = {f"{PREFIX}ci": (SHADOW,), f"{PREFIX}record": ()}


def refuse_values(pluginmanager: pytest.PytestPluginManager) -> None:
    """Refuse a value behind a flag of ours.

    A flag is an option without a value. This is before pytest reads the command.

    Raises:
        pytest.UsageError: with what to type.
    """
    for word in _words(pluginmanager):
        flag, equals, value = word.partition("=")
        values = _FLAGS.get(flag)
        if not equals or values is None or value in values:
            continue
        expected = f"no value but {' or '.join(values)}" if values else "no value"
        forms = " or ".join([flag, *(f"{flag}={form}" for form in values)])
        raise pytest.UsageError(
            printable(f"{flag} is {value!r}; expected {expected}. Type {forms}")
        )


def _words(pluginmanager: pytest.PytestPluginManager) -> Iterator[str]:
    """Yield the words of the command, of PYTEST_ADDOPTS and of `addopts`."""
    config: pytest.Config | None = pluginmanager.get_plugin("pytestconfig")
    assert config is not None
    yield from map(str, config.invocation_params.args)
    yield from shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    # Plugins that are handed to `pytest.main` are registered before the ini file is read; then it has no words yet.
    if getattr(config, "_inipath", None) is not None:
        yield from config.getini("addopts")


def refuse_options(parser: pytest.Parser, words: Sequence[str]) -> None:
    """Raise if the command has an unregistered option of our prefix.

    Raises:
        pytest.UsageError: with the option whose name is near.
    """
    if not any(word.startswith(PREFIX) for word in words):
        return
    _, unknown_words = parser.parse_known_and_unknown_args(words)
    for word in unknown_words:
        name = word.partition("=")[0].removeprefix(PREFIX)
        if word.startswith(PREFIX):
            nearest = _near(name, (*NAMES, *COMMAND_OPTIONS))
            expected = f"did you mean {PREFIX}{nearest}?" if nearest else _LIST_HINT
            raise pytest.UsageError(printable(f"pytest has no option {PREFIX}{name}; {expected}"))


def refuse_settings(config: pytest.Config) -> None:
    """Raise if the ini file has an unknown option of ours.

    A gate or a recording would run without the setting that was meant.

    Raises:
        BadInput: with the option whose name is near.
    """
    prefix = ini_name("")
    # Only keys that no plugin has registered count; another plugin may have keys with our prefix.
    unknown = sorted(name for name in config._get_unknown_ini_keys() if name.startswith(prefix))
    if not unknown:
        return
    first_unknown = unknown[0].removeprefix(prefix)
    nearest = _near(first_unknown, NAMES)
    file = config.inipath.name if config.inipath is not None else "-o"
    expected = f"did you mean {ini_name(nearest)}?" if nearest else _LIST_HINT
    raise BadInput(
        f"{file} sets {printable(', '.join(unknown))}, which is no option of pytest-roofline; {expected}"
    )


def _near(name: str, names: Sequence[str]) -> str:
    """Return the option with the nearest name, if any."""
    import difflib

    # The option of `roofline drill` is internal, so it is never proposed.
    option_names = [option for option in names if option != DRILL]
    return next(iter(difflib.get_close_matches(name.replace("_", "-"), option_names, 1)), "")
