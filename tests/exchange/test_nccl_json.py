"""JSON of nccl-tests and of rccl-tests."""

import json

import pytest

from pytest_roofline.core.errors import BadFile

FIRST = "nccl_tests.all_reduce[8GiB-fp32-sum-out_of_place].mean"


def changed(text, *path, to):
    """A JSON text with one value replaced; without it where `to` is `...`."""
    raw = json.loads(text)
    at = raw
    for part in path[:-1]:
        at = at[part]
    if to is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return json.dumps(raw, indent=1)


def test_a_file_says_the_same_as_the_log_of_the_same_run(nccl_json, text, one, take):
    from_log = one(text("a100-all_reduce.log"))[FIRST]
    (found,) = take(nccl_json())
    reading = found.readings[0]
    assert (reading.label, reading.seconds, reading.work) == (FIRST, from_log.seconds, from_log.work)
    assert (reading.timing, reading.iterations, reading.devices) == ("pipelined", 20, 8)
    assert (found.product, found.host, found.started) == ("NVIDIA A100-SXM4-80GB", "dgx", "2026-01-02T10:11:12")
    assert found.software == {"NCCL": "22809"}


def test_the_environment_of_a_file_is_not_kept(nccl_json, take):
    assert "HOME" not in repr(take(nccl_json()))


def test_a_reading_knows_where_it_stands(nccl_json, take):
    (found,) = take(nccl_json())
    assert [reading.where for reading in found.readings] == ["results[0].out_of_place", "results[0].in_place"]


@pytest.mark.parametrize(("wrong", "verified"), [(0.0, True), (None, None), (3.0, False)])
def test_the_check_of_the_tool_is_kept(wrong, verified, nccl_json, one):
    reading = one(nccl_json(wrong=wrong))[FIRST]
    assert (reading.verified, bool(reading.invalid)) == (verified, wrong == 3.0)


@pytest.mark.parametrize(("value", "extra"), [("3", {"over_ranks": "max"}), ("1", {})])
def test_what_was_made_of_the_ranks_is_in_the_key(value, extra, nccl_json, one):
    text = changed(nccl_json(), "args", to=["all_reduce_perf", "-a", value])
    plain = {"size_bytes": 8 * 2**30, "dtype": "fp32", "redop": "sum", "place": "in_place"}
    assert plain | extra in [reading.parameters for reading in one(text).values()]


def test_an_error_of_the_test_spoils_its_numbers(nccl_json, one):
    assert one(nccl_json(errors=["unhandled cuda error"]))[FIRST].invalid == (
        "the test ended with the error 'unhandled cuda error'"
    )


HALF = ("results", 0, "out_of_place")
REFUSED = (
    (("version",), 4, "Invalid enum value 4 - at `$.version`"),
    ((*HALF, "alg_bw"), 234.5, "results[0].out_of_place: algbw is 234.5 GB/s, but size by time are 134.436"),
    ((*HALF, "bus_bw"), 134.4, "results[0].out_of_place: busbw is 134.4 GB/s; expected 1.75 times"),
    ((*HALF, "time"), -1.0, "Expected `float` >= 0.0 - at `$.results[0].out_of_place.time`"),
    ((*HALF, "time"), "nan", "Expected `float`, got `str` - at `$.results[0].out_of_place.time`"),
    ((*HALF, "time"), ..., "missing required field `time`"),
    ((*HALF, "cpu_time"), 1.0, "time of the CPU (-C 1) says nothing"),
    (("results", 0, "size"), 8589934593, "results[0].out_of_place: 2147483648 elements of float"),
    (("results", 0, "size"), 8.5, "Expected `int`, got `float`"),
    (("results", 0), 17, "Expected `object`, got `int`"),
    (("results",), [], "length >= 1"),
    (("config", "devices"), [], "length >= 1"),
    (("config", "devices", 3, "device_info"), "Tesla T4", "expected one product"),
    (("results", 0, "root"), "top", "results[0].root is 'top'; expected a rank, or -1"),
    (("results", 0, "root"), "0", "root 0 for all_reduce"),
    (("args",), ["all_reduce_perf", "-a", "7"], "args have -a '7'; expected one of"),
)


def test_what_is_no_file_of_nccl_tests_is_refused_with_the_path_of_the_value(nccl_json, take):
    for path, to, message in REFUSED:
        with pytest.raises(BadFile) as refused:
            take(changed(nccl_json(), *path, to=to), "nccl-tests-json")
        assert message in str(refused.value), path
        assert str(refused.value).startswith("file")
    for cut, message in (
        (lambda text: text[:-40], "is not JSON"),
        (lambda text: text.replace("63896.0", "NaN"), "holds NaN, which is no number"),
        (lambda text: text.replace("8589934592", "9" * 60), "holds a whole number of 60 digits"),
        (lambda text: text.replace('"size"', '"count"'), "gives 'count' twice in one object"),
        (lambda text: text + text, "is not JSON: Extra data"),
    ):
        with pytest.raises(BadFile, match=message):
            take(cut(nccl_json()))


def test_a_program_that_nobody_knows_is_told_by_its_rows_or_by_the_user(nccl_json, one):
    text = changed(nccl_json(), "args", to=["./a.out"])
    assert FIRST in one(text)
    assert FIRST in one(text, operation="all_reduce")


def test_records_of_rccl_tests_are_read_from_a_list_and_from_lines(rccl_json, one, text):
    log = one(text("mi300x-all_reduce.log"))
    label = "rccl_tests.all_reduce[128MiB-fp32-sum-out_of_place].mean"
    for form in ("[\n%s\n]\n", "%s\n"):
        separator = ",\n" if form.startswith("[") else "\n"
        readings = one(form % separator.join(rccl_json()))
        assert (readings[label].seconds, readings[label].work) == (log[label].seconds, log[label].work)
        assert len(readings) == 2


def test_what_is_no_record_of_rccl_tests_is_refused(rccl_json, take):
    for change, message in (
        ({"busBw": 1.0}, "records[0]: busbw is 1 GB/s"),
        ({"gpusPerRank": 2}, "Invalid enum value 2 - at `$.records[0].gpusPerRank`"),
        ({"ranksPerNode": 4}, "records[0]: 8 ranks; expected nodes times ranksPerNode"),
        ({"name": "AllSort"}, "'AllSort' is no test that this importer knows"),
        ({"inPlace": 2}, "Invalid enum value 2"),
        ({"wrong": "few"}, "records[0]: wrong is 'few'; expected a count, or N/A"),
        ({"redop": "none"}, "records[0]: reduction 'none' for all_reduce; expected one"),
    ):
        with pytest.raises(BadFile) as refused:
            take("\n".join(rccl_json(**change)) + "\n")
        assert message in str(refused.value)


def test_the_check_of_rccl_tests_is_kept(rccl_json, one):
    for wrong, verified in (("0", True), ("N/A", None), ("4", False)):
        assert {reading.verified for reading in one("\n".join(rccl_json(wrong=wrong))).values()} == {verified}
