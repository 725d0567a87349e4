"""Which blocks do not count, and what is written down beside those that do."""

import itertools
from itertools import pairwise
from types import SimpleNamespace

import pytest

from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.engine.conditions import HOST_GAP, NEIGHBOUR, OTHERS_BYTES, PREEMPTED, Conditions
from pytest_roofline.engine.devices.base import BRAKE, HARDWARE, POWER_CAP, THERMAL, Counters, Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan

CLOCK = (2e9, 2e9)
CAUSES = [THERMAL, HARDWARE, BRAKE]
NONE = frozenset()


def after(*counters, ahead=True, clocks_hz=CLOCK, wall_s=0.05):
    """The conditions and the cause after blocks with these counters before and after."""
    told = iter(counters)
    clock = SimpleNamespace(now_s=0.0)
    conditions = Conditions(SimpleNamespace(counters=lambda: next(told), host_s=lambda: clock.now_s))
    cause = ""
    for _ in range(len(counters) // 2):
        conditions.begin()
        clock.now_s += wall_s
        cause = conditions.cause(ahead, clocks_hz, wall_s)
    return conditions, cause


def cause_of(*counters, **block):
    return after(*counters, **block)[1]


def test_a_quiet_block_counts():
    quiet = Counters(active=NONE, others_bytes=0, others_busy=0.0, preemptions=0)
    assert cause_of(quiet, quiet) == ""


def test_a_block_of_a_device_that_tells_nothing_counts():
    assert cause_of(Counters(), Counters()) == ""


def test_a_block_behind_which_the_host_fell_is_a_host_gap():
    for ahead, cause in [(True, ""), (None, ""), (False, HOST_GAP)]:
        assert cause_of(Counters(), Counters(), ahead=ahead) == cause, (ahead, cause)


def test_a_slowdown_seen_at_either_end_excludes_a_block():
    for cause, when in itertools.product(CAUSES, [(True, False), (False, True), (True, True)]):
        before, behind = (Counters(active=frozenset({cause} if active else ())) for active in when)
        assert cause_of(before, behind) == cause, (cause, when)


def test_a_slowdown_that_came_and_went_excludes_a_block():
    for cause in CAUSES:
        assert cause_of(Counters(NONE, {cause: 1.0}), Counters(NONE, {cause: 1.5})) == cause, cause


def test_a_slowdown_of_yesterday_excludes_nothing():
    for cause in CAUSES:
        assert cause_of(Counters(NONE, {cause: 1.0}), Counters(NONE, {cause: 1.0})) == "", cause


def test_a_counter_that_was_not_there_before_excludes_nothing():
    for cause in CAUSES:
        assert cause_of(Counters(), Counters(seconds={cause: 1.0})) == "", cause


def test_a_slowdown_of_the_block_before_excludes_only_that_block():
    hot, cool = Counters(active=frozenset({THERMAL})), Counters(active=NONE)
    assert cause_of(hot, hot, cool, cool) == ""


def test_the_software_power_cap_excludes_nothing():
    for counters in [
        Counters(active=frozenset({POWER_CAP})),
        Counters(NONE, {POWER_CAP: 2.0}),
        Counters(frozenset({"idle"})),
    ]:
        assert cause_of(Counters(NONE, {POWER_CAP: 1.0}), counters) == "", counters


def test_the_software_power_cap_is_recorded_or_unknown():
    for before, behind, capped in [
        (Counters(active=NONE), Counters(active=frozenset({POWER_CAP})), True),
        (Counters(active=NONE), Counters(active=NONE), False),
        (Counters(seconds={POWER_CAP: 1.0}), Counters(seconds={POWER_CAP: 1.5}), True),
        (Counters(seconds={POWER_CAP: 1.0}), Counters(seconds={POWER_CAP: 1.0}), False),
        (Counters(), Counters(), None),
        (Counters(), Counters(seconds={THERMAL: 1.0}), None),
    ]:
        assert after(before, behind)[0].power_capped == capped, (before, behind, capped)


def test_a_device_that_tells_of_no_throttling_is_not_known_to_be_well():
    for counters, known in [
        (Counters(), False),
        (Counters(active=NONE), True),
        (Counters(seconds={THERMAL: 0.0}), True),
    ]:
        assert after(counters, counters)[0].throttle_known == known, (counters, known)


def test_neighbours_show_by_the_memory_that_they_hold():
    for others_bytes, neighbours in [
        (None, "unknown"),
        (0, "none"),
        (OTHERS_BYTES, "none"),
        (OTHERS_BYTES + 1, "seen"),
    ]:
        counters = Counters(others_bytes=others_bytes)
        assert after(counters, counters)[0].neighbours == neighbours, (others_bytes, neighbours)


def test_memory_that_others_hold_excludes_nothing_alone():
    holding = Counters(others_bytes=2**34)
    assert cause_of(holding, holding) == ""


def test_a_neighbour_at_work_excludes_a_block():
    for busy, cause in [(None, ""), (0.0, ""), (0.04, ""), (0.06, NEIGHBOUR), (1.0, NEIGHBOUR)]:
        counters = Counters(others_busy=busy)
        assert cause_of(counters, counters) == cause, (busy, cause)


def test_a_neighbour_at_work_is_seen_though_its_memory_is_unknown():
    counters = Counters(others_busy=0.5)
    assert after(counters, counters)[0].neighbours == "seen"


def test_a_neighbour_that_was_seen_stays_seen():
    holding, alone = Counters(others_bytes=2**34), Counters(others_bytes=0)
    assert after(holding, holding, alone, alone)[0].neighbours == "seen"


def test_probes_that_differ_beside_a_neighbours_memory_are_its_time_slices():
    for clocks_hz, cause in [((2e9, 1.9e9), ""), ((2e9, 1.7e9), NEIGHBOUR), ((1.7e9, 2e9), NEIGHBOUR), (None, "")]:
        holding = Counters(active=NONE, others_bytes=2**34)
        assert cause_of(holding, holding, clocks_hz=clocks_hz) == cause, (clocks_hz, cause)


def test_probes_that_differ_beside_memory_of_others_that_are_known_to_idle_exclude_nothing():
    holding = Counters(active=NONE, others_bytes=2**34, others_busy=0.0)
    assert cause_of(holding, holding, clocks_hz=(2e9, 1.5e9)) == ""


def test_probes_that_differ_on_a_device_of_ones_own_exclude_nothing():
    counters = Counters(others_bytes=0)
    assert cause_of(counters, counters, clocks_hz=(2e9, 1.5e9)) == ""


# A product of matrices on a 700 W card falls from 1980 MHz to some 1500, all by itself.
UNTOLD = {
    "no library": Counters(),
    "a library that tells of nothing but memory": Counters(others_bytes=2**34),
    "a library that tells of heat alone": Counters(seconds={THERMAL: 0.0}, others_bytes=2**34),
}


def test_probes_that_differ_where_nobody_tells_of_the_power_cap_are_noted_and_exclude_nothing():
    for counters in UNTOLD.values():
        conditions, cause = after(counters, counters, clocks_hz=(2e9, 1.5e9))
        assert (cause, conditions.clock_moved) == ("", True), counters


EXPLAINED = {
    "at the power cap": Counters(active=frozenset({POWER_CAP}), others_bytes=2**34),
    "alone": Counters(others_bytes=0),
}


def test_probes_that_differ_for_a_reason_that_is_known_are_not_noted():
    for counters in EXPLAINED.values():
        assert not after(counters, counters, clocks_hz=(2e9, 1.5e9))[0].clock_moved, counters


def test_probes_that_differ_under_the_power_cap_exclude_nothing():
    capped = Counters(active=frozenset({POWER_CAP}), others_bytes=2**34)
    assert cause_of(capped, capped, clocks_hz=(2e9, 1.5e9)) == ""


def test_a_hundred_preemptions_a_second_are_the_most():
    for taken, cause in [(0, ""), (5, ""), (6, PREEMPTED), (1000, PREEMPTED)]:
        assert cause_of(Counters(preemptions=70), Counters(preemptions=70 + taken), wall_s=0.05) == cause


def test_interruptions_count_where_somebody_else_had_the_cores():
    for others_s, wall_s, cause in [
        # Nobody else had the cores: threads of our own, or the kernel on our behalf.
        (0.0, 0.5, ""),
        (0.04, 0.5, ""),
        (0.05, 0.5, PREEMPTED),
        (0.5, 0.5, PREEMPTED),
        # The kernel counts in hundredths of a second.
        (0.0, 0.05, PREEMPTED),
        (None, 0.5, PREEMPTED),
    ]:
        before = Counters(preemptions=0, others_core_s=30.0)
        behind = Counters(preemptions=1000, others_core_s=None if others_s is None else 30.0 + others_s)
        assert cause_of(before, behind, wall_s=wall_s) == cause, (others_s, wall_s, cause)


def test_where_blocks_are_short_what_others_had_since_the_first_one_tells():
    for others_s, cause in [(0.001, ""), (0.02, PREEMPTED)]:
        states = [Counters(preemptions=1000 * index, others_core_s=index * others_s) for index in range(6)]
        blocks = [state for before, behind in pairwise(states) for state in (before, behind)]
        assert cause_of(*blocks, wall_s=0.04) == cause, (others_s, cause)


def test_preemptions_that_are_unknown_exclude_nothing():
    for before, behind in [(None, 1000), (1000, None)]:
        assert cause_of(Counters(preemptions=before), Counters(preemptions=behind)) == "", (before, behind)


def test_more_than_half_of_the_blocks_excluded_is_trouble():
    for spoiled, trouble in [(4, False), (5, False), (6, True), (10, True)]:
        blocks = tuple(Block(2, THERMAL if index < spoiled else "") for index in range(10))
        assert bool(Samples((1e-3,) * 20, 1, 1e-9, blocks=blocks).trouble) == trouble, (spoiled, trouble)


def test_trouble_counts_the_blocks_by_cause():
    blocks = (Block(1, THERMAL), Block(1, HOST_GAP), Block(1, THERMAL), Block(1))
    assert Samples((1e-3,) * 4, 1, 1e-9, blocks=blocks).trouble == (
        "3 of 4 blocks of samples were spoiled: 2 × thermal slowdown, 1 × host gap"
    )


def timed(seconds=1e-4, budget_s=1.0, **facts):
    """The samples of a function on a device with these facts."""
    device = FakeDevice(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6, tick_s=0.5e-6, **facts)
    engine = Engine(device, Plan(lambda: device.work(seconds), [()], budget_s=budget_s))
    engine.run()
    return engine.samples()


@pytest.mark.parametrize("cause", CAUSES)
def test_a_device_that_is_throttled_all_the_time_is_trouble(cause):
    samples = timed(throttle=lambda _: frozenset({cause}))
    assert samples.trouble.endswith(f"× {cause}")


@pytest.mark.parametrize("cause", CAUSES)
def test_a_device_that_is_throttled_all_the_time_keeps_the_budget(cause):
    samples = timed(throttle=lambda _: frozenset({cause}))
    assert samples.warmup_s + samples.measuring_s <= 1.0 + 0.06


@pytest.mark.parametrize("cause", CAUSES)
def test_a_device_that_is_throttled_all_the_time_still_has_a_number(cause):
    assert timed(throttle=lambda _: frozenset({cause})).median_s == pytest.approx(1e-4, rel=0.01)


def test_a_device_that_is_throttled_for_a_while_is_measured_without_that_while():
    samples = timed(
        throttle=lambda busy_s: frozenset({THERMAL} if busy_s < 0.75 else ()),
        clock=lambda busy_s: 0.5 if busy_s < 0.75 else 1.0,
    )
    assert (samples.median_s, samples.trouble) == (pytest.approx(1e-4, rel=0.01), "")
    assert 0 < samples.excluded[THERMAL] < len(samples.blocks) / 2


def test_a_card_at_its_power_cap_is_measured_and_says_so():
    samples = timed(throttle=lambda _: frozenset({POWER_CAP}), clock=lambda _: 0.8)
    assert (samples.excluded, samples.power_capped_share) == ({}, 1.0)
    assert samples.clock_hz == pytest.approx(0.8 * 2e9, rel=0.01)


def test_a_card_below_its_power_cap_says_so():
    assert timed().power_capped_share == 0.0


def test_a_card_that_withholds_its_state_is_unknown():
    samples = timed(throttle=None, others_bytes=None, others_busy=None)
    assert (samples.throttle_known, samples.neighbours, samples.power_capped_share) == (False, "unknown", None)


def test_a_neighbour_at_work_all_the_time_is_trouble():
    assert timed(others_busy=0.5).trouble.endswith(f"× {NEIGHBOUR}")


def test_an_idle_neighbour_that_holds_memory_excludes_nothing():
    for seconds in [2.3e-6, 1e-4, 50e-3]:
        samples = timed(seconds, others_bytes=2**30)
        assert (samples.excluded, samples.neighbours) == ({}, "seen"), seconds


def test_slow_launches_are_not_the_time_slices_of_an_idle_neighbour():
    device = FakeDevice(launch_s=40e-6, record_s=1.5e-6, latency_s=4e-6, tick_s=0.5e-6, others_bytes=2**30)
    engine = Engine(device, Plan(lambda: device.work(50e-3), [()], budget_s=2.0))
    engine.run()
    assert engine.samples().excluded == {}


class Interrupted(FakeDevice):
    """A processor that the scheduler takes away so many times a second."""

    rate_hz = 0.0

    def counters(self):
        return Counters(preemptions=int(self.rate_hz * self.host_s()))


@pytest.mark.parametrize(("rate_hz", "excluded"), [(0, 0), (30, 0), (400, 1)])
def test_a_processor_that_is_taken_away_often_is_excluded_for_that(rate_hz, excluded):
    device = Interrupted()
    device.rate_hz = rate_hz
    engine = Engine(device, Plan(lambda: device.work(1e-3), [()], budget_s=0.5))
    engine.run()
    samples = engine.samples()
    assert samples.excluded == ({PREEMPTED: len(samples.blocks)} if excluded else {})


def asked(told, cost_s, blocks, wall_s=0.05, rest=True):
    """How often a device that takes so long to answer is asked about blocks, and what is known of each in the end.

    `told` gives the counters at a time.
    """
    clock = SimpleNamespace(now_s=0.0, rounds=0)

    def counters():
        clock.now_s += cost_s
        clock.rounds += 1
        return told(clock.now_s)

    conditions = Conditions(SimpleNamespace(counters=counters, host_s=lambda: clock.now_s))
    conditions.pace()
    found, before = [], clock.rounds
    for index in range(blocks):
        conditions.begin(anew=index == 0)
        clock.now_s += wall_s
        found.append((conditions.cause(True, CLOCK, wall_s), None))
        found[len(found) - conditions.judged :] = [(conditions.spoiled, conditions.power_capped)] * conditions.judged
    if rest and conditions.rest():
        found[len(found) - conditions.judged :] = [(conditions.spoiled, conditions.power_capped)] * conditions.judged
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
        taken, found = asked(lambda _: Counters(active=NONE), cost_s, blocks=20)
        assert (taken, found) == (rounds, [("", False)] * 20), (cost_s, rounds)
        assert cost_s == 0 or (taken - 2) * cost_s <= 0.05 * 20 * 0.05, (cost_s, rounds)


@pytest.mark.parametrize(("cost_s", "spoiled"), [(0.0, [10, 11]), (0.003, [8, 9, 10, 11]), (0.1, [*range(20)])])
def test_a_slowdown_excludes_every_block_that_it_may_have_been_in(cost_s, spoiled):
    # Two blocks of 50 ms, from half a second on.
    began_s = 0.51 + 2 * cost_s
    found = asked(lambda now_s: Counters(seconds={THERMAL: min(0.08, max(0, now_s - began_s))}), cost_s, blocks=20)[1]
    assert [index for index, (cause, _) in enumerate(found) if cause == THERMAL] == spoiled


def test_a_slowdown_before_the_first_block_excludes_none():
    assert asked(lambda now_s: Counters(seconds={THERMAL: min(now_s, 0.2)}), 0.1, blocks=3)[1] == [("", None)] * 3


def test_what_a_device_adds_up_counts_for_every_block_since_it_did_so_before():
    # Firmware that renews what it tells every 100 ms: two blocks of 50 ms are judged together.
    def told(now_s):
        renewals = int(now_s / 0.1 + 1e-9)
        return Counters(seconds={BRAKE: 0.1 * max(0, renewals - 3), POWER_CAP: 0.0}, renewals=renewals)

    found = asked(told, 0.0, blocks=10)[1]
    assert found == [("", False)] * 6 + [(BRAKE, False)] * 4


def test_blocks_that_the_device_never_told_of_are_unknown():
    assert asked(lambda _: Counters(active=NONE, renewals=7), 0.0, blocks=3)[1] == [("", None)] * 3


HIP = Traits(tick_s=1e-6, shortest_span_s=1e-3, spins=True, graphs=True)


def slow_to_answer(counters_s, seconds=4e-4, **facts):
    """A run on a ROCm device of which a round of questions takes so long; the device and the samples."""
    device = FakeDevice(launch_s=8e-6, latency_s=4e-6, traits=HIP, counters_s=counters_s, **facts)
    engine = Engine(device, Plan(lambda: device.work(seconds), [()], budget_s=1.0))
    engine.run()
    return device, engine.samples()


def test_questions_that_are_dear_leave_the_measurement_as_it_is_without():
    for seconds in [4e-4, 5e-3]:
        device, dear = slow_to_answer(0.1, seconds)
        free_device, free = slow_to_answer(0.0, seconds)
        assert (dear.labels, len(dear.blocks), dear.median_s) == (free.labels, len(free.blocks), free.median_s)
        # Two rounds to learn what they cost, one before the first block and one behind the last.
        assert device.host_s() - free_device.host_s() == pytest.approx(0.4, abs=0.01), seconds


def test_a_slowdown_is_seen_by_questions_that_are_dear():
    samples = slow_to_answer(0.1, throttle=lambda busy_s: frozenset({THERMAL} if busy_s > 0.1 else ()))[1]
    assert samples.excluded == {THERMAL: len(samples.blocks)}


def test_the_power_cap_is_known_of_every_block_though_questions_are_dear():
    samples = slow_to_answer(0.1, throttle=lambda _: frozenset({POWER_CAP}))[1]
    assert (samples.power_capped_share, samples.excluded) == (1.0, {})


def droop(**facts):
    """The samples of a device whose clock falls within every block, as under a product of matrices."""
    device = FakeDevice(launch_s=8e-6, latency_s=4e-6, clock=lambda busy_s: 1 - 0.24 * (busy_s * 40 % 1), **facts)
    engine = Engine(device, Plan(lambda: device.work(1e-3), [()], budget_s=1.0))
    engine.run()
    return engine.samples()


UNKNOWN = {"others_bytes": None, "others_busy": None}
AT_700_W = {"throttle": lambda _: frozenset({POWER_CAP})}


def test_a_product_at_the_power_cap_is_valid_whoever_tells_of_it():
    for facts, labelled in [
        (UNKNOWN | {"throttle": None}, True),
        (UNKNOWN | AT_700_W, False),
        (AT_700_W, False),
        (AT_700_W | {"others_bytes": 2**31}, False),
        ({"throttle": None, "others_bytes": 2**31, "others_busy": None}, True),
    ]:
        samples = droop(**facts)
        assert (samples.trouble, samples.excluded, "clock_moved" in samples.labels) == ("", {}, labelled)


def test_a_busy_neighbour_beside_a_product_is_trouble():
    assert NEIGHBOUR in droop(**AT_700_W, others_bytes=2**31, others_busy=0.5).trouble


@pytest.mark.parametrize(
    ("silent", "why"),
    [
        ("", "the driver does not tell"),
        ("nvidia-ml-py is not installed (pip install nvidia-ml-py)",) * 2,
        (None, "the driver does not tell"),
    ],
    ids=["answering", "not installed", "without a library"],
)
def test_the_summary_says_why_a_device_does_not_tell_of_its_state(suite, silent, why):
    body = "" if silent is None else f"DEVICE.silent_library = lambda: {silent!r}\n"
    suite.device("throttle=None, others_bytes=None, others_busy=None", body)
    result = suite.run("def test_copy(roofline, fake): roofline.measure(lambda: fake.work(1e-4), work=WORK)\n")
    said = ["not known whether others used the device", "not known whether the device was throttled"]
    result.stdout.fnmatch_lines([f"{what}, since {why}: copy" for what in said])
