"""Lines beside the times: what tests found besides, first calls, and ranks."""

import pytest

from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.core.profiles import UNITS, Figure
from pytest_roofline.core.samples import OVERSUBSCRIBED, Ranks, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.explain import explanation
from pytest_roofline.report.figures import (
    BUSBW,
    after_warm_up,
    figure_lines,
    figure_text,
    first_call_lines,
    first_call_text,
    launch_text,
    rank_lines,
    steady_from,
)
from pytest_roofline.report.tables import warm_up_table

HOST = "node7"


def figure(name="n", value=1.0, unit="count", test="ddp"):
    return Figure(
        f"test_it.py::test_it[{test}]", f"it[{test}]", "process-1", name, float(value), unit
    )


def test_every_figure_is_shown_in_a_unit_that_fits():
    cases = [
        ("B", 2 * 2**30, "2.00 GiB"), ("B", 0, "0 B"), ("s", 0.0213, "21.3 ms"), ("s", 0, "0 ns"),
        ("share", 0.87345, "87.3 %"), ("share", 0.0004, "0.0 %"), ("count", 120_945_408, "120,945,408"),
        ("count", 10.0021, "10.0"), ("FLOP", 4.212e12, "4.21 TFLOP"), ("FLOP", 512, "512 FLOP"),
        ("FLOP", 999.7e12, "1.00 PFLOP"), ("tokens/s", 12345.6, "12346 tokens/s"), ("x", 1.934, "1.93 x"),
            ("B/s", 55.1e9, "55.1 GB/s"),
    ]  # fmt: skip
    assert set(UNITS) == {unit for unit, _, _ in cases}
    for unit, value, text in cases:
        assert figure_text(figure("it", value, unit)) == f"it {text}"
        assert not value or figure_text(figure("it", -value, unit)) == f"it -{text}"


def test_each_test_has_one_line_with_its_last_figures_in_order():
    found = [
        figure("efficiency", 0.873, "share"),
        figure("n", 2, test="fsdp"),
        figure("communicating", 0.121, "share"),
    ]
    assert figure_lines(found) == [
        "it[ddp]: efficiency 87.3 %, communicating 12.1 %",
        "it[fsdp]: n 2",
    ]
    assert figure_lines([figure(value=1), figure("m"), figure(value=2)]) == ["it[ddp]: n 2, m 1"]
    lines = figure_lines([figure(test=str(number)) for number in range(5)], at_most=3)
    assert (len(lines), lines[-1]) == (4, "… and 2 more tests with figures")
    assert not set(figure_lines([figure("x\x1b[31m\n")])[0]) & set("\x1b\n")


def step(make, *first_calls_s, seconds=(0.14,), iterations=1, warm_calls_s=(), **changes):
    """A measurement of 140 ms a call whose first calls took these times."""
    samples = Samples(
        seconds, iterations, 1e-9, first_calls_s=first_calls_s, warm_calls_s=warm_calls_s
    )
    return make.measurement(samples=samples, label="warm_up[large]", **changes)


def test_first_calls_stand_beside_the_steady_time(make):
    for calls, text in (
        ((1.764, 0.141, 0.14), "1.76 s, 12.6 x the steady 140 ms; call 1 1.01 x; steady from call 1 on"),
        ((0.14,), "140 ms, 1.00 x the steady 140 ms; steady from call 0 on"),
        ((0.28,), "280 ms, 2.00 x the steady 140 ms"),
        ((0.28, 0.21), "280 ms, 2.00 x the steady 140 ms; call 1 1.50 x; not steady within 2 calls"),
        ((0.28, 0.14, 0.21, 0.14),
         "280 ms, 2.00 x the steady 140 ms; call 1 1.00 x; call 2 1.50 x; call 3 1.00 x; steady from call 3 on"),
        ((0.28,) * 8 + (0.14,),
         "280 ms, 2.00 x the steady 140 ms; call 1 2.00 x; call 2 2.00 x; call 3 2.00 x; call 4 2.00 x; "
         "steady from call 8 on"),
    ):  # fmt: skip
        assert first_call_text(step(make, *calls)) == f"call 0 took {text}"
    # Behind a queue they compare with warm ones by the same clock; new ranks are said to be new.
    queued = step(make, 38e-6, 38e-6, seconds=(20e-6,), warm_calls_s=(38e-6, 39e-6, 37e-6))
    by_host = (
        "call 0 took 38.0 µs, 1.00 x the steady 38.0 µs by the host's clock; steady from call 0 on"
    )
    assert first_call_text(queued) == by_host
    fresh = step(make, 0.28, ranks=Ranks(2, "local", "gloo", fresh=True))
    assert first_call_text(fresh).startswith("call 0 on new ranks took 280 ms")


def test_steps_behind_more_and_more_warm_up_are_one_table_of_means_and_deviations(make):
    calls = (1.0, *[0.2, 0.1] * 7)
    # The deviation of samples: five of each lie 0.05 off their mean, of ten less one.
    assert (
        after_warm_up(step(make, *calls))[1:] == [pytest.approx((0.15, 0.05 * (10 / 9) ** 0.5))] * 2
    )
    assert after_warm_up(step(make, *calls))[0][0] == pytest.approx((1 + 5 * 0.2 + 4 * 0.1) / 10)
    rows = [make.row(step(make, *calls)), make.row(step(make, *calls[:14]))]
    title, heading, _, line = warm_up_table(rows, 80).split("\n")
    assert title == "mean and standard deviation of 10 steps after 0, 1, 5 warm-up steps:"
    assert heading.split() == ["test", "after", "0", "after", "1", "after", "5"]
    assert (
        " ".join(line.split()) == "warm_up[large] 240 ms ± 272 ms 150 ms ± 52.7 ms 150 ms ± 52.7 ms"
    )
    assert warm_up_table(rows[1:], 80) == ""


def test_a_call_is_steady_within_tolerance_and_known_noise(make):
    assert (
        steady_from(step(make, 1.0, 60e-6, seconds=(20e-6,), warm_calls_s=(38e-6, 38e-6, 60e-6)))
        == 1
    )
    for tolerance, began in ((0.05, None), (0.2, 1)):
        assert began == steady_from(step(make, 1.0, 0.16), tolerance)
    # Half of the samples are 1 % off, so a call of its own deviates by 1.5 %, or by 15 % where a sample is 100 calls.
    seconds = (0.1386, 0.1386, 0.14, 0.1414, 0.1414)
    for iterations, began in ((1, None), (100, 1)):
        assert began == steady_from(step(make, 1.0, 0.16, seconds=seconds, iterations=iterations))


def test_first_calls_have_a_line_where_somebody_asked_and_stand_in_explain(make, tmp_path):
    (line,) = first_call_lines([make.row(step(make, 1.0, 0.16, tolerance=0.2))])
    assert line.startswith("warm_up[large]: call 0 took 1.00 s")
    assert line.endswith("steady from call 1 on")
    assert first_call_lines([make.row(step(make)), make.row(step(make, 1.0, compile_s=0.86))]) == []
    lines = first_call_lines([make.row(step(make, 0.14))] * 5, at_most=3)
    assert (len(lines), lines[-1]) == (4, "… and 2 more with first calls")
    (row,) = rows_of_run(make.run(tmp_path / "r.jsonl", step(make, 1.764, 0.14, compile_s=1.62)))
    told = "call 0 took 1.76 s, 12.6 x the steady 140 ms; call 1 1.00 x; steady from call 1 on"
    assert {f"      first calls: {told}", "      compiling: 1.62 s longer than a warm call"} <= set(
        explanation(row, 120)
    )


def ranks(size=2, **changes):
    facts = {
        "size": size,
        "launcher": "local",
        "backend": "gloo",
        "hosts": (HOST,) * size,
        "threads": 1,
    }
    return Ranks(**(facts | changes))


def late(rank=1, lag_s=0.02, size=2, **changes):
    """Ranks of which one was late."""
    return ranks(
        size, straggler=rank, lag_s=tuple(lag_s * (each == rank) for each in range(size)), **changes
    )


def shown(make, told, label="all_reduce", *, labels=(), **changes):
    """A result over ranks of 25 ms a call."""
    samples = Samples((0.025,), iterations=1, tick_s=1e-9, labels=labels)
    key = changes.pop("key", make.key(label))
    return make.row(make.measurement(key=key, samples=samples, ranks=told, label=label, **changes))


def test_a_launch_is_told_once_with_how_ranks_were_started_and_where(make):
    many = tuple(f"n{number}" for number in range(64) for _ in range(8))
    for told, text in (
        (ranks(), "local, gloo, 1 thread a rank, on node7"),
        (ranks(threads=8), "local, gloo, 8 threads a rank, on node7"),
        (ranks(threads=None), "local, gloo, on node7"),
        (ranks(hosts=()), "local, gloo, 1 thread a rank"),
        (
            ranks(4, hosts=("a", "a", "b", "b"), launcher="srun"),
            "srun, gloo, 1 thread a rank, on a, b",
        ),
        (
            ranks(512, hosts=many),
            "local, gloo, 1 thread a rank, on n0, n1, n2, n3 and 60 more hosts",
        ),
    ):
        assert launch_text(told) == text
    found = [
        shown(make, one)
        for one in (ranks(launcher="mpirun"), ranks(), None, ranks(4), ranks(launcher="mpirun"))
    ]
    launches = [
        "ranks: mpirun, gloo, 1 thread a rank, on node7",
        "ranks: local, gloo, 1 thread a rank, on node7",
    ]
    assert rank_lines(found) == launches
    assert rank_lines([shown(make, None)]) == []


def test_stragglers_and_what_is_oversubscribed_are_named_and_of_many_three(make):
    for rank in (0, 1):
        (_, line) = rank_lines(
            [shown(make, late(rank, 0.02, hosts=("node7", "node8")), "all_reduce[1MiB-2ranks]")]
        )
        assert line == (
            f"straggler: rank {rank} on node{7 + rank} takes 20.0 ms longer for its part of "
            "all_reduce[1MiB-2ranks] than the fastest rank (80.0 % of a call)"
        )
    lines = rank_lines([shown(make, late(), f"op{number}") for number in range(5)])
    assert ["op0", "op1", "op2"] == [
        line.partition(" for its part of ")[2].partition(" ")[0] for line in lines[1:4]
    ]
    assert lines[4:] == ["… and 2 more with a straggler"]
    crowded = [
        shown(make, ranks(4), f"op{number}", labels=(OVERSUBSCRIBED,)) for number in range(5)
    ]
    told = (
        "oversubscribed: a node has more ranks than cores, so these times mostly show the scheduler of the system "
        "and never gate: op0"
    )
    assert rank_lines(crowded[:1])[1:] == [told]
    assert rank_lines(crowded)[-1] == f"{told}, op1, op2 and 2 more"
    odd = late(1, hosts=("a\x1b[31m", "b\nc"), launcher="local")
    lines = rank_lines([shown(make, odd, "all\x1b[2Jreduce", labels=(OVERSUBSCRIBED,))])
    assert (3, set()) == (len(lines), set("".join(lines)) & set("\x1b\n"))


def test_how_a_collectives_rate_is_counted_is_said_once_where_one_is_shown(make):
    work = Work(algbw_bytes=4096, busbw_bytes=4096)
    bus = [shown(make, ranks(), key=make.key(metric="busbw_GBps"), work=work) for _ in range(2)]
    assert (rank_lines(bus)[0], rank_lines(bus).count(BUSBW)) == (BUSBW, 1)
    assert BUSBW not in rank_lines([shown(make, ranks(), work=work)])
