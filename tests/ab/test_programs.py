"""Any program in turn: stubs print scripted figures, so that what is slower is certain, and no time counts."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import ANY

import pytest
from click.testing import CliRunner

from pytest_roofline.ab import side_process
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.cli.main import main
from pytest_roofline.processes import programs

from ..features import TAKEN_OUT
from .conftest import git, verdicts

DATA = Path(__file__).parents[1] / "exchange" / "data"
# `SLOW` is how slow a side is; each process draws its noise of 0.5 % by its number.
BEGINNING = """
import json, os, pathlib, random, sys
calls = pathlib.Path("calls")
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("." * (number + 1))
generator = random.Random(number)
slow = float(os.environ.get("SLOW", "1"))
def noisy(value):
    return value * (1 + generator.gauss(0, 0.005))
"""
BENCH = (
    BEGINNING
    + """
print("bench version 3.1 of today")
print(json.dumps({
    "cases": [{"name": "d2d", "rate": noisy(2200 / slow)}, {"name": "h2d", "rate": noisy(55)}],
    "p99": [noisy(31 * slow), noisy(31 * slow), noisy(31 * slow)],
}))
"""
)
# Without the packages of this environment, which take their time to be looked for.
BENCH_COMMAND = "{python} -I -S bench.py"
SLOWER = ("--seed=1", "--tolerance=5%", "var:SLOW=1", "var:SLOW=1.08")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which this process is, without a repository around it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ab(*words, status=0):
    """What `roofline ab` prints as JSON, or where it ends with nothing to tell on standard error; as it must end."""
    done = CliRunner().invoke(main, ["ab", "--json", *words], catch_exceptions=False)
    assert status == done.exit_code, done.output
    return json.loads(done.stdout) if done.stdout else done.stderr


def rows(report):
    """By label the row of each figure."""
    return {row["label"]: row for row in report["tests"]}


def test_a_figure_that_is_worse_is_red_in_its_own_terms(folder):
    (folder / "bench.py").write_text(BENCH)
    run = ("--run", BENCH_COMMAND, "--higher=GB/s=cases.*.rate", "--lower=ms=p99")
    report = ab("--name=one", "--markdown=comment.md", *SLOWER, *run, status=1)
    assert verdicts(report) == {
        "bench[d2d].GB/s": "REGRESSED",
        "bench.ms": "REGRESSED",
        "bench[h2d].GB/s": "PASSED",
    }
    rate, latency = rows(report)["bench[d2d].GB/s"], rows(report)["bench.ms"]
    assert [
        (row["metric"], row["unit"], row["time_s"], row["baseline_time_s"])
        for row in (rate, latency)
    ] == [("figure", "GB/s", None, None), ("figure", None, None, None)]
    assert (rate["baseline_value"], rate["value"]) == (
        pytest.approx(2200, rel=0.01),
        pytest.approx(2200 / 1.08, rel=0.01),
    )
    assert (rate["change"], latency["change"]) == (
        pytest.approx(1 / 1.08 - 1, abs=0.01),
        pytest.approx(0.08, abs=0.01),
    )
    assert rate["change_low"] < rate["change"] < rate["change_high"] < 0
    assert (rate["control_change"], latency["control_change"]) == (
        pytest.approx(0, abs=0.02),
        pytest.approx(0, abs=0.02),
    )
    assert report["sentence"] == "RED: 2 REGRESSED, 1 of 3 fast enough"
    comment = (folder / "comment.md").read_text()
    assert f"| {rate['change'] * 100:+.1f} % (" in comment


def test_a_run_is_kept_with_what_the_program_printed_and_its_identity(folder):
    (folder / "bench.py").write_text(BENCH)
    run = ("--run", BENCH_COMMAND, "--lower=p99", "--higher=cases.d2d.rate")
    ab("--name=one", *SLOWER, *run, status=1)
    base, new = (read_run(Path(".roofline", "runs", f"one-{side}.jsonl")) for side in "ab")
    assert base.header.command == (
        *("roofline", "ab", "var:SLOW=1", "var:SLOW=1.08", "--run", BENCH_COMMAND),
    )
    assert base.environment.software["version"] == "bench version 3.1 of today"
    assert len(base.environment.software["file bench.py"]) == 16
    # A list of numbers is samples of one process.
    assert {
        len(measurement.samples.seconds)
        for measurement in new.measurements
        if measurement.key.name == "p99"
    } == {3}
    assert {measurement.key.metric for measurement in new.measurements} == {"higher", "lower"}
    kept = sorted(Path(".roofline/ab/one").glob("001-*"))
    assert [path.suffix for path in kept] == [".jsonl", ".stderr", ".stdout"]
    assert "bench version 3.1" in kept[-1].read_text()
    explained = CliRunner().invoke(main, ["explain", "one-b", "rate"], catch_exceptions=False)
    assert "difference -7" in explained.output
    assert "is this worse than the tolerance? -7" in explained.output
    compared = CliRunner().invoke(main, ["compare", "one-a", "one-b"], catch_exceptions=False)
    row = next(line for line in compared.output.splitlines() if line.startswith("bench.rate"))
    assert " -7" in row
    if "exchange" not in TAKEN_OUT:
        # A dashboard takes times.
        exported = CliRunner().invoke(main, ["export", "one-b", "--to=bencher"])
        assert exported.exit_code == 2
        assert "the measurement is a figure, not a time" in exported.output


def test_an_undecided_rate_says_what_it_may_be_in_its_own_terms(folder):
    (folder / "bench.py").write_text(BENCH)
    run = ("--run", BENCH_COMMAND, "--higher=cases.d2d.rate", "--processes=4")
    report = ab(*SLOWER, *run, status=2)
    (row,) = report["tests"]
    assert row["verdict"] == "INCONCLUSIVE"
    assert row["reason"].startswith("looks worse (-7."), row["reason"]
    assert "4 processes a side are too few to turn any test red" in report["notes"][0]


def test_without_a_figure_the_time_of_the_command_is_judged(folder, monkeypatch):
    ticks = iter(range(1000))
    # Two ticks a command, one before and one after.
    monkeypatch.setattr(programs, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * 1.0))
    report = ab(".", ".", "--run", "true")
    (row,) = report["tests"]
    assert (row["label"], row["verdict"], row["metric"]) == ("true", "PASSED", "time")
    assert (row["value"], row["unit"], row["counting"]) == (1.0, "s", "job_wall_s")


def test_a_side_has_its_interpreter_folder_variables_and_caches(repository):
    stub = (
        "import json, os, shutil, sys\n"
        "facts = [shutil.which('python'), os.getcwd(), os.environ['TRITON_CACHE_DIR'], *sys.argv[2:]]\n"
        "open(sys.argv[1], 'w').write(json.dumps({'x': 1, 'facts': facts, 'code': open('code.py').read()}))\n"
    )
    (repository / "stub.py").write_text(stub)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "stub")
    (repository / "code.py").write_text("changed")
    report = ab(
        "--name=one", "HEAD", ".", "--run", "{python} stub.py {out} {folder} code.py", "--higher=x"
    )
    assert verdicts(report) == {"stub.x": "PASSED"}
    facts = {
        arm: json.loads(next(Path(".roofline/ab/one").glob(f"*-{arm}-0.out")).read_text())
        for arm in "AB"
    }
    assert {arm: side["code"] for arm, side in facts.items()} == {"A": "new", "B": "changed"}
    for side in facts.values():
        python, cwd, _, *arguments = side["facts"]
        assert python == str(Path(sys.executable).with_name("python"))
        assert arguments == [cwd, "code.py"]
    assert facts["B"]["facts"][1] == str(repository)
    # The files that a command names are part of its identity.
    assert [change.split()[:2] for change in report["changed"]] == [
        ["code", ANY],
        ["file", "code.py"],
    ]
    assert facts["A"]["facts"][2] != facts["B"]["facts"][2]


def test_a_side_needs_no_plugin_in_its_environment(folder):
    python = folder / "bare"
    # Without the packages of this environment.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    (folder / "stub.py").write_text("print('{\"x\": 1}')")
    report = ab(f"python:{python}", ".", "--run", "{python} -I -S stub.py", "--higher=x")
    assert verdicts(report) == {"stub.x": "PASSED"}
    assert "cannot import pytest_roofline" in ab(f"python:{python}", ".", "--", "x", status=2)


def test_the_program_of_a_side_s_own_folder_is_part_of_its_identity(repository):
    tool = repository / "tool"
    tool.write_text("#!/bin/sh\necho '{\"x\": 1}'\n")
    tool.chmod(0o755)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "tool")
    run = ("HEAD", ".", "--processes=2", "--run", "./tool", "--higher=x")
    # A first line names the interpreter, which may lie in a temporary environment of the side.
    tool.write_text(tool.read_text().replace("/bin/sh", "/usr/bin/env sh"))
    changes = ab(*run, status=0)["changed"]
    assert [change.split()[0] for change in changes] == ["code"]
    tool.write_text(tool.read_text() + "# changed\n")
    changes = ab(*run, status=0)["changed"]
    assert [change.split()[:2] for change in changes] == [["code", ANY], ["file", "tool"]]


def test_two_commands_are_two_sides(folder):
    (folder / "bench.py").write_text(BENCH)
    (folder / "other.py").write_text(
        BENCH.replace("2200", "2000").replace("version 3.1 of today", "4.5.6")
    )
    report = ab(
        *("--seed=1", "--tolerance=5%", f"cmd:{BENCH_COMMAND}", "cmd:{python} -I -S other.py"),
        *("--higher=cases.d2d.rate", "--name=one"),
        status=1,
    )
    assert verdicts(report) == {"command.rate": "REGRESSED"}
    command = read_run(Path(".roofline/runs/one-b.jsonl")).header.command
    assert "version bench version 3.1 of today → bench 4.5.6" in report["changed"]
    assert command == ("roofline", "ab", f"cmd:{BENCH_COMMAND}", "cmd:{python} -I -S other.py")


def test_no_shell_reads_a_command_unless_it_is_asked_for(folder):
    (folder / "stub.py").write_text("import json, sys; print(json.dumps({'x': len(sys.argv)}))")
    command = "{python} stub.py a | tail -n 1"
    assert rows(ab(".", ".", "--run", command, "--higher=x"))["stub.x"]["value"] == pytest.approx(6)
    report = ab(".", ".", "--shell", "--run", command, "--higher=x")
    assert rows(report)["stub.x"]["value"] == pytest.approx(2)


def test_each_process_is_prepared_and_cleaned_up_also_one_that_fails(folder):
    (folder / "stub.py").write_text(
        BENCH.replace("print(json", "print('run', file=open('log', 'a')); print(json")
    )
    report = ab(
        *(".", ".", "--run", "{python} -I -S stub.py", "--higher=cases.d2d.rate", "--shell"),
        *("--prepare", "echo before >> log", "--cleanup", "echo after >> log"),
    )
    steps = (folder / "log").read_text().split()
    # One of each side warms up.
    assert len(steps) == 3 * (2 + sum(report["processes"].values()))
    assert steps == ["before", "run", "after"] * (len(steps) // 3)
    (folder / "log").unlink()
    message = ab(
        ".", ".", "--shell", "--run", "exit 4 # it's 4", "--cleanup", "echo after >> log", status=2
    )
    assert "the command gave no figure on A (.): the program ended with exit code 4" in message
    assert (folder / "log").read_text() == "after\n"
    for option in ("--prepare", "--cleanup"):
        message = ab(".", ".", "--run", "true", option, "false", status=2)
        assert f"the {option} command ended with exit code 1" in message


FAILING = "echo one; echo two; echo three >&2; echo four >&2; exit 3"


def test_a_program_that_fails_on_b_alone_is_failed_with_its_last_lines(folder):
    (folder / "a.sh").write_text('echo \'{"x": 1, "y": 2}\'')
    (folder / "b.sh").write_text(FAILING)
    report = ab("cmd:sh a.sh", "cmd:sh b.sh", "--higher=x", "--lower=y", status=1)
    assert verdicts(report) == {"command.x": "FAILED", "command.y": "FAILED"}
    reasons = {row["reason"] for row in report["tests"]}
    assert reasons == {"B: the program ended with exit code 3: two | three | four"}
    message = ab("cmd:sh b.sh", "cmd:sh a.sh", "--higher=x", status=2)
    assert (
        "no figure on A (cmd:sh b.sh): the program ended with exit code 3: two | three | four"
        in message
    )


def test_a_program_that_fails_later_is_failed_as_well(folder):
    late = BENCH + "\nif slow > 1 and number > 6:\n    sys.exit('out of memory')\n"
    (folder / "bench.py").write_text(late)
    report = ab(*SLOWER, "--run", BENCH_COMMAND, "--higher=cases.d2d.rate", status=1)
    assert verdicts(report) == {"bench.rate": "FAILED"}
    assert "the program ended with exit code 1: " in report["tests"][0]["reason"]
    assert report["tests"][0]["reason"].endswith("| out of memory")


@pytest.mark.feature("exchange")
@pytest.mark.parametrize(
    ("printed", "options", "reason"),
    [
        ('{"x": 1}', ("--higher=y",), "'y' leads to no figure; expected one of x"),
        ('{"x": 0}', ("--higher=x",), "x is 0; expected a number above zero"),
        ('{"x": -1}', ("--lower=x",), "x is -1; expected a number above zero"),
        ('{"x": NaN}', ("--lower=x",), "x is nan; expected a number above zero"),
        ("", ("--lower=x",), "the program printed nothing; expected its figures"),
        ("hello", ("--read=nvbandwidth",), "sh stub.sh: the log has no table with rows"),
    ],
)
def test_what_is_no_figure_is_refused(folder, printed, options, reason):
    (folder / "stub.sh").write_text(f"cat <<'END'\n{printed}\nEND")
    assert reason in ab(".", ".", "--run", "sh stub.sh", *options, status=2)


def test_a_program_that_cannot_start_hangs_or_writes_no_file_says_so(folder):
    assert "the program could not start: nowhere: No such file" in ab(
        ".", ".", "--run", "nowhere", status=2
    )
    hanging = ab(".", ".", "--run", "tail -f /dev/null", "--timeout=0.1", status=2)
    assert "the program ran longer than 0.1 s and was killed" in hanging
    unwritten = ab(".", ".", "--run", "echo {out}", "--higher=x", status=2)
    assert "the program wrote no file {out}; expected its figures in that file" in unwritten


@pytest.mark.feature("exchange")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((".", ".", "--higher=x"), "no command is given for --higher; add --run 'COMMAND'"),
        ((".", ".", "--shell", "--timeout=1h"), "no command is given for --shell, --timeout; add"),
        ((".", ".", "--run", "true", "--", "-k", "x"), "a command was given together with arguments for pytest: -k x;"),
        (("cmd:true", "cmd:true", "--run", "true"), "--run was given together with a side cmd:COMMAND"),
        ((".", "cmd:true"), "sides '.' and 'cmd:true' cannot be compared; expected cmd:COMMAND on both"),
        (("cmd:", "cmd:"), "side 'cmd:' has nothing after 'cmd:'"),
        (("param:a=1", "param:a=2", "--run", "true"), "a side param:NAME=VALUE names a parameter of tests"),
        ((".", ".", "--run", "true", "--read=xml"), "--read is 'xml'; expected one of json, csv, regex, nccl-tests"),
        ((".", ".", "--run", "true", "--read=osu,devices=x"), "--read has devices='x'; expected a whole number"),
        ((".", ".", "--run", "true", "--read=osu,devices=0"), "--read: devices is 0; expected a number from 1"),
        ((".", ".", "--run", "true", "--read=osu,link=rope"), "--read: link is 'rope'; expected one of nvlink, "),
        ((".", ".", "--run", "true", "--read=osu,hosts=2"), "--read has 'hosts=2' after 'osu'; expected the name"),
        ((".", ".", "--run", "true", "--read=json,link=pcie", "--lower=x"), "--read has 'link=pcie' after 'json'"),
        ((".", ".", "--run", "true", "--read=csv"), "--read=csv was given without a figure; add --higher or --lower"),
        ((".", ".", "--run", "true", "--read=osu", "--lower=x"), "--read=osu takes the tool's own figures"),
        ((".", ".", "--run", "true", "--lower="), "--lower is ''; expected PATH or NAME=PATH"),
        ((".", ".", "--run", "true", "--timeout=soon"), "--timeout is 'soon'; expected a duration"),
        ((".", ".", "--run", "echo 'a"), "cannot be split into words (No closing quotation)"),
        ((".", ".", "--run", " "), "the command is empty; expected a program"),
        (("--resume=x", "--run", "true"), "--resume was given together with --run"),
    ],
)  # fmt: skip
def test_options_that_contradict_are_refused(folder, words, reason):
    assert reason in ab(*words, status=2)


def test_a_name_that_no_file_can_have_is_refused_before_it_is_looked_for(folder):
    (folder / ".roofline" / "runs").mkdir(parents=True)
    for name in ("a" * 300, ""):
        refused = ab(".", ".", "--run", "true", f"--name={name}", status=2)
        assert f"--name is '{name}'; expected up to 120 letters" in refused


def test_an_interrupted_run_goes_on_with_its_own_command(folder, monkeypatch):
    (folder / "bench.py").write_text(BENCH)
    run, numbers = side_process.run_program, []

    def interrupted(*arguments):
        numbers.append(len(numbers))
        if len(numbers) == 9:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(side_process, "run_program", interrupted)
    options = ("--run", BENCH_COMMAND, "--higher=cases.*.rate")
    report = ab("--name=one", *SLOWER, *options, status=2)
    assert report["interrupted"]
    monkeypatch.setattr(side_process, "run_program", run)
    report = ab("--resume=one", status=1)
    assert verdicts(report) == {"bench[d2d].rate": "REGRESSED", "bench[h2d].rate": "PASSED"}


def test_a_budget_starts_no_further_block(folder):
    (folder / "bench.py").write_text(BENCH)
    run = ("--run", BENCH_COMMAND, "--higher=cases.d2d.rate", "--budget=0.001")
    report = ab(*SLOWER, *run, status=2)
    assert report["processes"]["B"] == 2


@pytest.mark.feature("exchange")
@pytest.mark.parametrize(
    ("file", "form", "count", "metric"),
    [
        ("mi300x-babelstream.csv", "babelstream", 15, "figure"),
        ("cofc-osu-bibw.log", "osu", 23, "figure"),
        ("abci-osu-allreduce.mpi", "osu,devices=4", 21, "time"),
        ("a100-all_gather.log", "nccl-tests,operation=all_gather", 6, "figure"),
        ("pytest-benchmark-storage-0030.json", "pytest-benchmark", 1, "time"),
        ("gv100-nvbench.json", "nvbench,product=Quadro GV100", 2, "figure"),
        ("google-benchmark.json", "google-benchmark", 10, "time"),
        ("vector-add-performance.csv", "triton", 24, "figure"),
    ],
)
def test_a_tool_is_read_as_import_reads_it(folder, file, form, count, metric):
    report = ab(".", ".", "--processes=2", f"--run=cat {DATA / file}", f"--read={form}")
    assert (len(report["tests"]), {row["metric"] for row in report["tests"]}) == (count, {metric})


@pytest.mark.feature("exchange")
def test_the_collective_of_a_log_may_stand_in_the_command(folder):
    (folder / "all_gather_perf").symlink_to(shutil.which("cat"))
    report = ab(
        *(".", ".", "--processes=2", "--read=nccl-tests"),
        f"--run=./all_gather_perf {DATA / 'a100-all_gather.log'}",
    )
    assert {row["benchmark"] for row in report["tests"]} == {"nccl_tests.all_gather"}


NVBANDWIDTH = f"""
document = json.loads(pathlib.Path({str(DATA / "readme-nvbandwidth.json")!r}).read_text())
run = document["nvbandwidth"]
run["testcases"] = run["testcases"][:1]
matrix = run["testcases"][0]["bandwidth_matrix"]
matrix[0] = ["%.2f" % noisy(float(cell) / slow) for cell in matrix[0]]
print(json.dumps(document))
"""
# The size with its two measurements, out of place and in place.
NCCL_TESTS = f"""
for line in pathlib.Path({str(DATA / "mi300x-all_reduce.log")!r}).read_text().splitlines():
    words = line.split()
    if words and words[0].isdigit():
        if words[0] != "67108864":
            continue
        for place in (5, 9):
            time_us = noisy(float(words[place]) * slow)
            rate = int(words[0]) / time_us / 1e3
            words[place : place + 3] = "%.1f" % time_us, "%.2f" % rate, "%.2f" % (rate * 1.75)
        line = " ".join(words)
    print(line)
"""
VLLM = """
print("INFO: starting the benchmark")
print(json.dumps({"model_id": "llama", "output_throughput": noisy(2213 / slow), "p99_ttft_ms": noisy(31 * slow)}))
"""
NVBENCH = """
value = {"name": "value", "type": "float64", "value": str(noisy(1.9e-05 * slow))}
summaries = [{"tag": "nv/cold/time/gpu/mean", "name": "GPU Time", "data": [value]},
             {"tag": "nv/cold/sample_size", "name": "Samples", "data": [{"name": "value", "value": "64"}]}]
axes = [{"name": "N", "type": "int64", "value": "20"}]
state = {"name": "Device=0 N=20", "device": 0, "axis_values": axes, "summaries": summaries}
print(json.dumps({"devices": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
                  "benchmarks": [{"name": "copy", "states": [state]}]}))
"""
TRITONBENCH = """
print("x_val;eager-latency;triton-latency")
for size in (4096, 8192):
    print(f"({size}, {size});0.03;{noisy(size * 5e-6 * slow)}")
"""


@pytest.mark.feature("exchange")
@pytest.mark.parametrize(
    ("program", "options", "labels", "unit"),
    [
        (
            NVBANDWIDTH,
            ("--read=nvbandwidth",),
            [f"nvbandwidth.host_to_device_memcpy_ce[cpu0-{gpu}].median_or_mean" for gpu in range(8)],
            "B/s",
        ),
        (
            NCCL_TESTS,
            ("--read=nccl-tests",),
            [f"rccl_tests.all_reduce[64MiB-fp32-sum-{place}].mean" for place in ("in_place", "out_of_place")],
            "B/s",
        ),
        (VLLM, ("--higher=output_throughput", "--lower=p99_ttft_ms"),
         ["tool.output_throughput", "tool.p99_ttft_ms"], None),
        (
            NVBENCH,
            ("--read=nvbench",),
            ["nvbench.copy[20-0-cold].mean"],
            "s",
        ),
        (
            TRITONBENCH,
            ("--read=csv", "--lower=triton-latency"),
            [f"tool[({size}, {size})].triton-latency" for size in (4096, 8192)],
            None,
        ),
    ],
)  # fmt: skip
def test_what_a_known_tool_prints_is_decided_with_eight_a_side(
    folder, program, options, labels, unit
):
    """Nine logs against nine, 8 % slower with 0.5 % of noise, are undecided when each side is one session."""
    (folder / "tool.py").write_text(BEGINNING + program)
    report = ab(*SLOWER, "--run", "{python} -I -S tool.py", *options, status=1)
    assert verdicts(report) == dict.fromkeys(labels, "REGRESSED")
    assert report["processes"] == {"A": 8, "B": 8, "control": 1}
    assert {row["unit"] for row in report["tests"]} == {unit}
    for row in report["tests"]:
        worse = 0.08 if row["change"] > 0 else 1 / 1.08 - 1
        assert row["change"] == pytest.approx(worse, abs=0.015)


def test_a_name_that_no_file_can_hold_is_kept_by_its_escape(folder):
    (folder / "printed.json").write_text(r'{"r": {"\ud800a": {"x": 1}, "b": {"x": 2}}}')
    report = ab(".", ".", "--processes=2", "--run", "cat printed.json", "--higher=r.*.x")
    assert rows(report).keys() == {r"cat[\ud800a].x", "cat[b].x"}
