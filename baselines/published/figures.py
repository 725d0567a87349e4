"""The figures as they were published: the records of the data files beside this module, each with an id."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# Peaks are no results: they stand in the plugin's own data of products.
DATASHEET = "datasheet_peak"


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
    """Every published figure but the peaks of datasheets, in the order of the file."""
    return [
        Figure(
            id=f"published-{number:04}",
            hardware=raw["hardware"],
            variant=raw["hardware_variant"],
            metric=raw["metric"],
            value=raw["value"],
            unit=raw["unit"],
            size=raw["size_or_shape"],
            convention=raw["counting_convention"],
            source=raw["source_url_or_repo_path"],
            confidence=raw["confidence"],
            kind=raw["kind"],
        )
        for number, raw in enumerate(_read(path))
        if raw["kind"] != DATASHEET
    ]


def told(path: Path = HERE / "seed_figures.json") -> list[Told]:
    """Every figure of the documents, in the order of the file."""
    return [
        Told(id=f"document-{number:04}", **(raw | {"note": raw["note"] or ""}))
        for number, raw in enumerate(_read(path))
    ]


def documents() -> dict[str, str]:
    """The titles of the documents, by id."""
    return {raw["id"]: raw["title"] for raw in _read(HERE / "documents.json")}


def _read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found
