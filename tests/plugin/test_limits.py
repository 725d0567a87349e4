"""Published limits and the share of the roofline in a run: what they gate, and what is said where nothing else does."""

import json

from ..golden.cases import FLOOR, THRESHOLD
from .conftest import SUITE

# 2000 GB/s is 60 % of the datasheet's 3350 GB/s of the desk's device; the text of a test that no datasheet bounds.
LARGE = SUITE.replace("[64 * MIB, 1024 * MIB]", "[1024 * MIB, 2048 * MIB]").replace(
    '["64MiB", "1GiB"]', '["1GiB", "2GiB"]'
)
NO_ROOFLINE = """
from pytest_roofline import Work

def test_copy(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(wire_bytes=10**9))
"""


def entry(value, **changes):
    return THRESHOLD | {"benchmark": "copy", "value": value} | changes


def shipped(desk, *entries, folder="baselines"):
    path = desk.path / folder / "h100.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "family": "h100", "entries": list(entries)}))
    return path


def test_a_limit_gates_on_the_statistic_that_its_source_states(desk):
    desk.suite()
    for statistic in ("median", "mean", "best"):
        # Numbers are the same with a decimal point.
        shipped(desk, entry(2500, statistic=statistic, parameters={"size_bytes": float(2**30)}))
        result = desk.run()
        assert result.ret == 1
        word = {"best": "fastest call"}.get(statistic, statistic)
        result.stdout.fnmatch_lines(
            [f"copy[[]1GiB]: *BELOW THRESHOLD: threshold 2500 GB/s (*; {word}; the maker)*"]
        )


def test_a_limit_on_the_fastest_call_of_a_batched_test_does_not_gate_and_that_is_said_once(desk):
    desk.suite()
    small = {"statistic": "best", "parameters": {"size_bytes": 2**26}}
    shipped(desk, entry(9000, **small), entry(8000, **small, source="the buyer"))
    result = desk.run()
    assert result.ret == 0
    told = [
        line for line in result.stdout.lines if line.startswith("a published limit cannot fail")
    ]
    assert told == [
        "a published limit cannot fail these tests, since the limit is for the fastest single call, and a sample "
        "here is the mean of several calls: copy[64MiB] (9000 GB/s), copy[64MiB] (8000 GB/s)"
    ]
    result.stdout.fnmatch_lines(["GREY: nothing was compared*"])


ENDS = {
    "REGRESSED": "RED: 2 REGRESSED, 0 of 2 fast enough",
    "INCONCLUSIVE": "GREY: 0 of 2 fast enough, 2 undecided (copy[[]1GiB] +*",
    "PASSED": "GREEN: 2 of 2 fast enough (2 by a share of the roofline)",
}


def test_what_misses_its_share_of_the_roofline_is_red(desk):
    desk.suite(LARGE)
    for percent, status, word in (
        ("80", 1, "REGRESSED"),
        ("60.5", 0, "INCONCLUSIVE"),
        ("50", 0, "PASSED"),
    ):
        result = desk.run(f"--roofline-min-percent={percent}")
        assert result.ret == status
        result.stdout.fnmatch_lines([f"copy[[]1GiB] *{word}", ENDS[word]])
    # Also from the ini file, where it satisfies a required baseline.
    desk.ini("roofline_min_percent = 50")
    result = desk.run("--roofline-fail-on=+no-baseline")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*tolerance 5 %, every test must reach 50 % of the roofline*"])
    # It is asked of nothing without a datasheet's roofline.
    desk.suite(NO_ROOFLINE)
    result = desk.run("--roofline-min-percent=90")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["GREY: nothing was compared*"])


def floor(share, **changes):
    return FLOOR | {"benchmark": "copy", "value": share} | changes


def test_a_floor_and_the_share_that_was_asked_for_are_held_beside_a_recorded_baseline_and_a_lax_limit(
    desk,
):
    desk.baseline(text=LARGE)
    path = desk.path / "baselines" / "h100.json"
    result = desk.run("--roofline-min-percent=75")
    result.stdout.fnmatch_lines(
        ["copy[[]1GiB]: *BELOW 75 % OF THE ROOFLINE (observed 59.7 % of 3350 GB/s; *"]
    )
    for lax in (None, entry(1500)):
        entries = json.loads(path.read_text())["entries"] if lax is None else [lax]
        shipped(desk, *entries, floor(0.8))
        result = desk.run()
        assert result.ret == 1
        result.stdout.fnmatch_lines(["copy[[]1GiB]: *BELOW FLOOR: observed 59.7 %*"])


def test_a_floor_is_for_work_that_saturates_and_says_nothing_of_less(desk):
    desk.suite(LARGE)
    shipped(desk, floor(0.8, from_amount=2**32))
    result = desk.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["RED: 1 REGRESSED, 0 of 2 fast enough, 1 undecided (1 NO BASELINE)"]
    )
    assert all("does not gate" not in line for line in result.stdout.lines)


def test_a_site_lowers_or_drops_a_floor_with_a_reason_in_its_own_baselines(desk):
    desk.suite(LARGE)
    shipped(desk, floor(0.8))
    for site, status in ((0.55, 0), (0.7, 1), (0, 0)):
        shipped(
            desk,
            floor(site, source="us", figures=None, reason="clocks are capped here"),
            folder="site",
        )
        result = desk.run("--roofline-baselines=site", "-v")
        assert result.ret == status
        said = (
            "floor*set by this site, because clocks are capped here"
            if site
            else "this site dropped the floor: clocks are capped here"
        )
        result.stdout.fnmatch_lines([f"*{said}*"])


def test_rounds_go_on_while_a_limit_is_open_and_end_when_it_is_decided(desk):
    desk.one()
    shipped(desk, entry(2050, benchmark="one"))
    result = desk.run("--roofline-rounds=12")
    result.stdout.fnmatch_lines(["roofline: round 2 of at most 12: *"])
    assert len(desk.last_run().measurements) == 5
