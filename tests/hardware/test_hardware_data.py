"""What ships: every figure agrees with those that it follows from, and with the page."""

import json
import re
from dataclasses import replace
from pathlib import Path

from pytest_roofline.core.facts import HARDWARE_FILE, DeviceFacts
from pytest_roofline.hardware import product_of, products, use_hardware
from pytest_roofline.hardware.lookup import FACTS, PEAKS, mistakes, read_hardware, shipped_hardware
from pytest_roofline.report.machine import peak_text

from .hardware_physics import MATRIX, disagreements

ROOT = Path(__file__).parents[2]
BASE = shipped_hardware().catalogue
PRODUCTS = {"-".join(product.key): product for product in BASE.products}
# Twice the units of cache, or of the fabric's ports, cannot be told from a larger chip where no other figure follows.
DOUBLED = ("units", "clock_MHz", "memory_GB", "memory_bus_bits", "memory_Gbps", "pcie_lanes")


def with_figure(product, part, figure, factor):
    """A product with one figure multiplied."""
    known = getattr(product, part)
    return replace(
        product,
        **{part: known | {figure: replace(known[figure], value=known[figure].value * factor)}},
    )


def wrong(product):
    return {name for name, _ in disagreements(product, BASE)}


def test_everything_that_ships_is_well_formed_and_agrees_with_what_it_follows_from():
    assert mistakes(BASE) == []
    assert {
        name: [why for _, why in disagreements(product, BASE)] for name, product in PRODUCTS.items()
    } == {name: [] for name in PRODUCTS}
    assert all(row["source"] for row in (*BASE.memory_types, *BASE.links))
    assert all(chip.source for chip in BASE.architectures)


def test_a_value_off_by_a_power_of_ten_or_by_two_is_found_wherever_it_stands():
    """A sparse rate, both directions of a link, or half of a board."""
    planted = [
        (name, part, figure, factor)
        for name, product in PRODUCTS.items()
        for part in ("peaks", "facts")
        for figure in getattr(product, part)
        for factor in (10, 0.1, 1000, 0.001, 2, 0.5)
        if factor not in (2, 0.5) or part == "peaks" or figure in DOUBLED
    ]
    assert len(planted) > 40 * len(PRODUCTS)
    assert [one for one in planted if not wrong(with_figure(PRODUCTS[one[0]], *one[1:]))] == []


def test_sparse_rates_throughout_are_found_each():
    for product in PRODUCTS.values():
        matrix = {f"{dtype}_TFLOPS" for dtype in MATRIX} & product.peaks.keys()
        sparse = {
            rate: replace(product.peaks[rate], value=2 * product.peaks[rate].value)
            for rate in matrix
        }
        assert wrong(replace(product, peaks=product.peaks | sparse)) == matrix


def test_every_name_resolves_to_its_own_product_and_no_two_share_a_key():
    for product in PRODUCTS.values():
        # What a whole one of it shows; a driver keeps a little.
        device = {
            "memory_bytes": round(1.06e9 * product.facts["memory_GB"].value),
            "units": product.facts["units"].value,
            "architecture": product.architecture.split("-")[0] + ":sramecc+",
        }
        found = {product_of(DeviceFacts("cuda", name.name, **device)).key for name in product.names}
        assert found == {product.key}
    alone = [name.name for product in BASE.products for name in product.names if not name.needs]
    assert len(alone) == len(set(alone))
    assert set(PRODUCTS) - {"-".join(product.key) for product in products().values()} == {
        "mi250-oam-64gb"
    }


def test_peaks_are_the_dense_ones_and_only_of_types_that_there_are_units_for():
    known = {
        ("NVIDIA H100 80GB HBM3", "bf16"): 989, ("NVIDIA H100 PCIe", "bf16"): 756, ("NVIDIA H200", "tf32"): 494.5,
        ("NVIDIA A100-SXM4-80GB", "bf16"): 312, ("NVIDIA A100-SXM4-80GB", "fp32"): 19.5,
        ("AMD Instinct MI300X", "bf16"): 1307.4, ("AMD Instinct MI300X", "fp32"): 163.4,
        ("Tesla V100-SXM2-16GB", "fp16"): 125, ("Tesla V100-PCIE-16GB", "fp16"): 112, ("Tesla T4", "fp16"): 65,
        ("NVIDIA B200", "bf16"): 2250,
    }  # fmt: skip
    assert {
        (name, dtype): products()[name].peaks[f"{dtype}_TFLOPS"].value for name, dtype in known
    } == known
    for name in (
        "Tesla V100-SXM2-16GB",
        "Tesla V100-SXM2-32GB",
        "Tesla V100-PCIE-16GB",
        "Tesla T4",
    ):
        assert not {"bf16_TFLOPS", "tf32_TFLOPS"} & products()[name].peaks.keys()


PAGE = (ROOT / "docs" / "authors" / "hardware.md").read_text(encoding="utf-8")
COLUMNS = {
    "memory": "memory_GBps", "PCIe": "pcie_GBps", "NVLink": "nvlink_GBps", "xGMI": "xgmi_total_GBps",
    "bf16": "bf16_TFLOPS", "fp16": "fp16_TFLOPS", "tf32": "tf32_TFLOPS", "fp8": "fp8_TFLOPS", "fp32": "fp32_TFLOPS",
}  # fmt: skip


def test_the_pages_table_of_products_is_made_from_the_data_and_its_fields_are_ours():
    rows = [["product", "variant", "printed as", *COLUMNS], ["---"] * 3 + ["---:"] * len(COLUMNS)]
    for product in sorted(BASE.products, key=lambda product: product.key):
        names = ", ".join(f"`{name.name}`{'*' * bool(name.needs)}" for name in product.names)
        figures = (peak_text(product.peaks.get(name)) for name in COLUMNS.values())
        rows.append([f"`{product.product}` {product.memory}", product.variant, names, *figures])
    table = "\n".join(
        f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in rows
    )
    assert table in PAGE
    assert {*PEAKS, *FACTS} <= set(re.findall(r"`(\w+)`", PAGE))


def test_the_pages_example_describes_hardware_that_is_not_known_yet_and_can_be_used(tmp_path):
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / HARDWARE_FILE
    path.write_text(example, encoding="utf-8")
    name = json.loads(example)["products"][0]["names"][0]["name"]
    assert name not in products()
    assert mistakes(read_hardware(path)) == []
    restore = use_hardware([tmp_path])
    found = product_of(DeviceFacts("cuda", name))
    restore()
    assert found.peaks["bf16_TFLOPS"].trusted
