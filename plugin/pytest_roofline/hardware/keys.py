"""The key of a hardware, its family, and the identity of a device. Also the lines on a device without known peaks."""

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
    """Return a text that tells one device from another of its kind.

    It is the UUID; empty for a CPU. An accelerator without a UUID is identified by its node and index, so that those of
    other nodes count as other devices. A CPU has no identity, since nodes often come and go under new names.
    """
    device = environment.device
    if device.type == "cpu":
        return ""
    return device.uuid or f"{environment.host.name}:{device.index}"


def family_of(device: DeviceFacts) -> str:
    """Return the name of a device's baseline file: `cpu`, `h100`.

    It is made from the name of the device if the product is unknown.
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
    """Return the partition of a device, `none` for a whole one.

    It is the one that the driver names. Otherwise a device that has less memory, or fewer units, than its product is
    named by these: an MI300X in CPX mode shows an eighth of itself.
    """
    if device.partition or product is None:
        return device.partition or "none"
    if _has_less_memory(device, product):
        return _whole_gib(device.memory_bytes)
    return f"{device.units}-units" if has_fewer_units(device, product) else "none"


def is_part(device: DeviceFacts, product: Product) -> bool:
    """Return True where a device is only a part of its product.

    Its driver, its memory or its units show it. A part has no rated peaks.
    """
    return (
        bool(device.partition)
        or _has_less_memory(device, product)
        or has_fewer_units(device, product)
    )


def has_fewer_units(device: DeviceFacts, product: Product) -> bool:
    """Return True where a device shows fewer units than its product.

    A `7g.40gb` of an A100 has all of the memory, but 98 of 108 units.
    """
    rated = product.facts.get("units")
    return rated is not None and device.units is not None and device.units < rated.value


def _has_less_memory(device: DeviceFacts, product: Product) -> bool:
    """Return True where a device shows too little memory for a whole product."""
    rated_bytes, visible_bytes = product.memory_bytes, device.memory_bytes
    return (
        rated_bytes is not None
        and visible_bytes is not None
        and visible_bytes <= LEAST_SHARE * rated_bytes
    )


def _cpu_key(host: HostFacts, device: DeviceFacts, link: str) -> HardwareKey:
    """Return the hardware key of a CPU; its usable cores stand for a partition."""
    cores = f"{host.usable_cores}-cores"
    quota = f"-quota-{host.cgroup_cpus:g}" if host.cgroup_cpus is not None else ""
    # Virtual machines report a bare "AMD EPYC" for chips that are years apart; the architecture tells them apart.
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
    """Return the line that a device has no known peaks; empty where it has.

    For an unknown product the line says how to add them.
    """
    if device.type == "cpu":
        return ""
    product, name = product_of(device), printable(device.product)
    if is_slice(name):
        return part_line(name)
    if product is None:
        return (
            f'roof: the peaks of "{name}" are unknown, so no share of a peak is shown; '
            f"`roofline hardware {shlex.quote(name)}` prints how to add them"
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
        name: of the device, or of the slice.
        evidence: what shows that it is a part, with a blank before it; empty where the name does.
    """
    return f'roof: this is a part of a "{_SLICE.sub("", name)}"{evidence}, and no datasheet gives the peaks of a part'


def is_slice(name: str) -> bool:
    """Return True for the name of a slice of a GPU (MIG)."""
    return _SLICE.search(name) is not None


def how_to_add(name: str) -> str:
    """Return the steps to add an unknown device, and a file to fill in.

    The file is refused as long as anything in it is empty.
    """
    figure = {"value": None, "source": "", "confidence": "recalled"}
    product = {
        "family": slug(name),
        "product": slug(name),
        "memory": "",
        "variant": "",
        "architecture": "",
        "names": [{"name": name, "source": "torch.cuda.get_device_name() on this product"}],
        "facts": {"units": figure, "clock_MHz": figure, "memory_bus_bits": figure},
        "peaks": {"memory_GBps": figure, "bf16_TFLOPS": figure},
    }
    text = json.dumps({"schema": 1, "products": [product]}, indent=2, ensure_ascii=False)
    return (
        "Fill in this form from the datasheet, with dense rates and the rates of one direction. Give each figure its "
        "source and your confidence (high, medium, low, recalled). Leave out what you cannot find. Save the form as "
        f"{HARDWARE_FILE} in the baselines/ of your tests, or in a folder that --roofline-baselines names; then run\n"
        f"roofline baseline check baselines/{HARDWARE_FILE}\n\n{text}"
    )
