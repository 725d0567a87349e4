"""Lists for github-action-benchmark: one unit for ever, and a direction a file."""

import pytest

from pytest_roofline.core.work import Work

TIMES, RATES = "github-action-benchmark", "github-action-benchmark-rates"
SCHEMA = "github-action-benchmark-custom"


def test_times_are_nanoseconds_whatever_their_size(exported, make, validate):
    sizes = {1: 2e-7, 64: 1e-3, 4096: 3.5}
    found = exported(TIMES, *(make.measurement(value, key=make.key(size_bytes=size)) for size, value in sizes.items()))
    validate(SCHEMA, found.document)
    assert [200.0, 1e6, 3.5e9] == [pytest.approx(entry["value"]) for entry in found.document]
    assert {"ns"} == {entry["unit"] for entry in found.document}


def test_rates_are_in_the_unit_of_their_metric(exported, make, validate):
    flops = make.key("matmul", metric="fp16_tensor_TFLOPS")
    copy = make.measurement(1e-3)
    product = make.measurement(1e-3, key=flops, work=Work(flops=5 * 10**11))
    found = exported(RATES, copy, product)
    validate(SCHEMA, found.document)
    told = [(entry["name"], entry["value"], entry["unit"]) for entry in found.document]
    assert [("memcpy_d2d[64MiB]", pytest.approx(134.217728), "GB/s"), ("matmul[64MiB]", 500.0, "TFLOP/s")] == told
    assert "fp16_tensor_TFLOPS" == found.document[1]["extra"].splitlines()[0]


def test_what_is_no_rate_is_left_out_of_rates_and_stands_among_times(exported, make):
    job = make.measurement(2.0, key=make.key("job", metric="job_wall_s"))
    rates, times = exported(RATES, job, make.measurement()), exported(TIMES, job, make.measurement())
    assert ["job[64MiB]"] == [one.label for one in rates.left_out]
    assert "take `--to github-action-benchmark` for times" in rates.left_out[0].reason
    assert 2 == len(times.document)


def test_the_range_is_that_of_the_processes(exported, processes):
    (entry,) = exported(TIMES, *processes([1e-3], [1.25e-3], [1.1e-3])).document
    assert ("1000000 … 1250000", pytest.approx(1.1e6)) == (entry["range"], entry["value"])
    (entry,) = exported(RATES, *processes([1e-3], [1.25e-3], [1.1e-3])).document
    assert "107 … 134" == entry["range"]


def test_a_single_sample_has_no_range(exported, make):
    assert "range" not in exported(TIMES, make.measurement()).document[0]


def test_the_extra_says_on_what_it_ran_and_what_was_said_of_it(exported, processes, judged):
    (measurement,) = processes([1e-3])
    (entry,) = exported(TIMES, measurement, judged(measurement)).document
    lines = entry["extra"].splitlines()
    assert ["verdict: PASSED (tolerance 5 %)", "roofline: 13.4 % (datasheet)", "hardware: h200-sxm, 141gb"] == lines[:3]
    assert {"driver: 570.86", "processes: 1", "run_id: run"} == set(lines[3:])
