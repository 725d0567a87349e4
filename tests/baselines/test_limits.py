"""Which published limits gate: those of which everything is as in our measurement, and which sound machines pass."""

from dataclasses import replace

import pytest

H2D, D2H = "memcpy_h2d", "memcpy_d2h"


HOST = (
    ("v100-sxm2", "32gb", 9.0),
    ("v100-pcie", "16gb", 10.0),
    ("a100-sxm4", "40gb", 21.0),
    ("a100-sxm4", "80gb", 21.0),
    ("a100-pcie", "80gb", 21.0),
    ("h100-sxm5", "80gb", 48.0),
    ("h100-nvl", "94gb", 48.0),
    ("h200-sxm", "141gb", 48.0),
)
MEMORY = (
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
    expected = {(*board, way, None, value) for *board, value in HOST for way in (H2D, D2H)}
    for product, memory, limits in MEMORY:
        expected |= {(product, memory, "stream_large", operation, value) for operation, value in limits.items()}
    assert gating == expected


def test_a_limit_of_stream_holds_for_the_fastest_call_and_one_of_a_link_for_the_median(found):
    for one in found.shipped:
        if one.entry.gates:
            assert one.entry.statistic == ("best" if one.entry.benchmark == "stream_large" else "median")
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
    assert len({one.record for one in idle}) == 53
    assert all(one.entry.note.startswith("a limit that does not gate here; ") for one in idle)


def test_all_limits_are_accounted_for(module, found):
    limits = {one.id for one in module("figures").published() if one.kind == "threshold"}
    gating = {one.record for one in found.shipped if one.entry.gates}
    idle = {one.record for one in found.shipped if not one.entry.gates}
    left_out = {one.record for one in found.left_out}
    assert (len(limits), len(limits & gating), len(limits & idle), len(limits & left_out)) == (74, 17, 53, 4)


def test_every_figure_that_was_measured_passes_the_limit_of_its_own_variant(module, found):
    crosscheck = module("crosscheck")
    pairs = {
        (pair.limit.entry.hardware.product, pair.limit.entry.label, pair.figure.entry.value)
        for pair in crosscheck.pairs(found)
    }
    assert pairs == {
        ("h200-sxm", "memcpy_h2d[512MiB-pinned]", 55.43),
        ("h200-sxm", "memcpy_d2h[512MiB-pinned]", 55.06),
        # The host's link of a board with more memory is the same.
        ("v100-pcie", "memcpy_h2d[512MiB-pinned]", 12.4),
        ("v100-pcie", "memcpy_d2h[512MiB-pinned]", 13.1),
        ("mi210-pcie", "stream_large[scale]", 1358.0),
        ("mi210-pcie", "stream_large[triad]", 1248.0),
    }
    assert crosscheck.missed(found) == []


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


def test_a_limit_of_another_product_would_be_noticed(module, build, planted, monkeypatch, capsys):
    # A limit of the H200 is more than any of PCIe 3 can do.
    wrong = planted("nd96isr_h200_v5", "p2p_uni_read_ce_payload_GBps_min", 335, product="h200-sxm")
    assert module("crosscheck").missed(wrong) == [], "of peers that nobody measured nothing can be said"
    host = next(one for one in wrong.shipped if one.entry.gates and one.family == "h200" and one.entry.benchmark == H2D)
    moved = replace(
        host,
        family="v100",
        entry=replace(host.entry, hardware=replace(host.entry.hardware, product="v100-pcie", memory="32gb")),
    )
    wrong = replace(wrong, shipped=(*wrong.shipped, moved))
    assert [missed.figure.entry.value for missed in module("crosscheck").missed(wrong)] == [12.4]
    monkeypatch.setattr(build, "account", lambda: wrong)
    assert build.main(["--check"]) == 2
    assert "12.4 GB/s was measured" in capsys.readouterr().err


@pytest.fixture
def with_limits_times(module, monkeypatch):
    """Everything, with the limits of host links multiplied by a wrong factor."""
    conventions = module("conventions")
    limit = conventions.limit_of_copy_engine

    def account(factor):
        def wrong(figure):
            return [replace(meaning, factor=factor) for meaning in limit(figure)]

        rules = tuple((pattern, wrong if rule is limit else rule) for pattern, rule in conventions._RULES)
        monkeypatch.setattr(conventions, "_RULES", rules)
        return module("entries").account()

    return account


def test_a_wrong_conversion_is_noticed_by_what_others_measured(module, with_limits_times):
    missed = module("crosscheck").missed(with_limits_times(1.25))
    assert {(one.limit.entry.value, one.figure.entry.value) for one in missed} == {
        (60.0, 55.43),
        (60.0, 55.06),
        (12.5, 12.4),
    }


def test_a_limit_that_nobody_can_pass_is_noticed(build, module, with_limits_times, monkeypatch, capsys):
    found = with_limits_times(2.0)
    assert len(module("crosscheck").impossible(found)) >= 10
    monkeypatch.setattr(build, "account", lambda: found)
    assert build.main(["--check"]) == 2
    assert "a limit of 96.0 (Azure/" in capsys.readouterr().err


def test_a_figure_of_low_confidence_or_a_measured_one_never_gates(module, found):
    limits = module("limits")
    one = next(one for one in found.shipped if one.entry.gates)
    for changed in ({"confidence": "recalled"}, {"confidence": "low"}, {"kind": "measured"}):
        assert not limits.gates(replace(one.figure, **changed), one.meaning, one.variant)
    assert limits.gates(one.figure, one.meaning, one.variant)


@pytest.mark.parametrize("kind", ["engine", "direction", "type", "size", "statistic", "place"])
def test_one_difference_and_a_limit_does_not_gate(module, found, kind):
    limits = module("limits")
    one = next(one for one in found.shipped if one.entry.gates)
    assert not limits.gates(one.figure, replace(one.meaning, apart={kind: "other"}), one.variant)
    assert limits.why_not(one.figure, replace(one.meaning, apart={kind: "other"}), one.variant) == ["other"]


def test_how_slow_a_machine_must_be_is_computed(module, found):
    pages = module("pages")
    v100 = next(
        one
        for one in found.shipped
        if one.entry.gates and one.entry.hardware.product == "v100-sxm2" and one.entry.benchmark == H2D
    )
    beside = pages.typical(v100, found)
    assert beside.entry.value == 12.4
    assert pages.missing(v100, beside) == pytest.approx(1 - 9 / 12.4)
    h200 = next(one for one in found.shipped if one.entry.gates and one.family == "h200" and one.entry.benchmark == H2D)
    assert pages.missing(h200, pages.typical(h200, found)) == pytest.approx(1 - 48 / 55.43)


def test_what_an_engine_does_that_is_not_ours_is_no_typical_figure(module, found):
    a100 = [
        one
        for one in found.shipped
        if one.entry.gates and one.entry.hardware.product == "a100-sxm4" and one.entry.benchmark == D2H
    ]
    values = {module("pages").typical(one, found).entry.value for one in a100}
    # 6.27 GB/s by multiprocessors says nothing of the copy engine.
    assert values == {26.8}
