"""Which part of a device a measurement exercises above all: the rungs of the ladder."""

import enum

from ..core.keys import Key
from ..core.units import KIB
from ..core.work import rate_suffix
from . import BOUNDED_FROM_BYTES

# Up to here a copy's time is nearly all launching, and tells nothing of bandwidth.
LAUNCH_MOST_BYTES = 64 * KIB


class Rung(enum.Enum):
    """A part of a device, by the words of a reader."""

    CLOCK = "clock"
    ENGINE = "copy engine"
    MULTIPROCESSORS = "copies by multiprocessors"
    HOST_LINK = "host link"
    PEER_LINK = "peer link"
    PRODUCT = "matrix products"
    LAUNCH = "launching"


# By how a metric begins; the first that fits.
# `auto` is the engine that the driver chooses: between host and device a copy engine, within a device it may be either.
_METRICS = {
    "pinned_": Rung.HOST_LINK,
    "auto_traffic_": Rung.ENGINE,
    "ce_traffic_": Rung.ENGINE,
    "sdma_traffic_": Rung.ENGINE,
    "sm_traffic_": Rung.MULTIPROCESSORS,
    "blit_traffic_": Rung.MULTIPROCESSORS,
}
_STREAMS = ("stream", "stream_large")
# STREAM's copy is PyTorch's own, as that of `memcpy_d2d`; its dot product is a library's reduction, and tells neither.
_OPERATIONS = {
    "copy": Rung.ENGINE,
    "scale": Rung.MULTIPROCESSORS,
    "add": Rung.MULTIPROCESSORS,
    "triad": Rung.MULTIPROCESSORS,
}


def rung_of(key: Key) -> Rung | None:
    """The part of a device that a measurement exercises above all; None where it is none, or several.

    Processors have no rungs: their copies, links and arithmetic are one thing. Copies between 64 KiB and 16 MiB are
    neither all launching nor all bandwidth. Copies from pageable memory tell of the host's processor.
    """
    if "-cores" in (key.hardware.partition or ""):
        return None
    if rate_suffix(key.metric) == "TFLOPS":
        return Rung.PRODUCT if key.hardware.devices == 1 else None
    found = _moves(key)
    size = key.parameters.get("size_bytes")
    if found is None or not isinstance(size, int):
        return found
    return Rung.LAUNCH if size <= LAUNCH_MOST_BYTES else found if size >= BOUNDED_FROM_BYTES else None


def _moves(key: Key) -> Rung | None:
    """By what a measurement moves bytes, whatever their size."""
    if key.benchmark in _STREAMS and key.metric == "traffic_GBps":
        return _OPERATIONS.get(str(key.parameters.get("operation")))
    if key.benchmark.startswith("peer_copy"):
        between = key.hardware.devices not in (None, 1) and "auto_payload" in key.metric
        return Rung.PEER_LINK if between else None
    return next((rung for metric, rung in _METRICS.items() if key.metric.startswith(metric)), None)
