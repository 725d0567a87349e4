"""What to say of hardware whose peaks nobody wrote down, and what to write down."""

import json
import shlex

from ...core.facts import DeviceFacts
from ...core.units import printable, slug
from .added import FILE
from .keys import is_part
from .products import product_of


def unknown_line(device: DeviceFacts) -> str:
    """That no share of a roofline can be shown for want of the device's peaks, and how to add them; else empty."""
    if device.type == "cpu":
        return ""
    known, name = product_of(device), printable(device.product)
    if known is None:
        return (
            f'roof: no peaks are known of "{name}", so nothing is shown as a share of them; '
            f"`roofline hardware show {shlex.quote(name)}` prints how to add it"
        )
    if is_part(device, known):
        return f'roof: this is a part of a "{name}", and no datasheet tells the peaks of a part'
    return ""


def how_to_add(name: str) -> str:
    """The steps, and a file to fill in, for a name that is not known."""
    figure = {"value": None, "source": "the datasheet's address", "confidence": "high"}
    product = {
        "family": slug(name),
        "product": slug(name),
        "memory": "24gb",
        "variant": "which one of its name it is, such as PCIe-24GB",
        "architecture": "sm_89",
        "memory_type": "GDDR6",
        "names": [{"name": name, "source": "torch.cuda.get_device_name() on one"}],
        "facts": {"units": figure, "clock_MHz": figure, "memory_bus_bits": figure},
        "peaks": {"memory_GBps": figure, "bf16_TFLOPS": figure},
    }
    text = json.dumps({"schema": 1, "products": [product]}, indent=2, ensure_ascii=False)
    return (
        "Fill this in from its datasheet, dense rates and one direction, and leave out what you cannot find; save it "
        f"as {FILE} in the baselines/ of your tests, or in a folder that --roofline-baselines names; then run\n"
        f"roofline hardware check baselines/{FILE}\n\n{text}"
    )
