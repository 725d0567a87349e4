"""Figure 5: whether a collective ever meets one of another test, after a skip or an error on one rank."""

import json
import sys
from pathlib import Path

from .blame import Found
from .page import Figure, Goal
from .runs import PYTEST, prepared, properties, run

AFTER = 6
COMMON = f"""
import pytest
import torch
import torch.distributed as dist

TAGS = range(1, {AFTER + 1})


def expected(tag):
    return 2000.0 * tag + 1
"""
SUITE = (
    COMMON
    + """

def tagged(rank, tag):
    values = torch.tensor([1000.0 * tag + rank])
    dist.all_reduce(values)
    return values.item()


def skips(rank):
    if rank == 1:
        rank.skip("not on rank 1")
    dist.all_reduce(torch.tensor([-1.0]))


def raises(rank):
    if rank == 1:
        raise ValueError("not on rank 1")
    dist.all_reduce(torch.tensor([-1.0]))


def test_skips(distributed):
    distributed.run(skips, world_size=2)


@pytest.mark.parametrize("tag", TAGS)
def test_after_a_skip(distributed, tag, record_property):
    record_property("met", str(distributed.run(tagged, tag, world_size=2) == [expected(tag)] * 2))


def test_raises(distributed):
    distributed.run(raises, world_size=2)


@pytest.mark.parametrize("tag", TAGS)
def test_after_an_error(distributed, tag, record_property):
    record_property("met", str(distributed.run(tagged, tag + 10, world_size=2) == [expected(tag + 10)] * 2))
"""
)
PLAIN = (
    COMMON
    + """
from datetime import timedelta


@pytest.fixture(scope="session", autouse=True)
def world():
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))


def all_reduce(value):
    values = torch.tensor([value])
    dist.all_reduce(values)
    return values.item()


def test_skips():
    if dist.get_rank() == 1:
        pytest.skip("not on rank 1")
    all_reduce(-1.0)


@pytest.mark.parametrize("tag", TAGS)
def test_after_a_skip(tag, record_property):
    record_property("met", str(all_reduce(1000.0 * tag + dist.get_rank()) == expected(tag)))
"""
)


def measure(folder: Path, found: list[Found]) -> Figure:
    """Run the suite, and the same as ordinary SPMD tests under torchrun."""
    own = prepared(folder / "own", SUITE)
    run(own, PYTEST)
    mine = met(properties(own))
    plain = prepared(folder / "plain", PLAIN)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--no-python",
    ]
    # One report for each rank.
    command = 'exec "$0" -m pytest -p no:cacheprovider -p no:roofline --junitxml=junit$RANK.xml'
    done = run(plain, [*torchrun, "sh", "-c", command, sys.executable])
    (plain / "junit0.xml").rename(plain / "junit.xml")
    theirs = met(properties(plain))
    crossed = sum(not one.own_payloads for one in found)
    wrong = mine.count(False) + crossed
    count = len(mine) + len(found)
    goal = Goal(
        "tests that met another test's collective",
        f"0 of {count}",
        f"{wrong} of {count}",
        wrong == 0 and len(mine) == 2 * AFTER,
    )
    text = f"""Every payload holds the number of its test. {AFTER} tests followed a test that rank 1 alone
skipped, {AFTER} one in which rank 1 alone raised, and one each of the {len(found)} faults above. As ordinary SPMD
tests, with a pytest for every rank under torchrun (which ended with {done.returncode}), {theirs.count(False)} of the
{len(theirs)} tests that came to their end after a skip on rank 1 met a payload of another test, which only a test that
looks at its data can tell."""
    return Figure("Pairing", (goal,), text)


def met(told: dict[str, dict[str, str]]) -> list[bool]:
    """By test, whether it met its own payloads; those that recorded nothing are left out."""
    return [json.loads(each["met"].lower()) for each in told.values() if "met" in each]
