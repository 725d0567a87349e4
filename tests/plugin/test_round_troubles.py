"""Rounds that go wrong: hangs, crashes, Ctrl-C, children that cannot start, time that is spent."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import pytest_roofline.plugin.deciding
import pytest_roofline.processes.children
from pytest_roofline.baselines.remarks import remarks
from pytest_roofline.core.verdicts import Kind
from pytest_roofline.plugin.rounds import Rounds
from pytest_roofline.processes.children import ChildEnd


@pytest.fixture
def open_one(desk):
    """The options for a run of one test whose verdict is open after its first process."""
    against = desk.five_sessions_of_one()
    desk.script(slow=[1.06, 1.0])
    return [*against, "--roofline-rounds=2"]


def alive(path):
    """Whether the process whose number is in a file is there."""
    return Path(f"/proc/{path.read_text()}").exists()


def gone(path):
    """Whether it is gone, now or in a moment."""
    deadline = time.monotonic() + 60
    while alive(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(path)


class Jumping:
    """The time, whose clock runs away once a test hangs."""

    def __init__(self, path):
        self._path = path
        self._jumps_s = 0.0
        self.sleep = time.sleep

    def monotonic(self):
        if self._path.exists():
            self._jumps_s += 0.6 * pytest_roofline.processes.children.QUIET_S
        return time.monotonic() + self._jumps_s


def test_a_test_that_hangs_in_a_round_is_ended_and_loses_that_round(desk, open_one, monkeypatch):
    desk.script(slow=[1.06, "hang"])
    monkeypatch.setattr(pytest_roofline.processes.children, "time", Jumping(desk.path / "hanging"))
    result = desk.run(*open_one, "-v")
    assert result.ret == 0
    assert gone(desk.path / "hanging")
    result.stdout.fnmatch_lines(
        ["roofline: *test_one: round 2 of the test is lost: the process hung and was killed*"]
    )
    assert [outcome.verdicts for outcome in desk.last_run().outcomes] == [("INCONCLUSIVE",)]


def test_where_no_further_round_can_run_that_is_told_and_what_looks_slow_stays_open(desk, open_one):
    plain = desk.conftest
    broken = f'import os\nif "ROOFLINE_ROUND" in os.environ: raise OSError("no licence")\n{plain}'
    desk.script(slow=1.5)
    for how, told in (
        (
            "time",
            ["roofline: the time of --roofline-time ended after round 1, with 1 test* undecided"],
        ),
        ("broken", ["*no further rounds: round 2 could not start*", "*no licence*"]),
        ("exclusive", ["*no further rounds: GPU 0*exclusive process*nvidia-smi*"]),
    ):
        options = ["--roofline-time=0.001s"] if how == "time" else []
        if how == "exclusive":
            desk.script(slow=1.04, gpu={"index": 0, "compute_mode": "exclusive process"})
        desk.pytester.makeconftest(broken if how == "broken" else plain)
        result = desk.run(*open_one[:-1], "--roofline-rounds=5", *options, "-v")
        assert result.ret == 0, how
        result.stdout.fnmatch_lines(told)
        if how != "exclusive":
            result.stdout.fnmatch_lines(
                ["INCONCLUSIVE one: looks 50 % slower; *a red verdict needs * processes*"]
            )
        assert ("round 2 of" in result.stdout.str(), "round 3" in result.stdout.str()) == (
            how == "broken",
            False,
        )
        # Lines, and none of them an escaped line feed; the only round is the run's own.
        assert "\\n" not in result.stdout.str()
        result.stdout.fnmatch_lines(["1 measured"])
        assert desk.last_run().outcomes[0].verdicts == ("INCONCLUSIVE",)


def test_a_clock_on_the_wall_that_is_set_ends_no_run_and_spends_no_time_of_it(
    desk, open_one, monkeypatch
):
    now = time.time
    # A month later, once the run has begun.
    monkeypatch.setattr("time.time", lambda: now() + 30 * 86400 * (desk.path / "opened").exists())
    result = desk.run(*open_one, "--roofline-time=1h")
    assert result.ret == 0
    assert [m.round for m in desk.last_run().measurements] == [1, 2]


def test_a_round_that_cannot_save_what_it_measured_is_told_of_and_counts_as_lost(desk, open_one):
    # Neither where the parent looks nor elsewhere, as on a disk without room.
    spoil = (
        "__import__('tempfile').tempdir = '/proc/x'; (state.writer.folder / 'runs').write_text('')"
    )
    head = "def test_one(roofline, busy):\n"
    body = f"{head}    state = roofline._test.session\n    if state.round: {spoil}\n"
    desk.suite((desk.path / "test_suite.py").read_text().replace(head, body))
    result = desk.run(*open_one)
    assert result.ret == 0
    said = f"the measurements of round 2 could not be saved; check the free space of {tempfile.gettempdir()}"
    assert f"roofline: test_suite.py::test_one: {said}" in result.stdout.lines
    (verdict,) = desk.last_run().verdicts
    assert (verdict.kind, verdict.processes) == ("INCONCLUSIVE", 1)
    assert f"1 process left out: {said}" in remarks(verdict)


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


def test_a_round_has_the_device_free_and_the_arguments_of_the_run(desk, open_one):
    desk.pytester.makeconftest(desk.conftest + WATCHFUL)
    # Also those behind two dashes, and without pytest's cache.
    result = desk.run(*open_one, "-p", "no:cacheprovider", "--", "test_suite.py")
    assert "could not start" not in result.stdout.str()
    assert [m.round for m in desk.last_run().measurements] == [1, 2]
    events = (desk.path / "events").read_text().splitlines()
    assert "release" in events[events.index("end of test") : events.index("child")]


def test_a_test_that_skips_in_a_later_round_stays_as_it_was(desk, open_one):
    desk.script(slow=[1.06, "skip"])
    result = desk.run(*open_one)
    result.assert_outcomes(passed=1)
    assert [m.round for m in desk.last_run().measurements] == [1]
    assert [outcome.verdicts for outcome in desk.last_run().outcomes] == [("INCONCLUSIVE",)]
    # What it measured before it skipped, or died, does not count either.
    desk.script(slow=[1.06, 1.0])
    text = (
        (desk.path / "test_suite.py")
        .read_text()
        .replace("def test_one(", "def test_one(pytestconfig, ")
    )
    for event, why in (
        ("pytest.skip('the device is not itself')", "the test was skipped in round 2"),
        ("__import__('os').abort()", "the test did not finish in round 2"),
    ):
        desk.suite(
            f"{text}    from pytest_roofline.settings.round import in_round\n"
            f"    if in_round(pytestconfig): {event}\n"
        )
        assert desk.run(*open_one).ret == 0
        assert [one.invalid for one in desk.last_run().measurements] == ["", why]
        assert [verdict.processes for verdict in desk.last_run().verdicts] == [1]


def test_what_a_killed_run_left_in_the_temporary_folder_is_removed_by_the_next_run(
    desk, monkeypatch
):
    temporary = desk.path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    program = (
        "from pytest_roofline.processes.system import owned_prefix; print(owned_prefix('round'))"
    )
    prefix = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    (temporary / f"{prefix.strip()}left" / "runs").mkdir(parents=True)
    desk.one()
    desk.run("--collect-only")
    assert [*temporary.iterdir()]
    assert desk.run().ret == 0
    assert not [*temporary.iterdir()]


@pytest.fixture
def interrupted(desk, open_one):
    """A run that got Ctrl-C while a test of its second round hung; its output and its exit status."""
    desk.script(slow=[1.06, "hang"])
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", *open_one, "--roofline-save=stopped"],
        cwd=desk.path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 240
        while (
            not (desk.path / "hanging").exists()
            and run.poll() is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        text, _ = run.communicate(timeout=240)
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
    assert [verdict.kind for verdict in run.verdicts] == ["INCONCLUSIVE"]
    assert run.footer.exit_status == 2
    assert "1 passed" in text


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
    return ChildEnd(started, started[:-1], status, "last words")


def ended(*started, status=0):
    return ChildEnd(started, started, status, "")


def test_a_crash_costs_one_process_and_what_had_not_begun_goes_to_the_next():
    # Ids of the run file are spelled out, those that a child is given are not.
    strange = ("test_\udce4.py::test_a", "test_\udce4.py::test_b")
    escaped = ("test_\\udce4.py::test_a", "test_\\udce4.py::test_b")
    cases = [
        (
            ["a", "b", "c", "d"],
            [died("a", "b"), ended("c", "d")],
            [["a", "b", "c", "d"], ["c", "d"]],
            ["b"],
        ),
        (["a", "b"], [died("a", "b")], [["a", "b"]], ["b"]),
        (
            ["a", "b", "c"],
            [died("a"), died("b"), died("c")],
            [["a", "b", "c"], ["b", "c"], ["c"]],
            ["a", "b", "c"],
        ),
        (
            list(strange),
            [died(escaped[0]), ended(escaped[1])],
            [list(strange), [strange[1]]],
            [escaped[0]],
        ),
    ]
    for ids, children, asked, crashed in cases:
        rounds = Told(*children)
        rounds.run(2, ids, None)
        assert (rounds.asked, list(rounds.crashes)) == (asked, crashed)
    # None replaces one that crashed after the time was spent.
    rounds = Told(died("a"))
    rounds.run(2, ["a", "b"], deadline=1.0)
    assert rounds.asked == [["a", "b"]]


def test_a_test_is_hopeless_after_its_second_crash_and_the_cause_of_each_is_named():
    causes = {
        -11: "the process was killed by SIGSEGV",
        -9: "the process was killed by SIGKILL (maybe out of memory; check dmesg)",
        3: "the process ended with exit code 3", None: "the process hung and was killed",
    }  # fmt: skip
    rounds = Told(*(died("a", status=status) for status in causes))
    for count in range(1, 1 + len(causes)):
        rounds.run(2, ["a"], None)
        assert rounds.hopeless("a", "") == (count > 1)
    assert [one.text for one in rounds.crashes["a"]] == [
        f"round 2 of the test is lost: {cause}" for cause in causes.values()
    ]


def test_a_child_that_came_to_no_test_breaks_the_rounds():
    rounds = Told(ChildEnd((), (), 4, "usage error"))
    rounds.run(2, ["a"], None)
    assert "round 2 could not start" in rounds.broken
    assert "usage error" in rounds.broken


def test_where_a_process_is_invalid_the_last_round_still_has_the_last_analysis(desk):
    """Eleven sound processes of twelve are shown to be fast enough; an analysis after five does not show it."""
    against = desk.five_sessions_of_one()
    five, six = (1.025, 1.035, 1.03, 1.02, 1.028), (1.02, 1.01, 1.025, 1.015, 1.03, 1.02)
    desk.script(slow=[five[0], 1.0, *five[1:], *six])
    is_hot = "{'thermal slowdown'} if round_number(config) == 2 else set()"
    desk.pytester.makeconftest(desk.conftest.replace("**THROTTLE", f"throttle=lambda _: {is_hot}"))
    result = desk.run(*against, "--roofline-rounds=auto", "-v")
    assert "round 12 of at most 12" in result.stdout.str()
    (verdict,) = desk.last_run().verdicts
    assert (verdict.processes, verdict.kind) == (11, Kind.PASSED)
