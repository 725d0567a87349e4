"""The peaks that ship against every public table that the project has copied: none drifts unseen."""

import json
from pathlib import Path

from pytest_roofline.judging.hardware.products import shipped

FILE = Path(__file__).parents[2] / "baselines" / "published" / "published_figures.json"
RECORDS = [record for record in json.loads(FILE.read_text(encoding="utf-8")) if record["kind"] == "datasheet_peak"]
FIELDS = {
    "hbm_GBps": "memory_GBps",
    "hbm_GBps_per_gcd": "memory_GBps",
    "hbm_size_GB": "memory_GB",
    "pcie_gen": "pcie",
    "pcie_GBps_per_dir": "pcie_GBps",
    "nvlink_GBps_per_dir": "nvlink_GBps",
    "if_GBps_per_dir_per_link": "xgmi",
    "if_GBps_per_dir_total": "xgmi_total_GBps",
    "fp32_TFLOPS": "fp32_TFLOPS",
    "fp32_matrix_TFLOPS": "fp32_matrix_TFLOPS",
    "fp16_tensor_TFLOPS": "fp16_TFLOPS",
    "bf16_tensor_TFLOPS": "bf16_TFLOPS",
    "fp8_tensor_TFLOPS": "fp8_TFLOPS",
    "tf32_tensor_TFLOPS": "tf32_TFLOPS",
    "l2_MB": "l2_MiB",
    "llc_MB": "llc_MiB",
    "sm_count": "units",
}
# Torch shows each of the two dies of such a board as a device of its own.
HALVED = ("hbm_GBps", "hbm_size_GB", "fp32_TFLOPS", "fp32_matrix_TFLOPS", "bf16_tensor_TFLOPS", "fp16_tensor_TFLOPS",
          "l2_MB", "sm_count")  # fmt: skip
# What ships differs on purpose, and docs/hardware.md says why.
EXCEPTIONS = {
    ("b200-sxm", "fp32_TFLOPS"): (80.0, 75),
    ("b200-sxm", "pcie_gen"): ("5.0/6.0 x16 (sources conflict)", None),
    ("mi250x-oam", "if_GBps_per_dir_total"): (350, None),
}


def described(record):
    """The product that a record is of."""
    variant = record["hardware_variant"].split(" (")[0]
    family = record["hardware"].lower().replace(" ", "-")
    return next(
        product
        for product in shipped().catalogue.products
        if product.family == family
        and product.product.startswith(family)
        and product.variant.split(",")[0].startswith(variant)
    )


def ships(product, metric):
    """What ships of it, in the record's unit."""
    name = FIELDS[metric]
    catalogue = shipped().catalogue
    if name == "pcie":
        lanes = product.facts.get("pcie_lanes")
        return product.pcie and lanes and f"{product.pcie.removeprefix('pcie-')}.0 x{lanes.value:g}"
    if name == "xgmi":
        return catalogue.link(product.xgmi).GBps
    figure = product.peaks.get(name) or product.facts.get(name)
    return figure and figure.value


def test_every_figure_that_ships_is_that_of_the_public_tables_but_for_what_the_page_tells():
    differ = {}
    for record in RECORDS:
        # A table's 0 GB/s of NVLink says that there is none, as a figure that does not ship does.
        product, metric, value = described(record), record["metric"], record["value"] or None
        if product.product == "mi250x-oam" and metric in HALVED:
            value /= 2
        if ships(product, metric) != value:
            differ[product.product, metric] = (value, ships(product, metric))
    assert differ == EXCEPTIONS
    assert len(RECORDS) == 252
    assert {record["metric"] for record in RECORDS} == FIELDS.keys()


def test_what_overrides_a_public_table_says_so():
    product = next(one for one in shipped().catalogue.products if one.product == "b200-sxm")
    assert "80" in product.peaks["fp32_TFLOPS"].note
