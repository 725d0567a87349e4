"""Files of nvbandwidth and BabelStream; every file is read as its own format and as no other."""

import json
from dataclasses import replace

import pytest

from pytest_roofline.core.directions import TOOLS, is_of_tool
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.records import rate
from pytest_roofline.core.work import Work
from pytest_roofline.exchange.formats import FORMATS

N = 2**28


@pytest.fixture(scope="module")
def write():
    """A file with one test case, by `json_output.cpp`."""

    def write(matrix, description, name="host_to_device_memcpy_ce", top=None, **changes):
        case = {
            "name": name,
            "status": "Passed",
            "bandwidth_description": description,
            "bandwidth_matrix": matrix,
        }
        listed = [
            "0: NVIDIA H100 80GB HBM3 (00000000:19:00): (node1)",
            "1: NVIDIA H100 80GB HBM3 (00000000:3b:00)",
        ]
        top = {"version": "v0.8", "Driver Version": "570.86", "GPU Device list": listed} | (
            top or {}
        )
        return json.dumps({"nvbandwidth": top | {"testcases": [case | changes]}}, indent=1)

    return write


def test_rates_of_nvbandwidth_are_what_it_printed(text, take):
    (found,) = take(text("readme-nvbandwidth.json"))
    readings = {reading.label: reading for reading in found.readings}
    pair = readings["nvbandwidth.device_to_device_memcpy_write_ce[3-6].median_or_mean"]
    assert rate(pair.work, pair.key.metric, pair.seconds[0]) == pytest.approx(276.67e9)
    host = readings["nvbandwidth.host_to_device_memcpy_ce[cpu0-4].median_or_mean"]
    assert rate(host.work, host.key.metric, host.seconds[0]) == pytest.approx(26.19e9)
    assert [(r.devices, r.key.metric, r.mode, r.key.timing) for r in (pair, host)] == [
        (2, "ce_payload_GBps", "events", "device"),
        (1, "ce_payload_GBps", "events", "device"),
    ]
    assert (found.machine.product, found.machine.driver, found.machine.host) == (
        "NVIDIA A100-SXM4-80GB",
        "550.54.15",
        "dgx",
    )
    # A device beside itself is no pair.
    assert len(readings) == 8 + 56
    assert found.left_out == (
        "host_device_latency_sm: waived by nvbandwidth, so it was not measured",
    )
    assert take(text("a6000-nvbandwidth.json"))[0].machine.product is None


H2D = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"


def test_what_a_case_of_nvbandwidth_measures_is_in_its_key(write, one, take):
    cases = [
        # `memory latency SM CPU(row) <-> GPU(column) (ns)`: testcases_sm.cpp.
        (([["772.58", "772.96"]], "memory latency SM CPU(row) <-> GPU(column) (ns)", "host_device_latency_sm"), {},
         "host_device_latency_sm[cpu0-1].median_or_mean", ("time_s", 1, pytest.approx(772.96e-9))),
        (([["2666.5", "2667.5"]], "memcpy SM GPU(row) <- GPU(column) bandwidth (GB/s)", "all_to_one_write_sm"), {},
         "all_to_one_write_sm[1].median_or_mean", ("sm_payload_GBps", 2, pytest.approx(1 / 2667.5))),
        (([["1500.5", "1501"]], "memcpy local GPU(column) bandwidth (GB/s)", "device_local_copy"), {},
         "device_local_copy[0].median_or_mean", ("ce_payload_GBps", 1, pytest.approx(1 / 1500.5))),
        (([["26.03"]], H2D), {"useMean": True}, "host_to_device_memcpy_ce[cpu0-0].mean",
         ("ce_payload_GBps", 1, pytest.approx(1 / 26.03))),
        (([["26.03"]], H2D), {"useMean": False, "bufferSize": 512},
         "host_to_device_memcpy_ce[cpu0-0-512MiB].median", ("ce_payload_GBps", 1, pytest.approx(1 / 26.03))),
    ]  # fmt: skip
    for case, top, label, expected in cases:
        reading = one(write(*case, top=top))[f"nvbandwidth.{label}"]
        assert (reading.key.metric, reading.devices, reading.seconds[0]) == expected, label
    failed = write(
        [["1"]], "", status="Error", error="CUDA_ERROR_LAUNCH_FAILED", bandwidth_matrix=None
    )
    assert take(failed)[0].failed == (
        ("nvbandwidth.host_to_device_memcpy_ce", "CUDA_ERROR_LAUNCH_FAILED"),
    )
    assert take(write([["1"]], H2D, top={"warning": "NOTE: small"}))[0].notes[0] == "NOTE: small"


def test_a_blank_behind_the_description_of_a_case_is_no_part_of_it(write, one):
    # Version 0.5 prints one behind the unit.
    assert one(write([["26.03"]], f"{H2D} ")) == one(write([["26.03"]], H2D))


def test_lines_of_the_job_around_the_json_of_nvbandwidth_are_skipped_and_counted(write, one, take):
    plain = write([["26.03"]], H2D)
    before = "WARNING: Failed to acquire the lock {of the log}\n\nLoading modules: [cuda]\n"
    after = "\nWARNING: another instance runs {{}}}\n"
    for head, tail, skipped in (
        (before, after, "3 lines"),
        (before, "", "2 lines"),
        ("", after, "1 line"),
    ):
        (entry,) = take(head + plain + tail)
        assert list(entry.readings) == list(one(plain).values()), skipped
        assert entry.notes[-1] == f"skipped {skipped} around the JSON"
    with pytest.raises(BadFile, match=r"file is not JSON: .* in line 5"):
        take(before + plain.replace('"nvbandwidth":', '"nvbandwidth"') + after, "nvbandwidth")
    with pytest.raises(BadFile, match="file is not JSON"):
        take(before + plain[: plain.index("bandwidth_matrix")] + after)


def test_both_directions_of_a_bidirectional_copy_and_their_sum_stand_apart(write, one):
    pairs = ((180.5, 181.5), (182.5, 183.5), (360.5, 361.5))
    matrix = [row for first, second in pairs for row in (["N/A", str(first)], [str(second), "N/A"])]
    text = "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)"
    readings = one(write(matrix, text, "device_to_device_bidirectional_memcpy_read_ce"))
    each, total = "bidir_per_dir_ce_payload_GBps", "bidir_sum_ce_payload_GBps"
    found = {
        reading.key.parameters["direction"]: reading.key.metric for reading in readings.values()
    }
    assert (found, len(readings)) == ({"1": each, "2": each, "sum": total}, 6)


ONE = {"matrix": [["26.03"]]}
REFUSED = (
    (
        ONE | {"bandwidth_matrix": [["fast"]]},
        "'fast' is not a number, zero or more in the matrix of host_to_device_",
    ),
    (ONE | {"bandwidth_matrix": [[26.03]]}, "Expected `str`, got `float`"),
    (
        {"matrix": [["1", "2"], ["3"]]},
        "the matrix of host_to_device_memcpy_ce has rows of several lengths, or none",
    ),
    (
        ONE | {"bandwidth_description": H2D.replace("GB", "GiB")},
        "unknown description 'memcpy CE CPU(row) -> GPU(column) b",
    ),
    (ONE | {"status": "Running"}, "has status 'Running'; expected Passed, Waived or Error"),
    (ONE | {"top": {"error": "no GPU"}}, "the run ended with 'no GPU'"),
    (
        ONE | {"top": {"GPU Device list": ["0: NVIDIA H200 (1:2:3)", "1: Tesla T4 (1:2:4)"]}},
        "expected one product",
    ),
    (
        {
            "matrix": [["1"]],
            "bandwidth_description": H2D.replace("->", "<->").replace("band", "Read1 band"),
        },
        "does not have the three rows of its description",
    ),
)


def test_what_is_no_file_of_nvbandwidth_is_refused(write, take):
    for changes, message in REFUSED:
        with pytest.raises(BadFile) as refused:
            take(write(**({"description": H2D} | changes)))
        assert message in str(refused.value), changes
        assert str(refused.value).startswith("file")


def test_the_text_of_nvbandwidth_is_what_its_json_would_be(text, take):
    (found,) = take(text("gh200-nvbandwidth.txt"))
    rates = {
        one.label: round(rate(one.work, one.key.metric, one.seconds[0]) / 1e9, 2)
        for one in found.readings
    }
    assert rates["nvbandwidth.host_to_device_memcpy_ce[cpu1-2].median_or_mean"] == 312.11
    assert len(rates) == 6 + 2 + 1
    assert (found.machine.product, found.machine.driver) == ("NVIDIA GH200 480GB", "550.54.15")
    assert found.machine.software == {
        "nvbandwidth": "v0.6",
        "nvbandwidth commit": "v0.6",
        "CUDA runtime": "12040",
    }
    # Test cases of several nodes, waived, failed and cut; both directions and their sum: output.cpp of version 0.8.
    nodes = (
        "[1,0]<stdout>:nvbandwidth Version: v0.8\n[1,0]<stdout>:Process 0 (n1): device 0: HGX GB200 (00000008:01:00)\n"
        "[1,0]<stdout>:Process 1 (n2): device 0: HGX GB200 (00000009:01:00)\n[1,1]<stdout>:[n2] NCCL INFO up\n"
        "[1,0]<stdout>:Running multinode_device_to_device_bidirectional_memcpy_read_ce.\n"
    )
    for part, value in (("Read1", 398.5), ("Read2", 397.25), ("Total", 795.75)):
        nodes += (
            f"[1,0]<stdout>:memcpy CE GPU(row) <-> GPU(column) {part} bandwidth (GB/s)\n"
            "[1,0]<stdout>:      0     1\n"
            f"[1,0]<stdout>: 0   N/A {value:.2f}\n[1,0]<stdout>: 1 {value:.2f}   N/A\n"
            f"[1,0]<stdout>:SUM x {2 * value}\n"
        )
    nodes += (
        "[1,0]<stdout>:Waived: \n[1,0]<stdout>:Running device_local_copy.\n[1,0]<stdout>:Error: CUDA_ERROR_UNKNOWN\n"
        "[1,0]<stdout>:Running host_device_latency_sm.\n"
    )
    (found,) = take(nodes)
    parts = [
        (one.key.parameters["direction"], one.devices, round(1 / one.seconds[0], 2))
        for one in found.readings
    ]
    assert parts == [
        (way, 2, rate)
        for way, rate in (("1", 398.5), ("2", 397.25), ("sum", 795.75))
        for _ in range(2)
    ]
    assert (found.machine.product, found.machine.host) == ("HGX GB200", "n1")
    assert found.left_out == ("1 test case waived by nvbandwidth; the text does not name them",)
    assert found.failed == (
        ("nvbandwidth.device_local_copy", "CUDA_ERROR_UNKNOWN"),
        ("nvbandwidth.host_device_latency_sm", "a test case ended before its matrix was complete"),
    )


def test_a_matrix_that_is_not_whole_is_refused_with_its_line(text, take):
    whole = text("gh200-nvbandwidth.txt")
    for old, new, message in (
        ("312.11\n", "\n", "line 14: 2 cells; expected 3"),
        ("269.33", "299.33", "line 16: the sum of the matrix above is 2015.60"),
        (
            " 1    323.36",
            "retry of gpu1 299.33\n 1    323.36",
            "line 14: a line inside a table that is not a row",
        ),
        ("369.36", "36g.36", "line 13: a line inside a table that is not a row"),
    ):
        with pytest.raises(BadFile, match=message):
            take(whole.replace(old, new, 1))
    # Without its sum a matrix is whole that has a row for every GPU, or one of the host.
    square = (
        "Running device_to_device_memcpy_read_ce.\n"
        "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n      0     1\n"
    )
    square += "0   0.00  276.07\n1   276.19  0.00\n"
    assert len(take(square)[0].readings) == 2
    for cut in (square[:-17], square.replace("276.19  0.00", "276.19  0.0")):
        with pytest.raises(BadFile, match="file: a test case ended before its matrix was complete"):
            take(cut)


def test_rates_of_babelstream_are_what_it_printed(text, take):
    (found,) = take(text("mi300x-babelstream.csv"))
    readings = {reading.label: reading for reading in found.readings}
    printed = {
        "copy": 4.256e12,
        "mul": 4.11597e12,
        "add": 3.95639e12,
        "triad": 3.94806e12,
        "dot": 3.87841e12,
    }
    for kernel, expected in printed.items():
        best = readings[f"babelstream.{kernel}[2GiB-fp64].best"]
        assert rate(best.work, best.key.metric, best.seconds[0]) == pytest.approx(
            expected, rel=2e-5
        )
        assert (best.key.metric, best.key.timing, best.devices) == ("traffic_GBps", "wall", 1)
    assert (found.machine.product, found.machine.driver, len(readings)) == (
        "AMD Instinct MI300X",
        "60241133",
        15,
    )
    # Best, mean and slowest stand apart, with the calls behind them.
    triad = {
        name: readings[f"babelstream.triad[2GiB-fp64].{name}"]
        for name in ("best", "mean", "slowest")
    }
    assert {name: (reading.seconds, reading.iterations) for name, reading in triad.items()} == {
        "best": ((0.0016318,), 1), "mean": ((0.00166,), 49), "slowest": ((0.0018,), 1),
    }  # fmt: skip
    size = 8 * N
    for kernel, read, written in (("copy", 1, 1), ("add", 2, 1), ("dot", 2, 0)):
        work = readings[f"babelstream.{kernel}[2GiB-fp64].best"].work
        assert work == Work(read_bytes=read * size, write_bytes=written * size)


def test_every_unit_that_babelstream_has_is_told(take):
    units = {
        "mbytes": 1e6,
        "mibytes": 2**20,
        "MB": 1e6,
        "MiB": 2**20,
        "GB": 1e9,
        "GiB": 2**30,
        "TB": 1e12,
    }
    for unit, factor in units.items():
        # mbytes and mibytes up to version 4, the others from 5 on: `src/Unit.h`.
        table = f"function,num_times,n_elements,sizeof,max_{unit}_per_sec,min_runtime,max_runtime,avg_runtime\n"
        (found,) = take(
            f"{table}Copy,100,{N},4,{2 * 4 * N / 0.00125 / factor:.6g},0.00125,0.0014,0.0013\n"
        )
        best = found.readings[0]
        assert rate(best.work, best.key.metric, best.seconds[0]) == pytest.approx(
            2 * 4 * N / 0.00125
        )
        assert best.key.parameters == {"size_bytes": 4 * N, "dtype": "fp32"}
        assert f"{unit} is {factor:.0f} bytes" in found.tool.convention


def test_lines_before_the_table_are_understood(text, take):
    # Version 5 of the CUDA model, and the phases that version 5.0 printed.
    table = text("mi300x-babelstream.csv").split("\n", 3)[3]
    before = (
        'CUDA Driver: 12040\nCUDA Device 0: "NVIDIA A100-SXM4-80GB" 108 SMs(8,0) Memory: 1593 MHz x 5120-bit = 2039.04 '
        "GB/s PEAK, ECC is ON\nMemory Allocation: DEFAULT\nParallel for kernel config: thread blocks of size 1024\n"
        "Reduction kernel config: 432 groups of (fixed) size 1024\n"
        "phase,n_elements,sizeof,max_mbytes_per_sec,runtime\nInit,268435456,8,16071.9,0.400851\n"
        "Read,268435456,8,33916.7,0.189949\n"
    )
    (found,) = take(before + table)
    assert (found.machine.product, found.machine.driver) == ("NVIDIA A100-SXM4-80GB", "12040")
    assert len(found.readings) == 15


def test_tables_inside_a_job_and_behind_each_other_are_read_and_wrong_data_spoil_every_kernel(
    text, take, one
):
    whole = text("mi300x-babelstream.csv")
    assert [len(found.readings) for found in take(whole + whole.replace("0.00166", "0.00167"))] == [
        15,
        15,
    ]
    # A table that several ranks print is one.
    (found,) = take(whole * 2)
    assert (len(found.readings), found.notes) == (
        15,
        ("left out 1 repeated table, as every rank prints one",),
    )
    assert one("module load rocm\n\x1b[1m" + whole + "Kokkos::finalize\n") == {
        label: replace(reading, where=f"line {int(reading.where[5:]) + 1}")
        for label, reading in one(whole).items()
    }
    for line, spoiled in (
        ("Validation failed on a[]. Average error 1.5", 15), ("FAILED validation of sum: 1 (is) != 2", 3),
    ):  # fmt: skip
        for changed in (f"{whole}{line}\n", f"{line}\n{whole}"):
            bad = [reading for reading in one(changed).values() if reading.invalid]
            assert ({reading.verified for reading in bad}, len(bad)) == ({False}, spoiled)


def change(old, new):
    return lambda csv: csv.replace(old, new)


REFUSED_TABLES = (
    (lambda csv: csv[: csv.rindex(",")] + "\n", "line 9: 7 columns; expected 8"),
    (lambda csv: csv[: csv.index("Copy")], "file: a run ended before the rows of its table"),
    (change("max_mbytes", "max_furlongs"), "line 4: unit 'furlongs'; expected one"),
    (change("3.94806e+06", "fast"), "line 8: 'fast' is not a number"),
    (change("0.0016318", "0"), "line 8: a time is 0; expected times above 0"),
    (
        change("Triad,50,268435456", f"Triad,50,{10**18}"),
        r"file: Work.read_bytes is 16000000\d+; expected .* 2\^63",
    ),
    (
        change("Triad,50,268435456,8", "Triad,50,268435456,3"),
        "line 8: 50 calls on arrays of 805306368 bytes, 3 bytes an element; expected at least two",
    ),
    (change("Triad", "Quad"), "line 8: kernel 'Quad'; expected one of Copy"),
    (
        lambda csv: csv.split("\n", 4)[4],
        "line 1: 8 columns; expected a line above that names the columns",
    ),
)


def test_what_is_no_table_of_known_columns_and_units_is_refused_with_its_line(text, take):
    whole = text("mi300x-babelstream.csv")
    for mutilate, message in REFUSED_TABLES:
        assert mutilate(whole) != whole
        with pytest.raises(BadFile, match=message):
            take(mutilate(whole), "babelstream")


FILES = {
    "a100-all_reduce.log": "nccl-tests",
    "gb10-two-nodes-all_gather.log": "nccl-tests",
    "readme-nvbandwidth.json": "nvbandwidth",
    "gh200-nvbandwidth.txt": "nvbandwidth",
    "mi300x-babelstream.csv": "babelstream",
    "cofc-osu-bibw.log": "osu",
    "google-benchmark.json": "google-benchmark",
    "vector-add-performance.csv": "triton",
    "pytest-benchmark-storage-0030.json": "pytest-benchmark",
}


def test_a_file_is_recognised_as_one_format_and_no_other(text, take):
    for name, own in FILES.items():
        for other in set(FILES.values()):
            if own == other:
                assert take(text(name)) == take(text(name), other)
            else:
                with pytest.raises(BadFile):
                    take(text(name), other)


def test_every_tool_that_an_option_names_has_a_reader_under_its_name():
    assert [*TOOLS] == [import_format.name for import_format in FORMATS]
    benchmarks = [f"{name.replace('-', '_')}.copy" for name in (*TOOLS, "rccl-tests")]
    assert [*map(is_of_tool, benchmarks)] == [True] * len(benchmarks)
