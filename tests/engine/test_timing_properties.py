"""What holds of the timing engine for every duration, clock and budget."""

import math
from dataclasses import replace

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.log import known, median_half_width
from pytest_roofline.engine.sizing import TICKS_PER_SAMPLE
from pytest_roofline.engine.timing import Engine, Plan

# Accelerators as they are: calls from 2 µs to 0.1 s, ticks up to 2 µs, launches and stamps of host time.
durations = st.floats(-5.7, -1.0).map(lambda exponent: 10**exponent)
budgets = st.floats(0.05, 2.0)
devices = st.fixed_dictionaries(
    {
        "tick_s": st.sampled_from([1e-9, 0.5e-6, 1e-6, 2e-6]),
        "launch_s": st.floats(0.0, 50e-6),
        "record_s": st.floats(0.0, 5e-6),
        "pair_s": st.floats(0.0, 2e-6),
        "latency_s": st.floats(0.0, 10e-6),
        "queue_depth": st.sampled_from([256, 1000, 4096]),
    }
)
kinds = st.sampled_from(["spins and graphs", "spins", "neither"])
brief = settings(max_examples=30, phases=(Phase.explicit, Phase.reuse, Phase.generate))


def run(duration, budget_s, facts, kind):
    """The engine and its device after a run."""
    device = FakeDevice(**facts)
    device.traits = replace(device.traits, graphs=kind == "spins and graphs", spins=kind != "neither")
    engine = Engine(device, Plan(lambda: device.work(duration), [()], budget_s=budget_s))
    engine.run()
    return engine, device


@brief
@given(durations, budgets, devices, kinds)
def test_every_run_ends_with_a_sample(duration, budget_s, facts, kind):
    engine, _ = run(duration, budget_s, facts, kind)
    assert engine.samples().seconds


@brief
@given(durations, budgets, devices, kinds)
def test_every_call_is_accounted_for(duration, budget_s, facts, kind):
    engine, device = run(duration, budget_s, facts, kind)
    log = engine.log
    assert device.works == log.warmup_iterations + log.iterations * len(log.seconds)


@brief
@given(durations, budgets, devices, kinds)
def test_every_sample_belongs_to_a_block(duration, budget_s, facts, kind):
    log = run(duration, budget_s, facts, kind)[0].log
    assert len(log.seconds) == sum(block.samples for block in log.blocks)


@brief
@given(durations, budgets, devices, kinds)
def test_a_sample_is_the_duration_within_a_tick_or_says_why_not(duration, budget_s, facts, kind):
    engine, device = run(duration, budget_s, facts, kind)
    samples = engine.samples()
    # Without a spin in front, for want of one or of time, the launch gaps are inside: at the most one a call.
    behind = all(block.clock_hz is None for block in samples.blocks)
    gap_s = facts["launch_s"] + facts["latency_s"] + facts["record_s"] if behind else 0.0
    slack_s = (device.tick_s + facts["pair_s"]) / samples.iterations + gap_s
    off_s = max(abs(sample - duration) for sample in samples.seconds)
    assert off_s <= 1.001 * slack_s + 1e-12 or {"host_bound", "unresolved"} & set(samples.labels)


# What the first block leaves of the budget holds one more call, and not the spins around it.
TIGHT = {
    "tick_s": 5e-7, "launch_s": 0.0, "record_s": 5.491374191277834e-07, "pair_s": 0.0, "latency_s": 0.0,
    "queue_depth": 4096,
}  # fmt: skip


@brief
@given(durations, budgets, devices, kinds)
@example(0.024712894768996053, 0.05, TIGHT, "spins")
def test_warm_up_and_measuring_never_pass_the_budget_by_more_than_a_block(duration, budget_s, facts, kind):
    engine, _ = run(duration, budget_s, facts, kind)
    log = engine.log
    longest_s = max(
        wall_s * block.samples * log.iterations for wall_s, block in ((kept.wall_s, kept.block) for kept in log.kept)
    )
    first_s = duration + 2 * facts["launch_s"] + facts["latency_s"]
    assert log.warmup_s + log.measuring_s <= 1.001 * (budget_s + first_s + longest_s)


# So little of the budget is left for finding out about a graph that this alone spends it.
SPENT_BY_A_GRAPH = {
    "tick_s": 2e-6, "launch_s": 5e-5, "record_s": 4.9e-6, "pair_s": 4e-7, "latency_s": 4e-7, "queue_depth": 1000,
}  # fmt: skip


@brief
@given(durations, budgets, devices, kinds)
@example(2e-6, 0.05, SPENT_BY_A_GRAPH, "spins and graphs")
def test_whoever_ends_before_the_budget_knows_the_median(duration, budget_s, facts, kind):
    engine, device = run(duration, budget_s, facts, kind)
    log = engine.log
    assert log.warmup_s + log.measuring_s >= budget_s or known(log.counted(), device.traits.precision)


@brief
@given(durations, budgets, devices, kinds)
def test_every_sample_spans_two_hundred_ticks_or_says_that_it_does_not(duration, budget_s, facts, kind):
    engine, device = run(duration, budget_s, facts, kind)
    shortest_s = min(engine.log.seconds) * engine.log.iterations
    resolved = shortest_s >= (TICKS_PER_SAMPLE - 1) * device.tick_s
    assert resolved or "unresolved" in engine.log.labels


def exact_coverage(count, low, high):
    """The chance that the median lies between the order statistics `low` and `high`, counted from 0."""
    return sum(math.comb(count, below) for below in range(low + 1, high + 1)) / 2**count


def ranks_of(count):
    """Which two order statistics of so many samples `median_half_width` takes."""
    # Differences of these values are all different, so the width tells the pair.
    values = [1000.0 + index + index * index / 1000 for index in range(count)]
    width = 2 * median_half_width(values) * values[count // 2]
    pairs = [(low, high) for low in range(count) for high in range(low, count)]
    return min(pairs, key=lambda pair: abs(values[pair[1]] - values[pair[0]] - width))


def test_the_interval_of_the_median_covers_it_in_95_of_100_cases():
    for count in [6, 7, 10, 11, 20, 33, 50, 101, 200]:
        low, high = ranks_of(count)
        assert exact_coverage(count, low, high) >= 0.95, count


def test_the_interval_of_the_median_is_at_most_two_ranks_wider_than_it_must_be():
    for count in [6, 7, 10, 11, 20, 33, 50, 101, 200]:
        low, high = ranks_of(count)
        enough = [
            other - one
            for one in range(count)
            for other in range(one, count)
            if one + other in (count - 1, count) and exact_coverage(count, one, other) >= 0.95
        ]
        assert high - low <= min(enough) + 2, count


def test_a_handful_of_samples_give_their_whole_range():
    for count in [1, 2, 3, 4, 5]:
        assert (0, count - 1) == ranks_of(count), count


@given(st.lists(st.floats(1e-9, 10.0), min_size=1, max_size=60), st.randoms())
def test_the_width_does_not_depend_on_the_order_of_samples(seconds, random):
    shuffled = list(seconds)
    random.shuffle(shuffled)
    assert median_half_width(seconds) == median_half_width(shuffled)


@given(st.floats(1e-9, 10.0), st.integers(1, 60))
def test_equal_samples_have_no_width(duration, count):
    assert median_half_width([duration] * count) == 0.0


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=60), st.integers(-8, 8))
def test_the_width_is_a_share_and_does_not_depend_on_the_unit(seconds, exponent):
    scaled = [2.0**exponent * value for value in seconds]
    assert median_half_width(seconds) == pytest.approx(median_half_width(scaled))
