"""The command of a gate decides: what a pytest.ini, PYTEST_ADDOPTS or a conftest.py sets beside it cannot hide."""

import pytest

from .conftest import ONE

TWO = f"{ONE.format(marks='')}\ndef test_two(roofline, busy):\n    roofline.measure(lambda: busy(1e-3), work=WORK)\n"
SOURCES = {
    "ini": "pytest.ini",
    "addopts": "pytest.ini",
    "environment": "PYTEST_ADDOPTS",
    "conftest": "conftest.py",
}


@pytest.fixture
def recorded(desk):
    """A desk whose two tests have a baseline."""
    desk.baseline(text=TWO)
    return desk


def set_elsewhere(desk, monkeypatch, place, option, value, ini=None):
    """Set an option outside the command: by its ini twin, in addopts, in PYTEST_ADDOPTS, or in a conftest.py."""
    words = (
        f"{option} {value}"
        if option.startswith("-") and not option.startswith("--")
        else f"{option}={value}"
    )
    if place == "ini":
        desk.ini(f"{ini} = {value}")
    elif place == "addopts":
        desk.ini(f"addopts = {words}")
    elif place == "environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", words)
    else:
        name = {"-k": "keyword"}.get(option, option.strip("-").replace("-", "_"))
        members = [value] if name == "roofline_against" else value
        hook = f"@pytest.hookimpl(trylast=True)\ndef pytest_configure(config): config.option.{name} = {members!r}\n"
        desk.pytester.makeconftest(f"{desk.conftest}\n{hook}")


@pytest.mark.parametrize("place", SOURCES)
@pytest.mark.parametrize("option", ["--roofline-rounds", "--roofline-time"])
def test_no_other_place_takes_a_gate_its_rounds(recorded, monkeypatch, place, option):
    value = "1" if option == "--roofline-rounds" else "1e-9"
    set_elsewhere(recorded, monkeypatch, place, option, value, option.strip("-").replace("-", "_"))
    result = recorded.run("--roofline-ci")
    result.assert_outcomes(passed=2)
    name = option.removeprefix("--roofline-")
    result.stdout.fnmatch_lines(
        [
            "roofline: *up to 12 rounds, no new round after 30 min*",
            f"roofline: settings from outside the command: {SOURCES[place]}: {name} {value} (not heeded)",
        ]
    )


@pytest.mark.parametrize("place", SOURCES)
def test_a_gate_whose_baselines_are_replaced_outside_its_command_is_red(
    recorded, monkeypatch, place
):
    recorded.script(slow=1.3)
    recorded.run("-q", "--roofline-save=evil", "--roofline-rounds=1")
    set_elsewhere(recorded, monkeypatch, place, "--roofline-against", "evil", "roofline_against")
    result = recorded.run("--roofline-ci", "--roofline-rounds=1")
    result.assert_outcomes(passed=2, failed=1)
    setting = f"{SOURCES[place]}: against evil"
    result.stdout.fnmatch_lines(
        [
            f"GATE: settings outside the command replace the baselines ({setting})",
            f"RED ({setting}): the gate compared too little, 2 of 2 fast enough",
        ]
    )
    # In the command itself it is what was asked for.
    recorded.ini()
    recorded.pytester.makeconftest(recorded.conftest.partition("\n@pytest.hookimpl(trylast")[0])
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    command = ("--roofline-ci", "--roofline-rounds=1", "--roofline-against=evil")
    result = recorded.run(*command)
    assert (result.ret, "GREEN: 2 of 2 fast enough" in result.stdout.lines) == (0, True)


LOOSER = {
    "tolerance": ("--roofline-tolerance", "45%", "roofline_tolerance", "tolerance 45 %", 2),
    "selection": ("-k", "two", None, "-k two", 1),
}


@pytest.mark.parametrize("place", SOURCES)
@pytest.mark.parametrize("kind", LOOSER)
def test_what_holds_outside_the_command_is_named_until_a_green_run_had_it(
    recorded, monkeypatch, place, kind
):
    option, value, ini, text, count = LOOSER[kind]
    if place == "ini" and ini is None:
        place = "addopts"
    recorded.script(slow=1.3 if kind == "tolerance" else {"test_one": 1.3})
    set_elsewhere(recorded, monkeypatch, place, option, value, ini)
    setting = f"{SOURCES[place]}: {text}"
    fine = f"{count} of {count} fast enough"
    for last in (f"GREEN ({setting}): {fine}", f"GREEN: {fine}"):
        result = recorded.run("--roofline-ci", "--roofline-rounds=1")
        assert (result.ret, [line for line in result.stdout.lines if line.startswith("GREEN")]) == (
            0,
            [last],
        )
        assert f"roofline: settings from outside the command: {setting}" in result.stdout.lines


@pytest.mark.parametrize("option", ["--rootdir=evil", "--config-file=evil/pytest.ini"])
def test_an_environment_that_moves_the_project_and_its_baselines_is_named(
    recorded, monkeypatch, option
):
    recorded.script(slow=1.3)
    evil = recorded.path / "evil"
    evil.mkdir()
    (evil / "pytest.ini").write_text("[pytest]\n")
    (recorded.path / "baselines").rename(evil / "baselines")
    monkeypatch.setenv("PYTEST_ADDOPTS", option)
    result = recorded.run("--roofline-ci", "--roofline-rounds=1")
    setting = f"PYTEST_ADDOPTS: {option}"
    result.stdout.fnmatch_lines(
        [
            f"roofline: settings from outside the command: {setting}",
            f"* ({setting}): *0 of 2 fast enough*",
        ]
    )
    # In the command it is what was asked for.
    monkeypatch.delenv("PYTEST_ADDOPTS")
    result = recorded.run("--roofline-ci", "--roofline-rounds=1", option)
    assert "roofline: settings from outside the command" not in result.stdout.str()


@pytest.mark.parametrize(
    ("chosen", "text"),
    [("items", "tolerance 45 %, "), ("items[:1]", "tolerance 45 % in 1 of 2 tests, 5 % in 1, ")],
)
def test_the_header_has_the_tolerances_of_marks_that_a_conftest_adds(recorded, chosen, text):
    hook = "def pytest_collection_modifyitems(items):"
    mark = "pytest.mark.roofline(tolerance=0.45)"
    recorded.pytester.makeconftest(
        f"{recorded.conftest}\n{hook}\n    for item in {chosen}: item.add_marker({mark})\n"
    )
    result = recorded.run("--roofline-ci", "--roofline-rounds=1")
    result.stdout.fnmatch_lines([f"roofline: 2 measuring tests planned, *(tier quick, {text}*"])


def test_what_the_command_gives_holds_over_every_other_place(recorded, monkeypatch):
    looser = [(place, *LOOSER["tolerance"][:3]) for place in SOURCES]
    for place, option, value, ini in looser:
        set_elsewhere(recorded, monkeypatch, place, option, value, ini)
    # By `-o` it stands in the command as well.
    for words in (("--roofline-tolerance=6%",), ("-o", "roofline_tolerance=6%")):
        result = recorded.run("--roofline-ci", "--roofline-rounds=1", *words)
        result.stdout.fnmatch_lines(["roofline: *tolerance 6 %*"])
        assert "roofline: settings from outside the command" not in result.stdout.str()


def test_a_gate_that_only_the_ini_asks_for_takes_all_from_there(recorded):
    recorded.script(slow=1.3)
    recorded.ini("roofline_ci = true", "roofline_rounds = 1", "roofline_tolerance = 45%")
    result = recorded.run()
    assert (result.ret, result.stdout.lines.count("GREEN: 2 of 2 fast enough")) == (0, 1)
    assert "roofline: settings from outside the command" not in result.stdout.str()


def test_the_ini_cannot_make_a_gate_of_the_command_watch_only(recorded):
    recorded.ini("roofline_ci = shadow")
    assert "SHADOW" not in recorded.run("--roofline-ci").stdout.str()


LOOKS = {
    "--collect-only": "collectonly",
    "--co": "collectonly",
    "--setup-plan": "setupplan",
    "--setup-only": "setuponly",
    "--fixtures": "showfixtures",
    "--fixtures-per-test": "show_fixtures_per_test",
    "--markers": "markers",
    "--cache-show": "cacheshow",
    "--help": "help",
    "--version --version": "version",
}


@pytest.mark.parametrize("place", ["command", "addopts", "environment"])
@pytest.mark.parametrize("flag", LOOKS)
def test_an_option_that_only_looks_and_a_gate_of_the_command_are_a_usage_error(
    desk, monkeypatch, sentence, place, flag
):
    desk.suite(TWO)
    if place == "addopts":
        desk.ini(f"addopts = {flag}")
    elif place == "environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", flag)
    words = flag.split() if place == "command" else []
    for gate in ("--roofline-ci", "--roofline-ci=shadow"):
        sentence(desk.run(gate, *words), "only lists tests", SOURCES.get(place, "--"))
    # Without a gate in the command, and for an editor whose project has one in its ini file, pytest looks.
    assert desk.run(*words).ret == 0
    if place != "addopts":
        desk.ini("roofline_ci = true")
        assert desk.run(*words).ret == 0


def test_a_conftest_that_makes_a_gate_look_is_no_green_run_either(desk, sentence):
    desk.suite(TWO)
    plain = desk.conftest
    for hook, status in (
        ("pytest_configure(config): config.option.collectonly = True", 4),
        ("pytest_collection(session): session.config.option.collectonly = True", 1),
    ):
        desk.pytester.makeconftest(f"{plain}\ndef {hook}\n")
        result = desk.run("--roofline-ci")
        text = "conftest.py: --collect-only only lists tests"
        assert (result.ret, text in result.stdout.str() + result.stderr.str()) == (status, True)


ON_THE_SPOT = {
    "--reruns=1": "reruns",
    "--force-reruns=1": "force_reruns",
    "--pdb": "usepdb",
    "--setup-show": "setupshow",
}


@pytest.mark.parametrize(
    ("place", "flag"),
    [
        ("ini", "reruns=1"),
        *((place, flag) for place in SOURCES if place != "ini" for flag in ON_THE_SPOT),
    ],
)
def test_an_option_from_elsewhere_that_takes_a_gate_its_rounds_is_a_usage_error(
    recorded, monkeypatch, sentence, place, flag
):
    if place == "ini":
        recorded.ini(flag)
    elif place == "addopts":
        recorded.ini(f"addopts = {flag}")
    elif place == "environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", flag)
    else:
        value = 1 if "=" in flag else True
        hook = f"def pytest_configure(config): config.option.{ON_THE_SPOT[flag]} = {value}"
        recorded.pytester.makeconftest(f"{recorded.conftest}\n{hook}\n")
    sentence(recorded.run("--roofline-ci"), f"{SOURCES[place]}: {flag} disables the further rounds")
    # A gate of one round has none to lose, and in the command itself it is what was asked for.
    assert recorded.run("--roofline-ci", "--roofline-rounds=1").ret == 0
    assert recorded.run("--roofline-ci", "--reruns=0" if place == "ini" else flag).ret == 0


EXIT = "pytest.exit('the node is needed', returncode=0)"


@pytest.mark.parametrize(
    ("hook", "text"),
    {
        "pytest_configure": "the run ended with status 0 before it printed its result",
        "pytest_sessionstart": "the run ended with status 0 before it printed its result",
        "pytest_sessionfinish": "pytest.exit(returncode=0) ended the run before its report",
    }.items(),
)
def test_a_conftest_that_ends_a_gate_with_status_0_ends_no_green_run(recorded, hook, text):
    recorded.pytester.makeconftest(f"{recorded.conftest}\ndef {hook}(): {EXIT}\n")
    for gate, status in (
        ("--roofline-ci", 1),
        ("--roofline-ci=shadow", 0),
    ):
        result = recorded.run(gate, "--roofline-rounds=1")
        assert (result.ret, f"GATE: {text}" in result.stderr.str()) == (
            status,
            bool(status) or "run ended" in text,
        )
    assert recorded.run().ret == 0
    # What was red stays red.
    if hook == "pytest_sessionfinish":
        recorded.suite("def test_bad(): assert False\n")
        assert recorded.run("--roofline-ci").ret == 1


STATUS_0 = {
    "pytest_sessionfinish(session)": ("session.exitstatus = 0", "raise SystemExit(0)"),
    "pytest_terminal_summary()": ("raise SystemExit(0)", "raise SystemExit"),
    "pytest_unconfigure()": ("raise SystemExit(0)",),
}


@pytest.mark.parametrize(
    ("hook", "body"), [(hook, body) for hook, bodies in STATUS_0.items() for body in bodies]
)
def test_no_conftest_gives_a_red_gate_the_status_0(recorded, hook, body):
    recorded.suite(f"{TWO}\ndef test_silent(roofline): pass\n")
    recorded.pytester.makeconftest(f"{recorded.conftest}\ndef {hook}: {body}\n")
    result = recorded.run("--roofline-ci", "--roofline-rounds=1")
    assert (result.ret, "GATE: the run ended with status 0 " in result.stderr.str()) == (1, True)
    # A gate that only watches has no status of its own.
    shadow = recorded.run("--roofline-ci=shadow", "--roofline-rounds=1")
    assert shadow.ret == 0


def test_a_conftest_that_ends_a_gate_before_its_last_line_ends_no_green_run(recorded):
    plain = recorded.conftest
    for hook, status in (("sessionfinish", 1), ("terminal_summary", 1), ("unconfigure", 0)):
        recorded.pytester.makeconftest(f"{plain}\ndef pytest_{hook}(): raise SystemExit(0)\n")
        result = recorded.run("--roofline-ci", "--roofline-rounds=1")
        assert (result.ret, "GATE: " in result.stderr.str()) == (status, bool(status)), hook


def test_a_conftest_that_runs_nothing_in_place_of_pytest_ends_no_green_run(recorded):
    recorded.pytester.makeconftest(
        f"{recorded.conftest}\n@pytest.hookimpl(tryfirst=True)\ndef pytest_cmdline_main(): return 0\n"
    )
    assert (recorded.run("--roofline-ci").ret, recorded.run().ret) == (1, 0)


def test_a_slowdown_is_red_whatever_the_ini_switches_off_and_although_it_asks_for_one_round(
    recorded,
):
    recorded.script(slow=1.3)
    parts = ("gate-of-command", "gatekeeper", "running", "deciding", "frames")
    switches = " ".join(f"-p no:roofline-{part}" for part in parts)
    recorded.ini("roofline_rounds = 1", f"addopts = {switches}")
    result = recorded.run("--roofline-ci", "-k", "one")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["one: +30.0 % time * REGRESSED, *, 5 against 5 processes"])


def test_no_object_of_the_plugin_has_a_name_by_which_it_can_be_switched_off(recorded):
    names = "[name for name, _ in config.pluginmanager.list_name_plugin() if 'roofline' in name]"
    hook = f"def pytest_unconfigure(config): print('names:', {names})"
    recorded.pytester.makeconftest(f"{recorded.conftest}\n{hook}\n")
    result = recorded.run("--roofline-ci", "--roofline-rounds=1")
    assert "names: ['roofline']" in result.stdout.lines


def test_a_setting_that_the_last_green_run_had_is_named_when_it_is_gone(recorded):
    """A tier of an ini file that goes takes the tests of that tier out of the gate."""
    command = ("--roofline-ci", "--roofline-rounds=1")
    recorded.ini("roofline_tier = nightly", "roofline_tolerance = 3%")
    lines = [recorded.run(*command).stdout.lines, recorded.run(*command).stdout.lines]
    recorded.ini()
    lines.append(recorded.run(*command).stdout.lines)
    assert [next(line for line in run if line.startswith("GREEN")) for run in lines] == [
        "GREEN (pytest.ini: tolerance 3 %, pytest.ini: tier nightly): 2 of 2 fast enough",
        "GREEN: 2 of 2 fast enough",
        "GREEN (no longer pytest.ini: tolerance 3 %, no longer pytest.ini: tier nightly): 2 of 2 fast enough",
    ]
