"""Ten thousand changed files against every loader and command; `python -m tests.fuzz` runs as many as asked for."""

import dataclasses
import json
import time

import pytest

from pytest_roofline.core.errors import BadFile

from ..fuzz import fuzzing
from ..fuzz.__main__ import main
from ..fuzz.fuzzing import fuzz, fuzzer, kept, replayed

CASES = {"runs": 4000, "own": 2600, "foreign": 2400, "commands": 1000}
SEED = 20260102


@pytest.fixture(scope="module")
def running():
    with fuzzer() as made:
        yield made


def told(failures):
    """Every failure as the case to keep, and what happened."""
    return "\n".join(f"{one.rule}: {json.dumps(one.case)}\n{one.told}" for one in failures)


def test_cases_that_once_failed_are_refused_by_now(running):
    found = replayed(running)
    assert found.by_loader.total() == len(kept()) > 0
    assert not found.failures, told(found.failures)


@pytest.mark.parametrize("group", CASES)
def test_what_is_wrong_is_refused_in_a_sentence(running, group):
    found = fuzz(running, range(CASES[group]), SEED, [group])
    assert {target.name for target in running.targets.values() if target.group == group} == set(
        found.by_loader
    )
    assert not found.failures, told(found.failures)


def test_whole_files_are_used_by_everything_that_is_tried(running):
    # `ends_of` reads the two ends of a file alone, and `read_figures` is at places that few files have.
    pairs = [
        (target, name)
        for target in running.targets.values()
        if target.name not in ("ends_of", "read_figures")
        for name in target.seeds
    ]
    assert [
        pair
        for pair in pairs
        if running._call(pair[0], running.seeds[pair[1]], running.seeds[pair[1]].data)
    ] == []


def raises(_path):
    raise ZeroDivisionError("by zero")


def refuses_without_a_word(_path):
    raise fuzzing.Accepted("status 2, and told ''")


def sleeps(_path):
    try:
        time.sleep(60)
    except Exception as error:
        raise BadFile("too late") from error


def test_a_reader_that_breaks_a_rule_is_found(running, monkeypatch):
    change = {"line": "footer", "path": ["measured"], "do": "put", "text": "NaN"}
    case = {
        "target": "bad",
        "seed": "run",
        "changes": [change],
        "refused": "NaN in place of a value",
    }
    readers = {
        raises: "tracebacks",
        refuses_without_a_word: "silent",
        sleeps: "hangs",
        lambda _path: False: "silent",
    }
    for call, rule in readers.items():
        target = dataclasses.replace(running.targets["read_run"], name="bad", call=call)
        monkeypatch.setitem(running.targets, "bad", target)
        monkeypatch.setattr(fuzzing, "LIMIT_S", 0.2 if call is sleeps else 20)
        assert running.run(case).rule == rule


def test_the_program_counts_what_it_tried_and_tries_the_same_again(monkeypatch, capsys, running):
    assert running.case(7, 1) == running.case(7, 1) != running.case(7, 2)
    monkeypatch.setattr("sys.argv", ["fuzz", "--cases", "30", "--json"])
    assert main() == 0
    counted = json.loads(capsys.readouterr().out)
    assert (30 + len(kept()), 0, 0, 0) == tuple(
        counted[name] for name in ("cases", "tracebacks", "hangs", "silent")
    )
    assert counted["cases"] == sum(counted["by_loader"].values())
