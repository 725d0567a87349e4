"""CSV of BabelStream."""

from dataclasses import replace

import pytest

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.records import rate
from pytest_roofline.core.work import Work

N = 2**28


def test_rates_of_stored_bytes_and_seconds_are_what_the_tool_printed(text, take):
    (found,) = take(text("mi300x-babelstream.csv"))
    readings = {reading.label: reading for reading in found.readings}
    printed = {"copy": 4.256e12, "mul": 4.11597e12, "add": 3.95639e12, "triad": 3.94806e12, "dot": 3.87841e12}
    for kernel, expected in printed.items():
        best = readings[f"babelstream.{kernel}[2GiB-fp64].best"]
        assert rate(best.work, best.metric, best.seconds[0]) == pytest.approx(expected, rel=2e-5)
        assert (best.metric, best.timing, best.devices) == ("traffic_GBps", "wall", 1)
    assert (found.product, found.driver) == ("AMD Instinct MI300X", "60241133")


def test_best_mean_and_slowest_stand_apart_with_the_calls_behind_them(text, one):
    readings = one(text("mi300x-babelstream.csv"))
    found = {name: readings[f"babelstream.triad[2GiB-fp64].{name}"] for name in ("best", "mean", "slowest")}
    assert {name: reading.seconds for name, reading in found.items()} == {
        "best": (0.0016318,),
        "mean": (0.00166,),
        "slowest": (0.0018,),
    }
    assert {name: reading.iterations for name, reading in found.items()} == {"best": 1, "mean": 49, "slowest": 1}
    assert len(readings) == 15


def test_arrays_read_and_written_are_those_of_the_kernel(one):
    for kernel, read, written in (("Copy", 1, 1), ("Add", 2, 1), ("Dot", 2, 0), ("Nstream", 3, 1)):
        gigabytes = (read + written) * 8 * N / 1e9
        table = "function,num_times,n_elements,sizeof,max_GB_per_sec,min_runtime,max_runtime,avg_runtime\n"
        reading = one(f"{table}{kernel},100,{N},8,{gigabytes / 0.0025:.6g},0.0025,0.003,0.0026\n")[
            f"babelstream.{kernel.lower()}[2GiB-fp64].best"
        ]
        assert reading.work == Work(read_bytes=read * 8 * N, write_bytes=written * 8 * N)


def test_every_unit_that_the_tool_has_is_converted(take):
    units = {
        "mbytes": 1e6,
        "mibytes": 2**20,
        "MB": 1e6,
        "MiB": 2**20,
        "GB": 1e9,
        "GiB": 2**30,
        "TB": 1e12,
        "TiB": 2**40,
    }
    for unit, factor in units.items():
        # mbytes and mibytes up to version 4, the others from 5 on: `src/Unit.h`.
        table = f"function,num_times,n_elements,sizeof,max_{unit}_per_sec,min_runtime,max_runtime,avg_runtime\n"
        (found,) = take(f"{table}Copy,100,{N},4,{2 * 4 * N / 0.00125 / factor:.6g},0.00125,0.0014,0.0013\n")
        best = found.readings[0]
        assert rate(best.work, best.metric, best.seconds[0]) == pytest.approx(2 * 4 * N / 0.00125)
        assert best.parameters == {"size_bytes": 4 * N, "dtype": "fp32"}
        assert f"{unit} is {factor:.0f} bytes" in found.convention


def test_triad_only_of_old_versions_is_the_time_of_all_calls(one):
    # Version 4.0 with --triad-only: bytes of all calls by the time of all calls.
    total_s = 100 * 0.0016
    table = "function,num_times,n_elements,sizeof,gbytes_per_sec,runtime\n"
    reading = one(f"{table}Triad,100,{N},8,{100 * 3 * 8 * N / 1e9 / total_s:.6g},{total_s:.6g}\n")[
        "babelstream.triad[2GiB-fp64].mean"
    ]
    assert (reading.seconds, reading.iterations) == ((pytest.approx(0.0016),), 100)


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
    assert (found.product, found.driver) == ("NVIDIA A100-SXM4-80GB", "12040")
    assert found.left_out == ("2 phases (init, read), which are timed once each",)
    assert len(found.readings) == 15


def test_two_tables_behind_each_other_are_two_processes(text, take):
    assert [len(found.readings) for found in take(text("mi300x-babelstream.csv") * 2)] == [15, 15]


@pytest.mark.parametrize(
    "line", ["Validation failed on a[]. Average error 1.5", "FAILED validation of sum: 1 (is) != 2"]
)
@pytest.mark.parametrize("behind", [False, True])
def test_wrong_data_spoil_every_kernel(line, behind, text, one):
    table = text("mi300x-babelstream.csv")
    changed = f"{table}{line}\n" if behind else f"{line}\n{table}"
    assert {(reading.verified, bool(reading.invalid)) for reading in one(changed).values()} == {(False, True)}


def change(old, new):
    return lambda csv: csv.replace(old, new)


REFUSED = (
    (lambda csv: csv[: csv.rindex(",")], "line 9: 7 columns; expected 8"),
    (lambda csv: csv[: csv.index("Copy")], "file ends without rows of a table"),
    (change("Triad,50,", "Triad,"), "line 8: 7 columns; expected 8"),
    (change("0.0016318,0.0018", "0.0018,0.0016318"), "line 8: 3.94806e.06 mbytes/s, but its bytes by its time are"),
    (change("3.94806e+06", "3.74806e+06"), "line 8: 3.74806e.06 mbytes/s, but its bytes"),
    (change("max_mbytes", "max_mibytes"), "line 5: 4.256e.06 mibytes/s, but its bytes"),
    (change("max_mbytes", "max_furlongs"), "line 4: unit 'furlongs'; expected one"),
    (change("3.94806e+06", "fast"), "line 8: 'fast' is not a number"),
    (change("3.94806e+06", "nan"), "line 8: 'nan' is not a number"),
    (change("3.94806e+06", "-3.9e+06"), "line 8: '-3.9e.06' is not a number"),
    (change("0.0016318", "0"), "line 8: a count, a size or a time that cannot be"),
    (change("Triad,50,268435456", f"Triad,50,{10**18}"), "line 8: arrays of 8000000"),
    (change("Triad,50,268435456,8", "Triad,50,268435456,3"), "line 8: a count, a size or a time that cannot be"),
    (change("Triad,50", "Triad,1"), "line 8: a count, a size or a time that cannot be"),
    (change("Triad", "Quad"), "line 8: kernel 'Quad'; expected one of Copy"),
    (lambda csv: csv.split("\n", 4)[4], "line 1: 8 columns; expected the line that names them above"),
    (change(",", ";"), "file ends without rows of a table"),
)


def test_what_is_no_table_of_known_columns_and_units_is_refused_with_its_line(text, take):
    whole = text("mi300x-babelstream.csv")
    for mutilate, message in REFUSED:
        assert mutilate(whole) != whole
        with pytest.raises(BadFile, match=message):
            take(mutilate(whole), "babelstream")


def test_a_table_inside_the_log_of_a_job_is_read(text, one):
    whole = text("mi300x-babelstream.csv")
    assert one("module load rocm\n\x1b[1m" + whole + "Kokkos::finalize\n") == {
        label: replace(reading, where=f"line {int(reading.where[5:]) + 1}") for label, reading in one(whole).items()
    }
