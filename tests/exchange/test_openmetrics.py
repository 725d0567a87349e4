"""`roofline export --to openmetrics`, read by the reference parsers of OpenMetrics and of Prometheus' older text."""

import dataclasses
import math

import pytest
from click.testing import CliRunner
from prometheus_client import parser as prometheus
from prometheus_client.openmetrics import parser as openmetrics

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.cli.main import main


@pytest.fixture
def exported(make, tmp_path):
    """Returns what is written of a run with one test, which has these facts."""

    def export(label="copy", node="node1", known=False):
        measurement = make.measurement(2e-3, key=make.key(label, parameters={}))
        header = make.header("run", "2026-01-02T03:04:05Z", uuid="GPU-7")
        host = dataclasses.replace(header.environment.host, name=node)
        header = dataclasses.replace(
            header, environment=dataclasses.replace(header.environment, host=host)
        )
        path = tmp_path / "run.jsonl"
        difference = make.difference(math.log(2), new_s=2e-3, reference_s=1e-3)
        verdict = make.verdict(
            measurement,
            "REGRESSED",
            estimate=math.log(2),
            interval=(0.6, 0.8),
            difference=difference,
            reference=make.reference(),
            processes=1,
        )
        failed = make.outcome(measurement, "failed", verdicts=("REGRESSED",), by_verdict=True)
        lines = (
            header,
            measurement,
            *((verdict, failed) if known else (make.outcome(measurement),)),
        )
        path.write_text("".join(map(encode_line, lines)))
        target = tmp_path / "roofline.prom"
        done = CliRunner().invoke(
            main, ["export", str(path), "--to", "openmetrics", "-o", str(target)]
        )
        assert done.exit_code == 0, done.output
        return target.read_text()

    return export


def samples(parser, text):
    return {
        sample.name: (sample.labels, sample.value)
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_both_reference_parsers_read_verdict_time_and_age_by_test_and_device(exported):
    text = exported()
    labels = {"test": "copy", "device": "GPU-7", "node": "node1"}
    expected = {
        "roofline_verdict": (labels | {"verdict": "NO BASELINE"}, 1.0),
        "roofline_time_seconds": (labels, 2e-3),
        "roofline_measured_timestamp_seconds": (labels, 1767323045.0),
    }
    assert expected == samples(openmetrics, text) == samples(prometheus, text)


def test_what_is_slower_has_its_verdict_and_its_ratio_to_the_baseline(exported):
    read = samples(openmetrics, exported(known=True))
    assert "REGRESSED" == read["roofline_verdict"][0]["verdict"]
    assert 2.0 == pytest.approx(read["roofline_time_ratio"][1])


def test_text_of_a_file_stays_inside_its_label(exported):
    strange = 'a"b\\c}'
    read = samples(openmetrics, exported(node=strange))
    assert {strange} == {labels["node"] for labels, _ in read.values()}
