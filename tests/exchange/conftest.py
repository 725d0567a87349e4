"""Real output of other tools and readers of it; runs to export, and the schemas of what comes of them."""

import json
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Samples
from pytest_roofline.exchange.formats import export, read
from pytest_roofline.exchange.records import UserFacts

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def text():
    """The text of a file of `data/`."""
    return lambda name: (DATA / name).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def take():
    """Read a text as the command would: what it holds, one entry a process of the tool."""

    def take(content, name="", **given):
        data = content if isinstance(content, bytes) else content.encode()
        return read(data, "file", UserFacts(**given), name)

    return take


@pytest.fixture(scope="session")
def one(take):
    """The readings of a text with one run of a tool, by label."""

    def one(content, name="", **given):
        (imported,) = take(content, name, **given)
        return {reading.label: reading for reading in imported.readings}

    return one


@pytest.fixture
def exported(make, tmp_path):
    """Export records as a format would: what comes of one run that holds them."""

    def exported(name, *records, **changes):
        run = make.run(tmp_path / "run.jsonl", *records, **changes)
        document, names, left_out = export([run], name)
        return SimpleNamespace(document=document, names=names, left_out=left_out)

    return exported


@pytest.fixture(scope="session")
def judged(make):
    """A verdict on a measurement."""
    return make.verdict


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
