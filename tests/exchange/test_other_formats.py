"""Output of the OSU Micro-Benchmarks, TransferBench, Google Benchmark, NVBench and Triton."""

import pytest

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.records import rate
from pytest_roofline.core.work import Work


def test_the_osu_micro_benchmarks_are_read_as_rates_and_as_latencies(text, take, one):
    reading = one(text("cofc-osu-bibw.log"))["osu.bibw[4MiB].mean"]
    assert rate(reading.work, reading.metric, reading.seconds[0]) == pytest.approx(23852.36e6)
    assert (reading.metric, reading.timing, reading.devices) == ("bidir_sum_payload_GBps", "pipelined", 2)
    (found,) = take(text("abci-osu-allreduce.mpi"), devices=16)
    readings = {reading.label: reading for reading in found.readings}
    assert len(readings) == 7 * 3
    slowest = readings["osu.allreduce[32MiB-mpi-cuda].slowest_rank"]
    assert (slowest.seconds, slowest.work, slowest.devices) == ((0.0455475,), Work(calls=1), 16)
    assert (found.device_type, found.software) == ("accelerator", {"OSU Micro-Benchmarks": "5.7"})


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
        ("# OSU MPI Barrier Latency Test v5.6.2\n# Avg Latency(us)\n   3.45\n",
         "osu.barrier.mean", 3.45e-6, None),
        ("# OSU MPI_Put Latency Test v5.9\n# Window creation: MPI_Win_allocate\n# Size    Latency (us)\n1  1.75\n",
         "osu.put_latency[1B].mean", 1.75e-6, None),
    )  # fmt: skip
    for log, label, seconds, verified in cases:
        found = {name.replace("float", "fp32"): reading for name, reading in one(log).items()}
        assert (found[label].seconds[0], found[label].verified) == (pytest.approx(seconds), verified), (label, found)
    both = take(
        "".join(log for log, *_ in cases) + "srun: error: node7: task 3: Exited with exit code 1\n12 ranks done\n"
    )
    assert len(both) == len(cases)


def test_an_osu_table_is_strict_inside(text, take):
    whole = text("cofc-osu-bibw.log")
    for old, new, message in (
        ("23688.99", "23688.99 7", "line 23: 3 columns; expected 2"),
        ("23688.99", "fast", "line 23: 'fast' is not a number"),
        ("23688.99", "reset of port 1", "line 23: a line inside a table that is no row of it"),
        ("1048576 ", "104857 ", "line 23: 104857 bytes behind 524288; expected more with every row"),
        ("Bandwidth (MB/s)", "Bandwidth (GB/s)", "line 2: a column that this importer does not know: 'Bandwidth .GB"),
    ):
        with pytest.raises(BadFile, match=message):
            take(whole.replace(old, new))


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
    bordered = TRANSFERS.replace(" | ", " │ ").replace("Test 1:\n", "Test 1:\n-----┬-----┬----┬------┬-----\n")
    for log in (TRANSFERS, bordered, "".join(f" 0: {line}\n" for line in TRANSFERS.split("\n"))):
        found = one(log)
        told = {
            label: (round(rate(each.work, each.metric, each.seconds[0]) / 1e9, 3), each.devices, each.timing)
            for label, each in found.items()
        }
        assert told == {
            "transferbench.executor[256MiB-GPU00-1].mean": (56.299, 1, "device"),
            "transferbench.transfer[256MiB-G0->G000:004->G1-1-0].mean": (56.309, 2, "device"),
            "transferbench.aggregate[256MiB-1].mean": (55.015, 1, "wall"),
        }
    found = {
        (each.benchmark.rpartition("_")[2], each.parameters["pair"]): (each.metric, 1e-9 * 2**28 / each.seconds[0])
        for each in take(MATRICES)[0].readings
    }
    assert len(found) == 6 + 3
    assert found["unidirectional", "gpu0->gpu1"] == ("payload_GBps", pytest.approx(57.39))
    assert found["bidirectional", "cpu0<->gpu0"] == ("bidir_sum_payload_GBps", pytest.approx(83.75))
    assert found["bidirectional", "cpu0<-gpu0"] == ("bidir_per_dir_payload_GBps", pytest.approx(42.25))


def test_a_table_of_transferbench_is_strict_inside(take):
    for log, old, new, message in (
        (TRANSFERS, "4.767 ms", "4.867 ms", "line 5: 268435456 bytes at 56.309 GB/s are 4.767 ms, but 4.867 ms"),
        (TRANSFERS, "56.309 GB/s |", "fast |", "line 5: no rate, time and bytes as this importer knows them"),
        (
            TRANSFERS,
            "     Transfer",
            "HIP error 700\n     Transfer",
            "line 5: a line inside a table that is no row of it",
        ),
        (MATRICES, "45.11 ", "", "line 6: 2 cells; expected 3"),
        (MATRICES, "2132.28", "-nan", "line 7: '-nan' is not a number"),
    ):
        with pytest.raises(BadFile, match=message):
            take(log.replace(old, new))
