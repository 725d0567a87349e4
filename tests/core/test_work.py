import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.work import RATE_SUFFIXES, RATE_UNITS, Work, rate_suffix

FIELDS = ("read_bytes", "write_bytes", "payload_bytes", "flops", "wire_bytes", "algbw_bytes", "busbw_bytes")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("amount", [1.0, "1", None, True, float("nan")])
def test_an_amount_that_is_no_whole_number_is_refused(field, amount):
    with pytest.raises(BadInput) as error:
        Work(**{field: amount})
    assert str(error.value) == f"Work.{field} is {amount!r}; expected a whole number"


@pytest.mark.parametrize("field", FIELDS)
def test_a_negative_amount_is_refused(field):
    with pytest.raises(BadInput) as error:
        Work(**{field: -1})
    assert str(error.value) == f"Work.{field} is -1; expected zero or more, and at most 2^63"


@pytest.mark.parametrize("work", [{}, {"read_bytes": 0, "flops": 0}])
def test_no_work_at_all_is_refused(work):
    with pytest.raises(BadInput, match="Work is zero throughout; expected at least one of read_bytes"):
        Work(**work)


@pytest.mark.parametrize("field", FIELDS)
def test_one_amount_is_enough(field):
    assert getattr(Work(**{field: 1}), field) == 1


@pytest.mark.parametrize(
    ("work", "metric"),
    [
        (Work(read_bytes=1, payload_bytes=1, flops=1), "traffic_GBps"),
        (Work(write_bytes=1), "traffic_GBps"),
        (Work(payload_bytes=1, wire_bytes=1), "payload_GBps"),
        (Work(wire_bytes=1, flops=1), "wirebw_GBps"),
        (Work(flops=1), "TFLOPS"),
        (Work(algbw_bytes=4, busbw_bytes=6, wire_bytes=6), "busbw_GBps"),
        (Work(algbw_bytes=4, read_bytes=8), "algbw_GBps"),
    ],
)
def test_work_is_shown_as_a_collective_then_traffic_then_payload_then_wire_then_arithmetic(work, metric):
    assert metric == work.metric


@given(st.builds(Work, *[st.integers(1, 2**50)] * 5))
def test_work_has_an_amount_of_its_own_metric(work):
    assert work.amount(work.metric) == work.read_bytes + work.write_bytes


@pytest.mark.parametrize(("metric", "amount"), [("algbw_GBps", 4), ("nccl_busbw_GBps", 6), ("wirebw_GBps", 5)])
def test_a_collective_has_each_of_its_countings(metric, amount):
    assert amount == Work(algbw_bytes=4, busbw_bytes=6, wire_bytes=5).amount(metric)


@pytest.mark.parametrize(
    ("work", "size_bytes"),
    [
        (Work(algbw_bytes=4, busbw_bytes=6, wire_bytes=6), 4),
        (Work(read_bytes=16, write_bytes=8, payload_bytes=8), 8),
        (Work(read_bytes=16, write_bytes=8), 16),
        (Work(wire_bytes=3), 3),
        (Work(flops=9), 0),
    ],
)
def test_the_size_is_what_people_call_it(work, size_bytes):
    assert size_bytes == work.size_bytes


def test_traffic_is_what_is_read_and_what_is_written():
    assert Work(read_bytes=3, write_bytes=4).amount("traffic_GBps") == 7


def test_operational_intensity_is_arithmetic_by_traffic():
    assert Work(read_bytes=2, write_bytes=2, flops=8).operational_intensity == 2.0


def test_operational_intensity_is_unknown_without_traffic():
    assert Work(flops=8).operational_intensity is None


@pytest.mark.parametrize("metric", ["payload_GBps", "triton_payload_GBps"])
def test_an_engine_before_the_convention_changes_no_amount(metric):
    assert Work(payload_bytes=5, read_bytes=9).amount(metric) == 5


@pytest.mark.parametrize("metric", ["traffic_GBps", "time_s", "peak_bytes", "mypayload_GBps", "payload_GBps_x", ""])
def test_work_has_no_amount_of_what_it_does_not_count(metric):
    assert Work(payload_bytes=5).amount(metric) is None


@pytest.mark.parametrize("suffix", RATE_SUFFIXES)
def test_a_metric_names_its_convention_at_its_end(suffix):
    assert rate_suffix(f"triton_{suffix}") == suffix


@pytest.mark.parametrize("metric", ["time_s", "xtraffic_GBps", "traffic_GBps2", ""])
def test_a_metric_without_a_convention_has_none(metric):
    assert rate_suffix(metric) is None


def test_every_convention_has_a_unit():
    assert set(RATE_UNITS) == set(RATE_SUFFIXES)


def test_tokens_alone_are_no_work():
    with pytest.raises(BadInput, match="Work is zero throughout"):
        Work(tokens=5)


@pytest.mark.parametrize("tokens", [1.5, True, -1])
def test_tokens_are_counted_in_whole_numbers(tokens):
    with pytest.raises(BadInput, match=r"Work\.tokens is "):
        Work(flops=1, tokens=tokens)


def test_tokens_change_neither_metric_nor_size():
    work = Work(flops=8, tokens=5)
    assert (work.metric, work.size_bytes, work.amount("TFLOPS")) == ("TFLOPS", 0, 8)


@pytest.mark.parametrize(
    ("mine", "other", "agrees"),
    [
        (Work(flops=8, tokens=5), Work(flops=8, tokens=5), True),
        (Work(flops=8, tokens=5), Work(flops=8), True),
        (Work(flops=8), Work(flops=8), True),
        (Work(flops=8, tokens=5), Work(flops=8, tokens=6), False),
        (Work(flops=8, tokens=5), Work(flops=9), False),
        (Work(flops=8), Work(flops=8, read_bytes=1), False),
        # Run files of version 0.1 state bytes on the wire of some collectives.
        (Work(algbw_bytes=8, wire_bytes=12, tokens=5), Work(algbw_bytes=8), True),
        (Work(payload_bytes=8, wire_bytes=8), Work(payload_bytes=8), False),
    ],
)
def test_what_older_files_do_not_state_agrees_with_any(mine, other, agrees):
    assert agrees == mine.agrees(other) == other.agrees(mine)
