"""Records: what they refuse, what they derive, and when two of them are the same."""

import math
from dataclasses import replace

import pytest

from pytest_roofline.core.entries import OUT_OF_MEMORY, Session
from pytest_roofline.core.errors import BadFile, BadInput, short_repr
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.memory import MemoryPoint, MemoryUse
from pytest_roofline.core.records import Ceiling, rate
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.storage import to_record
from pytest_roofline.core.verdicts import ExactVerdict, Kind, Subject, Verdict
from pytest_roofline.core.work import Work

BAD_NUMBERS = (0.0, -1.0)


def samples(*seconds):
    return Samples(seconds, iterations=1, tick_s=1e-9)


def verdict(**changes):
    return Verdict(Kind.PASSED, 0.05, Subject("test_a", "a"), **changes)


def test_a_number_outside_of_its_range_is_refused_in_any_record_of_a_file(make):
    finite, share = (
        "expected a finite number above zero",
        "expected a share above zero, such as 0.05",
    )
    for value in BAD_NUMBERS:
        ceiling = Ceiling("traffic_GBps", value, "datasheet", "vendor")
        for record, sentence in [
            (samples(1.0, value), f"seconds[1] is {value}; {finite}"),
            (make.measurement(tolerance=value), f"tolerance is {value}; {share}"),
            (ceiling, f"value is {value}; {finite}"),
            (
                make.measurement(ceiling=ceiling),
                f"value is {value}; {finite} - at `$.ceiling`",
            ),
            (make.session(value), f"process_medians[0] is {value}; {finite}"),
            (
                make.measured(value),
                f"process_medians[0] is {value}; {finite} - at `$.sessions[0]`",
            ),
            (make.measured(tolerance=value), f"tolerance is {value}; {share}"),
        ]:
            assert f"FILE: {sentence}" == make.refusal(record)
    for record, sentence in [
        (make.session(1e-30), "process_medians[0] is 1e-30; expected a number between 1e-18 and 1e+18"),
        (make.session(1e30), "process_medians[0] is 1e+30; expected a number between 1e-18 and 1e+18"),
        (make.measurement(1.0, compile_s=-1.0), "compile_s is -1.0; expected a finite number, zero or more"),
        (make.measurement(1.0, round=0), "round is 0; expected 1 or more"),
        (make.measurement(1.0, peak_bytes=-7), "peak_bytes is -7; expected a whole number, zero or more"),
        (verdict(p=1.5), "p is 1.5; expected a chance from 0 to 1"),
        (verdict(p=-0.5), "p is -0.5; expected a chance from 0 to 1"),
    ]:  # fmt: skip
        assert f"FILE: {sentence}" == make.refusal(record)


def test_a_number_that_is_not_finite_is_refused_in_any_file(make):
    for value in (math.nan, math.inf, -math.inf):
        for record in (samples(value), make.session(value), make.measurement(tolerance=value)):
            assert "which is not a JSON number; expected finite numbers" in make.refusal(record)


def test_a_published_value_is_a_finite_number_or_the_smaller_of_two_first(make):
    for value in (*BAD_NUMBERS, math.nan, math.inf, -math.inf):
        with pytest.raises(BadInput, match=r"value\[0\] is .*; expected a finite number above"):
            make.published(value=value)
    with pytest.raises(BadInput, match=r"value\[1\] is nan; expected a finite number above"):
        make.published(value=(1.0, math.nan))
    with pytest.raises(BadInput, match="expected the smaller number first"):
        make.published(value=(2.0, 1.0))


def test_samples_and_sessions_hold_something_that_can_be(make):
    for changes, sentence in [
        ({"seconds": ()}, "seconds is empty; expected at least one"),
        ({"iterations": 0}, "iterations is 0; expected 1 or more"),
        ({"tick_s": -1e-9}, "tick_s is -1e-09; expected a finite number, zero or more"),
        ({"argument_sets": 0}, "argument_sets is 0; expected 1 or more"),
    ]:
        assert f"FILE: {sentence}" == make.refusal(replace(samples(1.0), **changes))
    empty = "FILE: process_medians is empty; expected the median of at least one process"
    assert empty == make.refusal(Session("run", "2026", ()))


def test_of_a_mapping_the_key_of_what_cannot_be_is_named(make):
    hardware = replace(make.hardware(), devices=0)
    point = MemoryPoint(0.0, "forward", {"parameters": 1, "other": -1})
    for record, sentence in [
        (point, "categories['other'] is -1; expected a whole number, zero or more"),
        (
            MemoryUse(
                "t", "t", "p", "cpu", "", 1, over_time=(replace(point, categories={}), point)
            ),
            "categories['other'] is -1; expected a whole number, zero or more - at `$.over_time[1]`",
        ),
        (
            make.measurement(key=make.key(hardware=hardware)),
            "devices is 0; expected 1 or more - at `$.key.hardware`",
        ),
    ]:
        assert f"FILE: {sentence}" == make.refusal(record)


def test_rates_are_derived_from_the_work_and_the_median_time(make):
    assert make.measurement(4.0, 1.0, 2.0, 3.0).median_s == 2.5
    copied = make.measurement(
        1.0, work=Work(read_bytes=3 * 10**9, write_bytes=10**9, payload_bytes=10**9)
    )
    assert (copied.traffic_GBps, copied.payload_GBps) == (4.0, 1.0)
    collective = Work(algbw_bytes=10**9, busbw_bytes=15 * 10**8, wire_bytes=2 * 10**9)
    measurement = make.measurement(0.5, work=collective)
    assert (measurement.algbw_GBps, measurement.busbw_GBps, measurement.wirebw_GBps) == (
        2.0,
        3.0,
        4.0,
    )
    assert set(measurement.derived()) == {"median_s", "algbw_GBps", "busbw_GBps", "wirebw_GBps"}
    # Of a whole program's time, and below the clock's resolution, a rate would be an invention.
    job = make.measurement(0.5, work=collective, key=make.key(metric="job_wall_s"))
    samples = Samples((1e-9,), 1, 1e-9, labels=("unresolved",))
    for one in (job, make.measurement(work=Work(flops=2, tokens=4), samples=samples)):
        assert set(one.derived()) == {"median_s"}
    assert set(make.measurement(work=Work(payload_bytes=1)).derived()) == {
        "median_s",
        "payload_GBps",
    }
    assert rate(Work(flops=1), "payload_GBps", 1.0) is None
    ceiling = Ceiling("traffic_GBps", 8e9, "datasheet", "vendor")
    work = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)
    assert make.measurement(1.0, work=work, ceiling=ceiling).share_of_ceiling == 0.25
    assert make.measurement().share_of_ceiling is None


PEAK = Ceiling("bf16_TFLOPS", 4e12, "datasheet", "vendor")
STEP = Work(flops=2 * 10**12, tokens=1024)


def test_model_flops_utilization_is_the_share_of_the_dense_peak_where_there_are_tokens_and_one(
    make,
):
    def derived(work, ceiling):
        return make.measurement(
            1.0, key=make.key(metric="bf16_TFLOPS"), work=work, ceiling=ceiling
        ).derived()

    assert (derived(STEP, PEAK)["mfu"], derived(STEP, PEAK)["tokens_per_s"]) == (0.5, 1024)
    measured = derived(STEP, replace(PEAK, source="measured"))
    assert ("mfu" in measured, measured["mfu_of_measured_product"]) == (False, 0.5)
    bytes_ = Ceiling("traffic_GBps", 8e9, "datasheet", "vendor")
    for work, ceiling in [
        (Work(flops=10**12), PEAK),
        (STEP, None),
        (Work(flops=1, tokens=8, read_bytes=8), bytes_),
    ]:
        assert "mfu" not in derived(work, ceiling), (work, ceiling)


def test_every_part_of_a_key_tells_measurements_apart_and_the_order_of_parameters_does_not(make):
    key = make.key()
    for field, other in [
        ("benchmark", "another"), ("parameters", {"size_bytes": 1}), ("metric", "payload_GBps"),
        ("hardware", HardwareKey("another")), ("cache", "flush"), ("timing", "wall"), ("name", "second"),
    ]:  # fmt: skip
        assert key.identity != replace(key, **{field: other}).identity, field
    assert (
        make.key(parameters={"a": 1, "b": 2}).identity
        == make.key(parameters={"b": 2, "a": 1}).identity
    )
    for parameters, name, label in [
        ({}, "", "memcpy_d2d"),
        ({"size_bytes": 2**26}, "", "memcpy_d2d[64MiB]"),
        ({"memory": "pinned", "size_bytes": 4097}, "", "memcpy_d2d[pinned-4097B]"),
        ({"heads": 2**10}, "backward", "memcpy_d2d[1024].backward"),
    ]:
        assert make.key(parameters=parameters, name=name).label == label


def test_hardware_covers_what_agrees_in_every_fact_that_it_names(make):
    assert HardwareKey().covers(make.hardware())
    others = {
        "product": "another",
        "memory": "another",
        "partition": "another",
        "devices": 7,
        "link": "another",
    }
    for field, other in others.items():
        another, left_open = make.hardware(**{field: other}), make.hardware(**{field: None})
        assert not make.hardware().covers(another), field
        assert (left_open.covers(another), left_open.complete) == (True, False), field
    for changes, text in [
        ({}, "h200-sxm, 141gb"),
        ({"partition": "1g.18gb"}, "h200-sxm, 141gb, 1g.18gb"),
        ({"devices": 8, "link": "nvlink"}, "h200-sxm, 141gb, nvlink, 8 devices"),
        ({"product": None, "memory": None}, "any product, any memory"),
    ]:
        assert str(make.hardware(**changes)) == text
    assert make.environment(driver=None).comparable() == {"kernel": "6.8", "torch": "2.13.0"}


def test_a_measured_entry_matches_its_own_key_and_no_other(make):
    assert make.measured().matches(make.key())
    for changes in [
        *(
            {"benchmark": "memcpy_h2d"},
            {"name": "second"},
            {"parameters": {}},
            {"metric": "triton_traffic_GBps"},
        ),
        *(
            {"cache": "warm"},
            {"timing": "wall"},
            {"hardware": HardwareKey("h200-sxm", "141gb", "none", 2, "none")},
        ),
    ]:
        assert not make.measured().matches(make.key(**changes)), changes


def test_a_threshold_matches_where_what_it_names_agrees_and_its_counting(make):
    open_key = make.key(
        size_bytes=1, cache="flush", timing="wall", hardware=make.hardware(product="mi300x")
    )
    pinned = make.published(parameters={"memory": "pinned"})
    for entry, key, matches in [
        (make.published(), open_key, True),
        (pinned, make.key(parameters={"memory": "pinned", "size_bytes": 1}), True),
        *(
            (make.published(metric=mine, unit=unit), make.key(metric=other), matches)
            for mine, unit, other, matches in [
                ("traffic_GBps", "GB/s", "traffic_GBps", True), ("traffic_GBps", "GB/s", "triton_traffic_GBps", True),
                ("triton_traffic_GBps", "GB/s", "traffic_GBps", False), ("payload_GBps", "GB/s", "traffic_GBps", False),
                ("time_s", "s", "triton_traffic_GBps", True),
            ]
        ),
        *(
            (make.published(**changes), make.key(), False)
            for changes in [
                {"parameters": {"size_bytes": 1}}, {"parameters": {"memory": "pinned"}},
                {"parameters": {"memory": None}}, {"cache": "flush"}, {"timing": "wall"}, {"name": "second"},
                {"hardware": HardwareKey(product="h100")},
                {"benchmark": "memcpy"},
            ]
        ),
    ]:  # fmt: skip
        assert entry.matches(key) == matches, (entry, key)


def test_only_a_number_from_a_source_that_can_be_trusted_gates(make):
    for changes, gates in [
        ({"confidence": "high"}, True), ({"confidence": "medium"}, True), ({"confidence": "low"}, False),
        ({"confidence": "recalled"}, False), ({"value": (90.0, 110.0)}, False), ({"value": OUT_OF_MEMORY}, False),
        ({"kind": "reference"}, False),
    ]:  # fmt: skip
        assert make.published(**changes).gates == gates, changes


def test_an_entry_says_what_is_wrong_with_it(make):
    partly = make.key(hardware=make.hardware(link=None))
    for refused, said in [
        *((lambda f=f: make.published(**{f: None}), f"a threshold entry lacks {f}") for f in (
            "value", "unit", "convention", "source", "confidence")),
        (lambda: make.published("reference", sessions=(make.session(),)), "a reference entry has sessions"),
        (lambda: make.published(metric="GBps"), "metric of a threshold is 'GBps'; expected a rate"),
        *((lambda f=f: make.measured(**{f: None}), f"a measured entry lacks {f}") for f in ("cache", "timing", "work")),
        (lambda: make.measured(sessions=()), "a measured entry lacks sessions"),
        (lambda: make.measured(value=1.0), "a measured entry has value; only entries of another kind"),
        (lambda: make.measured(key=partly), "names only a part of its hardware"),
        *((lambda m=m, u=u: make.published(metric=m, unit=u), "unit is") for m, u in (
            ("time_s", "ms"), ("traffic_GBps", "GiB/s"), ("TFLOPS", "GB/s"))),
    ]:  # fmt: skip
        with pytest.raises(BadInput, match=said):
            refused()


def test_an_entry_is_the_same_one_whatever_was_measured_and_published_ones_by_their_source(make):
    one, other = (
        make.published("reference", source="one"),
        make.published("reference", source="other"),
    )
    assert one.identity != other.identity
    assert make.measured(source="node 1").identity == make.measured(source="node 2").identity
    assert make.measured(1.0).identity == make.measured(2.0, tolerance=0.1).identity
    entry = make.measured(sessions=(make.session(1.0, 2.0), make.session(3.0, run_id="run-2")))
    assert entry.medians == (1.0, 2.0, 3.0)


# What one call does.

AMOUNTS = (
    "read_bytes",
    "write_bytes",
    "payload_bytes",
    "flops",
    "wire_bytes",
    "algbw_bytes",
    "busbw_bytes",
)


def test_an_amount_is_a_whole_number_and_something_is_worked():
    impossible = [
        (1.0, "a whole number"),
        (True, "a whole number"),
        (-1, "zero or more, and at most 2^63"),
    ]
    for field in AMOUNTS:
        assert getattr(Work(**{field: 1}), field) == 1
        for amount, expected in impossible:
            with pytest.raises(BadInput) as error:
                Work(**{field: amount})
            assert str(error.value) == f"Work.{field} is {amount!r}; expected {expected}"
    for nothing in [{}, {"read_bytes": 0, "flops": 0}, {"tokens": 5}]:
        with pytest.raises(
            BadInput, match="every field of Work is zero; expected at least one of read_bytes"
        ):
            Work(**nothing)


def test_work_is_shown_as_what_people_call_it():
    for work, metric, size_bytes, amount in [
        (Work(read_bytes=16, write_bytes=8, payload_bytes=8, flops=1), "traffic_GBps", 8, 24),
        (Work(read_bytes=16, write_bytes=8), "traffic_GBps", 16, 24),
        (Work(write_bytes=1), "traffic_GBps", 1, 1),
        (Work(payload_bytes=1, wire_bytes=2), "payload_GBps", 1, 1),
        (Work(wire_bytes=3, flops=1), "wirebw_GBps", 3, 3),
        (Work(flops=9, tokens=5), "TFLOPS", 0, 9),
        (Work(algbw_bytes=4, busbw_bytes=6, wire_bytes=6), "busbw_GBps", 4, 6),
        (Work(algbw_bytes=4, read_bytes=8), "algbw_GBps", 4, 4),
        (Work(calls=3), "time_s", 0, None),
    ]:
        assert (work.metric, work.size_bytes, work.amount(work.metric)) == (
            metric,
            size_bytes,
            amount,
        ), work
    work = Work(payload_bytes=5, algbw_bytes=4, busbw_bytes=6)
    for metric, amount in [
        ("payload_GBps", 5), ("triton_payload_GBps", 5), ("algbw_GBps", 4), ("nccl_busbw_GBps", 6),
        ("traffic_GBps", None), ("time_s", None), ("mypayload_GBps", None), ("payload_GBps_x", None), ("", None),
    ]:  # fmt: skip
        assert work.amount(metric) == amount, metric
    assert (
        Work(read_bytes=2, write_bytes=2, flops=8).operational_intensity,
        Work(flops=8).operational_intensity,
    ) == (
        2.0,
        None,
    )


def test_a_word_that_no_exact_verdict_has_is_refused_in_code_and_in_a_file_and_shortened():
    words = "PASSED, IMPROVED, REGRESSED, INVALID, NO BASELINE"
    for word in ("FINE", "SHIFTED", "@all" + "<b>" * 999):
        sentence = f"verdict is {short_repr(word)}; expected one of {words}"
        with pytest.raises(BadInput) as refusal:
            ExactVerdict("t", "t", "energy", word)
        assert str(refusal.value) == sentence
        plain = {"test_id": "t", "label": "t", "metric": "energy", "verdict": word}
        with pytest.raises(BadFile) as refusal:
            to_record(plain, ExactVerdict, "FILE")
        assert str(refusal.value) == f"FILE: {sentence}"
