"""Ranks that measure together: fake devices of different speeds in threads, which must agree upon every decision."""

import gc
import itertools
import threading
from dataclasses import replace

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.samples import PREEMPTED, Calibration
from pytest_roofline.engine.blocks.conditions import (
    HOST_GAP,
    NEIGHBOUR,
    THERMAL,
    agreed_state,
)
from pytest_roofline.engine.devices.base import Counters, Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.log import BlockState
from pytest_roofline.engine.sizing.calibration import agreed_calibration, calibrate
from pytest_roofline.engine.sizing.peers import Agreement, of_ranks
from pytest_roofline.engine.sizing.stopwatch import BlockShape, Stopwatch
from pytest_roofline.engine.timing import Engine, Plan

# A rank that makes another number of calls than its peers leaves them waiting; the test must fail then, not hang.
PATIENCE_S = 20.0
COSTS = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6}


class Table:
    """Where the ranks of one world put down what they hold."""

    def __init__(self, size):
        self.size = size
        self.rows = [()] * size
        self.barrier = threading.Barrier(size, timeout=PATIENCE_S)


class Seat:
    """One rank's place at the table."""

    def __init__(self, table, number):
        self.table, self.number, self.size = table, number, table.size
        self.gathered = 0

    def barrier(self):
        self.table.barrier.wait()

    def gather(self, values):
        self.gathered += 1
        self.table.rows[self.number] = tuple(map(float, values))
        self.table.barrier.wait()
        rows = list(self.table.rows)
        self.table.barrier.wait()
        assert len({len(row) for row in rows}) == 1, f"ranks met over different matters: {rows}"
        return rows


def together(size, body):
    """What `body(seat)` returns for every seat of a table, each in a thread."""
    table, results, errors = Table(size), [None] * size, [None] * size

    def sit(number):
        try:
            results[number] = body(Seat(table, number))
        except BaseException as error:
            errors[number] = error
            table.barrier.abort()

    threads = [threading.Thread(target=sit, args=(number,), daemon=True) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    # Engines in threads switch the one collector of this process off and on in any order.
    gc.enable()
    first = next(
        (
            error
            for error in errors
            if error and not isinstance(error, threading.BrokenBarrierError)
        ),
        None,
    )
    if first or any(errors):
        raise first or next(error for error in errors if error)
    return results


def engines(devices, seconds, sets=((),), **plan):
    """The engines after their ranks have timed calls of so many seconds each, and how often they called."""
    calls = [0] * len(devices)

    def body(seat):
        device, call_s = devices[seat.number], seconds[seat.number]

        def fn(*_):
            calls[seat.number] += 1
            device.work(call_s() if callable(call_s) else call_s)

        engine = Engine(device, Plan(fn, list(sets), **{"budget_s": 0.2, "peers": seat, **plan}))
        engine.run()
        return engine

    return together(len(devices), body), calls


def direct(**facts):
    """A device like a CPU: no queue to stay ahead of, no spin."""
    traits = Traits(
        tick_s=1e-6, shortest_span_s=200e-6, queues=False, warmup_floor_s=0.02, precision=0.03
    )
    return FakeDevice(**{"tick_s": 1e-6, **facts}, traits=traits)


def gpu(**facts):
    """A device like a GPU, with what a launch costs."""
    return FakeDevice(**COSTS | facts)


def alone(seat, device, seconds=1e-3, **plan):
    """The engine of one rank after it timed calls of so many seconds."""
    fn = plan.pop("fn", lambda *_: device.work(seconds))
    engine = Engine(
        device, Plan(**{"fn": fn, "sets": [()], "budget_s": 0.2, "peers": seat, **plan})
    )
    engine.run()
    return engine


def test_ranks_of_different_speeds_make_equally_many_calls_and_agree_on_the_longest():
    speeds = [(1e-3, 3e-3, 2e-3), (3e-3, 1e-6), (400e-6, 0.3), (0.0, 30e-6)]
    for isolated, kind, seconds in itertools.product([False, True], [gpu, direct], speeds):
        ran, calls = engines([kind() for _ in seconds], seconds, isolated=isolated)
        assert len(set(calls)) == 1, (isolated, kind, seconds)
        assert len({tuple(engine.log.seconds) for engine in ran}) == 1, (isolated, kind, seconds)
        assert ran[0].samples() == ran[1].samples(), (isolated, kind, seconds)
        assert ran[0].samples().median_s == pytest.approx(max(seconds), rel=0.02), (
            isolated,
            kind,
            seconds,
        )


def test_noise_of_its_own_on_every_rank_changes_no_count_and_every_sample_is_the_longest():
    for isolated, kind in itertools.product([False, True], [gpu, direct]):
        devices = [
            kind(
                slowdown=lambda number, rank=rank: 1 + (number * (37 + rank) % 11) / 10,
                skew_s=1000.0 * rank,
            )
            for rank in range(3)
        ]
        ran, calls = engines(devices, [1e-3] * 3, isolated=isolated)
        assert (len(set(calls)), len({tuple(engine.log.seconds) for engine in ran})) == (1, 1), (
            isolated,
            kind,
        )
    devices = [
        direct(slowdown=lambda number, rank=rank: 1 + (number + rank) % 2) for rank in range(2)
    ]
    ran, _ = engines(devices, [5e-3] * 2)
    owns = [engine.log.rank_seconds for engine in ran]
    assert owns[0] != owns[1]
    assert ran[0].log.seconds == [max(both) for both in zip(*owns, strict=True)]


def test_an_isolated_sample_is_one_call_without_its_launch_or_says_that_the_clock_does_not_resolve_it():
    for kind, seconds, isolated, iterations, unresolved in [
        (gpu, 200e-6, True, 1, False), (direct, 1e-3, True, 1, False), (gpu, 20e-6, True, 1, True),
        (gpu, 20e-6, False, None, False),
    ]:  # fmt: skip
        ran, _ = engines([kind(), kind()], [seconds] * 2, isolated=isolated)
        assert iterations in (None, ran[0].log.iterations), (kind, seconds)
        assert {"unresolved" in engine.log.labels for engine in ran} == {unresolved}, (
            kind,
            seconds,
            isolated,
        )
        assert ran[0].samples().median_s == pytest.approx(seconds, abs=0.5e-6), (
            kind,
            seconds,
            isolated,
        )


def test_an_isolated_sample_begins_behind_a_barrier_on_an_idle_device():
    order, device = [], direct()

    class Noting(Seat):
        def barrier(self):
            order.append("barrier" if device.clock_s <= device.host_s() else "barrier while busy")

    seat = Noting(Table(1), 0)
    seat.size = 2
    seat.gather = lambda values: [values, values]
    engine = alone(
        seat, device, fn=lambda: order.append("call") or device.work(1e-3), isolated=True
    )
    count = len(engine.log.seconds)
    assert ("barrier while busy" not in order, order[-2:]) == (True, ["barrier", "call"])
    assert [order[at - 1] for at, what in enumerate(order) if what == "call"][-count:] == [
        "barrier"
    ] * count


def test_ranks_and_isolated_calls_are_in_no_graph():
    for size, isolated, mode in [(2, False, "events"), (1, False, "graph"), (1, True, "events")]:
        ran = together(
            size, lambda seat, isolated=isolated: alone(seat, gpu(), 2.3e-6, isolated=isolated)
        )
        assert ran[0].log.mode == mode, (size, isolated)


def test_a_cause_on_one_rank_excludes_the_block_on_all_and_names_the_rank():
    hot = gpu(throttle=lambda busy_s: frozenset({THERMAL}) if busy_s > 0.15 else frozenset())
    ran, calls = engines([gpu(), hot], [1e-3, 1e-3])
    assert f"{THERMAL} (rank 1)" in ran[0].samples().excluded
    assert (ran[0].samples().excluded, len(set(calls))) == (ran[1].samples().excluded, 1)

    def answers_slowly(seat):
        hot = frozenset({THERMAL} if seat.number else ())
        device = gpu(counters_s=0.1 * seat.number, throttle=lambda _: hot)
        return alone(seat, device, budget_s=1.0).samples().excluded

    first, second = together(2, answers_slowly)
    assert (first, {cause.partition(" (")[0] for cause in first}) == (second, {THERMAL})


def test_preemptions_are_no_cause_among_ranks_since_collectives_cause_them():
    def body(seat):
        device = direct()
        device.counters = lambda: Counters(preemptions=int(1e6 * device.host_s()))
        return alone(seat, device).samples().excluded

    assert together(2, body) == [{}, {}]
    assert together(1, body)[0].keys() == {PREEMPTED}


def test_a_host_that_falls_behind_on_one_rank_is_a_gap_on_all():
    devices, calls = [gpu(), gpu()], itertools.count()

    def slow_at_times():
        devices[1].pass_time(0.05 if next(calls) % 151 == 150 else 0.0)
        return 1e-4

    ran, made = engines(devices, [1e-4, slow_at_times])
    gaps = [[block.excluded for block in engine.log.blocks] for engine in ran]
    assert (gaps[0], len(set(made))) == (gaps[1], 1)
    assert f"{HOST_GAP} (rank 1)" in gaps[0]


def stopwatches(seconds, body):
    """What `body(stopwatch, submit)` gives on ranks whose hosts need so long for a call of 1 and 2 ms."""

    def sit(seat):
        device = gpu(clock_hz=1e9 * (1 + seat.number))

        def submit():
            device.pass_time(seconds[seat.number])
            device.work(1e-3 * (1 + seat.number))

        watch = Stopwatch(device, False, None, seat)
        watch.spin_hz = 1e9
        return body(watch, submit)

    return together(len(seconds), sit)


def test_a_block_is_the_longest_of_all_ranks_and_ahead_only_where_every_host_is():
    def block(watch, submit):
        return watch.time_ahead(submit, BlockShape(1, 3, 5e-3))

    first, second = stopwatches([1e-5, 1e-5], block)
    assert first.spans == second.spans == second.rank_times.spans
    assert (first.rank_times.spans, first.wall_s) == (
        pytest.approx([1e-3] * 3),
        max(first.rank_times.wall_s, second.rank_times.wall_s),
    )
    assert first.clocks_hz == second.clocks_hz == first.rank_times.clocks_hz
    first, second = stopwatches([1e-5, 1e-2], block)
    assert [(each.host_was_ahead, each.rank_times.host_was_ahead) for each in (first, second)] == [
        (False, True),
        (False, False),
    ]
    assert first.host_s == second.host_s == pytest.approx(0.03, rel=0.01)
    costs = stopwatches([1e-5, 1e-2], lambda watch, submit: watch.host_cost_s(submit, 1e-3))
    assert costs == pytest.approx([1e-2] * 2, rel=0.01)


def test_the_coarsest_clock_of_the_ranks_sizes_the_samples_of_all():
    traits = Traits(tick_s=1e-9, shortest_span_s=1e-5, spins=True)
    devices = [
        FakeDevice(tick_s=tick_s, traits=replace(traits, tick_s=tick_s)) for tick_s in (1e-7, 5e-6)
    ]
    ran, calls = engines(devices, [1e-4, 1e-4])
    assert ([engine.log.calibration.tick_s for engine in ran], len(set(calls))) == ([5e-6] * 2, 1)
    assert ran[0].log.iterations * 1e-4 >= 200 * 5e-6


def test_an_error_on_one_rank_is_that_ranks_and_devices_of_different_kinds_are_refused_by_name():
    def fails(seat):
        device, calls = direct(), itertools.count()

        def fn():
            device.work(1e-3)
            if seat.number == 1 and next(calls) == 30:
                raise ValueError("only here")

        alone(seat, device, fn=fn)

    with pytest.raises(ValueError, match=r"^only here$"):
        together(2, fails)
    with pytest.raises(BadInput, match="rank 0 and rank 1 must be timed in different ways"):
        together(2, lambda seat: alone(seat, direct() if seat.number else gpu()))


def test_fresh_sets_are_made_on_all_ranks_equally_often_and_after_every_block_the_log_holds_one_more():
    def body(seat):
        renewed, lengths = [], []
        sets = [(index,) for index in range(100)]
        engine = alone(
            seat, direct(), 1e-3 * (1 + seat.number), sets=sets, renew=renewed.append,
            after_block=lambda log: lengths.append(len(log.timed_blocks)),
        )  # fmt: skip
        return renewed, lengths == [*range(1, len(engine.log.timed_blocks) + 1)]

    (first, counted), (second, _) = together(2, body)
    assert (first, counted) == (second, True)
    assert first != []


def test_of_calibrations_the_dearest_holds_and_the_shallowest_queue():
    known = Calibration(
        "fake", tick_s=1e-6, event_pair_s=2e-6, record_host_s=3e-6, call_host_s=4e-6, spin_hz=2e9
    )
    for depths, agreed in [((None, None), None), ((None, 1000), 1000), ((900, 1000), 900)]:
        own = [
            replace(known, queue_depth=depths[0]),
            replace(known, queue_depth=depths[1], tick_s=5e-6, call_host_s=1e-6, spin_hz=1e9),
        ]
        both = together(
            2,
            lambda seat, own=own: agreed_calibration(
                Agreement(seat, lambda: 0.0), own[seat.number]
            ),
        )
        expected = replace(known, tick_s=5e-6, queue_depth=agreed)
        assert both == [expected, replace(expected, spin_hz=1e9)], depths


def test_of_states_the_worst_holds_and_what_one_rank_finds_of_earlier_blocks_holds_for_all():
    for own, agreed in [
        (
            [
                BlockState("", False, "none", throttle_known=True),
                BlockState(NEIGHBOUR, True, "seen", throttle_known=True),
                BlockState("", None, "unknown", throttle_known=False),
            ],
            BlockState(
                NEIGHBOUR, True, "seen", throttle_known=False, cause_text=f"{NEIGHBOUR} (rank 1)"
            ),
        ),
        # The first was asked of this block alone, the second of five, the last of none yet.
        (
            [
                BlockState("", False, judged_count=1),
                BlockState(THERMAL, None, spoiled_reason=THERMAL, judged_count=5),
                BlockState("", clock_moved=True),
            ],
            BlockState(
                THERMAL,
                cause_text=f"{THERMAL} (rank 1)",
                spoiled_reason=THERMAL,
                judged_count=5,
                clock_moved=True,
            ),
        ),
        # Blocks of which not every rank was asked are not known.
        (
            [BlockState("", False, judged_count=3), BlockState("", None, judged_count=0)],
            BlockState(),
        ),
    ]:
        agree = together(
            len(own),
            lambda seat, own=own: agreed_state(Agreement(seat, lambda: 0.0), own[seat.number]),
        )
        assert set(agree) == {agreed}
    assert [of_ranks(ranks, 3) for ranks in ([0, 1, 2], [1], [0, 2])] == [
        "",
        " (rank 1)",
        " (ranks 0, 2)",
    ]


def test_a_rank_whose_clock_still_moves_keeps_all_warming_up():
    began_s = []

    def clock(busy_s):
        return 1 - 10 * min(0.05, busy_s - began_s[0]) if began_s else 1.0

    moving = gpu(clock=clock)
    calibrate(moving)
    began_s.append(moving.busy_s)
    # Its calls are the shorter ones, so that no agreed time shows its clock.
    ran, calls = engines([gpu(), moving], [1e-3, 1e-4], budget_s=2.0)
    steady, _ = engines([gpu(), gpu()], [1e-3, 1e-4], budget_s=2.0)
    assert (len(set(calls)), ran[0].log.warmup_s > 2 * steady[0].log.warmup_s) == (1, True)
