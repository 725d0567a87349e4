"""Which published limits gate: those of which everything is as in our measurement, and which sound machines pass."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.work import RATE_UNITS, rate_suffix

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
    for entry in (one.entry for one in found.entries if one.entry.gates):
        hardware, operation = entry.hardware, entry.parameters.get("operation")
        gating.add((hardware.product, hardware.memory, entry.benchmark, operation, entry.value))
    assert gating == {
        (product, memory, "stream_large", operation, value)
        for product, memory, limits in LIMITS
        for operation, value in limits.items()
    }


def test_a_limit_gates_only_where_it_is_as_our_measurement_on_a_card_that_is_named(found):
    for one in found.entries:
        entry, hardware = one.entry, one.entry.hardware
        if entry.gates:
            assert (entry.kind, entry.statistic, hardware.partition, entry.note) == (
                "threshold",
                "best",
                "none",
                "",
            )
            assert entry.confidence in ("high", "medium")
            assert None not in (hardware.product, hardware.memory)
            assert (one.figure.kind, one.variant.doubt) == ("threshold", "")
        elif one.figure is not None and one.figure.kind == "threshold":
            assert entry.note.startswith("a limit that does not gate here; ")
            assert entry.benchmark not in HOST_LINK or ELSEWHERE in entry.note


def test_all_limits_are_accounted_for(module, found):
    limits = {one.id for one in module("figures").published() if one.kind == "threshold"}
    gating = {one.record for one in found.entries if one.entry.gates}
    idle = {one.record for one in found.entries if not one.entry.gates}
    left_out = {one.record for one in found.left_out}
    assert (len(limits), len(limits & gating), len(limits & idle), len(limits & left_out)) == (
        74,
        9,
        62,
        3,
    )


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
        for one in found.entries
        if one.entry.gates
        and one.entry.hardware.product == product
        and one.entry.parameters["operation"] == operation
    )
    return one


def test_what_would_keep_a_limit_from_gating(module, found):
    limits, one = module("limits"), gating_one(found)
    assert limits.gates(one.figure, one.meaning, one.variant)
    for changed in ({"confidence": "recalled"}, {"confidence": "low"}, {"kind": "measured"}):
        assert not limits.gates(replace(one.figure, **changed), one.meaning, one.variant), changed
    for kind in ("engine", "direction", "type", "size", "statistic", "place"):
        meaning = replace(one.meaning, apart={kind: "other"})
        assert limits.why_not(one.figure, meaning, one.variant) == ["other"], kind
        assert not limits.gates(one.figure, meaning, one.variant), kind
    for benchmark in HOST_LINK:
        assert limits.why_not(
            one.figure, replace(one.meaning, benchmark=benchmark), one.variant
        ) == [ELSEWHERE]


@pytest.fixture
def with_limits_times(module, monkeypatch):
    """Everything, with the limits of STREAM multiplied by a wrong factor."""
    conventions = module("conventions")
    stream = conventions.stream

    def account(factor):
        def wrong(figure):
            found = stream(figure)
            return (
                [replace(one, factor=factor) for one in found]
                if figure.kind == "threshold"
                else found
            )

        rules = tuple(
            (pattern, wrong if rule is stream else rule) for pattern, rule in conventions._RULES
        )
        monkeypatch.setattr(conventions, "_RULES", rules)
        return module("entries").account()

    return account


def test_a_wrong_conversion_is_noticed_by_what_others_measured(module, with_limits_times):
    missed = module("crosscheck").missed(with_limits_times(1.25))
    assert {(one.limit.entry.value, one.figure.entry.value) for one in missed} == {
        (1531.25, 1358.0),
        (1393.75, 1248.0),
    }


def test_a_limit_that_nobody_can_pass_is_noticed(
    build, module, with_limits_times, monkeypatch, capsys
):
    found = with_limits_times(2.0)
    assert len(module("crosscheck").impossible(found)) == 12
    monkeypatch.setattr(build, "account", lambda: found)
    assert build.main(["--check"]) == 2
    assert "a limit of 2450.0 (ROCm/" in capsys.readouterr().err


def test_a_limit_of_another_product_would_be_noticed(module, build, found, monkeypatch, capsys):
    # A limit of the MI300X is more than the memory of an MI210 can do.
    one, other = gating_one(found, "mi300x-oam"), gating_one(found)
    moved = replace(
        one, family=other.family, entry=replace(one.entry, hardware=other.entry.hardware)
    )
    wrong = replace(found, entries=(*found.entries, moved))
    monkeypatch.setattr(build, "account", lambda: wrong)
    assert build.main(["--check"]) == 2
    assert "1358.0 GB/s was measured" in capsys.readouterr().err


def test_how_slow_a_machine_must_be_is_computed(module, found):
    pages = module("pages")
    limit = gating_one(found)
    beside = pages.typical(limit, found)
    assert beside.entry.value == 1358
    assert pages.missing(limit, beside) == pytest.approx(1 - 1225 / 1358)
    assert pages.typical(gating_one(found, "mi300x-oam"), found) is None, (
        "a figure of another product says nothing"
    )


GATING = [
    (path.stem, entry)
    for path in sorted((Path(__file__).parents[3] / "baselines").glob("*.json"))
    if path.stem != "resources"
    for entry in read_baseline(path).entries
    if entry.gates and entry.kind == "threshold"
]


@pytest.fixture(scope="session")
def share(module):
    """What a figure would be of the largest that its datasheet lets be true; None where none says one."""
    peaks = module("peaks")

    def of(entry, family="h200"):
        ceiling = peaks.published_ceiling(entry, family)
        if ceiling is None:
            return None
        return (
            entry.value
            * RATE_UNITS[rate_suffix(entry.metric)]
            / ceiling.value
            / peaks.most_share(ceiling)
        )

    return of


def test_no_limit_that_ships_is_off_by_a_power_of_ten(share):
    found = {f"{family} {entry.label}": share(entry, family) for family, entry in GATING}
    assert found
    assert {
        name: part for name, part in found.items() if part is None or not 0.1 <= part <= 1
    } == {}


def test_a_figure_of_an_open_link_or_variant_is_bounded_by_the_fastest(make, share):
    cases = [
        ("peer_copy_one_way", "payload_GBps", 2, 1.02 * 450),
        ("peer_copy_both_ways", "bidir_sum_auto_payload_GBps", 2, 1.02 * 900),
        ("all_reduce", "busbw_GBps", 8, 1.02 * 14 / 9 * 450),
        ("all_reduce", "algbw_GBps", 8, 1.02 * 14 / 9 * 450 * 8 / 14),
        # Among two a switch saves nothing.
        ("all_reduce", "busbw_GBps", 2, 1.02 * 450),
        ("all_gather", "busbw_GBps", 8, 1.02 * 450),
        ("all_gather", "algbw_GBps", 8, 1.02 * 450 * 8 / 7),
        ("broadcast", "algbw_GBps", 8, 1.02 * 450),
        ("all_reduce", "wirebw_GBps", 8, 1.02 * 450),
        # Across nodes a network takes part, and of uneven shares nobody knows what crossed it.
        ("all_reduce", "busbw_GBps", 16, None),
        ("all_to_all_v", "busbw_GBps", 8, None),
    ]
    pair = {"product": "h200-sxm", "memory": "141gb", "partition": "none", "link": None}
    for name, metric, devices, most_gbps in cases:
        facts = {
            "benchmark": name,
            "metric": metric,
            "hardware": HardwareKey(**pair, devices=devices),
        }
        entry = make.published("reference", value=most_gbps or 1e5, **facts)
        assert share(entry) == (most_gbps and pytest.approx(1, abs=0.001)), (name, metric, devices)
    hardware = HardwareKey(None, "80gb", "none", 1, "none")
    below, above = (
        share(
            make.published("reference", value=value, hardware=hardware, note="SXM4 or PCIe"), "a100"
        )
        for value in (2039.0, 2200.0)
    )
    assert below <= 1 < above
