"""The figures as they were published: the records of the data files beside this module, each with an id."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_roofline.core.errors import BadFile

HERE = Path(__file__).parent
# Peaks are no results: they stand in the plugin's own data of products.
DATASHEET = "datasheet_peak"
KINDS = ("measured", "threshold", "derived", DATASHEET)
CONFIDENCES = ("high", "medium", "low", "recalled")


@dataclass(frozen=True, slots=True)
class Figure:
    """One published figure of a benchmark, a health check, or a vendor's acceptance guide.

    Args:
        id: `published-0123`, its position in the data file; as stable as that file.
        hardware: the product as its source calls it.
        variant: what else the source says of it.
        metric: as the survey named it, with the unit that the source counts in.
        size: shape, size or tool, as text.
        convention: how the source counts.
        source: address, or repository and path.
        kind: measured, threshold or derived.
    """

    id: str
    hardware: str
    variant: str
    metric: str
    value: float
    unit: str
    size: str
    convention: str
    source: str
    confidence: str
    kind: str


@dataclass(frozen=True, slots=True)
class Told:
    """One figure of one of the documents that the project grew from.

    Args:
        id: `document-0123`, its position in the data file.
        document: which of `documents()`.
        hardware: as the document calls it; None for what holds on any.
        value: a number, a range, several numbers, a word, or None where the run failed.
    """

    id: str
    document: str
    hardware: str | None
    benchmark: str
    parameters: dict[str, Any]
    metric: str
    value: Any
    unit: str
    statistic: str
    note: str


def published(path: Path = HERE / "published_figures.json") -> list[Figure]:
    """Every published figure but the peaks of datasheets, in the order of the file.

    Raises:
        BadFile: a field is missing, or is not what it should be.
    """
    found = ((f"published-{number:04}", raw) for number, raw in enumerate(_read(path)))
    return [
        _figure(name, raw) for name, raw in found if field(name, raw, "kind", KINDS) != DATASHEET
    ]


def _figure(name: str, raw: dict[str, Any]) -> Figure:
    return Figure(
        id=name,
        hardware=field(name, raw, "hardware", str),
        variant=field(name, raw, "hardware_variant", str),
        metric=field(name, raw, "metric", str),
        value=field(name, raw, "value", int | float),
        unit=field(name, raw, "unit", str),
        size=field(name, raw, "size_or_shape", str),
        convention=field(name, raw, "counting_convention", str),
        source=field(name, raw, "source_url_or_repo_path", str),
        confidence=field(name, raw, "confidence", CONFIDENCES),
        kind=field(name, raw, "kind", KINDS),
    )


def told(path: Path = HERE / "seed_figures.json") -> list[Told]:
    """Every figure of the documents, in the order of the file.

    Raises:
        BadFile: a field is missing, or is not what it should be.
    """
    return [_told(f"document-{number:04}", raw) for number, raw in enumerate(_read(path))]


def _told(name: str, raw: dict[str, Any]) -> Told:
    return Told(
        id=name,
        document=field(name, raw, "document", str),
        hardware=field(name, raw, "hardware", str | None),
        benchmark=field(name, raw, "benchmark", str),
        parameters=field(name, raw, "parameters", dict),
        metric=field(name, raw, "metric", str),
        value=field(name, raw, "value", int | float | list | str | None),
        unit=field(name, raw, "unit", str),
        statistic=field(name, raw, "statistic", str),
        note=field(name, raw, "note", str | None) or "",
    )


def field(name: str, raw: dict[str, Any], field: str, expected: Any) -> Any:
    """One field of a record: of a type, or one of several words."""
    if field not in raw:
        raise BadFile(f"{name}: {field} is missing; expected it in every record")
    value = raw[field]
    words = isinstance(expected, tuple)
    if (
        (value not in expected)
        if words
        else (not isinstance(value, expected) or isinstance(value, bool))
    ):
        wanted = (
            f"one of {', '.join(expected)}"
            if words
            else getattr(expected, "__name__", str(expected))
        )
        raise BadFile(f"{name}: {field} is {value!r}; expected {wanted}")
    return value


def documents() -> dict[str, str]:
    """The titles of the documents with their addresses, by id."""
    return {
        raw["id"]: f"{raw['title']} ({raw['address']})" for raw in _read(HERE / "documents.json")
    }


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadFile(f"{path.name}: {error}; expected a list of records in JSON") from None
    return found
