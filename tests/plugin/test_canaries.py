"""Canaries in a run: which processes measure them, where they are kept, and that nobody else speaks of them."""

import json

import pytest

from pytest_roofline.baselines.comparators import RunComparator
from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.core.keys import CANARIES
from pytest_roofline.engine import ceiling

from .conftest import NOISY, texts, write_sessions

# Torch knows no fake device, so that each is a millisecond of its clock; and what the run itself holds at its end.
CONFTEST = """

def pytest_configure(config):
    import contextlib
    from pytest_roofline.core.work import Work
    from pytest_roofline.engine import ceiling

    def canary_of(device, name):
        return ceiling.Canary(lambda: device.work(1e-3), Work(calls=1), {"dtype": "fp32"}, "time_s")

    ceiling.canary_of, ceiling.multiplying = canary_of, lambda *_: contextlib.nullcontext()


def pytest_sessionfinish(session):
    from pytest_roofline.plugin.current import session_key

    state = session.config.stash[session_key]
    if state.round is None:
        (HERE / "canaries").write_text(json.dumps([[one.round, one.key.name] for one in state.timed.canaries]))
"""


@pytest.fixture
def birds(desk, monkeypatch):
    """A desk whose fake device has canaries."""
    # The inner conftest.py replaces them in this process too.
    for name in ("canary_of", "multiplying"):
        monkeypatch.setattr(ceiling, name, getattr(ceiling, name))
    desk.pytester.makeconftest(desk.conftest + CONFTEST)
    desk.one()
    return desk


def canaries(run):
    return [one for one in run.measurements if one.key.is_canary]


def names_any(text):
    """Whether a text names one, and not just a path with such a folder."""
    return "canary[" in text or "::canary" in text


def recorded(birds):
    """A saved run of five days, and the options that compare with them."""
    assert birds.run("--roofline-save=once").ret == 0
    content = birds.run_path("once").read_text()
    birds.run_path("once").unlink()
    return write_sessions(birds.run_path("any").parent, content, NOISY)


def test_a_saved_run_holds_three_and_says_nothing_of_them(birds):
    result = birds.run("--roofline-save=it", "--roofline-report=report", "-v")
    run = birds.saved("it")
    assert [one.key.name for one in canaries(run)] == list(CANARIES)
    assert (run.footer.measured, [one.label for one in run.tested]) == (1, ["one"])
    assert RunComparator([run]).reference(canaries(run)[0].key) is not None
    assert not names_any(texts(result))
    result.stdout.fnmatch_lines(["1 measured"])
    # A copy of all lines of the run has them too, among its measurements.
    pages = ["index.html", "results.csv", "summary.md"]
    assert not [name for name in pages if names_any((birds.path / "report" / name).read_text())]
    assert not names_any(
        json.dumps(json.loads((birds.path / "report" / "run.json").read_text())["results"])
    )


def test_rounds_hand_theirs_to_the_run_and_the_first_process_measures_before_them(birds):
    options = recorded(birds)
    birds.script(slow=1.06)
    result = birds.run(*options, "--roofline-rounds=3")
    result.stdout.fnmatch_lines(["roofline: round 2 of at most 3:*"])
    expected = [[number, name] for number in (1, 2, 3) for name in CANARIES]
    assert json.loads((birds.path / "canaries").read_text()) == expected
    found = canaries(birds.last_run())
    assert [[one.round, one.key.name] for one in found] == expected
    assert (len({one.process for one in found}), {one.invalid for one in found}) == (3, {""})
    assert not names_any(texts(result))


def test_a_baseline_holds_them_for_each_session_and_nobody_asks_for_them(birds):
    recorded(birds)
    days = [birds.run_path(f"day{day}") for day in range(1, 6)]
    proposal, folder = birds.path / "p.json", birds.path / "baselines"
    proposed = birds.cli("baseline", "propose", *days, "-o", proposal)
    assert proposed.exit_code == 0, proposed.output
    assert "1 entry and 3 canaries (measurements of the machine itself) for h100" in proposed.output
    approved = birds.cli("baseline", "approve", proposal, "--into", folder)
    assert (approved.exit_code, names_any(approved.output)) == (0, False), approved.output
    entries = [entry for entry in read_baseline(folder / "h100.json").entries if entry.is_canary]
    assert [entry.name for entry in entries] == list(CANARIES)
    assert all(
        {s.run_id for s in entry.sessions} == {f"day{day}" for day in range(1, 6)}
        for entry in entries
    )
    result = birds.run("--roofline-ci", f"--roofline-baselines={folder}")
    assert result.ret == 0, texts(result)
    assert not names_any(texts(result))
    pruned = birds.cli("baseline", "check", "--prune", "--into", folder, "--tests", birds.path)
    assert pruned.exit_code == 0, pruned.output
    assert not names_any(pruned.output)


@pytest.mark.feature("exchange")
def test_no_command_shows_them_and_only_a_saved_run_measures_them(birds):
    recorded(birds)
    for command in (
        ["compare", "day1", "day2"],
        ["explain", "day1"],
        ["export", "day1", "--to=bencher"],
    ):
        said = birds.cli(*command)
        assert said.exit_code in (0, 1), said.output
        assert not names_any(said.output), command
    birds.run()
    assert json.loads((birds.path / "canaries").read_text()) == []
