"""Which hardware this is: its key, its family, and the very device."""

from ...core.facts import DeviceFacts, Environment, HardwareKey, HostFacts
from ...core.units import GIB, slug
from .products import product_of
from .rated import LEAST_SHARE, Product


def identity_of(environment: Environment) -> str:
    """Which very device this is: its UUID; empty on a CPU, whose hosts come and go under new names.

    An accelerator without a UUID is known by its host and index, so that another host's counts as another device.
    """
    device = environment.device
    if device.type == "cpu":
        return ""
    return device.uuid or f"{environment.host.name}:{device.index}"


def family_of(device: DeviceFacts) -> str:
    """The name of the baseline file for a device: `cpu`, `h100`, or the device's own name where it is unknown."""
    if device.type == "cpu":
        return "cpu"
    known = product_of(device)
    return known.family if known else slug(device.product)


def key_of(environment: Environment, devices: int = 1, link: str = "none") -> HardwareKey:
    """The hardware key of a measurement on `environment`'s device."""
    device = environment.device
    if device.type == "cpu":
        return _cpu_key(environment.host, device, link)
    known = product_of(device)
    return HardwareKey(
        product=known.product if known else slug(device.product),
        memory=known.memory if known else _whole_gib(device.memory_bytes),
        partition=_partition(device, known),
        devices=devices,
        link=link,
    )


def _partition(device: DeviceFacts, known: Product | None) -> str:
    """The partition that a driver names, or one seen by its share: an MI300X in CPX mode shows an eighth of its own."""
    if device.partition or known is None:
        return device.partition or "none"
    if _has_less_memory(device, known):
        return _whole_gib(device.memory_bytes)
    return f"{device.units}-units" if has_fewer_units(device, known) else "none"


def is_part(device: DeviceFacts, known: Product) -> bool:
    """Whether a device is a part of its product, whose peaks nobody rated: by its driver, its memory or its units."""
    return bool(device.partition) or _has_less_memory(device, known) or has_fewer_units(device, known)


def has_fewer_units(device: DeviceFacts, known: Product) -> bool:
    """Whether a device shows fewer units than its product has; a `7g.40gb` of an A100 has all memory, and 98 of 108."""
    rated = known.facts.get("units")
    return rated is not None and device.units is not None and device.units < rated.value


def _has_less_memory(device: DeviceFacts, known: Product) -> bool:
    rated, seen = known.memory_bytes, device.memory_bytes
    return rated is not None and seen is not None and seen <= LEAST_SHARE * rated


def _cpu_key(host: HostFacts, device: DeviceFacts, link: str) -> HardwareKey:
    cores = f"{host.usable_cores}-cores"
    quota = f"-quota-{host.cgroup_cpus:g}" if host.cgroup_cpus is not None else ""
    # Virtual machines print a bare "AMD EPYC" for chips years apart; family and model tell them from each other.
    product = slug(" ".join(filter(None, (device.product, device.architecture))))
    return HardwareKey(
        product=product, memory=_whole_gib(host.usable_memory_bytes), partition=cores + quota, devices=1, link=link
    )


def _whole_gib(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{round(size_bytes / GIB)}gib"
