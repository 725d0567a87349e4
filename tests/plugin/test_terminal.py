"""What a user sees: header, status words, the table at the end, and nothing where nothing is measured."""

import re


def table_of(result):
    """The lines of the closing table, head first."""
    lines = result.stdout.lines
    start = next(index for index, line in enumerate(lines) if line.startswith("test ") and "verdict" in line)
    end = next(index for index in range(start, len(lines)) if lines[index].startswith(("roof:", "run saved", "copy:")))
    return lines[start:end]


def planned_s(result):
    """Seconds that the header of a run foresees."""
    (line,) = [line for line in result.stdout.lines if " planned, about " in line]
    value, unit = line.split("about ")[1].split(" (")[0].split()
    return float(value) * {"s": 1, "min": 60}[unit]


SLOW_TO_SET_UP = """
import time
import pytest
from pytest_roofline import Work

@pytest.fixture
def slow():
    time.sleep(0.6)

@pytest.mark.roofline(budget=1{marks})
def test_one(roofline, fake, slow):
    roofline.measure(lambda: fake.work(1e-3), work=Work(read_bytes=8))
    time.sleep({sleeps})
"""


def test_the_header_counts_what_is_selected_and_knows_what_a_test_took_the_last_time(desk):
    """The device's seconds are scripted, so the test takes what it sleeps; until then nobody knew."""
    desk.suite()
    desk.run("--roofline-budget=3").stdout.fnmatch_lines(["roofline: 2 measuring tests planned, about 9 s*"])
    desk.run("-k", "64MiB").stdout.fnmatch_lines(["roofline: 1 measuring test* planned*"])
    desk.suite(SLOW_TO_SET_UP.format(marks="", sleeps=2.4))
    assert [planned_s(desk.run()), planned_s(desk.run())] == [2, 3]
    desk.script(product="NVIDIA A100-SXM4-80GB")
    desk.suite(SLOW_TO_SET_UP.format(marks="", sleeps="0)\n    raise ValueError(1"))
    assert planned_s(desk.run()) == 2, "another device"
    # A test that failed tells nothing, and a cache that something else wrote is no trouble.
    desk.script()
    assert [planned_s(desk.run()), planned_s(desk.run())] == [3, 3]
    path = desk.path / ".pytest_cache" / "v" / "roofline" / "took"
    for text in ("[]", "{", '{"NVIDIA H100 80GB HBM3": 3}'):
        path.write_text(text)
        assert planned_s(desk.run("-o", "cache_dir=.pytest_cache")) == 2
    assert planned_s(desk.run("-p", "no:cacheprovider")) == 2


def test_a_suite_that_does_not_measure_sees_and_imports_nothing_of_it(desk):
    desk.suite("def test_nothing(): pass\n")
    result = desk.run("-v")
    assert result.ret == 0
    # The list of plugins is pytest's own line.
    seen = [
        line for line in result.stdout.lines if "roofline" in line and not line.startswith(("plugins:", "rootdir:"))
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


def test_long_names_fold_inside_eighty_columns_and_lose_nothing(desk):
    name = "a_benchmark_whose_name_goes_on_and_on_and_on_for_longer_than_any_table_is_wide_and_then_some_more"
    desk.suite(f"""
from pytest_roofline import Work
def test_{name}(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))
""")
    table = table_of(desk.run())
    assert max(map(len, table)) <= 80
    assert name in "".join(line.partition(" ")[0] for line in table[2:])
    assert any("1.00 ms" in line and "2000" in line and "NO BASELINE" in line for line in table)


def test_colour_that_is_asked_for_colours_the_verdict_and_a_quiet_run_still_gates(desk):
    desk.suite()
    desk.script(slow=1.3)
    lines = desk.run("--color=yes", "--roofline-min-percent=55").stdout.lines
    assert any("\x1b" in line and "REGRESSED" in line and "1 GiB" in line for line in lines)
    for quiet in ("-q", "-qq"):
        result = desk.run(quiet, "--roofline-min-percent=55")
        assert (result.ret, "REGRESSED" in result.stdout.str()) == (1, True)


def test_words_in_brackets_stay_whole_in_the_table(desk):
    desk.suite("""
import pytest
from pytest_roofline import Work
@pytest.mark.parametrize("way", ["bold", "h2d-pinned", ":fire:"])
def test_copy(roofline, busy, way):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=2**30, write_bytes=2**30))
@pytest.mark.parametrize("size_bytes", [64 * 2**20])
@pytest.mark.parametrize("way", ["red"])
def test_both(roofline, busy, way, size_bytes):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))
""")
    table = "\n".join(table_of(desk.run()))
    assert [word for word in ("copy[bold]", "copy[h2d-pinned]", "copy[:fire:]", "both[red]") if word not in table] == []
