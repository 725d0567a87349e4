"""A drill: every measured function slower by a share, through the seam of the tests; a check that the gate fails."""

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.engine import measure
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.fake import FakeDevice

# A host that submits more slowly than it is asked to, stamps that take time, a coarse clock, a queue that fills up.
LIFELIKE = {
    "launch_s": 8e-6,
    "record_s": 1.5e-6,
    "latency_s": 4e-6,
    "tick_s": 5e-7,
    "queue_depth": 1000,
}


def medians(desk, *options):
    assert desk.run(*options, "--roofline-save=it").ret in (0, 1)
    found = {m.label: m for m in desk.saved("it").measurements}
    desk.run_path("it").unlink()
    return {label: m.median_s for label, m in found.items()}, {
        label: m.samples.labels for label, m in found.items()
    }


def test_every_measured_function_takes_longer_by_the_share(desk):
    desk.suite()
    for device in ({}, LIFELIKE):
        desk.script(**device)
        before, _ = medians(desk)
        for share, wanted in (("1%", 1.01), ("150%", 2.5)):
            after, _ = medians(desk, f"--roofline-drill={share}")
            taken = {label: after[label] / before[label] for label in before}
            assert taken == pytest.approx(dict.fromkeys(before, wanted), rel=0.01), (device, share)
    # A hook of one's own goes before it.
    desk.script()
    before, _ = medians(desk)
    desk.pytester.makeconftest(desk.conftest + OWN)
    after, _ = medians(desk, "--roofline-drill=10%")
    assert after["copy[64MiB]"] / before["copy[64MiB]"] == pytest.approx(2.0, rel=0.01)
    assert after["copy[1GiB]"] / before["copy[1GiB]"] == pytest.approx(1.1, rel=0.01)


OWN = """
def pytest_roofline_function(item, name, fn):
    if "64MiB" in item.name:
        return lambda *arguments: [fn(*arguments), fn(*arguments)]
"""


def test_a_drill_beyond_the_tolerance_turns_every_test_red_and_within_none(desk):
    against = desk.sessions()
    result = desk.run(*against, "--roofline-drill=20%")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["RED: 2 REGRESSED, 0 of 2 *"])
    desk.run(*against, "--roofline-drill=3%").assert_outcomes(passed=2)
    # What it measured never becomes a baseline, and is never compared with.
    result = desk.run("--roofline-drill=10%", "--roofline-save=it")
    assert "baseline propose" not in result.stdout.str()
    answer = desk.cli("baseline", "propose", "it", "-o", "p.json", "--accept-slower")
    said = "the measured function was slowed down or replaced on purpose, in a drill of 10%"
    assert (answer.exit_code, said in answer.output) == (2, True), answer.output
    desk.run("--roofline-against=it").stdout.fnmatch_lines(["GREY: nothing was compared*"])


def test_a_drill_changes_neither_arguments_nor_data_nor_what_a_function_raises(desk):
    desk.suite("""
from pytest_roofline import Work
def test_one(roofline, busy):
    def fn(source, target):
        target[0] = source[0]
        busy(1e-3)
    roofline.measure(fn, [7], [0], work=Work(read_bytes=10**9), verify=lambda source, target: target == [7])
def test_raises(roofline): roofline.measure(lambda: 1 / 0, work=Work(read_bytes=10**9))
""")
    result = desk.run("--roofline-drill=10%", "--roofline-save=it")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ZeroDivisionError*"])
    assert desk.saved("it").measurements[0].verified


def test_a_device_that_cannot_be_kept_busy_is_refused_with_a_way_out():
    device = FakeDevice(traits=Traits(tick_s=1e-9, shortest_span_s=2e-7, spins=False))
    with pytest.raises(BadInput, match=r"fake cannot be kept busy .*pytest_roofline_function"):
        measure.slow_down(lambda: None, device, 0.1)


class Clock:
    """The host's clock, which moves only when a function says so, and a little when it is read."""

    def __init__(self, monkeypatch):
        self.now_s = 0.0
        monkeypatch.setattr(measure.time, "perf_counter", self.read)

    def read(self):
        self.now_s += 1e-7
        return self.now_s

    def pass_time(self, seconds):
        self.now_s += seconds


def test_on_the_host_a_call_waits_for_a_share_of_its_own_duration(monkeypatch):
    clock = Clock(monkeypatch)
    for share in (0.01, 0.1, 1.0):
        slowed = measure.slow_down(clock.pass_time, CpuDevice(), share)
        for seconds in (1e-3, 5e-3, 2e-3):
            before_s = clock.now_s
            slowed(seconds)
            assert clock.now_s - before_s == pytest.approx(seconds * (1 + share), rel=1e-3)
    assert measure.slow_down(lambda a, b: (b, a), CpuDevice(), 0.1)(1, 2) == (2, 1)


@pytest.fixture
def told(desk, capfd):
    """Runs `roofline drill` in the folder of the desk with a real pytest; its exit status and all that was printed."""

    def run(share, *arguments):
        answer = desk.cli("drill", share, *arguments, "-p", "no:hypothesispytest", "-q")
        return answer.exit_code, answer.output + capfd.readouterr().out

    return run


def test_the_command_counts_what_turned_red_and_says_why_the_others_did_not(desk, told):
    against = desk.sessions()
    text = (desk.path / "test_suite.py").read_text()
    desk.suite(
        text.replace("work=work)", "work=work, tolerance=0.5 if size_bytes > 10**9 else None)")
    )
    status, text = told("20%", *against)
    assert status == 1, text
    assert "drill of +20 %: 1 of 2 tests turned red" in text
    assert "not red: copy[1GiB] PASSED, measured as +20.0 %: within the tolerance of 50 %" in text
    (name,) = [path.stem for path in desk.run_paths() if path.stem.startswith("drill-")]
    assert all("replaced" in m.samples.labels for m in desk.saved(name).measurements)
