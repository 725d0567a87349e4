"""Which part of a device is sick and which is fine, from the verdicts of a run, in one sentence."""

import itertools
import math
import re

import pytest

from pytest_roofline.core.machine import THERMAL
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.judging.ladder import Seen, State, climb, slowed_by
from pytest_roofline.judging.ladder_causes import (
    CAUSES,
    CLOCK_BESIDE,
    CLOCK_DOWN,
    NONE_SICK,
    NOTHING_KNOWN,
    SEVERAL,
    SLOWED,
    cause_of,
)
from pytest_roofline.judging.rungs import Rung, rung_of
from pytest_roofline.reporting.ladder import ladder_lines

MIB = 2**20
BIG, TINY, BETWEEN = 256 * MIB, 4096, MIB
# A measurement that stands on each rung; the clock's own state comes from what they tell of it.
PARTS = {
    Rung.ENGINE: ("memcpy_d2d", {"size_bytes": BIG}, "auto_traffic_GBps", {}),
    Rung.MULTIPROCESSORS: ("stream", {"operation": "triad"}, "traffic_GBps", {}),
    Rung.HOST_LINK: ("memcpy_h2d", {"size_bytes": BIG, "memory": "pinned"}, "pinned_auto_payload_GBps", {}),
    Rung.PEER_LINK: (
        "peer_copy_one_way",
        {"source": 0, "target": 1, "size_bytes": BIG},
        "auto_payload_GBps",
        {"devices": 2, "link": "nvlink"},
    ),
    Rung.PRODUCT: ("attention", {"sequence": 1024}, "bf16_TFLOPS", {}),
    Rung.LAUNCH: ("memcpy_d2d", {"size_bytes": TINY}, "auto_traffic_GBps", {}),
}


@pytest.fixture
def seen(make):
    """What a run found of the part that a rung stands for."""

    def build(rung, word="PASSED", change=0.0, clock=None, **changes):
        benchmark, parameters, metric, hardware = PARTS[rung]
        key = make.key(benchmark, parameters=parameters, metric=metric, hardware=make.hardware(**hardware))
        logs = math.log1p(change)
        facts = {"estimate": logs, "interval": (logs - 0.01, logs + 0.01), "clock": clock}
        return Seen(key, word, 0.05, **(facts | changes))

    return build


@pytest.fixture
def told(seen):
    """The ladder of a run in which these rungs are sick and those fine; and how the clock moved, as a share."""

    def build(sick=(), fine=(), clock=None):
        logs = None if clock is None else math.log1p(clock)
        found = [seen(rung, "REGRESSED", 0.15, logs) for rung in sick]
        return climb([*found, *(seen(rung, clock=logs) for rung in fine)])

    return build


def sentence(ladder):
    return ladder_lines(ladder)[0]


@pytest.mark.parametrize("rung", PARTS, ids=lambda rung: rung.value)
def test_each_part_is_known_by_the_tests_of_perf_tests(seen, rung):
    assert rung_of(seen(rung).key) is rung


@pytest.mark.parametrize(
    ("name", "metric", "size_bytes", "expected"),
    [
        ("memcpy_d2d_triton", "sm_traffic_GBps", BIG, Rung.MULTIPROCESSORS),
        ("memcpy_d2d_triton", "sm_traffic_GBps", TINY, Rung.LAUNCH),
        ("stream_from_host", "pinned_auto_payload_GBps", BIG, Rung.HOST_LINK),
        ("streaming_llm", "time_s", BIG, None),
        ("stream_mine", "traffic_GBps", BIG, None),
        ("memcpy_d2h", "pinned_auto_payload_GBps", 16 * MIB, Rung.HOST_LINK),
        ("memcpy_d2h", "pinned_auto_payload_GBps", BETWEEN, None),
        ("memcpy_d2h", "pageable_auto_payload_GBps", BIG, None),
        ("my_own_copy", "ce_traffic_GBps", BIG, Rung.ENGINE),
        ("my_own_kernel", "traffic_GBps", BIG, None),
        ("peer_copy_gloo", "gloo_payload_GBps", BIG, None),
        ("all_reduce", "busbw_GBps", BIG, None),
        ("job", "job_wall_s", BIG, None),
    ],
)
def test_a_rung_is_what_a_metric_says_of_engine_and_memory(make, name, metric, size_bytes, expected):
    assert rung_of(make.key(name, size_bytes, metric=metric)) is expected


@pytest.mark.parametrize("name", ["stream", "stream_large"])
def test_of_stream_only_kernels_that_copy_tell_of_the_multiprocessors(make, name):
    found = {operation: rung_of(make.key(name, parameters={"operation": operation}, metric="traffic_GBps"))
             for operation in ("copy", "scale", "add", "triad", "dot")}  # fmt: skip
    assert found == {
        "copy": Rung.ENGINE,
        **dict.fromkeys(("scale", "add", "triad"), Rung.MULTIPROCESSORS),
        "dot": None,
    }


def test_a_processor_has_no_rungs(make):
    key = make.key("stream", hardware=make.hardware(partition="8-cores"))
    assert rung_of(key) is None
    assert climb([Seen(key, "REGRESSED", 0.05, 0.2, (0.1, 0.3))]) is None


def test_where_nothing_regressed_there_is_no_ladder(seen):
    open_one = seen(Rung.ENGINE, "INCONCLUSIVE", 0.5)
    assert climb([seen(Rung.HOST_LINK), open_one]) is None
    assert ladder_lines(None) == []


@pytest.mark.parametrize(
    ("sick", "fine", "clock", "words"),
    [
        ((Rung.ENGINE, Rung.MULTIPROCESSORS), (Rung.HOST_LINK,), 0.0, "memory is slower, for copy engine and multi"),
        ((Rung.ENGINE, Rung.MULTIPROCESSORS), (), None, "memory is slower, for copy engine and multiprocessors alike"),
        ((Rung.ENGINE,), (Rung.MULTIPROCESSORS,), 0.0, "copies by the engine that the driver chooses are slower"),
        ((Rung.ENGINE,), (), 0.0, "whether memory or copy engine, nothing here tells"),
        ((Rung.MULTIPROCESSORS,), (Rung.ENGINE,), 0.0, "kernels that copy are slower, and the memory is not"),
        ((Rung.MULTIPROCESSORS,), (Rung.HOST_LINK,), 0.0, "whether memory or kernels, nothing here tells"),
        ((Rung.MULTIPROCESSORS, Rung.PRODUCT), (Rung.ENGINE,), 0.0, "kernels are slower, copies by the copy engine"),
        ((Rung.HOST_LINK,), (Rung.ENGINE,), 0.0, "the link to the host is slower"),
        ((Rung.ENGINE, Rung.HOST_LINK), (Rung.MULTIPROCESSORS,), 0.0, "copy engines are slower"),
        ((Rung.PEER_LINK,), (Rung.ENGINE,), 0.0, "the links between devices are slower"),
        ((Rung.PEER_LINK, Rung.HOST_LINK), (), 0.0, "links are slower, to the host and between devices"),
        ((Rung.PRODUCT,), (Rung.ENGINE,), 0.0, "arithmetic is slower, and not by its clock"),
        ((Rung.PRODUCT,), (Rung.ENGINE,), None, "whether clock or library, nothing here tells"),
        ((Rung.LAUNCH,), (), 0.0, "launching is slower, bandwidth is not known to be"),
        ((Rung.LAUNCH,), (Rung.ENGINE,), 0.0, "launching is slower, bandwidth is not ("),
        ((Rung.LAUNCH,), (Rung.MULTIPROCESSORS,), 0.0, "launching is slower, bandwidth is not ("),
        ((Rung.LAUNCH,), (Rung.HOST_LINK,), 0.0, "launching is slower, bandwidth is not ("),
        ((Rung.ENGINE, Rung.MULTIPROCESSORS, Rung.PRODUCT), (), 0.0, "the whole device is slower"),
        ((Rung.ENGINE, Rung.MULTIPROCESSORS, Rung.HOST_LINK), (), 0.0, "nearly everything is slower"),
        ((Rung.PRODUCT,), (Rung.ENGINE, Rung.HOST_LINK), -0.24, "the clock is down, and what runs on it is slower"),
        ((Rung.PRODUCT, Rung.HOST_LINK), (), -0.24, "slower; beside that, the link to the host is slower (clock"),
        ((Rung.HOST_LINK,), (), -0.24, "the clock is down, which does not explain this; beside that, the link to"),
        ((Rung.PRODUCT,), (), -0.03, "which does not explain this; beside that, arithmetic is slower, and not by its"),
        ((Rung.HOST_LINK, Rung.PRODUCT), (Rung.ENGINE,), 0.0, "several parts are slower, in no pattern"),
    ],
)
def test_each_pattern_has_its_sentence(told, sick, fine, clock, words):
    assert words in sentence(told(sick, fine, clock))


def test_every_row_of_the_table_is_what_its_own_pattern_finds_first(told):
    for cause in CAUSES:
        clock = 0.0 if Rung.CLOCK in cause.fine else None
        assert cause_of(told(cause.sick, cause.fine - {Rung.CLOCK}, clock)) is cause


def test_every_combination_of_rungs_has_a_cause_that_is_true_of_it(told):
    parts = list(PARTS)
    for states in itertools.product("sfu", repeat=len(parts)):
        for clock in (None, 0.0):
            sick = {rung for rung, state in zip(parts, states, strict=True) if state == "s"}
            fine = {rung for rung, state in zip(parts, states, strict=True) if state == "f"}
            if not sick:
                continue
            cause = cause_of(told(sick, fine, clock))
            assert cause is SEVERAL or cause.sick <= sick <= cause.sick | cause.may
            assert cause.fine <= fine | ({Rung.CLOCK} if clock == 0.0 else set())


def test_the_sentence_names_what_is_sick_what_is_fine_and_what_is_not_known(told):
    text = sentence(told((Rung.ENGINE, Rung.MULTIPROCESSORS), (Rung.HOST_LINK,), 0.01))
    assert "(copy engine +15.0 % time in 1 of 1, copies by multiprocessors +15.0 % time in 1 of 1)" in text
    assert "; fine: clock, host link; not known: peer link, matrix products, launching. Look at ECC errors" in text
    assert "\n" not in text


def test_a_fallen_clock_is_told_by_how_much_and_why(seen):
    found = [seen(Rung.PRODUCT, "REGRESSED", 0.2, math.log1p(-0.2), slowed=THERMAL)]
    assert "(clock -20.0 % in 1 of 1, thermal slowdown, matrix products +20.0 % time" in sentence(climb(found))


def test_a_device_that_slowed_itself_down_is_sick_in_its_clock_though_no_probe_ran(seen):
    found = [seen(Rung.PRODUCT, "REGRESSED", 0.2), seen(Rung.ENGINE, "INVALID", estimate=None, slowed=THERMAL)]
    ladder = climb(found)
    assert ladder.step(Rung.CLOCK).state is State.SICK
    assert "(thermal slowdown in 1 of 2, matrix" in sentence(ladder)
    assert "the device slowed itself down; beside that, arithmetic is slower; whether clock or" in sentence(ladder)
    assert "clock is down" not in sentence(ladder)


def test_a_device_that_slowed_itself_down_without_a_fall_is_not_said_to_have_a_lower_clock(seen):
    fine = [seen(Rung.ENGINE, clock=0.0)] * 40
    text = sentence(climb([*fine, seen(Rung.HOST_LINK, "REGRESSED", 0.3, 0.0, slowed=THERMAL)]))
    assert text.startswith(f"ladder: {SLOWED.what}; beside that, the link to the host is slower (thermal slowdown in 1")
    assert "clock +0.0 %" not in text


def test_the_clock_is_that_under_the_products_where_these_are_sick(seen):
    capped = [seen(Rung.PRODUCT, "REGRESSED", 0.25, math.log1p(-0.2))] * 2
    link = [seen(Rung.HOST_LINK, "REGRESSED", 0.25, 0.0)] * 5
    for others in ([seen(Rung.ENGINE, clock=0.0)] * 20, link):
        ladder = climb([*others, *capped])
        assert (ladder.step(Rung.CLOCK).state, ladder.step(Rung.CLOCK).seen) == (State.SICK, 2)
        assert sentence(ladder).startswith(f"ladder: {CLOCK_DOWN.what}")
    unknown = climb([seen(Rung.ENGINE, clock=0.0), seen(Rung.PRODUCT, "REGRESSED", 0.25)])
    assert unknown.step(Rung.CLOCK).state is State.UNKNOWN
    assert "whether clock or library" in sentence(unknown)


@pytest.mark.parametrize(("falls", "state"), [(0, State.FINE), (1, State.UNKNOWN), (2, State.SICK)])
def test_a_clock_is_fine_only_where_it_fell_under_nothing_that_is_sick(seen, falls, state):
    clocks = [-0.2] * falls + [0.0] * (5 - falls)
    ladder = climb([seen(Rung.ENGINE, "REGRESSED", 0.25, clock) for clock in clocks])
    assert ladder.step(Rung.CLOCK).state is state


@pytest.mark.parametrize(("clock", "cause"), [(-0.03, CLOCK_BESIDE), (-0.1, CLOCK_BESIDE), (-0.14, CLOCK_DOWN)])
def test_a_clock_explains_what_it_makes_up_at_least_half_of(seen, clock, cause):
    found = [seen(Rung.MULTIPROCESSORS, "REGRESSED", 0.3, math.log1p(clock))]
    assert cause_of(climb(found)).what.partition(";")[0] == cause.what


def test_a_part_that_is_slower_at_its_full_clock_is_told_beside_the_clock(seen):
    found = [seen(Rung.PRODUCT, "REGRESSED", 0.25, math.log1p(-0.2)), seen(Rung.ENGINE, "REGRESSED", 0.3, 0.0)]
    assert f"{CLOCK_DOWN.what}; beside that, copies within the device are slower" in sentence(climb(found))


@pytest.mark.parametrize(("sick", "state"), [(1, State.FINE), (6, State.FINE), (7, State.SICK)])
def test_a_part_is_sick_where_a_third_of_its_tests_are_and_fewer_are_named(seen, sick, state):
    red = [seen(Rung.ENGINE, "REGRESSED", 0.1)] * sick
    ladder = climb([*red, *[seen(Rung.ENGINE)] * (20 - sick), seen(Rung.MULTIPROCESSORS)])
    assert ladder.step(Rung.ENGINE).state is state
    named = [line for line in ladder_lines(ladder) if "which is no sign of the whole part" in line]
    assert len(named) == (state is State.FINE)
    if sick == 1:
        assert named[0].startswith("ladder: copy engine: of 20 tests only memcpy_d2d[256MiB] got slower, which")
        assert cause_of(ladder) is NONE_SICK


def test_one_link_of_many_pairs_is_sick(seen):
    ladder = climb([seen(Rung.PEER_LINK, "REGRESSED", 0.3), *[seen(Rung.PEER_LINK)] * 55])
    assert ladder.step(Rung.PEER_LINK).state is State.SICK


@pytest.mark.parametrize(("clock", "state"), [(-0.019, State.FINE), (-0.03, State.SICK), (0.1, State.FINE)])
def test_a_clock_is_sick_only_where_it_fell(told, clock, state):
    assert told((Rung.PRODUCT,), (), clock).step(Rung.CLOCK).state is state


def test_an_open_test_that_is_surely_slower_makes_its_part_sick(seen):
    red = seen(Rung.HOST_LINK, "REGRESSED", 0.2)
    surely, perhaps = seen(Rung.ENGINE, "INCONCLUSIVE", 0.06), seen(Rung.ENGINE, "INCONCLUSIVE", 0.02)
    assert climb([red, surely]).step(Rung.ENGINE).state is State.SICK
    assert climb([red, perhaps]).step(Rung.ENGINE).state is State.UNKNOWN


def test_a_part_is_fine_only_where_most_of_its_tests_were_shown_to_be(seen):
    red, fine, open_one = seen(Rung.HOST_LINK, "REGRESSED", 0.2), seen(Rung.ENGINE), seen(Rung.ENGINE, "INCONCLUSIVE")
    states = [climb([red, *found]).step(Rung.ENGINE).state for found in ([fine, fine, open_one], [fine, open_one], [])]
    assert states == [State.FINE, State.UNKNOWN, State.UNKNOWN]


def test_regressed_tests_that_stand_on_no_rung_are_counted(make, seen):
    other = Seen(make.key("all_reduce", metric="busbw_GBps"), "REGRESSED", 0.05, 0.2, (0.1, 0.3))
    first, second = ladder_lines(climb([seen(Rung.HOST_LINK, "REGRESSED", 0.2), other]))
    assert "the link to the host" in first
    assert second.startswith("ladder: 1 of 2 regressed tests are no measure of one part")


def test_where_only_other_tests_regressed_no_part_is_blamed(make, seen):
    other = Seen(make.key("all_reduce", metric="busbw_GBps"), "REGRESSED", 0.05, 0.2, (0.1, 0.3))
    fine = climb([other, seen(Rung.ENGINE)])
    assert cause_of(fine) is NONE_SICK
    assert "no part that was looked at by itself is slower; fine: copy engine; not known: clock" in sentence(fine)


def test_a_run_that_looks_at_no_part_by_itself_has_no_ladder_but_of_its_clock(make, seen):
    undecided = [seen(Rung.ENGINE, "NO BASELINE", estimate=None), seen(Rung.HOST_LINK, "INCONCLUSIVE")]

    def alone(clock):
        return climb([*undecided, Seen(make.key("mine", metric="time_s"), "REGRESSED", 0.05, 0.2, (0.1, 0.3), clock)])

    assert [alone(None), alone(0.0)] == [None, None]
    assert cause_of(alone(-0.2)) is CLOCK_DOWN
    assert sentence(alone(-0.05)).startswith(f"ladder: {CLOCK_BESIDE.what}; beside that, {NOTHING_KNOWN.what} (clock")


def test_what_slowed_most_blocks_of_a_measurement_is_named(make):
    def taken(*causes):
        blocks = tuple(Block(1, cause) for cause in causes)
        samples = Samples((1e-3,) * len(blocks), iterations=1, tick_s=1e-9, blocks=blocks)
        return slowed_by(make.measurement(samples=samples))

    assert taken(THERMAL, THERMAL, "") == THERMAL
    assert taken(THERMAL, "", "") == ""
    assert taken("host gap", "host gap", "") == ""


def test_every_remedy_names_a_place_to_look(told):
    for cause in (*CAUSES, NONE_SICK, NOTHING_KNOWN, SEVERAL, CLOCK_DOWN, CLOCK_BESIDE, SLOWED):
        assert re.fullmatch(r"[^.]{20,}", cause.look.replace(".0", ""), re.DOTALL)
        assert not cause.what.endswith(".")
