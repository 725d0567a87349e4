"""Which of our hardware keys a source means by what it calls its hardware.

The exact variant counts: an A100 of 40 GB and one of 80 GB differ by a third in memory bandwidth. What a source leaves
open stays open, and is said; what somebody only inferred is not taken for stated.
"""

import re
from dataclasses import dataclass, replace

from pytest_roofline.core.facts import HardwareKey

UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True)
class Variant:
    """A family, and as much of the hardware key as the source states.

    Args:
        family: the baseline file.
        product: None where the source leaves open which of the family.
        memory: None likewise.
        doubt: why it is not the exact variant, in words; empty where it is.
    """

    family: str
    product: str | None = None
    memory: str | None = None
    doubt: str = ""

    def pattern(self, devices: int | None = 1, link: str | None = None) -> HardwareKey:
        """The pattern of a figure of this hardware: whole devices, never a partition of one."""
        return HardwareKey(self.product, self.memory, partition="none", devices=devices, link=link)


NOT_STATED = "variant not stated"
NO_MEMORY = "memory size not stated"

# By what the source calls the product: the first expression that is found in what it says of the variant decides.
_RULES: dict[str, tuple[tuple[str, Variant], ...]] = {
    "V100": (
        (r"inferred", Variant("v100", doubt="variant only inferred from the value")),
        (r"PCIe-16GB", Variant("v100", "v100-pcie", "16gb")),
        (r"PCIe-32GB", Variant("v100", "v100-pcie", "32gb")),
        (r"SXM2-32GB", Variant("v100", "v100-sxm2", "32gb")),
        (r"32GB", Variant("v100", None, "32gb", doubt="SXM2 or PCIe not stated")),
        (r"not stated", Variant("v100", doubt=NOT_STATED)),
    ),
    "A100": (
        (r"inferred", Variant("a100", doubt="variant only inferred from the value")),
        # "40GB (SXM4/PCIe not stated)" names both, and means neither.
        (r"^40GB", Variant("a100", None, "40gb", doubt="SXM4 or PCIe not stated")),
        (r"^80GB", Variant("a100", None, "80gb", doubt="SXM4 or PCIe not stated")),
        (r"NV12", Variant("a100", doubt="SXM4 or PCIe not stated")),
        (r"SXM4-40GB", Variant("a100", "a100-sxm4", "40gb")),
        (r"SXM4-80GB", Variant("a100", "a100-sxm4", "80gb")),
        (r"PCIe-40GB", Variant("a100", "a100-pcie", "40gb")),
        (r"PCIe-80GB", Variant("a100", "a100-pcie", "80gb")),
        (r"SXM", Variant("a100", "a100-sxm4", doubt=NO_MEMORY)),
        (r"PCIe", Variant("a100", "a100-pcie", doubt=NO_MEMORY)),
        (r"^not named", Variant("a100", doubt=NOT_STATED)),
    ),
    "H100": (
        (r"SXM|HBM3", Variant("h100", "h100-sxm5", "80gb")),
        # "NVLink" and "NVLS" are said of every board.
        (r"\bNVL\b", Variant("h100", "h100-nvl", "94gb")),
        (r"PCIe", Variant("h100", "h100-pcie", "80gb")),
        (
            r"64 GPUs",
            Variant(
                "h100", "h100-sxm5", "80gb", doubt="SXM5 only inferred from how many there are"
            ),
        ),
    ),
    "H200": (
        (r"SXM", Variant("h200", "h200-sxm", "141gb")),
        # By its PCI device: 2335 is the SXM. Not among the plugin's products, so that the driver's own name is the key.
        (r"233b|\bNVL\b", Variant("nvidia-h200-nvl", "nvidia-h200-nvl")),
    ),
    "B200": ((r"", Variant("b200", "b200-sxm", "180gb")),),
    "L4": ((r"", Variant("l4", "l4-pcie", "24gb")),),
    "L40S": ((r"", Variant("l40s", "l40s-pcie", "48gb")),),
    "T4": ((r"", Variant("t4", "t4-pcie", "16gb")),),
    "RTX 4090": ((r"", Variant("rtx-4090", "rtx-4090", "24gb")),),
    "MI210": ((r"", Variant("mi210", "mi210-pcie", "64gb")),),
    "MI300X": ((r"", Variant("mi300x", "mi300x-oam", "192gb")),),
    "MI325X": ((r"", Variant("mi325x", "mi325x-oam", "256gb")),),
    # Both have the same two dies, and torch shows each die as a device of its own.
    "MI250/MI250X (per GCD)": ((r"", Variant("mi250x", "mi250x-oam", "64gb")),),
    "MI250/MI250X": ((r"", Variant("mi250x", "mi250x-oam", "64gb")),),
    "MI250 class": ((r"", Variant("mi250x", "mi250x-oam", "64gb")),),
    # Not among the plugin's products, so that driver's own name is the key.
    "GH200": (
        (r"120GB", Variant("nvidia-gh200-120gb", "nvidia-gh200-120gb")),
        (r"480GB", Variant("nvidia-gh200-480gb", "nvidia-gh200-480gb")),
    ),
    "GB200": ((r"", Variant("nvidia-gb200", "nvidia-gb200")),),
    "H20": ((r"", Variant("nvidia-h20", "nvidia-h20")),),
    "H20-3e": ((r"", Variant("nvidia-h20-3e", "nvidia-h20-3e")),),
    "A30": ((r"", Variant("nvidia-a30", "nvidia-a30")),),
    "A800": ((r"PCIe-80GB", Variant("nvidia-a800-80gb-pcie", "nvidia-a800-80gb-pcie")),),
    "L40": ((r"", Variant("nvidia-l40", "nvidia-l40")),),
    "MI100": ((r"", Variant("amd-instinct-mi100", "amd-instinct-mi100")),),
    "MI308X": ((r"", Variant("amd-instinct-mi308x", "amd-instinct-mi308x")),),
    "MI350X": ((r"", Variant("amd-instinct-mi350x", "amd-instinct-mi350x")),),
    # Of hardware without a name nobody can say whether it is ours: it goes where no device looks.
    "A100 class (unnamed 8-GPU system)": (
        (r"", Variant(UNNAMED, "unnamed-a100-class", doubt="hardware not named")),
    ),
    "PCIe4 class (unnamed)": (
        (r"", Variant(UNNAMED, "unnamed-pcie4-class", doubt="hardware not named")),
    ),
    'B200 class (device printed as "NVIDIA Graphics Device", 152 SMs, sm_100, 8192-bit)': (
        (r"", Variant(UNNAMED, "unnamed-b200-class", doubt="engineering sample without a name")),
    ),
    "Ampere 8 GB (not named)": (
        (r"", Variant(UNNAMED, "unnamed-ampere-8gb", doubt="hardware not named")),
    ),
    "CPU (not named)": ((r"", Variant(UNNAMED, "unnamed-cpu", doubt="hardware not named")),),
    "MPS (not named)": ((r"", Variant(UNNAMED, "unnamed-mps", doubt="hardware not named")),),
    "CPU": ((r"", Variant(UNNAMED, "unnamed-cpu", doubt="hardware not named")),),
    "H100-SXM5": ((r"", Variant("h100", "h100-sxm5", "80gb")),),
}


def variant_of(hardware: str, text: str = "not named, not stated") -> Variant | None:
    """The variant that a source means; None where no rule knows it.

    Args:
        hardware: what the source calls the product.
        text: what it says of the variant; the default is of a document that names the product only.
    """
    return next((found for rule, found in _RULES.get(hardware, ()) if re.search(rule, text)), None)


def all_variants_of(hardware: str, text: str) -> tuple[Variant, ...]:
    """Every variant that a source speaks of at once: AMD's limits are of MI250 and MI250X alike; empty as above."""
    found = variant_of(hardware, text)
    if found is None:
        return ()
    return (
        (found, replace(found, product="mi250-oam")) if found.product == "mi250x-oam" else (found,)
    )


def devices_of(variant: str, size: str) -> int | None:
    """How many devices took part in a collective: `n=8`, `8x SXM4`, `64 GPUs`; None where neither says."""
    for text in (size, variant):
        found = re.search(r"\bn=(\d+)\b|^(\d+)x\b|^(\d+) GPUs\b|^(\d+) GCDs\b", text)
        if found:
            return int(next(group for group in found.groups() if group))
    return None


def link_of(hardware: str, variant: str) -> str | None:
    """The class of the link between two devices, where the variant has only one; None leaves it open."""
    text = f"{hardware} {variant}"
    known = (
        (r"NVLink pair|NV12|2x NVL", "nvlink"),
        (r"SXM[^2]|NVSwitch", "nvlink-switch"),
        (r"MI3|MI250|GCDs", "xgmi"),
        (r"P2P, PCIe", "pcie"),
    )
    return next((link for rule, link in known if re.search(rule, text)), None)
