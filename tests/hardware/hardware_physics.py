"""What rated figures follow from: arithmetic from units and clock, memory from its bus, a link from its lanes.

So a sparse rate, a rate of both directions, or a value off by a power of ten disagrees with the rest. This holds the
data that ship together; a user's own file is checked for its form and its ranges only.
"""

from itertools import pairwise

# Vendors rate matrix units at less than the highest clock: an H100 PCIe at 1620 of 1755 MHz, an H100 NVL at 87 %.
ARITHMETIC = (0.8, 1.05)
# Types of the same matrix units stand in whole ratios, but for rounding: an L4 is rated at 60 and 121.
SIBLINGS = (0.985, 1.015)
# A data rate is told in two or three digits, a bandwidth rounded: an A100 has 2.4 Gbit/s and 1555 GB/s.
MEMORY = (0.95, 1.05)
# No board runs its memory at less than half of what its kind can do: a T4 at 10 of 20 Gbit/s, a V100 at 1.75 of 2.4.
MEMORY_TYPE = (0.45, 1.02)
# Of 96 GB in six stacks an H100 NVL uses 94; of 192 in eight a B200 180.
USED = 0.9
# PCIe is rated with and without a part of its overhead: 31 or 31.5 GB/s.
LINK = (0.97, 1.02)
# A product has a part of its architecture's largest chip; none has less than a fifth, be it of units or of cache.
LEAST_OF_CHIP = 0.2
CLOCK_MHZ = (500, 4000)
LANES = (1, 2, 4, 8, 16)
MATRIX = ("bf16", "fp16", "tf32", "fp8")
LINKS = (
    ("pcie_GBps", "pcie_lanes", "pcie"),
    ("nvlink_GBps", "nvlink_ports", "nvlink"),
    ("xgmi_total_GBps", "xgmi_ports", "xgmi"),
    ("xgmi_GBps", None, "xgmi"),
    ("xgmi_link_GBps", None, "xgmi"),
)


def disagreements(product, catalogue):
    """The names of figures that disagree with what they follow from, each with why."""
    values = {
        name: figure.value for name, figure in (*product.facts.items(), *product.peaks.items())
    }
    chip = catalogue.architecture(product.architecture)
    assert chip is not None, product.architecture
    yield from _chip(values, chip)
    yield from _arithmetic(values, chip)
    yield from _memory(
        values,
        product,
        {kind["name"]: kind for kind in catalogue.memory_types}[product.memory_type],
    )
    yield from _links(values, product, {kind["name"]: kind for kind in catalogue.links})


def _outside(name, value, least, most, why):
    if not least <= value <= most:
        yield name, f"{name} is {value:g}; expected {least:.4g} to {most:.4g}, {why}"


def _chip(values, chip):
    for name, most in (("units", chip.most_units), ("l2_MiB", chip.most_l2_MiB)):
        if name in values:
            yield from _outside(
                name, values[name], LEAST_OF_CHIP * most, most, f"as chips of {chip.name} have"
            )
    if values.get("llc_MiB") not in (None, chip.llc_MiB):
        yield "llc_MiB", f"llc_MiB is {values['llc_MiB']:g}; expected {chip.llc_MiB}"
    yield from _outside("clock_MHz", values["clock_MHz"], *CLOCK_MHZ, "as clocks are")


def _arithmetic(values, chip):
    believed = {}
    for name in [name for name in values if name.endswith("_TFLOPS")]:
        dtype = name.removesuffix("_TFLOPS")
        made = values["units"] * values["clock_MHz"] * chip.flops_per_clock.get(dtype, 0) / 1e6
        why = (
            f"since {values['units']:g} units at {values['clock_MHz']:g} MHz do {made:.4g} dense; "
            "sparse is twice that"
        )
        found = list(_outside(name, values[name], ARITHMETIC[0] * made, ARITHMETIC[1] * made, why))
        believed |= {} if found else {dtype: values[name]}
        yield from found
    # A good figure beside a wrong one is not to be made wrong too.
    for first, second in pairwise(dtype for dtype in MATRIX if dtype in believed):
        ratio = chip.flops_per_clock[second] / chip.flops_per_clock[first]
        least, most = (share * believed[first] * ratio for share in SIBLINGS)
        yield from _outside(
            f"{second}_TFLOPS", believed[second], least, most, f"as {first} is {believed[first]:g}"
        )


def _memory(values, product, kind):
    if values["memory_GB"] * 1e9 != product.memory_bytes:
        yield "memory_GB", f"memory_GB is {values['memory_GB']:g}, and its memory {product.memory}"
    made = values["memory_bus_bits"] * values["memory_Gbps"] / 8
    yield from _outside(
        "memory_GBps", values["memory_GBps"], MEMORY[0] * made, MEMORY[1] * made, "by its bus"
    )
    slowest, fastest = (share * kind["most_Gbps"] for share in MEMORY_TYPE)
    yield from _outside(
        "memory_Gbps", values["memory_Gbps"], slowest, fastest, f"as {kind['name']} does"
    )
    parts = values["memory_bus_bits"] / kind["part_bits"]
    least, most = USED * parts * kind["least_GB"], parts * kind["most_GB"]
    yield from _outside(
        "memory_GB", values["memory_GB"], least, most, f"as {parts:g} parts of {kind['name']} hold"
    )


def _links(values, product, kinds):
    for peak, counted, generation in LINKS:
        kind, count = (
            kinds.get(getattr(product, generation)),
            values.get(counted, values.get("nvlinks")),
        )
        if peak in values:
            made = kind["GBps"] * (1 if counted is None else count)
            yield from _outside(
                peak, values[peak], LINK[0] * made, LINK[1] * made, f"as {kind['name']} carries"
            )
    if values.get("pcie_lanes", 16) not in LANES:
        yield "pcie_lanes", f"pcie_lanes is {values['pcie_lanes']:g}"
    if "nvlinks" in values and values["nvlinks"] != values["nvlink_ports"]:
        yield (
            "nvlinks",
            f"nvlinks is {values['nvlinks']:g}, and nvlink_ports {values['nvlink_ports']:g}",
        )
