"""The key of a hardware, its family and the very device. Also what to say of a device without known
peaks.
"""

import json
import re
import shlex

from ..core.facts import HARDWARE_FILE, DeviceFacts, Environment, HardwareKey, HostFacts
from ..core.units import GIB, printable, slug
from .lookup import product_of
from .specs import LEAST_SHARE, Product

# torch names a slice of a GPU by its profile: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
_SLICE = re.compile(r" MIG (\d+c\.)?\d+g\.\d+gb\S*$")


def identity_of(environment: Environment) -> str:
    """Return which very device this is, by its UUID. Empty on a CPU, whose hosts come and go under
    new names.

    An accelerator without a UUID is known by its host and index, so that another host's counts as another device.
    """
    device = environment.device
    if device.type == "cpu":
        return ""
    return device.uuid or f"{environment.host.name}:{device.index}"


def family_of(device: DeviceFacts) -> str:
    """Return the name of a device's baseline file. It is `cpu`, `h100`, or the device's own name if
    the product is unknown.
    """
    if device.type == "cpu":
        return "cpu"
    product = product_of(device)
    return product.family if product else slug(device.product)


def key_of(environment: Environment, devices: int = 1, link: str = "none") -> HardwareKey:
    """Return the hardware key of a measurement on `environment`'s device."""
    device = environment.device
    if device.type == "cpu":
        return _cpu_key(environment.host, device, link)
    product = product_of(device)
    return HardwareKey(
        product=product.product if product else slug(device.product),
        memory=product.memory if product else _whole_gib(device.memory_bytes),
        partition=_partition(device, product),
        devices=devices,
        link=link,
    )


def _partition(device: DeviceFacts, product: Product | None) -> str:
    """Return the partition that a driver names, or the part that shows. An MI300X in CPX mode shows
    an eighth of itself.
    """
    if device.partition or product is None:
        return device.partition or "none"
    if _has_less_memory(device, product):
        return _whole_gib(device.memory_bytes)
    return f"{device.units}-units" if has_fewer_units(device, product) else "none"


def is_part(device: DeviceFacts, product: Product) -> bool:
    """Return whether a device is a part of its product, without rated peaks. Its driver, its memory
    or its units tell.
    """
    return (
        bool(device.partition)
        or _has_less_memory(device, product)
        or has_fewer_units(device, product)
    )


def has_fewer_units(device: DeviceFacts, product: Product) -> bool:
    """Return whether a device shows fewer units than its product. A `7g.40gb` of an A100 has all
    memory, and 98 of 108.
    """
    rated = product.facts.get("units")
    return rated is not None and device.units is not None and device.units < rated.value


def _has_less_memory(device: DeviceFacts, product: Product) -> bool:
    rated_bytes, visible_bytes = product.memory_bytes, device.memory_bytes
    return (
        rated_bytes is not None
        and visible_bytes is not None
        and visible_bytes <= LEAST_SHARE * rated_bytes
    )


def _cpu_key(host: HostFacts, device: DeviceFacts, link: str) -> HardwareKey:
    cores = f"{host.usable_cores}-cores"
    quota = f"-quota-{host.cgroup_cpus:g}" if host.cgroup_cpus is not None else ""
    # Virtual machines print a bare "AMD EPYC" for chips years apart; family and model tell them from each other.
    product = slug(" ".join(filter(None, (device.product, device.architecture))))
    return HardwareKey(
        product=product,
        memory=_whole_gib(host.usable_memory_bytes),
        partition=cores + quota,
        devices=1,
        link=link,
    )


def _whole_gib(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{round(size_bytes / GIB)}gib"


def unknown_line(device: DeviceFacts) -> str:
    """Return the line that a device has no known peaks; else empty. It says how to add them, since
    no share of a roofline can be shown.
    """
    if device.type == "cpu":
        return ""
    product, name = product_of(device), printable(device.product)
    if is_slice(name):
        return part_line(name)
    if product is None:
        return (
            f'roof: no peaks are known of "{name}", so no share of a peak is shown; '
            f"`roofline hardware {shlex.quote(name)}` prints how to add it"
        )
    if is_part(device, product):
        fewer = (
            f" ({device.units} of {product.facts['units'].value:g} units)"
            if has_fewer_units(device, product)
            else ""
        )
        return part_line(name, fewer)
    return ""


def part_line(name: str, evidence: str = "") -> str:
    """Return the line that a part of a device has no roofline.

    Args:
        name: of the device, be it that of a slice.
        evidence: by what it is known to be a part, after a blank.
    """
    return f'roof: this is a part of a "{_SLICE.sub("", name)}"{evidence}, and no datasheet gives the peaks of a part'


def is_slice(name: str) -> bool:
    """Return whether a name is that of a slice of a GPU (MIG)."""
    return _SLICE.search(name) is not None


def how_to_add(name: str) -> str:
    """Return the steps, and a file to fill in, for an unknown name. As long as anything in the file
    is empty, it is refused.
    """
    figure = {"value": None, "source": "", "confidence": "recalled"}
    product = {
        "family": slug(name),
        "product": slug(name),
        "memory": "",
        "variant": "",
        "architecture": "",
        "names": [{"name": name, "source": "torch.cuda.get_device_name() on one"}],
        "facts": {"units": figure, "clock_MHz": figure, "memory_bus_bits": figure},
        "peaks": {"memory_GBps": figure, "bf16_TFLOPS": figure},
    }
    text = json.dumps({"schema": 1, "products": [product]}, indent=2, ensure_ascii=False)
    return (
        "Fill this in from its datasheet, dense rates and one direction, each with its source and how sure you are "
        "(high, medium, low, recalled), and leave out what you cannot find. Save it as "
        f"{HARDWARE_FILE} in the baselines/ of your tests, or in a folder that --roofline-baselines names; then run\n"
        f"roofline baseline check baselines/{HARDWARE_FILE}\n\n{text}"
    )
