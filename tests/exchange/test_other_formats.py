"""Output of the OSU Micro-Benchmarks, TransferBench, Google Benchmark, NVBench and Triton."""

import re

import pytest

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.records import rate
from pytest_roofline.core.work import Work


def test_the_osu_micro_benchmarks_are_read_as_rates_and_as_latencies(text, take, one):
    reading = one(text("cofc-osu-bibw.log"))["osu.bibw[4MiB].mean"]
    assert rate(reading.work, reading.key.metric, reading.seconds[0]) == pytest.approx(23852.36e6)
    assert (reading.key.metric, reading.key.timing, reading.devices) == (
        "bidir_sum_payload_GBps",
        "pipelined",
        2,
    )
    (found,) = take(text("abci-osu-allreduce.mpi"), devices=16)
    readings = {reading.label: reading for reading in found.readings}
    assert len(readings) == 7 * 3
    slowest = readings["osu.allreduce[32MiB-mpi-cuda].slowest_rank"]
    assert (slowest.seconds, slowest.work, slowest.devices) == ((0.0455475,), Work(calls=1), 16)
    assert (found.machine.device_type, found.machine.software) == (
        "accelerator",
        {"OSU Micro-Benchmarks": "5.7"},
    )


def test_every_head_of_an_osu_test_is_understood(one, take):
    # Heads of versions 2 to 7, as pages and logs quote them.
    cases = (
        ("# OSU MPI Latency Test (Version 2.0)\n# Size Latency (us)\n0 1.06\n4194304 2178.66\n",
         "osu.latency[4MiB].mean", 2178.66e-6, None),
        ("# OSU MPI-CUDA Bandwidth Test v7.5\n# Datatype: MPI_FLOAT.\n# Size      Bandwidth (MB/s)        Validation\n"
         "4194304             279573.25        Pass\n", "osu.bw[4MiB-fp32-mpi-cuda].mean", 4.194304 / 279573.25, True),
        ("# OSU MPI Multiple Bandwidth / Message Rate Test v5.7\n# [ pairs: 4 ] [ window size: 64 ]\n"
         "# Size                  MB/s        Messages/s\n1                      21.88       21882413.50\n",
         "osu.mbw_mr[1B-4-64].mean", 1 / 21.88e6, None),
        ("# OSU MPI Non-blocking Allreduce Latency Test v7.1\n"
         "# Size           Overall(us)       Compute(us)    Pure Comm.(us)    Overlap(%)\n8 9.50 4.20 4.10 0.00\n",
         "osu.non_blocking_allreduce[8B].pure_comm", 4.10e-6, None),
        ("# OSU MPI Non-blocking Gather Latency Test v5.7.1\n# Overall = Coll. Init + Compute + MPI_Test\n\n"
         "# Size           Overall(us)       Compute(us)    Coll. Init(us)      MPI_Test(us)     MPI_Wait(us)    "
         "Pure Comm.(us)     Min Comm.(us)     Max Comm.(us)      Overlap(%)\n4 77.2 56.3 5.69 0 15 52.6 35 71.5 60\n",
         "osu.non_blocking_gather[4B].pure_comm_slowest_rank", 71.5e-6, None),
        ("# OSU MPI Non-blocking Barrier Latency Test v5.7.1\n\n       Overall(us)       Compute(us)\n"
         "             89.72             68.02\n", "osu.non_blocking_barrier.mean", 89.72e-6, None),
        ("# OSU MPI Barrier Latency Test v5.6.2\n# Avg Latency(us)\n   3.45\n",
         "osu.barrier.mean", 3.45e-6, None),
        ("# OSU MPI_Put Latency Test v5.9\n# Window creation: MPI_Win_allocate\n# Size    Latency (us)\n1  1.75\n",
         "osu.put_latency[1B].mean", 1.75e-6, None),
    )  # fmt: skip
    for log, label, seconds, verified in cases:
        # Only of a collective nobody knows how many ranks there were.
        ranks = {"devices": 4} if re.search("Allreduce|Gather|Barrier", log) else {}
        found = {
            name.replace("float", "fp32"): reading for name, reading in one(log, **ranks).items()
        }
        assert (found[label].seconds[0], found[label].verified) == (
            pytest.approx(seconds),
            verified,
        ), (label, found)
    both = take(
        "".join(log for log, *_ in cases)
        + "srun: error: node7: task 3: Exited with exit code 1\n12 ranks done\n",
        devices=4,
    )
    assert len(both) == len(cases)


def test_an_osu_table_is_strict_inside(text, take):
    whole = text("cofc-osu-bibw.log")
    for old, new, message in (
        ("23688.99", "23688.99 7", "line 23: 3 columns; expected 2"),
        ("23688.99", "fast", "line 23: 'fast' is not a number"),
        ("23688.99", "reset of port 1", "line 23: a line inside a table that is not a row"),
        (
            "1048576 ",
            "104857 ",
            "line 23: 104857 bytes after 524288; expected a larger size in every row",
        ),
        (
            "Bandwidth (MB/s)",
            "Bandwidth (GB/s)",
            "line 2: an unknown column: 'Bandwidth .GB",
        ),
    ):
        with pytest.raises(BadFile, match=message):
            take(whole.replace(old, new))
    # A network so slow that two decimals hold nothing of it has no rate, and takes no other row with it.
    (found,) = take(whole.replace("23688.99", "0.00"))
    assert (found.left_out, len(found.readings)) == (
        ("line 23, Bandwidth (MB/s): the tool printed 0 MB/s",),
        22,
    )


# By the pages of TransferBench's and of AMD's acceptance guides that quote its output, versions 1.50 to 1.67.
TRANSFERS = r"""TransferBench v1.62.00
## Single GPU-executed Transfer between GPUs 0 and 1 using 4 CUs
Test 1:
 Executor: GPU 00 |   56.299 GB/s |    4.768 ms |    268435456 bytes | 56.309  GB/s (sum)
     Transfer 00  |   56.309 GB/s |    4.767 ms |    268435456 bytes | G0 -> G000:004 -> G1
 Aggregate (CPU)  |   55.015 GB/s |    4.879 ms |    268435456 bytes | Overhead: 0.111 ms
"""
MATRICES = r"""TransferBench v1.50
===============================================================
Bytes Per Direction 268435456
Unidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)
 SRC+EXE\DST    CPU 00       GPU 00    GPU 01
  CPU 00  ->     92.21        45.11     45.16
  GPU 00  ->     55.47      2132.28     57.39
                           CPU->CPU  CPU->GPU  GPU->CPU  GPU->GPU
Averages (During UniDir):    100.21     44.83     54.70     48.76

Bidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)
  SRC\DST       CPU 00       GPU 00
  CPU 00  ->     N/A         41.50
  CPU 00 <-      N/A         42.25
  CPU 00 <->     N/A         83.75
"""


def test_the_transfers_and_the_matrices_of_transferbench_are_read(one, take):
    bordered = TRANSFERS.replace(" | ", " │ ").replace(
        "Test 1:\n", "Test 1:\n-----┬-----┬----┬------┬-----\n"
    )
    for log in (TRANSFERS, bordered, "".join(f" 0: {line}\n" for line in TRANSFERS.split("\n"))):
        found = one(log)
        told = {
            label: (
                round(rate(each.work, each.key.metric, each.seconds[0]) / 1e9, 3),
                each.devices,
                each.key.timing,
            )
            for label, each in found.items()
        }
        assert told == {
            "transferbench.executor[256MiB-GPU-0-1].mean": (56.299, 1, "device"),
            "transferbench.transfer[256MiB-0-1-G000:004-1-0].mean": (56.309, 2, "device"),
            "transferbench.aggregate[256MiB-1].mean": (55.015, 2, "wall"),
        }
    found = {
        (each.key.benchmark.rpartition("_")[2], each.key.parameters["source"], each.key.parameters["target"],
         each.key.parameters.get("direction")): (each.key.metric, 1e-9 * 2**28 / each.seconds[0])
        for each in take(MATRICES)[0].readings
    }  # fmt: skip
    assert len(found) == 6 + 3
    assert found["unidirectional", 0, 1, None] == ("payload_GBps", pytest.approx(57.39))
    assert found["bidirectional", "cpu0", 0, "<->"] == (
        "bidir_sum_payload_GBps",
        pytest.approx(83.75),
    )
    assert found["bidirectional", "cpu0", 0, "<-"] == (
        "bidir_per_dir_payload_GBps",
        pytest.approx(42.25),
    )


def test_a_table_of_transferbench_is_strict_inside(take):
    for log, old, new, message in (
        (
            TRANSFERS,
            "4.767 ms",
            "4.867 ms",
            "line 5: 268435456 bytes at 56.309 GB/s are 4.767 ms, but 4.867 ms",
        ),
        (
            TRANSFERS,
            "56.309 GB/s |",
            "fast |",
            "line 5: no rate, time and bytes in a known form",
        ),
        (
            TRANSFERS,
            "     Transfer",
            "HIP error 700\n     Transfer",
            "line 5: a line inside a table that is not a row",
        ),
        (MATRICES, "45.11 ", "", "line 6: 2 cells; expected 3"),
        (MATRICES, "2132.28", "-nan", "line 7: '-nan' is not a number"),
    ):
        with pytest.raises(BadFile, match=message):
            take(log.replace(old, new))


def test_the_json_of_google_benchmark_is_read(text, take):
    (found,) = take(text("google-benchmark.json"))
    times = {reading.label: (reading.seconds, reading.iterations) for reading in found.readings}
    assert times["google_benchmark.BM_Hi.mean"] == ((pytest.approx(42e-3),), 1234)
    assert times["google_benchmark.BM_Zero/4.mean"] == ((pytest.approx(40e-9),), 4000)
    assert len(times) == text("google-benchmark.json").count('"name"')
    assert (found.machine.device_type, found.machine.cores, found.started) == (
        "cpu",
        4,
        "2016-08-02 17:44:46",
    )
    # Repetitions are samples, what they come to is left out; rates are by the time of the CPU: json_reporter.cc.
    run = '{{"name": "{}", "run_name": "BM_Copy/64", "run_type": "{}", "iterations": 100, "real_time": {}, '
    run += '"cpu_time": 4.0, "time_unit": "us", "bytes_per_second": 1.6e7, "aggregate_name": "{}"}}'
    runs = [run.format("BM_Copy/64", "iteration", 5.0, ""), run.format("BM_Copy/64", "iteration", 5.5, ""),
            run.format("BM_Copy/64_median", "aggregate", 5.25, "median")]  # fmt: skip
    failed = '{"name": "BM_Bad", "run_type": "iteration", "error_occurred": true, "error_message": "no GPU"}'
    skipped = '{"name": "BM_Idle", "run_type": "iteration", "skipped": true, "skip_message": ""}'
    (found,) = take(
        '{"context": {"num_cpus": 8}, "benchmarks": [' + ", ".join([*runs, failed, skipped]) + "]}"
    )
    (reading,) = found.readings
    assert (reading.seconds, reading.work) == (
        (pytest.approx(5e-6), pytest.approx(5.5e-6)),
        Work(payload_bytes=64),
    )
    assert (found.left_out, found.failed) == (
        ("BM_Idle: skipped", "1 aggregate of runs"),
        (("google_benchmark.BM_Bad", "no GPU"),),
    )
    (found,) = take('{"context": {}, "benchmarks": [' + runs[2] + "]}")
    assert [reading.label for reading in found.readings] == ["google_benchmark.BM_Copy/64.median"]
    with pytest.raises(BadFile, match=r"1 of benchmarks.\* is 5; expected an object"):
        take('{"context": {}, "benchmarks": [' + f"{runs[0]}, 5" + "]}")
    # Unless the name says that they are by the wall clock; and of a fit there is no time.
    walled = runs[0].replace("BM_Copy/64", "BM_Copy/64/real_time/threads:2")
    fit = '{"name": "BM_Copy_BigO", "cpu_coefficient": 1.5, "real_coefficient": 1.6, "big_o": "N", "time_unit": "ns"}'
    (found,) = take('{"context": {}, "benchmarks": [' + f"{walled}, {fit}" + "]}")
    assert ([one.work.payload_bytes for one in found.readings], found.left_out) == (
        [80],
        ("BM_Copy_BigO: it has no figure",),
    )


def test_a_counter_of_google_benchmark_that_is_no_number_is_left_out_and_a_time_refused(take):
    # What versions from 1.6 on write of the counter `gpu` whose coefficient of variation is 0 / 0.
    log = """{
  "context": {"num_cpus": 8, "note": "\\"gpu\\": NaN"},
  "benchmarks": [
    {"name": "BM_Copy/64", "run_name": "BM_Copy/64", "run_type": "iteration", "iterations": 5,
     "real_time": 2.0, "cpu_time": 3.0, "time_unit": "us", "bytes_per_second": 1.6e7, "gpu": 0.0},
    {"name": "BM_Copy/64_cv", "run_name": "BM_Copy/64", "run_type": "aggregate", "aggregate_name": "cv",
     "iterations": 5, "real_time": 2.4e-03, "cpu_time": 3.2e-03, "time_unit": "us", "gpu": NaN, "least": -Infinity}
  ]
}"""
    (entry,) = take(log)
    assert [("google_benchmark.BM_Copy/64.mean", (2e-6,), 48)] == [
        (one.label, one.seconds, one.work.payload_bytes) for one in entry.readings
    ]
    assert ("1 aggregate of runs",) == entry.left_out
    (entry,) = take(log.replace("1.6e7", "Infinity"))
    assert ["time_s"] == [one.key.metric for one in entry.readings]
    assert "BM_Copy/64: bytes_per_second is no number above zero" in entry.left_out
    for name in ("real_time", "cpu_time"):
        with pytest.raises(
            BadFile, match="time of BM_Copy/64 is nan; expected a number above zero"
        ):
            take(re.sub(rf'(?m)^(     .*"{name}": )[23]\.0', r"\1NaN", log))


def test_the_json_of_nvbench_is_read_of_one_product(text, take):
    with pytest.raises(
        BadFile,
        match=r"on Quadro GP100 and Quadro GV100; choose one .* '--read=nvbench,product=Quadro GP100'",
    ):
        take(text("gv100-nvbench.json"))
    (found,) = take(text("gv100-nvbench.json"), product="Quadro GV100")
    cold, batch = found.readings
    assert (cold.seconds, cold.key.cache, cold.key.timing) == (
        (0.002292998504448446,),
        "flush",
        "device",
    )
    assert rate(cold.work, cold.key.metric, cold.seconds[0]) == pytest.approx(234134872289.91367)
    assert (batch.seconds, batch.key.cache, batch.key.timing) == (
        (0.0022799289537926114,),
        "warm",
        "pipelined",
    )
    assert (cold.label, found.machine.product) == (
        "nvbench.copy_type_sweep[U8-0-cold].mean",
        "Quadro GV100",
    )
    assert len(found.left_out) == 1
    assert "InputType == OutputType" in found.left_out[0]


def test_the_csv_of_tritons_perf_report_is_read(text, take):
    def read(content, **given):
        (found,) = take(content, **given)
        return {
            reading.label: (reading.key.metric, reading.seconds[0], reading.key.timing)
            for reading in found.readings
        }

    found = read(text("vector-add-performance.csv"))
    assert found["triton.perf_report[4096-Triton].median_or_mean"] == (
        "payload_GBps", pytest.approx(1 / 1.623679), "device",
    )  # fmt: skip
    # Without units, as before version 3; three columns are swept, and one point was not measured.
    old = "M,N,K,cuBLAS,Triton\n256.0,256.0,256.0,5.4,\n384.0,384.0,384.0,13.8,13.9\n"
    with pytest.raises(
        BadFile,
        match=r"line 2, cuBLAS has no unit; expected one of GB/s, TFLOPS, .* --read=triton,unit=GB/s",
    ):
        take(old)
    with pytest.raises(BadFile, match="this file has no known format"):
        take("1000,0.25\n2000,0.5\n", unit="ms")
    found = read(old, unit="TFLOPS")
    assert found["triton.perf_report[384-384-384-Triton].median_or_mean"] == (
        "TFLOPS",
        pytest.approx(1 / 13.9),
        "device",
    )
    assert len(found) == 3
    found = read("N,Triton (Execution Time (ms)),Diff\n16,0.25,0.0\n")
    assert found == {
        "triton.perf_report[16-Triton].median_or_mean": ("time_s", pytest.approx(0.25e-3), "device")
    }
    for bad, message in (
        ("N,Triton (ms)\n16,0\n", "value of perf_report line 2, Triton is '0'; expected"),
        ("N,T (ms)\n16,-1\n", "value of perf_report line 2, T is '-1'; expected"),
        ("N,T (ms)\n16,1\n32\n", "line 3: 1 column; expected 2"),
    ):
        with pytest.raises(BadFile, match=message):
            take(bad)


def test_what_is_not_read_says_which_formats_are(take):
    with pytest.raises(BadFile) as refused:
        take("Intel(R) MPI Benchmarks 2021.3\n#bytes #repetitions t[usec] Mbytes/sec\n")
    for title in ("nccl-tests", "nvbandwidth", "BabelStream", "OSU Micro-Benchmarks", "TransferBench", "NVBench",
                  "Google Benchmark", "triton.testing", "pytest-benchmark"):  # fmt: skip
        assert title in str(refused.value)
