"""Every product by what its drivers print: the right key, the right file of baselines, the right limits in it."""

from dataclasses import replace

from pytest_roofline.baselines.files import entries_of
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import Key
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import datasheet_ceiling, family_of, key_of, products, unknown_line

from .conftest import D2H, H2D, ROOT
from .recorded import PRODUCTS, environment_of, facts_of, recorded

# By recorded product: the family, and with it the file of baselines, and the key's product and memory.
KNOWN = {
    "v100-sxm2-16gb": ("v100", "v100-sxm2", "16gb"),
    "v100-sxm2-32gb": ("v100", "v100-sxm2", "32gb"),
    "v100-pcie-16gb": ("v100", "v100-pcie", "16gb"),
    "v100-pcie-32gb": ("v100", "v100-pcie", "32gb"),
    "a100-sxm4-40gb": ("a100", "a100-sxm4", "40gb"),
    "a100-sxm4-80gb": ("a100", "a100-sxm4", "80gb"),
    "a100-pcie-40gb": ("a100", "a100-pcie", "40gb"),
    "a100-pcie-80gb": ("a100", "a100-pcie", "80gb"),
    "h100-sxm5-80gb": ("h100", "h100-sxm5", "80gb"),
    "h100-pcie-80gb": ("h100", "h100-pcie", "80gb"),
    "h100-nvl-94gb": ("h100", "h100-nvl", "94gb"),
    "h200-141gb": ("h200", "h200-sxm", "141gb"),
    "b200-180gb": ("b200", "b200-sxm", "180gb"),
    "l4-24gb": ("l4", "l4-pcie", "24gb"),
    "l40s-48gb": ("l40s", "l40s-pcie", "48gb"),
    "t4-16gb": ("t4", "t4-pcie", "16gb"),
    "rtx-3090-24gb": ("rtx-3090", "rtx-3090", "24gb"),
    "rtx-4090-24gb": ("rtx-4090", "rtx-4090", "24gb"),
    "mi210-64gb": ("mi210", "mi210-pcie", "64gb"),
    "mi250x-64gb": ("mi250x", "mi250x-oam", "64gb"),
    # Under a name that it shares with the MI250X, of 110 compute units a die.
    "mi250-64gb": ("mi250x", "mi250-oam", "64gb"),
    "mi300x-192gb": ("mi300x", "mi300x-oam", "192gb"),
    "mi300x-vf-192gb": ("mi300x", "mi300x-oam", "192gb"),
    "mi325x-256gb": ("mi325x", "mi325x-oam", "256gb"),
}
# No data of hardware has these names, however much of another's they hold: "NVIDIA H200" begins with "NVIDIA H20".
UNKNOWN = {
    "h20-96gb": ("nvidia-h20", "95gib"),
    "a800-sxm4-80gb": ("nvidia-a800-sxm4-80gb", "unknown"),
    "gh200-480gb": ("nvidia-gh200-480gb", "94gib"),
}
# One of the eight devices that an MI300X is to torch in CPX mode.
PART = "mi300x-cpx-24gb"
# The published limits that gate on day one, in GB/s, of STREAM's scale, add and triad; every other product has none.
# Microsoft's machines with MI300X are virtual ones.
MI300X, MI250X = (4067.069, 3920.853, 3885.301), (1200, 1100, 1100)
LIMITS = {
    "mi210-64gb": (1225, 1115, 1115),
    **dict.fromkeys(("mi250-64gb", "mi250x-64gb"), MI250X),
    **dict.fromkeys(("mi300x-192gb", "mi300x-vf-192gb"), MI300X),
}


def key(product, test):
    """The key that a test of the benchmarks has on a product."""
    name, _, parameter = test.removeprefix("test_").partition("[")
    hardware = key_of(environment_of(product))
    if name == "stream_large":
        return Key(
            name, {"operation": parameter.rstrip("]")}, "traffic_GBps", hardware, "rotate", "device"
        )
    parameters = {"size_bytes": 512 * 2**20, "memory": "pinned"}
    return Key(name, parameters, "pinned_auto_payload_GBps", hardware, "rotate", "device")


def test_every_product_has_the_family_and_key_of_its_own_name_or_none_and_what_is_recorded_its_sources():
    assert sorted(PRODUCTS) == sorted([*KNOWN, *UNKNOWN, PART])
    for product, (family, name, memory) in KNOWN.items():
        assert family_of(facts_of(product)) == family
        assert key_of(environment_of(product)) == HardwareKey(name, memory, "none", 1, "none")
    for product, (name, memory) in UNKNOWN.items():
        assert (family_of(facts_of(product)), facts_of(product).product in products()) == (
            name,
            False,
        )
        assert key_of(environment_of(product)) == HardwareKey(name, memory, "none", 1, "none")
    for product in PRODUCTS:
        told = recorded(product)
        parts = {
            part
            for part in ("torch", "nvml", "amdsmi")
            if any(x is not None for x in told.get(part, {}).values())
        }
        assert (all(told["sources"].values()), set(told["sources"])) == (True, parts), product


def test_a_product_finds_its_limits_and_no_others():
    tests = (
        H2D,
        D2H,
        *(f"test_stream_large[{name}]" for name in ("copy", "scale", "add", "triad", "dot")),
    )
    for product in PRODUCTS:
        entries = entries_of(family_of(facts_of(product)), (ROOT / "baselines",))
        found = {
            test: entry.value
            for test in tests
            for entry in entries.of(key(product, test).benchmark, "")
            if entry.gates and entry.kind == "threshold" and entry.matches(key(product, test))
        }
        assert found == dict(zip(tests[3:6], LIMITS.get(product, ()), strict=False)), product


def test_a_partition_has_a_key_of_its_own_and_no_roofline():
    copy, facts = Work(read_bytes=2**26, write_bytes=2**26), facts_of(PART)
    assert key_of(environment_of(PART)) == HardwareKey("mi300x-oam", "192gb", "cpx", 1, "none")
    assert datasheet_ceiling(facts_of("mi300x-192gb"), copy, "traffic_GBps").value == 5.3e12
    # Where the driver's library is not there, or a virtual machine shows all of the memory, its units tell.
    shown = (
        {},
        {"partition": None},
        {"memory_bytes": None},
        {"memory_bytes": None, "partition": None},
    )
    for changes in (
        *shown,
        {"memory_bytes": facts_of("mi300x-192gb").memory_bytes, "partition": None},
    ):
        part = replace(facts, **changes)
        assert datasheet_ceiling(part, copy, "traffic_GBps") is None
        assert "this is a part of" in unknown_line(part)
        assert key_of(replace(environment_of(PART), device=part)).partition != "none"
