"""What docs/hardware.md shows of the data is what the data say, and its example is a file that works."""

import json
import re
from pathlib import Path

from pytest_roofline.core.facts import HARDWARE_FILE, DeviceFacts
from pytest_roofline.judging.hardware import product_of, products, use_hardware
from pytest_roofline.judging.hardware.added import read_hardware
from pytest_roofline.judging.hardware.products import shipped
from pytest_roofline.judging.hardware.rates import ARITHMETIC, LINK, MEMORY
from pytest_roofline.judging.hardware.validating import FACTS, PEAKS, mistakes
from pytest_roofline.reporting.hardware import figure_text

PAGE = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")
COLUMNS = {
    "memory": "memory_GBps", "PCIe": "pcie_GBps", "NVLink": "nvlink_GBps", "xGMI": "xgmi_total_GBps",
    "bf16": "bf16_TFLOPS", "fp16": "fp16_TFLOPS", "tf32": "tf32_TFLOPS", "fp8": "fp8_TFLOPS", "fp32": "fp32_TFLOPS",
}  # fmt: skip


def table():
    """The page's table, made from the data."""
    head = ["product", "variant", "printed as", *COLUMNS]
    rows = [head, ["---"] * 3 + ["---:"] * len(COLUMNS)]
    for product in sorted(shipped().catalogue.products, key=lambda product: product.key):
        names = ", ".join(f"`{name.name}`{'*' * bool(name.needs)}" for name in product.names)
        figures = (figure_text(product.peaks.get(name)) for name in COLUMNS.values())
        rows.append([f"`{product.product}` {product.memory}", product.variant, names, *figures])
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in rows)


def test_the_table_of_products_is_made_from_the_data():
    assert table() in PAGE


def test_every_field_is_explained():
    explained = set(re.findall(r"`(\w+)`", PAGE))
    assert {*PEAKS, *FACTS} <= explained


def test_the_example_describes_hardware_that_is_not_known_yet_and_passes_every_check(tmp_path):
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / HARDWARE_FILE
    path.write_text(example, encoding="utf-8")
    name = json.loads(example)["products"][0]["names"][0]["name"]
    assert name not in products()
    assert mistakes(read_hardware(path), shipped().catalogue) == []
    restore = use_hardware([tmp_path])
    found = product_of(DeviceFacts("cuda", name))
    restore()
    assert found.peaks["bf16_TFLOPS"].trusted


def test_the_margins_of_the_checks_are_as_told():
    for low, high in (ARITHMETIC, MEMORY, LINK):
        assert f"{low:.0%} to {high:.0%}".replace("%", " %") in PAGE
