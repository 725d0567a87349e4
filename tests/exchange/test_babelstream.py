"""CSV of BabelStream."""

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


@pytest.mark.parametrize(
    ("kernel", "read", "written"), [("Copy", 1, 1), ("Add", 2, 1), ("Dot", 2, 0), ("Nstream", 3, 1)]
)
def test_arrays_read_and_written_are_those_of_the_kernel(kernel, read, written, one):
    gigabytes = (read + written) * 8 * N / 1e9
    table = "function,num_times,n_elements,sizeof,max_GB_per_sec,min_runtime,max_runtime,avg_runtime\n"
    reading = one(f"{table}{kernel},100,{N},8,{gigabytes / 0.0025:.6g},0.0025,0.003,0.0026\n")[
        f"babelstream.{kernel.lower()}[2GiB-fp64].best"
    ]
    assert reading.work == Work(read_bytes=read * 8 * N, write_bytes=written * 8 * N)


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        ("mbytes", 1e6),
        ("mibytes", 2**20),
        ("MB", 1e6),
        ("MiB", 2**20),
        ("GB", 1e9),
        ("GiB", 2**30),
        ("TB", 1e12),
        ("TiB", 2**40),
    ],
)
def test_every_unit_that_the_tool_has_is_converted(unit, factor, take):
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


REFUSED = {
    "cut in a row": (lambda csv: csv[:-12], "line 9: .*"),
    "cut at a digit": (lambda csv: csv.rstrip("\n"), "line 9: the last line has no end, so that a digit may be"),
    "cut before the rows": (lambda csv: csv[: csv.index("Copy")], "line 4: the file ends here, without rows"),
    "a column missing": (lambda csv: csv.replace("Triad,50,", "Triad,"), "line 8: 7 columns; expected 8"),
    "columns exchanged": (lambda csv: csv.replace("0.0016318,0.0018", "0.0018,0.0016318"), "line 8: 3.94806e.06 mby"),
    "a mean beyond the slowest": (lambda csv: csv.replace("0.0018,0.00166", "0.0018,0.0019"), "are out of order"),
    "another rate": (lambda csv: csv.replace("3.94806e+06", "3.95806e+06"), "line 8: 3.95806e.06 mbytes/s, but 6442"),
    "another time": (lambda csv: csv.replace("0.0016318", "0.0016418"), "line 8: 3.94806e.06 mbytes/s, but 6442"),
    "another size": (
        lambda csv: csv.replace("Triad,50,268435456", "Triad,50,268445456"),
        "line 8: 3.94806e.06 mbytes/s",
    ),
    "another unit": (lambda csv: csv.replace("max_mbytes", "max_mibytes"), "line 5: 4.256e.06 mibytes/s, but"),
    "an unknown unit": (lambda csv: csv.replace("max_mbytes", "max_furlongs"), "line 4: unit 'furlongs'; expected one"),
    "a word": (lambda csv: csv.replace("3.94806e+06", "fast"), "line 8: something is not a number above zero"),
    "not a number": (lambda csv: csv.replace("3.94806e+06", "nan"), "line 8: something is not a number above zero"),
    "a negative number": (lambda csv: csv.replace("3.94806e+06", "-3.9e+06"), "line 8: something is not a number"),
    "zero": (lambda csv: csv.replace("0.0016318", "0"), "line 8: something is not a number above zero"),
    "a huge number": (lambda csv: csv.replace("Triad,50,268435456", f"Triad,50,{10**18}"), "line 8: arrays of 8000000"),
    "an element of 3 bytes": (
        lambda csv: csv.replace("Triad,50,268435456,8", "Triad,50,268435456,3"),
        "line 8: someth",
    ),
    "one call": (lambda csv: csv.replace("Triad,50", "Triad,1"), "line 8: something is not a number above zero"),
    "an unknown kernel": (lambda csv: csv.replace("Triad", "Quad"), "line 8: not a line of BabelStream's CSV"),
    "a kernel twice": (lambda csv: csv.replace("Dot", "Mul").replace("3.87841e+06", "3.87841e+06"), "line 9: the kern"),
    "no header": (lambda csv: csv.split("\n", 4)[4], "line 1: 8 columns; expected the line that names them above"),
    "a stray line": (lambda csv: "hello\n" + csv, "line 1: not a line of BabelStream's CSV"),
    "colours": (lambda csv: csv.replace("Triad", "\x1b[1mTriad"), "line 8: control characters"),
    "semicolons": (lambda csv: csv.replace(",", ";"), "not a line of BabelStream's CSV"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mutilated_file_is_refused_with_its_line(case, text, take):
    change, message = REFUSED[case]
    changed = change(text("mi300x-babelstream.csv"))
    assert changed != text("mi300x-babelstream.csv")
    with pytest.raises(BadFile, match=message):
        take(changed, "babelstream")
