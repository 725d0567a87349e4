"""One of several siblings is named where it is surely slower; how often is simulated in tests/slow."""

from dataclasses import replace

from pytest_roofline.baselines.reasons import reason_text
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import Key
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.records import Measurement
from pytest_roofline.core.samples import SIBLINGS, Samples
from pytest_roofline.core.verdicts import Kind, Verdict
from pytest_roofline.core.work import Work
from pytest_roofline.stats.siblings import Sibling, card_spread, judge_sibling, unless_busy
from pytest_roofline.stats.verdicts import may_be_red

MEMORY, LINK, GEMM = "auto_traffic_GBps", "pinned_auto_payload_GBps", "bf16_TFLOPS"
ALONE = HardwareKey("h100-sxm5", "80gb", "none", 1, "none")
WORKS = {
    MEMORY: Work(read_bytes=10**9, write_bytes=10**9),
    LINK: Work(payload_bytes=10**9, wire_bytes=10**9),
    GEMM: Work(flops=10**12),
}


def judge_siblings(siblings):
    """The verdict on each, in their order."""
    return [
        judge_sibling(mine, [*siblings[:place], *siblings[place + 1 :]])
        for place, mine in enumerate(siblings)
    ]


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


def test_who_is_slow_is_named_and_neither_all_nor_camps_nor_less_than_six_percent():
    assert kinds(*[1.1e-3] * 8) == ["PASSED"] * 8
    assert kinds(1.25, 1, 1, 1, 1.25, 1, 1, 1) == [
        "REGRESSED",
        *["PASSED"] * 3,
        "REGRESSED",
        *["PASSED"] * 3,
    ]
    assert "REGRESSED" not in kinds(1, 1, 1, 1, 1.15, 1.15, 1.15, 1.15)
    assert kinds(1.055, 1, 1, 1, 1, 1, 1, 1) == ["PASSED"] * 8


def test_the_message_names_the_card_its_rates_and_what_to_do():
    (first, *_) = judge_siblings(siblings(1.102e-3, *[1e-3] * 7))
    assert reason_text(first) == (
        "cuda:0 (GPU-0) is 10.2 % slower than its 7 siblings (1815 GB/s against 2000 GB/s; siblings "
        "differ by 1.1 %); check errors, clocks and link with `roofline doctor`, then swap the card with a "
        "sibling: if the slowness moves along, replace the card, else check slot, cooling and power"
    )


def test_what_more_processes_would_not_tell_is_left_open_at_once_and_the_rest_until_then():
    (first, *_) = judge_siblings(siblings(1.1e-3, *[1e-3] * 7, metric=GEMM))
    assert (first.kind, first.futile) == (Kind.INCONCLUSIVE, True)
    assert "the siblings differ too much to confirm more than 6 %" in reason_text(first)
    spread = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03)
    (first, *_) = judge_siblings(siblings(1.085e-3, *(1e-3 * value for value in spread)))
    assert (first.kind, first.futile) == (Kind.INCONCLUSIVE, False)
    assert "--roofline-rounds=auto" in reason_text(first)


def test_one_that_cannot_be_trusted_says_so_and_where_too_few_can_nothing_is_decided():
    ones = siblings(*[1e-3] * 5)
    ones[2] = Sibling(ones[2].measurement, (), invalid=text_reasons("wrong data"))
    found = judge_siblings(ones)
    assert [one.kind.name for one in found] == ["PASSED", "PASSED", "INVALID", "PASSED", "PASSED"]
    assert {one.siblings for one in found} == {3, 4}
    ones = siblings(*[1e-3] * 4)
    ones[2] = Sibling(ones[2].measurement, (), invalid=text_reasons("wrong data"))
    (first, *_) = judge_siblings(ones)
    assert first.kind is Kind.INCONCLUSIVE
    assert "2 of the 3 siblings of cuda:0 (GPU-0) gave valid numbers" in reason_text(first)


def test_busy_siblings_take_every_verdict_on_a_shared_link_back():
    for kind in [Kind.REGRESSED, Kind.PASSED, Kind.IMPROVED, Kind.INCONCLUSIVE]:
        busy = standing(0, LINK, siblings_busy="GPU 3 (GPU-3) was 87 % busy")
        found = unless_busy(Verdict(kind, 0.05, p_spent=1e-9, estimate=0.3), [busy])
        assert (found.kind, may_be_red(found), found.futile) == (Kind.INCONCLUSIVE, False, True), (
            kind
        )
        assert reason_text(found).startswith(
            "GPU 3 (GPU-3) was 87 % busy: the link to the host is shared"
        ), kind
    for kind in [Kind.INVALID, Kind.NO_BASELINE]:
        busy = standing(0, LINK, siblings_busy="GPU 3 (GPU-3) was 87 % busy")
        verdict = Verdict(kind, 0.05, reasons=text_reasons("why"))
        assert unless_busy(verdict, [busy]) == verdict, kind


def links(count, sick):
    """Every link among so many cards, those at the sick one's ends a fifth slower."""
    names = [
        (first, second) for first in range(count) for second in range(count) if first != second
    ]
    found = []
    for pair in names:
        one = standing(0, LINK, 1.2 if sick in pair else 1.0)
        hardware = replace(ALONE, devices=2, link="nvlink-switch")
        key = replace(
            one.key, name=" to ".join(f"cuda:{index}" for index in pair), hardware=hardware
        )
        found.append(Sibling(replace(one, key=key), (one.median_s,)))
    return names, found


def test_all_links_of_a_slow_card_are_named_and_no_others():
    between = Key(
        "copy", {}, LINK, replace(ALONE, devices=2, link="nvlink-switch"), "rotate", "device"
    )
    assert card_spread(between) == card_spread(standing(0).key)
    for count in [5, 8]:
        names, found = links(count, sick=2)
        named = {
            pair
            for pair, one in zip(names, judge_siblings(found), strict=True)
            if one.kind is Kind.REGRESSED
        }
        assert named == {pair for pair in names if 2 in pair}, count
