"""Options, their ini twins, the marker: precedence, and one sentence for whatever cannot be used."""

import argparse
import json
from types import SimpleNamespace

import pytest

from pytest_roofline.plugin import running

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
    desk.suite(text)
    path = desk.path / "baselines" / "h100.json"
    raw = json.loads(path.read_text())
    raw["entries"][0]["tolerance"] = entry
    path.write_text(json.dumps(raw))
    desk.ini(*ini)
    result = desk.run(*args, "--roofline-fail-on=regressed,inconclusive", "--roofline-rounds=1")
    assert result.ret == 1, result.stdout.str()
    (verdict,) = desk.last_run().verdicts
    return f"{100 * verdict.tolerance:g}"


def test_the_argument_goes_before_marker_entry_command_line_ini_and_default(desk):
    desk.baseline(text=ONE)
    desk.script(slow=1.5)
    ini, option = ["roofline_tolerance = 20%"], "--roofline-tolerance=15%"
    argument = MARKED.replace("work=WORK", "work=WORK, tolerance=0.08")
    nearest = MARKED + "\npytestmark = pytest.mark.roofline(tolerance=0.3, budget=2)\n"
    assert judged_by(desk) == "5"
    assert judged_by(desk, ini=ini) == "20"
    assert judged_by(desk, option, ini=ini) == "15"
    assert judged_by(desk, option, entry=0.12, ini=ini) == "12"
    assert judged_by(desk, option, text=MARKED, entry=0.12) == "10"
    percent = BASE.format(marks="@pytest.mark.roofline(tolerance='7%')")
    assert judged_by(desk, option, text=percent, entry=0.12) == "7"
    assert judged_by(desk, option, text=argument, entry=0.12) == "8"
    assert judged_by(desk, text=nearest) == "10"
    # It holds offline as it does live.
    desk.ini()
    desk.suite(ONE)
    desk.script()
    desk.run("--roofline-save=old")
    desk.suite(BASE.format(marks="@pytest.mark.roofline(tolerance=0.5)"))
    desk.script(slow=1.3)
    assert desk.run("--roofline-save=new", "--roofline-against=old").ret == 0
    assert desk.cli("compare", "old", "new").exit_code == 0


def test_a_wide_tolerance_says_that_it_is_meant_or_why(desk, sentence):
    desk.suite()
    desk.run("--roofline-tolerance=80%!").stdout.fnmatch_lines(["roofline: *tolerance 80 %*"])
    for marks, words in (
        ("tolerance=0.8", ["80 %", "tolerance_reason"]),
        ("tolerance='80%'", ["80 %", "tolerance_reason"]),
        ("tolerance=1e9, tolerance_reason='busy'", ["at most 200%"]),
        ("tolerance=0.8, tolerance_reason=' '", ["tolerance_reason=' '", "a sentence"]),
        ("tolerance=0.8, tolerance_reason='a shared host'", []),
    ):
        desk.one(f"@pytest.mark.roofline({marks})\n")
        result = desk.run()
        if words:
            sentence(result, "test_one", *words)
        else:
            assert result.ret == 0
    desk.suite(ONE.replace("work=WORK", "work=WORK, tolerance=0.8"))
    result = desk.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*tolerance is 80 %*tolerance_reason*"])


def test_what_no_option_is_and_what_contradicts_another_is_a_usage_error(desk, sentence):
    desk.five_runs()
    assert desk.run("--roofline-colour=blue").ret == 4
    sentence(
        desk.run("--roofline-save=run0", "--roofline-against=run0"), "--roofline-save", "'run0'"
    )
    desk.ini("roofline_device = bogus")
    sentence(desk.run(), "'bogus'")
    desk.ini()
    (desk.path / "node.json").write_text("[]")
    for text in ('{"schema": 1', "[]", '{"schema": 1, "gpus": [], "colour": 1}', ""):
        (desk.path / "node.json").write_text(text)
        sentence(desk.run("--roofline-expect=node.json"), "node.json")
    desk.pytester.makeconftest("")
    sentence(desk.run("--roofline-device=cuda:9"), "cuda")


def test_every_option_but_those_of_the_command_alone_has_an_ini_twin_and_a_line_of_help():
    from pytest_roofline.plugin import pytest_addoption

    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    options = [option for group in parser._groups for option in group.options]
    # `--roofline-ci=shadow` is a flag of its own, and a value of the same line in the ini file.
    names = {
        name.removeprefix("--").partition("=")[0] for option in options for name in option.names()
    }
    hidden = {
        option.names()[0] for option in options if option.attrs()["help"] == argparse.SUPPRESS
    }
    assert {"--roofline-drill"} == hidden
    commanded = {"roofline-record", "roofline-accept-slower", "roofline-drill"}
    assert {name.replace("-", "_") for name in names - commanded} == set(parser._inidict)
    assert len(names) - len(hidden) <= 23


def test_the_ini_sets_what_the_command_line_does_and_comes_behind_it(desk):
    desk.baseline("site")
    desk.five_runs()
    desk.ini("roofline_tier = full", "roofline_budget = 3", "roofline_save = kept", "roofline_dir = results",
             "roofline_baselines = site", "roofline_fail_on = +no-baseline")  # fmt: skip
    # Paths in it are relative to it, also from elsewhere.
    (desk.path / "below").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(desk.path / "below")
        result = desk.run("..")
    result.stdout.fnmatch_lines(["roofline: *planned*(tier full*", "GREEN: 2 of 2 *"])
    assert (desk.path / "results" / "runs" / "kept.jsonl").is_file()
    desk.run("--roofline-tier=nightly", "--roofline-save=other").stdout.fnmatch_lines(
        ["roofline: *(tier nightly*"]
    )
    desk.ini("roofline_against = run0 run1")
    desk.run().stdout.fnmatch_lines(["roofline *against 2 saved runs (run0, run1)"])
    desk.ini("roofline_fail_on = +no-baseline")
    assert desk.run().ret == 1
    desk.suite("def test_two(roofline): roofline.skip_for_hardware('needs 2 GPUs, found 1')\n")
    desk.ini("roofline_fail_on = +no-hardware")
    assert desk.run().ret == 1


def test_the_marker_is_registered_with_its_keywords_and_sets_cache_and_gate(desk):
    desk.run("--markers").stdout.fnmatch_lines(
        ["@pytest.mark.roofline(tolerance=*, cache=*, budget=*, ranks=*, gate=*"]
    )
    desk.suite(BASE.format(marks="@pytest.mark.roofline(gate=True, cache='warm')"))
    assert desk.run("--strict-markers").ret == 0
    (measurement,) = desk.last_run().measurements
    assert (measurement.gate, measurement.key.cache) == (True, "warm")


def test_an_environment_in_which_data_or_kernels_are_not_what_they_seem_is_told(
    desk, sentence, monkeypatch
):
    desk.suite(ONE)
    for value, told in (("1", 1), ("0", 0)):
        monkeypatch.setenv("TRITON_INTERPRET", value)
        warned = "roofline WARNING: TRITON_INTERPRET=1: Triton kernels run on the host, not on fake. Unset "
        warned += "TRITON_INTERPRET"
        assert desk.run().stdout.lines.count(warned) == told, value
    monkeypatch.setattr(running, "sys", SimpleNamespace(flags=SimpleNamespace(optimize=1)))
    sentence(
        desk.run(),
        "Python leaves out assert statements (PYTHONOPTIMIZE or -O, level 1)",
        "Unset PYTHONOPTIMIZE",
    )
    desk.suite("def test_plain(): pass")
    assert desk.run().ret == 0


MISTYPED = {
    "--roofline-ci=true": (
        "--roofline-ci is 'true'; expected no value but shadow. Type --roofline-ci or --roofline-ci=shadow"
    ),
    "--roofline-record=yes": (
        "--roofline-record is 'yes'; expected no value. Type --roofline-record"
    ),
    "--roofline-baseline=x": (
        "pytest has no option --roofline-baseline; did you mean --roofline-baselines?"
    ),
    "--roofline-fail_on=invalid": (
        "pytest has no option --roofline-fail_on; did you mean --roofline-fail-on?"
    ),
    "--roofline-recrd": "pytest has no option --roofline-recrd; did you mean --roofline-record?",
    "--roofline-zzz": ("pytest has no option --roofline-zzz; `pytest --help` lists all options"),
}


@pytest.mark.parametrize("place", ["command", "addopts", "environment"])
@pytest.mark.parametrize("option", MISTYPED)
def test_a_mistyped_option_is_refused_with_what_to_type(desk, sentence, monkeypatch, option, place):
    desk.one()
    if place == "addopts":
        desk.ini(f"addopts = {option}")
    if place == "environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", option)
    words = [option] if place == "command" else []
    assert f"ERROR: {MISTYPED[option]}" == sentence(desk.run(*words, "test_suite.py"))


def test_an_option_that_begins_like_ours_may_be_a_conftests_own(desk):
    desk.one()
    hook = "def pytest_addoption(parser): parser.addoption('--roofline-site', default='')"
    desk.pytester.makeconftest(f"{desk.conftest}\n{hook}\n")
    assert desk.run("--roofline-site=here", "--roofline-ci=shadow").ret == 0
