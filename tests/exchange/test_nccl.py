"""Logs of nccl-tests and rccl-tests."""

import re

import pytest

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.work import Work

GIB8 = 8 * 2**30
# 8 × A100: algbw and busbw of the largest out-of-place row, as the tool printed them.
GOLDEN = {
    "all_reduce": (134.44, 235.26),
    "all_gather": (255.31, 223.39),
    "reduce_scatter": (264.60, 231.52),
    "all_to_all": (256.36, 224.31),
    "broadcast": (232.81, 232.81),
    "reduce": (228.38, 228.38),
}


def rates(reading):
    return tuple(
        round(amount / reading.seconds[0] / 1e9, 2)
        for amount in (reading.work.algbw_bytes, reading.work.busbw_bytes)
    )


def test_rates_of_stored_bytes_and_seconds_are_what_the_tool_printed(text, take):
    for operation, printed in GOLDEN.items():
        (found,) = take(text(f"a100-{operation}.log"), operation=operation)
        largest = next(r for r in found.readings if r.key.parameters["size_bytes"] == GIB8)
        assert rates(largest) == pytest.approx(printed, abs=0.0101)
        assert (largest.key.benchmark, found.machine.product) == (
            f"nccl_tests.{operation}",
            "A100-SXM4-40GB",
        )
        assert (largest.devices, largest.iterations, largest.warmup_iterations) == (8, 20, 5)
        assert (largest.key.name, largest.key.timing, largest.key.metric) == (
            "mean",
            "pipelined",
            "busbw_GBps",
        )


def test_every_half_of_every_row_that_moves_something_is_a_reading(text, take):
    (found,) = take(text("a100-all_reduce.log"))
    assert (len(found.readings), len(found.left_out)) == (64, 4)
    assert found.left_out[0] == "line 17, out_of_place: moves nothing"
    assert {reading.verified for reading in found.readings} == {None}
    line = int(found.readings[0].where.removeprefix("line "))
    assert text("a100-all_reduce.log").split("\n")[line - 1].split()[0] == "4"


def test_what_a_log_tells_of_its_machine_is_kept(text, take, one):
    reading = one(text("gb10-two-nodes-all_gather.log"))[
        "nccl_tests.all_gather[4GiB-fp32-in_place-2].mean"
    ]
    assert reading.key.parameters == {
        "size_bytes": 2**32,
        "dtype": "fp32",
        "place": "in_place",
        "nodes": 2,
    }
    assert reading.work == Work(algbw_bytes=2**32, busbw_bytes=2**31)
    assert (reading.verified, reading.devices, reading.iterations) == (True, 2, 50)
    assert take(text("gb10-two-nodes-all_gather.log"))[0].machine.software["nccl-tests"] == "2.18.3"
    (found,) = take(text("mi300x-all_reduce.log"))
    assert (found.tool.name, found.machine.product, found.machine.software) == (
        "rccl-tests",
        "AMD Instinct MI300X VF",
        {"rccl-tests": ":+"},
    )
    assert found.readings[0].key.benchmark == "rccl_tests.all_reduce"


def test_a_log_that_does_not_name_its_collective_is_understood_where_only_one_fits(text, one, take):
    readings = one(text("a100-reduce_scatter.log")).values()
    assert {reading.key.benchmark for reading in readings} == {"nccl_tests.reduce_scatter"}
    with pytest.raises(
        BadFile,
        match=r"expected one of all_gather, all_to_all.* --read=nccl-tests,operation=all_gather",
    ):
        take(text("a100-all_gather.log"))
    with pytest.raises(
        BadFile,
        match="file: no collective of 4 ranks has these bus bandwidths; give the number behind the tool",
    ):
        take(
            re.sub(r"(?m)^# +Rank .*\n", "", text("a100-reduce_scatter.log")).replace(
                "nGpus 8", "nGpus 1"
            ),
            devices=4,
        )
    with pytest.raises(BadFile, match="is a log of all_gather, but operation=all_reduce was given"):
        take(text("gb10-two-nodes-all_gather.log"), operation="all_reduce")
    with pytest.raises(BadFile, match="8 ranks, but devices=4 was given"):
        take(text("a100-all_reduce.log"), devices=4)


def test_wrong_elements_spoil_their_half_of_a_row_and_of_an_old_log_all(text, one):
    log = text("gb10-two-nodes-all_gather.log")
    readings = one(log.replace("22.14       0", "22.14      17").replace("0 OK", "1 FAILED"))
    bad = readings["nccl_tests.all_gather[4GiB-fp32-out_of_place-2].mean"]
    assert (bad.verified, bad.invalid) == (False, "17 elements were wrong in the tool's own check")
    assert [reading.invalid for reading in readings.values() if reading is not bad] == [""] * 5
    # What old versions print is the largest error, which is no count of wrong elements.
    old = text("a100-all_reduce.log").replace("    N/A", "  4e-07")
    assert {(reading.verified, reading.invalid) for reading in one(old).values()} == {(True, "")}
    spoiled = one(old.replace("values : 0 OK", "values : 3 FAILED")).values()
    assert {reading.invalid for reading in spoiled} == {
        "3 values were out of bounds; the log does not say in which rows"
    }


def seconds(readings):
    return {label: reading.seconds for label, reading in readings.items()}


def test_lines_of_launchers_and_libraries_are_understood(text, one):
    plain = text("a100-all_reduce.log")
    warning = "[2025-01-02 10:00:00] node1:1:2 [0] misc/socket.cc:484 NCCL WARN socketStartConnect failed\n"
    job = "".join(f"{line}\n" for line in plain.split("\n"))
    for changed in (
        plain.replace("\n", "\r\n"),
        "\ufeff" + plain,
        plain.replace("# Out of bounds", f"{warning}# Out of bounds"),
        "".join(f"[1,0]<stdout>:{line}\n" for line in plain.split("\n")),
        "".join(f"0: {line}\n" for line in plain.split("\n")),
        plain.replace("\n#\n", "\nNCCL version 2.19.3+cuda12.3\n#\n", 1),
        "module load cuda\n+ srun all_reduce_perf\n"
        + job.replace("# Out of", "\x1b[32m# Out of")
        + "done\n",
    ):
        assert seconds(one(changed)) == seconds(one(plain)), changed[:80]


def test_logs_behind_each_other_are_processes_and_sizes_gone_through_twice_samples(text, take, one):
    found = take(text("a100-all_reduce.log") + text("a100-reduce.log"))
    assert [imported.readings[0].key.benchmark for imported in found] == [
        "nccl_tests.all_reduce",
        "nccl_tests.reduce",
    ]
    log = text("gb10-two-nodes-all_gather.log")
    rows = re.findall(r"^ +\d+ +\d+ .*\n", log, re.MULTILINE)
    readings = one(log.replace(rows[-1], rows[-1] + "# Testing 2 cycle.\n" + "".join(rows)))
    assert [len(reading.seconds) for reading in readings.values()] == [2] * 6


WAYS = (
        ("agg iters: 1 ", "agg iters: 4 ", {"agg_iters": 4}, "pipelined"),
        ("graph: 0 ", "graph: 2 ", {"graph": 2}, "pipelined"),
        ("unalign: 0", "unalign: 3", {"unalign": 3}, "pipelined"),
        ("unalign: 0\n", "unalign: 0\n# Blocking Enabled: wait and barrier after each inner iteration (-m) \n",
         {"blocking": 1}, "isolated"),
        ("unalign: 0\n", "unalign: 0\n# Blocking Enabled: wait after each inner iteration (-m), no barrier \n",
         {"blocking": 2}, "isolated"),
)  # fmt: skip


def test_another_way_of_running_is_another_key(text, one):
    for old, new, parameters, timing in WAYS:
        for reading in one(text("gb10-two-nodes-all_gather.log").replace(old, new)).values():
            assert reading.key.timing == timing
            assert reading.key.parameters.items() >= parameters.items()


def test_the_heads_of_other_versions_are_understood(text, one):
    # Of rccl-tests until 2021 and of nccl-tests before 2.1 and since 2.20: src/common.cu of both.
    log = text("a100-all_reduce.log")
    head, ranks = log.split("\n", 1)[0], re.sub(r"Pid +\d+ ", "", log)
    values = (
        "minBytes: 0 maxBytes: 8589934592 step: 2(factor) warmupIters: 5 iters: 20 validation: 0"
    )
    for changed in (
        log.replace(head, f"# nThread: 1 nGpus: 8 {values} "),
        log.replace(head, f"# nThreads: 1 nGpus: 8 nRanks: 1 {values} "),
        log.replace(" validation: 0", "").replace("68.4048", "68.4048 GB/s"),
        log.replace("# Out of", " Out of").replace("# Avg", " Avg").replace("# nThread", "nThread"), ranks,
        log.replace(head, head.rstrip() + " side_work: 0 work_sms: 0 direction: none"),
        # As pages quote it, whose authors lost the signs.
        re.sub(r"(?m)^#(?= )", "", log),
    ):  # fmt: skip
        assert changed != log
        assert seconds(one(changed)) == seconds(one(log)), changed[:160]
    beside = one(log.replace(head, head.rstrip() + "  side_work: 1 work_sms: 8 "))
    assert {reading.key.parameters["work_sms"] for reading in beside.values()} == {8}


def test_a_row_that_nccls_own_lines_cut_is_read_whole(text, one, take):
    # Timez-zx/nccl-tests, nccl-fault.log: NCCL_DEBUG_SUBSYS=COLL goes through the buffer of the row.
    log = text("gb10-two-nodes-all_gather.log")
    told = "mew0:65704:65704 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x720000000 count 2097152 [nranks=2]\n"
    told += told.replace("[1]", "[0]")
    row = re.compile(
        r"(?m)^( *\d+ +\d+ +[a-z]\w* +\w+ +-\d)(( +[\d.]+){3} +\d)(( +[\d.]+){3} +\d) *$"
    )
    assert len(row.findall(log)) == len(one(log)) / 2
    for cut in (
        rf"\1{told}\2{told}\4",
        rf"\1{told}\2\4",
        rf"\1\2{told}\4",
        rf"\1[2026-01-02 10:00:00] {told}\2{told}\4",
    ):
        assert seconds(one(row.sub(cut, log))) == seconds(one(log)), cut
    first, *_, last = row.finditer(log)
    for match, message in (
        (first, "line 15: 22 columns; expected 13"),
        (last, "without rows, or inside a row; expected"),
    ):
        with pytest.raises(BadFile, match=message):
            take(log[: match.start()] + match.expand(rf"\1\2{told}") + log[match.end() :])


ONE_ROW = """# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 33554432 maxBytes 33554432 step: 2(factor) warmup iters: 5 iters: 50 agg iters: 1
#  Rank  0 Group  0 Pid   1375 on HOST device  0 [0000:40:00] NVIDIA H100
#  Rank  1 Group  0 Pid   1375 on OTHER device  1 [0000:41:00] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
    33554432       8388608     float     sum      -1   346.13   96.94   96.94       0   346.13   96.94   96.94       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 96.94
"""
OF_NCCL = (
    "38dcf168f605:1375:1375 [0] NCCL INFO AllReduce: 33554432 Bytes -> Algo NVLS proto SIMPLE\n"
)


def named(log, host, other):
    return log.replace("HOST", host).replace("OTHER", other)


def test_a_host_that_begins_with_a_digit_is_no_part_of_the_number_before_it(one, take):
    expected = [(pytest.approx(346.13e-6), "", True)] * 2
    message = "line 7: a number runs into a host name that no line '# Rank …' has; expected a blank"
    root, wrong = (" -1 ", f" -1{OF_NCCL}"), (" 0   ", f" 0{OF_NCCL}   ")
    for log in (
        ONE_ROW.replace(*root),
        ONE_ROW.replace(*wrong),
        ONE_ROW.replace(*root).replace(*wrong),
    ):
        readings = one(named(log, "38dcf168f605", "38dcf168f605")).values()
        assert expected == [(r.seconds[0], r.invalid, r.verified) for r in readings], log
        # A host that no line names, or two that fit, leave open where the number ends.
        for hosts in (("node7", "node8"), ("8dcf168f605", "38dcf168f605")):
            with pytest.raises(BadFile, match=message):
                take(named(log, *hosts))


def test_the_user_tells_how_many_took_part_where_lines_of_ranks_are_missing(text, take):
    # Eight of rank 0 to 7, named as somebody shortens a page: ranks 0, 1 and 7.
    log = text("a100-all_reduce.log")
    ranks = re.findall(r"(?m)^# +Rank .*\n", log)
    shortened = log.replace("".join(ranks[2:7]), "#  ...\n" * 5)
    assert len(ranks) == 8
    (whole,), (entry,) = take(log), take(shortened, devices=8)
    assert whole.readings == entry.readings
    assert entry.notes[0] == (
        "3 of 8 ranks are named; the number of devices was given, product and nodes are from the log"
    )
    for devices in (None, 3, 7):
        with pytest.raises(
            BadFile,
            match="are missing below rank 7; give the number behind the tool: --read=nccl-tests,devices=8",
        ):
            take(shortened, devices=devices)
    # More than the highest that is named: then the bus bandwidth is that of other ranks.
    with pytest.raises(BadFile, match=r"expected 1\.875 times"):
        take(shortened, devices=16, operation="all_reduce")


def test_groups_of_a_split_job_count_their_own_ranks(text, one):
    # NCCL_TESTS_SPLIT: four ranks, two groups of two; the factor is that of two ranks.
    log = text("gb10-two-nodes-all_gather.log")
    ranks = re.findall(r"^#  Rank .*\n", log, re.MULTILINE)
    more = "".join(
        rank.replace(f"Rank  {index} Group  0", f"Rank  {index + 2} Group  1")
        for index, rank in enumerate(ranks)
    )
    readings = one(log.replace(ranks[-1], ranks[-1] + more))
    reading = next(iter(readings.values()))
    assert (reading.devices, reading.key.parameters["groups"]) == (4, 2)
    assert reading.work.busbw_bytes * 2 == reading.work.algbw_bytes


COLUMNS = """# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#  Rank  0 Group  0 Pid 1425048 on        lab device  0 [0000:02:00] NVIDIA GeForce RTX 5090
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
    33554432       8388608     float     sum      -1    34.55  971.32    0.00       0     0.10  348075    0.00       0
   134217728      33554432     float     sum      -1   176.33  761.18    0.00       0     0.10   1e+06    0.00       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0
#
# Collective test concluded: all_reduce_perf
"""


def test_among_one_rank_there_is_an_algorithm_bandwidth_only(one):
    # Rows as nccl-tests prints numbers too large for its columns: docs of the repository nccl-eBPF.
    reading = one(COLUMNS)["nccl_tests.all_reduce[128MiB-fp32-sum-in_place].mean"]
    assert (reading.key.metric, reading.work) == ("algbw_GBps", Work(algbw_bytes=134217728))


def test_times_of_single_iterations_and_a_timestamp_may_stand_behind(text, one):
    # Columns of -I 1 and -S 1: src/util.cu of nccl-tests 2.19.
    log = text("gb10-two-nodes-all_gather.log")
    log = log.replace("#wrong", "#wrong   i_min   i_max   i_p99   i_cv%").replace(
        "(GB/s)  (GB/s)  ", "(GB/s)  (GB/s)  (us) (us) (us) (%) "
    )
    log = re.sub(
        r"(?m)^( +\d+ +\d+ .*) 0  (.*) 0$",
        r"\1 0 1.00 2.00 2.00 3.10  \2 0 1.00 2.00 2.00 3.10",
        log,
    )
    stamped = re.sub(r"(?m)^( +\d+ +\d+ .*)$", r"\1  2026-01-02 10:00:00", log)
    stamped = re.sub(r"(?m)^(#  +size .*)$", r"\1 timestamp", stamped)
    stamped = re.sub(r"(?m)^(#  +\(B\) .*)$", r"\1 %Y-%m-%d %H:%M:%S", stamped)
    expected = one(text("gb10-two-nodes-all_gather.log"))
    for changed in (log, stamped):
        assert seconds(one(changed)) == seconds(expected)


def change(old, new):
    return lambda log: log.replace(old, new)


REFUSED = (
    (
        lambda log: log[: log.index("33554432       8388608") + 30],
        "a run ended before its 'Avg bus bandwidth' .rows read: 50.; expected the whole output",
    ),
    (
        lambda log: log[: log.index("    33554432")],
        "file: a run ended before its 'Avg bus bandwidth'",
    ),
    (change("134.44  235.26", "235.26"), "line 50: 11 columns; expected 12"),
    (change("134.44", "fast!!"), "line 50: 'fast!!' is not a number, zero or more"),
    (change("63896", "0.000"), "line 50: algbw is 134.44 GB/s, but the time is 0 us"),
    (change("134.44", "١٣٤.٤٤"), "line 50: '١٣٤.٤٤' is not a number"),
    (change("63896", "1e999"), "line 50: '1e999' is not a number"),
    (
        change("134.44  235.26", "235.26  134.44"),
        "line 50: busbw is 134.44 GB/s; expected 1.75 times 235.26",
    ),
    (
        change("2147483648   float", "2147483648  quarter"),
        "line 50: type 'quarter'; expected one of int8",
    ),
    (
        change("2147483648   float     sum", "2147483648   float     xor"),
        "line 50: reduction 'xor' for all_reduce; expected one",
    ),
    (change("(us)", "(ms)"), r"line 15: unknown units; expected \(B\)"),
    (
        lambda log: log.replace("busbw  error", "linkbw error", 1),
        "line 14: unknown columns",
    ),
    (
        change("    time   algbw", " cputime   algbw"),
        r"line 14: CPU time \(-C 1\) is not the time",
    ),
    (lambda log: "".join(cut(log, 13, 15)), "a row of numbers without a heading above it"),
    (lambda log: "".join(cut(log, 0, 1)), "no line '# nThread …' above the rows"),
    (
        lambda log: "".join(cut(log, 3, 11)),
        "no lines '# Rank …'; give the number behind the tool: --read=nccl-tests,devices=8",
    ),
    (change("Rank  3", "Rank  2"), "line 7: rank 2; expected rank 3"),
    (
        change("Rank  3", "Rank  0"),
        "line 7: a second rank 0: independent processes wrote into one log, .* MPI=1, or",
    ),
    (
        change("device  3 [0x00] A100-SXM4-40GB", "device  3 [0x00] Tesla T4"),
        "A100-SXM4-40GB and Tesla T4; expected",
    ),
    (lambda log: log.replace("# Out of", log + "# Out of"), "line 105: two logs are mixed"),
    (
        change("nThread 1 nGpus 8", "nThread 1 nGpus 3"),
        "8 ranks; expected a multiple of 1 threads with 3 GPUs each",
    ),
)


def cut(log, first, last):
    lines = log.splitlines(keepends=True)
    return lines[:first] + lines[last:]


def test_what_is_no_whole_log_of_known_columns_and_units_is_refused_with_its_line(text, take):
    whole = text("a100-all_reduce.log")
    for mutilate, message in REFUSED:
        assert mutilate(whole) != whole
        with pytest.raises(BadFile, match=message) as refused:
            take(mutilate(whole), "nccl-tests", operation="all_reduce")
        assert str(refused.value).startswith("file")
        assert "\n" not in str(refused.value)


def test_lines_that_would_mix_two_logs_or_lose_a_row_are_refused(text, take):
    # nccl-tests, issue 107: two processes that were built without MPI, each of them rank 0.
    head = "# nThread 1 nGpus 1 minBytes 1310720000 maxBytes 1310720000 step: 1048576(bytes) warmup iters: 5 "
    head += "iters: 20 validation: 1\n#\n# Using devices\n"
    log = text("a100-all_reduce.log")
    rows = log.split("\n", 16)[16]
    with pytest.raises(BadFile, match="line 57: two logs are mixed"):
        take(head + log + rows)
    for log, operation in (
        ("a100-all_reduce.log", "all_reduce"),
        ("gb10-two-nodes-all_gather.log", "all_gather"),
    ):
        lines = text(log).split("\n")
        rows = [at for at, line in enumerate(lines) if re.match(r" *\d+ +\d+ ", line)]
        at = rows[len(rows) // 2]
        lines[at] = f"worker:{lines[at]}"
        with pytest.raises(
            BadFile, match=f"line {at + 1}: a row with an unknown prefix; remove the prefix"
        ):
            take("\n".join(lines), operation=operation)
