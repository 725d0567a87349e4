"""Which part of a device is sick and which is fine, from the verdicts of a run, in one sentence."""

import math

import pytest

from pytest_roofline.core.facts import THERMAL
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.report.overview import ladder_lines
from pytest_roofline.stats.ladder import (
    ITSELF,
    LOOK,
    MEMORY,
    SHARED,
    Evidence,
    Rung,
    RungState,
    climb,
    look_at,
    rung_of,
    slowed_by,
)

MIB = 2**20
BIG, TINY, BETWEEN = 256 * MIB, 4096, MIB
# A measurement that stands on each rung; the clock's own state comes from what they tell of it.
PARTS = {
    Rung.ENGINE: ("memcpy_d2d", {"size_bytes": BIG}, "auto_traffic_GBps", {}),
    Rung.MULTIPROCESSORS: ("stream", {"operation": "triad"}, "traffic_GBps", {}),
    Rung.HOST_LINK: (
        "memcpy_h2d",
        {"size_bytes": BIG, "memory": "pinned"},
        "pinned_auto_payload_GBps",
        {},
    ),
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
        key = make.key(
            benchmark, parameters=parameters, metric=metric, hardware=make.hardware(**hardware)
        )
        logs = math.log1p(change)
        facts = {"estimate": logs, "interval": (logs - 0.01, logs + 0.01), "clock": clock}
        return Evidence(key, word, 0.05, **(facts | changes))

    return build


def sentence(steps):
    (line,) = ladder_lines(steps)
    return line


def state_of(steps, rung):
    return next(step.state for step in steps if step.rung is rung)


def test_a_rung_is_what_benchmark_and_metric_say_of_engine_and_memory(make, seen):
    for rung in PARTS:
        assert rung_of(seen(rung).key) is rung
    for name, metric, size_bytes, expected in [
        *(
            ("memcpy_d2d_triton", "sm_traffic_GBps", BIG, Rung.MULTIPROCESSORS),
            ("streaming_llm", "time_s", BIG, None),
        ),
        *(
            ("memcpy_d2d_triton", "sm_traffic_GBps", TINY, Rung.LAUNCH),
            ("stream_mine", "traffic_GBps", BIG, None),
        ),
        ("memcpy_d2h", "pinned_auto_payload_GBps", 16 * MIB, Rung.HOST_LINK),
        *(
            ("memcpy_d2h", "pinned_auto_payload_GBps", BETWEEN, None),
            ("all_reduce", "busbw_GBps", BIG, None),
        ),
        ("memcpy_d2h", "pageable_auto_payload_GBps", BIG, None),
        ("peer_copy_gloo", "gloo_payload_GBps", BIG, None),
    ]:
        assert rung_of(make.key(name, size_bytes, metric=metric)) is expected, (
            name,
            metric,
            size_bytes,
        )
    # Of STREAM only kernels that copy tell of the multiprocessors.
    copies = {
        "copy": Rung.ENGINE,
        **dict.fromkeys(("scale", "add", "triad"), Rung.MULTIPROCESSORS),
        "dot": None,
    }
    for name in ("stream", "stream_large"):
        keys = {
            one: make.key(name, parameters={"operation": one}, metric="traffic_GBps")
            for one in copies
        }
        assert {one: rung_of(key) for one, key in keys.items()} == copies, name


def test_a_processor_has_no_rungs_and_where_nothing_regressed_there_is_no_ladder(make, seen):
    key = make.key("stream", hardware=make.hardware(partition="8-cores"))
    assert rung_of(key) is None
    assert climb([Evidence(key, "REGRESSED", 0.05, 0.2, (0.1, 0.3))]) == ()
    open_one = seen(Rung.ENGINE, "INCONCLUSIVE", 0.5)
    assert climb([seen(Rung.HOST_LINK), open_one]) == ()
    assert ladder_lines(()) == []


def test_where_to_look_follows_from_what_is_slower():
    engine, units, host, product = Rung.ENGINE, Rung.MULTIPROCESSORS, Rung.HOST_LINK, Rung.PRODUCT
    assert {rung: look_at([rung]) for rung in Rung} == LOOK
    assert look_at([engine, units]) == MEMORY
    assert look_at([engine, host]) == f"{LOOK[engine]}; then at {LOOK[host]}"
    assert look_at([Rung.CLOCK, engine, units]) == f"{LOOK[Rung.CLOCK]}; then at {MEMORY}"
    assert look_at([engine, units, host, product]) == SHARED
    assert look_at([]) == ITSELF


def test_the_sentence_names_what_is_slower_what_is_fine_and_what_is_not_known(seen):
    parts = (Rung.ENGINE, Rung.MULTIPROCESSORS)
    found = [seen(rung, "REGRESSED", 0.15, 0.01) for rung in parts] + [
        seen(Rung.HOST_LINK, clock=0.01)
    ]
    assert sentence(climb(found)) == (
        "ladder: slower: copy engine +15.0 % time in 1 of 1, copies by multiprocessors +15.0 % time in 1 of 1; "
        f"fine: clock, host link; not known: peer link, matrix products, launching. Look at {MEMORY}"
    )


def test_a_clock_that_fell_or_a_device_that_slowed_itself_down_is_told_with_its_cause(seen):
    fell = [seen(Rung.PRODUCT, "REGRESSED", 0.2, math.log1p(-0.2), slowed=THERMAL)]
    assert (
        "slower: clock -20.0 % in 1 of 1, thermal slowdown, matrix products +20.0 % time"
        in sentence(climb(fell))
    )
    slowed = [
        seen(Rung.PRODUCT, "REGRESSED", 0.2),
        seen(Rung.ENGINE, "INVALID", estimate=None, slowed=THERMAL),
    ]
    assert "slower: clock, by thermal slowdown in 1 of 2, matrix products" in sentence(
        climb(slowed)
    )


def test_the_clock_is_that_under_the_products_where_these_are_sick(seen):
    capped = [seen(Rung.PRODUCT, "REGRESSED", 0.25, math.log1p(-0.2))] * 2
    link = [seen(Rung.HOST_LINK, "REGRESSED", 0.25, 0.0)] * 5
    for others in ([seen(Rung.ENGINE, clock=0.0)] * 20, link):
        clock = climb([*others, *capped])[0]
        assert (clock.state, clock.seen) == (RungState.SICK, 2)
    assert state_of(
        climb([seen(Rung.ENGINE, clock=0.0), seen(Rung.PRODUCT, "REGRESSED", 0.25)]), Rung.CLOCK
    ) is (RungState.UNKNOWN)


def test_a_clock_is_sick_where_it_fell_and_fine_only_where_it_fell_under_nothing_that_is_sick(seen):
    for clocks, state in [
        *(([0.0] * 5, RungState.FINE), ([-0.2, 0.0, 0.0, 0.0, 0.0], RungState.UNKNOWN)),
        *(([-0.2, -0.2, 0.0, 0.0, 0.0], RungState.SICK), ([-0.019], RungState.FINE)),
        *(([-0.03], RungState.SICK), ([0.1], RungState.FINE)),
    ]:
        found = climb([seen(Rung.ENGINE, "REGRESSED", 0.25, clock) for clock in clocks])
        assert state_of(found, Rung.CLOCK) is state, clocks


def test_a_part_is_sick_where_a_third_of_its_tests_are_or_one_pair_of_many_and_fine_where_none_is(
    seen,
):
    other = seen(Rung.HOST_LINK, "REGRESSED", 0.1)
    for sick, state in [(0, RungState.FINE), (6, RungState.UNKNOWN), (7, RungState.SICK)]:
        red = [seen(Rung.ENGINE, "REGRESSED", 0.1)] * sick
        assert (
            state_of(climb([*red, *[seen(Rung.ENGINE)] * (20 - sick), other]), Rung.ENGINE) is state
        ), sick
    steps = climb([seen(Rung.PEER_LINK, "REGRESSED", 0.3), *[seen(Rung.PEER_LINK)] * 55])
    assert state_of(steps, Rung.PEER_LINK) is RungState.SICK


def test_a_part_is_fine_only_where_most_of_its_tests_were_shown_to_be_and_sick_where_an_open_one_surely_is(
    seen,
):
    red, fine, open_one = (
        seen(Rung.HOST_LINK, "REGRESSED", 0.2),
        seen(Rung.ENGINE),
        seen(Rung.ENGINE, "INCONCLUSIVE"),
    )
    for found, state in [
        *(([fine, fine, open_one], RungState.FINE), ([fine, open_one], RungState.UNKNOWN), ([], RungState.UNKNOWN)),
        *(([seen(Rung.ENGINE, "INCONCLUSIVE", change)], state)
          for change, state in ((0.06, RungState.SICK), (0.02, RungState.UNKNOWN))),
    ]:  # fmt: skip
        assert state_of(climb([red, *found]), Rung.ENGINE) is state, found


def test_where_only_tests_of_no_part_regressed_none_is_blamed_and_without_any_part_there_is_no_ladder(
    make, seen
):
    other = Evidence(
        make.key("all_reduce", metric="busbw_GBps"), "REGRESSED", 0.05, 0.2, (0.1, 0.3)
    )
    assert sentence(climb([other, seen(Rung.ENGINE)])).startswith(
        "ladder: fine: copy engine; not known: clock, "
    )
    undecided = [
        seen(Rung.ENGINE, "NO BASELINE", estimate=None),
        seen(Rung.HOST_LINK, "INCONCLUSIVE"),
    ]
    assert climb([*undecided, other]) == ()


def test_what_slowed_most_blocks_of_a_measurement_is_named(make):
    def slowed(*causes):
        blocks = tuple(Block(1, cause) for cause in causes)
        samples = Samples((1e-3,) * len(blocks), iterations=1, tick_s=1e-9, blocks=blocks)
        return slowed_by(make.measurement(samples=samples))

    assert slowed(THERMAL, THERMAL, "") == THERMAL
    assert slowed(THERMAL, "", "") == ""
    assert slowed("host gap", "host gap", "") == ""
