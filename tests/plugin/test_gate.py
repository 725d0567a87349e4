"""The main story: saved runs as comparison, an equal run passes, a slower one turns the build red."""

import re


def test_the_message_of_a_regression_has_two_lines_in_the_promised_form(desk):
    against = desk.five_runs()
    desk.script(slow={"test_copy[64MiB]": 1.3}, driver="570.86")
    result = desk.run(*against)
    lines = result.stdout.lines
    first = next(index for index, line in enumerate(lines) if line.startswith("copy[64MiB]: "))
    assert re.fullmatch(
        r"copy\[64MiB\]: \+30\.\d % time \(1538 GB/s, baseline 2000 GB/s\) REGRESSED, tolerance 5 %, "
        r"99 % interval \+\d+\.\d … \+\d+\.\d %, 3 against 5 processes",
        lines[first],
    )
    second = lines[first + 1]
    assert second.startswith("  driver 550.54 → 570.86; ")
    assert "; 5 of 5 processes behind the baseline were faster" in second
    assert re.search(r"Details: \.roofline/runs/\S+\.jsonl; .*`roofline baseline propose", second)
    result = desk.run("--lf", "-v", *against)
    result.assert_outcomes(failed=1)
    assert "1GiB" not in result.stdout.str()


def test_what_is_within_the_tolerance_passes_and_one_saved_run_is_enough_to_catch_a_third(desk):
    against = desk.five_runs()
    desk.script(slow=1.03)
    result = desk.run(*against)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])
    desk.script(slow=1.3)
    result = desk.run("--roofline-against=run0")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*11 against 1 process*", "*one process behind the baseline. Details*"])


def test_every_measurement_of_a_test_is_judged(desk):
    text = """
from pytest_roofline import Work
def test_both(roofline, busy, request):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9), name="down")
    roofline.measure(lambda: busy(2e-3), work=Work(read_bytes=10**9), name="up")
"""
    against = desk.five_runs(text)
    desk.script(slow=1.5)
    result = desk.run(*against)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["both.down: +50.* REGRESSED*", "both.up: +50.* REGRESSED*", "2 measured, 3 rounds"])


def test_a_sites_folder_gates_before_the_shipped_one_and_the_first_of_two_wins(desk):
    desk.baseline("baselines", slow=1.0)
    desk.baseline("site", slow=1.5)
    result = desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["roofline *against *h100.json", "2 of 2 compared: 2 PASSED"])
    desk.script(slow=1.5)
    site, shipped = "--roofline-baselines=site", "--roofline-baselines=baselines"
    against = ["--roofline-against=baselines/h100.json"]
    for options, status in (([], 1), ([site], 0), ([site, shipped], 0), ([shipped, site], 1), (against, 1)):
        result = desk.run(*options)
        assert result.ret == status, options
        result.stdout.fnmatch_lines(["copy*REGRESSED*" if status else "2 of 2 compared: 2 PASSED"])
