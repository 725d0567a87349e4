"""The command that decides a gate, and the settings from elsewhere: ini file, environment, conftest.py.

Whoever changes the code may change these files too. So a gate names their settings, and does not heed some of them.
"""

import argparse
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.config import get_config

from ..core.errors import BadInput
from ..core.units import format_tolerance, parse_tolerance, printable
from .options import COMMAND_OPTIONS, DRILL, LISTS, NAMES, ini_name

# The options that a round, which is a part of another run, does not heed.
unheeded_key: "pytest.StashKey[frozenset[str]]" = pytest.StashKey()
_command_key: "pytest.StashKey[argparse.Namespace]" = pytest.StashKey()
# Options of pytest that leave tests out, by their name in pytest, as they are written.
SELECTING = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "ignore": "--ignore",
    "ignore_glob": "--ignore-glob",
    "lf": "--lf",
    "stepwise": "--stepwise",
}
# Options of pytest that set the folder of the project, and with it that of its `baselines/` and runs.
LOCATING = {"rootdir": "--rootdir", "inifilename": "--config-file"}
# Options with which a test has its verdict at once, without further rounds.
ON_THE_SPOT = {
    "reruns": "--reruns",
    "force_reruns": "--force-reruns",
    "usepdb": "--pdb",
    "setupshow": "--setup-show",
}
# Options of ours that a gate heeds in the command only.
_COMMAND_ONLY = ("ci", "rounds", "time")
# Options of ours that may turn red into green. A gate heeds them from elsewhere too, and names them.
_LOOSENING_OPTIONS = ("tolerance", "fail-on", "baselines", "device", "tier")


@dataclass(frozen=True, slots=True)
class OutsideSetting:
    """An option that bears on a gate and does not stand in the command.

    Args:
        source: where it stands: `pytest.ini`, `PYTEST_ADDOPTS` or `conftest.py`.
        option: its name without dashes and prefix: `tolerance`, `keyword`.
        text: the option with its value, for a person: `tolerance 45 %`.
    """

    source: str
    option: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text}"

    @property
    def heeded(self) -> bool:
        """Return whether a gate heeds the outside setting."""
        return self.option not in _COMMAND_ONLY

    @property
    def refused(self) -> bool:
        """Return whether the setting replaces the baselines, which turns a gate red."""
        return self.option == "against"


def command_of(config: pytest.Config) -> argparse.Namespace:
    """Return the options of the command alone.

    Those of `addopts`, PYTEST_ADDOPTS and conftest.py are left out.
    """
    if _command_key not in config.stash:
        config.stash[_command_key] = _parse_words(config, config.invocation_params.args)
    return config.stash[_command_key]


def _parse_words(config: pytest.Config, words: Sequence[object]) -> argparse.Namespace:
    """Return the options in these words, as pytest parses them."""
    # `--help` is kept from the parser: before version 9 pytest printed its help as soon as it read the option.
    texts = [str(word) for word in words if word not in ("-h", "--help")]
    options = config._parser.parse_known_args(texts, namespace=argparse.Namespace())
    options.help = len(texts) < len(words)
    return options


def parse_apart(words: Sequence[str], option: str, name: str) -> argparse.Namespace:
    """Return another run's arguments as pytest parses them.

    Options of plugins are left out.

    Args:
        words: the arguments.
        option: one of ours, which is read too.
        name: the field that holds every value of the option.

    Raises:
        ValueError: pytest cannot read them.
    """
    # A fresh configuration of pytest has its own options only.
    parser = get_config()._parser
    parser.addoption(option, action="append", default=[], dest=name)
    try:
        return parser.parse_known_args(list(words))
    except pytest.UsageError as error:
        # The usage of pytest stands before the error itself.
        _, _, message = str(error).rpartition("error: ")
        raise ValueError(message.strip()) from None


def commands_gate(config: pytest.Config) -> bool:
    """Return whether the command itself asks for a gate."""
    return bool(_command_value(config, "ci"))


def _command_value(config: pytest.Config, name: str) -> Any:
    """Return an option's raw value in the command, else None.

    The command may have the ini setting of the same name instead, its twin, as `-o roofline_ci=true`.
    """
    command, twin = command_of(config), ini_name(name)
    value = getattr(command, twin, None)
    overrides_twin = any(text.partition("=")[0] == twin for text in command.override_ini or [])
    if value is None and overrides_twin:
        return config.getini(twin) or None
    return value


def rounds_prevented(config: pytest.Config) -> str:
    """Return the option that keeps a gate from further rounds.

    It stands outside the command. The text is empty without one, without a gate, or where the command asks for one
    round only.
    """
    if not commands_gate(config) or option_value(config, "rounds") == "1":
        return ""
    for option, flag in ON_THE_SPOT.items():
        value = getattr(config.option, option, None)
        for part in _outside_parts(value, getattr(command_of(config), option, None)):
            text = _option_text(flag, part)
            return str(OutsideSetting(_source(config, option, part), option, text))
    return _reruns_of_ini(config)


def _reruns_of_ini(config: pytest.Config) -> str:
    """Return the ini setting by which pytest-rerunfailures repeats tests.

    An example is `pytest.ini: reruns=2`. It is empty without the setting, if the command or an option sets the number,
    or if that plugin is not there.
    """
    command = command_of(config)
    is_overridden = any(text.startswith("reruns=") for text in command.override_ini or [])
    has_option = any(
        getattr(config.option, name, None) is not None for name in ("reruns", "force_reruns")
    )
    if is_overridden or has_option or not config.pluginmanager.hasplugin("rerunfailures"):
        return ""
    rerun_count = config.getini("reruns")
    source = config.inipath.name if config.inipath is not None else "PYTEST_ADDOPTS"
    return f"{source}: reruns={rerun_count}" if rerun_count and rerun_count != "0" else ""


def record_command(config: pytest.Config) -> str:
    """Return the command that records these tests.

    An example is `pytest t.py -k copy --roofline-record`.
    """
    command = command_of(config)
    words = ["pytest", *command.file_or_dir]
    for option in ("keyword", "markexpr"):
        if value := getattr(command, option, None):
            words += [SELECTING[option], value]
    for name in ("device", "tier"):
        if value := getattr(command, ini_name(name), None):
            words.append(f"--roofline-{name}={value}")
    for name in getattr(command, ini_name("baselines"), None) or ():
        words.append(f"--roofline-baselines={name}")
    return printable(shlex.join([*words, "--roofline-record"]))


def is_configured(config: pytest.Config) -> bool:
    """Return whether any option or ini value of ours is set."""
    has_command_option = any(
        config.getoption(f"--roofline-{name}") is not None for name in COMMAND_OPTIONS
    )
    return has_command_option or any(option_value(config, name) is not None for name in NAMES)


def commanded_value(config: pytest.Config, name: str) -> Any:
    """Return the value of an option of commands alone.

    It is None where the option is absent or not heeded.

    Raises:
        BadInput: the option comes from elsewhere, as from `addopts`.
    """
    value = config.getoption(f"--roofline-{name}")
    if value is None or name in config.stash.get(unheeded_key, ()):
        return None
    source = source_of(config, ini_name(name), value)
    if source:
        raise BadInput(
            f"{source}: --roofline-{name} is set outside of the command, so every run would write baselines. "
            f"Remove --roofline-{name} from {source}, and give the option in the command only"
        )
    return value


def option_value(config: pytest.Config, name: str) -> Any:
    """Return an option's raw value, else None.

    An option that is not heeded has None. The command line goes before the ini file. Under a gate of the command, the
    command goes before all else, and the options that decide the gate are read from it alone.
    """
    if name in config.stash.get(unheeded_key, ()):
        return None
    if name not in LISTS and commands_gate(config):
        value = _command_value(config, name)
        if value is not None or name in _COMMAND_ONLY:
            return value
    return _pytest_value(config, name)


def _pytest_value(config: pytest.Config, name: str) -> Any:
    """Return an option's value as pytest has it, None without.

    An option goes before the ini file.
    """
    value = config.getoption(f"--roofline-{name}")
    if value is not None or name == DRILL:
        return value
    return config.getini(ini_name(name)) or None


def settings_elsewhere(config: pytest.Config) -> tuple[OutsideSetting, ...]:
    """Return the outside settings that may change a gate.

    There are none without such a gate.
    """
    if not commands_gate(config):
        return ()
    return (
        *_ours_elsewhere(config),
        *_options_of_pytest_elsewhere(config),
        *_paths_elsewhere(config),
    )


def _ours_elsewhere(config: pytest.Config) -> Iterator[OutsideSetting]:
    """Yield our options outside the command that loosen its gate."""
    for name in ("against", *_LOOSENING_OPTIONS, *_COMMAND_ONLY):
        command_value, value = _command_value(config, name), _pytest_value(config, name)
        # A value in the command replaces any other; only lists are joined.
        if command_value is not None and name not in LISTS:
            continue
        for part in _outside_parts(value, command_value):
            source = _source(config, ini_name(name), part)
            yield OutsideSetting(source, name, printable(f"{name} {_value_text(name, part)}"))


def _value_text(name: str, value: object) -> str:
    """Return a value for a person.

    A tolerance is in percent, if it is valid.
    """
    if name != "tolerance":
        return str(value)
    try:
        return format_tolerance(parse_tolerance(str(value), name))
    except BadInput:
        return str(value)


def _options_of_pytest_elsewhere(config: pytest.Config) -> Iterator[OutsideSetting]:
    """Yield pytest's options from elsewhere that matter.

    They select tests or set the project's folder.
    """
    command = command_of(config)
    for option, flag in (SELECTING | LOCATING).items():
        command_value, value = getattr(command, option, None), getattr(config.option, option, None)
        for part in _outside_parts(value, command_value):
            text = _option_text(flag, part)
            yield OutsideSetting(_source(config, option, part), option, printable(text))


def _option_text(flag: str, value: object) -> str:
    """Return an option as it is written: `--pdb`, `--rootdir=ci`, `-k two`."""
    if value is True:
        return flag
    return f"{flag}={value}" if flag.startswith("--") else f"{flag} {value}"


def _paths_elsewhere(config: pytest.Config) -> Iterator[OutsideSetting]:
    """Yield the paths that `addopts` or PYTEST_ADDOPTS names.

    There are none if the command names paths. Those of `testpaths` do not count, since pytest looks there by itself.
    """
    if command_of(config).file_or_dir or config.args_source is not config.ArgsSource.ARGS:
        return
    for path in config.args:
        yield OutsideSetting(_source(config, "file_or_dir", path), "path", printable(path))


def _outside_parts(value: Any, command_value: Any) -> list[Any]:
    """Return the parts of a value from outside the command.

    The parts of a list are its members; any other value is one part.
    """
    if isinstance(value, list):
        return [part for part in value if part not in (command_value or ())]
    return [value] if value and value != command_value else []


def source_of(config: pytest.Config, option: str, value: object) -> str:
    """Return where a value is set: `pytest.ini`, PYTEST_ADDOPTS, `conftest.py`.

    The text is empty if the command sets it.
    """
    is_in_command = getattr(command_of(config), option, None) == value
    return "" if is_in_command else _source(config, option, value)


def _source(config: pytest.Config, option: str, part: object) -> str:
    """Return where an option is set outside the command.

    It may be a part of a list of values. It is `conftest.py` if neither the environment nor the ini file has it.
    """
    ini = config.inipath.name if config.inipath is not None else "an ini file"
    environment = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    # Functions, so that a place is read only if those before it do not have the value.
    places: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("PYTEST_ADDOPTS", lambda: getattr(_parse_words(config, environment), option, None)),
        (ini, lambda: getattr(_parse_words(config, config.getini("addopts")), option, None)),
        (ini, lambda: config.getini(option) if option in map(ini_name, NAMES) else None),
    )
    for source, read_value in places:
        value = read_value()
        if part == value or (isinstance(value, list) and part in value):
            return source
    return "conftest.py"
