"""`run.json`: everything that some runs hold, with their results worked out, and the JSON Schema of that file."""

import json
import math
from collections.abc import Sequence
from dataclasses import fields
from types import GenericAlias
from typing import Any, Literal

import msgspec

from ..baselines.rows import rows_of
from ..baselines.run_names import run_names
from ..baselines.runs import LINE_TYPES, Run
from ..core.records import Measurement
from ..core.rows import Columns, Row, plain
from ..core.storage import strict_twin, to_plain
from ..core.units import printable
from ..version import __version__

# The version of the file; the records in it have their own, in each run's header. 1 had other names in its results.
SCHEMA = 2
# Where the lines of a run file go; of a header there is one, of a footer at most one.
_LISTS = {
    "calibration": "calibrations",
    "measurement": "measurements",
    "figure": "figures",
    "memory_use": "memory_uses",
    "profile": "profiles",
    "resources": "resources",
    "out_of_memory": "out_of_memory",
    "outcome": "outcomes",
    "judgement": "judgements",
    "exact": "exact",
}


def run_json(runs: Sequence[Run], rows: Sequence[Row] | None = None) -> str:
    """The file as text, without NaN or infinities.

    Args:
        runs: that it holds.
        rows: what `rows_of` makes of them, where that is known already.
    """
    return json.dumps(as_plain(runs, rows), ensure_ascii=False, allow_nan=False) + "\n"


def as_plain(runs: Sequence[Run], rows: Sequence[Row] | None = None) -> dict[str, Any]:
    """The file as plain data."""
    names, found = run_names(runs), rows_of(runs) if rows is None else rows
    return {
        "schema": SCHEMA,
        "tool": f"pytest-roofline {__version__}",
        "runs": [_run(run, names[run.path]) for run in runs],
        "results": [plain(columns) for row in found for columns in row.columns()],
    }


def _run(run: Run, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "path": printable(str(run.path)),
        "cut": run.cut,
        "header": to_plain(run.header),
        **{name: [_record(record) for record in getattr(run, name)] for name in _LISTS.values()},
        "footer": to_plain(run.footer) if run.footer is not None else None,
    }


def _record(record: object) -> dict[str, Any]:
    plain = to_plain(record)
    if isinstance(record, Measurement):
        plain["derived"] = {name: value for name, value in record.derived().items() if math.isfinite(value)}
    return plain


def schema() -> dict[str, Any]:
    """The JSON Schema of the file, made of the very records that are written; it allows no field that is not there."""
    twins: dict[str, Any] = {kind: strict_twin(record) for kind, record in LINE_TYPES.items()}
    derived = [("derived", dict[str, float])]
    twins["measurement"] = _struct("Measurement", derived, bases=(twins["measurement"],))
    run = _struct(
        "Run",
        [
            ("name", str),
            ("path", str),
            ("cut", bool),
            ("header", twins["header"]),
            *((name, _list_of(twins[kind])) for kind, name in _LISTS.items()),
            ("footer", twins["footer"] | None),
        ],
    )
    # Every field of a result is there, also where it is null.
    result = _struct("Result", [(member.name, member.type) for member in fields(Columns)])
    report = _struct(
        "Report",
        [("schema", Literal[SCHEMA]), ("tool", str), ("runs", _list_of(run)), ("results", _list_of(result))],
    )
    (reference,), parts = msgspec.json.schema_components([report], ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **reference, "$defs": parts}


def _list_of(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


def _struct(name: str, members: list[tuple[str, Any]], bases: tuple[type, ...] = ()) -> Any:
    return msgspec.defstruct(name, members, bases=bases, forbid_unknown_fields=True, kw_only=True)
