"""STREAM and what is like it: kernels over large arrays in a device's memory."""

import re
from dataclasses import replace

from figures import Figure
from meaning import Found, Meaning, differing

# BabelStream's names for operations that we call otherwise.
_OPERATIONS = {"mul": "scale"}


def stream(figure: Figure) -> Found:
    """BabelStream and its likes; ours are `stream` with BabelStream's own arrays and `stream_large` with 2 GiB."""
    operation = re.match(r"stream_([a-z]+)_", figure.metric)[1]  # type: ignore[index]
    if operation in ("init", "read"):
        what = {"init": "writes one array", "read": "reads one array"}[operation]
        return f"none of our measurements only {what}"
    array_bytes = _array_bytes(figure.size)
    # BabelStream makes arrays of 268 MB unless it is told otherwise.
    large = array_bytes is not None and array_bytes > 2**29
    meaning = Meaning(
        "stream_large" if large else "stream",
        {"operation": _OPERATIONS.get(operation, operation)},
        "traffic_GBps",
        f"{figure.convention}; {figure.size}",
        statistic="best",
    )
    return [_stream_differences(figure, meaning, array_bytes)]


def _array_bytes(size: str) -> int | None:
    if "-s 268435456" in size:
        return 2**31
    if "128Mi elements" in size:
        return 2**30
    if "4 GiB buffer" in size:
        return 2**32
    found = re.search(r"([\d.]+) MB per array", size)
    return None if found is None else round(float(found[1]) * 1e6)


def _stream_differences(figure: Figure, meaning: Meaning, array_bytes: int | None) -> Meaning:
    operation = meaning.parameters["operation"]
    if operation == "copy":
        meaning = differing(meaning, engine="a kernel there; PyTorch's runtime chooses what copies")
    if operation == "dot":
        meaning = differing(meaning, operation="its own kernel; ours is a library's dot product")
    if array_bytes is None:
        meaning = differing(meaning, size="size of the arrays not stated")
    elif (
        meaning.benchmark == "stream_large"
        and array_bytes != 2**31
        and abs(array_bytes - 2**31) > 1e6
    ):
        meaning = differing(meaning, size=f"arrays of {array_bytes / 1e9:.2f} GB, ours of 2.15 GB")
    if "best block size" in figure.size or "100% occupancy" in figure.size:
        meaning = differing(
            replace(meaning, statistic=None), conditions="the best over shapes of the launch"
        )
    return meaning


def only_read(figure: Figure) -> Found:
    meaning = Meaning(
        "stream_large", {"operation": "dot"}, "traffic_GBps", f"{figure.convention}; {figure.size}"
    )
    return [
        differing(meaning, operation="reads one buffer of 4.88 GB; dot reads two arrays of 2.15 GB")
    ]


def dcgm(figure: Figure) -> Found:
    """DCGM's memory bandwidth test: a kernel after STREAM's triad over three arrays of integers, the fastest call."""
    asked = "75 % of a figure; " if figure.metric.endswith("_min") else ""
    text = f"{asked}{figure.size}, unit as printed there: MB/s, MiB/s, GiB/s and GB/s of one and the same number"
    meaning = Meaning(
        "stream_large", {"operation": "triad"}, "traffic_GBps", text, statistic="best"
    )
    return [
        differing(
            meaning,
            type="integers, ours are doubles",
            counting="how bytes are counted is not stated, and the unit differs within the file",
        )
    ]


def elementwise(figure: Figure) -> Found:
    meaning = Meaning(
        "stream", {"operation": "scale"}, "traffic_GBps", f"{figure.convention}; {figure.size}"
    )
    return [
        differing(
            meaning, type="single precision, ours is double", size="arrays of 16.8 MB, ours of 268 MB",
            operation="which operation is not stated",
        )
    ]  # fmt: skip
