"""The hardware that ships has the figures of the public tables, but for what docs/authors/hardware.md tells."""

import json
from pathlib import Path

from pytest_roofline.hardware import products
from pytest_roofline.hardware.lookup import shipped_hardware

BASE = shipped_hardware().catalogue
RECORDS = [
    record
    for record in json.loads(
        (Path(__file__).parents[1] / "published_figures.json").read_text(encoding="utf-8")
    )
    if record["kind"] == "datasheet_peak"
]
FIELDS = {
    "hbm_GBps": "memory_GBps", "hbm_GBps_per_gcd": "memory_GBps", "hbm_size_GB": "memory_GB", "pcie_gen": "pcie",
    "pcie_GBps_per_dir": "pcie_GBps", "nvlink_GBps_per_dir": "nvlink_GBps", "if_GBps_per_dir_per_link": "xgmi",
    "if_GBps_per_dir_total": "xgmi_total_GBps", "fp32_TFLOPS": "fp32_TFLOPS",
    "fp32_matrix_TFLOPS": "fp32_matrix_TFLOPS",
    "fp16_tensor_TFLOPS": "fp16_TFLOPS", "bf16_tensor_TFLOPS": "bf16_TFLOPS", "fp8_tensor_TFLOPS": "fp8_TFLOPS",
    "tf32_tensor_TFLOPS": "tf32_TFLOPS", "l2_MB": "l2_MiB", "llc_MB": "llc_MiB", "sm_count": "units",
}  # fmt: skip
# Torch shows each of the two dies of such a board as a device of its own.
HALVED = ("hbm_GBps", "hbm_size_GB", "fp32_TFLOPS", "fp32_matrix_TFLOPS", "bf16_tensor_TFLOPS", "fp16_tensor_TFLOPS",
          "l2_MB", "sm_count")  # fmt: skip
# What ships differs on purpose, and docs/authors/hardware.md says why.
EXCEPTIONS = {
    ("b200-sxm", "fp32_TFLOPS"): (80.0, 75),
    ("b200-sxm", "pcie_gen"): ("5.0/6.0 x16 (sources conflict)", None),
    ("mi250x-oam", "if_GBps_per_dir_total"): (350, None),
}


def described(record):
    """The product that a record of a public table is of."""
    variant, family = (
        record["hardware_variant"].split(" (")[0],
        record["hardware"].lower().replace(" ", "-"),
    )
    named = [
        one for one in BASE.products if one.family == family and one.product.startswith(family)
    ]
    return next(one for one in named if one.variant.split(",")[0].startswith(variant))


def ships(product, metric):
    """What ships of it, in the record's unit."""
    name = FIELDS[metric]
    if name == "pcie":
        lanes = product.facts.get("pcie_lanes")
        return product.pcie and lanes and f"{product.pcie.removeprefix('pcie-')}.0 x{lanes.value:g}"
    if name == "xgmi":
        return next(link["GBps"] for link in BASE.links if link["name"] == product.xgmi)
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
    assert "80" in products()["NVIDIA B200"].peaks["fp32_TFLOPS"].note
    assert (len(RECORDS), {record["metric"] for record in RECORDS}) == (252, set(FIELDS))
