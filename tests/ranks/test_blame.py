"""Who is to blame: the first line of a report names the guilty rank, its host and the cause, whoever else suffered."""

import dataclasses

import pytest

from pytest_roofline.ranks.blame import RankEnd, report

from .test_stacks import C10D, LISTEN, SERVE, WRAPPER, thread

TIMEOUT_S = 30.0
PEER_GONE = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:17838"
PEER_RESET = "RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:128: Connection reset by peer"
NCCL_GONE = "DistBackendError: NCCL error: remote process exited or there was a network error"
TRACEBACK = "Traceback (most recent call last):\n  File 'steps.py', line 3\nValueError: mine\n"


def stack(name="step", collective=""):
    """The stacks of a rank that is in a function of the user's, perhaps in a collective."""
    inner = [(C10D, collective), WRAPPER] if collective else []
    return thread(*LISTEN, current=True) + "\n" + thread(*inner, ("/home/me/steps.py", name), *SERVE)


def end(rank, how, text="", **changes):
    facts = {"host": f"n{rank // 2}", "pid": 4000 + rank, "order": rank, "text": text}
    return RankEnd(rank, how=how, **(facts | changes))


def lost(rank, text="killed by SIGKILL", **changes):
    return end(rank, "lost", text, **changes)


def raised(rank, text="ValueError: mine", **changes):
    return end(rank, "raised", text, **({"details": TRACEBACK.replace("ValueError: mine", text)} | changes))


def waiting(rank, collective="all_reduce", **changes):
    return end(rank, "stuck", details=stack(collective=collective), **changes)


def stuck(rank, name="spin", **changes):
    return end(rank, "stuck", details=stack(name), **changes)


def closing(rank, collectives=1, **changes):
    return end(rank, "closing", collectives=collectives, **changes)


def ok(rank):
    return end(rank, "ok")


def told(*ends, tails=None):
    return report(ends, TIMEOUT_S, tails or {})


def first(*ends):
    return told(*ends).splitlines()[0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first", "last"])
@pytest.mark.parametrize(
    ("guilty", "victim", "cause"),
    [
        pytest.param(lost(1), raised(0, PEER_GONE), "was lost: killed by SIGKILL", id="lost, its peer noticed"),
        pytest.param(lost(1), waiting(0), "was lost: killed by SIGKILL", id="lost, its peer waits"),
        pytest.param(lost(1), closing(0), "was lost: killed by SIGKILL", id="lost, its peer is done"),
        pytest.param(lost(1, "exit code 0"), ok(0), "was lost: exit code 0", id="left"),
        pytest.param(raised(1), waiting(0), "raised ValueError: mine", id="raised, its peer waits"),
        pytest.param(raised(1), closing(0), "raised ValueError: mine", id="raised, its peer is done"),
        pytest.param(raised(1, order=0), raised(0, PEER_GONE, order=1), "raised ValueError: mine", id="raised first"),
        pytest.param(raised(1, order=1), raised(0, PEER_GONE, order=0), "raised ValueError: mine", id="closed, then"),
        pytest.param(raised(1, order=1), raised(0, PEER_RESET, order=0), "raised ValueError: mine", id="reset, then"),
        pytest.param(raised(1, order=1), raised(0, NCCL_GONE, order=0), "raised ValueError: mine", id="nccl"),
        pytest.param(stuck(1), waiting(0), "did not answer within 30 s: it is at steps.py:12 in spin", id="hangs"),
        pytest.param(
            stuck(1), closing(0), "did not answer within 30 s: it is at steps.py:12 in spin", id="hangs, done"
        ),
        pytest.param(stuck(1), ok(0), "did not answer within 30 s: it is at steps.py:12 in spin", id="hangs alone"),
        pytest.param(end(1, "stuck", stopped=True), waiting(0), "it was stopped by a signal (SIGSTOP)", id="stopped"),
        pytest.param(end(1, "stuck", stopped=True), stuck(0), "it was stopped by a signal (SIGSTOP)", id="stop, hang"),
        pytest.param(raised(1), end(0, "skipped", "no peer access"), "raised ValueError: mine", id="raised, skipped"),
    ],
)
def test_of_two_ranks_the_guilty_one_is_named_first(guilty, victim, cause, order):
    ends = [guilty, victim]
    line = first(*(ends[index] for index in order))

    assert line.startswith(f"{guilty.name} ")
    assert cause in line


def test_the_name_of_a_rank_has_its_host_and_its_process():
    assert first(lost(5), waiting(0)).startswith("rank 5 (pid 4005 on n2) was lost")


def test_the_earliest_of_several_own_errors_comes_first():
    line = first(raised(0, "ValueError: late", order=2), raised(1, "KeyError: early", order=1), raised(2, PEER_GONE))

    assert line == "rank 1 (pid 4001 on n0) raised KeyError: early"


def test_the_earliest_of_several_losses_comes_first():
    assert first(lost(0, order=5), lost(2, "killed by SIGSEGV", order=1)).startswith("rank 2 (pid 4002 on n1) was lost")


def test_where_all_only_noticed_a_peer_the_earliest_is_named():
    assert first(raised(0, PEER_GONE, order=1), raised(1, PEER_RESET, order=0)).startswith("rank 1 ")


@pytest.mark.parametrize("odd", range(3))
def test_of_three_that_wait_the_one_in_another_collective_is_guilty(odd):
    ends = [waiting(rank, "all_gather" if rank == odd else "all_reduce") for rank in range(3)]
    line = first(*ends)

    assert line.startswith(f"{ends[odd].name} did not answer within 30 s: it is in all_gather at steps.py:12")
    assert line.endswith("they are in different operations")


@pytest.mark.parametrize("away", range(3))
def test_one_that_has_returned_while_the_others_wait_in_a_collective_is_guilty(away):
    ends = [closing(rank, 3) if rank == away else waiting(rank) for rank in range(3)]
    line = first(*ends)

    assert line.startswith(ends[away].name)
    assert "returned" in line
    assert "all_reduce" in line


def test_of_two_the_one_that_has_returned_is_named_beside_the_one_that_waits():
    line = first(waiting(0), closing(1))

    assert "rank 1 (pid 4001 on n0)" in line
    assert "returned" in line
    assert "all_reduce" in line


@pytest.mark.parametrize("odd", range(3))
def test_of_three_the_one_that_submitted_another_number_of_operations_is_guilty(odd):
    ends = [closing(rank, 3 if rank == odd else 2) for rank in range(3)]

    assert first(*ends).startswith(f"{ends[odd].name} left the function out of step (operations submitted: rank 0: ")


def test_of_two_out_of_step_both_are_named():
    line = first(closing(0, 2), closing(1, 3))

    assert line.startswith("rank 0 (pid 4000 on n0) and rank 1 (pid 4001 on n0) left the function out of step")
    assert "rank 0: 2, rank 1: 3" in line


NCCL = "DistBackendError: NCCL error: unhandled system error, could not open a queue pair"


def test_an_error_of_the_last_step_is_told_as_what_it_is():
    text = told(closing(0), closing(1, text=NCCL, details=TRACEBACK))

    assert text.startswith(f"rank 1 (pid 4001 on n0) raised {NCCL}, in the step that ends a task")
    assert "rank 1 (pid 4001 on n0): has returned from the function, and then raised" in text
    assert "steps.py', line 3" in text


def test_an_error_of_ranks_that_are_out_of_step_is_shown_beside_the_numbers():
    text = told(closing(0, 2), closing(1, 3, text=NCCL, details=TRACEBACK))

    assert "left the function out of step (operations submitted: rank 0: 2, rank 1: 3)" in text.splitlines()[0]
    assert f"and then raised {NCCL}" in text


def test_who_skipped_while_another_did_not_is_named_with_its_reason():
    line = first(end(1, "skipped", "no peer access"), waiting(0))

    assert line == "rank 1 (pid 4001 on n0) skipped, which the others did not: no peer access"


def test_a_loss_that_nobody_can_explain_says_so():
    assert "nobody here can tell why" in first(lost(1, ""))


def test_a_hang_without_a_stack_says_so():
    assert first(end(1, "stuck"), closing(0)).endswith("it is at a place that no stack tells")


def test_every_stuck_rank_is_shown_with_its_stack():
    text = told(stuck(1), waiting(0), waiting(2, "all_gather"))

    for rank, name in ((0, "all_reduce"), (1, "spin"), (2, "all_gather")):
        own = text[text.index(f"\n  rank {rank} (pid") :].split("\n  rank ")[1]
        assert "stuck" in own
        assert f"line 12 in {name}" in own


def test_the_listening_thread_and_what_leads_to_the_function_are_not_shown():
    text = told(stuck(1))

    assert "_listen" not in text
    assert "rank.py" not in text


def test_waiting_for_one_that_failed_is_called_so():
    assert "rank 0 (pid 4000 on n0): blocked on a peer, in all_reduce" in told(raised(1), waiting(0))


def test_a_traceback_is_shown_for_the_guilty_and_spared_for_victims():
    text = told(raised(1, order=0), raised(0, PEER_GONE, order=1))

    assert text.count("Traceback") == 1
    assert f"rank 0 (pid 4000 on n0): raised: {PEER_GONE}" in text


def test_a_traceback_is_shown_for_the_guilty_also_where_the_victim_was_faster():
    text = told(raised(1, order=1), raised(0, PEER_GONE, order=0))

    assert text.count("Traceback") == 1
    assert "ValueError: mine\n" in text.partition("\n")[2]


def test_ranks_that_raised_the_same_are_told_of_once():
    text = told(*(raised(rank) for rank in range(4)))

    assert text.count("Traceback") == 1
    assert "ranks 0, 1, 2, 3: raised" in text


def test_ranks_that_raised_different_things_are_told_of_each():
    assert told(raised(0, "A"), raised(1, "B")).count("Traceback") == 2


def test_the_last_words_of_a_log_are_shown_for_the_lost_and_the_stuck_only():
    tails = {rank: f"words of {rank}\nmore of {rank}" for rank in range(4)}
    text = told(lost(0), stuck(1), raised(2), ok(3), tails=tails)

    assert "    | words of 0\n    | more of 0" in text
    assert "    | words of 1" in text
    assert "words of 2" not in text
    assert "words of 3" not in text


def test_who_was_fine_is_not_told_of():
    text = told(raised(1), ok(0))

    assert "rank 0" not in text


def test_a_long_traceback_keeps_its_beginning_and_its_end():
    long = "\n".join(f"line {number}" for number in range(1000))
    text = told(dataclasses.replace(raised(1), details=long))

    assert "line 0\n" in text
    assert text.endswith("line 999")
    assert "… 960 lines …" in text
    assert len(text.splitlines()) < 60
