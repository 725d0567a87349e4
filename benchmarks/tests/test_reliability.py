"""The program that kills, attacks and fuzzes: what it counts, and that it finds what is left."""

import json
import random
import signal

import pytest


@pytest.fixture(scope="module")
def reliability(program):
    return program("reliability")


@pytest.fixture
def killed(reliability):
    """Makes the record of a kill."""

    def make(victim="pytest", gone_s=0.1, **others):
        return reliability.Killed(
            victim, signal.SIGKILL, gone_s, **{"unread": 0, "lost": 0} | others
        )

    return make


def found(figure):
    return {goal.what: (goal.found, goal.reached) for goal in figure.goals}


def test_what_a_kill_spoils_misses_its_goal(reliability, killed):
    bad = [killed(gone_s=1.2), killed(gone_s=None), killed(unread=1), killed(lost=1)]
    others = [
        killed("a rank", left=1),
        killed("a round", ended=False),
        killed("a round", told=False),
    ]
    figure = reliability.kills_figure([killed(), *bad, *others])
    assert [(goal.found, goal.reached) for goal in figure.goals] == [
        ("8", False),
        ("7 of 8", False),
        ("7 of 8", False),
        ("5 of 8", False),
        ("2 of 3", False),
        ("2 of 3", False),
    ]
    assert "| pytest | SIGKILL | 5 | 0.10 s | 1.20 s | 1 |" in figure.text


def test_a_killed_run_is_found_whole_with_nothing_left_of_it(reliability, tmp_path):
    (one,) = reliability.kill_in(tmp_path / "run", None, {"a rank": 1}, random.Random(1), 0.0)
    assert (one.victim, one.number) == ("a rank", signal.SIGKILL)
    assert (one.unread, one.lost, one.ended, one.told, one.left) == (0, 0, True, True, 0)
    assert one.gone_s is not None
    assert (tmp_path / "run" / "measured").read_text().count("\n") > 0
    (saved,) = (tmp_path / "run" / ".roofline" / "runs").glob("*.jsonl")
    lines = saved.read_bytes().splitlines(keepends=True)
    saved.write_bytes(b"".join(line for line in lines if b"alone" not in line))
    assert reliability._kept(tmp_path / "run")[1] > 0
    saved.write_bytes(b"{\n" + b"".join(lines))
    assert reliability._kept(tmp_path / "run")[0] == 1


def test_a_ground_whose_test_fails_or_is_not_there_misses_its_goal(
    reliability, tmp_path, monkeypatch
):
    monkeypatch.setattr(reliability, "ROOT", tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_some(number):\n    assert number\n\n"
        "def test_good():\n    pass\n\n"
        "def test_skipped():\n    pytest.skip('no root')\n"
    )
    figure = reliability.grounds(
        tmp_path,
        {name: f"test_it.py::test_{name}" for name in ("some", "good", "skipped")},
    )
    assert found(figure) == {
        "some": ("2 of 3", False),
        "good": ("1 of 1", True),
        "skipped": ("0 of 1", False),
    }
    figure = reliability.grounds(tmp_path, {"absent": "test_it.py::test_absent"})
    assert found(figure) == {"absent": ("0 of 0", False)}


def test_every_ground_names_a_test_of_the_suite(reliability):
    for node in reliability.GROUNDS.values():
        path, _, name = node.partition("::")
        assert f"\ndef {name}(" in (reliability.ROOT / path).read_text()


def test_what_forks_ranks_is_a_victim_of_its_own(reliability, tmp_path):
    (one,) = reliability.kill_in(
        tmp_path / "run", None, {reliability.FORKER: 1}, random.Random(1), 0.0
    )
    assert (one.victim, one.number) == (reliability.FORKER, signal.SIGKILL)
    assert (one.unread, one.lost, one.ended, one.told, one.left) == (0, 0, True, True, 0)


def test_the_fuzzers_figures_are_read_and_a_smaller_number_of_cases_is_a_miss(
    reliability, tmp_path
):
    told = {
        "cases": 20,
        "tracebacks": 0,
        "hangs": 1,
        "silent": 0,
        "by_loader": {"read_run": 20},
        "seconds": 3.0,
    }
    (tmp_path / "fuzz.json").write_text(json.dumps(told))
    figure = reliability.fuzzed(tmp_path / "fuzz.json", 0, 0)
    assert found(figure) == {
        "changed files": ("20", False),
        "tracebacks among them": ("0", True),
        "hangs among them": ("1", False),
        "silent among them": ("0", True),
    }
    assert "| `read_run` | 20 |" in figure.text
