"""What a user sees: header, status words, the table at the end, and nothing where nothing is measured."""

import re

from pytest_roofline.engine.devices import cpu
from pytest_roofline.engine.quiet import CoreWatch


def narrow(desk, monkeypatch, *options):
    """The section of ours in a run on a terminal of 80 columns, without -v."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = desk.pytester.runpytest_inprocess("-p", "no:hypothesispytest", *options).stdout.lines
    # Of the whole run, but for its paths; without how far it is where only the red is asked for.
    assert not [
        line
        for line in lines
        if len(line) > 100 and str(desk.path) not in line and "benchmark: " not in line
    ]
    start = next((at for at, line in enumerate(lines) if "= roofline =" in line), None)
    assert "-q" not in options or "round" not in " ".join(lines[:start])
    # With -q pytest's own last line has no frame.
    end = next(
        at for at, line in enumerate(lines) if at > start and re.match(r"=|\d+ passed in ", line)
    )
    # Beside xdist pytest begins a section with an empty line.
    return [line for line in lines[start + 1 : end] if line]


def test_a_run_says_once_what_the_columns_are_and_the_help_does_again(desk, monkeypatch):
    desk.suite()
    first, second = (narrow(desk, monkeypatch) for _ in range(2))
    told = [
        any(line.startswith("`of roof` is the share of the hardware's peak") for line in lines)
        for lines in (first, second)
    ]
    assert told == [True, False]
    text = " ".join(desk.run("--help").stdout.str().split())
    assert "`against baseline` is the change of the time, with its 99 % interval" in text


def test_a_red_run_ends_with_what_failed_in_words_of_at_most_80_columns(desk, monkeypatch):
    against = desk.five_runs()
    desk.script(slow={"test_copy[1GiB]": 1.3})
    lines = narrow(desk, monkeypatch, *against)
    message = "copy[1GiB]: +30.0 % time (1538 GB/s, baseline 2000 GB/s) REGRESSED, tolerance"
    assert lines[-1] == "RED: 1 REGRESSED, 1 of 2 fast enough"
    # Told once: in the section FAILURES, and above the last line where there is none.
    assert message not in lines
    assert narrow(desk, monkeypatch, "--tb=no", *against)[-3:] == [
        message,
        "  5 %, 99 % interval +27.1 … +33.0 %, 5 against 5 processes",
        lines[-1],
    ]
    assert all(
        len(line) <= 80 for line in lines if str(desk.path) not in line and ".jsonl" not in line
    )
    assert narrow(desk, monkeypatch, "-q", *against) == lines[-1:]


def test_a_quiet_run_that_compared_nothing_says_why_and_what_to_type(desk, monkeypatch):
    desk.suite()
    lines = narrow(desk, monkeypatch, "-q")
    assert lines == [
        "Record a baseline:",
        "  pytest --roofline-record",
        "NO BASELINE copy[64MiB]: no baseline recorded (and 1 more)",
        "GREY: nothing was compared (2 NO BASELINE)",
    ]
    disturbed = "other processes kept 1.6 of 2 cores busy during the measurement"
    monkeypatch.setattr(CoreWatch, "disturbance", lambda _: disturbed)
    monkeypatch.setattr(cpu, "neighbours_now", lambda: "other processes keep 1.6 of 2 cores busy")
    lines = " ".join(line.strip() for line in narrow(desk, monkeypatch, "-q"))
    assert lines.count("To wait for a quiet machine, add --roofline-wait=10m") == 1
    assert f"INVALID copy[64MiB]: {disturbed} (and 1 more)" in lines


def test_a_run_on_a_busy_machine_says_once_who_keeps_it_busy_and_what_to_do(desk, monkeypatch):
    busy = iter(
        (
            "",
            "other processes kept 1.6 of 2 cores busy during the measurement; run the test on a quiet machine",
        )
        * 2
    )
    monkeypatch.setattr(CoreWatch, "disturbance", lambda _: next(busy))
    desk.suite()
    again = "again. To wait for a quiet machine, add --roofline-wait=10m"
    keep = "other processes keep 1.6 of 2 cores busy (cc1 (7) 1.0)"
    for now, told in ((keep, keep), ("", "other processes kept the cores of this machine busy")):
        monkeypatch.setattr(cpu, "neighbours_now", lambda now=now: now)
        lines = " ".join(line.strip() for line in narrow(desk, monkeypatch))
        waits = "End the busy processes, or wait until they end, and run this"
        assert f"This machine was too busy for 1 of 2 results: {told}. {waits} {again}" in lines


def test_what_the_scheduler_took_is_the_neighbours_and_is_repeated_under_another_name_beside_what_counts(
    desk, monkeypatch
):
    spoiled = iter(
        ("", "43 of 49 blocks of samples were spoiled: 43 × cores taken by the scheduler")
    )
    monkeypatch.setattr(CoreWatch, "disturbance", lambda _: next(spoiled))
    monkeypatch.setattr(cpu, "neighbours_now", lambda: "")
    desk.suite()
    lines = " ".join(line.strip() for line in narrow(desk, monkeypatch, "--roofline-save=one"))
    assert (
        "This machine was too busy for 1 of 2 results: other processes kept the cores of this machine busy"
        in lines
    )
    assert (
        "run this again, under another name. To wait for a quiet machine, add --roofline-wait=10m"
        in lines
    )


def test_a_run_of_which_nothing_counts_makes_way_for_another_of_its_name_and_is_kept(
    desk, monkeypatch, sentence
):
    disturbed = "other processes kept 1.6 of 2 cores busy during the measurement"
    monkeypatch.setattr(cpu, "neighbours_now", lambda: "")
    desk.suite()
    kept = []
    for aside in ("one.invalid", "one.invalid-2"):
        with monkeypatch.context() as patch:
            patch.setattr(CoreWatch, "disturbance", lambda _: disturbed)
            busy = desk.run("--roofline-save=one").stdout.str()
        assert (
            "run this again, under the same name. To wait for a quiet machine, add --roofline-wait=10m"
            in busy
        )
        assert desk.cli("baseline", "propose", "one", "-o", "p.json").exit_code == 2
        kept.append((desk.run_path("one").with_name(aside), desk.run_path("one").read_text()))
        if aside == "one.invalid":
            desk.run("--roofline-save=one", "-k", "64MiB").stdout.fnmatch_lines(
                [f"*is kept as *{aside}"]
            )
            # What counts stays, whatever else is asked.
            sentence(
                desk.run("--roofline-save=one"),
                "a run named 'one' is already saved as",
                "choose another name",
            )
            desk.run_path("one").unlink()
    desk.run("--roofline-save=one")
    assert [path.read_text() for path, _ in kept] == [text for _, text in kept]
    assert desk.cli("baseline", "propose", "-o", "p.json").exit_code == 0


def test_a_suite_that_does_not_measure_sees_and_imports_nothing_of_it(desk):
    desk.suite("def test_nothing(): pass\n")
    result = desk.run("-v")
    assert result.ret == 0
    # The list of plugins is pytest's own line.
    seen = [
        line
        for line in result.stdout.lines
        if "roofline" in line and not line.startswith(("plugins:", "rootdir:"))
    ]
    assert [line for line in seen if str(desk.path) not in line] == []
    assert not (desk.path / ".roofline").exists()
    assert not (desk.path / "opened").exists()
    desk.pytester.makeconftest("""
import sys
HEAVY = ("torch", "numpy", "pandas", "scipy", "triton", "msgspec", "rich", "pytest_roofline.plugin.session")
def pytest_unconfigure():
    print("HEAVY:", sorted(name for name in HEAVY if name in sys.modules))
""")
    # Other plugins of this environment import what they like.
    result = desk.subprocess("-p", "no:hypothesispytest", "-p", "no:benchmark")
    result.stdout.fnmatch_lines(["HEAVY: []"])


def test_other_tests_keep_their_status_word(desk):
    desk.suite()
    desk.suite("def test_plain(): pass\n", "test_plain")
    result = desk.run("-v")
    assert re.search(r"::test_plain PASSED +\[", result.stdout.str())


def test_a_long_name_has_a_line_of_its_own_and_loses_nothing(desk, monkeypatch):
    name = "a_benchmark_whose_name_goes_on_and_on_and_on_for_longer_than_any_table_is_wide_and_then_some_more"
    desk.suite(f"""
from pytest_roofline import Work
def test_{name}(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))
""")
    lines = narrow(desk, monkeypatch)
    start = next(at for at, line in enumerate(lines) if line.startswith("a_benchmark"))
    assert "".join(lines[start : start + 2]) == name
    assert re.fullmatch(r" +1.00 ms +2000 +60% +NO BASELINE", lines[start + 2])


def test_colour_that_is_asked_for_colours_the_verdict_and_a_quiet_run_still_gates(desk):
    desk.suite()
    desk.script(slow=1.3)
    lines = desk.run("--color=yes", "--roofline-min-percent=55").stdout.lines
    assert any("\x1b" in line and "REGRESSED" in line and "copy[1GiB]" in line for line in lines)
    for quiet in ("-q", "-qq"):
        result = desk.run(quiet, "--roofline-min-percent=55")
        assert (result.ret, "REGRESSED" in result.stdout.str()) == (1, True)


def test_a_function_that_waits_inside_is_told_in_a_line_without_v(desk, monkeypatch):
    """As synchronize(), .item() or .cpu() in the timed function do: 112 µs are shown in place of 100."""
    monkeypatch.setenv("COLUMNS", "200")
    desk.verbose = ()
    desk.script(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6, tick_s=0.5e-6)
    desk.suite(
        "def test_waits(roofline, fake):\n"
        "    roofline.measure(lambda: (fake.work(1e-4), fake.synchronize()))\n"
        "def test_queues(roofline, fake):\n"
        "    roofline.measure(lambda: fake.work(1e-4))\n"
    )
    (line,) = (line for line in desk.run().stdout.lines if "waits for the device" in line)
    assert re.match(
        r"waits: the call waits for the device for 1[0-2] % of its time \(1[1-4]\.\d µs of", line
    )
    assert "Move synchronize(), .item() or .cpu() out of the function" in line
