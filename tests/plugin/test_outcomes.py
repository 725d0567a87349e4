"""How a test ends decides what its numbers are worth: failures, skips, set-up, vanished devices, drills."""

from pathlib import Path

import pytest_roofline

BODY = """
import pytest
from pytest_roofline import Work
WORK = Work(read_bytes=10**9, write_bytes=10**9)

def test_good(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_other(roofline, busy, request):
    roofline.measure(lambda: busy(1e-3), work=WORK)
    {end}
"""


def ending(desk, end, *args):
    desk.suite(BODY.format(end=end))
    return desk.run("--roofline-save=it", *args)


def proposed(desk):
    """What `propose` took and what it said."""
    (desk.path / "p.json").unlink(missing_ok=True)
    answer = desk.cli("baseline", "propose", "it", "-o", "p.json")
    assert answer.exit_code == 0, answer.output
    return answer.output, (desk.path / "p.json").read_text()


def row(result, name):
    return next(line for line in result.stdout.lines if line.startswith(f"{name} "))


def test_a_test_that_fails_for_itself_fails_plainly_and_never_becomes_a_baseline(desk):
    result = ending(desk, "assert 1 == 2")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])
    assert "REGRESSED" not in result.stdout.str()
    said, text = proposed(desk)
    assert "left out: other of it: the test failed" in said
    assert ('"benchmark": "other"' in text, '"benchmark": "good"' in text) == (False, True)
    answer = desk.cli("baseline", "propose", "it", "-o", "slower.json", "--accept-slower")
    assert "left out: other of it" in answer.output
    desk.suite(BODY.format(end="pass"))
    desk.run("--roofline-against=it").stdout.fnmatch_lines(["NO BASELINE other: *"])


def test_what_was_measured_before_a_test_ended_otherwise_never_becomes_a_baseline_either(desk):
    for end, ended, word in (
        ("request.addfinalizer(lambda: 1 / 0)", {"passed": 2, "errors": 1}, None),
        ("pytest.skip('not today')", {"passed": 1, "skipped": 1}, "SKIPPED"),
        ("pytest.xfail('known')", {"passed": 1, "xfailed": 1}, "XFAIL"),
        ("roofline.measure(lambda: busy(1e-3), work=WORK, name='bad', verify=lambda: False)",
         {"passed": 1, "failed": 1}, "FAILED"),
    ):  # fmt: skip
        desk.run_path("it").unlink(missing_ok=True)
        result = ending(desk, end)
        result.assert_outcomes(**ended)
        said, text = proposed(desk)
        assert "left out: other of it" in said or "left out: other.bad of it: wrong data" in said, (
            end
        )
        assert word == "FAILED" or '"benchmark": "other"' not in text, end
        assert '"name": "bad"' not in text
        assert word is None or row(result, "other.bad" if word == "FAILED" else "other").endswith(
            word
        )
        if word == "SKIPPED":
            last = next(
                line
                for line in result.stdout.lines
                if " measured" in line and not line.startswith("roofline")
            )
            assert last in ("2 measured", "1 measured, 1 not measured (not today)")
    result.stdout.fnmatch_lines(["*other.bad: wrong data*"])


SETUP = """
import pytest
from pytest_roofline import Work

@pytest.fixture
def measured(roofline, busy):
    {inner}roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))

def test_one(measured):
    pass
"""


def test_what_a_fixture_measures_is_gated_like_the_body(desk):
    text = SETUP.format(inner="")
    desk.suite(text)
    desk.script(slow=1.3)
    result = desk.run("--roofline-min-percent=25")
    assert result.ret == 1
    # In the call phase: a failure, not an error.
    result.assert_outcomes(failed=1, errors=0)


def test_what_is_measured_in_teardown_is_judged_or_refused(desk):
    # Never green for want of a judge.
    desk.suite(SETUP.format(inner="yield\n    "))
    assert desk.run("--roofline-fail-on=+no-baseline").ret == 1


def test_a_call_of_the_fixture_says_what_to_write(desk):
    desk.suite("def test_one(roofline): roofline(lambda: None)\n")
    result = desk.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the fixture roofline is not a function*roofline.measure(fn, [*]args)*"]
    )


def test_a_measure_that_cannot_work_says_so_in_its_test(desk):
    cases = [
        ("lambda: None, work=7", "work is 7; expected Work"),
        ("lambda: None, work=Work()", "no work"),
        ("lambda: None, work=Work(read_bytes=0)", "no work"),
        ("lambda: None, work=Work(read_bytes=-1)", "-1"),
        ("7, work=WORK", "expected a function"),
        ("later, work=WORK", "async"),
        ("lambda: None, work=WORK, cache='cold'", "cache is 'cold'"),
        ("lambda: None, work=WORK, timing='sundial'", "timing is 'sundial'"),
        ("lambda: None, work=WORK, budget=0", "budget is 0"),
        ("lambda: None, work=WORK, tolerance=-1", "tolerance is -1"),
        ("lambda: None, 1, work=WORK, make_args=tuple", "expected only args or only make_args"),
        ("lambda: None, WORK", "expected the keyword work=Work"),
        ("lambda: None, work=WORK, cache='rotate'", "make_args"),
        ("lambda: 1 / 0, work=WORK", "ZeroDivisionError"),
    ]
    tests = "".join(
        f"def test_bad{n}(roofline):\n    roofline.measure({call})\n"
        for n, (call, _) in enumerate(cases)
    )
    twice = (
        "def test_twice(roofline, busy):\n"
        + 2 * "    roofline.measure(lambda: busy(1e-3), work=WORK)\n"
    )
    desk.suite(
        f"from pytest_roofline import Work\nWORK = Work(read_bytes=1)\nasync def later(): pass\n{tests}{twice}"
    )
    result = desk.run()
    result.assert_outcomes(failed=len(cases) + 1)
    errors = [line for line in result.stdout.lines if line.startswith("E  ")]
    again = (
        "",
        "this test has two measurements with no name. Give each a different name, as in name='cold'",
    )
    assert [
        words for _, words in [*cases, again] if not any(words in line for line in errors)
    ] == []
    assert [one.label for one in desk.last_run().measurements] == ["twice"]


FRAMES = """
import unittest
import pytest
from concurrent.futures import ThreadPoolExecutor
from pytest_roofline import Work
WORK = Work(read_bytes=1)

def helper():
    raise ValueError("mine")

def on_a_thread():
    with ThreadPoolExecutor() as pool:
        pool.submit(helper).result()

def chained():
    try:
        helper()
    except ValueError as error:
        raise KeyError("behind mine") from error

def grouped():
    raise ExceptionGroup("several", [ValueError("one of mine")])

def test_thread(roofline): roofline.measure(on_a_thread, work=WORK)
def test_chain(roofline): roofline.measure(chained, work=WORK)
def test_group(roofline): roofline.measure(grouped, work=WORK)
def test_bad(roofline): roofline.measure(helper, work=WORK, budget=-1)
def test_verify(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK, verify=lambda: helper())

class TestOld(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, roofline): self.roofline = roofline
    def test_raises(self): self.roofline.measure(helper, work=WORK)
    def test_bad(self): self.roofline.measure(helper, work=WORK, budget=-2)
"""


def test_a_failure_shows_the_users_frames_and_ours_only_where_all_are_asked_for(desk):
    desk.suite(FRAMES)
    ours = str(Path(pytest_roofline.__file__).parent)
    said = desk.run().stdout
    assert [line for line in said.lines if ours in line] == []
    for line in (
        "    pool.submit(helper).result()",
        '>           raise KeyError("behind mine") from error',
    ):
        assert line in said.lines, line
    said.fnmatch_lines(
        ["FAILED test_suite.py::test_bad - budget is -1; expected a number above zero"]
    )
    said.fnmatch_lines(
        ["FAILED test_suite.py::TestOld::test_bad - budget is -2; expected a number above zero"]
    )
    whole = desk.run("--full-trace", "-l").stdout.lines
    assert any(ours in line for line in whole)


def test_a_device_that_vanishes_fails_its_test_and_keeps_what_was_measured(desk):
    desk.suite("""
from pathlib import Path
from pytest_roofline import Work
WORK = Work(read_bytes=10**9)
def test_first(roofline, busy, fake):
    roofline.measure(lambda: busy(1e-3), work=WORK)
    Path("stamps").write_text(str(fake.stamps))
def test_second(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
""")
    desk.run()
    # A measurement takes 0.1 s of warm-up, 200 stamps at most, and then 40 samples.
    desk.script(vanish_after=int((desk.path / "stamps").read_text()) + 230)
    result = desk.run("--roofline-save=it")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*fake stopped answering: the device fell off the bus*"])
    first, second = desk.saved("it").measurements
    assert not first.invalid
    assert "fell off the bus" in second.invalid
