"""Cells: a product and a resource. Which tests a floor of one holds, and which records are of it.

A record is of a cell where its number is of the same thing as ours: resource, method, link, counting, and a size that
saturates. It is converted here, and left out here, with the reason.
"""

import re
from dataclasses import dataclass, field, replace

from healthy import Healthy
from sizes import GIB

from pytest_roofline.core.keys import Scalar
from pytest_roofline.hardware import Product, catalogue

# What the surveys call the products that get floors, by product and memory of a hardware key.
PRODUCTS = {
    "a100-sxm4-40gb": ("a100-sxm4", "40gb"),
    "a100-sxm4-80gb": ("a100-sxm4", "80gb"),
    "a100-pcie-40gb": ("a100-pcie", "40gb"),
    "a100-pcie-80gb": ("a100-pcie", "80gb"),
    "h100-sxm5-80gb": ("h100-sxm5", "80gb"),
    "h100-pcie-80gb": ("h100-pcie", "80gb"),
    "h100-nvl-94gb": ("h100-nvl", "94gb"),
    "h200-sxm-141gb": ("h200-sxm", "141gb"),
    "mi300x-192gb": ("mi300x-oam", "192gb"),
    "mi210-64gb": ("mi210-pcie", "64gb"),
    "mi250x-128gb-gcd": ("mi250x-oam", "64gb"),
    "v100-sxm2-16gb": ("v100-sxm2", "16gb"),
    "v100-sxm2-32gb": ("v100-sxm2", "32gb"),
    "v100-pcie-16gb": ("v100-pcie", "16gb"),
    "v100-pcie-32gb": ("v100-pcie", "32gb"),
}
# A form whose sizes of memory share links and switches: a figure of either is one of both, but not of its memory.
_EITHER_SIZE = {"a100-sxm4-size-unstated": ("a100-sxm4-40gb", "a100-sxm4-80gb")}
_LINKS = ("peer_one_way", "peer_both_ways", "all_reduce_busbw")
# A measurement touches so many last-level caches before it uses any byte again.
CACHES = 4
# Below it, a figure of a link may still be bound by latency; a figure at more holds for any size above.
LINK_FROM_BYTES = 30e6
# A cube or square from here on; smaller products are bound by the launch or leave multiprocessors idle.
CUBE_FROM = 6000
RANKS = 8
# Cubes between this and the one before count where their source has none that is larger.
_NEARLY = 4000
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Target:
    """Tests that a floor holds: a benchmark and those of its parameters that matter.

    Args:
        name: of the measurement; of a tool the statistic.
        rocm: whether the tool is of cards under ROCm; None for all cards.
    """

    benchmark: str
    parameters: dict[str, Scalar] = field(default_factory=dict)
    name: str = ""
    rocm: bool | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """What a floor is of, on any product.

    Args:
        name: as the page calls it.
        method: as the page calls it, and which margin is taken.
        targets: the tests.
        metric: what is counted, as a rate's suffix.
        from_amount: the least bytes or FLOP of that metric in one call.
        peaks: names of the datasheet's peak in the catalogue, the first that a product has; of links with the class.
        devices: that take part.
        ways: how many directions are added up.
    """

    name: str
    method: str
    targets: tuple[Target, ...]
    metric: str
    from_amount: int
    peaks: tuple[str, ...]
    devices: int = 1
    ways: int = 1


def _streams(*operations: str) -> tuple[Target, ...]:
    return tuple(
        Target(name, {"operation": one})
        for name in ("stream", "stream_large")
        for one in operations
    )


def _babelstream(*kernels: str) -> tuple[Target, ...]:
    """The kernels of BabelStream, whose published rates are the best of a hundred calls."""
    return tuple(Target(f"babelstream.{kernel}", name="best") for kernel in kernels)


def _nvbandwidth(case: str) -> tuple[Target, ...]:
    """A test case of nvbandwidth, whose older versions do not say which statistic they print."""
    return tuple(
        Target(f"nvbandwidth.{case}", name=name, rocm=False)
        for name in ("median", "median_or_mean")
    )


_PINNED: dict[str, Scalar] = {"memory": "pinned"}
_CUBE_FLOP = 2 * 8192**3
MEMORY = ("memory_GBps",)
PEER = ("nvlink_GBps", "xgmi_GBps")
COPY, KERNEL, DOT, H2D, D2H, ONE_WAY, BOTH_WAYS, ALL_REDUCE = (
    # PyTorch's `copy_` within a device is the driver's own copy, and no kernel of PyTorch's.
    Resource(
        "memory, copied",
        "copy engine",
        (Target("memcpy_d2d"), *_streams("copy"), *_babelstream("copy")),
        "traffic_GBps",
        2**29,
        MEMORY,
    ),
    Resource(
        "memory, by kernels",
        "own kernel",
        (
            Target("memcpy_d2d_triton"),
            *_streams("scale", "add", "triad"),
            *_babelstream("mul", "add", "triad"),
        ),
        "traffic_GBps",
        2**29,
        MEMORY,
    ),
    Resource(
        "memory, dot product",
        "library",
        (*_streams("dot"), *_babelstream("dot")),
        "traffic_GBps",
        2**29,
        MEMORY,
    ),
    Resource(
        "host to device",
        "host link",
        (Target("memcpy_h2d", _PINNED), *_nvbandwidth("host_to_device_memcpy_ce")),
        "payload_GBps",
        2**26,
        ("pcie_GBps",),
    ),
    Resource(
        "device to host",
        "host link",
        (Target("memcpy_d2h", _PINNED), *_nvbandwidth("device_to_host_memcpy_ce")),
        "payload_GBps",
        2**26,
        ("pcie_GBps",),
    ),
    Resource(
        "peer, one way", "peer link", (Target("peer_copy_one_way"),), "payload_GBps", 2**28, PEER, 2
    ),
    Resource(
        "peer, both ways",
        "peer link",
        (Target("peer_copy_both_ways"),),
        "payload_GBps",
        2**28,
        PEER,
        2,
        2,
    ),
    Resource(
        f"all_reduce of {RANKS}",
        "all_reduce",
        (
            Target("all_reduce", {"world_size": RANKS, "dtype": "fp32"}),
            Target("nccl_tests.all_reduce", {"dtype": "fp32"}, "mean", rocm=False),
            Target("rccl_tests.all_reduce", {"dtype": "fp32"}, "mean", rocm=True),
        ),
        "busbw_GBps",
        2 * (RANKS - 1) * GIB // RANKS,
        PEER,
        RANKS,
    ),
)


def _gemm(dtype: str, test: str = "") -> Resource:
    # Nine tenths of it, so that a cube of 8192 is within however its edges are counted.
    peaks = (f"{dtype}_matrix_TFLOPS", f"{dtype}_TFLOPS")
    target = Target("gemm", {"dtype": test or dtype})
    return Resource(
        f"GEMM, {dtype}", "GEMM", (target,), f"{dtype}_TFLOPS", _CUBE_FLOP * 9 // 10, peaks
    )


# Of fp8 every figure is of one scale for a whole tensor; scales by row are another kernel.
GEMMS = (
    *(_gemm(dtype) for dtype in ("bf16", "fp16", "tf32", "fp32")),
    _gemm("fp8", "fp8_tensorwise"),
)
RESOURCES = (COPY, KERNEL, DOT, H2D, D2H, ONE_WAY, BOTH_WAYS, *GEMMS, ALL_REDUCE)


@dataclass(frozen=True, slots=True)
class Figure:
    """A record as one figure of a resource of one product, in our counting: GB/s or TFLOP/s."""

    record: Healthy
    product: str
    resource: Resource
    rate: float
    # The best over shapes, or of both directions, or the fastest call: not what any one gives by itself.
    best_of: bool = False
    # Of a product that is nearly large enough.
    small: bool = False


def known(product: str) -> Product:
    """The product of the catalogue, by the survey's name."""
    return next(one for one in catalogue().products if one.key == PRODUCTS[product])


def is_rocm(product: str) -> bool:
    """Whether it is driven by ROCm."""
    return known(product).architecture.startswith("gfx")


def link_of(product: str) -> str | None:
    """The class of link for which the catalogue knows a pair's peak; None without one."""
    peaks, form = known(product).peaks, PRODUCTS[product][0]
    if "xgmi_GBps" in peaks:
        return "xgmi"
    # Cards with a bridge, and boards whose links go from GPU to GPU, have as many links as somebody wired.
    return "nvlink-switch" if "sxm" in form and "nvlinks" in peaks else None


def figures(records: list[Healthy]) -> tuple[list[Figure], list[tuple[Healthy, str]]]:
    """Every record as a figure of one or two products; and those that are none, with the reason."""
    found, left_out = [], []
    for record in records:
        either = _EITHER_SIZE.get(record.product, ()) if record.resource in _LINKS else ()
        products = either or ((record.product,) if record.product in PRODUCTS else ())
        if not products:
            left_out.append(
                (record, "product, form or memory is none that gets floors, or is not stated")
            )
        for product in products:
            one = _figure(record, product)
            if isinstance(one, str):
                left_out.append((record, one))
                continue
            found.append(one)
            found += _also(one)
    large = {_of_source(one) for one in found if not one.small}
    needless = [one for one in found if one.small and _of_source(one) in large]
    left_out += [(one.record, "its source has a larger product") for one in needless]
    return [one for one in found if one not in needless], left_out


def _of_source(one: Figure) -> tuple[str, str, str]:
    return one.product, one.resource.name, one.record.group


def _also(one: Figure) -> list[Figure]:
    """The same of another resource: a kernel that only reads does what a dot product does; both directions in one."""
    if one.resource is KERNEL and re.search(r"_read_|^read_", one.record.metric):
        return [replace(one, resource=DOT)]
    if "best_direction" in one.record.metric:
        return [replace(one, resource=D2H)]
    return []


def _figure(record: Healthy, product: str) -> Figure | str:
    if record.kind != "measured":
        return "not measured: a limit, or derived from something else"
    if record.resource.startswith("device_memory"):
        return _memory(record, product)
    if record.resource.startswith("host_"):
        return _host(record, product)
    if record.resource.startswith("peer_"):
        return _peer(record, product)
    if record.resource == "all_reduce_busbw":
        return _all_reduce(record, product)
    return _product(record, product)


def _memory(record: Healthy, product: str) -> Figure | str:
    size = bytes_of(record.size)
    facts = known(product).facts
    cache = (facts.get("llc_MiB") or facts["l2_MiB"]).value * _MIB
    # Copies have two buffers, and the kernels of STREAM at least two arrays.
    if size is not None and 2 * size < CACHES * cache:
        return f"{2 * size / cache:.1f} last-level caches are touched before a byte is used again; expected {CACHES}"
    rate = record.value * (2 if "_payload_" in record.metric else 1)
    if record.resource == "device_memory_copy":
        return Figure(record, product, COPY, rate)
    if "_init_" in record.metric:
        return "it writes one array only"
    return Figure(record, product, DOT if "_dot_" in record.metric else KERNEL, rate)


def _host(record: Healthy, product: str) -> Figure | str:
    if re.search(r"_(sm_copy|kernel)_", record.metric) and not is_rocm(product):
        return "copied by multiprocessors; ours by the copy engine"
    size = bytes_of(record.size)
    if size is not None and size < LINK_FROM_BYTES:
        return "too small for a link's rate"
    resource = H2D if record.resource == "host_h2d_pinned" else D2H
    return Figure(
        record, product, resource, record.value, best_of="best_direction" in record.metric
    )


def _peer(record: Healthy, product: str) -> Figure | str:
    link = "xgmi" if link_of(product) == "xgmi" else record.link
    if link_of(product) is None or link != link_of(product):
        return f"over {record.link or 'a link'}, of which no peak is known for one pair"
    if "_sm_" in record.metric and not is_rocm(product):
        return "copied by multiprocessors; ours by the copy engine"
    if record.metric.startswith("a2a"):
        return "all links loaded at once"
    both = record.resource == "peer_both_ways"
    rate = record.value * (2 if "_per_dir_" in record.metric else 1)
    return Figure(record, product, BOTH_WAYS if both else ONE_WAY, rate)


def _all_reduce(record: Healthy, product: str) -> Figure | str:
    size = bytes_of(record.size)
    if record.gpus != RANKS or link_of(product) is None:
        return f"not among {RANKS} GPUs of which the links are known"
    if size is None or size < GIB:
        return "below 1 GiB, or the size is not stated"
    if re.search(r"\bRing\b", record.setting):
        return "by an algorithm that was forced"
    return Figure(record, product, ALL_REDUCE, record.value)


def _product(record: Healthy, product: str) -> Figure | str:
    resource = next(
        (one for one in GEMMS if one.name == f"GEMM, {record.resource.removeprefix('gemm_')}"), None
    )
    if resource is None:
        return "of a type that no test of ours multiplies"
    best = (
        bool(re.search(r"best shape|fastest|best size of", record.statistic))
        or "best shape" in record.size
    )
    # The best of a sweep over squares is that of some square; any other cube must be large enough itself.
    cube = re.match(r"(\d+)(?:\^3|x\1x\1\b)", record.size)
    squares = "square" in record.size
    if cube and int(cube[1]) < _NEARLY:
        return "too small a product"
    if cube and int(cube[1]) < CUBE_FROM:
        return Figure(record, product, resource, record.value, best_of=True, small=True)
    return Figure(record, product, resource, record.value, best or not (cube or squares))


def bytes_of(text: str) -> int | None:
    """The size that a record names, in bytes: of an array, a buffer or a message; None where it names none."""
    if "sample default buffer" in text:
        # p2pBandwidthLatencyTest copies 40 million integers.
        return 160_000_000
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?) ?([KMG])(i?)B\b", text)
    if not found:
        return None
    power = "KMG".index(found[2]) + 1
    return round(float(found[1]) * (1024**power if found[3] else 1000**power))
