"""What pages that are made from run files have in common: where a run was made, and tables that others published."""

import json
from collections.abc import Iterator
from pathlib import Path

from rank_figures.page import table

from pytest_roofline.core.records import Header
from pytest_roofline.core.units import format_memory

# Where a run holds nothing, or a table of others has an empty cell.
NOTHING = "–"


def environment(header: Header) -> str:
    """On what a run was made, in a sentence."""
    device, host, software = header.environment.device, header.environment.host, header.environment.software
    facts = [device.product]
    facts += [f"{host.usable_cores} cores"] if device.type == "cpu" else []
    facts += [format_memory(device.memory_bytes)] if device.memory_bytes else []
    facts += [f"driver {device.driver}"] if device.driver else []
    facts += [f"{name} {version}" for name, version in software.items()]
    return f"{', '.join(facts)}. Run `{header.run_id}`, {header.started[:10]}."


def published(path: Path) -> Iterator[str]:
    """The tables of others, from a file of records with title, hardware, method, note, columns and rows."""
    for source in json.loads(path.read_text(encoding="utf-8")):
        yield f"### {source['hardware']}"
        yield f"{source['title']}. {_sentence(source['method'])} {_sentence(source['note'])}"
        yield table(
            source["columns"], [[NOTHING if one is None else str(one) for one in row] for row in source["rows"]]
        )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
