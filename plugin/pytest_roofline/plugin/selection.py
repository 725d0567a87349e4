"""The selection of a run by path, name, mark and tier, also of former tests known by a record alone."""

import fnmatch
import glob
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType

import pytest
from _pytest.mark.expression import Expression

from ..core.entries import CollectedTest
from ..core.keys import Scalar
from ..core.units import encodable
from ..settings.command_line import SELECTING, command_of
from ..settings.options import TIERS

_ABSENT = object()


def marks_of(item: pytest.Item) -> dict[str, tuple[dict[str, Scalar], ...]]:
    """Return a test's markers by name, with their scalar keyword arguments."""
    marks: dict[str, tuple[dict[str, Scalar], ...]] = {}
    for mark in item.iter_markers():
        values: dict[str, Scalar] = {
            encodable(name): encodable(value) if isinstance(value, str) else value
            for name, value in mark.kwargs.items()
            if isinstance(value, str | bool | NoneType)
            or (isinstance(value, int) and abs(value) < 2**63)
        }
        name = encodable(mark.name)
        marks[name] = (*marks.get(name, ()), values)
    return marks


class Selection:
    """The tests that a run selects, of those that it would collect."""

    def __init__(self, config: pytest.Config, tier: str) -> None:
        """Read which tests the command selects."""
        self._root, self._tier = config.rootpath, tier
        self._matches_name = _expression(config, "keyword")
        self._matches_marks = _expression(config, "markexpr")
        self._deselected = tuple(config.getoption("deselect", None) or ())
        here = config.invocation_params.dir
        self._ignored = {_resolve(here, path) for path in _list(config, "ignore")}
        self._ignored_globs = [str(here / pattern) for pattern in _list(config, "ignore_glob")]
        arguments = command_of(config).file_or_dir or config.args
        # None where pytest looks everywhere: then a test counts wherever its file was when it was measured.
        self._places = None if _is_everywhere(config) else _places(config, arguments)
        # Whether an option selects tests by how they ended last, which no record of a test tells.
        self.partial = any(config.getoption(name, False) for name in ("lf", "stepwise"))

    def covers(self, test: CollectedTest) -> bool:
        """Return whether the run selects a test.

        Its place, its markers and its tier decide.
        """
        file, _, place = test.id.partition("::")
        # Only the part before the bracket is split, as parameters may contain `::`, too.
        function, bracket, parameters = place.partition("[")
        *classes, name = function.split("::")
        names = [*file.split("/"), *classes, name + bracket + parameters, *test.marks]

        def has_name(part: str) -> bool:
            # This is how pytest matches the names of `-k`.
            return any(part.lower() in text.lower() for text in names)

        def has_mark(mark: str, **values: Scalar) -> bool:
            """Return whether the test has a mark, as pytest matches `-m`.

            If keyword arguments are typed, the mark must have them, too.
            """
            return any(
                all(arguments.get(key, _ABSENT) == value for key, value in values.items())
                for arguments in test.marks.get(mark, ())
            )

        return (
            TIERS.index(test.tier) <= TIERS.index(self._tier)
            and self._collects(_resolve(self._root, file), place)
            and not (self._deselected and test.id.startswith(self._deselected))
            and self._matches_name(has_name)
            and self._matches_marks(has_mark)
        )

    def _collects(self, file: Path, function: str) -> bool:
        """Return whether pytest would collect a function of a file."""
        places = (file, *file.parents)
        ignored = any(path in self._ignored for path in places) or any(
            fnmatch.fnmatch(str(path), pattern)
            for path in places
            for pattern in self._ignored_globs
        )
        return not ignored and (
            self._places is None or any(place.holds(file, function) for place in self._places)
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder or file that pytest is given, and the class or function of a node id."""

    path: Path
    function: str

    def holds(self, file: Path, function: str) -> bool:
        """Return whether this argument selects a function of a file."""
        # `a.py::test_x` names all parameters of the function, and `a.py::TestX` all functions of the class.
        is_named = not self.function or f"{function}[".startswith(
            (f"{self.function}[", f"{self.function}::")
        )
        return is_named and file.is_relative_to(self.path)


def _places(config: pytest.Config, arguments: Sequence[str]) -> list[_Place]:
    """Return the places of these arguments, with `--pyargs` also of modules."""
    here = config.invocation_params.dir
    places = []
    for argument in arguments:
        path, _, function = str(argument).partition("::")
        if config.getoption("pyargs", False):
            path = _path_of_module(here, path)
        places.append(_Place(_resolve(here, path), function))
    return places


def _path_of_module(folder: Path, name: str) -> str:
    """Return the path of a module, else its name.

    The name is a path then.
    """
    try:
        spec = importlib.util.find_spec(name)
    except (AttributeError, ImportError, ValueError):
        return name
    # Any folder can be imported as a namespace package; here it is meant as a path.
    if spec is None or (not spec.has_location and (folder / name).exists()):
        return name
    return next(iter(spec.submodule_search_locations or ()), spec.origin or name)


def _expression(config: pytest.Config, option: str) -> Callable[[Callable[..., bool]], bool]:
    """Return the condition of `-k` or `-m`, as pytest evaluates it.

    It takes a function that tells whether a test has a name or mark. Without the option it holds for every test.
    """
    text = str(config.getoption(option, "") or "").strip()
    return Expression.compile(text).evaluate if text else lambda _: True


def _list(config: pytest.Config, option: str) -> list[str]:
    """Return the values of an option that may be repeated."""
    return [str(value) for value in config.getoption(option, None) or ()]


def _resolve(folder: Path, path: object) -> Path:
    """Return the absolute path, without links, of a path."""
    return (folder / str(path)).resolve()


def finds_all(config: pytest.Config) -> bool:
    """Return whether pytest collects everything and leaves no test out."""
    narrows = any(config.getoption(name, None) for name in SELECTING)
    return not narrows and _is_everywhere(config)


def _is_everywhere(config: pytest.Config) -> bool:
    """Return whether pytest looks in all folders of `testpaths`.

    Without such folders it is the rootdir.
    """
    if config.args_source is config.ArgsSource.TESTPATHS:
        return True
    paths = [place.path for place in _places(config, config.args) if not place.function]
    homes: Sequence[Path] = [
        config.rootpath / path
        for pattern in config.getini("testpaths")
        # As pytest does; Path.glob refuses `.` and absolute patterns.
        for path in glob.iglob(pattern, root_dir=config.rootpath, recursive=True)  # noqa: PTH207
    ] or [config.rootpath]
    return all(any(path.resolve().is_relative_to(folder) for folder in paths) for path in homes)
