"""What to say of hardware whose peaks nobody wrote down, and what to write down."""

import json
import re
import shlex

from ...core.facts import HARDWARE_FILE, DeviceFacts
from ...core.units import printable, slug
from .keys import has_fewer_units, is_part
from .products import product_of

# torch names a slice of a GPU by its profile: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
_SLICE = re.compile(r" MIG (\d+c\.)?\d+g\.\d+gb\S*$")


def unknown_line(device: DeviceFacts) -> str:
    """That no share of a roofline can be shown for want of the device's peaks, and how to add them; else empty."""
    if device.type == "cpu":
        return ""
    known, name = product_of(device), printable(device.product)
    if is_slice(name):
        return part_line(name)
    if known is None:
        return (
            f'roof: no peaks are known of "{name}", so nothing is shown as a share of them; '
            f"`roofline hardware show {shlex.quote(name)}` prints how to add it"
        )
    if is_part(device, known):
        fewer = f" ({device.units} of {known.facts['units'].value:g} units)" if has_fewer_units(device, known) else ""
        return part_line(name, fewer)
    return ""


def part_line(name: str, seen: str = "") -> str:
    """That a device of this name has no roofline, as it is a part of another.

    Args:
        name: of the device, be it that of a slice.
        seen: by what it is known to be a part, after a blank.
    """
    return f'roof: this is a part of a "{_SLICE.sub("", name)}"{seen}, and no datasheet tells the peaks of a part'


def is_slice(name: str) -> bool:
    """Whether a name is that of a slice of a GPU (MIG)."""
    return _SLICE.search(name) is not None


def how_to_add(name: str) -> str:
    """The steps, and a file to fill in, for a name that is not known; as long as anything is empty, it is refused."""
    figure = {"value": None, "source": "", "confidence": "recalled"}
    product = {
        "family": slug(name),
        "product": slug(name),
        "memory": "",
        "variant": "",
        "architecture": "",
        "memory_type": "",
        "names": [{"name": name, "source": "torch.cuda.get_device_name() on one"}],
        "facts": {"units": figure, "clock_MHz": figure, "memory_bus_bits": figure},
        "peaks": {"memory_GBps": figure, "bf16_TFLOPS": figure},
    }
    text = json.dumps({"schema": 1, "products": [product]}, indent=2, ensure_ascii=False)
    return (
        "Fill this in from its datasheet, dense rates and one direction, each with its source and how sure you are "
        "(high, medium, low, recalled), and leave out what you cannot find; the check lists the architectures and "
        f"kinds of memory that are known. Save it as {HARDWARE_FILE} in the baselines/ of your tests, or in a "
        "folder that --roofline-baselines names; then run\n"
        f"roofline hardware check baselines/{HARDWARE_FILE}\n\n{text}"
    )
