"""Runs to export, and the schemas of what comes of them."""

import json
from pathlib import Path

import jsonschema
import pytest

from pytest_roofline.core.records import Ceiling, Judgement
from pytest_roofline.core.samples import Samples
from pytest_roofline.exchange.export import export

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def exported(make, tmp_path):
    """Export records as a format would: what comes of one run that holds them."""

    def exported(name, *records, **changes):
        return export([make.run(tmp_path / "run.jsonl", *records, **changes)], name)

    return exported


@pytest.fixture(scope="session")
def judged():
    """A judgement of a measurement."""

    def judged(measurement, verdict="PASSED", **changes):
        facts = {
            "test_id": measurement.test_id,
            "label": measurement.label,
            "verdict": verdict,
            "tolerance": 0.05,
            "name": measurement.key.name,
        }
        return Judgement(**(facts | changes))

    return judged


@pytest.fixture(scope="session")
def processes(make):
    """The measurements of several processes of one test, each of some samples, with a roofline of 1 TB/s."""

    def processes(*samples, **changes):
        ceiling = Ceiling("traffic_GBps", 1e12, "datasheet", "the vendor's guide")
        return [
            make.measurement(
                process=f"process-{number}",
                samples=Samples(tuple(seconds), iterations=10, tick_s=1e-9),
                ceiling=ceiling,
                **changes,
            )
            for number, seconds in enumerate(samples, 1)
        ]

    return processes


@pytest.fixture(scope="session")
def validate():
    """Holds a document against a schema of `data/`, as it reads once it went through JSON."""

    def validate(name, document):
        schema = json.loads((DATA / f"{name}.schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft7Validator.check_schema(schema)
        jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), schema)

    return validate
