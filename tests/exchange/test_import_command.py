"""`roofline import` as a user types it."""

import gzip
import json
import os
import random
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.cli.main import main

DATA = Path(__file__).parent / "data"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the fixtures in it, where the command is called."""
    for file in DATA.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(here):
    return lambda *arguments, **more: CliRunner().invoke(
        main, [str(part) for part in arguments], **more
    )


@pytest.fixture
def slower(here):
    """The same log with the largest all_reduce half as fast again, as the tool would print it."""
    log = (here / "a100-all_reduce.log").read_text(encoding="utf-8")
    log = log.replace("63896  134.44  235.26", "95844   89.62  156.84").replace(
        "68.4048", "67.2516"
    )
    (here / "slower.log").write_text(log, encoding="utf-8")
    return here / "slower.log"


def test_an_imported_run_is_a_run(call, here):
    done = call("import", "a100-all_reduce.log", "--link", "nvlink-switch", "--save", "old")
    assert done.exit_code == 0, done.output
    run = read_run(here / ".roofline" / "runs" / "old.jsonl")
    assert (run.header.command, run.header.tool.split()[0]) == (
        ("roofline", "import", "a100-all_reduce.log"),
        "pytest-roofline",
    )
    environment = run.header.environment
    assert (environment.device.type, environment.device.product) == (
        "accelerator",
        "A100-SXM4-40GB",
    )
    assert (environment.device.driver, environment.host.cpu_model, environment.host.cores) == (
        None,
        "unknown",
        0,
    )
    assert environment.software["nccl-tests convention"].startswith("size is the tool's S; ")
    measurement = next(
        one for one in run.measurements if one.label.endswith("[8GiB-fp32-sum-out_of_place].mean")
    )
    hardware = measurement.key.hardware
    assert (hardware.product, hardware.memory, hardware.devices, hardware.link) == (
        "a100-sxm4",
        "40gb",
        8,
        "nvlink-switch",
    )
    assert (measurement.key.cache, measurement.key.timing, measurement.key.name) == (
        "warm",
        "pipelined",
        "mean",
    )
    assert (measurement.samples.labels, measurement.samples.mode, measurement.gate) == (
        ("imported",),
        "host",
        False,
    )
    assert measurement.busbw_GBps == pytest.approx(235.26, abs=0.01)
    assert (run.footer.measured, len(run.outcomes), run.not_passed) == (64, 64, {})
    # It is explained as one that nobody judged.
    told = call("explain", "old", "8GiB").output
    assert "no verdict: only `roofline compare` judges an imported run\n" in told
    assert ("failed" in told, "64.0 ms" in told) == (False, True)


def test_the_command_says_what_was_read_how_it_counts_and_what_was_left_out(call):
    done = call("import", "a100-all_reduce.log")
    assert re.search(r"nccl_tests\.all_reduce +busbw_GBps +mean +64\n", done.output)
    assert "left out: line 17, out_of_place: moves nothing\n" in done.output
    assert "how nccl-tests counts: size is the tool's S; for all_gather" in done.output
    assert "note: 64 of 64 readings do not say whether their data were checked" in done.output
    printed = json.loads(call("import", "mi300x-all_reduce.log", "--json").output)
    (file,) = printed["files"]
    assert (file["tool"], len(file["readings"]), file["readings"][0]["where"]) == (
        "rccl-tests",
        50,
        "line 17",
    )
    assert Path(printed["run"]).exists()
    done = call("import", "gb10-two-nodes-all_gather.log")
    assert "note: 'NVIDIA GB10' is an unknown product" in done.output
    done = call("import", "a6000-nvbandwidth.json")
    assert "note: the files do not name the product; give the name that" in done.output


def test_an_imported_run_has_no_baseline_and_fails_nothing(call, here):
    call("import", "a100-all_reduce.log", "--save", "theirs")
    done = call("report", "theirs", "-o", "out")
    assert done.exit_code == 0, done.output
    document = json.loads((here / "out" / "run.json").read_text(encoding="utf-8"))
    assert document["runs"][0]["sentence"] == "GREY: nothing was compared (64 NO BASELINE)"
    found = {(row["verdict"], row["outcome"], row["reason"]) for row in document["results"]}
    assert found == {("NO BASELINE", "passed", "")}


def test_imports_are_compared_and_proposed_like_runs(call, slower, here, make):
    call("import", "a100-all_reduce.log", "--save", "old")
    call("import", "slower.log", "--save", "new")
    done = call("compare", "old", "new")
    assert (done.exit_code, "looks 50 % slower; a red verdict needs" in done.output) == (
        2,
        True,
    ), done.output
    assert "--roofline-rounds" not in done.output
    assert "type: roofline ab A B --run 'COMMAND' --read TOOL" in done.stderr
    done = call("baseline", "propose", "old", "-o", "imported.json")
    assert (done.exit_code, "64 entries" in done.output) == (0, True)
    done = call("compare", "./imported.json", "new")
    assert (done.exit_code, "INCONCLUSIVE" in done.output) == (2, True), done.output
    # The same file is the same session, also under another name.
    call("import", "a100-all_reduce.log", "--save", "again")
    assert call("baseline", "propose", "old", "again", "-o", "twice.json").exit_code == 2
    assert not (here / "twice.json").exists()
    call("import", "a100-all_reduce.log", "a100-reduce.log", "--save", "both")
    for new in ("again", "new,both"):
        done = call("compare", "old", new)
        assert (done.exit_code, "is on both sides" in done.output) == (2, True), done.output
    # Nothing is shared with our own measurement of another name.
    call("import", "mi300x-babelstream.csv", "--product", "AMD Instinct MI300X", "--save", "theirs")
    hardware = read_run(here / ".roofline" / "runs" / "theirs.jsonl").measurements[0].key.hardware
    make.save(
        here / "ours.jsonl",
        make.measurement(0.001, key=make.key("stream_large", hardware=hardware)),
    )
    done = call("compare", "./ours.jsonl", "theirs")
    assert (done.exit_code, "share no measurement" in done.output) == (2, True)


def nccl_log(whole, draw):
    """A log of nccl-tests with one size, whose times are so many times as long."""
    lines = []
    for line in whole.splitlines():
        words = line.split()
        if words and words[0].isdigit():
            if words[0] != "67108864":
                continue
            for place in (5, 9):
                time_us = float(words[place]) * draw()
                rate = int(words[0]) / time_us / 1e3
                words[place : place + 3] = f"{time_us:.1f}", f"{rate:.2f}", f"{rate * 1.75:.2f}"
            line = " ".join(words)
        lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("slower_by", [0.046, 0.044])
def test_logs_that_leave_a_test_undecided_end_with_2_and_name_the_command_that_decides(
    call, here, slower_by
):
    """In turn the same numbers decide with eight a side: `test_programs.py` runs a stub that prints them."""
    whole = (here / "mi300x-all_reduce.log").read_text(encoding="utf-8")
    gauss = random.Random(1).gauss
    for side, mean in (("old", 1.0), ("new", 1 + slower_by)):
        for number in range(9):
            log = nccl_log(whole, lambda mean=mean: gauss(mean, 0.005))
            (here / f"{side}-{number}.log").write_text(log, encoding="utf-8")
        call("import", *here.glob(f"{side}-*.log"), "--save", side)
    done = call("compare", "old", "new", "--json")
    rows = json.loads(done.stdout)
    assert [("INCONCLUSIVE", 9)] * 2 == [(row["verdict"], row["processes"]) for row in rows]
    assert [pytest.approx(slower_by, abs=0.005)] * 2 == [row["change"] for row in rows]
    assert done.exit_code == 2
    assert "8 processes a side decide where the tool runs on both sides in turn" in done.stderr
    assert "type: roofline ab A B --run 'COMMAND' --read TOOL" in done.stderr


def test_what_the_tool_found_wrong_never_becomes_a_good_number(call, here):
    log = (here / "gb10-two-nodes-all_gather.log").read_text(encoding="utf-8")
    log = log.replace("22.14       0", "22.14      17").replace("0 OK", "1 FAILED")
    (here / "wrong.log").write_text(log, encoding="utf-8")
    done = call("import", "wrong.log", "--save", "wrong")
    assert (
        "INVALID nccl_tests.all_gather[4GiB-fp32-out_of_place-2].mean, line 14: 17 elements were wrong"
        in done.output
    )
    run = read_run(here / ".roofline" / "runs" / "wrong.jsonl")
    assert [outcome.reason for outcome in run.not_passed.values()] == [
        "17 elements were wrong in the tool's own check"
    ]
    proposed = call("baseline", "propose", "wrong", "-o", "w.json")
    assert "17 elements were wrong" in proposed.output
    assert "4GiB-fp32-out_of_place" not in (here / "w.json").read_text(encoding="utf-8")


FILES = (
    "a100-all_reduce.log", "gb10-two-nodes-all_gather.log", "mi300x-babelstream.csv", "readme-nvbandwidth.json",
    "pytest-benchmark-storage-0030.json",
)  # fmt: skip


def test_what_was_imported_proposed_and_approved_has_no_flaw(call):
    for number, file in enumerate(FILES):
        steps = [
            ("import", file, "--save", f"other{number}"),
            ("baseline", "propose", f"other{number}", "-o", f"other{number}.json"),
            ("baseline", "approve", f"other{number}.json", "--into", f"kept{number}"),
            ("baseline", "check", "--into", f"kept{number}", "--json"),
        ]
        done = [call(*step) for step in steps]
        assert [one.exit_code for one in done] == [0, 0, 0, 0], [one.output for one in done]
        assert json.loads(done[-1].stdout) == []


def test_a_rate_beyond_the_peak_is_invalid_as_it_is_live_and_becomes_no_baseline(call, here):
    # Times a hundred times too short, of an MI300X of 5.3 TB/s; and a bus bandwidth beyond PCIe.
    *head, names = (here / "mi300x-babelstream.csv").read_text(encoding="utf-8").splitlines()[:4]
    rows = ["Copy,50,268435456,8,4.256e+8,0.00100916e-2,0.00117e-2,0.00106e-2"]
    (here / "absurd.csv").write_text("\n".join([*head, names, *rows]) + "\n", encoding="utf-8")
    done = call("import", "absurd.csv", "--save", "absurd")
    assert done.exit_code == 0
    assert re.search(
        r"INVALID babelstream.copy.2GiB-fp64..best, line 5: 80\d\d% of the datasheet's peak",
        done.output,
    )
    run = read_run(here / ".roofline" / "runs" / "absurd.jsonl")
    assert len(run.not_passed) == 1
    assert {one.invalid.partition(" of ")[2][:20] for one in run.measurements} == {
        "the datasheet's peak"
    }
    assert call("baseline", "propose", "absurd", "-o", "absurd.json").exit_code == 2
    assert not (here / "absurd.json").exists()
    done = call(
        "import",
        "a100-all_reduce.log",
        "--product",
        "NVIDIA A100-SXM4-40GB",
        "--link",
        "pcie",
        "--save",
        "slow",
    )
    assert (done.exit_code, "expected the same" in done.output) == (2, True)
    log = (
        (here / "a100-all_reduce.log")
        .read_text(encoding="utf-8")
        .replace("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB")
    )
    (here / "linked.log").write_text(log, encoding="utf-8")
    beyond = [call("import", "linked.log", "--link", link, "--save", link).output.count("INVALID ")
              for link in ("nvlink-switch", "pcie")]  # fmt: skip
    assert beyond == [0, 20]


def test_files_of_one_machine_are_one_run_and_standard_input_is_read(call, here, text):
    done = call("import", "a100-all_reduce.log", "a100-reduce.log", "--save", "both")
    assert done.exit_code == 0, done.output
    run = read_run(here / ".roofline" / "runs" / "both.jsonl")
    assert len({measurement.process for measurement in run.measurements}) == 2
    done = call("import", "-", "--save", "piped", input=text("a100-all_reduce.log"))
    assert (done.exit_code, "standard input: nccl-tests" in done.output) == (0, True)


def test_the_key_has_the_product_that_the_user_tells_or_the_host(call, here):
    call(
        "import",
        "a6000-nvbandwidth.json",
        "--product",
        "NVIDIA H200",
        "--link",
        "pcie",
        "-o",
        "there/run.jsonl",
    )
    hardware = read_run(here / "there" / "run.jsonl").measurements[0].key.hardware
    assert (hardware.product, hardware.devices, hardware.link) == ("h200-sxm", 2, "pcie")
    call("import", "pytest-benchmark-storage-0030.json", "--save", "py")
    (measurement,) = read_run(here / ".roofline" / "runs" / "py.jsonl").measurements
    assert (measurement.key.hardware.product, measurement.key.hardware.partition) == (
        "x86-64",
        "unknown-cores",
    )
    assert (measurement.rate, measurement.derived()) == (None, {"median_s": measurement.median_s})


SERVE = """{{"results": [{{"name": "llama", "rate": {rate}}}, {{"name": "qwen", "rate": 400}}], "p99": [31, 32, 33]}}"""


def test_the_figures_of_any_program_are_imported_and_compared_in_their_own_terms(call, here):
    options = ("--higher", "tok/s=results.*.rate", "--lower", "p99", "--product", "A100-SXM4-40GB")
    for name, rate in (("old", 900), ("new", 450)):
        (here / f"{name}.json").write_text(SERVE.format(rate=rate))
        done = call("import", f"{name}.json", "--save", name, *options)
        assert done.exit_code == 0, done.output
    run = read_run(here / ".roofline" / "runs" / "old.jsonl")
    assert {
        measurement.label: (measurement.key.metric, measurement.samples.seconds)
        for measurement in run.measurements
    } == {
        "command[llama].tok/s": ("higher", (1 / 900,)),
        "command[qwen].tok/s": ("higher", (1 / 400,)),
        "command.p99": ("lower", (31.0, 32.0, 33.0)),
    }
    compared = json.loads(call("compare", "old", "new", "--json").stdout)
    assert {row["label"]: (row["unit"], row["change"]) for row in compared} == {
        "command[llama].tok/s": ("tok/s", pytest.approx(-0.5)),
        "command[qwen].tok/s": ("tok/s", 0.0),
        "command.p99": (None, 0.0),
    }


def test_two_files_of_equal_figures_are_two_measurements(call, here):
    for folder in ("old", "new"):
        (here / folder).mkdir()
        (here / folder / "out.json").write_text('{"rate": 900, "p99": 31}')
        path, name = f"{folder}/out.json", f"{folder}.jsonl"
        assert call("import", path, "-o", name, "--higher=rate").exit_code == 0
    (row,) = json.loads(call("compare", "old.jsonl", "new.jsonl", "--json").stdout)
    assert (row["label"], row["change"]) == ("command.rate", 0.0)
    both = call("import", "old/out.json", "new/out.json", "-o", "both.jsonl", "--higher=rate")
    assert (both.exit_code, "ignored" in both.output) == (0, False)
    processes = {each.process for each in read_run(here / "both.jsonl").measurements}
    assert len(processes) == 2


def test_one_file_of_figures_is_one_measurement_by_each_of_its_names(call, here):
    (here / "out.json").write_text('{"rate": 900, "p99": 31}')
    twice = call("import", "out.json", "./out.json", "-o", "old.jsonl", "--higher=rate")
    assert "note: ./out.json holds the same as out.json, and was ignored" in twice.output
    call("import", "./out.json", "-o", "new.jsonl", "--higher=rate", "--lower=p99")
    compared = call("compare", "old.jsonl", "new.jsonl")
    assert (compared.exit_code, "is on both sides" in compared.output) == (2, True)


def test_other_figures_of_a_file_are_another_run(call, here):
    (here / "out.json").write_text('{"rate": 900, "p99": 31}')
    for option in ("--higher=rate", "--lower=p99"):
        done = call("import", "out.json", option)
        assert done.exit_code == 0, done.output
    assert len(list((here / ".roofline" / "runs").glob("*.jsonl"))) == 2
    again = call("import", "out.json", "--lower=p99")
    assert "already holds this import" in again.output


@pytest.mark.parametrize(
    ("options", "printed", "label"),
    [
        (("--read=csv", "--higher=GB/s"), "N,GB/s\n1024,10\n2048,20\n", "command[2048].GB/s"),
        (
            ("--read=regex", r"--higher=GB/s=GPU (?P<gpu>\d): ([\d.]+)"),
            "GPU 0: 10 GB/s\nGPU 1: 20 GB/s\n",
            "command[1].GB/s",
        ),
    ],
)
def test_figures_are_imported_from_a_table_or_any_text(call, here, options, printed, label):
    (here / "printed.txt").write_text(printed)
    done = call("import", "printed.txt", "-o", "run.jsonl", "--devices=2", *options)
    assert done.exit_code == 0, done.output
    *_, measurement = read_run(here / "run.jsonl").measurements
    assert (measurement.label, measurement.key.hardware.devices, 1 / measurement.median_s) == (
        label,
        2,
        20,
    )


def test_a_long_line_of_a_program_is_read_as_ab_reads_it(call, here):
    text = json.dumps({"rate": 900, "trace": "x" * 300 * 2**10})
    (here / "printed.log").write_text(f"starting\n{text}\n")
    done = call("import", "printed.log", "-o", "run.jsonl", "--higher=rate")
    assert done.exit_code == 0, done.output
    (measurement,) = read_run(here / "run.jsonl").measurements
    assert 1 / measurement.median_s == pytest.approx(900)
    refused = call("import", "printed.log", "--read=nccl-tests")
    assert (refused.exit_code, "line 2: more than 256 KiB" in refused.output) == (2, True)


def test_cases_that_only_look_like_one_number_stay_apart(call, here):
    (here / "printed.txt").write_text("run 1: 10\nrun 1.0: 20\nrun 01: 30\nrun 0: 40\nrun 00: 50\n")
    options = ("--read=regex", r"--higher=rate=run (?P<run>\S+): (\d+)")
    done = call("import", "printed.txt", "-o", "run.jsonl", *options)
    assert done.exit_code == 0, done.output
    rates = {
        measurement.key.parameters["run"]: 1 / measurement.median_s
        for measurement in read_run(here / "run.jsonl").measurements
    }
    assert {1: 10, "1.0": 20, "01": 30, 0: 40, "00": 50} == rates


def test_what_the_user_says_of_a_log_may_stand_behind_the_tool(call, here):
    done = call(
        "import", "a100-all_gather.log", "-o", "run.jsonl", "--read=nccl-tests,operation=all_gather"
    )
    assert done.exit_code == 0, done.output
    benchmarks = {each.key.benchmark for each in read_run(here / "run.jsonl").measurements}
    assert benchmarks == {"nccl_tests.all_gather"}


LOG = "a100-all_reduce.log"
REFUSED = (
    (
        ["nowhere.log"],
        "nowhere.log cannot be read: No such file or directory; name a file that a tool wrote, or - for",
    ),
    (["."], ". cannot be read: Is a directory; name a file"),
    (
        [LOG, "mi300x-all_reduce.log"],
        "of 2 nodes (localhost, c42f4555f685); `roofline import FILES… --by node -o DIR` writes a run for each node",
    ),
    (
        [LOG, "a6000-nvbandwidth.json"],
        "a6000-nvbandwidth.json on an unknown product; import each product separately",
    ),
    (
        [LOG, "google-benchmark.json"],
        "google-benchmark.json on a CPU; import each product separately",
    ),
    (
        [LOG, "--begun", "yesterday"],
        "--begun is 'yesterday'; expected a date or time such as 2026-03-01",
    ),
    ([LOG, "--read", "imb"], "--read is 'imb'; expected one of json, csv, regex, nccl-tests, "),
    ([LOG, "--read", "csv"], "--read=csv was given without a figure; add --higher or --lower"),
    ([LOG, "--lower", "x"], "a100-all_reduce.log: the program printed no JSON; expected a line"),
    (
        ["google-benchmark.json", "--lower", "x"],
        "google-benchmark.json: 'x' leads to no figure; expected one of context.num_cpus, ",
    ),
    (
        [LOG, "--read", "nvbandwidth"],
        "a100-all_reduce.log: the log has no table with rows, or another program wrote",
    ),
    ([LOG, "--link", "string"], "--link is 'string'; expected one of nvlink, "),
    ([LOG, "--operation", "sort"], "--operation is 'sort'; expected one of"),
    (["mi300x-babelstream.csv", "--operation", "reduce"], "which measures no collectives; leave"),
    (
        ["mi300x-babelstream.csv", "--devices", "8"],
        "has readings of 1 devices, but devices=8 was given",
    ),
    ([LOG, "--devices", "0"], "--devices is 0; expected a number from 1 to 1000000"),
    (
        ["google-benchmark.json", "--lower", "context.num_cpus", "--unit", "ms"],
        "leave --unit out, and type the name: --lower 'NAME (ms)=PATH'",
    ),
    ([LOG, "--unit", "parsec"], "--unit is 'parsec'; expected one of GB/s, "),
    (
        [
            "a100-all_gather.log",
            "--operation",
            "all_reduce",
            "--read=nccl-tests,operation=all_gather",
        ],
        "--operation is 'all_reduce', but --read says operation=all_gather; give only one of them",
    ),
    (
        [LOG, "--devices", "8", "--read=nccl-tests,devices=4"],
        "--devices is 8, but --read says devices=4; give only one of them",
    ),
    ([LOG, "--product", " "], "--product is empty; expected a name as the driver"),
    ([LOG, "--product", "A\udcff"], "--product is 'A\\udcff'; expected printable text"),
    ([LOG, "--host", "a\x1b"], "--host is 'a\\x1b'; expected the printable name of a node"),
    ([LOG, "--save", "a", "-o", "a.jsonl"], "--save and -o both name the run"),
    ([LOG, "--save", "../up"], "--save is '../up'; expected up to 120 letters"),
    (
        [LOG, "-o", "run.json"],
        "run.json is not the name of a run file; expected one that ends in .jsonl",
    ),
)


def test_what_cannot_be_used_is_refused_and_nothing_is_written(call, here):
    before = sorted(here.rglob("*.json*"))
    for arguments, message in REFUSED:
        done = call("import", *arguments)
        assert (done.exit_code, message in done.output) == (2, True), done.output
        assert done.output.startswith("roofline: ")
    assert sorted(here.rglob("*.json*")) == before


def test_a_file_that_is_nothing_is_refused_in_a_sentence(call, here):
    cases = [
        (b"", "log is empty; expected the output of a tool"),
        (b"\n \n", "log is empty; expected the output of a tool"),
        ("# nThread".encode("utf-16"), "log, line 1: byte 0 is not UTF-8 text"),
        (
            gzip.compress(b"# nThread"),
            "log is compressed; unpack it first",
        ),
        (
            b"\n\nhello\n",
            "log, line 3: this file has no known format (tried: log of nccl-tests or rccl-tests, ",
        ),
        (b"[" * 100_000, "is nested too deeply; expected a file of pytest-roofline"),
        (
            b'{"nvbandwidth": ' + b"[" * 100_000,
            "is nested too deeply; expected a file of pytest-roofline",
        ),
    ]
    for content, message in cases:
        (here / "log").write_bytes(content)
        done = call("import", "log", *(["--read", "nvbandwidth"] if content[:1] == b"[" else []))
        assert (done.exit_code, message in done.output, "\x1b" in done.output) == (
            2,
            True,
            False,
        ), done.output
    assert not (here / ".roofline").exists()


def test_an_import_overwrites_nothing(call, here):
    (here / "kept.jsonl").write_text("mine", encoding="utf-8")
    done = call("import", "a100-all_reduce.log", "-o", "kept.jsonl")
    assert (done.exit_code, "kept.jsonl exists already" in done.output) == (2, True)
    assert (here / "kept.jsonl").read_text(encoding="utf-8") == "mine"
    call("import", "a100-all_reduce.log", "--save", "old")
    done = call("import", "a100-reduce.log", "--save", "old")
    assert (done.exit_code, "old.jsonl exists already; choose another name" in done.output) == (
        2,
        True,
    )


def test_the_same_log_imported_twice_is_the_same_run_and_said_so(call, here):
    shutil.copy(here / LOG, here / "copy.log")
    for arguments in (["--save", "old"], ["-o", "there.jsonl"], []):
        assert call("import", LOG, *arguments).exit_code == 0
        # Also under another name of the file.
        done = call("import", "copy.log", *arguments)
        assert (
            done.exit_code,
            "already holds this import, and was not changed\n" in done.output,
        ) == (0, True), done.output
    assert json.loads(call("import", LOG, "--json").output)["written"] is False
    # Told something else it is another run.
    done = call("import", LOG, "--save", "old", "--link", "pcie")
    assert (done.exit_code, "old.jsonl exists already" in done.output) == (2, True)
    done = call("import", LOG, "copy.log", LOG, "--save", "twice")
    assert (
        done.exit_code,
        f"note: copy.log holds the same as {LOG}, and was ignored\n" in done.output,
    ) == (0, True)
    run = read_run(here / ".roofline" / "runs" / "twice.jsonl")
    assert len({measurement.process for measurement in run.measurements}) == 1


def test_a_date_is_told_where_a_log_has_none(call, here):
    call("import", LOG, "--begun", "2026-03-01", "-o", "dated.jsonl")
    assert read_run(here / "dated.jsonl").header.started == "2026-03-01"
    # A file that tells its own keeps it.
    call("import", "pytest-benchmark-storage-0030.json", "--begun", "2026-03-01", "-o", "own.jsonl")
    assert read_run(here / "own.jsonl").header.started.startswith("2015-")


def test_logs_of_several_nodes_are_told_apart_by_the_node_that_is_told(call, here):
    log = "a100-babelstream.out"
    (here / "other.out").write_text((here / log).read_text() + "\nbye\n")
    for name, file, more in (("a", log, ["--host", "node1"]), ("b", "other.out", [])):
        assert call("import", file, "--save", name, *more).exit_code == 0
    hosts = [
        read_run(here / ".roofline" / "runs" / f"{name}.jsonl").header.environment.host.name
        for name in "ab"
    ]
    assert hosts == ["node1", "unknown"]
    # Each file has its column, whatever it is called.
    columns = call("compare", "--table", "a,b").output.splitlines()
    (values,) = [
        line.split()[1:] for line in columns if line.startswith("babelstream.copy[2GiB-fp64].mean")
    ]
    assert (len(values), len(set(values))) == (2, 1)


@pytest.mark.feature("many")
def test_a_fleet_without_nodes_is_told_how_to_import_its_logs(call, here):
    for name, options in (("a", ("--host", "node1")), ("b", ())):
        (here / f"{name}.out").write_text(
            f"{(here / 'a100-babelstream.out').read_text()}\n{name}\n"
        )
        assert call("import", f"{name}.out", "--save", name, *options).exit_code == 0
    done = call("fleet", "a", "b")
    assert (done.exit_code, "was found" in done.output) == (2, False)
    assert "logs of 1 run name no node; import these logs with --host NODE\n" in done.output


def test_a_pipe_and_what_is_too_long_are_refused_at_once(call, here):
    os.mkfifo(here / "pipe")
    (here / "line.log").write_bytes(b"# nThread 1\n" + b"x" * 300_000)
    with (here / "large.log").open("wb") as large:
        large.truncate(65 * 2**20)
    for name, message in (
        (
            "pipe",
            "pipe is a pipe or a device; name a file, or pass the content on standard input: -",
        ),
        (
            "line.log",
            "line.log, line 2: more than 256 KiB; expected shorter lines, as a tool prints them",
        ),
        (
            "large.log",
            "large.log has more than 64 MiB; name the output of one tool, without its debug lines",
        ),
    ):
        done = call("import", name)
        assert (done.exit_code, message in done.output) == (2, True), done.output


def test_a_run_that_ended_in_the_middle_is_imported_as_failed_beside_one_that_is_whole(
    call, here, text
):
    log = text(LOG)
    (here / "job.log").write_text(
        log[: log.index("#   Rank  1")] + "node1: Test failure common.cu:1\n" + log, "utf-8"
    )
    done = call("import", "job.log", "--save", "job")
    assert (
        done.exit_code,
        "FAILED nccl_tests.test: a run ended before its 'Avg" in done.output,
    ) == (0, True), done.output
    run = read_run(here / ".roofline" / "runs" / "job.jsonl")
    assert (len(run.measurements), list(run.not_passed)) == (64, ["job.log::nccl_tests.test"])
