"""The number that stands for a measurement, and the figures that other reports get."""

import re

import pytest

from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.rows import COLUMNS
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.messages import reason_lines
from pytest_roofline.report.published import published_lines
from pytest_roofline.report.tables import results_table
from pytest_roofline.report.verdicts import status_word
from pytest_roofline.report.words import figure, properties, rate_text
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import judge

MIB = 2**20
HOSTILE = "x\x1b[31m\r\ny\u202e"


def test_the_number_of_a_measurement_is_its_rate_and_of_a_small_message_its_time(make):
    across = make.key(metric="payload_GBps")
    small, large = (Work(payload_bytes=size, wire_bytes=size) for size in (16 * MIB - 1, 16 * MIB))
    arithmetic = {"key": make.key(metric="TFLOPS"), "work": Work(flops=359 * 10**12)}
    texts = {
        "1.00 ms": make.measurement(1e-3, key=across, work=small),
        "16.8 GB/s": make.measurement(1e-3, key=across, work=large),
        "8.19 GB/s": make.measurement(1e-6, key=make.key(size_bytes=4096)),
        "359 TFLOP/s": make.measurement(1.0, **arithmetic),
        "2.00 ms": make.measurement(2e-3, key=make.key(metric="time_s")),
    }
    assert list(texts) == [figure(make.row(one)) for one in texts.values()]


def test_the_figures_of_a_test_are_named_as_the_columns_are(make):
    found = dict(properties([make.result(1.24e-3, 1.25e-3, 1.26e-3)]))
    assert found["roofline.verdict"] == "REGRESSED"
    assert float(found["roofline.time_s"]) == pytest.approx(1.25e-3, rel=1e-3)
    assert float(found["roofline.baseline_time_s"]) == pytest.approx(1e-3)
    low, high = (float(found[f"roofline.{name}"]) for name in ("change_low", "change_high"))
    assert 0.2 < low < float(found["roofline.change"]) < high < 0.3
    assert (found["roofline.processes"], 0.05 < float(found["roofline.detectable"]) < 0.1) == ("3", True)
    assert {name.removeprefix("roofline.") for name in found} <= {*COLUMNS, "limit_time_s"}


def test_the_name_of_a_figure_has_that_of_its_measurement_and_cannot_steer_a_report(make):
    found = dict(properties([make.result(key=make.key(name="backward"))]))
    assert all(name.startswith("roofline.backward.") for name in found)
    hostile = dict(properties([make.result(key=make.key(name=HOSTILE))]))
    assert not set("".join(hostile)) & set("\x1b\r\n\u202e")


def test_the_centre_of_several_processes_is_what_is_shown(make):
    """Not the time of one of them, which the estimate would contradict."""
    row = make.result(1e-3, 1.1e-3, 1.21e-3, 1.331e-3)
    assert row.time_s == pytest.approx(1e-3 * 1.1**1.5)
    assert row.time_s / (1 + row.change) == pytest.approx(row.baseline_time_s)
    assert rate_text(row) == "116 GB/s"
    assert [make.result(1.001e-3).time_s, make.result(known=False).time_s] == [1.001e-3, 1e-3]


UNRESOLVED = ("unresolved",)
RATE = re.compile("B/s|FLOP/s|GBps|_per_s|share|%")
TEXTS = {
    "rate": lambda one: rate_text(one),
    "figure": lambda one: figure(one),
    "status": status_word,
    # Without its heading, which has the signs of all columns.
    "table": lambda one: results_table([one], 80, False).split("\n")[-1],
    "properties": lambda one: str(properties([one])),
    "derived": lambda one: str(one.measurement.derived()),
    "published": lambda one: published_lines([one])[0],
}


def shortest(make, labels, metric="traffic_GBps"):
    """A result of 20 ns on a clock of 10, which tells a time or, where it says so, does not."""
    samples = Samples((2e-8,), 1, 1e-8, labels=labels)
    facts = {"ceiling": Ceiling("traffic_GBps", 1e12, "datasheet", "vendor"), "invalid": samples.trouble}
    work = Work(read_bytes=10**3, write_bytes=10**3, payload_bytes=10**3, flops=10**3)
    measurement = make.measurement(samples=samples, key=make.key(metric=metric), work=work, **facts)
    verdict = judge([make.group(0.0)], None, Policy(), invalid=measurement.invalid)
    return make.judged(measurement, verdict, {}, (make.published("reference"),))


RATES = ("rate", "traffic_GBps", "payload_GBps", "flops_per_s", "share_of_ceiling")


def test_nothing_makes_a_rate_of_a_time_below_the_clocks_resolution(make):
    for labels, known in ((UNRESOLVED, False), ((), True)):
        one = shortest(make, labels)
        assert dict.fromkeys(RATES, known) == {name: getattr(one.measurement, name) is not None for name in RATES}
        assert dict.fromkeys(TEXTS, known) == {place: bool(RATE.search(text(one))) for place, text in TEXTS.items()}


@pytest.mark.parametrize("metric", ["traffic_GBps", "payload_GBps", "TFLOPS"])
def test_a_time_below_the_clocks_resolution_is_shown_as_it_is(make, metric):
    assert rate_text(shortest(make, UNRESOLVED, metric)) == "20.0 ns"


def test_the_reason_of_an_unresolved_time_says_what_to_do(make):
    (line,) = reason_lines([shortest(make, UNRESOLVED)])
    assert line.startswith("INVALID memcpy_d2d[64MiB]: a sample spans 2 ticks of the clock")
    assert "time more work in a call" in line
