"""Figures that a program prints, read by paths of a user: in JSON, in CSV, or by regular expressions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ..core.directions import Direction, inverse_if_higher
from ..core.errors import LARGEST, SMALLEST, BadFile, BadInput, short_repr
from ..core.units import encodable, listed, printable
from . import csv_columns, json_paths, text_groups
from .place import Place

# Of the places that a text has, so many are named where one is missing.
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class FigurePath:
    """A figure that a user names.

    Args:
        direction: whether more of it is better.
        name: of the figure; empty for the name of its place.
        path: its place, in the form of its reader.
    """

    direction: Direction
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class ProgramFigure:
    """A figure of one process of a program, in its own unit.

    Args:
        direction: whether more of it is better: `higher` or `lower`.
        name: of the figure, or of its place.
        cases: what tells the figures of one path apart, by what it names.
        values: samples of it.
        unit: `GB/s`; empty where nothing tells it.
    """

    direction: Direction
    name: str
    cases: dict[str, str]
    values: tuple[float, ...]
    unit: str = ""

    @property
    def value(self) -> float:
        """The median of its samples."""
        return median(self.values)

    @property
    def seconds(self) -> tuple[float, ...]:
        """Its samples as a run keeps them: more is worse, as of seconds."""
        return tuple(inverse_if_higher(self.direction, value) for value in self.values)


# A module for each form of text. `values_at` returns the values at a path, `places` the paths that there are.
READERS = {"json": json_paths, "csv": csv_columns, "regex": text_groups}


def parse_path(reader: str, direction: Direction, text: str) -> FigurePath:
    """Return the path to figures that an option gives.

    The user writes it as `PATH` or `NAME=PATH`. A regular expression whose groups all have names is a path as a whole,
    since they name its figures.

    Args:
        reader: `json`, `csv` or `regex`.
        direction: whether larger or smaller figures are better, the name of the option.
        text: of the option.

    Raises:
        BadInput: the path is empty, or no regular expression with a group.
    """
    name, sign, path = text.partition("=")
    is_whole = not sign or (reader == "regex" and text_groups.names_figures(text))
    name, path = ("", text) if is_whole else (name, path)
    if not path or not (name or is_whole):
        raise BadInput(f"--{direction} is {text!r}; expected PATH or NAME=PATH")
    return named_path(reader, direction, name, path)


def named_path(reader: str, direction: Direction, name: str, path: str) -> FigurePath:
    """Return the path to figures under a name; empty for the name of its place.

    Raises:
        BadInput: the path is no regular expression with a group, where the reader takes one.
    """
    if reader == "regex":
        text_groups.compile_path(path)
    return FigurePath(direction, name, path)


def read_figures(text: str, reader: str, paths: Sequence[FigurePath]) -> list[ProgramFigure]:
    """Return the figures in what a program wrote.

    Raises:
        BadFile: a path leads nowhere, a value is no number above zero, or two figures have one name.
    """
    if not text.strip():
        raise BadFile("the program printed nothing; expected its figures")
    try:
        figures = [figure for path in paths for figure in _figures(text, reader, path)]
    except RecursionError:
        raise BadFile("the program printed JSON that is nested too deeply to be read") from None
    names = [_title(figure.name, figure.cases) for figure in figures]
    if twice := [name for name in names if names.count(name) > 1]:
        title = f"are called {printable(twice[0])}" if twice[0] else "have no name"
        raise BadFile(f"two figures {title}; give each figure a name of its own with NAME=PATH")
    return figures


def _figures(text: str, reader: str, path: FigurePath) -> list[ProgramFigure]:
    """Return the figures at all places of a text that one path leads to."""
    values: list[Place] = READERS[reader].values_at(text, path.path)
    places = [place for place in values if place.value != []]
    if not places:
        paths = [printable(place) for place in READERS[reader].places(text)]
        raise BadFile(
            f"{path.path!r} leads to no figure; expected one of {listed(paths, MOST_NAMED) or 'none at all'}"
        )
    return [
        ProgramFigure(
            path.direction,
            # JSON may hold characters that a run file cannot.
            encodable(path.name or place.name),
            {encodable(name): encodable(case) for name, case in place.cases.items()},
            tuple(
                number_of(value, _title(path.path, place.cases))
                for value in (place.value if isinstance(place.value, list) else [place.value])
            ),
        )
        for place in places
    ]


def number_of(value: object, title: str) -> float:
    """Return a value as a number. Its logarithm is judged, so it must be above zero.

    Args:
        value: a number, or its text.
        title: of the figure, for the message.

    Raises:
        BadFile: it is no number, or out of range.
    """
    number = math.nan
    # Python reads underscores and the digits of other scripts as well.
    is_text = isinstance(value, str) and value.isascii() and "_" not in value
    if is_text or (isinstance(value, int | float) and not isinstance(value, bool)):
        try:
            number = float(value)  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            number = math.nan
    if not SMALLEST <= number <= LARGEST:
        raise BadFile(
            f"{printable(title)} is {printable(short_repr(value))}; expected a number "
            f"above zero, from {SMALLEST:g} to {LARGEST:g}"
        )
    return number


def _title(name: str, cases: dict[str, str]) -> str:
    """Return a figure with what tells it apart: `throughput (results llama)`."""
    texts = [f"{case} {value}" for case, value in cases.items()]
    return " ".join(filter(None, [name, f"({', '.join(texts)})" if texts else ""]))
