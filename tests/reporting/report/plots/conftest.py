"""Runs for plots: measured sweeps with their verdicts, written to a file and read back as a report reads them."""

import json
import math

import pytest

from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Samples
from pytest_roofline.judging.report_rows import report_rows
from pytest_roofline.reporting.records import judgement_of

H200 = Ceiling("traffic_GBps", 4.8e12, "datasheet", "the datasheet", "high")


class Bench:
    """Factories of rows, each through a run file."""

    def __init__(self, make, folder):
        self.make, self.folder, self.runs = make, folder, 0

    def judged(self, seconds, known_s=None, key=None, verdict=None, **changes):
        """A measurement and what was said of it against fifteen processes that took about `known_s`."""
        make = self.make
        reference = make.reference(*make.groups(3, process=0.002, centre=math.log(known_s))) if known_s else None
        samples = Samples((seconds * 0.999, seconds, seconds * 1.001), iterations=10, tick_s=1e-9)
        facts = {"key": key or make.key(), "samples": samples} | changes
        result = make.result(seconds, known=known_s is not None, reference=reference, **facts)
        return [result.measurement, judgement_of(result)]

    def rows(self, *records, run_id=None, failed=(), **environment):
        """What a run of these records says; the tests named in `failed` turned red."""
        self.runs += 1
        flat = [each for record in records for each in (record if isinstance(record, list) else [record])]
        measured = {one.test_id: one for one in flat if hasattr(one, "samples")}
        flat += [self.make.outcome(measured[test_id], "failed", by_verdict=True) for test_id in failed]
        path = self.folder / f"{run_id or f'run-{self.runs}'}.jsonl"
        return report_rows(self.make.run(path, *flat, **environment))

    def sweep(self, sizes, slower=(), known=True, rate=4e12, ceiling=H200, **changes):
        """Copies of some sizes at a rate that a latency of 2 µs eats into; those in `slower` take a fifth longer."""
        records, failed = [], []
        for size in sizes:
            key = changes.get("key", lambda size: self.make.key(size_bytes=size))(size)
            usual = 2e-6 + 2 * size / rate
            seconds = usual * (1.2 if size in slower else 1.0)
            others = {name: value for name, value in changes.items() if name not in ("key", "run_id")}
            found = self.judged(seconds, usual if known else None, key=key, ceiling=ceiling, **others)
            records.append(found)
            failed += [found[0].test_id] * (size in slower)
        return self.rows(*records, failed=failed, run_id=changes.get("run_id"))


@pytest.fixture
def bench(make, tmp_path):
    return Bench(make, tmp_path)


@pytest.fixture
def checked():
    """Hold a plot against what every plot must be: plain data that Plotly knows, and a table of text."""

    def check(plot):
        import plotly.graph_objects as go

        text = json.dumps(plot.figure, allow_nan=False)
        assert "bdata" not in text
        assert "template" not in plot.figure["layout"]
        assert "width" not in plot.figure["layout"]
        assert json.loads(text) == plot.figure
        go.Figure(plot.figure)
        assert plot.says
        assert plot.title
        assert plot.rows
        assert len(plot.rows) <= 200
        assert all(len(row) == len(plot.columns) for row in plot.rows)
        assert all(isinstance(cell, str) for row in plot.rows for cell in row)
        return plot

    return check


@pytest.fixture
def traces():
    """The traces of a plot by name."""
    return lambda plot: {trace["name"]: trace for trace in plot.figure["data"]}
