"""The selection of a run by path, name, mark and tier, also of tests that are gone and known by a record alone."""

import fnmatch
import glob
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType

import pytest
from _pytest.mark.expression import Expression

from ..core.keys import Scalar
from ..core.units import encodable
from .command_line import SELECTING, command_of
from .options import TIERS

# The keyword arguments of every marker of a test, by the marker's name.
MarkArguments = Mapping[str, Sequence[Mapping[str, Scalar]]]
_ABSENT = object()


def marks_of(item: pytest.Item) -> dict[str, tuple[dict[str, Scalar], ...]]:
    """The markers of a test by name, each with those keyword arguments that `-m` can ask for."""
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
        self._root, self._tier = config.rootpath, tier
        self._matches_name = _expression(config, "keyword")
        self._matches_marks = _expression(config, "markexpr")
        self._deselected = tuple(config.getoption("deselect", None) or ())
        here = config.invocation_params.dir
        self._ignored = {_resolved(here, path) for path in _list(config, "ignore")}
        self._ignored_globs = [str(here / pattern) for pattern in _list(config, "ignore_glob")]
        paths = command_of(config).file_or_dir or config.args
        # Where pytest looks by itself every test is meant, wherever it stood when it was measured.
        self._paths = None if _is_everywhere(config) else [_resolved(here, path) for path in paths]
        # Of some tests nobody can say whether these select them: --lf looks at what failed, and a node id names one.
        self.partial = any(config.getoption(name, False) for name in ("lf", "stepwise")) or any(
            "::" in argument for argument in config.args
        )

    def covers(self, test_id: str, marks: MarkArguments, tier: str) -> bool:
        """Tell whether the run selects a test of this node id with these markers, of this tier."""
        file, _, function = test_id.partition("::")
        function, bracket, parameters = function.partition("[")
        *classes, name = function.split("::")
        names = [*file.split("/"), *classes, name + bracket + parameters, *marks]

        def has_name(part: str) -> bool:
            # As pytest's own matcher of `-k`.
            return any(part.lower() in text.lower() for text in names)

        def has_mark(mark: str, **values: Scalar) -> bool:
            return any(
                all(arguments.get(key, _ABSENT) == value for key, value in values.items())
                for arguments in marks.get(mark, ())
            )

        return (
            TIERS.index(tier) <= TIERS.index(self._tier)
            and self._collects(_resolved(self._root, file))
            and not (self._deselected and test_id.startswith(self._deselected))
            and self._matches_name(has_name)
            and self._matches_marks(has_mark)
        )

    def _collects(self, file: Path) -> bool:
        """Tell whether pytest looks into a file, if there is one."""
        places = (file, *file.parents)
        ignored = any(path in self._ignored for path in places) or any(
            fnmatch.fnmatch(str(path), pattern)
            for path in places
            for pattern in self._ignored_globs
        )
        return not ignored and (
            self._paths is None or any(file.is_relative_to(path) for path in self._paths)
        )


def _expression(config: pytest.Config, option: str) -> Callable[[Callable[..., bool]], bool]:
    """Return the condition that `-k` or `-m` puts on a test, as pytest itself evaluates it."""
    text = str(config.getoption(option, "") or "").strip()
    return Expression.compile(text).evaluate if text else lambda _: True


def _list(config: pytest.Config, option: str) -> list[str]:
    return [str(value) for value in config.getoption(option, None) or ()]


def _resolved(folder: Path, path: object) -> Path:
    return (folder / str(path)).resolve()


def finds_all(config: pytest.Config) -> bool:
    """Tell whether pytest leaves no test out, and was given no path, or those where it looks by itself."""
    narrows = any(config.getoption(name, None) for name in SELECTING)
    return not narrows and _is_everywhere(config)


def _is_everywhere(config: pytest.Config) -> bool:
    """Tell whether pytest was given no path, or those where it looks by itself."""
    if config.args_source is config.ArgsSource.TESTPATHS:
        return True
    if any("::" in argument for argument in config.args):
        return False
    paths = [_resolved(config.invocation_params.dir, argument) for argument in config.args]
    homes: Sequence[Path] = [
        config.rootpath / path
        for pattern in config.getini("testpaths")
        # As pytest does; Path.glob refuses `.` and absolute patterns.
        for path in glob.iglob(pattern, root_dir=config.rootpath, recursive=True)  # noqa: PTH207
    ] or [config.rootpath]
    return all(any(path.resolve().is_relative_to(folder) for folder in paths) for path in homes)
