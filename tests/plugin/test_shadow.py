"""A gate that only watches: it says and records what it would have failed, and after fourteen nights how often."""

import json

import pytest

from .test_device_health import SICK

# By a share of the roofline a single process may be red.
FAST = ("--roofline-rounds=1", "--roofline-min-percent=55")
SHADOW = ("--roofline-ci=shadow", *FAST)
FOUR = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

def test_slow(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
def test_slower(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
def test_same(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
"""
ALARM = "SHADOW: would have failed: "


def alarms(result):
    return [line.removeprefix(ALARM) for line in result.stdout.lines if line.startswith(ALARM)]


@pytest.fixture
def slowed(desk):
    """A desk of three tests with a baseline, two of which are slower by now."""
    desk.baseline(text=FOUR)
    desk.script(slow={"test_slow": 1.2, "test_slower": 1.5, "test_same": 1.0})
    return desk


def test_what_is_red_in_a_gate_passes_is_marked_and_named_worst_first(slowed, monkeypatch):
    assert slowed.run("--roofline-ci", *FAST).ret == 1
    assert slowed.last_run().footer.shadow is None
    assert '"shadow"' not in slowed.run_paths()[-1].read_text()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(slowed.path / "summary.md"))
    result = slowed.run(*SHADOW, "-v", "-x", "--roofline-save=night")
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    slower, slow = alarms(result)
    # Of their limit, which lies 9 % above what they took.
    assert (slower[:18], slow[:16]) == ("slower: +38.2 % ti", "slow: +10.6 % ti")
    marked = [
        line.partition(" ")[0]
        for line in result.stdout.lines
        if "; SHADOW: would have failed" in line
    ]
    assert marked == ["test_suite.py::test_slow", "test_suite.py::test_slower"]
    told = [line.partition(" ")[0] + line.partition("title=")[2].partition("::")[0] for line in result.stdout.lines
            if line.startswith("::")]  # fmt: skip
    assert told == ["::warningREGRESSED slower", "::warningREGRESSED slow"]
    heading, *lines = (slowed.path / "summary.md").read_text().splitlines()
    assert heading == "## roofline: `RED: 2 REGRESSED, 1 of 3 fast enough`"
    assert ", 2 tests would have failed (shadow gate)" in lines[3]
    # Nothing red is left for --lf, and no baseline is made of it.
    slowed.run(*SHADOW, "--lf").assert_outcomes(passed=3)
    slowed.cli("baseline", "propose", "night", "-o", "p.json")
    entries = json.loads((slowed.path / "p.json").read_text())["entries"]
    assert [entry["benchmark"] for entry in entries] == ["same"]


def test_a_verdict_that_waited_for_a_round_passes_as_well(slowed):
    slowed.script(slow={"test_slow": 1.2, "test_slower": 1.0, "test_same": 1.0})
    result = slowed.run("--roofline-ci=shadow", "--roofline-rounds=5")
    assert result.ret == 0
    assert "roofline: round 2 " in result.stdout.str()
    (slow,) = alarms(result)
    assert slow.startswith("slow: +20.0 % time")


def test_what_fails_for_itself_is_red_all_the_same_and_an_xfail_stays_one(slowed):
    slowed.suite(FOUR + "\ndef test_bad(roofline): assert False\n")
    result = slowed.run(*SHADOW)
    assert result.ret == 1
    result.assert_outcomes(passed=3, failed=1)
    slowed.suite(FOUR.replace("def test_slow(", "@pytest.mark.xfail(strict=True)\ndef test_slow("))
    for options in (("--roofline-ci", *FAST), SHADOW):
        result = slowed.run(*options)
        assert result.parseoutcomes()["xfailed"] == 1
    assert result.ret == 0
    assert [alarm.partition(":")[0] for alarm in alarms(result)] == ["slower"]


def test_what_the_gate_or_the_hardware_lacks_is_said_and_not_red(desk, monkeypatch):
    nothing = "GATE: nothing was compared, since no test that measures was selected"
    for text, said in (
        (
            "def test_quiet(roofline): pass\n",
            "GATE: nothing was compared, since 0 of 1 test measured anything",
        ),
        (
            "def test_two(roofline): roofline.skip_for_hardware('needs 2 GPUs, found 1')\n",
            "test_two: needs 2 GPUs, found 1; missing",
        ),
        ("def test_plain(): pass\n", nothing),
        ("", nothing),
    ):
        desk.suite(text)
        assert desk.run("--roofline-ci").ret == 1
        result = desk.run("--roofline-ci=shadow")
        assert result.ret == 0
        assert any(said in alarm for alarm in alarms(result)), result.stdout.str()
    desk.one()
    monkeypatch.setattr(
        "pytest_roofline.engine.host.unused_accelerator", lambda device: "a GPU lies idle"
    )
    assert desk.run("--roofline-ci").ret == pytest.ExitCode.USAGE_ERROR
    result = desk.run("--roofline-ci=shadow")
    assert (result.ret, alarms(result)[0]) == (0, "a GPU lies idle")


def test_a_sick_device_is_named_first_and_not_red(slowed):
    slowed.script(gpu=SICK, slow=1.5)
    result = slowed.run(*SHADOW)
    assert result.ret == 0
    assert alarms(result)[0].startswith("DEGRADED: power limit 400 W")
    assert len(alarms(result)) == 4


def test_a_green_night_says_so(slowed):
    slowed.script()
    result = slowed.run(*SHADOW)
    assert alarms(result) == []
    result.stdout.fnmatch_lines(
        [
            "SHADOW: nothing would have failed",
            "SHADOW: in 1 night 0 of 1 run would have been red; after 14 nights *",
        ]
    )


def nights(desk, dates, red=()):
    """Copies of the last run, as of other nights; of those in `red` the first test would have failed."""
    text = desk.run_paths()[-1].read_text()
    for index, date in enumerate(dates):
        records = [json.loads(line) for line in text.splitlines()]
        records[0] |= {"run_id": f"night{index}", "started": f"{date}T02:00:00Z"}
        records[-1] |= {"shadow": ["slow: +20.0 % time (1 GB/s)"] if date in red else []}
        desk.run_path(f"night{index}").write_text(
            "".join(json.dumps(record) + "\n" for record in records)
        )


def rate(result):
    (line,) = [line for line in result.stdout.lines if line.startswith("SHADOW: in ")]
    return line


def test_after_fourteen_nights_it_prints_its_own_rate_of_alarms(slowed):
    slowed.script()
    slowed.run(*SHADOW)
    slowed.run_paths()[-1].rename(slowed.run_path("first"))
    dates = [f"2026-01-{day:02}" for day in range(1, 13)]
    nights(slowed, dates, red=["2026-01-07"])
    slowed.run_path("first").unlink()
    line = rate(slowed.run(*SHADOW, "--roofline-save=thirteenth"))
    assert line.startswith(
        "SHADOW: in 13 nights 1 of 13 runs would have been red: 2026-01-07 slow: +20.0 % time; after 14"
    )
    # Two of one night, neither of which is the one at hand, since that may end between two runs.
    nights(slowed, [*dates, "2026-01-13", "2026-01-13"], red=["2026-01-07"])
    slowed.run_path("thirteenth").unlink()
    assert rate(slowed.run(*SHADOW)).startswith(
        "SHADOW: in 14 nights 1 of 15 runs would have been red: 2026-01-07 slow"
    )
    assert rate(slowed.run(*SHADOW)).endswith("; switch the gate on with --roofline-ci")


def test_every_night_counts_also_one_on_which_all_was_skipped(desk):
    desk.suite("import pytest\ndef test_one(roofline): pytest.skip('not today')\n")
    assert rate(desk.run(*SHADOW)).startswith("SHADOW: in 1 night 1 of 1 run would have been red: ")


def test_the_option_takes_no_path_for_its_value(desk):
    (desk.path / "perf").mkdir()
    (desk.path / "perf" / "test_suite.py").write_text("def test_quiet(roofline): pass\n")
    desk.suite("def test_elsewhere(): assert False\n")
    for given, passed, red in (
        (("--roofline-ci", "perf", "-k", "quiet"), 1, True),
        (("--roofline-ci=shadow", "perf"), 2, False),
        (("--roofline-ci=shadow", "--roofline-ci", "perf"), 1, True),
    ):
        result = desk.run(*given)
        result.assert_outcomes(passed=passed, failed=int(red))
        assert result.ret == int(red), given
    result = desk.run("--roofline-ci=loud")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--roofline-ci" in result.stderr.str()
    assert "loud" in result.stderr.str()


def test_the_ini_and_a_toml_file_say_the_same(desk):
    desk.one()
    for line, status, watches in (
        ("roofline_ci = shadow", 0, True),
        ("roofline_ci = true", 1, False),
        ("roofline_ci = false", 0, False),
    ):
        desk.ini(line)
        result = desk.run()
        assert (result.ret, bool(alarms(result))) == (status, watches), line
    (desk.path / "pytest.ini").unlink()
    for value, status in (("true", 1), ('"shadow"', 0)):
        (desk.path / "pyproject.toml").write_text(
            f"[tool.pytest.ini_options]\nroofline_ci = {value}\n"
        )
        assert desk.run().ret == status, value
