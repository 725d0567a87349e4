"""One of several siblings is named where it is surely slower, and hardly ever where all are alike: by simulation."""

import math
from dataclasses import replace

import numpy

from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import Key
from pytest_roofline.core.records import Measurement
from pytest_roofline.core.samples import SIBLINGS, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.stats.siblings import Sibling, assumed_of, judge_sibling, unless_busy
from pytest_roofline.stats.verdicts import Kind, Verdict

MEMORY, LINK, GEMM = "auto_traffic_GBps", "pinned_auto_payload_GBps", "bf16_TFLOPS"
ALONE = HardwareKey("h100-sxm5", "80gb", "none", 1, "none")
WORKS = {
    MEMORY: Work(read_bytes=10**9, write_bytes=10**9),
    LINK: Work(payload_bytes=10**9, wire_bytes=10**9),
    GEMM: Work(flops=10**12),
}
# Of cards, as standard deviations of log seconds; between processes it is 1 % of each.
CARDS = {MEMORY: 0.01, LINK: 0.05, GEMM: 0.05}
MOST_ROUNDS = 12


def judge_siblings(siblings):
    """The verdict on each, in their order."""
    return [judge_sibling(mine, [*siblings[:place], *siblings[place + 1 :]]) for place, mine in enumerate(siblings)]


def standing(index, metric=MEMORY, seconds=1e-3, **changes):
    key = Key("copy", {}, metric, ALONE, "rotate", "device", name=f"cuda:{index}")
    samples = Samples((seconds,), 1, 1e-9, labels=(SIBLINGS,))
    given = {"device": f"GPU-{index}"} | changes
    return Measurement(key, "t.py::t", f"copy.cuda:{index}", "p", WORKS[metric], samples, **given)


def siblings(*times, metric=MEMORY):
    """Cards with the seconds of their processes: a number, or several."""
    each = [value if isinstance(value, tuple) else (value,) for value in times]
    return [Sibling(standing(index, metric, one[0]), one) for index, one in enumerate(each)]


def kinds(*times, metric=MEMORY):
    return [verdict.kind.name for verdict in judge_siblings(siblings(*times, metric=metric))]


def simulated(generator, metric, slow=1.0, cards=8, rounds=MOST_ROUNDS):
    """The names of those that a run of eight cards names, of which the first takes `slow` times as long."""
    centres = generator.normal(0, CARDS[metric], cards)
    centres[0] += math.log(slow)
    logs = numpy.empty((cards, 0))
    for _ in range(rounds):
        new = generator.normal(centres, 0.01).reshape(cards, 1)
        logs = numpy.concatenate([logs, new], axis=1)
        found = judge_siblings(siblings(*(tuple(numpy.exp(row).tolist()) for row in logs), metric=metric))
        if not any(one.kind is Kind.INCONCLUSIVE and not one.futile for one in found):
            break
    return {index for index, one in enumerate(found) if one.kind is Kind.REGRESSED}


def test_equal_cards_are_hardly_ever_named():
    # A suite: within memory, both ways over the link, and a matrix product.
    generator = numpy.random.default_rng(1)
    suite = (MEMORY, LINK, LINK, GEMM)
    named = [any(simulated(generator, metric) for metric in suite) for _ in range(3000)]
    assert sum(named) <= 0.001 * len(named)


def test_a_tenth_slower_in_memory_is_named_and_nobody_else():
    for rounds, share in [(1, 0.80), (3, 0.95)]:
        generator = numpy.random.default_rng(20)
        runs = [simulated(generator, MEMORY, slow=1.1, rounds=rounds) for _ in range(200)]
        assert sum(0 in found for found in runs) >= share * len(runs), (rounds, share)
        assert sum(bool(found - {0}) for found in runs) <= 1, (rounds, share)


def test_half_the_link_is_named_however_far_links_lie_apart():
    generator = numpy.random.default_rng(21)
    runs = [simulated(generator, LINK, slow=2.0, rounds=1) for _ in range(200)]
    assert sum(found == {0} for found in runs) >= 0.99 * len(runs)


def test_all_equally_slow_names_nobody():
    assert kinds(*[1.1e-3] * 8) == ["PASSED"] * 8


def test_two_slow_ones_are_both_named():
    assert kinds(1.25, 1, 1, 1, 1.25, 1, 1, 1) == ["REGRESSED", *["PASSED"] * 3, "REGRESSED", *["PASSED"] * 3]


def test_two_camps_are_no_outliers_of_each_other():
    assert "REGRESSED" not in kinds(1, 1, 1, 1, 1.15, 1.15, 1.15, 1.15)


def test_less_than_six_percent_is_nobodys_concern():
    assert kinds(1.055, 1, 1, 1, 1, 1, 1, 1) == ["PASSED"] * 8


def test_the_message_names_the_card_its_rates_and_what_to_do():
    (first, *_) = judge_siblings(siblings(1.102e-3, *[1e-3] * 7))
    assert first.reason == (
        "cuda:0 (GPU-0) is 10.2 % slower than its 7 siblings (1815 GB/s against 2000 GB/s, which lie 1.1 % apart); ask "
        "`roofline doctor` for its errors, clocks and link, then swap it with a sibling: if the slowness moves with "
        "it, replace it, else look at its slot, cooling and power"
    )


def test_what_more_processes_would_not_tell_is_left_open_at_once():
    (first, *_) = judge_siblings(siblings(1.1e-3, *[1e-3] * 7, metric=GEMM))
    assert (first.kind, first.futile) == (Kind.INCONCLUSIVE, True)
    assert "too far apart to be sure of more than 6 %" in first.reason


def test_what_they_would_tell_is_open_until_then():
    spread = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03)
    (first, *_) = judge_siblings(siblings(1.085e-3, *(1e-3 * value for value in spread)))
    assert (first.kind, first.futile) == (Kind.INCONCLUSIVE, False)
    assert "--roofline-rounds=auto" in first.reason


def test_one_that_cannot_be_trusted_says_so_and_stands_for_nobody():
    ones = siblings(*[1e-3] * 5)
    ones[2] = Sibling(ones[2].standing, (), invalid="wrong data")
    found = judge_siblings(ones)
    assert [one.kind.name for one in found] == ["PASSED", "PASSED", "INVALID", "PASSED", "PASSED"]
    assert {one.siblings for one in found} == {3, 4}


def test_too_few_that_can_be_trusted_decide_nothing():
    ones = siblings(*[1e-3] * 4)
    ones[2] = Sibling(ones[2].standing, (), invalid="wrong data")
    (first, *_) = judge_siblings(ones)
    assert first.kind is Kind.INCONCLUSIVE
    assert "2 of the 3 siblings of cuda:0 (GPU-0) gave numbers that can be trusted" in first.reason


def test_links_between_cards_are_as_steady_as_memories():
    between = replace(ALONE, devices=2, link="nvlink-switch")
    key = Key("copy", {}, LINK, between, "rotate", "device")
    assert assumed_of(key) == assumed_of(standing(0).key)


def test_busy_siblings_take_every_verdict_on_a_shared_link_back():
    for kind in [Kind.REGRESSED, Kind.PASSED, Kind.IMPROVED, Kind.INCONCLUSIVE]:
        busy = standing(0, LINK, siblings_busy="GPU 3 (GPU-3) was 87 % busy")
        found = unless_busy(Verdict(kind, 0.05, p_spent=1e-9, estimate=0.3), [busy])
        assert (found.kind, found.may_be_red, found.futile) == (Kind.INCONCLUSIVE, False, True), kind
        assert found.reason.startswith("GPU 3 (GPU-3) was 87 % busy: the host's link is shared"), kind


def test_what_was_no_verdict_stays_what_it_was():
    for kind in [Kind.INVALID, Kind.NO_BASELINE]:
        busy = standing(0, LINK, siblings_busy="GPU 3 (GPU-3) was 87 % busy")
        assert unless_busy(Verdict(kind, 0.05, reason="why"), [busy]).reason == "why", kind


def links(count, sick):
    """Every link among so many cards, those at the sick one's ends a fifth slower."""
    names = [(first, second) for first in range(count) for second in range(count) if first != second]
    found = []
    for pair in names:
        one = standing(0, LINK, 1.2 if sick in pair else 1.0)
        hardware = replace(ALONE, devices=2, link="nvlink-switch")
        key = replace(one.key, name=" to ".join(f"cuda:{index}" for index in pair), hardware=hardware)
        found.append(Sibling(replace(one, key=key), (one.median_s,)))
    return names, found


def test_all_links_of_a_slow_card_are_named_and_no_others():
    for count in [5, 8]:
        names, found = links(count, sick=2)
        named = {pair for pair, one in zip(names, judge_siblings(found), strict=True) if one.kind is Kind.REGRESSED}
        assert named == {pair for pair in names if 2 in pair}, count
