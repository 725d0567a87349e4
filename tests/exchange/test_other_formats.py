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
