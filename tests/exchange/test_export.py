"""What may go out and what may not; the lists of github-action-benchmark and Bencher's format, by their schemas."""

from statistics import geometric_mean

import pytest

from pytest_roofline.core.errors import BadInput, OtherHardware
from pytest_roofline.core.memory import FailedAllocation, OutOfMemory
from pytest_roofline.core.records import Outcome
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.exchange.exportable import select_exportable
from pytest_roofline.exchange.formats import EXPORT_NAMES, export

LABEL = "memcpy_d2d[64MiB]"
# What stands for several processes.
CENTRE_S = geometric_mean((1e-3, 1.25e-3, 1.1e-3))
TIMES, RATES, BENCHER = "github-action-benchmark", "github-action-benchmark-rates", "bencher"
GITHUB_SCHEMA, BENCHER_SCHEMA = "github-action-benchmark-custom", "bencher-metric-format"


@pytest.fixture
def kept(make, tmp_path):
    """What a run of these records gives out, and what it keeps, each by label."""

    def kept(*records, **changes):
        fit, left_out = select_exportable([make.run(tmp_path / "run.jsonl", *records, **changes)])
        return {one.row.label: one for one in fit}, {one.label: one for one in left_out}

    return kept


def test_a_number_that_must_not_be_trusted_stays_at_home_with_its_reason(kept, make, judged):
    one = make.measurement()
    invalid = "this is host-bound, the baseline is not"
    cases = [
        *(
            (
                (
                    make.measurement(
                        samples=Samples((1e-3,), iterations=10, tick_s=1e-9, labels=(label,))
                    ),
                ),
                why,
            )
            for label, why in (
                ("oversubscribed", "more ranks than cores"),
                ("replaced", "replaced on purpose"),
                ("profiled", "a profiler"),
            )
        ),
        ((make.measurement(invalid="above the datasheet's peak"),), "above the datasheet's peak"),
        ((one, judged(one, "INVALID", reason=invalid)), invalid),
        (
            (one, make.outcome(one, "failed", reason="WrongData: element 7 is 0")),
            "the test failed: WrongData: element",
        ),
    ]
    for records, why in cases:
        fit, left_out = kept(*records)
        assert (fit, left_out[LABEL].measured, why in left_out[LABEL].reason) == ({}, True, True), (
            why
        )
    fit, left_out = kept(one, ended=False)
    assert (fit, left_out[LABEL].reason) == ({}, "the test did not finish")


def test_a_test_that_is_only_slower_goes_out(kept, make, judged):
    measurement = make.measurement(2e-3)
    ended = make.outcome(
        measurement, "failed", verdicts=("REGRESSED",), reason="slower", by_verdict=True
    )
    fit, left_out = kept(measurement, judged(measurement, "REGRESSED"), ended)
    assert (fit[LABEL].seconds, left_out) == (2e-3, {})


def test_the_samples_behind_a_number_and_its_bounds(kept, processes, make, judged):
    blocks = Samples(
        (1.0, 1e-3, 2e-3), 10, 1e-9, blocks=(Block(1, "neighbours"), Block(1), Block(1))
    )
    one_process = Samples((1e-3, 3e-3, 2e-3, 5e-3), 10, 1e-9, blocks=(Block(3), Block(1)))
    centre = {"processes": 3, "estimate": 0.0, "difference": make.difference(new_s=1.3e-3)}
    several = processes([1e-3, 5e-3, 1e-3], [1.2e-3], [1.1e-3])
    cases = [
        # A process that cannot be trusted is behind no number; of the attempts of one the slowest counts.
        ((*processes([1e-3], [1.1e-3]), make.measurement(9.0, process="process-9", invalid="busy")), (1e-3, 1.1e-3),
         (1e-3, 1.1e-3)),
        ((make.measurement(1e-3), make.measurement(1.2e-3)), (1.2e-3,), None),
        # Blocks that do not count are behind no number; a single process has the bounds of its blocks.
        ((make.measurement(samples=blocks),), (1e-3, 2e-3), (1e-3, 2e-3)),
        ((make.measurement(samples=one_process),), (1e-3, 3e-3, 2e-3, 5e-3), (2e-3, 5e-3)),
        # Bounds are the medians of processes, and hold the centre.
        ((*several, judged(several[0], **centre)), (1e-3, 5e-3, 1e-3, 1.2e-3, 1.1e-3), (1e-3, 1.3e-3)),
    ]  # fmt: skip
    for records, rounds, bounds in cases:
        fit, _ = kept(*records)
        assert (fit[LABEL].rounds_s, fit[LABEL].bounds_s) == (rounds, bounds)


def test_what_has_no_time_is_said_and_not_counted_as_a_number(kept):
    key = ResourceKey("flash", {}, "sm_90")
    kernel = Resources(key, "test_f.py::test_flash", "flash@sm_90", "process-1", {"registers": 40})
    ran_out = OutOfMemory(
        "test_o.py::test_o", "o", {}, "o", "cpu", FailedAllocation("tried to allocate 2.00 GiB")
    )
    skipped = Outcome("test_s.py::test_s", "skipped", reason="needs 2 GPUs, found 1")
    failed = Outcome("test_e.py::test_e", "failed", reason="ValueError")
    _, left_out = kept(kernel, ran_out, skipped, failed)
    reasons = {label: (one.reason, one.measured) for label, one in left_out.items()}
    assert {
        "flash@sm_90": ("a compiled kernel has no time", False),
        "o": ("the test ran out of memory: tried to allocate 2.00 GiB", False),
        "test_s": ("the test was skipped: needs 2 GPUs, found 1", False),
        "test_e": ("the test failed: ValueError", False),
    } == reasons
    assert kept(Outcome("test_x.py::test_plain", "passed")) == ({}, {})


def test_every_measurement_of_a_test_but_the_first_has_its_name_behind_the_node_id(kept, make):
    test_id = "test_m.py::test_m[64MiB]"
    cases = [
        # The first goes by the test whatever its name, as pytest-benchmark has it live.
        (("forward", "backward"), ("", ".backward")),
        (("", "backward"), ("", ".backward")),
        (("forward", "", "backward"), ("", ".2", ".backward")),
    ]
    for names, endings in cases:
        fit, _ = kept(
            *(make.measurement(key=make.key(name=name), test_id=test_id) for name in names)
        )
        assert [one.name for one in fit.values()] == [test_id + ending for ending in endings], names
    broken = make.measurement(
        key=make.key(name="forward"), test_id=test_id, invalid="busy neighbours"
    )
    fit, _ = kept(broken, make.measurement(key=make.key(name="backward"), test_id=test_id))
    assert [one.name for one in fit.values()] == [f"{test_id}.backward"]


def test_runs_go_out_together_where_they_are_of_one_hardware_and_each_test_once(make, tmp_path):
    one = make.run(tmp_path / "a.jsonl", make.measurement())
    twice = make.run(tmp_path / "b.jsonl", make.measurement())
    more = make.run(tmp_path / "c.jsonl", make.measurement(key=make.key(size_bytes=2**20)))
    broken = make.run(tmp_path / "d.jsonl", make.measurement(invalid="busy neighbours"))
    key = make.key(hardware=make.hardware(product="h100-sxm"))
    other = make.run(tmp_path / "e.jsonl", make.measurement(key=key))
    for name in EXPORT_NAMES:
        _, names, _ = export([one, more], name)
        assert len(names) == 2
        # What is left out of one run may stand in another.
        _, names, _ = export([broken, one], name)
        assert len(names) == 1
        with pytest.raises(
            OtherHardware,
            match=r"a\.jsonl of h200-sxm, .*e\.jsonl of h100-sxm.*into a separate file",
        ):
            export([one, other], name)
        with pytest.raises(
            BadInput, match=r"is twice in .*a\.jsonl and .*b\.jsonl; expected each measurement"
        ):
            export([one, twice], name)
    with pytest.raises(
        BadInput,
        match=r"--to is 'junit'; expected one of pytest-benchmark, github-action-benchmark, ",
    ):
        export([one], "junit")


def test_times_are_nanoseconds_whatever_their_size(exported, make, validate):
    sizes = {1: 2e-7, 64: 1e-3, 4096: 3.5}
    found = exported(
        TIMES,
        *(make.measurement(value, key=make.key(size_bytes=size)) for size, value in sizes.items()),
    )
    validate(GITHUB_SCHEMA, found.document)
    assert [200.0, 1e6, 3.5e9] == [pytest.approx(entry["value"]) for entry in found.document]
    assert {"ns"} == {entry["unit"] for entry in found.document}


def test_rates_are_in_the_unit_of_their_metric(exported, make, validate):
    flops = make.key("matmul", metric="fp16_tensor_TFLOPS")
    copy = make.measurement(1e-3)
    product = make.measurement(1e-3, key=flops, work=Work(flops=5 * 10**11))
    found = exported(RATES, copy, product)
    validate(GITHUB_SCHEMA, found.document)
    told = [(entry["name"], entry["value"], entry["unit"]) for entry in found.document]
    assert [
        ("memcpy_d2d[64MiB]", pytest.approx(134.217728), "GB/s"),
        ("matmul[64MiB]", 500.0, "TFLOP/s"),
    ] == told
    assert "fp16_tensor_TFLOPS" == found.document[1]["extra"].splitlines()[0]


def test_what_is_no_rate_is_left_out_of_rates_and_stands_among_times(exported, make):
    job = make.measurement(2.0, key=make.key("job", metric="job_wall_s"))
    rates, times = (
        exported(RATES, job, make.measurement()),
        exported(TIMES, job, make.measurement()),
    )
    assert ["job[64MiB]"] == [one.label for one in rates.left_out]
    assert "export times with `--to github-action-benchmark`" in rates.left_out[0].reason
    assert 2 == len(times.document)


def test_the_extra_says_on_what_it_ran_and_what_was_said_of_it(exported, processes, judged):
    (measurement,) = processes([1e-3])
    changed = ("driver 550.54 → 570.86", "code 8c1f → 2d41")
    (entry,) = exported(TIMES, measurement, judged(measurement, changed=changed)).document
    lines = entry["extra"].splitlines()
    told = [f"changed: {change}" for change in changed]
    assert ["verdict: PASSED (tolerance 5 %)", "roofline: 13.4 % (datasheet)", *told] == lines[:4]
    assert {"hardware: h200-sxm, 141gb", "driver: 570.86", "processes: 1", "run_id: run"} == set(
        lines[4:]
    )
    assert "range" not in entry
    (entry,) = exported(TIMES, *processes([1e-3], [1.25e-3], [1.1e-3])).document
    assert ("1000000 … 1250000", pytest.approx(1e9 * CENTRE_S)) == (entry["range"], entry["value"])
    (entry,) = exported(RATES, *processes([1e-3], [1.25e-3], [1.1e-3])).document
    assert "107 … 134" == entry["range"]


def test_every_measure_has_its_unit_and_bounds_in_its_own_direction(
    exported, make, processes, validate
):
    job = make.measurement(
        2.0, key=make.key("job", metric="job_wall_s"), label='x["\\ü\n</script>]'
    )
    document = exported(BENCHER, make.measurement(peak_bytes=4096, held_bytes=0), job).document
    validate(BENCHER_SCHEMA, document)
    assert document[LABEL]["latency"] == {"value": 1e6}
    assert (document[LABEL]["peak-memory"], document[LABEL]["held-memory"]) == (
        {"value": 4096.0},
        {"value": 0.0},
    )
    assert list(document[job.label]) == ["latency", "throughput"]
    found = exported("bencher", *processes([1e-3], [1.25e-3], [1.1e-3]))
    validate(BENCHER_SCHEMA, found.document)
    near = pytest.approx
    assert {
        "memcpy_d2d[64MiB]": {
            "latency": {
                "value": near(1e9 * CENTRE_S),
                "lower_value": near(1e6),
                "upper_value": near(1.25e6),
            },
            "throughput": {
                "value": near(1 / CENTRE_S),
                "lower_value": near(800),
                "upper_value": near(1000),
            },
            "traffic-gbps": {
                "value": near(0.134217728 / CENTRE_S),
                "lower_value": near(0.134217728 / 1.25e-3),
                "upper_value": near(134.217728),
            },
            "roofline-share": {
                "value": near(0.0134217728 / CENTRE_S),
                "lower_value": near(13.4217728 / 1.25),
                "upper_value": near(13.4217728),
            },
        }
    } == found.document
