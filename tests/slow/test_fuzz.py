"""Ten thousand changed files against every loader and command; `python -m tests.fuzz` runs as many as asked for."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_roofline.core.errors import BadFile

from ..fuzz import fuzzing
from ..fuzz.fuzzing import Failure, fuzz, fuzzer, kept, replayed

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
    assert {target.name for target in running.targets.values() if target.group == group} == set(found.by_loader)
    assert not found.failures, told(found.failures)


def test_whole_files_are_used_by_everything_that_is_tried(running):
    unused = [
        f"{target.name} of {name}"
        for target in running.targets.values()
        for name in target.seeds
        # It reads the two ends of a file alone, so that nothing is asked of it.
        if target.name != "ends_of" and running._call(target, running.seeds[name], running.seeds[name].data)
    ]
    assert not unused


def raises(_path):
    raise ZeroDivisionError("by zero")


def refuses_without_a_word(_path):
    raise fuzzing.Accepted("status 2, and told ''")


def sleeps(_path):
    try:
        time.sleep(60)
    except Exception as error:
        raise BadFile("too late") from error


@pytest.mark.parametrize(
    ("call", "rule"),
    [(raises, "tracebacks"), (refuses_without_a_word, "silent"), (lambda _path: False, "silent"), (sleeps, "hangs")],
)
def test_a_reader_that_breaks_a_rule_is_found(running, monkeypatch, call, rule):
    monkeypatch.setattr(fuzzing, "LIMIT_S", 0.2)
    target = dataclasses.replace(running.targets["read_run"], name="bad", call=call)
    monkeypatch.setitem(running.targets, "bad", target)
    change = {"line": "footer", "path": ["measured"], "do": "put", "text": "NaN"}
    failure = running.run({"target": "bad", "seed": "run", "changes": [change], "refused": "NaN in place of a value"})
    assert isinstance(failure, Failure)
    assert rule == failure.rule


def test_the_same_number_is_the_same_case(running):
    assert running.case(7, 1) == running.case(7, 1) != running.case(7, 2)


def test_the_program_counts_what_it_tried():
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--cases", "30", "--json"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
    )  # fmt: skip
    counted = json.loads(done.stdout)
    assert (30 + len(kept()), 0, 0, 0) == tuple(counted[name] for name in ("cases", "tracebacks", "hangs", "silent"))
    assert counted["cases"] == sum(counted["by_loader"].values())
