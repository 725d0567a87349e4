"""`--roofline-record`: one run becomes the baselines of its hardware, and the next command is a gate."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.core.writing import lock_file
from pytest_roofline.engine.devices import cpu
from pytest_roofline.engine.quiet import CoreWatch
from pytest_roofline.plugin.rounds import Rounds

from .conftest import ONE, texts
from .test_limits import LARGE, entry, floor, shipped
from .test_out_of_memory import FIRST, SECOND, oom  # noqa: F401
from .test_peaks import GIB, Steps
from .test_siblings import APART, machine  # noqa: F401

RECORD = ("--roofline-record", "--roofline-rounds=5")
TWO = """
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

def test_first(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_second(roofline, busy):
    roofline.measure(lambda: busy(2e-3), work=WORK)
"""


IN_PROCESSES = Rounds.run


@pytest.fixture
def desk(desk, monkeypatch):
    """A desk whose further rounds repeat what the first process measured, without a process each."""

    def repeat(rounds, number, test_ids, _deadline):
        state = rounds._state
        for measurement in state.writer.read_back().measurements:
            if measurement.round == 1 and measurement.test_id in test_ids:
                state.record(replace(measurement, round=number, process=f"round {number}"))

    monkeypatch.setattr(Rounds, "run", repeat)
    return desk


def last_line(result):
    """Return the line that a recording ends with."""
    return next(line for line in reversed(result.stdout.lines) if line.startswith("RECORDED"))


def entries(desk, name="h100", folder="baselines"):
    """Return the entries of tests in a file of baselines, by their label."""
    baseline = read_baseline(desk.path / folder / f"{name}.json")
    return {entry.label: entry for entry in baseline.entries if not entry.is_canary}


def sessions(desk, label="one"):
    """Return how many processes each session of an entry has, the oldest first."""
    return [len(session.process_medians) for session in entries(desk)[label].sessions]


def begun(desk, hours):
    """Move every session of the baseline so many hours into the past."""
    path = desk.path / "baselines" / "h100.json"
    raw = json.loads(path.read_text())
    started = datetime.now(UTC) - timedelta(hours=hours)
    for each in raw["entries"]:
        for session in each["sessions"]:
            session["started"] = started.strftime("%Y-%m-%dT%H:%M:%SZ")
    path.write_text(json.dumps(raw))


def recorded(desk, *options):
    """Record the test of a millisecond, which ends with status 0."""
    desk.one()
    result = desk.run(*RECORD, *options)
    assert result.ret == 0, texts(result)
    return result


def test_a_recording_a_gate_and_a_slow_day_need_no_other_command(desk, monkeypatch):
    monkeypatch.setattr(Rounds, "run", IN_PROCESSES)
    desk.suite()
    result = desk.run("--roofline-record")
    assert result.ret == 0, texts(result)
    line = re.fullmatch(
        r"RECORDED 2 of 2 in baselines/h100\.json; finds slowdowns from (\d+) %, recordings of more days find smaller "
        r"ones\. Commit it\.",
        result.stdout.lines[-2],
    )
    assert line, result.stdout.lines[-2]
    assert [len(each.medians) for each in entries(desk).values()] == [10, 10]
    assert desk.run("--roofline-ci").ret == 0
    # What it foresees is found, and half of it is not.
    desk.script(slow=1 + 1.2 * int(line[1]) / 100)
    assert desk.run("--roofline-ci").ret == pytest.ExitCode.TESTS_FAILED
    desk.script(slow=1 + 0.3 * int(line[1]) / 100)
    assert desk.run("--roofline-ci").ret == 0


def test_the_run_is_saved_under_its_name_or_under_that_of_its_date(desk):
    recorded(desk)
    (path,) = desk.run_paths()
    assert re.fullmatch(r"record-\d{8}-\d{6}-\d{3}", path.stem)
    recorded(desk, "--roofline-save=mine")
    assert [each.round for each in desk.saved("mine").tested] == [1, 2, 3, 4, 5]


BESIDE = {
    "ci": (("--roofline-ci",), "--roofline-ci"),
    "shadow": (("--roofline-ci=shadow",), "--roofline-ci"),
    "drill": (("--roofline-drill=10%",), "--roofline-drill"),
    "profile": (("--roofline-profile=torch",), "--roofline-profile"),
    "pdb": (("--pdb",), "--pdb"),
    "reruns": (("--reruns=1",), "--reruns"),
    "-n": (("-n", "2", "-p", "no:rerunfailures"), "-n"),
}


@pytest.mark.parametrize(("options", "flag"), BESIDE.values(), ids=BESIDE)
def test_what_excludes_a_recording_is_refused_before_anything_is_measured(
    desk, sentence, options, flag
):
    desk.one()
    sentence(
        desk.run("--roofline-record", *options),
        "--roofline-record",
        f"together with {flag}",
        "Remove",
    )
    assert not (desk.path / "opened").exists()


def test_a_recording_against_a_run_and_beside_a_gate_of_the_ini_file_is_refused(desk, sentence):
    desk.one()
    desk.run("--roofline-save=before")
    against = desk.run("--roofline-record", "--roofline-against=before")
    sentence(against, "together with --roofline-against")
    desk.ini("roofline_ci = true")
    sentence(desk.run("--roofline-record"), "together with --roofline-ci of pytest.ini")
    assert desk.run(*RECORD, "-o", "roofline_ci=").ret == 0


def test_only_the_command_itself_asks_for_a_recording(desk, sentence):
    desk.one()
    desk.ini("addopts = --roofline-record")
    sentence(desk.run(), "pytest.ini: --roofline-record is set outside of the command", "Remove")
    # No ini value is read that pytest would know.
    desk.ini("roofline_record = true", "filterwarnings = ignore")
    assert desk.run().ret == 0
    assert not (desk.path / "baselines").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--roofline-record", "--roofline-rounds=4"), ("is 4", "expected 5 or more")),
        (("--roofline-accept-slower=why",), ("without --roofline-record", "Add --roofline-record")),
        (("--roofline-record", "--roofline-accept-slower= "), ("is empty", "expected a reason")),
    ],
)
def test_what_could_record_nothing_is_refused(desk, sentence, options, words):
    desk.one()
    sentence(desk.run(*options), *words)


def test_a_folder_that_takes_no_file_is_refused_before_anything_is_measured(desk, sentence):
    desk.one()
    (desk.path / "baselines").write_text("")
    sentence(desk.run("--roofline-record"), "baselines is not a directory; expected a directory")
    assert not (desk.path / "opened").exists()


def test_the_first_folder_of_baselines_that_is_named_takes_the_entries(desk):
    for name in ("site", "second", "baselines"):
        (desk.path / name).mkdir()
    result = recorded(desk, "--roofline-baselines=site", "--roofline-baselines=second")
    assert "RECORDED 1 of 1 in site/h100.json;" in last_line(result)
    assert [path.name for path in desk.path.glob("*/h100.json")] == ["h100.json"]
    assert list(entries(desk, folder="site")) == ["one"]


def test_a_file_that_another_process_changes_is_waited_for_and_then_left_alone(desk, monkeypatch):
    monkeypatch.setattr("pytest_roofline.core.writing.PATIENCE_S", 0.05)
    desk.one()
    with lock_file(desk.path / "baselines" / "h100.json"):
        result = desk.run(*RECORD)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "h100.json is being changed by another process" in texts(result)
    assert not (desk.path / "baselines" / "h100.json").exists()


def test_a_record_within_six_hours_adds_processes_to_its_session_and_a_later_one_is_a_session(desk):
    recorded(desk)
    begun(desk, 5)
    recorded(desk)
    assert sessions(desk) == [10]
    begun(desk, 7)
    recorded(desk)
    assert sessions(desk) == [10, 5]
    begun(desk, 30)
    assert "more days" in last_line(recorded(desk))


def test_three_days_find_less_than_one_and_ask_for_no_more(desk):
    first = last_line(recorded(desk))
    for _ in range(2):
        path = desk.path / "baselines" / "h100.json"
        raw = json.loads(path.read_text())
        for each in raw["entries"]:
            for session in each["sessions"]:
                day = datetime.fromisoformat(session["started"]) - timedelta(days=1)
                session["started"] = day.strftime("%Y-%m-%dT%H:%M:%SZ")
        path.write_text(json.dumps(raw))
        third = last_line(recorded(desk))
    assert sessions(desk) == [5, 5, 5]
    percents = [int(re.search(r"from (\d+) %", line)[1]) for line in (first, third)]
    assert percents[1] < percents[0]
    assert ("more days" in first, "more days" in third) == (True, False)


def test_what_is_surely_slower_stays_as_it_was_is_named_and_makes_the_status_1(desk):
    desk.suite(TWO)
    assert desk.run(*RECORD).ret == 0
    begun(desk, 48)
    before = entries(desk)
    desk.script(slow={"test_first": 1.5, "test_second": 1.0})
    result = desk.run(*RECORD)
    # No verdict turns a test of a recording red.
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "RECORDED 1 of 2 in baselines/h100.json" in last_line(result)
    (line,) = [line for line in result.stdout.lines if "earlier entry stays" in line]
    assert line.startswith("first takes +50.0 % time since ")
    assert "--roofline-accept-slower=REASON" in texts(result)
    after = entries(desk)
    assert after["first"] == before["first"]
    assert len(after["second"].sessions) == 2


def test_a_reason_takes_what_is_slower_and_stands_in_its_entry(desk):
    recorded(desk)
    begun(desk, 48)
    desk.script(slow=1.5)
    result = recorded(desk, "--roofline-accept-slower=safer rounding")
    assert last_line(result).startswith("RECORDED 1 of 1 ")
    (renewal,) = entries(desk)["one"].renewals
    assert (renewal.accepted_slower, renewal.reason) == (True, "safer rounding")
    assert sessions(desk) == [5]
    shown = desk.cli("baseline", "show", "one").output
    assert "accepted as slower: " in shown
    assert "(safer rounding)" in shown
    # The next gate holds what was accepted.
    assert desk.run("--roofline-ci").ret == 0


def test_what_creeps_in_steps_that_are_each_too_small_stays_as_it_was(desk):
    recorded(desk)
    statuses = []
    for step in range(1, 7):
        begun_by_a_day(desk)
        desk.script(slow=1.02**step)
        desk.one()
        statuses.append(desk.run(*RECORD).ret)
    assert statuses[0] == 0
    assert statuses[-1] == pytest.ExitCode.TESTS_FAILED
    assert entries(desk)["one"].renewals


def begun_by_a_day(desk):
    """Move every session and anchor of the baseline a day into the past."""
    path = desk.path / "baselines" / "h100.json"
    raw = json.loads(path.read_text())
    for each in raw["entries"]:
        for session in (*each["sessions"], *each.get("anchor", ())):
            day = datetime.fromisoformat(session["started"]) - timedelta(days=1)
            session["started"] = day.strftime("%Y-%m-%dT%H:%M:%SZ")
    path.write_text(json.dumps(raw))


@pytest.mark.parametrize(
    ("last", "counts", "processes"),
    [
        (4, "0 of 1: nothing was written", []),
        (5, "1 of 1 in baselines/h100.json, 5 of 10 processes count; ", [5]),
    ],
)
def test_ctrl_c_keeps_what_five_processes_and_half_of_the_rounds_have_measured(
    desk, monkeypatch, last, counts, processes
):
    run = Rounds.run

    def interrupted(self, number, *arguments):
        if number > last:
            raise KeyboardInterrupt
        run(self, number, *arguments)

    monkeypatch.setattr(Rounds, "run", interrupted)
    desk.one()
    result = desk.run("--roofline-record")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert last_line(result).startswith(f"RECORDED {counts}"), texts(result)
    written = (desk.path / "baselines").exists()
    assert (sessions(desk) if written else []) == processes


def test_a_test_with_too_few_sound_processes_is_named_and_the_others_are_recorded(
    desk, monkeypatch
):
    desk.suite(TWO)
    run = Rounds.run

    def lost(rounds, number, test_ids, deadline):
        run(rounds, number, [each for each in test_ids if number < 3 or "first" in each], deadline)

    monkeypatch.setattr(Rounds, "run", lost)
    result = desk.run(*RECORD)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert last_line(result).startswith("RECORDED 1 of 2 in ")
    assert "not recorded: second: 2 of 2 processes were sound; expected at least 5" in texts(result)
    assert list(entries(desk)) == ["first"]


def test_a_test_that_fails_for_itself_is_named_and_not_recorded(desk):
    desk.suite(TWO + "    assert busy is None, 'wrong'\n")
    result = desk.run(*RECORD)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert last_line(result).startswith("RECORDED 1 of 2 in ")
    assert list(entries(desk)) == ["first"]
    (line,) = [line for line in result.stdout.lines if line.startswith("not recorded: ")]
    assert "AssertionError: wrong" in line


def test_a_test_that_misses_a_limit_is_red_and_not_recorded(desk):
    desk.suite()
    shipped(desk, entry(2500, parameters={"size_bytes": 2**30}))
    result = desk.run(*RECORD)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=1)
    assert last_line(result).startswith("RECORDED 1 of 2 in ")
    measured = [each.label for each in entries(desk).values() if each.kind == "measured"]
    assert measured == ["copy[64MiB]"]


def test_a_test_below_a_floor_is_red_and_not_recorded(desk):
    desk.suite(LARGE)
    shipped(desk, floor(0.8))
    result = desk.run(*RECORD)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["copy[[]1GiB]: *BELOW FLOOR: observed 59.7 %*"])
    result.stdout.fnmatch_lines(["No baseline can be made of this run, after 1 of 5 rounds: *"])
    assert [each.kind for each in entries(desk).values()] == ["floor"]


def test_peaks_are_recorded_with_the_times_and_a_larger_one_stays_as_it_was(desk):
    steps = Steps(desk)
    assert steps.run(1, *RECORD).ret == 0
    assert steps.entry.peak_bytes == GIB
    result = steps.run(2, *RECORD)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (
        "step takes peak memory +100.0 % (2.00 GiB, baseline 1.00 GiB); the earlier entry stays"
        in texts(result)
    )
    assert steps.entry.peak_bytes == GIB
    assert steps.run(2, *RECORD, "--roofline-accept-slower=keeps more").ret == 0
    assert (steps.entry.peak_bytes, steps.entry.renewals[-1].reason) == (2 * GIB, "keeps more")


def test_siblings_and_an_expected_lack_of_memory_are_no_part_of_a_recording(oom, desk):  # noqa: F811
    result = oom.run(*RECORD, body=(SECOND,))
    assert result.ret == 0, texts(result)
    assert last_line(result).startswith("RECORDED 1 of 1 in ")
    assert list(entries(desk)) == ["next"]


def test_a_recording_of_siblings_alone_has_nothing_to_record(machine):  # noqa: F811
    result = machine(*APART, arguments=RECORD)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "no test measured anything that a baseline can hold" in texts(result)


def test_a_recording_of_which_nothing_is_fit_ends_after_its_first_process(desk, monkeypatch):
    busy = "other processes kept 1.6 of 2 cores busy during the measurement; run the test on a quiet machine"
    monkeypatch.setattr(CoreWatch, "disturbance", lambda _: busy)
    monkeypatch.setattr(cpu, "neighbours_now", lambda: "cc1 works")
    desk.one()
    result = desk.run("--roofline-record")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "No baseline can be made of this run, after 1 of 10 rounds: cc1 works" in texts(result)
    assert "run this again. To wait for a quiet machine, add --roofline-wait=10m" in texts(result)
    assert not (desk.path / "baselines").exists()


def test_a_recording_takes_tests_that_gate_and_others_alike(desk):
    desk.suite(ONE.format(marks="@pytest.mark.roofline(gate=True)") + TWO.partition("WORK)")[2])
    assert last_line(desk.run(*RECORD)).startswith("RECORDED 2 of 2 in ")


def test_only_looking_at_tests_records_nothing(desk):
    desk.one()
    assert desk.run("--roofline-record", "--collect-only").ret == 0
    assert not (desk.path / "baselines").exists()


def test_the_cure_of_a_gate_without_a_baseline_is_the_recording_and_is_told_once(desk):
    desk.one()
    result = desk.run("test_suite.py", "-k", "one", "--roofline-ci")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert texts(result).count("--roofline-record") == 1
    assert "pytest test_suite.py -k one --roofline-record" in texts(result)


def test_a_gate_and_a_recording_refuse_an_ini_value_that_nobody_knows(desk, sentence):
    desk.one()
    desk.ini("roofline_tolerence = 30%")
    for option in ("--roofline-ci", "--roofline-record"):
        sentence(
            desk.run(option),
            "pytest.ini sets roofline_tolerence, which is no option of pytest-roofline; did you mean "
            "roofline_tolerance?",
        )
    assert not (desk.path / "opened").exists()
