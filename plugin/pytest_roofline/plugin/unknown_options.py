"""Options of ours that there are not, or that take no such value: each is refused with what to type in its place."""

import os
import shlex
from collections.abc import Iterator, Sequence

import pytest

from ..core.errors import BadInput
from ..core.units import printable
from .options import COMMANDED, DRILL, NAMES, PREFIX, SHADOW, ini_name

_LISTED = "`pytest --help` lists those that there are"
# By flag without a value of its own, what stands behind it all the same.
_FLAGS = {f"{PREFIX}ci": (SHADOW,), f"{PREFIX}record": ()}


def refuse_values(pluginmanager: pytest.PytestPluginManager) -> None:
    """Raise where a flag of ours is given a value, before pytest reads it and answers in words of its parser.

    Raises:
        pytest.UsageError: with what to type.
    """
    for word in _words(pluginmanager):
        flag, equals, value = word.partition("=")
        values = _FLAGS.get(flag)
        if not equals or values is None or value in values:
            continue
        expected = f"no value but {' or '.join(values)}" if values else "no value"
        forms = " or ".join([flag, *(f"{flag}={each}" for each in values)])
        raise pytest.UsageError(
            printable(f"{flag} is {value!r}; expected {expected}: type {forms}")
        )


def _words(pluginmanager: pytest.PytestPluginManager) -> Iterator[str]:
    """Yield the words of the command, of PYTEST_ADDOPTS and of `addopts`."""
    config: pytest.Config | None = pluginmanager.get_plugin("pytestconfig")
    if config is None:
        return
    yield from map(str, config.invocation_params.args)
    yield from shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    # Whoever hands plugins to `pytest.main` has them registered before any ini file is read.
    if getattr(config, "_inipath", None) is not None:
        yield from config.getini("addopts")


def refuse_options(parser: pytest.Parser, words: Sequence[str]) -> None:
    """Raise where the command gives an option that begins like ours and that nobody has registered.

    Raises:
        pytest.UsageError: with the option whose name is near.
    """
    if not any(word.startswith(PREFIX) for word in words):
        return
    unknown = parser.parse_known_and_unknown_args(words)[1]
    for word in unknown:
        name = word.partition("=")[0].removeprefix(PREFIX)
        if word.startswith(PREFIX):
            near = _near(name, (*NAMES, *COMMANDED))
            expected = f"did you mean {PREFIX}{near}?" if near else _LISTED
            raise pytest.UsageError(printable(f"pytest has no option {PREFIX}{name}; {expected}"))


def refuse_settings(config: pytest.Config) -> None:
    """Raise where the ini file sets an option of ours that there is not: a gate would hold another in its place.

    Raises:
        BadInput: with the option whose name is near.
    """
    prefix = ini_name("")
    # Another plugin may have options that begin alike.
    unknown = sorted(name for name in config._get_unknown_ini_keys() if name.startswith(prefix))
    if not unknown:
        return
    near = _near(unknown[0].removeprefix(prefix), NAMES)
    file = config.inipath.name if config.inipath is not None else "-o"
    expected = f"did you mean {ini_name(near)}?" if near else _LISTED
    raise BadInput(f"{file} sets {printable(', '.join(unknown))}, which is no option; {expected}")


def _near(name: str, names: Sequence[str]) -> str:
    """Return the option whose name is nearest; empty where none is near."""
    import difflib

    shown = [each for each in names if each != DRILL]
    return next(iter(difflib.get_close_matches(name.replace("_", "-"), shown, 1)), "")
