"""Copies between host and device, and within a device's memory, as several tools count them."""

from dataclasses import replace

from figures import Figure
from meaning import LARGE_BYTES, Found, Meaning, differing
from sizes import GIB, SIZE_OF_TOOL, TOOL, bytes_of, ours

GIB_PER_GB = GIB / 1e9
# CSCS: what a reference may miss. Source: checks/microbenchmarks/gpu/memory_bandwidth/memory_bandwidth.py.
CSCS_TOLERANCE = 0.9


def _copy(figure: Figure, way: str, metric: str, **more: object) -> Meaning:
    size_bytes = bytes_of(figure.size)
    size = {} if size_bytes is None else {"size_bytes": ours(size_bytes)}
    memory = {} if way == "d2d" else {"memory": "pinned"}
    meaning = Meaning(f"memcpy_{way}", {**size, **memory}, metric, figure.convention)
    meaning = replace(meaning, **more)  # type: ignore[arg-type]
    if size_bytes is None:
        at = {"size_bytes": LARGE_BYTES} | meaning.parameters
        return differing(replace(meaning, parameters=at), size="size not stated")
    if size_bytes != ours(size_bytes):
        return differing(meaning, size=f"at {size_bytes:,} bytes")
    return meaning


def limit_of_copy_engine(figure: Figure) -> Found:
    """Both ways in one number: pinned memory, the copy engine, 512 MiB, the median: as ours."""
    convention = f"{figure.convention}; {figure.size}, median"
    found = [
        _copy(figure, way, "pinned_auto_payload_GBps", statistic="median") for way in ("h2d", "d2h")
    ]
    return [replace(meaning, convention=convention) for meaning in found]


def limit_of_rocm(figure: Figure) -> Found:
    if "rocm-bandwidth-test" in figure.size:
        found = [
            _copy(
                figure,
                way,
                "payload_GBps",
                statistic="best",
                convention=f"{figure.convention}; {figure.size}",
            )
            for way in ("h2d", "d2h")
        ]
        why = "rocm-bandwidth-test copies by the DMA engine that it finds; ROCm chooses for PyTorch"
        return [
            differing(meaning, engine=why, statistic="the fastest of its copies")
            for meaning in found
        ]
    both = "bidir_sum" in figure.metric
    asked = f"{96 if both else 48} GB/s, of which 95 % are asked for, cut to a whole number"
    convention = f"{asked}: {figure.value:g} GB/s; {figure.size}"
    found = [_copy(figure, way, "payload_GBps", convention=convention) for way in ("h2d", "d2h")]
    if both:
        size = {"size_bytes": found[0].parameters["size_bytes"]}
        metric = "bidir_sum_pinned_auto_payload_GBps"
        found = [replace(found[0], benchmark="memcpy_both_ways", parameters=size, metric=metric)]
    why = "copied by 7 to 10 compute units, the best of them; ROCm chooses for PyTorch"
    return [
        differing(meaning, engine=why, statistic="the best over numbers of compute units")
        for meaning in found
    ]


def host_link(figure: Figure) -> Found:
    way = figure.metric[:3]
    if figure.metric.endswith("_sm_copy_payload_GBps"):
        meaning = _copy(figure, way, "payload_GBps", statistic="median")
        return [
            differing(meaning, engine="copied by the multiprocessors (SM), ours by the copy engine")
        ]
    if figure.metric.endswith("GiBps"):
        factor, convention = _cscs(figure, "")
        meaning = _copy(
            figure,
            way,
            "pinned_auto_payload_GBps",
            statistic="mean",
            factor=factor,
            convention=convention,
        )
        return [differing(meaning, statistic="the mean of 20 copies")]
    engine = "memcpy_ce" in figure.size
    meaning = _copy(figure, way, "pinned_auto_payload_GBps", statistic="median" if engine else None)
    if "memcpy_ce" in figure.size and "size" in meaning.apart:
        # The tool's own size, unless another is said.
        meaning = replace(meaning, apart={"size": "size not stated; the tool's default is 512 MiB"})
    if "host_to_all" in figure.size:
        meaning = differing(meaning, operation="to all devices, one after the other")
    return [meaning if engine else differing(meaning, conditions="tool and statistic not stated")]


def _cscs(figure: Figure, counted: str) -> tuple[float, str]:
    """The factor of a reference of CSCS that is printed in GB/s and divided by 2^30, and its convention in words."""
    value = figure.value * GIB_PER_GB
    text = (
        f"reference of {figure.value:g} GiB/s (printed as GB/s, divided by 2^30){counted} = {value:.4g} GB/s, less its "
        f"own tolerance of 10 %; {figure.size}"
    )
    return GIB_PER_GB * CSCS_TOLERANCE, text


def local_copy(figure: Figure) -> Found:
    if figure.metric.endswith("GiBps"):
        factor, convention = _cscs(figure, ", payload twice")
        meaning = _copy(
            figure, "d2d", "traffic_GBps", statistic="mean", factor=factor, convention=convention
        )
        return [
            differing(
                meaning, engine="by whichever engine the runtime chose there", statistic="the mean"
            )
        ]
    if figure.metric == "device_local_copy_payload_GBps":
        convention = "payload, one way, 1e9: times 2 for traffic"
        meaning = _copy(
            figure, "d2d", "traffic_GBps", factor=2.0, statistic="median", convention=convention
        )
        meaning = replace(meaning, apart={"size": "size not stated; the tool's default is 512 MiB"})
        return [differing(meaning, engine="by the copy engine; PyTorch's runtime chooses")]
    meaning = replace(
        _copy(figure, "d2d", "traffic_GBps"), convention=f"{figure.convention}; {figure.size}"
    )
    if TOOL in figure.size:
        meaning = differing(meaning, size=SIZE_OF_TOOL)
        if "bidirectional" in figure.size:
            meaning = differing(meaning, conditions="two copies at once")
    if figure.kind == "derived":
        meaning = replace(meaning, statistic="mean")
        note = "the operator's own reference, before its tolerance of 10 %"
        return [
            differing(
                meaning, engine="by whichever engine the runtime chose there", conditions=note
            )
        ]
    return [differing(meaning, engine="by whichever engine the runtime chose there")]
