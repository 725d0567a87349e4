from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.samples import ACHIEVED, Block, Samples, merged

THERMAL = "thermal slowdown"
GAP = "host gap"
BAD_NUMBERS = (-1.0, float("nan"), float("inf"))
brief = settings(max_examples=40, deadline=None)
seconds_of_a_block = st.lists(st.floats(1e-9, 10.0), min_size=1, max_size=8)


def in_blocks(*blocks, excluded=(), **changes):
    """Samples of blocks given as lists of seconds; `excluded` says which do not count, by number or with a cause."""
    causes = excluded if isinstance(excluded, dict) else dict.fromkeys(excluded, THERMAL)
    facts = {
        "seconds": tuple(value for block in blocks for value in block),
        "iterations": 1,
        "tick_s": 1e-9,
        "blocks": tuple(Block(len(block), causes.get(number, "")) for number, block in enumerate(blocks)),
    }
    return Samples(**(facts | changes))


def of_blocks(*blocks, **changes):
    """Samples of ready-made blocks, all of them a second a call."""
    facts = {"seconds": (1.0,) * sum(block.samples for block in blocks), "iterations": 1, "tick_s": 1e-9}
    return Samples(**(facts | {"blocks": blocks} | changes))


def test_every_block_has_its_median_in_the_order_taken():
    assert in_blocks([3.0, 9.0, 4.0], [1.0, 2.0]).block_medians == (4.0, 1.5)


def test_the_median_is_of_the_blocks_and_not_of_all_samples():
    # Pooled it would be 9: the long block holds more than half of the samples.
    assert in_blocks([1.0], [2.0], [9.0, 9.0, 9.0, 9.0]).median_s == 2.0


def test_an_excluded_block_has_no_say_in_the_median():
    assert in_blocks([1.0, 1.0], [9.0, 9.0, 9.0], [2.0], [3.0], excluded=[1]).median_s == 2.0


def test_samples_after_an_excluded_block_still_belong_to_their_own():
    assert in_blocks([7.0, 8.0, 9.0], [1.0, 2.0], [5.0], excluded=[0]).block_medians == (1.5, 5.0)


def test_where_nothing_counts_every_block_is_used():
    assert in_blocks([1.0, 3.0], [4.0], excluded=[0, 1]).block_medians == (2.0, 4.0)


def test_without_blocks_each_sample_is_its_own():
    samples = Samples((3.0, 1.0, 2.0), iterations=1, tick_s=1e-9)
    assert (samples.block_medians, samples.median_s) == ((3.0, 1.0, 2.0), 2.0)


@brief
@given(st.lists(seconds_of_a_block, min_size=1, max_size=8), st.randoms())
def test_the_order_of_samples_within_a_block_does_not_matter(blocks, random):
    shuffled = [random.sample(block, len(block)) for block in blocks]
    assert in_blocks(*blocks).median_s == in_blocks(*shuffled).median_s


@brief
@given(st.lists(seconds_of_a_block, min_size=1, max_size=8), st.lists(seconds_of_a_block, min_size=1, max_size=8))
def test_what_an_excluded_block_holds_does_not_matter(counted, spoiled):
    early = range(len(spoiled))
    late = range(len(spoiled) + len(counted), 2 * len(spoiled) + len(counted))
    mixed = in_blocks(*spoiled, *counted, *spoiled, excluded=[*early, *late])
    assert mixed.median_s == in_blocks(*counted).median_s


@brief
@given(seconds_of_a_block)
def test_blocks_of_one_sample_are_like_no_blocks(seconds):
    assert in_blocks(*([value] for value in seconds)).median_s == median(seconds)


def test_blocks_that_do_not_add_up_are_refused_with_both_counts():
    for blocks in [(1,), (1, 1, 1), (4,)]:
        with pytest.raises(BadInput) as error:
            Samples((1.0, 2.0), iterations=1, tick_s=1e-9, blocks=tuple(map(Block, blocks)))
        assert str(error.value) == f"the blocks hold {sum(blocks)} samples; expected the 2 that were taken", blocks


def test_a_block_holds_at_least_one_sample():
    for count in [0, -1]:
        with pytest.raises(BadInput, match=f"a block holds {count} samples; expected 1 or more"):
            Block(count)


def test_the_clock_of_a_block_is_a_finite_number_above_zero():
    for clock_hz in [0.0, *BAD_NUMBERS]:
        with pytest.raises(BadInput):
            Block(1, clock_hz=clock_hz)


def test_times_beside_the_samples_must_be_possible():
    for field, value in [("overhead_s", value) for value in BAD_NUMBERS] + [
        ("wall_s", value) for value in (0.0, *BAD_NUMBERS)
    ]:
        with pytest.raises(BadInput, match=field):
            Samples((1.0,), iterations=1, tick_s=1e-9, **{field: value})


def test_excluded_blocks_are_counted_by_cause():
    samples = in_blocks([1.0], [1.0, 1.0], [1.0], [1.0], excluded={0: THERMAL, 1: GAP, 3: THERMAL})
    assert samples.excluded == {THERMAL: 2, GAP: 1}


def test_blocks_that_all_count_are_counted_under_no_cause():
    assert in_blocks([1.0], [2.0]).excluded == {}


def test_the_clock_is_the_median_of_the_blocks_that_count_and_were_probed():
    clocks = [Block(1, clock_hz=2e9), Block(1), Block(1, THERMAL, clock_hz=9e8), Block(1, clock_hz=1.8e9)]
    assert of_blocks(*clocks, Block(1, clock_hz=1.5e9)).clock_hz == 1.8e9


def test_a_clock_that_was_not_probed_is_unknown():
    for blocks in [(), (Block(1),), (Block(1, THERMAL, clock_hz=1e9), Block(1))]:
        assert of_blocks(*blocks, seconds=(1.0,) * max(1, len(blocks))).clock_hz is None, blocks


def test_the_share_at_the_power_cap_is_of_the_blocks_where_it_is_known():
    caps = (True, None, False, None, True, False)
    assert of_blocks(*(Block(1, power_capped=capped) for capped in caps)).power_capped_share == 0.5


def test_a_power_cap_that_was_never_active_is_no_unknown_one():
    assert of_blocks(Block(1, power_capped=False)).power_capped_share == 0.0


def test_a_power_cap_of_which_the_device_does_not_tell_is_unknown():
    for blocks in [(), (Block(1), Block(1))]:
        assert of_blocks(*blocks, seconds=(1.0,) * max(1, len(blocks))).power_capped_share is None, blocks


def test_the_power_cap_is_no_trouble():
    for capped in [True, None]:
        assert of_blocks(*[Block(1, power_capped=capped)] * 4).trouble == "", capped


def test_a_majority_of_spoiled_blocks_is_trouble_that_says_causes_and_counts():
    samples = in_blocks([1.0], [1.0, 1.0], [1.0], [1.0], [1.0], excluded={0: THERMAL, 1: GAP, 3: THERMAL})
    assert samples.trouble == f"3 of 5 blocks of samples were spoiled: 2 × {THERMAL}, 1 × {GAP}"


def test_where_nothing_counts_the_trouble_says_so():
    assert in_blocks([1.0], [2.0], excluded=[0, 1]).trouble.startswith("2 of 2 blocks of samples were spoiled")


def test_up_to_half_of_the_blocks_may_be_spoiled():
    for spoiled, count in [(0, 1), (1, 2), (2, 4), (2, 5), (3, 6)]:
        assert in_blocks(*[[1.0]] * count, excluded=range(spoiled)).trouble == "", (spoiled, count)


def test_blocks_and_not_samples_make_the_majority():
    assert in_blocks([1.0] * 50, [1.0], [1.0], excluded=[0]).trouble == ""
    assert in_blocks([1.0] * 50, [1.0], [1.0], excluded=[1, 2]).trouble != ""


def test_an_unresolved_time_is_trouble_that_says_how_short_it_is_and_what_to_do():
    trouble = Samples((2e-9,), iterations=50, tick_s=1e-8, labels=("unresolved",)).trouble
    assert trouble.startswith("a sample spans 10 ticks of the clock, not enough to tell a difference")
    assert "time more work in a call, or cache='rotate' or 'warm'" in trouble


def test_an_unresolved_time_is_told_even_of_a_clock_of_unknown_resolution():
    assert Samples((1e-9,), iterations=1, tick_s=0.0, labels=("unresolved",)).trouble != ""


def test_a_label_alone_is_no_trouble():
    for label in ["noisy", "drifting", *ACHIEVED]:
        assert Samples((1.0,), iterations=1, tick_s=1e-9, labels=(label,)).trouble == "", label


def test_what_was_measured_in_place_of_what_was_asked_for_is_told_from_other_labels():
    for label in ["host_bound", "cache_resident", "waits_inside", "wall_clock"]:
        samples = Samples((1.0,), iterations=1, tick_s=1e-9, labels=("noisy", label, "drifting"))
        assert samples.achieved == (label,), label


def test_what_was_achieved_does_not_depend_on_the_order_of_labels():
    one, other = (
        Samples((1.0,), iterations=1, tick_s=1e-9, labels=labels).achieved
        for labels in (("wall_clock", "host_bound"), ("host_bound", "wall_clock"))
    )
    assert one == other == ("host_bound", "wall_clock")


def test_what_was_timed_as_asked_achieved_nothing_else():
    for labels in [(), ("drifting", "noisy")]:
        assert Samples((1.0,), iterations=1, tick_s=1e-9, labels=labels).achieved == (), labels


def test_the_way_of_timing_is_named_in_a_comparison():
    for mode in ["events", "graph", "host"]:
        assert Samples((1.0,), iterations=1, tick_s=1e-9, mode=mode).comparable() == {"timed by": mode}, mode


def test_passes_become_one_by_their_blocks_in_a_row():
    blocked = Samples(
        (1.0, 2.0, 3.0), 4, 1e-9, blocks=(Block(2), Block(1, excluded="thermal slowdown")), measuring_s=1.0
    )
    single = Samples((5.0,), 2, 1e-6, labels=("drifting",), measuring_s=0.5)
    found = merged([blocked, single])
    assert (found.seconds, found.block_medians) == ((1.0, 2.0, 3.0, 5.0), (1.5, 5.0))
    assert (found.iterations, found.tick_s, found.measuring_s) == (2, 1e-6, 1.5)
    assert (found.labels, found.excluded) == (("drifting",), {"thermal slowdown": 1})


def test_a_neighbour_seen_in_one_pass_was_seen():
    passes = [Samples((1.0,), 1, 1e-9, neighbours=word) for word in ("none", "seen", "unknown")]
    assert [merged(passes[:count]).neighbours for count in (1, 2, 3)] == ["none", "seen", "seen"]
