import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.work import RATE_SUFFIXES, RATE_UNITS, Work, rate_suffix

FIELDS = ("read_bytes", "write_bytes", "payload_bytes", "flops", "wire_bytes", "algbw_bytes", "busbw_bytes")


def test_an_amount_that_is_no_whole_number_is_refused():
    for field, amount in itertools.product(FIELDS, [1.0, "1", None, True, float("nan")]):
        with pytest.raises(BadInput) as error:
            Work(**{field: amount})
        assert str(error.value) == f"Work.{field} is {amount!r}; expected a whole number", (field, amount)


def test_a_negative_amount_is_refused():
    for field in FIELDS:
        with pytest.raises(BadInput) as error:
            Work(**{field: -1})
        assert str(error.value) == f"Work.{field} is -1; expected zero or more, and at most 2^63", field


def test_no_work_at_all_is_refused():
    for work in [{}, {"read_bytes": 0, "flops": 0}]:
        with pytest.raises(BadInput, match="Work is zero throughout; expected at least one of read_bytes"):
            Work(**work)


def test_one_amount_is_enough():
    for field in FIELDS:
        assert getattr(Work(**{field: 1}), field) == 1, field


def test_work_is_shown_as_a_collective_then_traffic_then_payload_then_wire_then_arithmetic():
    for work, metric in [
        (Work(read_bytes=1, payload_bytes=1, flops=1), "traffic_GBps"),
        (Work(write_bytes=1), "traffic_GBps"),
        (Work(payload_bytes=1, wire_bytes=1), "payload_GBps"),
        (Work(wire_bytes=1, flops=1), "wirebw_GBps"),
        (Work(flops=1), "TFLOPS"),
        (Work(algbw_bytes=4, busbw_bytes=6, wire_bytes=6), "busbw_GBps"),
        (Work(algbw_bytes=4, read_bytes=8), "algbw_GBps"),
    ]:
        assert metric == work.metric, (work, metric)


@given(st.builds(Work, *[st.integers(1, 2**50)] * 5))
def test_work_has_an_amount_of_its_own_metric(work):
    assert work.amount(work.metric) == work.read_bytes + work.write_bytes


def test_a_collective_has_each_of_its_countings():
    for metric, amount in [("algbw_GBps", 4), ("nccl_busbw_GBps", 6), ("wirebw_GBps", 5)]:
        assert amount == Work(algbw_bytes=4, busbw_bytes=6, wire_bytes=5).amount(metric), (metric, amount)


def test_the_size_is_what_people_call_it():
    for work, size_bytes in [
        (Work(algbw_bytes=4, busbw_bytes=6, wire_bytes=6), 4),
        (Work(read_bytes=16, write_bytes=8, payload_bytes=8), 8),
        (Work(read_bytes=16, write_bytes=8), 16),
        (Work(wire_bytes=3), 3),
        (Work(flops=9), 0),
    ]:
        assert size_bytes == work.size_bytes, (work, size_bytes)


def test_traffic_is_what_is_read_and_what_is_written():
    assert Work(read_bytes=3, write_bytes=4).amount("traffic_GBps") == 7


def test_operational_intensity_is_arithmetic_by_traffic():
    assert Work(read_bytes=2, write_bytes=2, flops=8).operational_intensity == 2.0


def test_operational_intensity_is_unknown_without_traffic():
    assert Work(flops=8).operational_intensity is None


def test_an_engine_before_the_convention_changes_no_amount():
    for metric in ["payload_GBps", "triton_payload_GBps"]:
        assert Work(payload_bytes=5, read_bytes=9).amount(metric) == 5, metric


def test_work_has_no_amount_of_what_it_does_not_count():
    for metric in ["traffic_GBps", "time_s", "peak_bytes", "mypayload_GBps", "payload_GBps_x", ""]:
        assert Work(payload_bytes=5).amount(metric) is None, metric


def test_a_metric_names_its_convention_at_its_end():
    for suffix in RATE_SUFFIXES:
        assert rate_suffix(f"triton_{suffix}") == suffix, suffix


def test_a_metric_without_a_convention_has_none():
    for metric in ["time_s", "xtraffic_GBps", "traffic_GBps2", ""]:
        assert rate_suffix(metric) is None, metric


def test_every_convention_has_a_unit():
    assert set(RATE_UNITS) == set(RATE_SUFFIXES)


def test_tokens_alone_are_no_work():
    with pytest.raises(BadInput, match="Work is zero throughout"):
        Work(tokens=5)


def test_tokens_are_counted_in_whole_numbers():
    for tokens in [1.5, True, -1]:
        with pytest.raises(BadInput, match=r"Work\.tokens is "):
            Work(flops=1, tokens=tokens)


def test_tokens_change_neither_metric_nor_size():
    work = Work(flops=8, tokens=5)
    assert (work.metric, work.size_bytes, work.amount("TFLOPS")) == ("TFLOPS", 0, 8)


def test_what_older_files_do_not_state_agrees_with_any():
    for mine, other, agrees in [
        (Work(flops=8, tokens=5), Work(flops=8, tokens=5), True),
        (Work(flops=8, tokens=5), Work(flops=8), True),
        (Work(flops=8), Work(flops=8), True),
        (Work(flops=8, tokens=5), Work(flops=8, tokens=6), False),
        (Work(flops=8, tokens=5), Work(flops=9), False),
        (Work(flops=8), Work(flops=8, read_bytes=1), False),
        # Run files of version 0.1 state bytes on the wire of some collectives.
        (Work(algbw_bytes=8, wire_bytes=12, tokens=5), Work(algbw_bytes=8), True),
        (Work(payload_bytes=8, wire_bytes=8), Work(payload_bytes=8), False),
    ]:
        assert agrees == mine.agrees(other) == other.agrees(mine), (mine, other, agrees)
