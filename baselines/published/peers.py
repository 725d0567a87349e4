"""Copies from one device to another, as several tools count them."""

from dataclasses import replace

from figures import Figure
from groups import conditions
from meaning import LARGE_BYTES, Found, Meaning, differing
from sizes import SIZE_OF_TOOL, TOOL, bytes_of, ours
from variants import link_of


def peer(figure: Figure) -> Found:
    both = "bidir" in figure.metric
    size_bytes = bytes_of(figure.size)
    meaning = Meaning(
        "peer_copy_both_ways" if both else "peer_copy_one_way",
        {"size_bytes": LARGE_BYTES if size_bytes is None else ours(size_bytes)},
        "bidir_sum_auto_payload_GBps" if both else "payload_GBps",
        f"{figure.convention}; {figure.size}",
        devices=2,
        link="staged" if "disabled" in figure.metric else link_of(figure.hardware, figure.variant),
    )
    if TOOL in figure.size:
        meaning = replace(meaning, parameters={"size_bytes": LARGE_BYTES})
        meaning = differing(meaning, size=SIZE_OF_TOOL)
    elif size_bytes is None:
        meaning = differing(meaning, size="size not stated")
    return [_peer_differences(figure, meaning)]


def _peer_differences(figure: Figure, meaning: Meaning) -> Meaning:
    tool, metric = f"{figure.size} {figure.source}", figure.metric
    if "_read_ce" in metric:
        meaning = replace(meaning, statistic="median")
        meaning = differing(
            meaning,
            direction="read by the device that receives; PyTorch's are written by the sender",
        )
    elif "_sm_" in metric:
        meaning = replace(
            meaning, statistic="median", convention="both directions added up, 1e9; " + figure.size
        )
        meaning = differing(
            meaning, engine="read by multiprocessors (SM); PyTorch's are written by a copy engine"
        )
    elif "TransferBench" in tool:
        meaning = differing(
            replace(meaning, statistic="mean"), engine="by compute units; ROCm chooses for PyTorch"
        )
    elif "rocm-bandwidth-test" in tool:
        why = "by the DMA engine that it finds; ROCm chooses for PyTorch"
        meaning = differing(
            replace(meaning, statistic="best"), engine=why, statistic="the fastest of its copies"
        )
    elif "p2pBandwidthLatencyTest" in tool or "cuda-samples" in tool:
        meaning = differing(
            replace(meaning, statistic="mean"), statistic="the mean of 5 copies of zeros"
        )
    if "unstated" in figure.convention and "mi210" not in figure.source:
        meaning = differing(meaning, counting="whether both directions are added up is not stated")
    if "OAM" in figure.variant:
        meaning = differing(meaning, conditions=conditions(figure.variant))
    if "practical" in metric:
        meaning = differing(
            meaning, conditions="a vendor's statement of what is usable of 64, not a measurement"
        )
    return meaning
