"""How a number was taken: in the run file, in the summary, and in what it may be held against."""

import json

import pytest

from .conftest import ALWAYS

MIB = 2**20
# A host that submits more slowly than the device works, on a coarse clock, with a queue that fills up.
LIFELIKE = {
    "launch_s": 8e-6,
    "record_s": 1.5e-6,
    "latency_s": 4e-6,
    "tick_s": 5e-7,
    "queue_depth": 1000,
}
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
# Two devices each, the one that times as asked and the one that cannot.
MODES = {
    "host-bound": ({}, {"queue_depth": 4, "launch_s": 1e-3}),
    "cache-resident": ({}, {"cache_bytes": 1024 * MIB}),
}
DIRECTIONS = [(0, 1), (1, 0)]


@pytest.fixture
def machine(desk):
    """Says which device is there, in one of the modes or as asked, and how much slower than a millisecond it is."""
    desk.one()

    def script(mode, side, slow=1.0):
        desk.script(slow=slow, **MODES[mode][side])

    return script


def samples_of(desk, name="r"):
    return {one.label: one.samples for one in desk.saved(name).measurements}


def lines_with(result, text):
    return [line for line in result.stdout.lines if text in line]


def test_the_run_file_holds_samples_in_their_blocks_clock_state_and_what_stamps_cost(desk):
    desk.suite()
    desk.script(**LIFELIKE, others_bytes=2**30)
    desk.run("--roofline-save=r")
    for samples in samples_of(desk).values():
        assert len(samples.blocks) >= 5
        assert sum(block.samples for block in samples.blocks) == len(samples.seconds)
        assert samples.clock_hz == pytest.approx(2e9, rel=0.01)
        assert (samples.power_capped_share, samples.throttle_known, samples.neighbours) == (
            0.0,
            True,
            "seen",
        )
    types = [json.loads(line)["type"] for line in desk.run_path("r").read_text().splitlines()]
    # Once, before the first measurement.
    assert types[:6] == [
        "header",
        "calibration",
        "measurement",
        "outcome",
        "measurement",
        "outcome",
    ]
    assert types[6:] == ["verdict", "verdict", "footer"]
    (calibration,) = desk.saved("r").calibrations
    assert (calibration.device, calibration.process) == (
        "fake",
        desk.saved("r").measurements[0].process,
    )
    assert (calibration.tick_s, calibration.record_host_s) == pytest.approx((5e-7, 1.5e-6))
    # Also where the first test fails, and not where nothing is measured.
    desk.suite(TWO.replace("roofline.measure", "assert not roofline.measure", 1))
    desk.run("--roofline-save=fails")
    desk.suite("import pytest\ndef test_one(roofline): pytest.skip('no')")
    desk.run("--roofline-save=nothing")
    assert [len(desk.saved(name).calibrations) for name in ("fails", "nothing")] == [1, 0]


@pytest.mark.parametrize(("before", "after"), DIRECTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_a_result_of_another_mode_than_what_it_is_compared_with_is_invalid(
    desk, machine, mode, before, after
):
    machine(mode, before)
    desk.run("--roofline-save=old")
    # However slow.
    machine(mode, after, 2.0)
    result = desk.run("--roofline-against=old", "--roofline-rounds=1", "--roofline-save=new")
    assert result.ret == 0
    assert desk.saved("new").outcomes[0].verdicts == ("INVALID",)
    (line,) = (
        line
        for line in lines_with(result, "the two times are not comparable")
        if line.startswith("INVALID")
    )
    assert line.startswith(
        ("INVALID one: this run is timed as asked", f"INVALID one: this run is {mode}")[after]
    )


def test_a_result_of_the_same_mode_is_judged_and_the_summary_says_what_set_the_pace(desk, machine):
    for mode, slow, verdict, said in (
        (
            "host-bound",
            2.0,
            "INCONCLUSIVE",
            "host-bound: *: one (1.00 ms on the device's clock, 1.* ms on the host's)",
        ),
        ("cache-resident", 1.0, "PASSED", "*"),
    ):
        machine(mode, 1)
        desk.run(f"--roofline-save={mode}").stdout.fnmatch_lines([said])
        machine(mode, 1, slow)
        # One process alone is never red by a run.
        desk.run(f"--roofline-against={mode}", "--roofline-rounds=1")
        assert desk.last_run().outcomes[0].verdicts == (verdict,), mode


def test_a_short_call_is_timed_the_way_its_baseline_was(desk):
    # By itself it is timed by a graph where it is shorter than forty ticks.
    options = desk.five_runs(SHORT)
    desk.script(tick_s=1e-6)
    desk.run("--roofline-save=graph")
    assert [one.samples.mode for one in desk.saved("graph").measurements] == ["graph"]
    desk.script(tick_s=1e-9)
    desk.run("--roofline-save=events")
    assert [one.samples.mode for one in desk.saved("events").measurements] == ["events"]
    desk.baseline(text=SHORT)
    for asked in (options, []):
        if asked is options:
            desk.five_runs(SHORT)
        desk.script(tick_s=1e-6, slow=1.5)
        result = desk.run(*asked, "--roofline-rounds=1")
        assert "looks 50 % slower" in result.stdout.str()
        assert "timed by" not in result.stdout.str()
        assert {one.samples.mode for one in desk.last_run().measurements} == {"events"}


def test_where_no_graph_can_be_taken_the_result_is_invalid_and_says_why(desk):
    desk.suite(SHORT)
    desk.script(tick_s=1e-6)
    desk.run("--roofline-save=one")
    desk.script(tick_s=1e-6, capture_fails=True)
    result = desk.run("--roofline-against=one", "--roofline-rounds=1")
    assert lines_with(
        result,
        "this run is cache-resident, the baseline is cache-resident, timed by replaying a graph, so the two times "
        "are not comparable",
    )
    assert lines_with(result, "no graph could be captured: short")


def test_a_neighbour_that_uses_the_device_is_named_with_the_tests(desk):
    desk.one('@pytest.mark.parametrize("size", [1, 2], ids=["[bold red]x[/]", "a:smile:b"])')
    text = (desk.path / "test_suite.py").read_text()
    desk.suite(text.replace("(roofline, busy)", "(roofline, busy, size)"))
    for neighbour, named in (
        ({"others_bytes": 2**30}, True),
        # One that holds next to nothing.
        ({"others_bytes": 1024}, False),
        # One that only works spoils the blocks.
        ({"others_bytes": 0, "others_busy": 0.5}, True),
    ):
        desk.script(**neighbour)
        result = desk.run()
        told = "another process uses the device: one[[bold red]x[/]], one[a:smile:b]"
        assert lines_with(result, "another process uses the device") == [told] * named, neighbour
        assert bool(lines_with(result, "blocks of samples were spoiled")) == (
            "others_busy" in neighbour
        )


def test_a_throttled_device_makes_its_measurements_invalid_with_cause_and_count(desk):
    cause = "power brake"
    desk.suite(TWO)
    desk.script(hot={"test_one": ([cause], *ALWAYS)})
    result = desk.run("--roofline-save=r")
    # That alone fails no run.
    assert result.ret == 0
    one, two = desk.saved("r").measurements
    count = len(one.samples.blocks)
    assert {block.excluded for block in one.samples.blocks} == {cause}
    assert one.invalid == f"{count} of {count} blocks of samples were spoiled: {count} × {cause}"
    assert two.invalid == ""
    assert len(lines_with(result, f"INVALID one: {one.invalid}")) == 1
    assert len(lines_with(result, f"one ({count} of {count} by {cause})")) == 1


def test_a_short_slowdown_costs_the_blocks_that_it_was_in_and_the_software_power_cap_none(desk):
    desk.suite(TWO)
    desk.script(hot={"test_one": (["thermal slowdown"], 0.55, 0.61)})
    result = desk.run("--roofline-save=r")
    samples, _ = samples_of(desk).values()
    spoiled, count = samples.excluded["thermal slowdown"], len(samples.blocks)
    assert 0 < spoiled <= count / 2
    assert desk.saved("r").measurements[0].invalid == ""
    assert lines_with(result, f"one ({spoiled} of {count} by thermal slowdown)")
    desk.run_path("r").unlink()
    desk.script(hot={"test_one": (["software power cap"], *ALWAYS)})
    result = desk.run("--roofline-save=r")
    assert [(one.invalid, one.samples.excluded) for one in desk.saved("r").measurements] == [
        ("", {})
    ] * 2
    result.stdout.fnmatch_lines(
        ["at the software power cap, *: one (in 100% of its blocks, at 2000 MHz)"]
    )
