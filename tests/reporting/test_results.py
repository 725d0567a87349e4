"""The number that stands for a measurement, and the figures that other reports get."""

import math
import re

import pytest

from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work
from pytest_roofline.judging.verdicts import Policy, judge
from pytest_roofline.reporting.messages import reason_lines
from pytest_roofline.reporting.published import published_lines
from pytest_roofline.reporting.results import Result, figure, new_s, properties, rate_text
from pytest_roofline.reporting.tables import results_table
from pytest_roofline.reporting.verdicts import status_word

MIB = 2**20
HOSTILE = "x\x1b[31m\r\ny\u202e"


def test_a_test_without_verdict_failed(make):
    assert Result(make.measurement(), None, {}).word == "FAILED"


def test_a_small_message_across_a_link_is_shown_as_its_time(make):
    link = Work(payload_bytes=16 * MIB - 1, wire_bytes=16 * MIB - 1)
    assert figure(make.measurement(1e-3, key=make.key(metric="payload_GBps"), work=link)) == "1.00 ms"


def test_a_large_message_across_a_link_is_shown_as_its_rate(make):
    link = Work(payload_bytes=16 * MIB, wire_bytes=16 * MIB)
    assert figure(make.measurement(1e-3, key=make.key(metric="payload_GBps"), work=link)) == "16.8 GB/s"


def test_a_small_local_copy_is_shown_as_its_rate(make):
    assert figure(make.measurement(1e-6, key=make.key(size_bytes=4096))) == "8.19 GB/s"


def test_arithmetic_is_shown_in_flop_per_second(make):
    measurement = make.measurement(1.0, key=make.key(metric="TFLOPS"), work=Work(flops=359 * 10**12))
    assert rate_text(measurement) == "359 TFLOP/s"


def test_what_has_no_rate_is_shown_as_its_time(make):
    assert rate_text(make.measurement(1e-3, key=make.key(metric="time_s"))) == "1.00 ms"


def test_the_figures_of_a_test_are_named_for_reports(make):
    found = dict(properties([make.result(1.25e-3)]))
    assert found["roofline.verdict"] == "REGRESSED"
    assert float(found["roofline.change"]) == pytest.approx(0.25, rel=1e-3)
    assert float(found["roofline.time_s"]) == 1.25e-3
    assert float(found["roofline.baseline_time_s"]) == pytest.approx(1e-3)


def test_figures_of_a_named_measurement_carry_its_name(make):
    found = dict(properties([make.result(key=make.key(name="backward"))]))
    assert all(name.startswith("roofline.backward.") for name in found)


def test_figures_without_a_verdict_have_none(make):
    names = [name for name, _ in properties([Result(make.measurement(), None, {})])]
    assert "roofline.verdict" not in names


def test_the_name_of_a_figure_cannot_steer_a_report(make):
    found = dict(properties([make.result(key=make.key(name=HOSTILE))]))
    assert not set("".join(found)) & set("\x1b\r\n\u202e")


def test_the_figures_of_a_verdict_hold_its_interval_and_its_processes(make):
    found = dict(properties([make.result(1.24e-3, 1.25e-3, 1.26e-3)]))
    low, high = (float(found[f"roofline.{name}"]) for name in ("change_low", "change_high"))
    assert 0.2 < low < float(found["roofline.change"]) < high < 0.3
    assert (found["roofline.processes"], 0.05 < float(found["roofline.detectable"]) < 0.1) == ("3", True)


def test_the_centre_of_several_processes_is_what_is_shown(make):
    """Not the time of one of them, which the estimate would contradict."""
    result = make.result(1e-3, 1.1e-3, 1.21e-3, 1.331e-3)
    centre = 1e-3 * 1.1**1.5
    assert new_s(result) == pytest.approx(centre)
    assert new_s(result) / math.exp(result.verdict.estimate) == pytest.approx(result.verdict.difference.reference_s)
    assert rate_text(result.measurement, centre) == "116 GB/s"


def test_one_process_is_shown_as_it_was_measured(make):
    assert new_s(make.result(1.001e-3)) is None
    assert new_s(make.result(known=False)) is None


UNRESOLVED = ("unresolved",)
RATE = re.compile("B/s|FLOP/s|GBps|_per_s|share|%")
TEXTS = {
    "rate": lambda one: rate_text(one.measurement),
    "figure": lambda one: figure(one.measurement),
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
    return Result(measurement, verdict, {}, (make.published("reference"),))


@pytest.mark.parametrize(("labels", "known"), [(UNRESOLVED, False), ((), True)])
@pytest.mark.parametrize("name", ["rate", "traffic_GBps", "payload_GBps", "flops_per_s", "share_of_ceiling"])
def test_a_time_below_the_clocks_resolution_has_no_rate(make, name, labels, known):
    assert known == (getattr(shortest(make, labels).measurement, name) is not None)


@pytest.mark.parametrize(("labels", "known"), [(UNRESOLVED, False), ((), True)])
@pytest.mark.parametrize("place", TEXTS)
def test_no_text_makes_a_rate_of_a_time_below_the_clocks_resolution(make, place, labels, known):
    assert known == bool(RATE.search(TEXTS[place](shortest(make, labels))))


@pytest.mark.parametrize("metric", ["traffic_GBps", "payload_GBps", "TFLOPS"])
def test_a_time_below_the_clocks_resolution_is_shown_as_it_is(make, metric):
    assert rate_text(shortest(make, UNRESOLVED, metric).measurement) == "20.0 ns"


def test_the_reason_of_an_unresolved_time_says_what_to_do(make):
    (line,) = reason_lines([shortest(make, UNRESOLVED)])
    assert line.startswith("INVALID memcpy_d2d[64MiB]: a sample spans 2 ticks of the clock")
    assert "time more work in a call" in line
