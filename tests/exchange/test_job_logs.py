"""Tables inside the logs of jobs: labels of launchers, lines around and between the rows, copies of ranks."""

import json
import re
import time

import pytest

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.records import rate
from pytest_roofline.exchange import (
    babelstream,
    logs,
    nccl_tests,
    nvbandwidth_text,
    osu,
    transferbench,
)

ALPS, EKS, CUDA = "alps-srun-all_reduce.out", "eks-mpirun-all_reduce.log", "a100-babelstream.out"


def seconds(found):
    return {reading.label: reading.seconds for one in found for reading in one.readings}


def test_a_table_behind_labels_of_srun_and_mpirun_is_read_and_what_is_around_it_counted(text, take):
    cases = [
        (ALPS, "nccl_tests.all_reduce[4GiB-fp32-sum-out_of_place-4].mean", 92.50, "NVIDIA GH200 120GB", "nid005896", 6),
        (EKS, "nccl_tests.all_reduce[16GiB-fp32-sum-in_place-2].mean", 487.01, "NVIDIA H100 80GB HBM3",
         "test-nccl-worker-0", 5),
    ]  # fmt: skip
    for name, label, busbw, product, host, skipped in cases:
        (found,) = take(text(name))
        reading = next(one for one in found.readings if one.label == label)
        assert rate(reading.work, reading.key.metric, reading.seconds[0]) / 1e9 == pytest.approx(
            busbw, abs=0.02
        ), name
        assert (found.machine.product, found.machine.host, reading.devices) == (product, host, 16)
        assert found.notes == (f"skipped {skipped} lines around the tables",)


def test_a_table_reads_the_same_whatever_a_launcher_puts_before_its_lines(text, take):
    plain = text("a100-all_reduce.log")
    for prefix in (" 0: ", "12: ", "[1,0]<stdout>:", "[prterun-node1-77@1,0]<stdout>: ", "[0] ", "gpu-node17: ",
                   "2025-01-02T10:00:00.123456789Z ", "2025-01-02T10:00:00.1+00:00 stdout F ",
                   "[pod/launcher-x7/nccl] ", "    ", "Jan 02 10:00:00 ", "00:00:01 ", "1735812000.123456 ",
                   "[2025-01-02T10:00:00.123Z] ", "2025-01-02 10:00:00,123 ", "2025-01-02T10:00:00.123456Z 01O ",
                   "Jan  2 10:00:00 gpu7 slurm.sh[17]: ", "nccl-1  | ", "(head, rank=0, pid=17) ", "[default0]:",
                   "Thu Jan  2 10:00:00 2025<stdout>:", "Jan 02 10:00:00  0: "):  # fmt: skip
        labelled = "".join(f"{prefix}{line}\n" for line in plain.split("\n"))
        around = (
            f"+ srun -l all_reduce_perf\n{labelled}slurmstepd: error: *** STEP 1.0 CANCELLED ***\n"
        )
        assert seconds(take(around)) == seconds(take(plain)), prefix


def test_the_log_of_a_container_that_docker_keeps_as_json_lines_is_read(text, take):
    for name in ("a100-all_reduce.log", CUDA, "gh200-nvbandwidth.txt"):
        printed = text(name).splitlines(keepends=True)
        logged = [
            json.dumps({"log": line, "stream": "stdout", "time": "2025-01-02T10:00:00.1Z"})
            for line in printed
        ]
        dumped = "\n".join(line.replace('": "', '":"') for line in logged)
        assert seconds(take(dumped)) == seconds(take(text(name))), name
    with pytest.raises(
        BadFile, match=r"file: .*; expected a line {\"log\": …} for each of the container"
    ):
        take('{"log":"# nThread 1"}\n{"log":7}')


def test_several_ranks_copies_of_one_table_are_one(text, take):
    for name in ("a100-all_reduce.log", CUDA):
        plain = text(name)
        mixed = "".join(f"{rank:2d}: {line}\n" for line in plain.split("\n") for rank in range(12))
        found = take(mixed)
        assert [len(one.readings) for one in found] == [len(one.readings) for one in take(plain)]
        assert "repeated table" in found[0].notes[-1]
        # Ranks that measured for themselves are processes of their own.
        other = plain.replace("0.00346 ", "0.00347 ").replace(
            "63896  134.44  235.26", "63899  134.43  235.25"
        )
        mixed = "".join(
            f"{rank}: {line}\n" for rank in (0, 1) for line in (plain, other)[rank].split("\n")
        )
        assert len(take(mixed)) > len(take(plain)), name


def test_inside_a_table_lines_of_libraries_are_skipped_and_any_other_is_refused_with_its_number(
    text, take
):
    plain = text("a100-all_reduce.log")
    lines = plain.split("\n")
    for line in ("node1:17:17 [0] NCCL INFO Launch mode Parallel", "srun: job 17 queued", "",
                 "[1700000000.1] [g1:17:0] ucp_context.c:1 UCX  WARN UCP version is incompatible"):  # fmt: skip
        assert seconds(take("\n".join([*lines[:30], line, *lines[30:]]))) == seconds(take(plain)), (
            line
        )
    for line in ("epoch 3: loss 0.5", "     1048576   262144     "):
        with pytest.raises(BadFile, match="file, line 31: a line inside a table that is not a row"):
            take("\n".join([*lines[:30], line, *lines[30:]]))
    stream = text(CUDA).replace(
        "Add         1361886.041", "~~~ GPU 0 was reset\nAdd         1361886.041"
    )
    with pytest.raises(
        BadFile, match="file, line 13: a line inside a table that is not a row: '~~~ GPU 0 was"
    ):
        take(stream)


def test_lines_between_two_runs_are_around_both(text, take):
    for name in (CUDA, "a100-all_reduce.log", "cofc-osu-bibw.log", "gh200-nvbandwidth.txt"):
        log = text(name)
        other = log.replace("0.00346 ", "0.00347 ").replace(
            "63896  134.44  235.26", "63899  134.43  235.25"
        )
        other = other.replace("23688.99", "23688.98").replace("176.92", "176.93")
        between = "Running on device 1\n====================\n\n"
        assert len(take(log + between + other)) >= 2, name
    # Also where the first has no end.
    cut = text("a100-all_reduce.log")[:3500].rsplit("\n", 1)[0]
    failed, found = take(
        f"{cut}\n{'-' * 60}\nprterun detected that a process exited\n" + text("a100-all_reduce.log")
    )
    assert (len(failed.failed), len(found.readings)) == (1, 64)


def test_a_run_that_ended_in_the_middle_is_a_failed_test_beside_those_that_are_whole(text, take):
    whole = text("a100-all_reduce.log")
    cut = whole[: whole.index("    33554432")]
    failed, found = take(
        cut + "node1: Test NCCL failure common.cu:1279 'unhandled system error'\n" + whole
    )
    assert failed.failed == (
        ("nccl_tests.test", "a run ended before its 'Avg bus bandwidth' (rows read: 50)"),
    )
    assert seconds([found]) == seconds(take(whole))
    died = "BabelStream\nVersion: 5.0\nRunning kernels 100 times\nPrecision: double\nSegmentation fault\n"
    failed, *found = take(died + text(CUDA))
    assert (failed.failed, len(found)) == (
        (("babelstream", "a run ended before the rows of its table"),),
        2,
    )


@pytest.mark.parametrize("name", [CUDA, "gh200-nvbandwidth.txt", "cofc-osu-bibw.log", "vector-add-performance.csv",
                                  "mi300x-babelstream.csv"])  # fmt: skip
def test_of_a_log_that_was_cut_no_half_of_a_number_is_taken(text, take, name):
    def numbers(content):
        return {
            (one.label, time_s)
            for found in take(content)
            for one in found.readings
            for time_s in one.seconds
        }

    whole, told = text(name), ""
    for cut in range(2, 130):
        assert numbers(whole[:-cut]) <= numbers(whole), whole[-cut - 40 : -cut]
        told += str([(one.notes, one.left_out) for one in take(whole[:-cut])])
    assert "it has no line end and may be cut" in told
    # Of two decimals each, as the line above has them, none is missing.
    if name == "cofc-osu-bibw.log":
        assert (numbers(whole.rstrip()), take(whole.rstrip())[0].notes) == (
            numbers(whole),
            take(whole)[0].notes,
        )


def test_a_heading_that_comes_twice_or_a_list_of_devices_is_no_run(text, take):
    listing = (
        "BabelStream\nVersion: 5.0\nImplementation: CUDA\nDevices:\n0: NVIDIA A100-SXM4-40GB\n\n"
    )
    for name, heading, before in (
        ("cofc-osu-bibw.log", "# OSU", ""),
        (CUDA, "BabelStream", ""),
        ("gb10-two-nodes-all_gather.log", "# Collective", ""),
        (CUDA, "", listing),
        (CUDA, "", listing + listing),
    ):
        log = text(name)
        twice = re.sub(f"(?m)^({heading}.*\n?)", r"\1\1", log, count=1) if heading else log
        assert before + twice != log
        entries = take(before + twice)
        assert [()] * len(take(log)) == [entry.failed for entry in entries], (name, before)
        assert seconds(take(log)) == seconds(entries), (name, before)
    # With a line between them the first may have died.
    died = re.sub("(?m)^(BabelStream\n)", r"\1out of memory\n\1", text(CUDA), count=1)
    assert [1, 0, 0] == [len(entry.failed) for entry in take(died)]
    with pytest.raises(BadFile, match="file: the log has no table with rows"):
        take(listing)


def test_a_run_that_was_cut_in_a_row_takes_none_that_is_whole_with_it(text, take):
    whole = text("a100-all_reduce.log")
    (found, cut) = take(whole + whole[:3500])
    assert (seconds([found]), len(cut.failed)) == (seconds(take(whole)), 1)


def test_the_collective_is_named_by_a_line_of_the_job_or_by_the_file(text, take):
    log = text("a100-all_gather.log")
    (found,) = take(f"+ srun ./build/all_gather_perf -b 8 -e 8G\n{log}")
    assert found.readings[0].key.benchmark == "nccl_tests.all_gather"
    assert "all_gather follows from '+ srun ./build/all_gather_perf -b 8 -e 8G'" in found.notes[0]
    # A command that cannot have printed these rows names nothing.
    with pytest.raises(BadFile, match="does not name its collective"):
        take(f"+ srun ./build/all_reduce_perf -b 8 -e 8G\n{log}")


def test_the_default_text_of_babelstream_is_read_at_the_rates_that_it_printed(text, take):
    first, second = take(text(CUDA))
    printed = {
        "copy": 1386507.387,
        "mul": 1344920.919,
        "add": 1361886.041,
        "triad": 1370221.139,
        "dot": 1257291.261,
    }
    for reading in (one for one in first.readings if one.key.name == "best"):
        kernel = reading.key.benchmark.removeprefix("babelstream.")
        assert rate(reading.work, reading.key.metric, reading.seconds[0]) / 1e6 == pytest.approx(
            printed[kernel], abs=1e-3
        )
        assert reading.key.parameters == {"size_bytes": 2**28, "dtype": "fp64"}
    mean = next(one for one in first.readings if one.label == "babelstream.dot[256MiB-fp64].mean")
    assert (mean.seconds, mean.iterations) == ((0.00044,), 99)
    assert (first.machine.product, first.machine.driver) == ("A100-SXM4-40GB MIG 7g.40gb", "11000")
    assert first.machine.software == {"BabelStream": "3.4", "implementation": "CUDA"}
    # 2147.5 MB are 2^31 bytes.
    assert {one.key.parameters["size_bytes"] for one in second.readings} == {2**31}


def test_other_versions_of_babelstreams_text_are_read(text, take):
    # Version 0 says how many elements there are, 1 calls MiB MB, 6 has other lines; --triad-only has no table.
    (old,) = take(text("k20c-gpu-stream.txt"))
    assert {one.key.parameters["size_bytes"] for one in old.readings} == {49999872 * 8}
    untyped = (
        text("k20c-gpu-stream.txt")
        .replace("Precision: double\n", "")
        .replace("Array size", "Arrays")
    )
    assert [one.key.parameters for one in take(untyped)[0].readings] == [
        one.key.parameters for one in old.readings
    ]
    (first,) = take(
        text("k20c-gpu-stream.txt")
        .replace("0.0\n", "1.0\n")
        .replace("Resizing array from", "Array from")
    )
    assert {one.key.parameters["size_bytes"] for one in first.readings} == {round(381.5 * 2**20)}
    six = (
        "BabelStream\nVersion: 6.0\nImplementation: HIP\nRunning  Classic kernels 100 times in  {} order \n"
        "Number of elements: 268435456\nPrecision: float\nArray size: 1.1 GB\nTotal size: 3.2 GB\n"
        "Using HIP device AMD Instinct MI300X\nDriver: 6.3\nFunction    GB/s        Min (sec)   Max         Average\n"
        "Copy        4031.234    0.00053     0.00054     0.00053     \n"
    )
    (found,) = take(six.format("Isolated"))
    best = found.readings[0]
    assert rate(best.work, best.key.metric, best.seconds[0]) == pytest.approx(4031.234e9)
    assert best.key.parameters == {"size_bytes": 2**30, "dtype": "fp32", "order": "isolated"}
    # In Rust, as its authors' forum quotes it.
    tabs = (
        "BabelStream\nVersion: 0.5\nImplmentation: Rust\nRunning kernels 100 times\n"
        "Precision: double\nArray size: 268.4 MB (=0.3 GB)\n"
        "Function\tMbytes/sec\tMin (sec)\tMax\t\tAverage\nCopy\t\t50552.817\t0.01062\t\t0.02924\t\t0.01143\n"
    )
    best, mean, _ = take(tabs)[0].readings
    assert rate(best.work, best.key.metric, best.seconds[0]) == pytest.approx(50552.817e6)
    assert mean.seconds == (0.01143,)
    triad = (
        "BabelStream\nVersion: 4.0\nImplementation: CUDA\nRunning triad 100 times\nNumber of elements: 33554432\n"
        "Precision: double\nArray size: 268.4 MB (=0.3 GB)\nTotal size: 805.3 MB (=0.8 GB)\n"
        "--------------------------------\nRuntime (seconds): 0.05872\nBandwidth (GB/s):  1371.410\n"
    )
    (reading,) = take(triad)[0].readings
    assert (reading.key.name, reading.iterations) == ("mean", 100)
    assert rate(reading.work, reading.key.metric, reading.seconds[0]) == pytest.approx(1371.41e9)


def test_a_text_that_contradicts_itself_or_has_no_head_is_refused(text, take):
    for old, new, message in (
        (
            "1386507.387",
            "986507.387",
            "line 11: .* bytes are 0.00054 s, but the least time is 0.00039 s",
        ),
        ("Precision: double", "Precision:", "line 11: no line above gives the precision"),
        (
            "Copy        1386507.387 0.00039",
            "Copy        1386507.387",
            "line 11: 4 columns; expected 5",
        ),
        ("Function    MBytes", "Function    Furlongs", "line 10: unit 'Furlongs'; expected one of"),
        ("268.4 MB", "0.0 MB", "line 11: the array size above is 0 MB"),
    ):
        with pytest.raises(BadFile, match=message):
            take(text(CUDA).replace(old, new))


def test_no_pattern_of_a_text_format_takes_long_for_a_long_line():
    # What looks on from every place of a line takes minutes for 256 KiB; this takes milliseconds.
    formats = (
        babelstream._RULES,
        nccl_tests._RULES,
        nvbandwidth_text.RULES,
        osu._RULES,
        transferbench._RULES,
    )
    patterns = [logs._FOREIGN, *(pattern for rules in formats for pattern, _ in rules)]
    slow = []
    for start in ("", "1 1 ", "1 1 f ", "# ", "Running ", "Device 0: ", "[", "a:1:1 [0] "):
        for part in ("a", "1", "1 ", "1.", "e", "a.", "[", "N/A "):
            line = start + (part * 20_000)[:20_000] + "!"
            for pattern in patterns:
                began = time.process_time()
                pattern.fullmatch(line)
                slow += [(pattern.pattern, start, part)] * (time.process_time() - began > 1)
    assert slow == []
