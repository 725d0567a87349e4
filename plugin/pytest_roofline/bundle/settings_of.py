"""What of a checkout's pytest settings copied tests need too: where to import from, what is a test, how to measure."""

import configparser
import shlex
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

# As pytest looks for them: the file, and the part of it that is pytest's.
_FILES = (("pytest.ini", "pytest"), (".pytest.ini", "pytest"), ("pyproject.toml", ""), ("tox.ini", "pytest"),
          ("setup.cfg", "tool:pytest"))  # fmt: skip
_KEPT = ("pythonpath", "python_files", "python_classes", "python_functions", "markers")
# Options of a run that change how a measurement is taken, wherever it is taken.
CARRIED = ("--roofline-budget", "--roofline-launcher", "--roofline-rank-timeout", "--roofline-boot-timeout")
# Those that hold for the run's own machines.
LOCAL = ("--roofline-launcher-args", "--roofline-address")


def pytest_settings(root: Path) -> dict[str, str]:
    """The settings of the first file that pytest would read in a folder, lists line by line; empty without one."""
    for name, section in _FILES:
        try:
            found = _section((root / name).read_text(encoding="utf-8"), section)
        except (OSError, ValueError, configparser.Error):
            continue
        if found is not None or name.endswith("pytest.ini"):
            return found or {}
    return {}


def _section(text: str, section: str) -> dict[str, str] | None:
    """The part of an ini file, or pytest's of a pyproject.toml where `section` is empty; None where it is not there."""
    if section:
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(text)
        return dict(parser[section]) if parser.has_section(section) else None
    told = tomllib.loads(text).get("tool", {}).get("pytest", {}).get("ini_options")
    lists = {name: value if isinstance(value, list) else [value] for name, value in (told or {}).items()}
    return None if told is None else {name: "\n".join(map(str, value)) for name, value in lists.items()}


def kept_settings(settings: dict[str, str], options: Sequence[str] = ()) -> str:
    """A `pytest.ini` for the copied tests: it makes their folder pytest's root, and has what they need of it."""
    kept = {name: settings[name].strip().replace("\n", "\n    ") for name in _KEPT if name in settings}
    told = {"addopts": shlex.join(options)} if options else {}
    return "\n".join(["[pytest]", *(f"{name} = {value}" for name, value in (told | kept).items())]) + "\n"


def options_of(settings: dict[str, str], command: Sequence[str]) -> dict[str, str]:
    """The options of `CARRIED` and `LOCAL` that a run had: from its settings, from `addopts`, as they were typed."""
    names = {option: option.removeprefix("--").replace("-", "_") for option in (*CARRIED, *LOCAL)}
    found = {option: settings[name] for option, name in names.items() if settings.get(name)}
    for words in (words_of(settings.get("addopts", "")), list(command)):
        for word, following in pairwise([*words, ""]):
            option, equals, value = word.partition("=")
            if option in names:
                found[option] = value if equals else following
    return found


def words_of(text: str) -> list[str]:
    """A setting's words as a shell divides them, or at its spaces where a quote has no end."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
