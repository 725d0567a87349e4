"""Collectives: algbw and busbw as the nccl-tests count them are ours; place, statistic and type may differ."""

import re
from dataclasses import replace

from figures import Figure
from meaning import Found, Meaning, differing
from sizes import bytes_of, ours
from variants import devices_of

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.keys import Scalar

# What the collectives are called in a metric, longest first.
_COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter", "reduce")
_IN_BOTH_PLACES = ("all_gather", "reduce_scatter")
# These are sold by the node of eight only.
_OF_A_NODE, RANKS_OF_A_NODE = ("MI300X", "MI325X"), 8


def collective(figure: Figure) -> Found:
    if figure.metric == "non_allreduce_busbw_GBps":
        said = "said of collectives other than all_reduce by ring, large, without a size"
        names = ("all_gather", "reduce_scatter", "broadcast", "reduce")
        return [
            differing(_rate(figure, name), size=said, conditions="a maintainer's statement")
            for name in names
        ]
    name = next((name for name in _COLLECTIVES if figure.metric.startswith(name)), None)
    if name is None:
        raise BadInput(
            f"metric is {figure.metric!r}; expected one that begins with {', '.join(_COLLECTIVES)}"
        )
    if figure.metric.endswith("_time_us"):
        meaning = replace(_rate(figure, name), metric="time_s", unit="s", factor=1e-6)
        return [
            replace(
                meaning, convention=f"microseconds, times 1e-6; {figure.convention}; {figure.size}"
            )
        ]
    return [_rate(figure, name)]


def _rate(figure: Figure, name: str) -> Meaning:
    ranks = devices_of(figure.variant, figure.size)
    if ranks is None and figure.hardware in _OF_A_NODE:
        ranks = RANKS_OF_A_NODE
    size_bytes = bytes_of(figure.size)
    if size_bytes is not None and "up to" in figure.size:
        # A plateau, held by every size near its end.
        size_bytes = 2 ** (size_bytes.bit_length() - 1)
    parameters: dict[str, Scalar] = {
        "dtype": "fp32",
        "size_bytes": ours(size_bytes) if size_bytes else 2**33,
    }
    if ranks is not None:
        parameters["world_size"] = ranks
    if name in _IN_BOTH_PLACES:
        parameters["place"] = "in_place" if "in-place" in figure.size else "out_of_place"
    suffix = re.search(r"(algbw|busbw|wirebw)", figure.metric)
    meaning = Meaning(
        name,
        parameters,
        f"{suffix[1]}_GBps" if suffix else "time_s",
        _counted(figure),
        statistic="mean",
        devices=ranks,
    )
    return _collective_differences(figure, meaning, known_size=size_bytes is not None)


def _counted(figure: Figure) -> str:
    """The remark on NVLS in the convention is about one of three pages that share it."""
    return f"{figure.convention.split('; page says')[0]}; {figure.size}"


def _collective_differences(figure: Figure, meaning: Meaning, *, known_size: bool) -> Meaning:
    meaning = differing(
        meaning, statistic="the mean over iterations and ranks, ours the median of the slowest rank"
    )
    wrong_place = {"all_reduce": "out-of-place", "broadcast": "out-of-place", "reduce": "out-of-place",
                   "all_to_all": "in-place"}.get(meaning.benchmark)  # fmt: skip
    if wrong_place and wrong_place in figure.size:
        meaning = differing(meaning, place=f"{wrong_place.replace('-', ' ')}, ours is not")
    if "average of in- and out-of-place" in figure.convention:
        meaning = differing(
            meaning, place="the average of in place and out of place, ours is in place"
        )
    if "average over sizes" in figure.size and "mi210" in figure.source:
        meaning = differing(meaning, size="the average over all sizes up to 8 GiB")
        meaning = replace(meaning, parameters={**meaning.parameters, "world_size": 4}, devices=4)
    elif not known_size:
        meaning = differing(meaning, size="size not stated")
    elif "up to" in figure.size:
        meaning = differing(meaning, size=figure.size.split(", ")[-1])
    if "fp32" not in figure.size:
        meaning = differing(meaning, type="type not stated; float is the tool's default")
    if devices_of(figure.variant, figure.size) is None:
        node = f"; a node has {RANKS_OF_A_NODE}" if figure.hardware in _OF_A_NODE else ""
        meaning = differing(meaning, ranks=f"how many ranks is not stated{node}")
    how = conditions(figure.variant)
    return differing(meaning, conditions=how) if how else meaning


def conditions(variant: str) -> str:
    """What a source says of the variant beyond the product: `NVLS off`, `4 nodes, EFA v4`."""
    found = re.search(r"\((.*?)\)(?!.*, )|, (.*)", variant)
    return "" if found is None else next(group for group in found.groups() if group)
