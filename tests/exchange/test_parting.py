"""What parts two measurements is in the key, is asked for, or is named; and what a log has beside its rows."""

import json

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.cli.main import main
from pytest_roofline.core.errors import BadFile

ALLREDUCE = """# OSU MPI Allreduce Latency Test v5.8
# Size       Avg Latency(us)
4                      {:.2f}
8                      {:.2f}
"""
TYPED = """# OSU MPI-CUDA Bandwidth Test v7.2
# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)
# Size      Bandwidth (MB/s)
# Datatype: MPI_{}.
4                       2.00
8                       4.00
"""
THREADS = """# OSU MPI Multi-threaded Latency Test v7.4
# Number of Sender threads: {}
# Size          Latency (us)
4                       2.00
"""
NVBANDWIDTH = """{}nvbandwidth Version: v0.8
Device 0: NVIDIA H200 (00000000:18:00)
Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0
 0     55.30
SUM host_to_device_memcpy_ce 55.30
"""
NCCL = """# nThread 1 nGpus 2 minBytes 33554432 maxBytes 33554432 step: 1048576(bytes) warmup iters: 1 iters: 20
#  Rank  0 Group  0 Pid   1001 on      node1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1002 on      node1 device  1 [0000:1c:00] NVIDIA H100 80GB HBM3
{}#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong{}
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
{}# Out of bounds values : 0 OK
# Avg bus bandwidth    : 167.77
"""
HALF = "   200.00  167.77  167.77       0"
ROW = f"    33554432       8388608     float     sum      -1{HALF}{HALF}"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """`roofline import`, `compare` and so on in a folder of their own, where `files` are written."""
    monkeypatch.chdir(tmp_path)

    def call(*words, **files):
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        return CliRunner().invoke(main, [*words])

    return call


def test_the_ranks_of_an_osu_collective_are_asked_for_and_part_two_measurements(
    call, take, tmp_path
):
    with pytest.raises(
        BadFile, match=r"the number of ranks of allreduce; give the number .* --read=osu,devices=8"
    ):
        take(ALLREDUCE.format(94, 93))
    for name, ranks, log in (
        ("a", "256", ALLREDUCE.format(94, 93)),
        ("b", "512", ALLREDUCE.format(169, 176)),
    ):
        assert (
            call("import", name, "--devices", ranks, "--save", name, **{name: log}).exit_code == 0
        )
    keys = [
        one.key.hardware.devices
        for one in read_run(tmp_path / ".roofline/runs/a.jsonl").measurements
    ]
    assert keys == [256, 256]
    done = call("compare", "a", "b")
    assert (done.exit_code, "REGRESSED" in done.output) == (2, False), done.output
    # A test between two has two, and cannot be told otherwise.
    with pytest.raises(BadFile, match="readings of 2 devices, but devices=8 was given"):
        take(TYPED.format("CHAR"), devices=8)


def test_the_data_type_of_osu_is_in_the_key_wherever_it_stands(one):
    assert set(one(TYPED.format("FLOAT"))) == {
        f"osu.bw[{size}B-D-D-float-mpi-cuda].mean" for size in (4, 8)
    }
    assert set(one(TYPED.format("CHAR"))) == {
        f"osu.bw[{size}B-D-D-mpi-cuda].mean" for size in (4, 8)
    }


@pytest.mark.parametrize("heading", ["# Size      Bandwidth (MB/s)\n", ""])
def test_several_data_types_of_one_osu_test_are_tables_of_their_own(take, heading):
    log = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n"
    rows = {"CHAR": ("4   4.00\n8   8.00\n"), "INT": "4   4.10\n8   8.10\n", "FLOAT": "4   4.20\n"}
    log += "".join(f"# Datatype: MPI_{name}.\n{heading}{text}" for name, text in rows.items())
    rates = {
        reading.label: round(4 / reading.seconds[0] / 1e6, 2)
        for table in take(log)
        for reading in table.readings
        if reading.key.parameters["size_bytes"] == 4
    }
    assert rates == {
        "osu.bw[4B].mean": 4.0,
        "osu.bw[4B-int].mean": 4.1,
        "osu.bw[4B-float].mean": 4.2,
    }


def test_how_a_window_was_made_is_in_the_key_where_it_is_not_the_default(one):
    log = (
        "# OSU MPI_Put Latency Test v5.9\n# Window creation: {}\n# Synchronization: {}\n"
        "# Size    Latency (us)\n1  1.75\n"
    )
    for ways, label in (
        (("MPI_Win_allocate", "MPI_Win_flush"), "1B"),
        (("MPI_Win_create", "MPI_Win_fence"), "1B-win_create-win_fence"),
    ):
        assert set(one(log.format(*ways))) == {f"osu.put_latency[{label}].mean"}


def test_a_line_of_the_head_that_is_not_read_is_named_kept_and_not_judged(call, tmp_path):
    for name, count in (("a", 1), ("b", 2), ("c", 1)):
        done = call(
            "import",
            name,
            "--save",
            name,
            **{name: THREADS.format(count) + "# end of: " + name + "\n"},
        )
        assert f"note: not compared: Number of Sender threads: {count}\n" in done.output
    (kept,) = read_run(tmp_path / ".roofline/runs/b.jsonl").measurements
    assert kept.samples.labels == ("imported", "# Number of Sender threads: 2")
    done = call("compare", "a", "b")
    assert done.exit_code == 2
    assert (
        "INVALID osu.multi_threaded_latency[4B].mean: this run is Number of Sender threads: 2, the baseline is Number "
        in (done.output.replace("latency_mt", "multi_threaded_latency"))
    )
    # One log against one is judged, and undecided.
    done = call("compare", "a", "c")
    assert (2, "1 INCONCLUSIVE") == (done.exit_code, done.stdout.splitlines()[-1])
    log = NCCL.format("# Made up setting: 7\n", "", ROW + "\n")
    done = call("import", "d", "--operation", "all_reduce", d=log)
    assert "note: not compared: Made up setting: 7\n" in done.output, done.output


def test_the_buffer_size_of_nvbandwidth_is_taken_from_its_command_or_said_to_be_unknown(take):
    for command, label, notes in (
        ("+ srun ./nvbandwidth -t 0 -b 256\n", "[cpu0-0-256MiB].median", 0),
        ("$ nvbandwidth --useMean --bufferSize=1024\n", "[cpu0-0-1GiB].mean", 0),
        ("nvbandwidth -t host_to_device_memcpy_ce -m\n", "[cpu0-0].mean", 1),
        ("", "[cpu0-0].median_or_mean", 1),
    ):
        (found,) = take(NVBANDWIDTH.format(command))
        (reading,) = found.readings
        unknown = [
            note
            for note in found.notes
            if note.startswith("the buffer size (-b) is not in this file")
        ]
        assert (reading.label.partition("_ce")[2], len(unknown)) == (label, notes), command


def test_columns_behind_those_that_are_known_are_named_and_not_read(take):
    (found,) = take(NCCL.format("", "  #iters", f"{ROW}      20\n"), operation="all_reduce")
    assert [(one.seconds[0], one.devices) for one in found.readings] == [
        (pytest.approx(200e-6), 2)
    ] * 2
    assert found.left_out == ("column #iters is not read",)
    log = (
        "# OSU MPI Bandwidth Test v7.9\n# Size      Bandwidth (MB/s)   Energy (J)\n4   4.00   0.5\n"
    )
    (found,) = take(log)
    assert (len(found.readings), found.left_out) == (1, ("column Energy (J) is not read",))


def test_a_log_that_measured_nothing_is_a_failed_test_and_the_other_files_are_imported(call):
    nothing = NCCL.format(
        "# Reducing maxBytes to 67108864 due to memory limitation\n", "", ""
    ).replace("minBytes 33554432", "minBytes 134217728")
    whole = NCCL.format("", "", ROW + "\n")
    done = call(
        "import", "a", "b", "--operation", "all_reduce", "--save", "run", a=nothing, b=whole
    )
    why = "maxBytes was reduced to 67108864, below minBytes 134217728; no size was measured"
    assert "a: nccl-tests, NVIDIA H100 80GB HBM3\n" in done.output
    assert (done.exit_code, f"FAILED nccl_tests.test: {why}\n" in done.output) == (0, True), (
        done.output
    )


def test_lines_of_programs_between_numbered_rows_are_counted_and_what_may_be_a_row_is_refused(take):
    # Of UCC, which names its file and line; of nobody that is known.
    log = ALLREDUCE.format(94, 93)
    ucc = "coll_ucc_barrier.c:31 - mca_coll_ucc_barrier() running ucc barrier\n"
    (found,) = take(log.replace("4   ", ucc + "4   ").replace("8   ", ucc + "8   "), devices=4)
    assert ([one.seconds[0] for one in found.readings], found.notes) == (
        [pytest.approx(94e-6), pytest.approx(93e-6)],
        ("skipped 2 lines around the tables",),
    )
    (found,) = take(log.replace("8   ", "fabric: link flapped\n8   "), devices=4)
    assert (len(found.readings), found.notes) == (
        2,
        (
            "skipped 1 line inside a table that do not begin with a number: line 4, 'fabric: link flapped'",
        ),
    )
    for line in ("fabric: 8   93.00", "x 8  17", "9"):
        with pytest.raises(BadFile):
            take(log.replace("8   ", f"{line}\n8   "), devices=4)


def test_a_log_inside_a_json_string_is_named_as_such(take):
    for log in (ALLREDUCE, NCCL, NVBANDWIDTH):
        with pytest.raises(
            BadFile, match="file: the log is inside a JSON string; extract it first"
        ):
            take(json.dumps({"pods": [{"log": log}]}, indent=1))


TRANSFERBENCH = """TransferBench v1.26
Test 1:
 Transfer 00      |  40.000 GB/s |    1.678 ms |     67108864 bytes | G0 -> GPU00:004 -> G1
      Iter 001    |  40.500 GB/s |    1.657 ms |
      Iter 002    |  39.500 GB/s |    1.699 ms |
      StandardDev |    2.100e-02 |
 Aggregate (CPU)  |  35.000 GB/s |    1.917 ms |     67108864 bytes | Overhead: 0.239 ms
"""
SCALING = """TransferBench v1.26
GPU-GFX Scaling benchmark:
==========================
- Copying 67108864 bytes from GPU 0 to other devices

NumCUs   CPU00        GPU00
   1     14.11        20.30
"""


def test_single_iterations_of_transferbench_are_skipped_and_named_and_presets_that_are_not_read(
    take,
):
    (found,) = take(TRANSFERBENCH)
    assert [round(one.seconds[0], 6) for one in found.readings] == [0.001678, 0.001917]
    assert found.left_out == ("3 lines of SHOW_ITERATIONS, single iterations and their deviation",)
    with pytest.raises(BadFile, match="file: preset scaling is not read"):
        take(SCALING)
    _, found = take(SCALING + TRANSFERBENCH)
    assert len(found.readings) == 2
