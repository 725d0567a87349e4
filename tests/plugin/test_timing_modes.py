"""How a number was taken: in the run file, in the summary, and in what it may be held against."""

import json
import re

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.core.samples import Block

MIB = 2**20
# A host that submits more slowly than the device works, on a coarse clock, with a queue that fills up.
LIFELIKE = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 5e-7, "queue_depth": 1000}
# Written in place of the desk's: a device whose stamps are watched, so that reversed ones are found out.
WATCHED = """
import json
from pathlib import Path

import pytest
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice

SCRIPT = json.loads(Path(__file__).with_name("script.json").read_text())


def pytest_roofline_device(config, name):
    traits = Traits(tick_s=1e-9, shortest_span_s=2e-7, watchdog_s=5.0)
    config.fake = FakeDevice(**SCRIPT["device"], traits=traits)
    return config.fake


@pytest.fixture
def busy(request):
    return lambda seconds: request.config.fake.work(seconds * SCRIPT["slow"]["*"])
"""
# A device that is throttled, for the causes given, as long as a test of that name runs.
THROTTLED = """
import pytest
from pytest_roofline.engine.devices.fake import FakeDevice

CAUSES = {causes}
active = set()


@pytest.fixture(name="active")
def _active():
    return active


def pytest_roofline_device(config, name):
    config.fake = FakeDevice(throttle=lambda busy_s: frozenset(active) if {when} else frozenset())
    return config.fake


@pytest.fixture
def busy(request):
    active.clear()
    active.update(CAUSES.get(request.node.name, ()))
    return request.config.fake.work
"""
TWO = """
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)


def test_one(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)


def test_two(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
SHORT = """
import pytest
from pytest_roofline import Work


@pytest.mark.roofline(budget=0.1)
def test_short(roofline, busy):
    roofline.measure(lambda: busy(1e-5), work=Work(read_bytes=10**7, write_bytes=10**7, payload_bytes=10**7))
"""
# Twice as slow as it was, and slower still when it is tried again on a device that is throttled by then.
AGAIN = """
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)
attempts = []


def test_one(roofline, busy, active):
    attempts.append("one more")
    active.update(["thermal slowdown"] * (len(attempts) > 1))
    roofline.measure(lambda: busy(2e-3 * len(attempts)), work=WORK)
"""
# Two devices each, the one that times as asked and the one that cannot.
MODES = {
    "host-bound": ({}, {"queue_depth": 4, "launch_s": 1e-3}),
    "cache-resident": ({}, {"cache_bytes": 1024 * MIB}),
    "wall-clock": ({"latency_s": 4e-6}, {"latency_s": 4e-6, "reading": "reversed"}),
}
DIRECTIONS = [(0, 1), (1, 0)]


@pytest.fixture
def machine(desk):
    """Says which device is there, in one of the modes or as asked, and how much slower than a millisecond it is."""
    desk.one()

    def script(mode, side, slow=1.0):
        if mode == "wall-clock":
            desk.pytester.makeconftest(WATCHED)
        desk.script(slow=slow, **MODES[mode][side])

    return script


def throttled(desk, causes, when="True", text=TWO):
    """A suite on a device that is throttled during the tests named, `when` it has been busy for `busy_s`."""
    desk.pytester.makeconftest(THROTTLED.format(causes=causes, when=when))
    desk.suite(text)
    return desk.run("--roofline-save=r")


def samples_of(desk, name="r"):
    return {one.label: one.samples for one in desk.saved(name).measurements}


def lines_with(result, text):
    return [line for line in result.stdout.lines if text in line]


@pytest.mark.parametrize(
    "knobs", [LIFELIKE, *({name: value} for name, value in LIFELIKE.items()), {"others_bytes": 2**30}], ids=str
)
def test_a_suite_passes_on_a_device_that_is_not_ideal(desk, knobs):
    desk.suite()
    desk.script(**knobs)
    result = desk.run("--roofline-save=r")
    assert result.ret == 0
    assert [m.invalid for m in desk.saved("r").measurements] == ["", ""]
    assert [m.traffic_GBps for m in desk.saved("r").measurements] == pytest.approx([2000, 2000], rel=0.01)


def test_the_run_file_holds_every_sample_in_its_block(desk):
    desk.suite()
    desk.script(**LIFELIKE)
    desk.run("--roofline-save=r")
    for samples in samples_of(desk).values():
        assert len(samples.blocks) >= 5
        assert sum(block.samples for block in samples.blocks) == len(samples.seconds)


def test_the_run_file_holds_the_clock_and_the_state_of_the_device(desk):
    desk.one()
    desk.script(**LIFELIKE, others_bytes=2**30)
    desk.run("--roofline-save=r")
    (samples,) = samples_of(desk).values()
    assert samples.clock_hz == pytest.approx(2e9, rel=0.01)
    assert (samples.power_capped_share, samples.throttle_known, samples.neighbours) == (0.0, True, "seen")


@pytest.mark.parametrize(("tick_s", "mode"), [(1e-9, "events"), (1e-6, "graph")])
def test_the_run_file_holds_the_way_of_timing(desk, tick_s, mode):
    desk.suite(SHORT)
    desk.script(tick_s=tick_s)
    desk.run("--roofline-save=r")
    assert [samples.mode for samples in samples_of(desk).values()] == [mode]


def test_the_run_file_holds_what_stamps_cost_once_before_the_first_measurement(desk):
    desk.suite()
    desk.run("--roofline-save=r")
    types = [json.loads(line)["type"] for line in desk.run_path("r").read_text().splitlines()]
    assert types[:6] == ["header", "calibration", "measurement", "outcome", "measurement", "outcome"]
    assert types[6:] == ["judgement", "judgement", "footer"]


def test_what_stamps_cost_is_told_of_this_device_in_this_process(desk):
    desk.one()
    desk.script(**LIFELIKE)
    desk.run("--roofline-save=r")
    run = desk.saved("r")
    (calibration,) = run.calibrations
    assert (calibration.device, calibration.process) == ("fake", run.measurements[0].process)
    assert (calibration.tick_s, calibration.record_host_s) == pytest.approx((5e-7, 1.5e-6))


def test_what_stamps_cost_is_written_even_where_the_first_test_fails(desk):
    desk.suite(TWO.replace("roofline.measure", "assert not roofline.measure", 1))
    desk.run("--roofline-save=r")
    assert len(desk.saved("r").calibrations) == 1


def test_a_run_that_measures_nothing_has_no_calibration(desk):
    desk.suite("import pytest\ndef test_one(roofline): pytest.skip('no')")
    desk.run("--roofline-save=r")
    assert desk.saved("r").calibrations == ()


@pytest.mark.parametrize(("before", "after"), DIRECTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_a_result_of_another_mode_than_the_saved_run_is_invalid(desk, machine, mode, before, after):
    machine(mode, before)
    desk.run("--roofline-save=old")
    machine(mode, after)
    result = desk.run("--roofline-against=old", "--roofline-rounds=1")
    assert result.ret == 0
    assert desk.last_run().outcomes[0].verdicts == ("INVALID",)
    (line,) = (line for line in lines_with(result, "two different things were timed") if line.startswith("INVALID"))
    assert line.startswith(("INVALID one: this is timed as asked", f"INVALID one: this is {mode}")[after])


@pytest.mark.parametrize("slow", [0.7, 2.0])
@pytest.mark.parametrize(("before", "after"), DIRECTIONS)
def test_a_result_of_another_mode_is_invalid_however_fast(desk, machine, before, after, slow):
    machine("host-bound", before)
    desk.run("--roofline-save=old")
    machine("host-bound", after, slow)
    assert desk.run("--roofline-against=old", "--roofline-rounds=1").ret == 0
    assert desk.last_run().outcomes[0].verdicts == ("INVALID",)


@pytest.mark.parametrize(("before", "after"), DIRECTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_a_result_of_another_mode_than_the_baseline_is_invalid(desk, machine, mode, before, after):
    machine(mode, before)
    desk.run("--roofline-save=old")
    assert desk.cli("baseline", "propose", "old", "-o", "p.json").exit_code == 0
    assert desk.cli("baseline", "approve", "p.json").exit_code == 0
    machine(mode, after, 2.0)
    result = desk.run("--roofline-require-baseline", "--roofline-rounds=1")
    assert result.ret == 0
    assert desk.last_run().outcomes[0].verdicts == ("INVALID",)


@pytest.mark.parametrize("mode", MODES)
def test_a_baseline_says_what_was_timed(desk, machine, mode):
    machine(mode, 1)
    desk.run("--roofline-save=r")
    assert desk.cli("baseline", "propose", "r", "-o", "p.json").exit_code == 0
    (entry,) = read_baseline(desk.path / "p.json").entries
    assert [session.achieved for session in entry.sessions] == [(mode.replace("-", "_"),)]


@pytest.mark.parametrize(
    ("mode", "slow", "verdict"),
    [("host-bound", 2.0, "INCONCLUSIVE"), ("cache-resident", 1.0, "PASSED"), ("wall-clock", 0.7, "IMPROVED")],
)
def test_a_result_of_the_same_mode_is_judged(desk, machine, mode, slow, verdict):
    machine(mode, 1)
    desk.run("--roofline-save=old")
    machine(mode, 1, slow)
    # One process alone is never red by a run.
    desk.run("--roofline-against=old", "--roofline-rounds=1")
    assert desk.last_run().outcomes[0].verdicts == (verdict,)


@pytest.mark.parametrize(("before", "after"), DIRECTIONS)
def test_the_command_that_compares_says_the_same(desk, machine, before, after):
    for name, side in (("old", before), ("new", after)):
        machine("host-bound", side)
        desk.run(f"--roofline-save={name}")
    answer = desk.cli("compare", "old", "new")
    assert answer.exit_code == 0
    assert "two different things were timed" in answer.output
    assert answer.output.splitlines()[-1] == "1 INVALID"


def test_runs_of_two_modes_are_not_proposed_together(desk, machine):
    for name, side in (("one", 0), ("two", 1)):
        machine("host-bound", side)
        desk.run(f"--roofline-save={name}")
    answer = desk.cli("baseline", "propose", "one", "two", "-o", "p.json")
    assert answer.exit_code == 2
    assert re.search(r"timed as asked in \S+one\.jsonl and host_bound in \S+two\.jsonl", answer.output)
    assert not (desk.path / "p.json").exists()


@pytest.mark.parametrize("rounds", [[], ["--roofline-rounds=3"]])
@pytest.mark.parametrize("against", ["run", "baseline"])
def test_a_short_call_is_timed_the_way_its_baseline_was(desk, against, rounds):
    # By itself it would be timed by a graph: it is shorter than forty ticks.
    options = desk.five_runs(SHORT) if against == "run" else []
    if against == "baseline":
        desk.baseline(text=SHORT)
    desk.script(tick_s=1e-6, slow=1.5)
    result = desk.run(*options, *rounds)
    assert result.ret == 1
    assert "timed by" not in result.stdout.str()
    assert {one.samples.mode for one in desk.last_run().measurements} == {"events"}


def test_without_a_baseline_the_same_call_is_timed_by_a_graph(desk):
    desk.suite(SHORT)
    desk.script(tick_s=1e-6)
    desk.run("--roofline-save=r")
    assert [one.samples.mode for one in desk.saved("r").measurements] == ["graph"]


def test_where_no_graph_can_be_taken_any_more_the_result_is_invalid_and_says_why(desk):
    desk.suite(SHORT)
    desk.script(tick_s=1e-6)
    for name in ("one", "two", "three"):
        desk.run(f"--roofline-save={name}")
    desk.script(tick_s=1e-6, capture_fails=True)
    result = desk.run("--roofline-against=one", "--roofline-against=two", "--roofline-against=three")
    assert lines_with(
        result, "this is cache-resident, the baseline cache-resident, timed by replaying a graph: two different things"
    )
    assert lines_with(result, "no graph of it could be taken, or of an earlier test: short")


def test_a_regression_by_the_same_clock_names_none(desk):
    against = desk.five_runs(SHORT)
    desk.script(slow=1.5)
    result = desk.run(*against)
    assert result.ret == 1
    assert "timed by" not in result.stdout.str()


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("host-bound", "host-bound, *: one (1.00 ms on the device's clock, 1.* ms on the host's)"),
        ("wall-clock", "timed by the host's clock, *: one"),
    ],
)
def test_the_summary_says_what_set_the_pace(desk, machine, mode, said):
    machine(mode, 1)
    desk.run().stdout.fnmatch_lines([said])


def test_the_summary_says_that_a_neighbour_uses_the_device(desk):
    desk.suite()
    desk.script(others_bytes=2**30)
    result = desk.run()
    result.stdout.fnmatch_lines(["another process uses the device: copy[[]64MiB], copy[[]1GiB]"])


def test_a_neighbour_that_holds_next_to_nothing_is_not_mentioned(desk):
    desk.one()
    desk.script(others_bytes=1024)
    assert "another process" not in desk.run().stdout.str()


def test_a_neighbour_that_only_works_spoils_the_blocks_and_is_named(desk):
    desk.one()
    desk.script(others_bytes=0, others_busy=0.5)
    result = desk.run()
    assert lines_with(result, "blocks of samples were spoiled")
    assert lines_with(result, "another process uses the device") == ["another process uses the device: one"]


@pytest.mark.parametrize("label", ["[bold red]x[/]", "a:smile:b"])
def test_markup_in_an_id_is_text_in_the_summary(desk, label):
    desk.one(f'@pytest.mark.parametrize("size", [1], ids=["{label}"])')
    text = (desk.path / "test_suite.py").read_text()
    desk.suite(text.replace("(roofline, busy)", "(roofline, busy, size)"))
    desk.script(others_bytes=2**30)
    assert f"another process uses the device: one[{label}]" in desk.run().stdout.str()


def test_an_unresolved_measurement_is_invalid_and_has_no_rate(desk):
    desk.one('@pytest.mark.roofline(cache="flush")')
    desk.script(tick_s=1e-4)
    result = desk.run("--roofline-save=r")
    assert result.ret == 0
    (measurement,) = desk.saved("r").measurements
    assert re.match("a sample spans 10 ticks of the clock, .* time more work in a call", measurement.invalid)
    assert measurement.rate is None
    assert len(lines_with(result, f"INVALID one: {measurement.invalid}")) == 1


def test_an_unresolved_measurement_is_shown_without_a_rate(desk):
    desk.one('@pytest.mark.roofline(cache="flush")')
    desk.script(tick_s=1e-4)
    row = lines_with(desk.run(), "INVALID")[0]
    assert row.split() == ["one", "1000000000", "B", "1.00", "ms", "INVALID"]


@pytest.mark.parametrize("cause", ["thermal slowdown", "hardware slowdown", "power brake"])
def test_a_throttled_device_makes_its_measurements_invalid_with_cause_and_count(desk, cause):
    result = throttled(desk, {"test_one": [cause]})
    one, two = desk.saved("r").measurements
    count = len(one.samples.blocks)
    assert one.samples.blocks == tuple(
        Block(block.samples, cause, block.clock_hz, power_capped=False) for block in one.samples.blocks
    )
    assert one.invalid == f"{count} of {count} blocks of samples were spoiled: {count} × {cause}"
    assert two.invalid == ""
    assert len(lines_with(result, f"INVALID one: {one.invalid}")) == 1
    assert len(lines_with(result, f"one ({count} of {count} by {cause})")) == 1


def test_an_invalid_measurement_alone_does_not_fail_the_run(desk):
    result = throttled(desk, {"test_one": ["thermal slowdown"]})
    assert result.ret == 0
    result.assert_outcomes(passed=2)


def test_a_throttled_device_is_neither_regressed_nor_passed_against_a_baseline(desk):
    desk.suite(TWO)
    desk.run("--roofline-save=old")
    desk.pytester.makeconftest(THROTTLED.format(causes={"test_one": ["thermal slowdown"]}, when="True"))
    desk.run("--roofline-against=old", "--roofline-save=new", "--roofline-rounds=1")
    assert [outcome.verdicts for outcome in desk.saved("new").outcomes] == [("INVALID",), ("PASSED",)]


def test_what_a_throttled_device_measured_never_becomes_a_baseline(desk):
    throttled(desk, {"test_one": ["thermal slowdown"]})
    answer = desk.cli("baseline", "propose", "r", "-o", "p.json")
    assert answer.exit_code == 0
    assert [entry.benchmark for entry in read_baseline(desk.path / "p.json").entries] == ["two"]
    assert re.search(r"one of r: (\d+) of \1 blocks of samples were spoiled: \1 × thermal slowdown", answer.output)


def test_where_all_was_throttled_there_is_nothing_to_propose(desk):
    throttled(desk, {name: ["thermal slowdown"] for name in ("test_one", "test_two")})
    answer = desk.cli("baseline", "propose", "r", "-o", "p.json")
    assert answer.exit_code == 2
    assert re.search(r"fit for a baseline: .* × thermal slowdown", answer.output)
    assert not (desk.path / "p.json").exists()


def test_a_throttled_run_is_nothing_to_compare_with(desk):
    throttled(desk, {"test_one": ["thermal slowdown"]})
    desk.run("--roofline-against=r", "--roofline-save=again", "--roofline-rounds=1")
    assert [outcome.verdicts for outcome in desk.saved("again").outcomes] == [("INVALID",), ("PASSED",)]


def test_a_regression_is_not_retried_into_green_on_a_throttled_device(desk):
    against = desk.five_runs_of_one()
    desk.pytester.makeconftest(THROTTLED.format(causes={}, when="True"))
    desk.suite(AGAIN)
    assert desk.run(*against, "--reruns=1", "--roofline-min-percent=55").ret == pytest.ExitCode.TESTS_FAILED


def test_a_short_slowdown_costs_the_blocks_that_it_was_in_and_no_more(desk):
    result = throttled(desk, {"test_one": ["thermal slowdown"]}, when="0.55 < busy_s < 0.61")
    samples, _ = samples_of(desk).values()
    spoiled, count = samples.excluded["thermal slowdown"], len(samples.blocks)
    assert 0 < spoiled <= count / 2
    assert desk.saved("r").measurements[0].invalid == ""
    assert lines_with(result, f"one ({spoiled} of {count} by thermal slowdown)")


def test_the_software_power_cap_spoils_nothing_and_stands_with_the_clock(desk):
    result = throttled(desk, {"test_one": ["software power cap"]})
    assert [(one.invalid, one.samples.excluded) for one in desk.saved("r").measurements] == [("", {})] * 2
    result.stdout.fnmatch_lines(["at the software power cap, *: one (in 100% of its blocks, at 2000 MHz)"])
