"""Every fault injected into real ranks: the guilty is named first, with host and cause, and the next task is well.

Each fault costs its ranks, so each test begins with a task on the ranks of a new generation.
"""

import contextlib
import dataclasses
import os
import re
import signal
import socket
import time

import pytest
import torch

from pytest_roofline.core.errors import RanksFailed, RanksSkipped
from pytest_roofline.ranks import driving
from pytest_roofline.ranks.functions import reference
from pytest_roofline.ranks.local import Local

from . import rank_functions as ranks
from .real_ranks import PATIENCE_S, RealRanks, runs

HOST = socket.gethostname()
HANG_S = 1.0
# The report follows within 2 s by design; the rest is for the machine.
REPORT_S = 12.0


pytestmark = pytest.mark.usefixtures("short_grace")


@pytest.fixture
def short_grace(monkeypatch):
    """A shorter wait for what the other ranks may have to say, since most of these have nothing to say."""
    monkeypatch.setattr(driving, "GRACE_S", 0.2)


@pytest.fixture(scope="module")
def two():
    # A log is written to in blocks unless somebody asks for less; the last words must not be lost with the rank.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        own = RealRanks(2, Local(forks=True))
        yield own
        own.pool.stop()


@pytest.fixture(scope="module")
def three():
    own = RealRanks(3, Local(forks=True))
    yield own
    own.pool.stop()


def stack_of(text, rank):
    """What a report says of one rank."""
    found = re.search(rf"^  rank {rank} \(.*?(?=^  rank|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("function", "guilty"),
    [(ranks.raise_before, 0), (ranks.raise_before, 1), (ranks.raise_during, 1), (ranks.raise_after, 0)],
)
def test_an_error_is_blamed_on_the_rank_that_raised_it(two, function, guilty):
    when = function.__name__.removeprefix("raise_")
    text = two.blamed(guilty, f"raised ValueError: {when} the collective", function, guilty)

    assert "in raise_" in text
    assert "worker.py" not in text


def test_an_error_is_blamed_on_its_rank_also_where_its_peer_noticed_first(two, monkeypatch):
    monkeypatch.setattr(driving, "GRACE_S", PATIENCE_S)
    two.blamed(1, "raised ValueError: after its connections", ranks.close_and_raise, 1)


def test_memory_that_python_cannot_get_is_an_error_of_its_rank(two):
    two.blamed(1, "raised MemoryError", ranks.out_of_memory, 1)


@pytest.mark.parametrize(
    ("cause", "function", "arguments"),
    [
        pytest.param("killed by SIGKILL", ranks.die_by, (int(signal.SIGKILL),), id="SIGKILL"),
        pytest.param("killed by SIGSEGV", ranks.segfault, (), id="SIGSEGV"),
        pytest.param("exit code 0", ranks.exit_with, (0,), id="exit 0"),
        pytest.param("killed by SIGKILL", ranks.leave_a_child_and_die, (), id="SIGKILL of one that has forked"),
    ],
)
def test_a_loss_is_blamed_on_the_rank_that_was_lost(two, cause, function, arguments):
    began_s = time.monotonic()
    text = two.blamed(1, f"was lost: {cause}", function, 1, *arguments)

    assert "did not answer" not in text
    if function is ranks.die_by:
        assert "    | the last words of rank 1" in stack_of(text, 1)
    assert time.monotonic() - began_s < PATIENCE_S


def test_what_a_lost_rank_printed_is_shown_whatever_bytes_it_is(two):
    text = two.blamed(1, "was lost: exit code 3", ranks.babble_and_die, 1)

    assert "    | caf\ufffd" in text
    assert "    | the end" in text


@pytest.mark.parametrize(
    ("where", "function"),
    [
        pytest.param("is at rank_functions.py:.* in sleep_long", ranks.hang_deaf, id="SIGTERM ignored"),
        pytest.param("is at rank_functions.py:.* in sleep_long", ranks.hang_deep, id="deep in Python"),
        pytest.param("was stopped by a signal .SIGSTOP.", ranks.stop_itself, id="SIGSTOP"),
        pytest.param(
            "is at rank_functions.py:.* in hold_the_interpreter_once",
            ranks.hold_the_interpreter_once,
            id="interpreter held until the signal that asks for the stack",
        ),
    ],
)
def test_a_hang_is_blamed_on_its_rank_and_shown_with_the_stack_of_every_rank(two, where, function):
    two.works()
    began_s = time.monotonic()
    text = two.blamed(1, f"did not answer within {HANG_S:g} s: it {where}", function, 1, timeout_s=HANG_S)

    assert time.monotonic() - began_s < HANG_S + 2 * REPORT_S
    waits = stack_of(text, 0)
    assert "in all_reduce at rank_functions.py" in waits
    assert re.search(rf'File ".*rank_functions\.py", line \d+ in {function.__name__}', waits)
    if function is not ranks.stop_itself:
        assert re.search(r'File ".*rank_functions\.py", line \d+ in (sleep_long|hang|hold)', stack_of(text, 1))


def test_a_hang_in_a_collective_that_the_others_are_not_in_names_both_with_their_stacks(two):
    text = two.fails(ranks.hang_in_a_collective, 1, timeout_s=HANG_S)
    line = text.splitlines()[0]

    assert re.search(rf"{two.name[0]} .*in all_reduce at rank_functions\.py", line), line
    assert re.search(rf"{two.name[1]} .*in recv at rank_functions\.py", line), line
    assert "different operations" in line
    for rank in range(2):
        assert re.search(r"line \d+ in hang_in_a_collective", stack_of(text, rank))


def test_a_rank_that_was_stopped_between_tasks_costs_no_more_than_the_time_of_the_next(two):
    # What it should get is more than its connection can hold while nobody reads.
    two.works()
    os.kill(two.pids[1], signal.SIGSTOP)
    began_s = time.monotonic()
    with alarm(PATIENCE_S), pytest.raises(RanksFailed, match=r"^rank 1 .* was stopped by a signal"):
        two.pool.run(reference(ranks.elements), (torch.zeros(8 * 2**20),), 2, timeout_s=HANG_S)

    assert time.monotonic() - began_s < HANG_S + REPORT_S
    assert not [pid for pid in two.pids if runs(pid)]
    two.works()


class Blocked(Exception):
    """Something did not end by itself."""


@contextlib.contextmanager
def alarm(seconds):
    """Ends what would block for ever."""

    def ring(number, frame):
        raise Blocked(f"blocked for {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_of_three_ranks_the_one_with_another_order_of_operations_is_blamed(three):
    text = three.fails(ranks.swap_two, 1, timeout_s=HANG_S)

    assert re.match(three.name[1], text), text
    assert "all_gather" in text


def test_of_three_ranks_the_one_that_left_a_collective_out_is_blamed(three):
    text = three.fails(ranks.leave_one_out, 1, timeout_s=HANG_S)

    assert re.match(three.name[1], text), text
    assert "all_reduce" in text.splitlines()[0]


def test_of_three_ranks_the_one_that_left_over_what_looks_like_the_end_of_a_task_is_blamed(three):
    text = three.fails(ranks.leave_a_gather_over, 1, timeout_s=HANG_S)

    assert re.match(three.name[1], text), text
    assert "out of step" in text.splitlines()[0]


def test_of_two_ranks_where_one_left_a_collective_over_both_are_named_with_their_counts(two):
    line = two.fails(ranks.leave_one_over, 1, timeout_s=HANG_S).splitlines()[0]

    assert re.match(rf"{two.name[0]} and {two.name[1]} left the function out of step", line), line
    assert re.search(r"rank 0: \d+, rank 1: \d+", line)


def test_results_that_cannot_travel_are_errors_of_their_ranks(two):
    text = two.fails(ranks.results_that_cannot_travel, 20 * 2**20)

    assert re.match(rf"({two.name[0]}|{two.name[1]}) raised BadInput: the result of rank", text)
    assert re.search(r"rank 0 .*BadInput: the result of rank 0 holds .*<lambda> at \['times'\]\[0\]", text, re.DOTALL)
    assert re.search(r"rank 1 .*BadInput: the result of rank 1 is 80 MiB or more", text, re.DOTALL)


def test_errors_that_can_be_neither_pickled_nor_printed_are_still_told(two):
    text = two.fails(ranks.errors_that_cannot_be_told)

    assert re.match(rf"({two.name[0]} raised Hostile|{two.name[1]} raised ValueError)", text)
    assert "Hostile" in stack_of(text, 0)
    assert "ValueError: caf\\udce9 xxx" in text
    assert len(text) < 50_000


def test_another_version_of_the_file_is_refused_by_the_name_of_the_host(two):
    two.works()
    other = dataclasses.replace(reference(ranks.echo), sha256="0" * 64)

    with pytest.raises(RanksFailed, match=rf"^rank \d .*BadInput: .*rank_functions\.py on {HOST} is another version"):
        two.pool.run(other, (), 2, timeout_s=PATIENCE_S)
    two.works()


@pytest.mark.parametrize("guilty", [0, 1])
def test_a_skip_on_one_rank_is_a_skip_and_meets_no_later_collective(two, guilty):
    two.works()
    with pytest.raises(RanksSkipped, match=rf"^no peer access \(rank {guilty} on {re.escape(HOST)}\)$"):
        two.pool.run(reference(ranks.skip_on_one), (guilty,), 2, timeout_s=PATIENCE_S)

    for _ in range(3):
        two.works()


def test_a_skip_on_every_rank_is_a_skip_and_keeps_the_ranks(two):
    two.works()
    before = two.pids
    with pytest.raises(RanksSkipped, match=r"^no peer access$"):
        two.pool.run(reference(ranks.skip_everywhere), (), 2, timeout_s=PATIENCE_S)

    two.works()
    assert two.pids == before


def test_what_a_rank_left_unfinished_when_all_skipped_meets_no_later_collective(two):
    two.works()
    with pytest.raises(RanksSkipped, match=r"^not here$"):
        two.pool.run(reference(ranks.skip_leaving_work), (0,), 2, timeout_s=PATIENCE_S)

    for _ in range(3):
        two.works()
