"""What ships passes the checks; planted mistakes of every kind, in every figure of every product, do not."""

from dataclasses import replace

import pytest

from pytest_roofline.judging.hardware.mistakes import Mistake
from pytest_roofline.judging.hardware.products import shipped
from pytest_roofline.judging.hardware.rated import Catalogue, Name, Peak
from pytest_roofline.judging.hardware.rates import MATRIX
from pytest_roofline.judging.hardware.validating import mistakes, without_unchecked_bounds

BASE = shipped().catalogue
PRODUCTS = {"-".join(product.key): product for product in BASE.products}
# Twice the clock, the units or the fabric's ports cannot be told from a faster chip where no other figure follows.
DOUBLED = ("units", "clock_MHz", "memory_GB", "memory_bus_bits", "memory_Gbps", "pcie_lanes")


def wrong(*products, **more):
    """What cannot be in a file of these products that stands beside what ships."""
    return [mistake for mistake in mistakes(Catalogue(1, products, **more), BASE) if not mistake.hint]


def with_figure(product, part, figure, factor):
    """A product with one figure multiplied."""
    known = getattr(product, part)
    return replace(product, **{part: known | {figure: replace(known[figure], value=known[figure].value * factor)}})


def test_everything_that_ships_passes_and_nothing_of_it_is_unchecked():
    assert mistakes(BASE) == []


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_value_off_by_a_power_of_ten_or_by_two_is_refused_wherever_it_stands(name):
    """A sparse rate, both directions of a link, or half of a board."""
    product = PRODUCTS[name]
    planted = [
        (part, figure, factor)
        for part in ("peaks", "facts")
        for figure in getattr(product, part)
        for factor in (10, 0.1, 1000, 0.001, 2, 0.5)
        if factor not in (2, 0.5) or part == "peaks" or figure in DOUBLED
    ]
    assert len(planted) > 40
    assert [one for one in planted if not wrong(with_figure(product, *one))] == []


@pytest.mark.parametrize("name", PRODUCTS)
def test_sparse_rates_throughout_are_refused_each(name):
    product = PRODUCTS[name]
    matrix = {f"{dtype}_TFLOPS" for dtype in MATRIX} & product.peaks.keys()
    sparse = {rate: replace(product.peaks[rate], value=2 * product.peaks[rate].value) for rate in matrix}
    found = wrong(replace(product, peaks=product.peaks | sparse))
    assert {mistake.where.split("peaks.")[1] for mistake in found} == matrix
    assert all("a sparse rate is twice that" in mistake.expected for mistake in found)


@pytest.mark.parametrize("factor", [10, 0.1], ids=["x10", "/10"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_memory_off_by_a_power_of_ten_is_refused(name, factor):
    product = PRODUCTS[name]
    size = round(int(product.memory[:-2]) * factor)
    figure = replace(product.facts["memory_GB"], value=size)
    assert wrong(replace(product, memory=f"{size}gb", facts=product.facts | {"memory_GB": figure}))


def test_two_types_of_matrix_units_cannot_be_off_together_with_clock_and_units():
    # Every figure of a made-up board twice as fast agrees with every other: only its own datasheet could tell.
    product = PRODUCTS["t4-pcie-16gb"]
    fast = {name: replace(peak, value=1.5 * peak.value) for name, peak in product.peaks.items() if "TFLOPS" in name}
    clock = replace(product.facts["clock_MHz"], value=1.5 * 1590)
    assert wrong(replace(product, peaks=product.peaks | fast, facts=product.facts | {"clock_MHz": clock})) == []


# Both stand in public tables.
@pytest.mark.parametrize(
    ("name", "figure", "value", "said"),
    [
        ("l4-pcie-24gb", "memory_GBps", 3350, "since 192 bit at 12.5 Gbit/s carry 300 GB/s"),
        ("h100-sxm5-80gb", "bf16_TFLOPS", 1979, "132 units at 1980 MHz do 1071 TFLOP/s, dense"),
    ],
)
def test_known_wrong_values_of_public_tables_are_refused(name, figure, value, said):
    product = PRODUCTS[name]
    found = wrong(replace(product, peaks=product.peaks | {figure: Peak(value, "a public table", "high")}))
    # One sentence, of the wrong figure and of none that is right.
    assert [said in str(mistake) and f"is {value}" in str(mistake) for mistake in found] == [True]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"family": "../h100"}, "family is '../h100'"),
        ({"product": ""}, "product is ''"),
        ({"memory": "80"}, "memory is '80'; expected a whole number of GB"),
        ({"memory": "80gib"}, "memory is '80gib'"),
        ({"variant": " "}, "variant is empty"),
        ({"names": ()}, "names is empty"),
        ({"names": (Name("NVIDIA H100 ", "nvidia-smi"),)}, "expected a name exactly as printed"),
        ({"names": (Name("NVIDIA\x1b[31m", "nvidia-smi"),)}, "expected a name exactly as printed"),
        ({"names": (Name("NVIDIA H100 80GB HBM3", ""),)}, "source is empty"),
        ({"architecture": "sm_91"}, "architecture is 'sm_91'; expected one of sm_70"),
        ({"memory_type": "HBM7"}, "memory_type is 'HBM7'; expected one of HBM2"),
        ({"pcie": "pcie-9"}, "pcie is 'pcie-9'; expected one of pcie-3"),
        ({"pcie": "pcie-4"}, "since 16 of pcie-4 carry 31.5 GB/s, one way"),
        ({"nvlink": "nvlink-5"}, "since 18 of nvlink-5 carry 900 GB/s, one way"),
    ],
)
def test_a_product_must_be_named_described_and_made_of_what_is_known(changes, said):
    found = wrong(replace(PRODUCTS["h100-sxm5-80gb"], **changes))
    assert any(said in str(mistake) for mistake in found), found


@pytest.mark.parametrize(
    ("part", "figure", "said"),
    [
        ("peaks", {"bf16_TFLOP": Peak(989, "a table", "high")}, "no field of ours; expected one of memory_GBps"),
        ("facts", {"sms": Peak(132, "a table", "high")}, "no field of ours; expected one of units"),
        ("peaks", {"bf16_TFLOPS": Peak(989, "  ", "high")}, "bf16_TFLOPS source is empty"),
        ("facts", {"units": Peak(131.5, "a table", "high")}, "131.5; expected a whole number"),
        ("facts", {"pcie_lanes": Peak(12, "a table", "high")}, "12; expected one of 1, 2, 4, 8, 16"),
        ("facts", {"llc_MiB": Peak(256, "a table", "high")}, "expected none, as its architecture has none"),
        ("peaks", {"nvlinks": Peak(12, "a table", "high")}, "12; expected 18, as nvlink_ports says"),
        ("peaks", {"fp32_matrix_TFLOPS": Peak(67, "a table", "high")}, "sm_90 has no units for fp32_matrix"),
    ],
)
def test_a_figure_must_be_one_of_ours_and_possible(part, figure, said):
    product = PRODUCTS["h100-sxm5-80gb"]
    found = wrong(replace(product, **{part: getattr(product, part) | figure}))
    assert any(said in str(mistake) for mistake in found), found


def test_two_products_may_not_have_the_same_name():
    one = PRODUCTS["h100-sxm5-80gb"]
    other = replace(PRODUCTS["h200-sxm-141gb"], names=(*one.names, *PRODUCTS["h200-sxm-141gb"].names))
    assert [str(found) for found in wrong(one, other)] == [
        "name 'NVIDIA H100 80GB HBM3' is that of h100-sxm5 80gb and of h200-sxm 141gb; expected one; or `needs` in "
        "each, which tell them apart"
    ]


def test_two_products_may_share_a_name_only_where_something_tells_them_apart():
    shared = (Name("AMD Radeon Graphics", "torch", ("memory",)),)
    first, second = (replace(PRODUCTS[name], names=shared) for name in ("mi300x-oam-192gb", "mi325x-oam-256gb"))
    assert wrong(first, second) == []
    alike = replace(second, names=(Name("AMD Radeon Graphics", "torch", ("units",)),))
    assert ["alike in units" in str(found) for found in wrong(replace(first, names=alike.names), alike)] == [True]


def test_one_product_may_stand_there_once():
    one = PRODUCTS["t4-pcie-16gb"]
    assert "product t4-pcie 16gb is there 2 times; expected each product and memory once" in map(str, wrong(one, one))


def test_what_cannot_be_checked_for_want_of_data_is_a_hint():
    bare = replace(PRODUCTS["t4-pcie-16gb"], facts={}, memory_type=None, pcie=None)
    unsaid = "what is not checked bounds nothing"
    assert [(found.hint, str(found)) for found in mistakes(Catalogue(1, (bare,)), BASE)] == [
        (True, f"t4-pcie 16gb facts is without units and clock_MHz; expected them, to check its TFLOPS with; {unsaid}"),
        (True, f"t4-pcie 16gb memory_type is not given; expected it, to check memory_GBps with; {unsaid}"),
        (True, f"t4-pcie 16gb pcie is not given; expected it, to check pcie_GBps with; {unsaid}"),
    ]


def without(name, *facts, **peaks):
    """A shipped product without some facts, and with some peaks changed."""
    product = PRODUCTS[name]
    kept = {fact: figure for fact, figure in product.facts.items() if fact not in facts}
    return replace(product, facts=kept, peaks=product.peaks | {peak: Peak(*told) for peak, told in peaks.items()})


@pytest.mark.parametrize(
    ("product", "said"),
    [
        # 80 GB stand on five stacks and not on fifty, whatever the bus.
        (without("h100-sxm5-80gb", "memory_bus_bits", memory_GBps=(33500, "a table", "high")), "what 80 GB of HBM3"),
        (without("l4-pcie-24gb", "memory_bus_bits", memory_GBps=(3350, "a table", "high")), "what 24 GB of GDDR6"),
        (without("t4-pcie-16gb", "units", fp16_TFLOPS=(650, "a table", "high")), "what 14.4 to 72 units at 1590"),
        (without("t4-pcie-16gb", "units", "clock_MHz", fp16_TFLOPS=(6.5e4, "a table", "high")), "at 500 to 4000 MHz"),
        (
            without("h100-sxm5-80gb", "nvlink_ports", nvlinks=(180, "a table", "high")),
            "since 180 of nvlink-4 carry 4500",
        ),
    ],
)
def test_what_bounds_a_figure_without_its_facts_refuses_a_power_of_ten(product, said):
    found = wrong(product)
    assert any(said in str(mistake) for mistake in found), found
    good = replace(product, peaks=PRODUCTS["-".join(product.key)].peaks)
    assert wrong(good) == []


@pytest.mark.parametrize(
    ("gone", "unchecked"),
    [
        (("memory_bus_bits",), {"memory_GBps"}),
        (("clock_MHz",), {"bf16_TFLOPS", "fp16_TFLOPS", "tf32_TFLOPS", "fp8_TFLOPS", "fp32_TFLOPS"}),
        (("pcie_lanes",), {"pcie_GBps"}),
        # 18 links of 25 GB/s make the 450 that are told.
        (("nvlink_ports",), set()),
        (("memory_Gbps", "l2_MiB"), set()),
    ],
)
def test_a_peak_that_cannot_be_checked_bounds_nothing(gone, unchecked):
    own = Catalogue(1, (without("h100-sxm5-80gb", *gone),))
    (used,) = without_unchecked_bounds(own, BASE).products
    assert {name for name, peak in used.peaks.items() if not peak.trusted} == unchecked
    assert {name for found in mistakes(own, BASE) for name in found.unchecked} == unchecked


def test_a_number_of_links_that_nothing_confirms_is_a_hint():
    product = replace(without("h100-sxm5-80gb", "nvlink_ports"), nvlink=None, peaks={"nvlinks": Peak(180, "a", "high")})
    (found,) = mistakes(Catalogue(1, (product,)), BASE)
    assert (found.hint, found.unchecked) == (True, ("nvlinks",))


def test_a_name_that_needs_units_must_be_able_to_agree():
    shared = (Name("AMD Instinct MI250X / MI250", "torch", ("units",)),)
    found = wrong(replace(without("mi250x-oam-64gb", "units"), names=shared))
    assert any("is one that needs units; expected facts.units" in str(mistake) for mistake in found), found


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        (
            "architectures",
            {"flops_per_clock": {"bf16": 0}},
            "architectures sm_70 bf16 is 0; expected a number above zero",
        ),
        ("architectures", {"source": ""}, "architectures sm_70 source is empty"),
        ("memory_types", {"most_Gbps": -1.0}, "memory_types HBM2 most_Gbps is -1.0"),
        ("memory_types", {"least_GB": 16.0}, "memory_types HBM2 most_GB is 8; expected 16 or more"),
        ("links", {"GBps": 0.0}, "links pcie-3 GBps is 0.0"),
    ],
)
def test_what_products_are_checked_against_must_be_possible_too(part, changes, said):
    row = replace(getattr(BASE, part)[0], **changes)
    (found,) = wrong(**{part: (row,)})
    assert str(found).startswith(said)


def test_a_type_may_stand_there_once():
    assert "links pcie-3 is there 2 times; expected each name once" in map(str, wrong(links=(BASE.links[0],) * 2))


def test_a_mistake_says_where_what_and_what_was_expected_and_steers_no_terminal():
    assert str(Mistake("h100 peaks.x", "\x1b[31m", "1")) == r"h100 peaks.x is \x1b[31m; expected 1"
