"""Samples in blocks, and the ranks behind them: what they derive, refuse, and say of how they were taken."""

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.core.samples import ACHIEVED, Block, Ranks, Samples, merge_passes

THERMAL, GAP = "thermal slowdown", "host gap"
seconds_of_a_block = st.lists(st.floats(1e-9, 10.0), min_size=1, max_size=8)
blocks = st.lists(seconds_of_a_block, min_size=1, max_size=8)


def one(*seconds, **changes):
    """Samples without blocks, a second by default."""
    return Samples(**{"seconds": seconds or (1.0,), "iterations": 1, "tick_s": 1e-9, **changes})


def in_blocks(*given_blocks, excluded=(), **changes):
    """Samples of blocks given as lists of seconds; `excluded` says which do not count, by number or with a cause."""
    causes = excluded if isinstance(excluded, dict) else dict.fromkeys(excluded, THERMAL)
    made = tuple(
        Block(len(block), causes.get(number, "")) for number, block in enumerate(given_blocks)
    )
    return one(*(value for block in given_blocks for value in block), blocks=made, **changes)


def of_blocks(*ready):
    """Samples of ready-made blocks, all of them a second a call."""
    return one(*(1.0,) * max(1, sum(block.samples for block in ready)), blocks=ready)


def test_the_median_is_of_the_blocks_that_count_and_of_all_where_none_does():
    for samples, medians in [
        (in_blocks([3.0, 9.0, 4.0], [1.0, 2.0]), (4.0, 1.5)),
        # Pooled it would be 9: the long block holds more than half of the samples.
        (in_blocks([1.0], [2.0], [9.0, 9.0, 9.0, 9.0]), (1.0, 2.0, 9.0)),
        (in_blocks([1.0, 1.0], [9.0, 9.0, 9.0], [2.0], [3.0], excluded=[1]), (1.0, 2.0, 3.0)),
        (in_blocks([7.0, 8.0, 9.0], [1.0, 2.0], [5.0], excluded=[0]), (1.5, 5.0)),
        (in_blocks([1.0, 3.0], [4.0], excluded=[0, 1]), (2.0, 4.0)),
        (one(3.0, 1.0, 2.0), (3.0, 1.0, 2.0)),
    ]:
        assert (samples.block_medians, samples.median_s) == (medians, median(medians))
    assert in_blocks([7.0, 8.0], [1.0, 2.0], excluded=[0]).kept == (1.0, 2.0)


@settings(max_examples=40, deadline=None)
@given(blocks, blocks, st.randoms())
def test_neither_the_order_within_a_block_nor_what_an_excluded_one_holds_matters(
    counted, spoiled, random
):
    shuffled = [random.sample(block, len(block)) for block in counted]
    assert in_blocks(*counted).median_s == in_blocks(*shuffled).median_s
    late = range(len(spoiled) + len(counted), 2 * len(spoiled) + len(counted))
    mixed = in_blocks(*spoiled, *counted, *spoiled, excluded=[*range(len(spoiled)), *late])
    assert mixed.median_s == in_blocks(*counted).median_s
    first = counted[0]
    assert in_blocks(*([value] for value in first)).median_s == median(first)


def test_blocks_and_times_that_cannot_be_are_refused(make):
    for counts in [(1,), (1, 1, 1), (4,)]:
        with pytest.raises(BadInput) as error:
            one(1.0, 2.0, blocks=tuple(map(Block, counts)))
        assert str(error.value) == f"the blocks hold {sum(counts)} samples; expected 2"
    for count in [0, -1]:
        assert f"FILE: samples is {count}; expected 1 or more" == make.refusal(Block(count))
    for field in ("overhead_s", "first_calls_s", "warm_calls_s"):
        samples = one(**{field: (-1.0,) if field.endswith("calls_s") else -1.0})
        assert "is -1.0; expected a finite number, zero or more" in make.refusal(samples)
        assert field in make.refusal(samples)
    for value in (0.0, -1.0):
        for field, record in (
            ("wall_s", one(wall_s=value)),
            ("clock_hz", Block(1, clock_hz=value)),
        ):
            sentence = f"FILE: {field} is {value}; expected a finite number above zero"
            assert sentence == make.refusal(record)


def test_the_clock_and_the_share_at_the_power_cap_are_of_the_blocks_where_they_are_known():
    clocks = [
        Block(1, clock_hz=2e9),
        Block(1),
        Block(1, THERMAL, clock_hz=9e8),
        Block(1, clock_hz=1.8e9),
    ]
    assert of_blocks(*clocks, Block(1, clock_hz=1.5e9)).clock_hz == 1.8e9
    for unknown in [(), (Block(1),), (Block(1, THERMAL, clock_hz=1e9), Block(1))]:
        assert of_blocks(*unknown).clock_hz is None
    for caps, share in [
        ((True, None, False, None, True, False), 0.5),
        ((False,), 0.0),
        ((None, None), None),
        ((), None),
    ]:
        assert (
            of_blocks(*(Block(1, power_capped=capped) for capped in caps)).power_capped_share
            == share
        ), caps


def test_a_majority_of_spoiled_blocks_is_trouble_that_says_causes_and_counts():
    causes = {0: THERMAL, 1: GAP, 3: THERMAL}
    samples = in_blocks([1.0], [1.0, 1.0], [1.0], [1.0], [1.0], excluded=causes)
    assert samples.excluded == {THERMAL: 2, GAP: 1}
    assert samples.trouble == f"3 of 5 blocks of samples were spoiled: 2 × {THERMAL}, 1 × {GAP}"
    assert in_blocks([1.0], [2.0], excluded=[0, 1]).trouble.startswith(
        "2 of 2 blocks of samples were spoiled"
    )
    for spoiled, count in [(0, 1), (1, 2), (2, 4), (2, 5), (3, 6)]:
        assert in_blocks(*[[1.0]] * count, excluded=range(spoiled)).trouble == "", (spoiled, count)
    # Blocks and not samples make the majority.
    for excluded, trouble in [([0], False), ([1, 2], True)]:
        assert bool(in_blocks([1.0] * 50, [1.0], [1.0], excluded=excluded).trouble) == trouble
    for capped in (True, None):
        assert of_blocks(*[Block(1, power_capped=capped)] * 4).trouble == "", capped


def test_an_unresolved_time_is_trouble_that_says_how_short_it_is_and_what_to_do():
    trouble = one(2e-9, iterations=50, tick_s=1e-8, labels=("unresolved",)).trouble
    assert trouble.startswith(
        "a sample spans 10 ticks of the clock, too few to measure a difference"
    )
    assert "time more work in a call, or set cache='rotate' or 'warm'" in trouble
    # Also of a clock of unknown resolution; no other label is trouble.
    assert one(1e-9, tick_s=0.0, labels=("unresolved",)).trouble != ""
    for label in ["noisy", "drifting", *ACHIEVED]:
        assert one(labels=(label,)).trouble == "", label


def test_what_was_measured_in_place_of_what_was_asked_for_is_told_from_other_labels():
    for labels, achieved in [
        ((), ()), (("drifting", "noisy"), ()), *((("noisy", label), (label,)) for label in ACHIEVED),
        (("wall_clock", "host_bound"), ("host_bound", "wall_clock")),
    ]:  # fmt: skip
        assert one(labels=labels).achieved == achieved, labels
    for mode in ["events", "graph", "host"]:
        assert one(mode=mode).comparable() == {"timed by": mode}, mode
    assert one(mode="graph").achieved == ("graph",)


def test_passes_become_one_by_their_blocks_in_a_row():
    blocked = one(
        1.0, 2.0, 3.0, iterations=4, blocks=(Block(2), Block(1, excluded=THERMAL)), measuring_s=1.0
    )
    single = one(5.0, iterations=2, tick_s=1e-6, labels=("drifting",), measuring_s=0.5)
    found = merge_passes([blocked, single])
    assert (found.seconds, found.block_medians) == ((1.0, 2.0, 3.0, 5.0), (1.5, 5.0))
    assert (found.iterations, found.tick_s, found.measuring_s) == (2, 1e-6, 1.5)
    assert (found.labels, found.excluded) == (("drifting",), {THERMAL: 1})
    passes = [one(neighbours=word) for word in ("none", "seen", "unknown")]
    assert [merge_passes(passes[:count]).neighbours for count in (1, 2, 3)] == [
        "none",
        "seen",
        "seen",
    ]


def ranks(**changes):
    """Two ranks of one host, with two samples each."""
    facts = {
        "size": 2,
        "launcher": "local",
        "backend": "gloo",
        "hosts": ("node7",) * 2,
        "seconds": ((1.0, 2.0),) * 2,
    }
    return Ranks(**facts | changes)


def test_ranks_that_cannot_be_are_refused(make):
    for changes, said in [
        *(({name: value}, f"{name} holds {len(value)} ranks; expected 2") for name, value in [
            ("hosts", ("node7",)), ("hosts", ("node7",) * 3), ("seconds", ((1.0,),)), ("seconds", ((1.0,),) * 3),
            ("lag_s", (0.1,)), ("lag_s", (0.1,) * 3)]),
        ({"seconds": ((1.0, 2.0), (1.0,))}, "rows of different length; expected equally many samples of every rank"),
        *(({"straggler": late}, f"straggler is {late}; expected a rank from 0 to 1") for late in (-1, 2)),
    ]:  # fmt: skip
        with pytest.raises(BadInput, match=said):
            ranks(**changes)
    for changes, sentence in [
        *(({"size": size, "hosts": (), "seconds": ()}, f"size is {size}; expected 1 or more") for size in (0, -1)),
        *(({"seconds": ((1.0,), (value,))}, f"seconds[1][0] is {value}; expected a finite number above zero")
          for value in (0.0, -1.0)),
    ]:  # fmt: skip
        assert f"FILE: {sentence}" == make.refusal(ranks(**changes))
    assert [ranks(straggler=late).straggler for late in (None, 0, 1)] == [None, 0, 1]
    assert ranks(hosts=(), seconds=(), lag_s=()).nodes == 1


def test_worth_naming_of_ranks_is_what_changes_the_time_without_being_part_of_the_key(make):
    told = ranks(hosts=("a", "b"), threads=4, straggler=1, generation=3)
    facts = {"launcher": "local", "back end": "gloo", "nodes": "2", "threads a rank": "4"}
    assert facts == told.comparable()
    assert facts | {"timed by": "host"} == make.measurement(ranks=told).comparable()
    assert ranks().comparable() == {"launcher": "local", "back end": "gloo", "nodes": "1"}


def test_a_run_file_holds_every_ranks_times_by_the_same_rules(make, tmp_path):
    told = ranks(straggler=1, lag_s=(0.0, 0.02), threads=1, generation=2)
    path = tmp_path / "run.jsonl"
    (found,) = make.run(path, make.measurement(ranks=told)).measurements
    assert found.ranks == told
    path.write_text(path.read_text().replace('"straggler": 1', '"straggler": 7'))
    with pytest.raises(BadFile, match="straggler is 7; expected a rank from 0 to 1"):
        read_run(path)
