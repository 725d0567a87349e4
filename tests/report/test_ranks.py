"""What is printed of ranks: a line for each launch, who was late, and what tells of the scheduler only."""

import pytest

from pytest_roofline.core.samples import OVERSUBSCRIBED, Ranks, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.figures import COUNTED, launch_text, rank_lines

HOST = "node7"


def ranks(size=2, **changes):
    facts = {"size": size, "launcher": "local", "backend": "gloo", "hosts": (HOST,) * size, "threads": 1}
    return Ranks(**(facts | changes))


def late(rank=1, lag_s=0.02, size=2, **changes):
    """Ranks of which one was late."""
    return ranks(size, straggler=rank, lag_s=tuple(lag_s * (each == rank) for each in range(size)), **changes)


@pytest.fixture
def shown(make):
    """A result over ranks of 25 ms a call."""

    def build(told, label="all_reduce", *, labels=(), **changes):
        samples = Samples((0.025,), iterations=1, tick_s=1e-9, labels=labels)
        measurement = make.measurement(key=make.key(label), samples=samples, ranks=told, label=label, **changes)
        return make.row(measurement)

    return build


def test_without_ranks_nothing_is_said(shown):
    assert rank_lines([shown(None), shown(None)]) == []


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (ranks(), "local, gloo, 1 thread a rank, on node7"),
        (ranks(threads=8), "local, gloo, 8 threads a rank, on node7"),
        (ranks(threads=None), "local, gloo, on node7"),
        (ranks(hosts=()), "local, gloo, 1 thread a rank"),
        (ranks(4, hosts=("a", "a", "b", "b"), launcher="srun"), "srun, gloo, 1 thread a rank, on a, b"),
    ],
)
def test_a_launch_says_how_ranks_were_started_and_where(told, text):
    assert launch_text(told) == text


def test_of_many_hosts_the_first_are_named():
    hosts = tuple(f"n{number}" for number in range(64) for _ in range(8))
    assert launch_text(ranks(512, hosts=hosts)).endswith("on n0, n1, n2, n3 and 60 more hosts")


def test_each_launch_has_one_line_in_the_order_of_the_run(shown):
    lines = rank_lines([shown(ranks(launcher="mpirun")), shown(ranks()), shown(None), shown(ranks(launcher="mpirun"))])
    assert lines == [
        "ranks: mpirun, gloo, 1 thread a rank, on node7",
        "ranks: local, gloo, 1 thread a rank, on node7",
    ]


def test_worlds_of_any_size_are_one_launch(shown):
    assert len(rank_lines([shown(ranks(2)), shown(ranks(4)), shown(late(3, size=6))])) == 2


def test_a_straggler_is_named_with_its_host_its_lag_and_what_that_is_of_a_call(shown):
    told = late(1, 0.02, hosts=("node7", "node8"))
    (_, line) = rank_lines([shown(told, "all_reduce[1MiB-2ranks]")])
    assert line == (
        "straggler: rank 1 on node8 needs 20.0 ms more than the fastest for its own part of all_reduce[1MiB-2ranks] "
        "(80.0 % of a call)"
    )


def test_rank_0_can_be_the_straggler(shown):
    (_, line) = rank_lines([shown(late(0))])
    assert line.startswith("straggler: rank 0 on node7 needs 20.0 ms")


def test_of_many_stragglers_three_are_named(shown):
    lines = rank_lines([shown(late(), f"op{number}") for number in range(5)])
    assert [line.partition(" own part of ")[2].partition(" ")[0] for line in lines[1:4]] == ["op0", "op1", "op2"]
    assert lines[4:] == ["… and 2 more with a straggler"]


def test_what_is_oversubscribed_is_named_and_said_never_to_gate(shown):
    lines = rank_lines([shown(ranks()), shown(ranks(4), "all_gather", labels=(OVERSUBSCRIBED,))])
    assert lines[1:] == [
        "oversubscribed: more ranks on a host than cores, so these tell of the scheduler and never gate: all_gather"
    ]


def test_of_much_that_is_oversubscribed_three_are_named(shown):
    lines = rank_lines([shown(ranks(4), f"op{number}", labels=(OVERSUBSCRIBED,)) for number in range(5)])
    assert lines[-1].endswith("never gate: op0, op1, op2 and 2 more")


def test_how_a_collectives_rate_is_counted_is_said_once_where_one_is_shown(make, shown):
    sum_of_two = {"work": Work(algbw_bytes=4096, busbw_bytes=4096)}
    results = [shown(ranks(), **sum_of_two) for _ in range(2)]
    bus = [
        make.row(make.measurement(key=make.key(metric="busbw_GBps"), ranks=ranks(), work=sum_of_two["work"]))
        for _ in range(2)
    ]
    assert COUNTED not in rank_lines(results)
    assert rank_lines(bus).count(COUNTED) == 1
    assert rank_lines(bus)[0] == COUNTED


def test_no_name_can_colour_or_break_a_line(shown):
    told = late(1, hosts=("a\x1b[31m", "b\nc"), launcher="local")
    lines = rank_lines([shown(told, "all\x1b[2Jreduce", labels=(OVERSUBSCRIBED,))])
    assert len(lines) == 3
    assert not [line for line in lines if "\x1b" in line or "\n" in line]
