"""Options, their ini twins, the marker: precedence, and one sentence for whatever cannot be used."""

import json

import pytest

BASE = """
import pytest
from pytest_roofline import Work
WORK = Work(read_bytes=10**9)
{marks}
def test_one(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
ONE = BASE.format(marks="")
MARKED = BASE.format(marks="@pytest.mark.roofline(tolerance=0.1)")


def judged_by(desk, *args, text=ONE, entry=None, ini=()):
    """The tolerance in percent by which a run was judged that took half as long again as its baseline."""
    desk.baseline(text=ONE)
    desk.suite(text)
    path = desk.path / "baselines" / "h100.json"
    raw = json.loads(path.read_text())
    raw["entries"][0]["tolerance"] = entry
    path.write_text(json.dumps(raw))
    desk.ini(*ini)
    desk.script(slow=1.5)
    result = desk.run(*args)
    assert result.ret == 1, result.stdout.str()
    (line,) = [line for line in result.stdout.lines if "REGRESSED, " in line]
    return line.partition("tolerance ")[2].partition(" %")[0]


def test_the_default_tolerance_is_five_percent(desk):
    assert judged_by(desk) == "5"


def test_the_ini_goes_before_the_default(desk):
    assert judged_by(desk, ini=["roofline_tolerance = 20%"]) == "20"


def test_the_command_line_goes_before_the_ini(desk):
    assert judged_by(desk, "--roofline-tolerance=15%", ini=["roofline_tolerance = 20%"]) == "15"


def test_the_entry_goes_before_the_command_line(desk):
    assert judged_by(desk, "--roofline-tolerance=15%", entry=0.12) == "12"


def test_the_marker_goes_before_the_entry(desk):
    assert judged_by(desk, "--roofline-tolerance=15%", text=MARKED, entry=0.12) == "10"


def test_the_argument_goes_before_the_marker(desk):
    text = MARKED.replace("work=WORK", "work=WORK, tolerance=0.08")
    assert judged_by(desk, "--roofline-tolerance=15%", text=text, entry=0.12) == "8"


def test_the_marker_nearest_to_the_test_wins(desk):
    text = MARKED + "\npytestmark = pytest.mark.roofline(tolerance=0.3, budget=2)\n"
    assert judged_by(desk, text=text) == "10"


def test_a_wide_tolerance_lets_a_slow_run_pass(desk):
    against = desk.five_runs(ONE)
    desk.script(slow=1.3)
    result = desk.run("--roofline-tolerance=50%", *against)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["roofline: *tolerance 50 %*"])


@pytest.mark.parametrize("text", ["7%", "0.07", "7 %", "7e-2"])
def test_a_tolerance_is_a_share_or_a_percentage(desk, text):
    assert judged_by(desk, f"--roofline-tolerance={text}") == "7"


@pytest.mark.parametrize("text", ["80%!", "0.8!", "80 %!"])
def test_a_wide_tolerance_says_that_it_is_meant(desk, text):
    desk.suite()
    desk.run(f"--roofline-tolerance={text}").stdout.fnmatch_lines(["roofline: *tolerance 80 %*"])


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ("tolerance=0.8", ["80 %", "tolerance_reason"]),
        ("tolerance=1e9, tolerance_reason='busy'", ["at most 200%"]),
        ("tolerance=0.8, tolerance_reason=' '", ["tolerance_reason=' '", "a sentence"]),
        ("tolerance=0.8, tolerance_reason='a shared host'", []),
    ],
)
def test_a_marker_with_a_wide_tolerance_says_why(desk, sentence, marks, words):
    desk.one(f"@pytest.mark.roofline({marks})\n")
    result = desk.run()
    if words:
        sentence(result, "test_one", *words)
    else:
        assert result.ret == 0


def test_a_measurement_with_a_wide_tolerance_needs_the_reason_of_its_marker(desk):
    desk.suite(
        "from pytest_roofline import Work\n\ndef test_one(roofline, busy):\n"
        "    roofline.measure(lambda: busy(1e-3), work=Work(calls=1), tolerance=0.8)\n"
    )
    result = desk.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*tolerance is 80 %*tolerance_reason*"])


def test_a_device_that_is_not_there_is_one_sentence(desk, sentence):
    desk.suite("def test_one(roofline): pass\n")
    desk.pytester.makeconftest("")
    sentence(desk.run("--roofline-device=cuda:9"), "cuda")


def test_an_unknown_option_is_a_usage_error(desk):
    desk.suite()
    assert desk.run("--roofline-colour=blue").ret == 4


def test_saving_and_comparing_under_one_name_is_a_contradiction(desk, sentence):
    desk.five_runs()
    sentence(desk.run("--roofline-save=run0", "--roofline-against=run0"), "--roofline-save", "'run0'")


def test_every_option_has_an_ini_twin(desk):
    from pytest_roofline.plugin import pytest_addoption

    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    options = [option for group in parser._groups for option in group.options]
    # `--roofline-ci=shadow` is a flag of its own, and a value of the same line in the ini file.
    names = {name.removeprefix("--").partition("=")[0] for option in options for name in option.names()}
    assert names
    assert {name.replace("-", "_") for name in names} == set(parser._inidict)


def test_the_ini_sets_tier_budget_save_and_folder(desk):
    desk.suite()
    desk.ini("roofline_tier = full", "roofline_budget = 3", "roofline_save = kept", "roofline_dir = results")
    desk.run().stdout.fnmatch_lines(["roofline: *about * s (tier full*"])
    assert (desk.path / "results" / "runs" / "kept.jsonl").is_file()


def test_the_ini_sets_what_to_compare_with(desk):
    desk.five_runs()
    desk.ini("roofline_against = run0 run1")
    desk.run().stdout.fnmatch_lines(["roofline *against 2 saved runs (run0, run1)"])


def test_the_ini_names_a_sites_baselines(desk):
    desk.baseline("site")
    desk.ini("roofline_baselines = site")
    desk.run().stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])


def test_paths_in_the_ini_are_relative_to_it(desk, monkeypatch):
    desk.baseline("site")
    desk.ini("roofline_baselines = site", "roofline_dir = results")
    (desk.path / "below").mkdir()
    monkeypatch.chdir(desk.path / "below")
    result = desk.run("..")
    result.stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])
    assert (desk.path / "results" / "runs").is_dir()


def test_paths_on_the_command_line_are_relative_to_where_it_is_typed(desk, monkeypatch):
    desk.baseline("below/site")
    monkeypatch.chdir(desk.path / "below")
    result = desk.run("..", "--roofline-baselines=site", "--roofline-dir=results")
    result.stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])
    assert (desk.path / "below" / "results" / "runs").is_dir()


def test_the_ini_requires_a_baseline(desk):
    desk.suite()
    desk.ini("roofline_require_baseline = true")
    assert desk.run().ret == 1


def test_the_ini_requires_hardware(desk):
    desk.suite("def test_two(roofline): roofline.skip_for_hardware('needs 2 GPUs, found 1')\n")
    desk.ini("roofline_require_hardware = true")
    assert desk.run().ret == 1


def test_the_ini_chooses_the_device(desk, sentence):
    desk.suite()
    desk.ini("roofline_device = bogus")
    sentence(desk.run(), "'bogus'")


def test_the_command_line_goes_before_the_ini_for_a_tier(desk):
    desk.suite()
    desk.ini("roofline_tier = full")
    desk.run("--roofline-tier=nightly").stdout.fnmatch_lines(["roofline: *(tier nightly*"])


def test_a_folder_of_ones_own_gets_no_gitignore_beside_the_tests(desk):
    # "*" in a .gitignore hides whatever else lies there: here the whole checkout.
    desk.suite()
    desk.run("--roofline-dir=.")
    assert not (desk.path / ".gitignore").exists()


def test_the_default_folder_ignores_itself_in_git(desk):
    desk.suite()
    desk.run()
    assert (desk.path / ".roofline" / "runs" / ".gitignore").read_text() == "*\n"


def test_the_marker_is_registered_with_its_keywords(desk):
    desk.run("--markers").stdout.fnmatch_lines(
        ["@pytest.mark.roofline(tolerance=*, cache=*, budget=*, ranks=*, gate=*"]
    )


def test_the_marker_sets_cache_and_gate(desk):
    desk.suite(BASE.format(marks="@pytest.mark.roofline(gate=True, cache='warm')"))
    assert desk.run("--strict-markers").ret == 0
    (measurement,) = desk.last_run().measurements
    assert measurement.gate
    assert measurement.key.cache == "warm"
