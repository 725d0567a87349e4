"""What of a checkout's pytest settings copied tests need too: where to import from, what is a test, how to measure."""

import configparser
import re
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
        path = root / name
        try:
            text = path.read_text(encoding="utf-8")
            found = _of_toml(text) if not section else _of_ini(text, section)
        except (OSError, ValueError, configparser.Error):
            continue
        if found is not None or name.endswith("pytest.ini"):
            return found or {}
    return {}


def _of_toml(text: str) -> dict[str, str] | None:
    tool = tomllib.loads(text).get("tool", {})
    found = tool.get("pytest", {}).get("ini_options") if isinstance(tool, dict) else None
    return None if found is None else {name: _plain(value) for name, value in found.items()}


def _plain(value: object) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _of_ini(text: str, section: str) -> dict[str, str] | None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return dict(parser[section]) if parser.has_section(section) else None


def import_folders(settings: dict[str, str]) -> list[str]:
    """`pythonpath`, relative to the root."""
    return _words(settings.get("pythonpath", ""))


def kept_settings(settings: dict[str, str], options: Sequence[str] = ()) -> str:
    """A `pytest.ini` for the copied tests: it makes their folder pytest's root, and has what they need of it."""
    lines = ["[pytest]", *([f"addopts = {shlex.join(options)}"] if options else [])]
    for name in _KEPT:
        if name in settings:
            value = settings[name].strip().replace("\n", "\n    ")
            lines.append(f"{name} = {value}")
    return "\n".join(lines) + "\n"


def options_of(settings: dict[str, str], command: Sequence[str]) -> dict[str, str]:
    """The options of `CARRIED` and `LOCAL` that a run had: from its settings, from `addopts`, as they were typed."""
    names = (*CARRIED, *LOCAL)
    found = {}
    for option in names:
        value = settings.get(option.removeprefix("--").replace("-", "_"))
        if value:
            found[option] = value
    for words in (_words(settings.get("addopts", "")), list(command)):
        for word, following in pairwise([*words, ""]):
            option, equals, value = word.partition("=")
            if option in names:
                found[option] = value if equals else following
    return found


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return re.split(r"\s+", text.strip())
