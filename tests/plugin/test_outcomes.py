"""How a test ends decides what its numbers are worth: failures, skips, set-up, vanished devices, drills."""

import pytest

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
    answer = desk.cli("baseline", "propose", "it", "-o", "p.json")
    assert answer.exit_code == 0, answer.output
    return answer.output, (desk.path / "p.json").read_text()


def row(result, name):
    return next(line for line in result.stdout.lines if line.startswith(f"{name} "))


def test_an_assert_after_measuring_fails_plainly(desk):
    result = ending(desk, "assert 1 == 2")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])
    assert "REGRESSED" not in result.stdout.str()


def test_a_failed_test_is_left_out_of_a_proposal_and_named(desk):
    ending(desk, "assert 1 == 2")
    said, text = proposed(desk)
    assert "left out: other of it: its test failed" in said
    assert '"benchmark": "other"' not in text
    assert '"benchmark": "good"' in text


def test_a_failed_test_is_left_out_even_where_slowdowns_are_accepted(desk):
    ending(desk, "assert 1 == 2")
    answer = desk.cli("baseline", "propose", "it", "-o", "p.json", "--accept-slower")
    assert "left out: other of it" in answer.output


def test_a_failed_test_is_not_compared_with(desk):
    ending(desk, "assert 1 == 2")
    desk.suite(BODY.format(end="pass"))
    desk.run("--roofline-against=it").stdout.fnmatch_lines(["1 of 2 compared: *NO BASELINE for other*"])


def test_a_teardown_that_fails_marks_the_measurement_too(desk):
    ending(desk, "request.addfinalizer(lambda: 1 / 0)")
    said, text = proposed(desk)
    assert "left out: other of it" in said
    assert '"benchmark": "other"' not in text


def test_a_test_that_skips_after_measuring_is_not_called_failed(desk):
    result = ending(desk, "pytest.skip('not today')")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    assert "FAILED" not in result.stdout.str()


def test_a_test_that_skips_after_measuring_counts_once(desk):
    result = ending(desk, "pytest.skip('not today')")
    last = next(line for line in result.stdout.lines if " measured" in line and not line.startswith("roofline"))
    assert last in ("2 measured", "1 measured, 1 not measured (not today)")


def test_a_test_that_skips_after_measuring_never_becomes_a_baseline(desk):
    ending(desk, "pytest.skip('not today')")
    said, text = proposed(desk)
    assert "left out: other of it" in said
    assert '"benchmark": "other"' not in text


def test_a_test_that_xfails_after_measuring_is_not_called_failed(desk):
    result = ending(desk, "pytest.xfail('known')")
    assert result.ret == 0
    result.assert_outcomes(passed=1, xfailed=1)
    assert not row(result, "other").endswith("FAILED")


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
    against = desk.five_runs(text)
    desk.run(*against).stdout.fnmatch_lines(["1 of 1 compared: 1 PASSED", "1 measured"])
    desk.script(slow=1.3)
    result = desk.run(*against)
    assert result.ret == 1
    # In the call phase: a failure, not an error.
    result.assert_outcomes(failed=1, errors=0)


def test_what_a_fixture_measures_before_set_up_fails_stands_in_the_table(desk):
    desk.suite(SETUP.format(inner="") + "    \n@pytest.fixture(autouse=True)\ndef broken(measured): 1 / 0\n")
    result = desk.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["1 measured"])


def test_what_is_measured_in_teardown_is_judged_or_refused(desk):
    # Never green for want of a judge.
    desk.suite(SETUP.format(inner="yield\n    "))
    assert desk.run("--roofline-require-baseline").ret == 1


def test_measuring_twice_without_names_is_refused(desk):
    result = ending(desk, "roofline.measure(lambda: busy(1e-3), work=WORK)")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*measures twice under no name; give each measurement a name of its own*"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("lambda: None", "work is None"),
        ("lambda: None, work=Work()", "no work"),
        ("lambda: None, work=Work(read_bytes=0)", "no work"),
        ("lambda: None, work=Work(read_bytes=-1)", "-1"),
        ("7, work=WORK", "expected a function"),
        ("later, work=WORK", "async"),
        ("lambda: None, work=WORK, cache='cold'", "cache is 'cold'"),
        ("lambda: None, work=WORK, timing='sundial'", "timing is 'sundial'"),
        ("lambda: None, work=WORK, budget=0", "budget is 0"),
        ("lambda: None, work=WORK, tolerance=-1", "tolerance is -1"),
        ("lambda: None, work=WORK, args=(), make_args=tuple", "expected one of them"),
        ("lambda: None, work=WORK, cache='rotate'", "make_args"),
    ],
)
def test_a_measure_that_cannot_work_says_so_in_its_test(desk, call, words):
    desk.suite(f"""
from pytest_roofline import Work
WORK = Work(read_bytes=1)
async def later(): pass
def test_bad(roofline):
    roofline.measure({call})
""")
    result = desk.run()
    result.assert_outcomes(failed=1)
    errors = [line for line in result.stdout.lines if line.startswith("E  ") and words in line]
    assert errors, result.stdout.str()
    assert not (desk.path / ".roofline" / "runs").exists() or desk.last_run().measurements == ()


def test_wrong_data_fails_the_test_and_never_becomes_a_baseline(desk):
    result = ending(desk, "roofline.measure(lambda: busy(1e-3), work=WORK, name='bad', verify=lambda: False)")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*other.bad: wrong data*"])
    said, text = proposed(desk)
    assert "left out: other.bad of it: wrong data" in said
    assert '"name": "bad"' not in text


def test_an_exception_in_the_function_is_the_cause_that_is_shown(desk):
    result = ending(desk, "roofline.measure(lambda: 1 / 0, work=WORK, name='bad')")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ZeroDivisionError*"])


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


def test_a_device_that_vanishes_leaves_table_and_footer(desk):
    desk.suite()
    desk.script(vanish_after=100)
    result = desk.run("--roofline-save=it")
    assert "INTERNALERROR" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*= 2 failed in *"])


DRILL = """
import pytest

@pytest.hookimpl(optionalhook=True)
def pytest_roofline_function(item, name, fn):
    if "64MiB" in item.name:
        return lambda *args: [fn(*args), fn(*args)]
"""


def drill(desk, *args):
    desk.pytester.path.joinpath("drill.py").write_text(DRILL)
    return desk.run("-p", "drill", "--roofline-save=it", *args)


@pytest.fixture
def drilled(desk, monkeypatch):
    monkeypatch.syspath_prepend(desk.path)
    return desk


def test_a_drill_turns_the_gate_red(drilled):
    against = drilled.five_runs()
    result = drill(drilled, *against)
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["copy[[]64MiB]: +100.* REGRESSED*"])


def test_a_drill_is_never_proposed(drilled):
    drilled.suite()
    drill(drilled)
    said, text = proposed(drilled)
    assert "left out: copy[64MiB] of it" in said
    assert "67108864" not in text


def test_a_drill_is_never_compared_with(drilled):
    drilled.suite()
    drill(drilled)
    drilled.run("--roofline-against=it").stdout.fnmatch_lines(["1 of 2 compared: *"])


TOO_FAST = BODY.replace("{end}", "roofline.measure(lambda: busy(1e-5), work=WORK, name='fast')")


def test_a_rate_above_the_datasheet_is_invalid_and_said(desk):
    desk.suite(TOO_FAST)
    result = desk.run("--roofline-save=it")
    result.assert_outcomes(passed=2)
    assert row(result, "other.fast").endswith("INVALID")
    assert "datasheet's peak" in desk.saved("it").measurements[-1].invalid


def test_an_invalid_measurement_is_left_out_of_a_proposal_and_named(desk):
    desk.suite(TOO_FAST)
    desk.run("--roofline-save=it")
    said, text = proposed(desk)
    assert "left out: other.fast of it" in said
    assert '"name": "fast"' not in text
