"""Which published limits gate: those of which everything is as in our measurement, and which sound machines pass."""

from dataclasses import replace

import pytest

HOST_LINK = ("memcpy_h2d", "memcpy_d2h")
ELSEWHERE = "of its source's own machines; in others the host, its slots and its IOMMU differ"
LIMITS = (
    ("mi300x-oam", "192gb", {"scale": 4067.069, "add": 3920.853, "triad": 3885.301}),
    ("mi210-pcie", "64gb", {"scale": 1225.0, "add": 1115.0, "triad": 1115.0}),
    ("mi250x-oam", "64gb", {"scale": 1200.0, "add": 1100.0, "triad": 1100.0}),
    ("mi250-oam", "64gb", {"scale": 1200.0, "add": 1100.0, "triad": 1100.0}),
)


def test_the_limits_that_gate(found):
    gating = set()
    for entry in (one.entry for one in found.shipped if one.entry.gates):
        hardware, operation = entry.hardware, entry.parameters.get("operation")
        gating.add((hardware.product, hardware.memory, entry.benchmark, operation, entry.value))
    assert gating == {
        (product, memory, "stream_large", operation, value)
        for product, memory, limits in LIMITS
        for operation, value in limits.items()
    }


def test_a_limit_of_stream_holds_for_the_fastest_call(found):
    for one in found.shipped:
        if one.entry.gates:
            assert one.entry.statistic == "best"
            assert one.entry.hardware.partition == "none"
            assert not one.entry.note


def test_no_limit_of_doubtful_origin_is_a_threshold(found):
    for one in found.shipped:
        if one.entry.kind == "threshold":
            assert one.entry.gates
            assert one.entry.confidence in ("high", "medium")
            assert isinstance(one.entry.value, float)
            assert not one.variant.doubt
            assert None not in (one.entry.hardware.product, one.entry.hardware.memory)
            assert one.figure.kind == "threshold"


def test_a_limit_that_does_not_gate_says_why(found):
    idle = [
        one for one in found.shipped
        if one.figure is not None and one.figure.kind == "threshold" and not one.entry.gates
    ]  # fmt: skip
    assert len({one.record for one in idle}) == 61
    assert all(one.entry.note.startswith("a limit that does not gate here; ") for one in idle)


def test_a_limit_of_a_host_link_gates_on_no_product_and_says_why(module, found):
    links = [
        one
        for one in found.shipped
        if one.figure is not None and one.figure.kind == "threshold" and one.entry.benchmark in HOST_LINK
    ]
    assert all(one.entry.kind == "reference" and ELSEWHERE in one.entry.note for one in links)
    # Everything else about these is as in our measurement.
    alone = {
        (one.entry.hardware.product, one.entry.hardware.memory)
        for one in links
        if one.entry.note == f"a limit that does not gate here; {ELSEWHERE}"
    }
    assert alone == {
        ("v100-sxm2", "32gb"), ("v100-pcie", "16gb"), ("a100-sxm4", "40gb"), ("a100-sxm4", "80gb"),
        ("a100-pcie", "80gb"), ("h100-sxm5", "80gb"), ("h100-nvl", "94gb"), ("h200-sxm", "141gb"),
    }  # fmt: skip
    limits, one = module("limits"), gating_one(found)
    for benchmark in HOST_LINK:
        meaning = replace(one.meaning, benchmark=benchmark)
        assert limits.why_not(one.figure, meaning, one.variant) == [ELSEWHERE]
        assert not limits.gates(one.figure, meaning, one.variant)


def test_all_limits_are_accounted_for(module, found):
    limits = {one.id for one in module("figures").published() if one.kind == "threshold"}
    gating = {one.record for one in found.shipped if one.entry.gates}
    idle = {one.record for one in found.shipped if not one.entry.gates}
    left_out = {one.record for one in found.left_out}
    assert (len(limits), len(limits & gating), len(limits & idle), len(limits & left_out)) == (74, 9, 61, 4)


def test_every_figure_that_was_measured_passes_the_limit_of_its_own_variant(module, found):
    crosscheck = module("crosscheck")
    pairs = {
        (pair.limit.entry.hardware.product, pair.limit.entry.label, pair.figure.entry.value)
        for pair in crosscheck.pairs(found)
    }
    assert pairs == {
        ("mi210-pcie", "stream_large[scale]", 1358.0),
        ("mi210-pcie", "stream_large[triad]", 1248.0),
    }
    assert crosscheck.missed(found) == []


def gating_one(found, product="mi210-pcie", operation="scale"):
    """The limit of a product and an operation that gates."""
    (one,) = (
        one
        for one in found.shipped
        if one.entry.gates and one.entry.hardware.product == product and one.entry.parameters["operation"] == operation
    )
    return one


def gated(one, **hardware):
    """The same figure as a limit of a variant that its source does not state."""
    key = replace(one.entry.hardware, **hardware)
    return replace(one, entry=replace(one.entry, kind="threshold", hardware=key, note=""))


@pytest.fixture
def planted(found):
    """Everything, with one published limit that gates where it must not."""

    def plant(source, metric, value, **hardware):
        figures = [one for one in found.shipped if one.figure is not None and source in one.entry.source]
        (one,) = (one for one in figures if (one.figure.metric, one.figure.value) == (metric, value))
        return replace(found, shipped=(*found.shipped, gated(one, **hardware)))

    return plant


def test_an_inferred_variant_would_turn_sound_machines_red(module, planted):
    wrong = planted("eth-cscs", "h2d_pinned_payload_GiBps", 13.189, product="v100-pcie", memory="32gb")
    (missed,) = module("crosscheck").missed(wrong)
    assert (missed.figure.entry.value, missed.limit.entry.value) == (12.4, pytest.approx(12.745, abs=1e-3))
    assert str(missed).startswith("memcpy_h2d[1GiB-pinned] of v100-pcie, 32gb: 12.4 GB/s was measured (")


def test_a_limit_of_another_product_would_be_noticed(module, build, found, planted, monkeypatch, capsys):
    wrong = planted("nd96isr_h200_v5", "p2p_uni_read_ce_payload_GBps_min", 335, product="h200-sxm")
    assert module("crosscheck").missed(wrong) == [], "of peers that nobody measured nothing can be said"
    # A limit of the MI300X is more than the memory of an MI210 can do.
    one, other = gating_one(found, "mi300x-oam"), gating_one(found)
    moved = replace(one, family=other.family, entry=replace(one.entry, hardware=other.entry.hardware))
    wrong = replace(wrong, shipped=(*wrong.shipped, moved))
    assert [missed.figure.entry.value for missed in module("crosscheck").missed(wrong)] == [1358.0]
    monkeypatch.setattr(build, "account", lambda: wrong)
    assert build.main(["--check"]) == 2
    assert "1358.0 GB/s was measured" in capsys.readouterr().err


@pytest.fixture
def with_limits_times(module, monkeypatch):
    """Everything, with the limits of STREAM multiplied by a wrong factor."""
    conventions = module("conventions")
    stream = conventions.stream

    def account(factor):
        def wrong(figure):
            found = stream(figure)
            return [replace(one, factor=factor) for one in found] if figure.kind == "threshold" else found

        rules = tuple((pattern, wrong if rule is stream else rule) for pattern, rule in conventions._RULES)
        monkeypatch.setattr(conventions, "_RULES", rules)
        return module("entries").account()

    return account


def test_a_wrong_conversion_is_noticed_by_what_others_measured(module, with_limits_times):
    missed = module("crosscheck").missed(with_limits_times(1.25))
    assert {(one.limit.entry.value, one.figure.entry.value) for one in missed} == {
        (1531.25, 1358.0),
        (1393.75, 1248.0),
    }


def test_a_limit_that_nobody_can_pass_is_noticed(build, module, with_limits_times, monkeypatch, capsys):
    found = with_limits_times(2.0)
    assert len(module("crosscheck").impossible(found)) == 12
    monkeypatch.setattr(build, "account", lambda: found)
    assert build.main(["--check"]) == 2
    assert "a limit of 2450.0 (ROCm/" in capsys.readouterr().err


def test_a_figure_of_low_confidence_or_a_measured_one_never_gates(module, found):
    limits = module("limits")
    one = gating_one(found)
    for changed in ({"confidence": "recalled"}, {"confidence": "low"}, {"kind": "measured"}):
        assert not limits.gates(replace(one.figure, **changed), one.meaning, one.variant)
    assert limits.gates(one.figure, one.meaning, one.variant)


@pytest.mark.parametrize("kind", ["engine", "direction", "type", "size", "statistic", "place"])
def test_one_difference_and_a_limit_does_not_gate(module, found, kind):
    limits = module("limits")
    one = gating_one(found)
    assert not limits.gates(one.figure, replace(one.meaning, apart={kind: "other"}), one.variant)
    assert limits.why_not(one.figure, replace(one.meaning, apart={kind: "other"}), one.variant) == ["other"]


def test_how_slow_a_machine_must_be_is_computed(module, found):
    pages = module("pages")
    limit = gating_one(found)
    beside = pages.typical(limit, found)
    assert beside.entry.value == 1358
    assert pages.missing(limit, beside) == pytest.approx(1 - 1225 / 1358)
    assert pages.typical(gating_one(found, "mi300x-oam"), found) is None, "a figure of another product says nothing"


def test_what_an_engine_does_that_is_not_ours_is_no_typical_figure(module, found):
    links = [
        one
        for one in found.shipped
        if one.figure is not None and one.figure.kind == "threshold" and one.entry.benchmark == "memcpy_d2h"
    ]
    typical = {
        one.entry.hardware.product: module("pages").typical(one, found)
        for one in links
        if one.entry.hardware.memory in ("80gb", "141gb")
    }
    assert typical["h200-sxm"].entry.value == 55.06
    # 6.27 GB/s by multiprocessors says nothing of the copy engine.
    assert typical["a100-sxm4"] is None
