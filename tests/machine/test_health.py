"""What makes a device DEGRADED: a finding exactly where its fact is below its rating, and the worst one first."""

from dataclasses import replace

import pytest

from pytest_roofline.core.facts import BRAKE, HARDWARE, POWER_CAP, THERMAL, Gpu, Unexpected
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.hardware import products
from pytest_roofline.machine.health import FEWEST_BLOCKS, degradations, unknown_health

H100 = "NVIDIA H100 80GB HBM3"
GPU = Gpu(
    3, H100, uuid="GPU-1", driver="570.86", power_limit_w=700.0, power_default_w=700.0, pcie_generation=5,
    pcie_generation_rated=5, pcie_width=16, pcie_width_rated=16, links=18, ecc=True, others_bytes=None,
    throttle_known=True, ecc_errors=0, remap_pending=False, remap_failed=False, active=(),
)  # fmt: skip
HOST_GAP, NEIGHBOUR = "host gap", "another process on the device"

# Worst first.
SICK = {
    "memory errors": (
        {"ecc_errors": 3},
        "3 uncorrected ECC errors since the driver was loaded, expected none",
    ),
    "memory that cannot be replaced": (
        {"remap_failed": True},
        "could not be replaced by spare rows",
    ),
    "power limit": ({"power_limit_w": 400.0}, "power limit 400 W, default 700 W"),
    "links": ({"links": 16}, "16 of 18 NVLinks up"),
    "PCIe generation": ({"pcie_generation": 3}, "PCIe generation 3 of 5"),
    "PCIe width": ({"pcie_width": 8}, "PCIe width 8 of 16"),
    "memory to be replaced": ({"remap_pending": True}, "waits to be replaced by spare rows"),
}
FINE = {
    "a good device": {},
    "a raised power limit": {"power_limit_w": 750.0},
    "a power limit without a default": {"power_limit_w": 400.0, "power_default_w": None},
    "a power limit of zero": {"power_limit_w": 0.0},
    "a link without its rating": {"pcie_width": 1, "pcie_width_rated": None},
    "a GPU that stands alone": {"links": 0},
    "a card of which the boards wire some links only": {"product": "NVIDIA H100 PCIe", "links": 12},
    "links of a product that nobody knows": {"product": "NVIDIA Z1", "links": 1},
    "part of a device": {"partition": "mig", "links": 4},
    "an active power cap": {"active": (POWER_CAP,)},
    "a slowdown at the moment of asking": {"active": (THERMAL,)},
    "ECC off": {"ecc": False, "ecc_errors": None},
}


def seen(before, after=None, measurements=(), differences=()):
    """What is observed of a device that is the same after the run unless told otherwise."""
    return [
        finding.observed
        for finding in degradations(before, after or before, measurements, differences)
    ]


@pytest.fixture
def measured(make):
    """Makes a measurement of blocks by what spoiled them."""

    def measured(*causes, **changes):
        blocks = tuple(Block(1, cause) for cause in causes)
        samples = Samples((1e-3,) * max(1, len(causes)), iterations=10, tick_s=1e-9, blocks=blocks)
        return make.measurement(samples=samples, **changes)

    return measured


def test_a_fact_below_its_rating_is_found_once_with_what_it_does_and_would_mend_it_the_worst_first():
    for fact, (changed, observed) in SICK.items():
        gpu = replace(GPU, **changed)
        (finding,) = degradations(gpu, gpu, ())
        assert (finding.kind, finding.subject, observed in finding.observed) == (
            "degraded",
            GPU.label,
            True,
        ), fact
        assert all((finding.effect.strip(), finding.remedy.strip())), fact
        # One that is not told is no finding.
        assert seen(replace(GPU, **dict.fromkeys(changed))) == [], fact
    for fact, changed in FINE.items():
        assert seen(replace(GPU, **changed)) == [], fact
    all_of_it = seen(
        replace(
            GPU, **{name: value for changed, _ in SICK.values() for name, value in changed.items()}
        )
    )
    assert [told in text for text, (_, told) in zip(all_of_it, SICK.values(), strict=True)] == [
        True
    ] * len(SICK)


def test_what_is_not_told_or_not_rated_is_no_finding():
    low = {"power_limit_w": 1.0, "pcie_generation": 1, "pcie_width": 1, "links": 1}
    for rating in ["power_default_w", "pcie_generation_rated", "pcie_width_rated", "product"]:
        known, unknown = replace(GPU, **low), replace(GPU, **low | {rating: None} | (
            {"product": "NVIDIA Z1"} if rating == "product" else {}))  # fmt: skip
        assert len(seen(known)) - 1 == len(seen(unknown)), rating
    assert seen(Gpu(0, H100)) == [] == degradations(None, None, ())
    # One end that nobody saw changes nothing.
    sick = replace(GPU, power_limit_w=1.0, ecc_errors=2)
    assert (
        degradations(sick, None, ()) == degradations(None, sick, ()) == degradations(sick, sick, ())
    )
    # A device that was lost since keeps its name.
    (finding,) = degradations(replace(GPU, power_limit_w=400.0), Gpu(3, "unknown"), ())
    assert finding.subject == GPU.label


def test_what_was_low_at_either_end_of_a_run_counts_and_says_when_but_pcie_links_idle():
    errors = "uncorrected ECC error{} since the driver was loaded{}, expected none"
    for fact, before, after, told in [
        (
            "power_limit_w",
            400.0,
            700.0,
            "power limit 400 W, default 700 W (400 W before the run, 700 W after the run)",
        ),
        ("power_limit_w", None, 400.0, "power limit 400 W, default 700 W"),
        ("ecc_errors", 2, 5, "5 " + errors.format("s", ", 3 of these during the run")),
        ("ecc_errors", 0, 1, "1 " + errors.format("", ", 1 of these during the run")),
        ("ecc_errors", 2, 0, "2 " + errors.format("s", "")),
        ("links", 18, 17, "17 of 18 NVLinks up (18 before the run, 17 after the run)"),
        ("links", None, 17, "17 of 18 NVLinks up"),
    ]:
        assert seen(replace(GPU, **{fact: before}), replace(GPU, **{fact: after})) == [told]
    (none_up,) = seen(GPU, replace(GPU, links=0))
    assert none_up.startswith("0 of 18 NVLinks up (18 before")
    for fact, told in [
        ("pcie_generation", "PCIe generation 4 of 5"),
        ("pcie_width", "PCIe width 4 of 16"),
    ]:
        low = replace(GPU, **{fact: 1})
        assert (seen(low, GPU), seen(GPU, low)) == ([], []), fact
        # Never whole, it counts by its better end.
        (observed,) = seen(low, replace(GPU, **{fact: 4}))
        assert observed.startswith(told)


def test_links_are_held_against_what_every_board_of_the_product_wires():
    for product, rated in [
        ("NVIDIA A100-SXM4-80GB", 12),
        (H100, 18),
        ("NVIDIA H200", 18),
        ("NVIDIA B200", 18),
    ]:
        gpu = replace(GPU, product=product)
        assert seen(replace(gpu, links=rated)) == [], product
        assert seen(replace(gpu, links=rated - 1)) == [f"{rated - 1} of {rated} NVLinks up"]
    rated = [
        product.peaks["nvlinks"].value
        for product in products().values()
        if "nvlinks" in product.peaks
    ]
    assert [value for value in rated if value != int(value)] == []
    assert rated


def test_a_slowdown_of_most_blocks_is_named_with_its_share_where_it_is_the_devices_own_fault(
    measured, make
):
    for cause in [THERMAL, HARDWARE, BRAKE]:
        measurements = [measured(*[cause] * 8, "", ""), measured(*[cause] * 4, *[""] * 6)]
        said = f"{cause} in 12 of 20 blocks (60%), mostly in 1 of 2 measurements"
        assert seen(GPU, measurements=measurements) == [said]
    for cause in [HOST_GAP, NEIGHBOUR, POWER_CAP, "cores taken by the scheduler"]:
        assert seen(GPU, measurements=[measured(*[cause] * 20)] * 5) == [], cause
    capped = Samples(
        (1e-3,) * 20, iterations=10, tick_s=1e-9, blocks=(Block(1, power_capped=True),) * 20
    )
    assert seen(GPU, measurements=[make.measurement(samples=capped)] * 5) == []
    others, half = [measured(*[""] * 20)] * 10, measured(*[THERMAL] * 10, *[""] * 10)
    for measurements, found in [
        # Half of the blocks is not most of them, and a hiccup of a few is not persistent.
        ([measured(*[THERMAL] * 10, *[""] * 10)], False), ([measured(*[THERMAL] * 11, *[""] * 9)], True),
        ([measured(*[HARDWARE] * (FEWEST_BLOCKS - 1))], False), ([measured(*[HARDWARE] * FEWEST_BLOCKS)], True),
        # Three measurements that were slowed for most of their time are.
        ([*[measured(THERMAL)] * 2, *others], False), ([*[measured(THERMAL)] * 3, *others], True), ([half] * 5, False),
        ([], False), ([measured()], False),
    ]:  # fmt: skip
        assert bool(seen(GPU, measurements=measurements)) == found, measurements


def test_a_slowdown_tells_its_worst_cause_whether_it_goes_on_and_the_product_without_a_library(
    measured,
):
    (finding,) = degradations(GPU, GPU, [measured(*[THERMAL] * 4, *[BRAKE] * 5, HOST_GAP)])
    assert finding.observed.startswith(
        f"{BRAKE} in 5 of 10 blocks (50%), {THERMAL} in 4 of 10 blocks (40%)"
    )
    assert "power supplies" in finding.remedy
    hot = [measured(*[THERMAL] * 20)]
    for before, after, goes_on in [(GPU, replace(GPU, active=(POWER_CAP, THERMAL)), True),
                                   (replace(GPU, active=(THERMAL,)), GPU, False)]:  # fmt: skip
        (observed,) = seen(before, after, hot)
        assert observed.endswith("; still active after the last test") == goes_on
    assert degradations(None, None, hot)[0].subject == "device (h200-sxm)"
    # It stands behind wrong memory and before the power limit.
    errors, slowdown, power = seen(
        replace(GPU, ecc_errors=1, power_limit_w=400.0), measurements=hot
    )
    assert ("ECC" in errors, THERMAL in slowdown, "power limit" in power) == (True, True, True)


def test_every_difference_from_the_expectation_is_a_finding_with_the_remedy_of_its_fact_behind_the_devices_own():
    for difference, told in [
        (Unexpected("GPUs", H100, "8", "7"), f"7 × {H100}, expected 8"),
        (Unexpected("GPUs", "NVIDIA T4", "0", "1"), "1 × NVIDIA T4, expected 0"),
        (Unexpected(GPU.label, "pcie_width", "16", "8"), "PCIe width 8, expected 16"),
        (Unexpected(GPU.label, "ecc", "True", "unknown"), "ECC unknown, expected True"),
        (Unexpected("driver", "version", "570.86", "550.54"), "version 550.54, expected 570.86"),
        (Unexpected("host", "usable_cores", "64", "32"), "usable cores 32, expected 64"),
    ]:
        own, finding = degradations(*[replace(GPU, remap_pending=True)] * 2, (), [difference])
        assert (finding.kind, finding.subject, finding.observed) == (
            "degraded",
            difference.subject,
            told,
        )
        assert ("waits to be replaced" in own.observed, finding.remedy) == (True, difference.remedy)
    # A fact that is found anyway is not said twice.
    gpu = replace(GPU, power_limit_w=400.0)
    differences = [
        Unexpected(subject, "power_limit_w", "700", "400")
        for subject in (gpu.label, "GPU 4 (other)")
    ]
    said = ["power limit 400 W, default 700 W", "power limit in W 400, expected 700"]
    assert seen(gpu, differences=differences) == said
    missing, other = Unexpected("GPUs", H100, "8", "7"), Unexpected("GPUs", "NVIDIA T4", "0", "1")
    assert ("nvidia-smi -L" in missing.remedy, "another kind of node" in other.remedy) == (
        True,
        True,
    )
    names = ["pcie_generation", "pcie_width", "power_limit_w", "ecc", "links", "partition", "memory_bytes", "version",
             "usable_cores", "cpu_model"]  # fmt: skip
    remedies = [Unexpected("x", fact, "1", "2").remedy for fact in names]
    assert (len(set(remedies)), "" in remedies) == (len(names), False)


def test_what_cannot_be_judged_is_said_in_one_sentence_and_nothing_else():
    everything = "power limit, PCIe generation, PCIe width, links, ECC errors, remapped memory and throttling withheld"
    assert (unknown_health(GPU), unknown_health(Gpu(0, H100))) == ("", everything)
    assert "no management library" in unknown_health(None)
    boards = {"product": "NVIDIA H100 PCIe"}
    ecc_off = {"ecc": False, "ecc_errors": None}
    for changed, told in [
        ({"power_limit_w": None}, "power limit withheld"), ({"power_default_w": None}, "power limit withheld"),
        ({"pcie_generation": None}, "PCIe generation withheld"), ({"pcie_width_rated": None}, "PCIe width withheld"),
        ({"links": None}, "links withheld"), ({"ecc_errors": None}, "ECC errors withheld"),
        ({"remap_pending": None, "remap_failed": None}, "remapped memory withheld"),
        ({"throttle_known": False}, "throttling withheld"),
        (ecc_off, "ECC is off, so memory errors are not reported"),
        ({"links": 0}, "none of 18 links is up, which is correct only for a single GPU"),
        (boards | {"links": 12}, "12 links are up; the expected number is unknown"), (boards | {"links": 0}, ""),
        ({"product": "NVIDIA L4", "links": None}, ""), ({"product": "NVIDIA Z1", "links": None}, "links withheld"),
        (ecc_off | {"links": None}, "links withheld; ECC is off, so memory errors are not reported"),
    ]:  # fmt: skip
        assert unknown_health(replace(GPU, **changed)) == told
