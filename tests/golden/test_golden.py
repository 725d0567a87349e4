"""What a user sees and gets, case by case, compared with files that `python -m tests.golden` writes."""

import itertools
import shlex
import shutil

import pytest

from pytest_roofline.processes import children

from .. import warm
from ..plugin.conftest import NOISY
from .cases import REPORTED, RUNS
from .commands import COMMANDS
from .normal import normal
from .stored import differences, renew, renewing, strangers

# The cache would tell how long tests took before; the other plugins print lines of their own.
OPTIONS = "addopts = -p no:cacheprovider -p no:benchmark -p no:rerunfailures -p no:xdist --tb=short"


CASES = RUNS | COMMANDS
# Older releases write another report for JUnit than the stored one.
NEEDS_PYTEST_9 = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="needs pytest 9, as junit.xml"
)


def marks_of(case):
    """What a case needs."""
    features = [pytest.mark.feature(*case.features)] if case.features else []
    return [*features, NEEDS_PYTEST_9] if "junit.xml" in case.keeps else features


PARAMETERS = [pytest.param(name, marks=marks_of(case)) for name, case in CASES.items()]


def play(case, desk):
    """Run a case's steps; its files by name, the first what a terminal showed of the commands."""
    against = desk.sessions(case.suite, case.days, together=case.days != NOISY) if case.days else []
    desk.suite(case.suite)
    said = "".join(_step(step, case, desk, against) for step in case.steps)
    found = {path.name: path for pattern in case.keeps for path in sorted(desk.path.glob(pattern))}
    texts = {"terminal.txt": said} | {
        name: path.read_text(encoding="utf-8") for name, path in found.items()
    }
    return {name: normal(name, text, desk.path) for name, text in texts.items()}


def _step(step, case, desk, against):
    """What one step shows on a terminal: the command, its output, its exit status."""
    if callable(step):
        step(desk)
        return ""
    if isinstance(step, dict):
        desk.script(**step)
        return ""
    if isinstance(step, tuple):
        name, text = step
        (desk.path / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.path / name).write_text(text, encoding="utf-8")
        return ""
    words = shlex.split(
        step.replace("{against}", " ".join(against)).replace("{reported}", REPORTED), comments=True
    )
    variables = list(itertools.takewhile(lambda word: word.partition("=")[0].isupper(), words))
    program, *arguments = words[len(variables) :]
    with pytest.MonkeyPatch.context() as patch:
        for variable in variables:
            patch.setenv(*variable.split("="))
        if program == "pytest" and case.alone:
            result = warm.run(["-m", "pytest", *arguments], cwd=desk.path)
            said, status = result.stdout + result.stderr, result.returncode
        elif program == "pytest":
            result = desk.run(*arguments)
            said, status = f"{result.stdout}\n{result.stderr}".strip("\n"), int(result.ret)
        else:
            result = desk.cli(*arguments)
            said, status = result.output, result.exit_code
    if "--json" in arguments and status < 2:
        said = normal("said.json", result.stdout, desk.path) + result.stderr
    return f"$ {step}\n{said.rstrip()}\n[exit status {status}]\n\n"


@pytest.mark.parametrize("name", PARAMETERS)
def test_golden(name, desk, monkeypatch):
    desk.ini(OPTIONS)
    desk.verbose = ()
    # Beside xdist it is another, and run files tell it.
    monkeypatch.setattr("sys.argv", ["pytest"])
    # Paths of this machine may be long.
    monkeypatch.setattr(children, "TAIL_COLUMNS", 1000)
    now = play(CASES[name], desk)
    if renewing():
        renew(name, now)
    if told := differences(name, now):
        pytest.fail(
            f"{name} is not as stored; if it is right now, `python -m tests.golden -k {name}`:\n{told}",
            False,
        )


def test_every_stored_folder_has_its_case():
    for path in strangers(CASES.keys()) if renewing() else ():
        shutil.rmtree(path)
    assert strangers(CASES.keys()) == [], "no case has these; `python -m tests.golden` removes them"
