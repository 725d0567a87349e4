"""What makes a device DEGRADED: a finding exactly where its fact is below its rating, and the worst one first."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.facts import BRAKE, HARDWARE, POWER_CAP, THERMAL, Gpu, Unexpected
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.hardware import products
from pytest_roofline.machine.health import FEWEST_BLOCKS, degraded, unknown_health

H100 = "NVIDIA H100 80GB HBM3"
GPU = Gpu(
    3, H100, uuid="GPU-1", driver="570.86", power_limit_w=700.0, power_default_w=700.0, pcie_generation=5,
    pcie_generation_rated=5, pcie_width=16, pcie_width_rated=16, links=18, ecc=True, others_bytes=None,
    throttle_known=True, ecc_errors=0, remap_pending=False, remap_failed=False, active=(),
)  # fmt: skip
HOST_GAP, NEIGHBOUR = "host gap", "another process on the device"

# Worst first.
SICK = {
    "memory errors": ({"ecc_errors": 3}, "3 uncorrected ECC errors since the driver was loaded, expected none"),
    "memory that cannot be replaced": ({"remap_failed": True}, "could not be replaced by spare rows"),
    "power limit": ({"power_limit_w": 400.0}, "power limit 400 W, shipped with 700 W"),
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
facts = st.fixed_dictionaries(
    {},
    optional={
        "power_limit_w": st.none() | st.floats(1, 2000),
        "power_default_w": st.none() | st.floats(1, 2000),
        "pcie_generation": st.none() | st.integers(1, 6),
        "pcie_generation_rated": st.none() | st.integers(1, 6),
        "pcie_width": st.none() | st.integers(1, 16),
        "pcie_width_rated": st.none() | st.integers(1, 16),
        "links": st.none() | st.integers(0, 18),
        "ecc": st.sampled_from([None, True, False]),
        "ecc_errors": st.none() | st.integers(0, 9),
        "remap_pending": st.sampled_from([None, True, False]),
        "remap_failed": st.sampled_from([None, True, False]),
        "throttle_known": st.booleans(),
    },
)


def seen(before, after=None, measurements=(), differences=()):
    """What is observed of a device that is the same after the run unless told otherwise."""
    return [finding.observed for finding in degraded(before, after or before, measurements, differences)]


@pytest.fixture
def measured(make):
    """Makes a measurement of blocks by what spoiled them."""

    def measured(*causes, **changes):
        blocks = tuple(Block(1, cause) for cause in causes)
        samples = Samples((1e-3,) * max(1, len(causes)), iterations=10, tick_s=1e-9, blocks=blocks)
        return make.measurement(samples=samples, **changes)

    return measured


def test_a_fact_below_its_rating_is_found_once():
    for fact in SICK:
        changed, observed = SICK[fact]
        gpu = replace(GPU, **changed)
        (finding,) = degraded(gpu, gpu, ())
        assert ("degraded", GPU.label, True) == (finding.kind, finding.subject, observed in finding.observed), fact


def test_every_finding_says_what_it_does_and_what_would_mend_it():
    for fact in SICK:
        gpu = replace(GPU, **SICK[fact][0])
        (finding,) = degraded(gpu, gpu, ())
        assert all((finding.effect.strip(), finding.remedy.strip())), fact


def test_a_normal_state_is_no_finding():
    for fact in FINE:
        assert seen(replace(GPU, **FINE[fact])) == [], fact


def test_the_worst_comes_first():
    gpu = replace(GPU, **{name: value for changed, _ in SICK.values() for name, value in changed.items()})
    observed = seen(gpu)
    assert [told in text for text, (_, told) in zip(observed, SICK.values(), strict=True)] == [True] * len(SICK)


def test_a_fact_that_is_not_told_is_no_finding():
    for fact in SICK:
        assert seen(replace(GPU, **dict.fromkeys(SICK[fact][0]))) == [], fact


def test_a_fact_whose_rating_is_not_told_is_no_finding():
    for fact in ["power_default_w", "pcie_generation_rated", "pcie_width_rated", "product"]:
        low = {"power_limit_w": 1.0, "pcie_generation": 1, "pcie_width": 1, "links": 1}
        known, unknown = replace(GPU, **low), replace(GPU, **low | {fact: "NVIDIA Z1" if fact == "product" else None})
        assert len(seen(known)) - 1 == len(seen(unknown)), fact


def test_of_a_device_of_which_nothing_is_told_nothing_is_found():
    assert seen(Gpu(0, H100)) == [] == degraded(None, None, ())


@given(facts)
def test_one_end_that_nobody_saw_changes_nothing_of_what_the_other_shows(changed):
    gpu = Gpu(0, H100, **changed)
    assert degraded(gpu, None, ()) == degraded(None, gpu, ()) == degraded(gpu, gpu, ())


def test_a_power_limit_that_was_low_at_either_end_counts_and_says_when():
    for before, after, told in [
        (400.0, 700.0, "power limit 400 W, shipped with 700 W (400 W before the run, 700 W after it)"),
        (700.0, 400.0, "power limit 400 W, shipped with 700 W (700 W before the run, 400 W after it)"),
        (400.0, None, "power limit 400 W, shipped with 700 W"),
        (None, 400.0, "power limit 400 W, shipped with 700 W"),
    ]:
        assert [told] == seen(replace(GPU, power_limit_w=before), replace(GPU, power_limit_w=after))


def test_memory_errors_count_at_either_end_and_those_of_the_run_are_said():
    for before, after, told in [
        (2, 5, "5 uncorrected ECC errors since the driver was loaded, 3 of them during the run, expected none"),
        (0, 1, "1 uncorrected ECC error since the driver was loaded, 1 of them during the run, expected none"),
        (2, 2, "2 uncorrected ECC errors since the driver was loaded, expected none"),
        (2, 0, "2 uncorrected ECC errors since the driver was loaded, expected none"),
        (None, 2, "2 uncorrected ECC errors since the driver was loaded, expected none"),
    ]:
        assert [told] == seen(replace(GPU, ecc_errors=before), replace(GPU, ecc_errors=after))


def test_a_link_that_was_down_at_either_end_counts():
    for before, after, told in [
        (18, 17, "17 of 18 NVLinks up (18 before the run, 17 after it)"),
        (18, 0, "0 of 18 NVLinks up (18 before"),
        (16, 18, "16 of 18 NVLinks up (16 before the run, 18 after it)"),
        (None, 17, "17 of 18 NVLinks up"),
    ]:
        (observed,) = seen(replace(GPU, links=before), replace(GPU, links=after))
        assert observed.startswith(told), (before, after, told)


def test_a_pcie_link_that_was_whole_at_one_end_only_idled_at_the_other():
    for fact, idle in itertools.product(["pcie_generation", "pcie_width"], ["before", "after"]):
        low = replace(GPU, **{fact: 1})
        assert seen(*((low, GPU) if idle == "before" else (GPU, low))) == [], (fact, idle)


def test_a_pcie_link_that_was_never_whole_counts_by_its_better_end():
    for fact, told in [("pcie_generation", "PCIe generation 4 of 5"), ("pcie_width", "PCIe width")]:
        (observed,) = seen(replace(GPU, **{fact: 1}), replace(GPU, **{fact: 4}))
        assert observed.startswith(told), (fact, told)
        assert " 4 of " in observed, (fact, told)


def test_links_are_held_against_what_every_board_of_the_product_wires():
    for product, rated in [("NVIDIA A100-SXM4-80GB", 12), (H100, 18), ("NVIDIA H200", 18), ("NVIDIA B200", 18)]:
        gpu = replace(GPU, product=product)
        assert [] == seen(replace(gpu, links=rated)), (product, rated)
        assert [f"{rated - 1} of {rated} NVLinks up"] == seen(replace(gpu, links=rated - 1)), (product, rated)


def test_rated_links_are_whole_numbers():
    rated = [product.peaks["nvlinks"].value for product in products().values() if "nvlinks" in product.peaks]
    assert rated
    assert all(value == int(value) for value in rated)


def test_a_device_that_was_lost_since_keeps_its_name():
    gpu = replace(GPU, power_limit_w=400.0)
    (finding,) = degraded(gpu, Gpu(3, "unknown"), ())
    assert finding.subject == GPU.label


@pytest.mark.parametrize("cause", [THERMAL, HARDWARE, BRAKE])
def test_a_slowdown_of_most_blocks_is_named_with_its_share(measured, cause):
    measurements = [measured(*[cause] * 8, "", ""), measured(*[cause] * 4, *[""] * 6)]
    assert seen(GPU, measurements=measurements) == [
        f"{cause} in 12 of 20 blocks (60%), most of those of 1 of 2 measurements"
    ]


@pytest.mark.parametrize(("slowed", "found"), [(10, False), (11, True)])
def test_half_of_the_blocks_is_not_most_of_them(measured, slowed, found):
    assert found == bool(seen(GPU, measurements=[measured(*[THERMAL] * slowed, *[""] * (20 - slowed))]))


@pytest.mark.parametrize("cause", [HOST_GAP, NEIGHBOUR, POWER_CAP, "cores taken by the scheduler"])
def test_what_is_not_the_devices_own_fault_never_counts(measured, cause):
    assert seen(GPU, measurements=[measured(*[cause] * 20)] * 5) == []


def test_the_power_cap_of_a_block_never_counts(make):
    blocks = tuple(Block(1, power_capped=True) for _ in range(20))
    samples = Samples((1e-3,) * 20, iterations=10, tick_s=1e-9, blocks=blocks)
    assert seen(GPU, measurements=[make.measurement(samples=samples)] * 5) == []


@pytest.mark.parametrize(("blocks", "found"), [(FEWEST_BLOCKS - 1, False), (FEWEST_BLOCKS, True)])
def test_a_hiccup_of_few_blocks_is_not_persistent(measured, blocks, found):
    assert found == bool(seen(GPU, measurements=[measured(*[HARDWARE] * blocks)]))


@pytest.mark.parametrize(("slowed", "found"), [(2, False), (3, True)])
def test_three_measurements_that_were_slowed_for_most_of_their_time_are_persistent(measured, slowed, found):
    others = [measured(*[""] * 20)] * 10
    assert found == bool(seen(GPU, measurements=[*[measured(THERMAL)] * slowed, *others]))


def test_measurements_that_were_slowed_for_half_of_their_time_are_not_persistent(measured):
    half = measured(*[THERMAL] * 10, *[""] * 10)
    assert seen(GPU, measurements=[half] * 5) == []


def test_slowdowns_of_several_causes_add_up_and_the_worst_leads(measured):
    (finding,) = degraded(GPU, GPU, [measured(*[THERMAL] * 4, *[BRAKE] * 5, HOST_GAP)])
    assert finding.observed.startswith(f"{BRAKE} in 5 of 10 blocks (50%), {THERMAL} in 4 of 10 blocks (40%)")
    assert "power supplies" in finding.remedy


def test_a_slowdown_that_goes_on_after_the_last_test_is_said(measured):
    measurements = [measured(*[THERMAL] * 20)]
    (observed,) = seen(GPU, replace(GPU, active=(POWER_CAP, THERMAL)), measurements)
    assert observed.endswith("; still active after the last test")
    (before,) = seen(replace(GPU, active=(THERMAL,)), GPU, measurements)
    assert "still active" not in before


def test_a_slowdown_needs_no_library_and_names_the_product_that_was_measured(measured):
    (finding,) = degraded(None, None, [measured(*[THERMAL] * 20)])
    assert finding.subject == "device (h200-sxm)"


@pytest.mark.parametrize("measurements", [0, 1])
def test_a_run_without_blocks_tells_of_no_slowdown(measured, measurements):
    assert seen(GPU, measurements=[measured()] * measurements) == []


def test_a_slowdown_stands_behind_wrong_memory_and_before_the_power_limit(measured):
    gpu = replace(GPU, ecc_errors=1, power_limit_w=400.0)
    errors, slowdown, power = seen(gpu, measurements=[measured(*[THERMAL] * 20)])
    assert ("ECC" in errors, THERMAL in slowdown, "power limit" in power) == (True, True, True)


def test_every_difference_from_the_expectation_is_a_finding_with_a_remedy():
    for difference, told in [
        (Unexpected("GPUs", H100, "8", "7"), f"7 × {H100}, expected 8"),
        (Unexpected("GPUs", "NVIDIA T4", "0", "1"), "1 × NVIDIA T4, expected 0"),
        (Unexpected(GPU.label, "pcie_width", "16", "8"), "PCIe width 8, expected 16"),
        (Unexpected(GPU.label, "ecc", "True", "unknown"), "ECC unknown, expected True"),
        (Unexpected("driver", "version", "570.86", "550.54"), "version 550.54, expected 570.86"),
        (Unexpected("host", "usable_cores", "64", "32"), "usable cores 32, expected 64"),
    ]:
        (finding,) = degraded(GPU, GPU, (), [difference])
        assert (finding.kind, finding.subject, finding.observed) == ("degraded", difference.subject, told)
        assert finding.remedy == difference.remedy != "", (difference, told)


def test_a_fact_that_is_found_anyway_is_not_said_twice():
    gpu = replace(GPU, power_limit_w=400.0)
    differences = [Unexpected(subject, "power_limit_w", "700", "400") for subject in (gpu.label, "GPU 4 (other)")]
    assert ["power limit 400 W, shipped with 700 W", "power limit in W 400, expected 700"] == seen(
        gpu, differences=differences
    )


def test_differences_stand_behind_the_devices_own_facts():
    differences = [Unexpected("GPUs", H100, "8", "7")]
    assert seen(replace(GPU, pcie_width=8), differences=differences)[0] == "PCIe width 8 of 16"


def test_a_missing_gpu_is_looked_for_and_another_one_makes_another_node():
    missing, other = Unexpected("GPUs", H100, "8", "7"), Unexpected("GPUs", "NVIDIA T4", "0", "1")
    assert ("nvidia-smi -L" in missing.remedy, "another node" in other.remedy) == (True, True)


FACTS = ["pcie_generation", "pcie_width", "power_limit_w", "ecc", "links", "partition", "memory_bytes", "version"]


def test_the_remedy_of_a_difference_is_that_of_its_fact():
    for fact in [*FACTS, "usable_cores", "cpu_model"]:
        others = {Unexpected("x", other, "1", "2").remedy for other in {*FACTS, "usable_cores", "cpu_model"} - {fact}}
        assert Unexpected("x", fact, "1", "2").remedy not in {*others, ""}, fact


def test_of_a_device_of_which_all_is_told_nothing_is_unknown():
    assert unknown_health(GPU) == ""


WITHHELD = {
    "power limit": {"power_limit_w": None},
    "PCIe generation": {"pcie_generation": None},
    "PCIe width": {"pcie_width_rated": None},
    "links": {"links": None},
    "ECC errors": {"ecc_errors": None},
    "remapped memory": {"remap_pending": None, "remap_failed": None},
    "throttling": {"throttle_known": False},
}


def test_what_is_withheld_is_named():
    for name in WITHHELD:
        assert unknown_health(replace(GPU, **WITHHELD[name])) == f"{name} withheld", name


def test_all_that_is_withheld_is_one_sentence():
    everything = "power limit, PCIe generation, PCIe width, links, ECC errors, remapped memory and throttling withheld"
    assert unknown_health(Gpu(0, H100)) == everything


def test_what_cannot_be_judged_is_said_and_nothing_else():
    for changed, told in [
        ({"power_default_w": None}, "power limit withheld"),
        ({"ecc": False, "ecc_errors": None}, "ECC is off, so memory errors show nowhere"),
        ({"links": 0}, "none of 18 links is up, which is right only for a GPU that stands alone"),
        ({"product": "NVIDIA H100 PCIe", "links": 12}, "12 links are up, how many should be is not known"),
        ({"product": "NVIDIA H100 PCIe", "links": 0}, ""),
        ({"product": "NVIDIA L4", "links": None}, ""),
        ({"product": "NVIDIA Z1", "links": None}, "links withheld"),
        (
            {"links": None, "ecc": False, "ecc_errors": None},
            "links withheld; ECC is off, so memory errors show nowhere",
        ),
    ]:
        assert unknown_health(replace(GPU, **changed)) == told, (changed, told)


def test_a_device_that_no_library_knows_is_never_fine():
    assert "no management library" in unknown_health(None)


@given(facts)
def test_a_fact_is_judged_or_named_as_unknown(changed):
    gpu = Gpu(0, H100, **changed)
    if "power limit" not in unknown_health(gpu):
        assert None not in (gpu.power_limit_w, gpu.power_default_w)
    if "ECC" not in unknown_health(gpu):
        assert gpu.ecc_errors is not None
