import dataclasses
import math

import pytest

from pytest_roofline.core.entries import OUT_OF_MEMORY, Session
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.records import Ceiling, rate
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work

BAD_NUMBERS = (0.0, -1.0, float("nan"), float("inf"), -float("inf"))


def test_a_record_cannot_be_changed(make):
    with pytest.raises(dataclasses.FrozenInstanceError):
        make.measurement().label = "another"


def test_a_sample_must_be_a_finite_number_above_zero():
    for value in BAD_NUMBERS:
        with pytest.raises(BadInput) as error:
            Samples((1.0, value), iterations=1, tick_s=1e-9)
        assert str(error.value) == f"samples[1] is {value!r}; expected a finite number above zero", value


def test_a_measurement_without_any_sample_is_refused():
    with pytest.raises(BadInput):
        Samples((), iterations=1, tick_s=1e-9)


def test_a_sample_has_at_least_one_iteration():
    with pytest.raises(BadInput, match="iterations is 0; expected 1 or more"):
        Samples((1.0,), iterations=0, tick_s=1e-9)


def test_what_a_sample_says_of_its_taking_must_be_possible():
    for field, value in [("tick_s", -1e-9), ("warmup_s", -1.0), ("measuring_s", float("nan")), ("argument_sets", 0)]:
        with pytest.raises(BadInput):
            Samples((1.0,), **({"iterations": 1, "tick_s": 1e-9} | {field: value}))


@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_a_measurement_cannot_have_an_impossible_tolerance(make, value):
    with pytest.raises(BadInput):
        make.measurement(tolerance=value)


def test_a_roofline_is_a_finite_number_above_zero():
    for value in BAD_NUMBERS:
        with pytest.raises(BadInput):
            Ceiling("traffic_GBps", value, "datasheet", "vendor")


@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_the_median_of_a_process_must_be_a_finite_number_above_zero(make, value):
    with pytest.raises(BadInput, match=r"process_medians\[0\] is"):
        make.session(value)


def test_a_session_has_at_least_one_process():
    with pytest.raises(BadInput, match="process_medians is empty"):
        Session("run", "2026", ())


def test_median_of_an_even_count_is_the_mean_of_the_middle_pair(make):
    assert make.measurement(4.0, 1.0, 2.0, 3.0).median_s == 2.5


def test_rates_are_derived_from_the_work_and_the_median_time(make):
    measurement = make.measurement(1.0, work=Work(read_bytes=3 * 10**9, write_bytes=10**9, payload_bytes=10**9))
    assert (measurement.traffic_GBps, measurement.payload_GBps) == (4.0, 1.0)


def test_the_rates_of_a_collective_count_its_size_its_bus_and_its_wire(make):
    work = Work(algbw_bytes=10**9, busbw_bytes=15 * 10**8, wire_bytes=2 * 10**9)
    measurement = make.measurement(0.5, work=work)
    assert (measurement.algbw_GBps, measurement.busbw_GBps, measurement.wirebw_GBps) == (2.0, 3.0, 4.0)
    assert {"median_s", "algbw_GBps", "busbw_GBps", "wirebw_GBps"} == set(measurement.derived())


def test_a_whole_programs_time_gives_no_rate(make):
    work = Work(algbw_bytes=10**9, busbw_bytes=10**9)
    measurement = make.measurement(0.5, work=work, key=make.key(metric="job_wall_s"))
    assert {"median_s"} == set(measurement.derived())


def test_a_rate_of_what_was_not_worked_is_unknown():
    assert rate(Work(flops=1), "payload_GBps", 1.0) is None


def test_the_share_of_the_roofline_is_in_its_own_counting(make):
    ceiling = Ceiling("traffic_GBps", 8e9, "datasheet", "vendor")
    work = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)
    assert make.measurement(1.0, work=work, ceiling=ceiling).share_of_ceiling == 0.25


def test_the_share_of_an_unknown_roofline_is_unknown(make):
    assert make.measurement().share_of_ceiling is None


def test_unknown_figures_are_left_out_of_what_is_derived(make):
    assert {"median_s", "payload_GBps"} == set(make.measurement(work=Work(payload_bytes=1)).derived())


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("benchmark", "another"),
        ("parameters", {"size_bytes": 1}),
        ("metric", "payload_GBps"),
        ("hardware", HardwareKey("another")),
        ("cache", "flush"),
        ("timing", "wall"),
        ("name", "second"),
    ],
)
def test_every_part_of_a_key_tells_measurements_apart(make, field, other):
    key = make.key()
    assert key.identity != dataclasses.replace(key, **{field: other}).identity


def test_the_order_of_parameters_changes_no_identity(make):
    assert make.key(parameters={"a": 1, "b": 2}).identity == make.key(parameters={"b": 2, "a": 1}).identity


@pytest.mark.parametrize(
    ("parameters", "name", "label"),
    [
        ({}, "", "memcpy_d2d"),
        ({"size_bytes": 2**26}, "", "memcpy_d2d[64MiB]"),
        ({"memory": "pinned", "size_bytes": 4097}, "", "memcpy_d2d[pinned-4097B]"),
        ({"heads": 2**10}, "backward", "memcpy_d2d[1024].backward"),
    ],
)
def test_a_label_is_what_people_call_the_measurement(make, parameters, name, label):
    assert label == make.key(parameters=parameters, name=name).label


def test_hardware_left_open_covers_any(make):
    assert HardwareKey().covers(make.hardware())


ANOTHER = {"product": "another", "memory": "another", "partition": "another", "devices": 7, "link": "another"}


@pytest.mark.parametrize("field", ANOTHER)
def test_hardware_that_differs_in_one_fact_is_not_covered(make, field):
    assert not make.hardware().covers(make.hardware(**{field: ANOTHER[field]}))


@pytest.mark.parametrize("field", ANOTHER)
def test_a_fact_left_open_covers_every_value_of_it(make, field):
    assert make.hardware(**{field: None}).covers(make.hardware(**{field: ANOTHER[field]}))


@pytest.mark.parametrize("field", ["product", "memory", "partition", "devices", "link"])
def test_hardware_with_a_fact_left_open_is_not_complete(make, field):
    assert not make.hardware(**{field: None}).complete


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "h200-sxm, 141gb"),
        ({"partition": "1g.18gb"}, "h200-sxm, 141gb, 1g.18gb"),
        ({"devices": 8, "link": "nvlink"}, "h200-sxm, 141gb, nvlink, 8 devices"),
        ({"product": None, "memory": None}, "any product, any memory"),
    ],
)
def test_hardware_is_named_by_what_is_said_of_it(make, changes, text):
    assert text == str(make.hardware(**changes))


def test_a_measured_entry_matches_its_own_key(make):
    assert make.measured().matches(make.key())


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmark": "memcpy_h2d"},
        {"name": "second"},
        {"parameters": {"size_bytes": 2**26, "memory": "pinned"}},
        {"parameters": {}},
        {"metric": "triton_traffic_GBps"},
        {"hardware": HardwareKey("h200-sxm", "141gb", "none", 2, "none")},
        {"cache": "warm"},
        {"timing": "wall"},
    ],
)
def test_a_measured_entry_matches_no_other_key(make, changes):
    assert not make.measured().matches(make.key(**changes))


def test_a_threshold_that_leaves_everything_open_matches_any_size_cache_and_hardware(make):
    key = make.key(size_bytes=1, cache="flush", timing="wall", hardware=make.hardware(product="mi300x"))
    assert make.published().matches(key)


@pytest.mark.parametrize("metric", ["traffic_GBps", "triton_traffic_GBps"])
def test_a_threshold_applies_to_every_engine_of_its_counting(make, metric):
    assert make.published(metric="traffic_GBps").matches(make.key(metric=metric))


def test_a_threshold_of_one_engine_does_not_apply_to_another(make):
    assert not make.published(metric="triton_traffic_GBps").matches(make.key(metric="traffic_GBps"))


def test_a_threshold_in_another_counting_does_not_apply(make):
    assert not make.published(metric="payload_GBps").matches(make.key(metric="traffic_GBps"))


def test_a_threshold_on_time_applies_to_every_metric(make):
    assert make.published(metric="time_s", unit="s").matches(make.key(metric="triton_traffic_GBps"))


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"size_bytes": 1}},
        {"parameters": {"memory": "pinned"}},
        {"parameters": {"memory": None}},
        {"cache": "flush"},
        {"timing": "wall"},
        {"hardware": HardwareKey(product="h100")},
        {"name": "second"},
        {"benchmark": "memcpy"},
    ],
)
def test_a_threshold_does_not_apply_where_a_named_part_differs(make, changes):
    assert not make.published(**changes).matches(make.key())


def test_a_threshold_may_name_some_of_the_parameters(make):
    entry = make.published(parameters={"memory": "pinned"})
    assert entry.matches(make.key(parameters={"memory": "pinned", "size_bytes": 1}))


@pytest.mark.parametrize("confidence", ["high", "medium"])
def test_a_number_from_a_source_that_can_be_trusted_gates(make, confidence):
    assert make.published(confidence=confidence).gates


@pytest.mark.parametrize(
    "changes",
    [
        {"confidence": "low"},
        {"confidence": "recalled"},
        {"value": (90.0, 110.0)},
        {"value": OUT_OF_MEMORY},
        {"kind": "reference"},
    ],
)
def test_doubtful_figures_ranges_and_references_never_gate(make, changes):
    assert not make.published(**changes).gates


@pytest.mark.parametrize("value", [*BAD_NUMBERS, (1.0, float("nan")), (-1.0, 1.0)])
def test_a_published_value_must_be_finite_and_above_zero(make, value):
    with pytest.raises(BadInput, match=r"value\[\d\] is .*; expected a finite number above zero"):
        make.published(value=value)


def test_a_range_begins_with_its_smaller_end(make):
    with pytest.raises(BadInput, match="expected the smaller number first"):
        make.published(value=(2.0, 1.0))


@pytest.mark.parametrize("field", ["value", "unit", "convention", "source", "confidence"])
def test_a_published_figure_needs_its_whole_provenance(make, field):
    with pytest.raises(BadInput, match=f"a threshold entry lacks {field}"):
        make.published(**{field: None})


def test_a_published_figure_has_no_sessions(make):
    with pytest.raises(BadInput, match="a reference entry has sessions"):
        make.published("reference", sessions=(make.session(),))


def test_a_threshold_must_be_on_something_that_can_be_gated(make):
    with pytest.raises(BadInput, match="metric is 'GBps'; a threshold gates a rate"):
        make.published(metric="GBps")


@pytest.mark.parametrize("field", ["cache", "timing", "work"])
def test_a_measured_entry_names_how_it_was_measured(make, field):
    with pytest.raises(BadInput, match=f"a measured entry lacks {field}"):
        make.measured(**{field: None})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sessions": ()}, "a measured entry has no sessions"),
        ({"value": 1.0}, "a measured entry has a value"),
        ({"key": "open"}, "names its hardware only in part"),
    ],
)
def test_a_measured_entry_says_what_is_wrong_with_it(make, changes, sentence):
    if "key" in changes:
        changes = {"key": make.key(hardware=make.hardware(link=None))}
    with pytest.raises(BadInput, match=sentence):
        make.measured(**changes)


@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_the_tolerance_of_an_entry_must_be_a_share_above_zero(make, value):
    with pytest.raises(BadInput, match=r"expected a share above zero, such as 0\.05"):
        make.measured(tolerance=value)


def test_published_figures_from_different_sources_are_different_entries(make):
    one, other = make.published("reference", source="one"), make.published("reference", source="other")
    assert one.identity != other.identity


def test_a_measured_entry_is_the_same_one_whatever_its_source(make):
    assert make.measured(source="node 1").identity == make.measured(source="node 2").identity


def test_what_was_measured_is_no_part_of_an_entrys_identity(make):
    assert make.measured(1.0).identity == make.measured(2.0, tolerance=0.1).identity


def test_the_medians_of_an_entry_are_those_of_all_its_sessions(make):
    entry = make.measured(sessions=(make.session(1.0, 2.0), make.session(3.0, run_id="run-2")))
    assert entry.medians == (1.0, 2.0, 3.0)


def test_unknown_facts_are_left_out_of_what_is_compared(make):
    environment = make.environment(driver=None)
    assert environment.comparable() == {"kernel": "6.8", "torch": "2.13.0"}


@pytest.mark.parametrize(("metric", "unit"), [("time_s", "ms"), ("traffic_GBps", "GiB/s"), ("TFLOPS", "GB/s")])
def test_a_published_unit_that_contradicts_its_metric_is_refused(make, metric, unit):
    with pytest.raises(BadInput, match="unit is"):
        make.published(metric=metric, unit=unit)


@pytest.mark.parametrize("value", [1e-30, 1e30])
def test_a_time_that_no_machine_takes_is_refused(make, value):
    with pytest.raises(BadInput, match="expected something between"):
        make.session(value)


PEAK = Ceiling("bf16_TFLOPS", 4e12, "datasheet", "vendor")
STEP = Work(flops=2 * 10**12, tokens=1024)


def test_tokens_are_derived_per_second(make):
    assert make.measurement(0.5, work=STEP).derived()["tokens_per_s"] == 2048


def test_model_flops_utilization_is_the_share_of_the_dense_peak(make):
    measurement = make.measurement(1.0, key=make.key(metric="bf16_TFLOPS"), work=STEP, ceiling=PEAK)
    assert measurement.derived()["mfu"] == 0.5


def test_a_share_of_a_measured_product_is_not_called_model_flops_utilization_in_a_file(make):
    measured = dataclasses.replace(PEAK, source="measured")
    derived = make.measurement(1.0, key=make.key(metric="bf16_TFLOPS"), work=STEP, ceiling=measured).derived()
    assert ("mfu" in derived, derived["mfu_of_measured_product"]) == (False, 0.5)


@pytest.mark.parametrize(
    ("work", "ceiling"),
    [
        (Work(flops=10**12), PEAK),
        (STEP, None),
        (Work(flops=10**12, tokens=8, read_bytes=8), Ceiling("traffic_GBps", 8e9, "datasheet", "vendor")),
    ],
    ids=["no tokens", "no peak", "a roofline of bytes"],
)
def test_without_tokens_or_a_peak_of_arithmetic_there_is_no_model_flops_utilization(make, work, ceiling):
    assert "mfu" not in make.measurement(1.0, work=work, ceiling=ceiling).derived()


def test_a_time_below_the_clocks_resolution_gives_no_tokens_per_second(make):
    samples = Samples((1e-9,), 1, 1e-9, labels=("unresolved",))
    assert {"median_s"} == set(make.measurement(work=STEP, samples=samples).derived())


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_compiling_takes_no_impossible_time(make, seconds):
    with pytest.raises(BadInput, match="compile_s is "):
        make.measurement(1.0, compile_s=seconds)
