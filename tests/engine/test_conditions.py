"""Which blocks do not count, and what is written down beside those that do."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from pytest_roofline.core.facts import BRAKE, HARDWARE, POWER_CAP, THERMAL
from pytest_roofline.core.samples import PREEMPTED, Block, Samples
from pytest_roofline.engine.blocks.conditions import HOST_GAP, NEIGHBOUR, OTHERS_BYTES, Conditions
from pytest_roofline.engine.devices.base import Counters, Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.sizing.stopwatch import Stops
from pytest_roofline.engine.timing import Engine, Plan

CLOCK, MOVED = (2e9, 2e9), (2e9, 1.5e9)
CAUSES = [THERMAL, HARDWARE, BRAKE]
NONE, CAPPED = frozenset(), frozenset({POWER_CAP})


def after(*counters, ahead=True, clocks_hz=CLOCK, wall_s=0.05):
    """The conditions and the cause after blocks with these counters before and after."""
    told, clock = iter(counters), SimpleNamespace(now_s=0.0)
    conditions = Conditions(
        SimpleNamespace(counters=lambda: next(told), host_s=lambda: clock.now_s), Stops()
    )
    cause = ""
    for _ in range(len(counters) // 2):
        conditions.begin()
        clock.now_s += wall_s
        cause = conditions.end_block(ahead, clocks_hz, wall_s)
    return conditions, cause


def cause_of(*counters, **block):
    return after(*counters, **block)[1]


def test_a_slowdown_seen_at_either_end_or_that_came_and_went_excludes_its_block_alone():
    for cause in CAUSES:
        on, off = Counters(active=frozenset({cause})), Counters(active=NONE)
        for before, behind, found in [
            (on, off, cause), (off, on, cause), (on, on, cause),
            (Counters(NONE, {cause: 1.0}), Counters(NONE, {cause: 1.5}), cause),
            # Of yesterday; and where nothing was counted before.
            (Counters(NONE, {cause: 1.0}), Counters(NONE, {cause: 1.0}), ""),
            (Counters(), Counters(seconds={cause: 1.0}), ""),
        ]:  # fmt: skip
            assert cause_of(before, behind) == found, (before, behind)
        assert cause_of(on, on, off, off) == "", cause


def test_the_software_power_cap_is_recorded_or_unknown_and_excludes_nothing():
    for before, behind, capped in [
        (Counters(active=NONE), Counters(active=CAPPED), True),
        (Counters(active=NONE), Counters(active=NONE), False),
        (Counters(active=NONE), Counters(active=frozenset({"idle"})), False),
        (Counters(seconds={POWER_CAP: 1.0}), Counters(seconds={POWER_CAP: 1.5}), True),
        (Counters(seconds={POWER_CAP: 1.0}), Counters(seconds={POWER_CAP: 1.0}), False),
        (Counters(), Counters(), None),
        (Counters(), Counters(seconds={THERMAL: 1.0}), None),
    ]:
        conditions, cause = after(before, behind)
        assert (conditions.power_capped, cause) == (capped, ""), (before, behind)


def test_what_is_known_of_throttling_and_of_neighbours_by_the_memory_that_they_hold():
    for counters, known in [
        (Counters(), False),
        (Counters(active=NONE), True),
        (Counters(seconds={THERMAL: 0}), True),
    ]:
        assert after(counters, counters)[0].throttle_known == known, counters
    for others_bytes, neighbours in [
        (None, "unknown"),
        (0, "none"),
        (OTHERS_BYTES, "none"),
        (OTHERS_BYTES + 1, "seen"),
    ]:
        counters = Counters(others_bytes=others_bytes)
        conditions, cause = after(counters, counters)
        assert (conditions.neighbours, cause) == (neighbours, ""), others_bytes
    holding, alone = Counters(others_bytes=2**34), Counters(others_bytes=0)
    assert after(holding, holding, alone, alone)[0].neighbours == "seen"


def test_a_neighbour_at_work_excludes_a_block_and_is_seen():
    for busy, cause in [(None, ""), (0.0, ""), (0.04, ""), (0.06, NEIGHBOUR), (1.0, NEIGHBOUR)]:
        counters = Counters(others_busy=busy)
        conditions, found = after(counters, counters)
        assert (found, conditions.neighbours == "seen") == (cause, bool(cause)), busy


def test_a_clock_that_moved_is_a_neighbours_time_slices_only_where_nothing_else_can_have_moved_it():
    # A product of matrices on a 700 W card falls from 1980 MHz to some 1500, all by itself.
    holding = Counters(active=NONE, others_bytes=2**34)
    for counters, clocks_hz, cause, noted in [
        (holding, (2e9, 1.9e9), "", False),
        (holding, (2e9, 1.7e9), NEIGHBOUR, False),
        (holding, (1.7e9, 2e9), NEIGHBOUR, False),
        (holding, None, "", False),
        # Others that are known to idle, a device of one's own, and one at its power cap.
        (Counters(active=NONE, others_bytes=2**34, others_busy=0.0), MOVED, "", True),
        (Counters(others_bytes=0), MOVED, "", False),
        (Counters(active=CAPPED, others_bytes=2**34), MOVED, "", False),
        # Where nobody tells of the power cap.
        (Counters(), MOVED, "", True),
        (Counters(others_bytes=2**34), MOVED, "", True),
        (Counters(seconds={THERMAL: 0.0}, others_bytes=2**34), MOVED, "", True),
    ]:
        conditions, found = after(counters, counters, clocks_hz=clocks_hz)
        assert (found, conditions.clock_moved) == (cause, noted), (counters, clocks_hz)


def test_interruptions_count_where_somebody_else_had_the_cores():
    for taken, cause in [(0, ""), (5, ""), (6, PREEMPTED), (1000, PREEMPTED)]:
        assert cause_of(Counters(preemptions=70), Counters(preemptions=70 + taken)) == cause, taken
    for before, behind in [(None, 1000), (1000, None)]:
        assert cause_of(Counters(preemptions=before), Counters(preemptions=behind)) == ""
    for others_s, wall_s, cause in [
        # Nobody else had the cores: threads of our own, or the kernel on our behalf.
        (0.0, 0.5, ""), (0.04, 0.5, ""), (0.05, 0.5, PREEMPTED), (0.5, 0.5, PREEMPTED),
        # The kernel counts in hundredths of a second.
        (0.0, 0.05, PREEMPTED), (None, 0.5, PREEMPTED),
    ]:  # fmt: skip
        before = Counters(preemptions=0, others_core_s=30.0)
        behind = Counters(
            preemptions=1000, others_core_s=None if others_s is None else 30.0 + others_s
        )
        assert cause_of(before, behind, wall_s=wall_s) == cause, (others_s, wall_s)
    # Where blocks are short, what others had since the first one tells.
    for others_s, cause in [(0.001, ""), (0.02, PREEMPTED)]:
        states = [
            Counters(preemptions=1000 * index, others_core_s=index * others_s) for index in range(6)
        ]
        blocks = [state for before, behind in pairwise(states) for state in (before, behind)]
        assert cause_of(*blocks, wall_s=0.04) == cause, others_s


def test_more_than_half_of_the_blocks_excluded_is_trouble_counted_by_cause():
    for spoiled in (4, 5, 6, 10):
        blocks = tuple(Block(2, THERMAL if index < spoiled else "") for index in range(10))
        assert bool(Samples((1e-3,) * 20, 1, 1e-9, blocks=blocks).trouble) == (spoiled > 5), spoiled
    blocks = (Block(1, THERMAL), Block(1, HOST_GAP), Block(1, THERMAL), Block(1))
    assert Samples((1e-3,) * 4, 1, 1e-9, blocks=blocks).trouble == (
        "3 of 4 blocks of samples were spoiled: 2 × thermal slowdown, 1 × host gap"
    )


def run(device, seconds=1e-4, budget_s=1.0):
    """The samples of calls of so many seconds."""
    engine = Engine(device, Plan(lambda: device.work(seconds), [()], budget_s=budget_s))
    engine.run()
    return engine.samples()


def timed(seconds=1e-4, budget_s=1.0, **facts):
    """The samples of a function on a device with these facts."""
    costs = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6}
    return run(FakeDevice(**costs | facts), seconds, budget_s)


def test_a_device_that_is_throttled_is_trouble_with_a_number_within_the_budget_or_measured_without_that_while():
    for cause in CAUSES:
        samples = timed(throttle=lambda _, cause=cause: frozenset({cause}))
        assert samples.trouble.endswith(f"× {cause}")
        assert samples.warmup_s + samples.measuring_s <= 1.0 + 0.06, cause
        assert samples.median_s == pytest.approx(1e-4, rel=0.01), cause
    samples = timed(
        throttle=lambda busy_s: frozenset({THERMAL} if busy_s < 0.75 else ()),
        clock=lambda busy_s: 0.5 if busy_s < 0.75 else 1.0,
    )
    assert (samples.median_s, samples.trouble) == (pytest.approx(1e-4, rel=0.01), "")
    assert 0 < samples.excluded[THERMAL] < len(samples.blocks) / 2


def test_a_card_says_whether_it_is_at_its_power_cap_or_that_it_withholds_its_state():
    samples = timed(throttle=lambda _: CAPPED, clock=lambda _: 0.8)
    assert (samples.excluded, samples.power_capped_share) == ({}, 1.0)
    assert samples.clock_hz == pytest.approx(0.8 * 2e9, rel=0.01)
    assert timed().power_capped_share == 0.0
    samples = timed(throttle=None, others_bytes=None, others_busy=None)
    assert (samples.throttle_known, samples.neighbours, samples.power_capped_share) == (
        False,
        "unknown",
        None,
    )


def test_a_neighbour_at_work_is_trouble_and_an_idle_one_that_holds_memory_excludes_nothing():
    assert timed(others_busy=0.5).trouble.endswith(f"× {NEIGHBOUR}")
    # Slow launches are not its time slices.
    for seconds, launch_s in [(2.3e-6, 8e-6), (1e-4, 8e-6), (50e-3, 8e-6), (50e-3, 40e-6)]:
        samples = timed(seconds, budget_s=2.0, others_bytes=2**30, launch_s=launch_s)
        assert (samples.excluded, samples.neighbours) == ({}, "seen"), (seconds, launch_s)


def asked(told, cost_s, blocks, wall_s=0.05):
    """How often a device that takes so long to answer is asked about blocks, and what is known of each in the end.

    `told` gives the counters at a time.
    """
    clock = SimpleNamespace(now_s=0.0, rounds=0)

    def counters():
        clock.now_s += cost_s
        clock.rounds += 1
        return told(clock.now_s)

    conditions = Conditions(SimpleNamespace(counters=counters, host_s=lambda: clock.now_s), Stops())
    conditions.learn_pace()
    found, before = [], clock.rounds
    for index in range(blocks):
        conditions.begin(anew=index == 0)
        clock.now_s += wall_s
        found.append((conditions.end_block(True, CLOCK, wall_s), None))
        found[len(found) - conditions.judged_count :] = [
            (conditions.spoiled_reason, conditions.power_capped)
        ] * conditions.judged_count
    if conditions.end_row():
        found[len(found) - conditions.judged_count :] = [
            (conditions.spoiled_reason, conditions.power_capped)
        ] * conditions.judged_count
    return clock.rounds - before, found


def test_no_more_than_a_twentieth_of_the_time_goes_into_questions():
    for cost_s, rounds in [
        # Free: before and behind every block.
        (0.0, 40),
        # What NVML may take: behind every block, which is the beginning of the next.
        (0.002, 21),
        # 3 ms are 5 % of 60 ms, so of two blocks.
        (0.003, 11),
        # What `amdsmi_get_violation_status` sleeps: before the first block and behind the last.
        (0.1, 2),
    ]:
        assert asked(lambda _: Counters(active=NONE), cost_s, blocks=20) == (
            rounds,
            [("", False)] * 20,
        ), cost_s
        assert cost_s == 0 or (rounds - 2) * cost_s <= 0.05 * 20 * 0.05, cost_s


def test_a_slowdown_excludes_every_block_that_it_may_have_been_in():
    # Two blocks of 50 ms, from half a second on.
    for cost_s, spoiled in [(0.0, [10, 11]), (0.003, [8, 9, 10, 11]), (0.1, [*range(20)])]:
        began_s = 0.51 + 2 * cost_s

        def told(now_s, began_s=began_s):
            return Counters(seconds={THERMAL: min(0.08, max(0, now_s - began_s))})

        found = asked(told, cost_s, blocks=20)[1]
        assert [index for index, (cause, _) in enumerate(found) if cause == THERMAL] == spoiled, (
            cost_s
        )
    # Before the first block it excludes none.
    assert (
        asked(lambda now_s: Counters(seconds={THERMAL: min(now_s, 0.2)}), 0.1, blocks=3)[1]
        == [("", None)] * 3
    )


def test_what_a_device_adds_up_counts_for_every_block_since_it_did_so_before():
    # Firmware that renews what it tells every 100 ms: two blocks of 50 ms are judged together.
    def told(now_s):
        renewals = int(now_s / 0.1 + 1e-9)
        return Counters(
            seconds={BRAKE: 0.1 * max(0, renewals - 3), POWER_CAP: 0.0}, renewals=renewals
        )

    assert asked(told, 0.0, blocks=10)[1] == [("", False)] * 6 + [(BRAKE, False)] * 4
    # One that never told again.
    assert asked(lambda _: Counters(active=NONE, renewals=7), 0.0, blocks=3)[1] == [("", None)] * 3


HIP = Traits(tick_s=1e-6, shortest_span_s=1e-3, spins=True, graphs=True)


def slow_to_answer(counters_s, seconds=4e-4, **facts):
    """A run on a ROCm device of which a round of questions takes so long; the device and the samples."""
    device = FakeDevice(launch_s=8e-6, latency_s=4e-6, traits=HIP, counters_s=counters_s, **facts)
    return device, run(device, seconds)


def test_questions_that_are_dear_leave_the_measurement_as_it_is_without_and_find_the_same():
    for seconds in [4e-4, 5e-3]:
        device, dear = slow_to_answer(0.1, seconds)
        free_device, free = slow_to_answer(0.0, seconds)
        assert (dear.labels, len(dear.blocks), dear.median_s) == (
            free.labels,
            len(free.blocks),
            free.median_s,
        )
        # Two rounds to learn what they cost, one before the first block and one behind the last.
        assert device.host_s() - free_device.host_s() == pytest.approx(0.4, abs=0.01), seconds
    hot = slow_to_answer(0.1, throttle=lambda busy_s: frozenset({THERMAL} if busy_s > 0.1 else ()))[
        1
    ]
    assert hot.excluded == {THERMAL: len(hot.blocks)}
    capped = slow_to_answer(0.1, throttle=lambda _: CAPPED)[1]
    assert (capped.power_capped_share, capped.excluded) == (1.0, {})


def test_a_product_whose_clock_falls_within_every_block_is_valid_unless_a_neighbour_is_busy():
    def droop(**facts):
        device = FakeDevice(
            launch_s=8e-6,
            latency_s=4e-6,
            clock=lambda busy_s: 1 - 0.24 * (busy_s * 40 % 1),
            **facts,
        )
        return run(device, 1e-3)

    unknown, at_700_w = {"others_bytes": None, "others_busy": None}, {"throttle": lambda _: CAPPED}
    for facts, labelled in [
        (unknown | {"throttle": None}, True),
        (unknown | at_700_w, False),
        (at_700_w, False),
        (at_700_w | {"others_bytes": 2**31}, False),
        ({"throttle": None, "others_bytes": 2**31, "others_busy": None}, True),
    ]:
        samples = droop(**facts)
        assert (samples.trouble, samples.excluded, "clock_moved" in samples.labels) == (
            "",
            {},
            labelled,
        ), facts
    assert NEIGHBOUR in droop(**at_700_w, others_bytes=2**31, others_busy=0.5).trouble


def test_the_summary_says_why_a_device_does_not_tell_of_its_state(suite):
    install = "nvidia-ml-py is not installed (pip install nvidia-ml-py)"
    for silent, why in [
        ("", "the driver does not report the state of the device"),
        (install, install),
    ]:
        suite.device(
            "throttle=None, others_bytes=None, others_busy=None",
            f"DEVICE.silent_library = lambda: {silent!r}",
        )
        test = (
            "def test_copy(roofline, fake): roofline.measure(lambda: fake.work(1e-4), work=WORK)\n"
        )
        # Lines are wrapped.
        told = " ".join(suite.run(test, "-v").stdout.str().split())
        for what in (
            "not known whether other processes used the device",
            "not known whether the device was throttled",
        ):
            assert f"{what}, since {why}: copy" in told
