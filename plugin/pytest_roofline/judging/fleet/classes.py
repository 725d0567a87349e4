"""Classes of tests by what they stress, since a part that is sick is slow in one class and not in the others."""

from collections.abc import Mapping

from ...core.work import rate_suffix
from ..many import Test

MEMORY, HOST, PEER, ARITHMETIC, COLLECTIVES = "memory", "host link", "peer link", "arithmetic", "collectives"
LATENCY, OTHER = "latency", "other"

# Shorter calls are mostly their start: about 5 to 10 µs on any accelerator, so that no bandwidth shows in them.
SHORT_S = 50e-6

# What to look at where a class is slow.
LOOK: Mapping[str, str] = {
    MEMORY: "memory clock, ECC errors and remapped rows, temperature of the memory",
    HOST: "PCIe generation and width, the slot, NUMA placement, IOMMU",
    PEER: "the state and errors of its links (nvidia-smi nvlink -e, amd-smi xgmi), the switch's log",
    ARITHMETIC: "clocks under load, power limit, temperature, cooling",
    COLLECTIVES: "its GPUs and links one by one, topology and settings of the library",
    LATENCY: "CPU frequency governor, load of the host, driver settings",
    OTHER: "roofline doctor on it",
}


def class_of_test(test: Test, seconds: float) -> str:
    """The class of a test.

    Args:
        test: the test.
        seconds: of one call, on what is healthy.
    """
    suffix, several = rate_suffix(test.key.metric), test.several
    if suffix == "TFLOPS" and not several:
        return ARITHMETIC if seconds >= SHORT_S else LATENCY
    if suffix in ("busbw_GBps", "algbw_GBps"):
        return COLLECTIVES if seconds >= SHORT_S else LATENCY
    if suffix is None:
        return OTHER
    if seconds < SHORT_S:
        return LATENCY
    if several:
        return PEER
    return HOST if test.work.wire_bytes else MEMORY
