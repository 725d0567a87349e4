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
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.core.errors import RanksFailed, RanksSkipped
from pytest_roofline.core.units import printable, steers, without_commands
from pytest_roofline.processes.system import ProcessId
from pytest_roofline.ranks import channel as channels
from pytest_roofline.ranks import driving
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.pool import Pool
from pytest_roofline.ranks.tasks import Answer, reference

from . import rank_functions as ranks
from .real_ranks import PATIENCE_S, RealRanks, runs

HOST = socket.gethostname()
HANG_S = 0.5
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


def stack_of(text, rank):
    """What a report says of one rank."""
    found = re.search(rf"^  rank {rank} \(.*?(?=^  rank|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def test_an_error_is_blamed_on_the_rank_that_raised_it(two, monkeypatch):
    for when, guilty in (("before", 0), ("during", 1), ("after", 0)):
        text = two.blamed(
            guilty, f"raised ValueError: {when} the collective", ranks.raise_at, guilty, when
        )
        assert "in raise_at" in text
        assert "worker.py" not in text
    two.blamed(1, "raised MemoryError", ranks.out_of_memory, 1)
    # Also where its peer noticed first.
    monkeypatch.setattr(driving, "GRACE_S", PATIENCE_S)
    two.blamed(1, "raised ValueError: after its connections", ranks.close_and_raise, 1)


def test_a_loss_is_blamed_on_the_rank_that_was_lost(two):
    for cause, function, arguments in (
        ("killed by SIGKILL", ranks.die_by, (int(signal.SIGKILL),)),
        ("killed by SIGSEGV", ranks.segfault, ()),
        ("exit code 0", ranks.exit_with, (0,)),
        ("killed by SIGKILL", ranks.leave_a_child_and_die, ()),
        ("exit code 3", ranks.babble_and_die, ()),
    ):
        began_s = time.monotonic()
        text = two.blamed(1, f"was lost: {cause}", function, 1, *arguments)
        assert "did not answer" not in text
        if function is ranks.die_by:
            assert "    | the last words of rank 1" in stack_of(text, 1)
        if function is ranks.babble_and_die:
            # Whatever bytes it printed.
            assert "    | caf\ufffd" in text
            assert "    | the end" in text
        assert time.monotonic() - began_s < PATIENCE_S


def test_a_hang_is_blamed_on_its_rank_and_shown_with_the_stack_of_every_rank(two):
    sleeps, holds = "sleep_long", "hold_the_interpreter_once"
    for where, function in (
        (f"is at rank_functions.py:.* in {sleeps}", ranks.hang_deaf),
        (f"is at rank_functions.py:.* in {sleeps}", ranks.hang_deep),
        ("was stopped by a signal .SIGSTOP.", ranks.stop_itself),
        # Until the signal that asks for the stack.
        (f"is at rank_functions.py:.* in {holds}", ranks.hold_the_interpreter_once),
    ):
        two.works()
        began_s = time.monotonic()
        text = two.blamed(
            1,
            f"did not answer within {HANG_S:g} s: the rank {where}",
            function,
            1,
            timeout_s=HANG_S,
        )
        assert time.monotonic() - began_s < HANG_S + 2 * REPORT_S
        waits = stack_of(text, 0)
        assert "in all_reduce at rank_functions.py" in waits
        assert re.search(rf'File ".*rank_functions\.py", line \d+ in {function.__name__}', waits)
        if function is not ranks.stop_itself:
            assert re.search(
                r'File ".*rank_functions\.py", line \d+ in (sleep_long|hang|hold)',
                stack_of(text, 1),
            )


def test_a_hang_in_a_collective_that_the_others_are_not_in_names_both_with_their_stacks(two):
    text = two.fails(ranks.hang_in_a_collective, 1, timeout_s=HANG_S)
    line = text.splitlines()[0]
    assert re.search(rf"{two.name[0]} .*in all_reduce at rank_functions\.py", line), line
    assert re.search(rf"{two.name[1]} .*in recv at rank_functions\.py", line), line
    assert "different operations" in line
    for rank in range(2):
        assert re.search(r"line \d+ in hang_in_a_collective", stack_of(text, rank))


def test_a_rank_that_was_stopped_between_tasks_costs_no_more_than_the_time_of_the_next(
    two, monkeypatch
):
    # Of the connections of new ranks.
    monkeypatch.setattr(channels, "STALL_S", 1)
    two.pool.kill()
    two.works()
    # What it should get is more than its connection can hold while nobody reads.
    os.kill(two.pids[1], signal.SIGSTOP)
    began_s = time.monotonic()
    with (
        alarm(2 * PATIENCE_S),
        pytest.raises(RanksFailed, match=r"^rank 1 .* was stopped by a signal"),
    ):
        two.pool.run(reference(ranks.elements), (torch.zeros(8 * 2**20),), 2, timeout_s=HANG_S)

    # A stall for each part of what was sent that the system took.
    assert time.monotonic() - began_s < HANG_S + 3 * channels.STALL_S + REPORT_S
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


def test_answers_that_came_while_this_process_was_stopped_count_although_the_time_is_over():
    with contextlib.ExitStack() as stack:
        members = []
        for rank in range(2):
            near, far = map(stack.enter_context, socket.socketpair())
            far.sendall(b"answered")
            answers = lambda: [{"kind": "answer", "answer": Answer("ok")}]  # noqa: E731
            channel = SimpleNamespace(fileno=near.fileno, send=lambda _: None, poll=answers)
            members.append(driving.Member(rank, channel, HOST, ProcessId(1, None), 0, ""))
        progress = driving.drive(None, members, timeout_s=-5.0, tell=None)
    assert (progress.waiting, progress.failed, len(progress.answers)) == (set(), False, 2)


def test_whoever_keeps_to_another_order_of_operations_is_blamed(two):
    # By the process that forks the two, which takes seconds to start.
    two.pool.kill()
    three = RealRanks(3, two.pool.placement)
    try:
        for function, told in (
            (ranks.swap_two, "all_gather"),
            (ranks.leave_one_out, "all_reduce"),
            # It looks like the end of a task.
            (ranks.leave_a_gather_over, "out of step"),
        ):
            line = three.fails(function, 1, timeout_s=HANG_S).splitlines()[0]
            assert re.match(three.name[1], line), line
            assert told in line
    finally:
        three.pool.kill()
    # Of two both are named, with their counts.
    line = two.fails(ranks.leave_one_over, 1, timeout_s=HANG_S).splitlines()[0]
    assert re.match(rf"{two.name[0]} and {two.name[1]} left the function out of step", line), line
    assert re.search(r"rank 0: \d+, rank 1: \d+", line)


@pytest.mark.parametrize("how", ["raised", "skipped", "lost"])
def test_no_text_of_a_rank_steers_a_terminal_or_a_ci(two, how):
    with pytest.raises((RanksFailed, RanksSkipped)) as caught:
        two.pool.run(reference(ranks.end_with_text_that_steers), (how,), 2, timeout_s=PATIENCE_S)
    text = str(caught.value)
    assert r"\x1b[2J\u202e" in text
    assert [char for char in text if steers(char) and char != "\n"] == []
    assert without_commands(text) == text


def test_no_text_of_a_launcher_steers_a_terminal_or_a_ci():
    class Ending(Local):
        def start(self, size, variables):
            """Start nothing."""

        def trouble(self):
            return f"it has ended\n{ranks.STEERING}"

    with pytest.raises(RanksFailed) as caught:
        Pool(Ending(), 2, "cpu").run(reference(ranks.echo), (), 2, timeout_s=PATIENCE_S)
    assert caught.value.args[0].splitlines()[1:] == [printable(ranks.STEERING)]


def test_what_cannot_travel_is_an_error_of_its_rank_and_told_all_the_same(two):
    text = two.fails(ranks.results_that_cannot_travel, 20 * 2**20)
    assert re.match(rf"({two.name[0]}|{two.name[1]}) raised BadInput: the result of rank", text)
    assert re.search(
        r"rank 0 .*BadInput: the result of rank 0 holds .*<lambda>; expected", text, re.DOTALL
    )
    assert re.search(r"rank 1 .*BadInput: the result of rank 1 is 80 MiB or more", text, re.DOTALL)
    text = two.fails(ranks.errors_that_cannot_be_told)
    assert re.match(rf"({two.name[0]} raised Hostile|{two.name[1]} raised ValueError)", text)
    assert "Hostile" in stack_of(text, 0)
    assert "ValueError: caf\\udce9 xxx" in text
    assert len(text) < 50_000
    other = dataclasses.replace(reference(ranks.echo), sha256="0" * 64)
    with pytest.raises(
        RanksFailed,
        match=rf"^rank \d .*BadInput: .*rank_functions\.py on {HOST} is another version",
    ):
        two.pool.run(other, (), 2, timeout_s=PATIENCE_S)
    two.works()


def test_a_skip_is_a_skip_and_meets_no_later_collective(two):
    two.works()
    before = two.pids
    for function, arguments, told in (
        # All skip, which keeps the ranks, also where one of them leaves work unfinished.
        (ranks.skip_everywhere, (), "no peer access"),
        (ranks.skip_leaving_work, (0,), "not here"),
        (ranks.skip_on_one, (0,), f"no peer access (rank 0 on {HOST})"),
        (ranks.skip_on_one, (1,), f"no peer access (rank 1 on {HOST})"),
    ):
        with pytest.raises(RanksSkipped, match=f"^{re.escape(told)}$"):
            two.pool.run(reference(function), arguments, 2, timeout_s=PATIENCE_S)
        for _ in range(3):
            two.works()
        if function is not ranks.skip_on_one:
            assert two.pids == before
