"""JSON of nvbandwidth."""

import json

import pytest

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.records import rate


@pytest.fixture(scope="module")
def write():
    """A file with one test case, by `json_output.cpp`."""

    def write(matrix, description, name="host_to_device_memcpy_ce", total=None, top=None, **changes):
        numbers = [float(value) for row in matrix for value in row if value != "N/A"]
        changes.pop("sum", None)
        case = {"name": name, "status": "Passed", "bandwidth_description": description, "bandwidth_matrix": matrix}
        case |= {"sum": sum(numbers) if total is None else total}
        listed = ["0: NVIDIA H100 80GB HBM3 (00000000:19:00): (node1)", "1: NVIDIA H100 80GB HBM3 (00000000:3b:00)"]
        top = {"version": "v0.8", "Driver Version": "570.86", "GPU Device list": listed} | (top or {})
        return json.dumps({"nvbandwidth": top | {"testcases": [case | changes]}}, indent=1)

    return write


def test_rates_of_stored_bytes_and_seconds_are_what_the_tool_printed(text, take):
    (found,) = take(text("readme-nvbandwidth.json"))
    readings = {reading.label: reading for reading in found.readings}
    pair = readings["nvbandwidth.device_to_device_memcpy_write_ce[gpu6<-gpu3].median_or_mean"]
    assert rate(pair.work, pair.metric, pair.seconds[0]) == pytest.approx(276.67e9)
    host = readings["nvbandwidth.host_to_device_memcpy_ce[cpu0->gpu4].median_or_mean"]
    assert rate(host.work, host.metric, host.seconds[0]) == pytest.approx(26.19e9)
    assert [(r.devices, r.metric, r.mode, r.timing) for r in (pair, host)] == [
        (2, "ce_payload_GBps", "events", "device"),
        (1, "ce_payload_GBps", "events", "device"),
    ]
    assert (found.product, found.driver, found.host) == ("NVIDIA A100-SXM4-80GB", "550.54.15", "dgx")
    assert len(readings) == 8 + 56


def test_a_device_beside_itself_is_no_pair(text, one):
    labels = one(text("readme-nvbandwidth.json")).keys() | one(text("a6000-nvbandwidth.json")).keys()
    assert not [
        label for label in labels if any(f"gpu{n}<-gpu{n}" in label or f"gpu{n}->gpu{n}" in label for n in range(8))
    ]


def test_what_was_waived_is_left_out_by_name(text, take):
    (found,) = take(text("readme-nvbandwidth.json"))
    assert found.left_out == ("host_device_latency_sm: waived by nvbandwidth, so it was not measured",)


def test_a_list_of_devices_that_is_null_tells_no_product(text, take):
    assert take(text("a6000-nvbandwidth.json"))[0].product is None


def test_latencies_are_seconds_and_have_no_rate(write, one):
    # `memory latency SM CPU(row) <-> GPU(column) (ns)`: testcases_sm.cpp.
    text = write([["772.58", "772.96"]], "memory latency SM CPU(row) <-> GPU(column) (ns)", "host_device_latency_sm")
    reading = one(text)["nvbandwidth.host_device_latency_sm[cpu0<->gpu1].median_or_mean"]
    assert (reading.metric, reading.seconds) == ("time_s", (pytest.approx(772.96e-9),))
    assert rate(reading.work, reading.metric, reading.seconds[0]) is None


def test_both_directions_of_a_bidirectional_copy_and_their_sum_stand_apart(write, one):
    matrix = [
        ["N/A", "180.5"],
        ["181.5", "N/A"],
        ["N/A", "182.5"],
        ["183.5", "N/A"],
        ["N/A", "360.5"],
        ["361.5", "N/A"],
    ]
    readings = one(
        write(
            matrix,
            "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
            "device_to_device_bidirectional_memcpy_read_ce",
            total=722.0,
        )
    )
    found = {reading.parameters["direction"]: reading.metric for reading in readings.values()}
    assert found == {
        "1": "bidir_per_dir_ce_payload_GBps",
        "2": "bidir_per_dir_ce_payload_GBps",
        "sum": "bidir_sum_ce_payload_GBps",
    }
    assert len(readings) == 6


def test_of_one_device_with_all_others_there_is_no_pair(write, one):
    text = write([["2666.5", "2667.5"]], "memcpy SM GPU(row) <- GPU(column) bandwidth (GB/s)", "all_to_one_write_sm")
    reading = one(text)["nvbandwidth.all_to_one_write_sm[gpu1].median_or_mean"]
    assert (reading.metric, reading.devices) == ("sm_payload_GBps", 2)


def test_a_copy_within_a_device_counts_its_payload_once(write, one):
    reading = one(write([["1500.5", "1501"]], "memcpy local GPU(column) bandwidth (GB/s)", "device_local_copy"))[
        "nvbandwidth.device_local_copy[gpu0].median_or_mean"
    ]
    assert (reading.metric, reading.devices, reading.work.traffic_bytes) == ("ce_payload_GBps", 1, 0)


@pytest.mark.parametrize(
    ("told", "statistic"), [({}, "median_or_mean"), ({"useMean": True}, "mean"), ({"useMean": False}, "median")]
)
def test_the_statistic_is_named_as_far_as_the_file_tells(told, statistic, write, one):
    text = write([["26.03"]], "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", top=told)
    assert {reading.statistic for reading in one(text).values()} == {statistic}


def test_a_size_that_the_file_tells_is_in_the_key(write, one):
    text = write([["26.03"]], "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", top={"bufferSize": 512})
    assert next(iter(one(text).values())).parameters == {"pair": "cpu0->gpu0", "size_bytes": 2**29}


def test_a_test_case_that_failed_is_told(write, take):
    text = write([["1"]], "", status="Error", error="CUDA_ERROR_LAUNCH_FAILED", bandwidth_matrix=None)
    assert take(text)[0].failed == (("nvbandwidth.host_to_device_memcpy_ce", "CUDA_ERROR_LAUNCH_FAILED"),)


def test_a_warning_of_the_tool_is_told(write, take):
    text = write([["1"]], "memcpy local GPU(column) bandwidth (GB/s)", top={"warning": "NOTE: a small buffer"})
    assert take(text)[0].notes == ("NOTE: a small buffer",)


H2D = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"
ONE = {"matrix": [["26.03"]]}
REFUSED = (
    (ONE | {"bandwidth_matrix": [["fast"]]}, "'fast' is not a number, zero or more in the matrix of host_to_device_"),
    (ONE | {"bandwidth_matrix": [["-26.03"]]}, "'-26.03' is not a number"),
    (ONE | {"bandwidth_matrix": [["nan"]]}, "'nan' is not a number"),
    (ONE | {"bandwidth_matrix": [[26.03]]}, "Expected `str`, got `float`"),
    ({"matrix": [["1", "2"], ["3"]]}, "the matrix of host_to_device_memcpy_ce has rows of several lengths, or none"),
    ({"matrix": []}, "rows of several lengths, or none"),
    (ONE | {"bandwidth_description": H2D.replace("GB", "GiB")}, "is no description that this importer knows"),
    (ONE | {"status": "Running"}, "has status 'Running'; expected Passed, Waived or Error"),
    (ONE | {"top": {"error": "no GPU"}}, "the run ended with 'no GPU'"),
    (ONE | {"top": {"GPU Device list": ["0: NVIDIA H200 (1:2:3)", "1: Tesla T4 (1:2:4)"]}}, "expected one product"),
    (ONE | {"top": {"GPU Device list": ["H200"]}}, "expected one product"),
    (
        {"matrix": [["1"]], "bandwidth_description": H2D.replace("->", "<->").replace("band", "Read1 band")},
        "is not the three that its description tells of",
    ),
)


def test_what_is_no_file_of_nvbandwidth_is_refused(write, take):
    for changes, message in REFUSED:
        with pytest.raises(BadFile) as refused:
            take(write(**({"description": H2D} | changes)))
        assert message in str(refused.value), changes
        assert str(refused.value).startswith("file")
