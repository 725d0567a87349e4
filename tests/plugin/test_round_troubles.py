"""Rounds that go wrong: hangs, crashes, Ctrl-C, children that cannot start, time that is spent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pytest_roofline.plugin.deciding
import pytest_roofline.plugin.rounds
from pytest_roofline.plugin.rounds import Ended, Rounds


@pytest.fixture
def open_one(desk):
    """The options for a run of one test whose verdict is open after its first process."""
    against = desk.five_sessions_of_one()
    desk.script(slow=[1.04, 1.0])
    return [*against, "--roofline-rounds=2"]


def alive(path):
    """Whether the process whose number is in a file is there."""
    return Path(f"/proc/{path.read_text()}").exists()


def gone(path):
    """Whether it is gone, now or in a moment."""
    deadline = time.monotonic() + 5
    while alive(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(path)


class Jumping:
    """The time, whose clock runs away once a test hangs."""

    def __init__(self, path):
        self._path = path
        self._jumps_s = 0.0
        self.sleep, self.time = time.sleep, time.time

    def monotonic(self):
        if self._path.exists():
            self._jumps_s += 0.6 * pytest_roofline.plugin.rounds.QUIET_S
        return time.monotonic() + self._jumps_s


def test_a_test_that_hangs_in_a_round_is_ended_and_loses_that_round(desk, open_one, monkeypatch):
    desk.script(slow=[1.04, "hang"])
    monkeypatch.setattr(pytest_roofline.plugin.rounds, "time", Jumping(desk.path / "hanging"))
    result = desk.run(*open_one, "-v")
    assert result.ret == 0
    assert gone(desk.path / "hanging")
    result.stdout.fnmatch_lines(["roofline: round 2: 0 of 1 tests done"])
    result.stdout.fnmatch_lines(["roofline: *test_one: its process died in round 2: it hung and was ended*"])
    assert [outcome.verdicts for outcome in desk.last_run().outcomes] == [("INCONCLUSIVE",)]


def test_a_round_that_cannot_start_is_told_and_ends_the_rounds(desk, open_one):
    desk.pytester.makeconftest(
        f'import os\nif "ROOFLINE_ROUND" in os.environ: raise OSError("no licence")\n{desk.conftest}'
    )
    result = desk.run(*open_one[:-1], "--roofline-rounds=5")
    assert result.ret == 0
    assert "no further rounds: round 2 could not start" in result.stdout.str()
    assert "no licence" in result.stdout.str()
    assert "round 3" not in result.stdout.str()
    assert [outcome.verdicts for outcome in desk.last_run().outcomes] == [("INCONCLUSIVE",)]
    # The only round is the run's own.
    result.stdout.fnmatch_lines(["1 measured"])
    # Lines, and none of them an escaped line feed.
    assert "\\n" not in result.stdout.str()


@pytest.mark.parametrize("how", ["time", "broken"])
def test_what_looks_slow_in_one_process_stays_open_where_no_further_round_can_run(desk, open_one, how):
    desk.script(slow=1.5)
    if how == "broken":
        desk.pytester.makeconftest(
            f'import os\nif "ROOFLINE_ROUND" in os.environ: raise OSError("no licence")\n{desk.conftest}'
        )
    result = desk.run(*open_one[:-1], *(["--roofline-time=0.001s"] if how == "time" else []))
    assert result.ret == 0
    result.stdout.fnmatch_lines(["INCONCLUSIVE one: looks 50 % slower; *red needs 3 processes*"])


def test_no_round_starts_once_the_time_is_spent_and_that_is_said(desk, open_one):
    result = desk.run(*open_one, "--roofline-time=0.001s", "-v")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["roofline: --roofline-time is spent after round 1, 1 test* undecided"])
    assert "round 2 of" not in result.stdout.str()
    assert [outcome.verdicts for outcome in desk.last_run().outcomes] == [("INCONCLUSIVE",)]


WATCHFUL = """
def happened(event):
    with (HERE / "events").open("a") as file:
        file.write(event + "\\n")

if "ROOFLINE_ROUND" in os.environ:
    happened("child")
else:
    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(session):
        release = session.config.fake.release
        session.config.fake.release = lambda: [happened("release"), release()]

    def pytest_runtest_logfinish(nodeid):
        happened("end of test")
"""


def test_the_device_is_free_before_a_child_starts(desk, open_one):
    desk.pytester.makeconftest(desk.conftest + WATCHFUL)
    desk.run(*open_one)
    events = (desk.path / "events").read_text().splitlines()
    child = events.index("child")
    assert "release" in events[events.index("end of test") : child]


def test_arguments_behind_two_dashes_reach_a_round(desk, open_one):
    result = desk.run(*open_one, "-p", "no:cacheprovider", "--", "test_suite.py")
    assert "could not start" not in result.stdout.str()
    assert [m.round for m in desk.last_run().measurements] == [1, 2]


def test_a_test_that_skips_in_a_later_round_stays_as_it_was(desk, open_one):
    desk.script(slow=[1.04, "skip"])
    result = desk.run(*open_one)
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    assert [m.round for m in desk.last_run().measurements] == [1]
    assert [outcome.verdicts for outcome in desk.last_run().outcomes] == [("INCONCLUSIVE",)]


def test_a_number_of_a_test_that_skips_afterwards_does_not_count_in_a_later_round_either(desk, open_one):
    text = (desk.path / "test_suite.py").read_text().replace("def test_one(", "def test_one(pytestconfig, ")
    desk.suite(
        f"{text}    from pytest_roofline.plugin.round_child import in_round\n"
        "    if in_round(pytestconfig): pytest.skip('the device is not itself')\n"
    )
    assert desk.run(*open_one).ret == 0
    first, second = desk.last_run().measurements
    assert first.invalid == ""
    assert second.invalid != ""
    assert [judgement.processes for judgement in desk.last_run().judgements] == [1]


def test_a_test_with_nothing_to_compare_with_starts_no_round(desk):
    desk.one()
    result = desk.run("--roofline-rounds=auto")
    assert result.ret == 0
    assert "round 2" not in result.stdout.str()


class Patient(Rounds):
    """Rounds that only note how long they were told that a test may take."""

    longest_s = 0.0

    def __init__(self, state, say, longest_s):
        super().__init__(state, say, longest_s)
        Patient.longest_s = longest_s

    def run(self, number, test_ids, deadline):
        self.broken = "this is no real round"


def test_whether_a_test_hangs_is_judged_by_its_set_up_too(desk, open_one, monkeypatch):
    # Compiling a kernel or filling memory may take minutes, in which a round says nothing.
    monkeypatch.setattr(pytest_roofline.plugin.deciding, "Rounds", Patient)
    text = (desk.path / "test_suite.py").read_text().replace("def test_one(", "def test_one(compiled, ")
    desk.suite(f"{text}\nimport time\n@pytest.fixture(scope='module')\ndef compiled(): time.sleep(0.3)\n")
    desk.run(*open_one)
    assert Patient.longest_s >= 0.3


@pytest.fixture
def interrupted(desk, open_one):
    """A run that got Ctrl-C while a test of its second round hung; its output and its exit status."""
    desk.script(slow=[1.04, "hang"])
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", *open_one, "--roofline-save=stopped"],
        cwd=desk.path, env=environment | {"WITHOUT_TORCH": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not (desk.path / "hanging").exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        text, _ = run.communicate(timeout=60)
        yield text, run.returncode
    finally:
        run.kill()
        run.wait()
        if (desk.path / "hanging").exists() and alive(desk.path / "hanging"):
            os.kill(int((desk.path / "hanging").read_text()), signal.SIGKILL)


def test_ctrl_c_in_a_later_round_keeps_all_and_leaves_no_process(desk, interrupted):
    text, status = interrupted
    assert status == pytest.ExitCode.INTERRUPTED, text
    assert gone(desk.path / "hanging")
    run = desk.saved("stopped")
    assert [(m.round, m.invalid) for m in run.measurements] == [(1, "")]
    assert [outcome.verdicts for outcome in run.outcomes] == [("INCONCLUSIVE",)]
    assert [judgement.verdict for judgement in run.judgements] == ["INCONCLUSIVE"]
    assert run.footer.exit_status == 2
    assert "1 passed" in text


def test_a_device_that_takes_one_process_at_a_time_has_no_rounds_and_says_why(desk, open_one):
    desk.script(slow=1.04, gpu={"index": 0, "compute_mode": "exclusive process"})
    result = desk.run(*open_one)
    assert result.ret == 0
    assert "round 2" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*no further rounds: GPU 0*exclusive process*nvidia-smi*"])


class Told(Rounds):
    """Rounds whose children are a list of how they ended."""

    def __init__(self, *ended):
        self.lines = []
        super().__init__(state=None, say=self.lines.append, longest_s=1.0)
        self.ended = list(ended)
        self.asked = []

    def _child(self, folder, number, test_ids, deadline):
        self.asked.append(list(test_ids))
        return self.ended.pop(0)


def died(*started, status=-6):
    return Ended(started, started[:-1], status, "last words")


def ended(*started, status=0):
    return Ended(started, started, status, "")


def test_only_what_had_not_begun_goes_to_the_next_process_after_a_crash():
    rounds = Told(died("a", "b"), ended("c", "d"))
    rounds.run(2, ["a", "b", "c", "d"], None)
    assert rounds.asked == [["a", "b", "c", "d"], ["c", "d"]]
    assert list(rounds.crashes) == ["b"]


def test_a_crash_in_the_last_test_starts_no_further_process():
    rounds = Told(died("a", "b"))
    rounds.run(2, ["a", "b"], None)
    assert len(rounds.asked) == 1


def test_every_test_may_crash_and_each_costs_one_process():
    rounds = Told(died("a"), died("b"), died("c"))
    rounds.run(2, ["a", "b", "c"], None)
    assert rounds.asked == [["a", "b", "c"], ["b", "c"], ["c"]]


def test_a_crash_in_a_file_whose_name_is_no_text_ends_too():
    # Ids of the run file are spelled out, those that a child is given are not.
    rounds = Told(died("test_\\udce4.py::test_a"), ended("test_\\udce4.py::test_b"))
    rounds.run(2, ["test_\udce4.py::test_a", "test_\udce4.py::test_b"], None)
    assert rounds.asked[1:] == [["test_\udce4.py::test_b"]]


def test_a_test_is_hopeless_after_its_second_crash():
    rounds = Told(died("a"), died("a"))
    rounds.run(2, ["a"], None)
    assert not rounds.hopeless("a")
    rounds.run(3, ["a"], None)
    assert rounds.hopeless("a")


@pytest.mark.parametrize(
    ("status", "cause"),
    [(-11, "it was ended by SIGSEGV"), (-9, "it was ended by SIGKILL"), (3, "it ended with status 3"),
     (None, "it hung and was ended")],
)  # fmt: skip
def test_the_cause_of_a_crash_is_named(status, cause):
    rounds = Told(died("a", status=status))
    rounds.run(2, ["a"], None)
    assert [one.text for one in rounds.crashes["a"]] == [f"its process died in round 2: {cause}"]


def test_no_process_replaces_one_that_crashed_after_the_time_was_spent():
    rounds = Told(died("a"))
    rounds.run(2, ["a", "b"], deadline=1.0)
    assert rounds.asked == [["a", "b"]]


def test_a_child_that_came_to_no_test_breaks_the_rounds():
    rounds = Told(Ended((), (), 4, "usage error"))
    rounds.run(2, ["a"], None)
    assert "round 2 could not start" in rounds.broken
    assert "usage error" in rounds.broken
