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


def test_a_reading_knows_its_line(nccl_json, take):
    lines = nccl_json().split("\n")
    (found,) = take(nccl_json())
    assert [
        '"out_of_place"' in lines[found.readings[0].line - 1],
        '"in_place"' in lines[found.readings[1].line - 1],
    ] == [
        True,
        True,
    ]


@pytest.mark.parametrize(("wrong", "verified"), [(0.0, True), (None, None), (3.0, False)])
def test_the_check_of_the_tool_is_kept(wrong, verified, nccl_json, one):
    reading = one(nccl_json(wrong=wrong))[FIRST]
    assert (reading.verified, bool(reading.invalid)) == (verified, wrong == 3.0)


def test_an_early_version_spells_bandwidth_otherwise(nccl_json, one):
    text = nccl_json().replace("average_bus_bandwidth", "average_bus_bandwidith")
    assert FIRST in one(text.replace('"bandwidth"', '"bandwidith"'))


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
REFUSED = {
    "another version": (("version",), 4, "version is 4; this importer knows 1, 2, 3"),
    "an unknown name": (("verdict",), "fine", "verdict is not a name that this importer understands"),
    "an unknown name in a row": (("results", 0, "speed"), 1, "results.0.speed is not a name that this importer"),
    "another bandwidth": ((*HALF, "alg_bw"), 134.5, "results.0.out_of_place contradicts itself: algbw is 134.5"),
    "another bus bandwidth": ((*HALF, "bus_bw"), 235.3, "contradicts itself: busbw is 235.3"),
    "another time": ((*HALF, "time"), 63897.0, "contradicts itself: algbw is 134.436 GB/s out_of_place"),
    "a negative time": ((*HALF, "time"), -1.0, "results.0.out_of_place.time is -1.0; expected 0 or more"),
    "time as text": ((*HALF, "time"), "nan", "results.0.out_of_place.time is the text 'nan'; expected a number"),
    "no time": ((*HALF, "time"), ..., "results.0.out_of_place has no 'time'"),
    "time of the CPU": ((*HALF, "cpu_time"), 1.0, "cpu_time is time of the CPU"),
    "another size": (("results", 0, "size"), 8589934593, "results.0.size does not fit: 2147483648 elements of float"),
    "a size that is a fraction": (("results", 0, "size"), 8.5, "results.0.size is the number 8.5; expected a whole"),
    "a row that is none": (("results", 0), 17, "results.0 is the number 17; expected an object"),
    "no rows": (("results",), [], "results holds no row"),
    "rows that are none": (("results",), {}, "results is an object; expected a list"),
    "no devices": (("config", "devices"), [], "config.devices is empty; expected a device a rank"),
    "two products": (("config", "devices", 3, "device_info"), "Tesla T4", "is another product than the first"),
    "another average": (("average_bus_bandwidth", "bandwidth"), 1.0, "bandwidth is 1, but the 2 rows have a mean of"),
    "no average": (("average_bus_bandwidth",), ..., "the file has no 'average_bus_bandwidth'"),
    "another program": (("args",), ["./a.out"], "args name no test that this importer knows"),
    "a root that is none": (("results", 0, "root"), "top", "results.0.root is 'top'; expected a rank, or -1"),
    "a root for all": (("results", 0, "root"), "0", "root 0 for all_reduce; expected -1"),
    "an average that is none": (("args",), ["all_reduce_perf", "-a", "7"], "args have -a '7'; expected one of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mutilated_file_is_refused_with_its_line(case, nccl_json, take):
    path, to, message = REFUSED[case]
    text = changed(nccl_json(), *path, to=to)
    with pytest.raises(BadFile) as refused:
        take(text, "nccl-tests-json")
    told = str(refused.value)
    assert message in told
    number = int(told.split("line ")[1].split(":")[0])
    assert repr(text.split("\n")[number - 1].strip()[:40]).strip("'\"")[:20] in told.replace("\\", "")


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda text: text[:-40], "is not JSON"),
        (lambda text: text.replace("63896.0", "NaN"), "holds NaN, which is no number"),
        (lambda text: text.replace("63896.0", "1e999"), "holds 1e999, which is no number"),
        (lambda text: text.replace("8589934592", "9" * 60), "holds a whole number of 60 digits"),
        (lambda text: text.replace('"size"', '"count"'), "gives 'count' twice in one object"),
        (lambda text: text + text, "is not JSON: Extra data"),
    ],
)
def test_what_is_no_json_is_refused(cut, message, nccl_json, take):
    with pytest.raises(BadFile, match=message) as refused:
        take(cut(nccl_json()))
    assert str(refused.value).startswith("file, line ")


@pytest.mark.parametrize("form", ["[\n%s\n]\n", "%s\n"])
def test_records_of_rccl_tests_are_read_from_a_list_and_from_lines(form, rccl_json, one, text):
    separator = ",\n" if form.startswith("[") else "\n"
    readings = one(form % separator.join(rccl_json()))
    log = one(text("mi300x-all_reduce.log"))
    label = "rccl_tests.all_reduce[128MiB-fp32-sum-out_of_place].mean"
    assert (readings[label].seconds, readings[label].work) == (log[label].seconds, log[label].work)
    assert len(readings) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"busBw": 1.0}, "line 1: 0.time contradicts the rest: busbw is 1 GB/s out_of_place"),
        ({"gpusPerRank": 2}, "line 1: 0.gpusPerRank is 2; this importer knows one GPU a rank"),
        ({"ranksPerNode": 4}, "line 1: 0.ranks is 8; expected nodes times ranksPerNode"),
        ({"name": "AllSort"}, "line 1: 0.name is 'AllSort'; expected a collective"),
        ({"inPlace": 2}, "line 1: 0.inPlace is 2; expected 0 or 1"),
        ({"wrong": "few"}, "line 1: 0.wrong is 'few'; expected a count, or N/A"),
        ({"fast": True}, "line 1: 0.fast is not a name that this importer understands"),
        ({"redop": "none"}, "line 1: 0.size does not fit: reduction 'none' for all_reduce; expected one"),
    ],
)
def test_a_mutilated_record_is_refused_with_its_line(change, message, rccl_json, take):
    with pytest.raises(BadFile) as refused:
        take("\n".join(rccl_json(**change)) + "\n")
    assert message in str(refused.value)


@pytest.mark.parametrize(("wrong", "verified"), [("0", True), ("N/A", None), ("4", False)])
def test_the_check_of_rccl_tests_is_kept(wrong, verified, rccl_json, one):
    assert {reading.verified for reading in one("\n".join(rccl_json(wrong=wrong))).values()} == {verified}
