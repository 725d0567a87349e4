"""A program's own numbers in a test: stubs print scripted figures, so that what is worse is certain."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.plugin.rounds import Rounds
from pytest_roofline.processes import programs, system

from ..tools import require_tools
from ..waiting import until
from .conftest import texts
from .test_limits import shipped

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "exchange" / "data"
# Prints figures that are worse by `SLOW`, with a noise of half a percent that is the same for the same start.
STUB = """
import json, os, pathlib
calls = pathlib.Path("calls")
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("." * (number + 1))
slow = float(os.environ.get("SLOW", "1"))
noise = (1.0, 1.004, 0.996, 1.002, 0.998)[number % 5]
print("stub version 4.2 of today")
print(json.dumps({
    "results": [{"name": "llama", "rate": 900 * noise / slow}, {"name": "qwen", "rate": 400 * noise / slow}],
    "p99": 31 * noise * slow,
}))
"""
# Without the packages of this environment, which take their time to be looked for.
START = f"[{sys.executable!r}, '-I', '-S', 'stub.py']"
SERVE = f"""
def test_serve(roofline):
    figures = roofline.measure_command({START}, higher={{"tok/s": "results.*.rate"}}, lower={{"p99 (ms)": "p99"}})
    print([(each.name, round(each.value), each.unit, each.direction) for each in figures])
"""
TIMED = f"""
def test_start(roofline):
    roofline.measure_command({START})
"""
RECORD = ("--roofline-record", "-q")


@pytest.fixture
def desk(desk, monkeypatch):
    """A desk with the stub, on which a further process of pytest would be an error."""

    def refuse(_rounds, _number, test_ids, _deadline):
        assert test_ids == []

    monkeypatch.setattr(Rounds, "run", refuse)
    monkeypatch.delenv("SLOW", raising=False)
    (desk.path / "stub.py").write_text(STUB)
    return desk


@pytest.fixture
def serving(desk):
    """A desk with a baseline of the stub."""
    desk.suite(SERVE)
    result = desk.run(*RECORD)
    assert result.ret == 0, texts(result)
    return desk


def starts(desk):
    """How often the stub was started."""
    return len((desk.path / "calls").read_text())


def reds(result):
    """The message of each red figure, up to its tolerance."""
    matches = (re.match(r"(serve\..*REGRESSED), tolerance", line) for line in result.stdout.lines)
    return [match[1] for match in matches if match]


def test_a_recording_starts_the_program_ten_times_in_this_pytest(serving):
    assert starts(serving) == 10
    baseline = read_baseline(serving.path / "baselines" / "h100.json")
    entries = {entry.label: entry for entry in baseline.entries if not entry.is_canary}
    assert {label: (entry.metric, len(entry.medians)) for label, entry in entries.items()} == {
        "serve.tok/s[llama]": ("higher", 10),
        "serve.tok/s[qwen]": ("higher", 10),
        "serve.p99 (ms)": ("lower", 10),
    }
    (run,) = map(serving.saved, [path.stem for path in serving.run_paths()])
    assert [len({each.process for each in run.measurements if not each.key.is_canary})] == [10]
    assert {each.round for each in run.tested} == set(range(1, 11))


def test_an_unchanged_program_passes_a_gate_in_one_process(serving):
    result = serving.run("--roofline-ci")
    assert result.ret == 0, texts(result)
    assert starts(serving) == 11
    result.stdout.fnmatch_lines(["*test_serve PASSED 900 tok/s +0.0 % *; 31.0 ms *"])
    result.stdout.fnmatch_lines(["*serve.tok/s?llama? * 900 tok/s * PASSED"])


WORSE = [
    "serve.tok/s[llama]: -7.4 % (833 tok/s, baseline 900 tok/s) REGRESSED",
    "serve.tok/s[qwen]: -7.4 % (370 tok/s, baseline 400 tok/s) REGRESSED",
    "serve.p99 (ms): +8.0 % (33.5 ms, baseline 31.0 ms) REGRESSED",
]


def test_a_worse_figure_is_red_in_its_own_terms_whichever_way_is_better(serving, monkeypatch):
    monkeypatch.setenv("SLOW", "1.08")
    result = serving.run("--roofline-ci", "--roofline-report=out", "--junit-xml=junit.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, texts(result)
    assert reds(result) == WORSE
    assert starts(serving) == 15
    document = json.loads((serving.path / "out" / "run.json").read_text())
    rate, _, latency = document["results"]
    assert [(row["metric"], row["unit"], row["time_s"]) for row in (rate, latency)] == [
        ("figure", "tok/s", None),
        ("figure", "ms", None),
    ]
    assert (round(rate["value"]), round(rate["baseline_value"])) == (833, 900)
    assert rate["change_low"] < rate["change"] < rate["change_high"] < 0
    assert 0 < latency["change_low"] < latency["change"]
    page = (serving.path / "out" / "index.html").read_text()
    assert "833 tok/s" in page
    lines = (serving.path / "out" / "results.csv").read_text().splitlines()
    row = next(csv.DictReader(lines))
    assert (row["name"], row["unit"]) == ("tok/s[llama]", "tok/s")
    assert "-7.4 %" in (serving.path / "out" / "summary.md").read_text()
    junit = (serving.path / "junit.xml").read_text()
    assert re.search(r'name="roofline\.tok/s\[llama\]\.value" value="83\d\.\d+"', junit)
    assert 'name="roofline.p99 (ms).unit" value="ms"' in junit


def test_a_better_figure_is_improved(serving, monkeypatch):
    monkeypatch.setenv("SLOW", "0.8")
    result = serving.run("--roofline-ci")
    assert result.ret == 0, texts(result)
    result.stdout.fnmatch_lines(["serve.tok/s?llama? * +25.0 % * IMPROVED"])


def test_a_test_gets_the_figures_of_its_program(desk):
    desk.suite(SERVE)
    result = desk.run("-s", "-q")
    assert "900, 'tok/s', 'higher'), ('tok/s[qwen]', 400, 'tok/s', 'higher'), " in texts(result)
    assert "('p99 (ms)', 31, 'ms', 'lower')]" in texts(result)


def test_a_drill_makes_every_figure_worse(serving):
    result = serving.run("--roofline-drill=30%", "--roofline-ci")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, texts(result)
    assert [line.split(": ")[1].split()[0] for line in reds(result)] == ["-23.1", "-23.1", "+30.0"]


def test_a_comparison_of_runs_tells_figures_in_their_own_terms(serving, monkeypatch):
    (before,) = serving.run_paths()
    monkeypatch.setenv("SLOW", "1.08")
    serving.run("--roofline-save=slow", "--roofline-rounds=5")
    rows = json.loads(serving.cli("compare", before, "slow", "--json").stdout)
    assert {row["label"]: (row["verdict"], row["unit"], row["change"] < 0) for row in rows} == {
        "serve.tok/s[llama]": ("REGRESSED", "tok/s", True),
        "serve.tok/s[qwen]": ("REGRESSED", "tok/s", True),
        "serve.p99 (ms)": ("REGRESSED", "ms", False),
    }


BOTH = f"""
import pytest

@pytest.mark.parametrize("slow", ["1.0", "1.25"])
def test_both(roofline, slow):
    paths = {{"higher": {{"tok/s": "results.llama.rate"}}, "lower": {{"p99": "p99"}}}}
    roofline.measure_command({START}, env={{"SLOW": slow}}, **paths)
"""


def test_two_ways_in_one_run_are_told_in_their_own_terms(desk):
    desk.suite(BOTH)
    desk.run("--roofline-record", "--roofline-save=both", "-q")
    compared = desk.cli("compare", "both", "--by=slow", "--base=1.0")
    assert re.search(r"both\.tok/s +90\d tok/s +72\d tok/s +0\.80x", compared.stdout), (
        compared.stdout
    )
    assert re.search(r"both\.p99 +31\.\d +38\.\d +0\.80x", compared.stdout), compared.stdout


def test_without_a_figure_the_time_of_the_command_is_judged(desk, monkeypatch):
    ticks = iter(range(10**6))
    # Two ticks a command, one before and one after.
    monkeypatch.setattr(programs, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * 1.0))
    desk.suite(TIMED)
    assert desk.run(*RECORD).ret == 0
    (measurement, *_) = desk.last_run().tested
    assert (measurement.key.metric, measurement.median_s) == ("job_wall_s", 1.0)
    result = desk.run("--roofline-ci")
    assert result.ret == 0, texts(result)
    result.stdout.fnmatch_lines(["*test_start PASSED 1.00 s +0.0 % *"])


FAILING = """
import sys

def test_one(roofline):
    roofline.measure_command({command}, {options})
"""
SHELL = "['sh', '-c', {script!r}]"


@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [
        ("echo a; echo b; echo c; echo d >&2; exit 3", "", "sh: the program ended with exit code 3: b | c | d"),
        ("echo '{\"x\": 1}'", "lower={'y': 'y'}", "sh: 'y' leads to no figure; expected one of x"),
        ("echo '{\"x\": 0}'", "lower={'x': 'x'}", "sh: x is 0; expected a number above zero"),
        ("echo '{\"x\": -1}'", "higher={'x': 'x'}", "sh: x is -1; expected a number above zero"),
        ("echo '{\"x\": NaN}'", "lower={'x': 'x'}", "sh: x is nan; expected a number above zero"),
        pytest.param(
            "echo hello", "read='nvbandwidth'", "the log has no table with rows",
            marks=pytest.mark.feature("exchange"),
        ),
        ("tail -f /dev/null", "timeout=0.1", "sh: the program ran longer than 0.1 s and was killed"),
    ],
)  # fmt: skip
def test_a_program_that_gives_no_figure_fails_its_test_with_the_reason(
    desk, script, options, reason
):
    desk.suite(FAILING.format(command=SHELL.format(script=script), options=options))
    result = desk.run("-q")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, texts(result)
    (line,) = [line for line in result.stdout.lines if line.startswith("FAILED")]
    assert reason in line


def test_a_path_may_hold_the_sign_that_parts_a_name_from_it_on_a_command_line(desk):
    figures = "echo warm-up 3 rate=1; echo speed=7 rate=5"
    desk.suite(
        FAILING.format(
            command=SHELL.format(script=figures),
            options="read='regex', higher={'rate': r'speed=\\d+ rate=(\\d+)'}",
        )
    )
    desk.run("-q", "--roofline-save=one")
    (measurement,) = desk.last_run().measurements
    assert (measurement.key.name, round(1 / measurement.median_s, 6)) == ("rate", 5.0)


def test_a_program_that_is_not_there_fails_its_test(desk):
    desk.suite(FAILING.format(command="['nowhere', 'x']", options=""))
    assert "nowhere: the program could not start: nowhere: No such file" in texts(desk.run("-q"))


@pytest.mark.parametrize(
    ("command", "options", "reason"),
    [
        ("'true'", "", "command is 'true'; expected a list of words"),
        ("[]", "", "command is []; expected a list of words"),
        ("['true']", "read='xml'", "read is 'xml'; expected one of json, csv, regex, nccl-tests"),
        ("['true']", "read='csv'", "read=csv was given without a figure; add higher or lower"),
        (
            "['true']",
            "read='osu', lower={'x': 'x'}",
            "read=osu takes the tool's own figures; leave higher and lower out",
        ),
        (
            "['true']",
            "read='osu,hosts=2'",
            "read has 'hosts=2' after 'osu'; expected the name of a tool",
        ),
        pytest.param(
            "['true']",
            "read='osu,devices=0'",
            "read: devices is 0; expected a number from 1 to",
            marks=pytest.mark.feature("exchange"),
        ),
        pytest.param(
            "['true']",
            "read='osu,devices=8', ranks=4",
            "ranks is 4, but read says devices=8; give only one of them",
            marks=pytest.mark.feature("exchange"),
        ),
        ("['true']", "lower='x'", 'lower is \'x\'; expected {"NAME": "PATH"}'),
        ("['true']", "timeout=0", "timeout is 0; expected a number above zero"),
        ("['true']", "ranks=0", "ranks is 0; expected a whole number above zero"),
        ("['true']", "read='regex', lower={'x': '('}", "'(' is no regular expression"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(desk, command, options, reason):
    desk.suite(FAILING.format(command=command, options=options))
    assert reason in texts(desk.run("-q"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_program_starts_leaves_no_process(tmp_path, monkeypatch, number):
    started = []

    class Started(subprocess.Popen):
        """Interrupts its caller before that has the process."""

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self.pid)
            signal.raise_signal(number)

    handler = signal.signal(number, signal.default_int_handler)
    monkeypatch.setattr(subprocess, "Popen", Started)
    try:
        with pytest.raises(KeyboardInterrupt):
            programs.Printed(tmp_path / "one").run(
                ["tail", "-f", "/dev/null"], programs.Surroundings(tmp_path, os.environ)
            )
        assert signal.getsignal(number) is signal.default_int_handler
        (pid,) = started
        assert not Path("/proc", str(pid)).exists()
    finally:
        signal.signal(number, handler)
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_every_signal_that_was_held_reaches_its_handler_also_where_one_raises():
    numbers = (signal.SIGINT, signal.SIGTERM)
    received = []

    def raising(number, _):
        received.append(number)
        raise KeyboardInterrupt

    def start_nothing():
        with system.signals_held():
            for number in numbers:
                signal.raise_signal(number)
            assert received == []
            raise OSError

    before = {number: signal.signal(number, raising) for number in numbers}
    try:
        with pytest.raises(KeyboardInterrupt):
            start_nothing()
        assert received == list(numbers)
        assert [signal.getsignal(number) for number in numbers] == [raising, raising]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_late_program_ends_with_everything_that_it_started(desk):
    script = "setsid sh -c 'echo $$ > pid; exec tail -f /dev/null' & wait"
    desk.suite(FAILING.format(command=SHELL.format(script=script), options="timeout=5"))
    assert "and was killed" in texts(desk.run("-q"))
    pid = int((desk.path / "pid").read_text())
    status = Path(f"/proc/{pid}/status")
    # A container may have nobody who waits for it.
    assert until(lambda: not status.exists() or "Z (zombie)" in status.read_text(), 10)


def test_what_a_program_printed_and_its_identity_are_kept_with_the_run(serving, monkeypatch):
    printed = serving.path / ".roofline" / "printed"
    assert (printed / ".gitignore").read_text() == "*\n"
    folders = [path for path in printed.iterdir() if path.is_dir()]
    (path,) = serving.run_paths()
    assert [folder.name for folder in folders] == [path.stem]
    assert len(list(folders[0].glob("*.stdout"))) == 10
    assert "stub version 4.2" in (folders[0] / "001-serve.stdout").read_text()
    software = serving.last_run().environment.software
    assert software["version of stub"] == "stub version 4.2 of today"
    assert len(software["file stub.py"]) == 16
    (serving.path / "stub.py").write_text(STUB.replace("4.2", "4.3"))
    monkeypatch.setenv("SLOW", "1.08")
    assert "version of stub stub version 4.2 of today → stub version 4.3" in texts(
        serving.run("--roofline-ci")
    )


def test_a_file_is_read_in_place_of_the_output(desk):
    script = 'echo noise; echo \'{"x": 5}\' > "$1"'
    command = f"['sh', '-c', {script!r}, 'sh', '{{out}}']"
    desk.suite(FAILING.format(command=command, options="lower={'x': 'x'}"))
    assert desk.run("-q").ret == 0
    (measurement,) = desk.last_run().tested
    assert measurement.median_s == 5


FIXTURE = f"""
import pathlib
import pytest

@pytest.fixture(scope="session")
def server():
    path = pathlib.Path("up")
    path.write_text("x")
    yield path
    path.unlink()

def test_serve(roofline, server, tmp_path):
    (tmp_path / "made").write_text("x")
    assert server.exists()
    roofline.measure_command({START}, lower={{"p99": "p99"}})

def test_load(roofline, server):
    roofline.measure_command({START}, lower={{"p99": "p99"}})
"""


def test_a_further_round_has_the_fixtures_of_the_test(desk):
    desk.suite(FIXTURE)
    result = desk.run("--roofline-record", "-q")
    assert result.ret == 0, texts(result)
    assert not (desk.path / "up").exists()
    # Both tests of a round are of one process.
    assert starts(desk) == 20
    assert len({each.process for each in desk.last_run().tested}) == 10


def test_a_program_that_fails_in_a_later_round_fails_its_test(serving, monkeypatch):
    monkeypatch.setenv("SLOW", "1.08")
    late = STUB.replace("slow =", "if number == 12:\n    raise SystemExit('lost the card')\nslow =")
    (serving.path / "stub.py").write_text(late)
    result = serving.run("--roofline-ci")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    reason = "failed in round 3: stub: the program ended with exit code 1: lost the card"
    assert reason in texts(result)
    assert serving.last_run().outcomes[-1].outcome == "failed"


def test_time_that_is_spent_ends_the_rounds_of_programs(desk):
    desk.suite(SERVE)
    result = desk.run("--roofline-time=0.001s", "--roofline-record", "-q")
    assert "the time of --roofline-time ended after round 1" in texts(result)
    assert starts(desk) == 1


TOOL = """
def test_links(roofline):
    roofline.measure_command(["cat", {path!r}], read="nvbandwidth")

def test_other(roofline):
    roofline.measure_command(["echo", '{{"x": 5}}'], lower={{"x": "x"}})
"""


@pytest.fixture
def links(desk):
    """A desk whose program prints what nvbandwidth printed."""
    document = json.loads((DATA / "readme-nvbandwidth.json").read_text())
    # Copies from the host to each of eight devices.
    del document["nvbandwidth"]["testcases"][1:]
    (desk.path / "printed.json").write_text(json.dumps(document))
    desk.suite(TOOL.format(path="printed.json"))
    return desk


@pytest.mark.feature("exchange")
def test_the_figures_of_a_tool_have_the_keys_of_its_imported_logs(links):
    (links.path / "printed.json").write_bytes((DATA / "readme-nvbandwidth.json").read_bytes())
    assert links.run("-q", "-k", "links").ret == 0
    measured = {each.label: each for each in links.last_run().tested}
    assert links.cli("import", "printed.json", "-o", "imported.jsonl").exit_code == 0
    imported = {each.label: each for each in read_run(links.path / "imported.jsonl").measurements}
    assert measured.keys() == imported.keys()
    for label, each in measured.items():
        expected = imported[label]
        assert (each.key.parameters, each.key.metric) == (
            expected.key.parameters,
            expected.key.metric,
        )
        assert each.key.hardware.devices == expected.key.hardware.devices
        assert each.samples.seconds == expected.samples.seconds


@pytest.mark.feature("exchange")
def test_a_gate_misses_the_figures_of_a_tool_by_the_id_of_their_test(links):
    assert links.run("-q", "--roofline-record").ret == 0
    # What the command leaves out is not missed, and what it selects is.
    assert links.run("--roofline-ci", "-k", "other").ret == 0
    text = TOOL.format(path="printed.json")
    links.suite(text.replace("(roofline):", "(roofline):\n    return", 1))
    result = links.run("--roofline-ci")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "the test ran without this measurement" in texts(result)
    checked = links.cli("baseline", "check", "--prune", "--tests", str(links.path))
    assert "unused: 0 of 9 entries" in checked.output, checked.output
    # A figure of a program is no wrong entry.
    assert "nothing wrong in 9 entries" in checked.output, checked.output


@pytest.mark.feature("exchange")
def test_a_worse_rate_of_a_tool_is_red_as_a_rate(links):
    assert links.run("-q", "--roofline-record").ret == 0
    document = json.loads((links.path / "printed.json").read_text())
    case = document["nvbandwidth"]["testcases"][0]
    case["bandwidth_matrix"] = [
        [cell if cell == "N/A" else f"{float(cell) * 0.9:.4f}" for cell in row]
        for row in case["bandwidth_matrix"]
    ]
    (links.path / "printed.json").write_text(json.dumps(document))
    result = links.run("--roofline-ci")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, texts(result)
    assert re.search(r"nvbandwidth\.host_to_device\S* -10\.0 % \(\S+ GB/s, baseline", texts(result))


@pytest.mark.feature("exchange")
def test_a_figure_of_two_tests_is_refused(links):
    text = TOOL.format(path="printed.json")
    more = text.replace("test_links", "test_again").replace("test_other", "test_more")
    links.suite(f"{text}\n{more}")
    result = links.run("-q")
    assert "is a figure of test_suite.py::test_links already; give one of both tests a" in texts(
        result
    )


@pytest.mark.feature("exchange")
def test_a_test_that_failed_in_its_tool_fails_the_test(links):
    document = json.loads((links.path / "printed.json").read_text())
    document["nvbandwidth"]["testcases"][0] |= {"status": "Error", "error": "no peer access"}
    (links.path / "printed.json").write_text(json.dumps(document))
    result = links.run("-q", "-k", "links")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "no peer access" in texts(result)


@pytest.mark.feature("ranks")
def test_a_program_on_ranks_is_started_by_mpirun_and_has_their_number_in_its_key(desk):
    require_tools("mpirun")
    script = 'test "$OMPI_COMM_WORLD_RANK" = 1 && echo started >> ranks || echo "{\\"x\\": $OMPI_COMM_WORLD_SIZE}"'
    options = "higher={'GB/s': 'x'}, ranks=2"
    desk.suite(FAILING.format(command=SHELL.format(script=script), options=options))
    result = desk.run("-q")
    assert result.ret == 0, texts(result)
    (measurement,) = desk.last_run().tested
    assert (1 / measurement.median_s, measurement.key.hardware.devices) == (2, 2)
    assert (measurement.ranks.size, measurement.ranks.launcher) == (2, "mpirun")
    assert (desk.path / "ranks").read_text() == "started\n"


MEASURED = f"""
from pytest_roofline import Work

def test_both(roofline, busy):
    roofline.measure_command({START}, lower={{"p99": "p99"}})
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


def test_a_test_that_also_measures_a_function_has_further_rounds_in_processes(desk, monkeypatch):
    rounds = []
    monkeypatch.setattr(
        Rounds, "run", lambda _, number, test_ids, __: rounds.append((number, *test_ids))
    )
    desk.suite(MEASURED)
    desk.run("--roofline-record", "--roofline-rounds=5", "-q")
    assert rounds == [(number, "test_suite.py::test_both") for number in (2, 3, 4, 5)]
    assert starts(desk) == 1


@pytest.mark.feature("exchange")
def test_a_floor_that_ships_meets_the_rates_of_a_tool_on_the_first_day(links):
    """Of an H100, whose host link is twice as fast as the one that printed this."""
    floors = json.loads((ROOT / "baselines" / "h100.json").read_text())["entries"]
    host = [entry for entry in floors if entry["benchmark"].startswith("nvbandwidth.host")]
    shipped(links, *host)
    result = links.run("-k", "links")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, texts(result)
    assert re.search(r"nvbandwidth\.host_to_device_memcpy_ce\S* .* beyond the limit", texts(result))
